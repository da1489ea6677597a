//! Every mutant.

mod backward;
mod control;
mod mask;
mod place;
mod precision;
mod quantized;
mod score;
mod softmax;

use std::sync::LazyLock;

use super::{Change, Kind, Mutant, Pass};

/// Every mutant, faults of the forward pass first, then those of the backward pass, then controls.
#[must_use]
pub fn mutants() -> &'static [Mutant] {
    static ALL: LazyLock<Vec<Mutant>> = LazyLock::new(|| {
        let lists = [
            softmax::SOFTMAX,
            softmax::LSE,
            precision::PRECISION,
            quantized::QUANTIZED,
            mask::MASKS,
            score::SCORES,
            place::PLACES,
            backward::SCORE_GRADIENTS,
            backward::SUMS,
            backward::MODIFIED,
            control::CONTROLS,
        ];
        lists.concat()
    });
    &ALL
}

type Words = &'static str;
type Clauses = &'static [&'static str];

const fn forward_fault(name: Words, change: Change, clauses: Clauses, summary: Words) -> Mutant {
    Mutant { pass: Pass::Forward, kind: Kind::Fault, ..of(name, change, clauses, summary) }
}

const fn backward_fault(name: Words, change: Change, clauses: Clauses, summary: Words) -> Mutant {
    Mutant { pass: Pass::Backward, kind: Kind::Fault, ..of(name, change, clauses, summary) }
}

const fn forward_control(name: Words, change: Change, clauses: Clauses, summary: Words) -> Mutant {
    Mutant { pass: Pass::Forward, kind: Kind::Control, ..of(name, change, clauses, summary) }
}

const fn backward_control(name: Words, change: Change, clauses: Clauses, summary: Words) -> Mutant {
    Mutant { pass: Pass::Backward, kind: Kind::Control, ..of(name, change, clauses, summary) }
}

/// Tiles of the correct kernel, where a mutant does not need others.
const TILES: [usize; 2] = [64, 64];

const fn of(name: Words, change: Change, clauses: Clauses, summary: Words) -> Mutant {
    let (kind, pass) = (Kind::Fault, Pass::Forward);
    Mutant { name, summary, kind, pass, clauses, change, tiles: TILES }
}

impl Mutant {
    /// The same in other tiles, of queries and keys.
    const fn in_tiles(self, queries: usize, keys: usize) -> Self {
        Self { tiles: [queries, keys], ..self }
    }
}
