//! Every mutant.

mod backward;
mod control;
mod forward;

use std::sync::LazyLock;

use super::{Change, Kind, Mutant, Pass};

/// Every mutant, faults of the forward pass first, then those of the backward pass, then controls.
#[must_use]
pub fn mutants() -> &'static [Mutant] {
    static ALL: LazyLock<Vec<Mutant>> = LazyLock::new(|| {
        let lists = [forward::faults(), backward::faults(), control::controls()];
        lists.into_iter().flatten().collect()
    });
    &ALL
}

/// Tiles of the correct kernel, where a mutant does not need others.
const TILES: [usize; 2] = [64, 64];

impl Mutant {
    const fn fault(
        pass: Pass,
        name: &'static str,
        change: Change,
        clauses: &'static [&'static str],
        summary: &'static str,
    ) -> Self {
        Self { name, summary, kind: Kind::Fault, pass, clauses, change, tiles: TILES }
    }

    const fn control(
        pass: Pass,
        name: &'static str,
        change: Change,
        clauses: &'static [&'static str],
        summary: &'static str,
    ) -> Self {
        Self { name, summary, kind: Kind::Control, pass, clauses, change, tiles: TILES }
    }

    /// The same in other tiles, of queries and keys.
    const fn in_tiles(self, queries: usize, keys: usize) -> Self {
        Self { tiles: [queries, keys], ..self }
    }
}
