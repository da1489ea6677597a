//! Cases that no oracle's answer stands behind: related problems, formulas, and merges.

use flashproof_spec::format::Format;
use flashproof_spec::problem::Problem;

use super::Suite;
use crate::case::{Case, Check};
use crate::closed::ClosedForm;
use crate::inputs::Upstream;
use crate::relation::Relation;

/// Keys of the long sequences: as many as kernels are used with.
const LONG: usize = 131_072;

/// Partials to merge: one, two, and more than a tile of them.
const PARTIALS: [usize; 3] = [1, 2, 67];

/// The cases of the forward pass, in `f32`.
pub(super) fn forward(suite: Suite, seed: u64) -> Vec<Case> {
    let related = Relation::ALL.into_iter().flat_map(|relation| {
        bases(suite, relation).into_iter().map(move |problem| (Check::Related(relation), problem))
    });
    let closed = ClosedForm::ALL.into_iter().flat_map(|form| {
        lengths(suite).into_iter().map(move |keys| (Check::Closed(form), decoding(keys)))
    });
    let merges = PARTIALS.into_iter().map(|partials| (Check::Merge(partials), small()));
    related
        .chain(closed)
        .chain(merges)
        .map(|(check, problem)| Case::checking(check, problem, seed))
        .collect()
}

/// The cases of the backward pass, in `f32`: that gradients repeat.
pub(super) fn backward(seed: u64) -> Vec<Case> {
    let repeat = Case::checking(Check::Related(Relation::Repeat), small(), seed);
    vec![repeat.with_upstream(Upstream::OutputAndLse)]
}

/// Several members, heads in groups, and lengths that no tile divides.
fn small() -> Problem {
    Problem {
        batch: 2,
        key_heads: 2,
        query_len: 9,
        value_dim: 8,
        ..Problem::new(Format::F32, 4, 71, 16)
    }
}

/// A small problem, and a sequence that is too long to compute exactly in passing.
fn bases(suite: Suite, relation: Relation) -> Vec<Problem> {
    let keys = match (suite, relation) {
        // As many queries as keys.
        (Suite::Quick, Relation::DocumentConcat) => 300,
        (Suite::Full, Relation::DocumentConcat) => 2000,
        (Suite::Quick, _) => 5000,
        (Suite::Full, _) => LONG - 1,
    };
    vec![small(), decoding(keys)]
}

/// A few queries on so many keys.
fn decoding(keys: usize) -> Problem {
    Problem { query_len: 3, value_dim: 8, ..Problem::new(Format::F32, 1, keys, 32) }
}

/// One key, lengths at the edges of tiles, and long ones.
fn lengths(suite: Suite) -> Vec<usize> {
    let long = [4096, LONG];
    match suite {
        Suite::Quick => [&[1, 127, 128, 129][..], &long].concat(),
        Suite::Full => [&[1, 2, 63, 64, 65, 127, 128, 129, 1000, 40_000][..], &long].concat(),
    }
}
