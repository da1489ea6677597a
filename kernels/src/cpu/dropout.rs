//! Which weights dropout keeps, and what it multiplies them by.

use flashproof_spec::problem::Problem;

use super::broadcast::HeadPattern;
use super::element::Accumulator;

/// One head's dropout; without dropout in the problem, every weight is kept as it is.
pub(super) struct HeadDropout<'a, A> {
    keep: Option<HeadPattern<'a>>,
    /// What a kept weight is multiplied by.
    pub(super) scale: A,
}

impl<'a, A: Accumulator> HeadDropout<'a, A> {
    /// That of query head `head` of batch member `batch`.
    pub(super) fn new(problem: &'a Problem, batch: usize, head: usize) -> Self {
        match &problem.dropout {
            None => Self { keep: None, scale: A::one() },
            Some(dropout) => Self {
                keep: Some(HeadPattern::new(&dropout.keep, batch, head)),
                scale: A::nearest(dropout.scale),
            },
        }
    }

    /// Whether the weight of a query and a key is kept.
    pub(super) fn keeps(&self, query: usize, key: usize) -> bool {
        self.keep.is_none_or(|keep| keep.at(query, key))
    }

    /// What their weight is multiplied by, after the softmax: `z`.
    ///
    /// Clause: `FAS:score.dropout.keep`.
    pub(super) fn factor(&self, query: usize, key: usize) -> A {
        if self.keeps(query, key) { self.scale } else { A::zero() }
    }
}
