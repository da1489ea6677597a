//! What a query head reads of the inputs, and its scores.

use std::ops::Range;

use flashproof_spec::problem::Problem;
use flashproof_spec::tensor::Inputs;
use ndarray::{Array4, ArrayView2, s};

use super::convert::elements;
use super::element::Element;
use super::row::dot;
use super::visible::VisibleKeys;

/// What the queries of one head read.
pub(super) struct Head<'a, E: Element> {
    /// `[query_len, head_dim]`.
    pub(super) query: ArrayView2<'a, E>,
    /// `[key_len, head_dim]`, padding included.
    pub(super) key: ArrayView2<'a, E>,
    /// `[key_len, value_dim]`, padding included.
    pub(super) value: ArrayView2<'a, E>,
    /// The softmax scale, rounded to the accumulator.
    pub(super) scale: E::Accumulator,
    /// Where each query's keys end.
    pub(super) visible: VisibleKeys,
}

impl<E: Element> Head<'_, E> {
    /// `scale * <query, key>`: each product, each addition and the scaled sum rounded to the
    /// accumulator; the largest score (or the LSE, in a backward pass) is subtracted from that
    /// rounded number, never from a fused product, so that the difference at the largest score is
    /// exactly zero.
    ///
    /// Clause: `FAS:fwd.score.scale`.
    pub(super) fn score(&self, query: usize, key: usize) -> E::Accumulator {
        self.scale * dot(self.query.row(query), self.key.row(key))
    }
}

/// The inputs of a problem as elements, to be read head by head.
pub(super) struct Heads<'a, E: Element> {
    problem: &'a Problem,
    scale: E::Accumulator,
    query: Array4<E>,
    key: Array4<E>,
    value: Array4<E>,
}

impl<'a, E: Element> Heads<'a, E> {
    /// Reads all of `inputs`, which must have the problem's shapes.
    pub(super) fn new(problem: &'a Problem, inputs: &Inputs, scale: E::Accumulator) -> Self {
        let [query, key, value] =
            [&inputs.query, &inputs.key, &inputs.value].map(|tensor| elements(&tensor.view4()));
        Self { problem, scale, query, key, value }
    }

    /// Query head `query_head` of batch member `batch`, with the key head that it reads:
    /// consecutive query heads share one.
    ///
    /// Clause: `FAS:head.group.block`.
    pub(super) fn head(&self, batch: usize, query_head: usize) -> Head<'_, E> {
        let key_head = query_head / group_size(self.problem);
        Head {
            query: self.query.slice(s![batch, query_head, .., ..]),
            key: self.key.slice(s![batch, key_head, .., ..]),
            value: self.value.slice(s![batch, key_head, .., ..]),
            scale: self.scale,
            visible: VisibleKeys::new(self.problem, batch),
        }
    }
}

/// The query heads that read key head `key_head`.
///
/// Clause: `FAS:head.group.block`.
pub(super) fn query_heads(problem: &Problem, key_head: usize) -> Range<usize> {
    let size = group_size(problem);
    key_head * size..(key_head + 1) * size
}

fn group_size(problem: &Problem) -> usize {
    problem.query_heads / problem.key_heads
}
