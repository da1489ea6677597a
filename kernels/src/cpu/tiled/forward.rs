//! The forward pass: query blocks, and for each of them key blocks with online softmax.
//!
//! Scores exist for one query and one key block at a time. What a query keeps between blocks is
//! its `State`: maximum, normalizer and numerator.

use std::ops::Range;

use num_traits::{Float, Zero};

use super::{Tiled, blocks};
use crate::cpu::element::Element;
use crate::cpu::forward::{Algorithm, Row};
use crate::cpu::head::Head;
use crate::cpu::row::add_scaled;

impl Algorithm for Tiled {
    /// Query blocks, and for each of them the key blocks that one of its queries sees.
    ///
    /// Clauses: `FAS:fwd.tiled.partition`, `FAS:fwd.tiled.tail`.
    fn rows<E: Element>(&self, head: &Head<'_, E>) -> Vec<Row<E::Accumulator>> {
        let mut rows = Vec::with_capacity(head.query.nrows());
        for queries in blocks(head.query.nrows(), self.block_queries) {
            let mut states = vec![State::<E>::new(head.value.ncols()); queries.len()];
            let seen = queries.clone().map(|query| head.visible.end(query)).max().unwrap_or(0);
            for keys in blocks(seen, self.block_keys) {
                for (query, state) in queries.clone().zip(&mut states) {
                    let end = keys.end.min(head.visible.end(query));
                    state.absorb(head, query, keys.start..end);
                }
            }
            rows.extend(states.into_iter().map(State::finish));
        }
        rows
    }
}

/// What a query keeps between key blocks: `(m, l, n)` of the keys absorbed so far, with
/// `l = sum_i e^(s_i - m)` and `n = sum_i e^(s_i - m) v_i`.
#[derive(Clone)]
struct State<E: Element> {
    maximum: E::Accumulator,
    normalizer: E::Accumulator,
    numerator: Vec<E::Accumulator>,
}

impl<E: Element> State<E> {
    /// The state of no keys, `(-inf, 0, 0)`.
    fn new(value_dim: usize) -> Self {
        Self {
            maximum: E::Accumulator::neg_infinity(),
            normalizer: E::Accumulator::zero(),
            numerator: vec![E::Accumulator::zero(); value_dim],
        }
    }

    /// Takes the keys of one block that the query sees. Where it sees none, nothing changes.
    ///
    /// Clauses: `FAS:fwd.online.absorb`, `FAS:fwd.online.masked-block`.
    fn absorb(&mut self, head: &Head<'_, E>, query: usize, keys: Range<usize>) {
        let scores: Vec<_> = keys.clone().map(|key| head.score(query, key)).collect();
        // `max` passes over NaN; the weight of a NaN score is NaN under any maximum.
        let maximum = scores.iter().copied().fold(self.maximum, Float::max);
        self.rescale(maximum);
        let reference = self.reference();
        for (key, score) in keys.zip(scores) {
            let weight = (score - reference).exp();
            self.normalizer += weight;
            add_scaled(&mut self.numerator, E::store(weight).load(), head.value.row(key));
        }
    }

    /// Moves to a larger maximum: both sums were weighted by `e^(s - old)`, and `e^(old - new)`
    /// times that is `e^(s - new)`. From `-inf` the factor is 0, and what it meets is 0 too.
    ///
    /// Clause: `FAS:fwd.online.rescale`.
    fn rescale(&mut self, maximum: E::Accumulator) {
        if maximum > self.maximum {
            let factor = (self.maximum - maximum).exp();
            self.normalizer *= factor;
            for sum in &mut self.numerator {
                *sum *= factor;
            }
            self.maximum = maximum;
        }
    }

    /// What scores are measured from: the maximum or, while every score was `-inf`, zero. Those
    /// scores then weigh `e^-inf = 0` where `e^(-inf + inf)` is NaN. The maximum itself stays
    /// `-inf`, so that the first finite score, however low, still becomes it.
    ///
    /// Clause: `FAS:fwd.special.infinity`.
    fn reference(&self) -> E::Accumulator {
        if self.maximum == E::Accumulator::neg_infinity() {
            E::Accumulator::zero()
        } else {
            self.maximum
        }
    }

    /// `n / l` and `m + ln l`. Where nothing had weight, no key was visible (or every score was
    /// `-inf`, which this kernel does not tell apart).
    ///
    /// Clauses: `FAS:fwd.softmax.definition`, `FAS:fwd.softmax.empty-row`,
    /// `FAS:fwd.lse.definition`.
    fn finish(self) -> Row<E::Accumulator> {
        if self.normalizer == E::Accumulator::zero() {
            return Row::without_keys(self.numerator.len());
        }
        Row {
            output: self.numerator.into_iter().map(|sum| sum / self.normalizer).collect(),
            lse: self.maximum + self.normalizer.ln(),
        }
    }
}
