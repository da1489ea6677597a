//! What a query keeps between key blocks.

use std::ops::Range;

use num_traits::{Float, Zero};

use crate::cpu::element::Element;
use crate::cpu::head::Head;
use crate::cpu::merge::Row;
use crate::cpu::row::add_scaled;

/// `(m, l, n)` of the keys absorbed so far, with `l = sum_i e^(s_i - m)` and
/// `n = sum_i e^(s_i - m) v_i`; dropout leaves a key out of `n`, never of `l`.
#[derive(Clone)]
pub(in crate::cpu) struct State<E: Element> {
    pub(in crate::cpu) maximum: E::Accumulator,
    pub(in crate::cpu) normalizer: E::Accumulator,
    pub(in crate::cpu) numerator: Vec<E::Accumulator>,
}

impl<E: Element> State<E> {
    /// The state of no keys, `(-inf, 0, 0)`.
    pub(in crate::cpu) fn new(value_dim: usize) -> Self {
        Self {
            maximum: E::Accumulator::neg_infinity(),
            normalizer: E::Accumulator::zero(),
            numerator: vec![E::Accumulator::zero(); value_dim],
        }
    }

    /// The state of no keys and the head's sink, if it has one: `(t, 1, 0)`, as of a key without a
    /// value. The first rescaling turns that 1 into the sink's weight, so the sink costs no rounding
    /// that a key does not.
    ///
    /// Clauses: `FAS:score.sink.normalizer`, `FAS:score.sink.once`.
    pub(in crate::cpu) fn with_sink(head: &Head<'_, E>) -> Self {
        let mut state = Self::new(head.value.ncols());
        if let Some(logit) = head.sink {
            state.rescale(logit);
            state.normalizer += (logit - state.reference()).exp();
        }
        state
    }

    /// Takes the keys of one block that the query sees. Where it sees none, nothing changes.
    ///
    /// Clauses: `FAS:fwd.online.absorb`, `FAS:fwd.online.masked-block`, `FAS:score.dropout.keep`.
    pub(in crate::cpu) fn absorb(&mut self, head: &Head<'_, E>, query: usize, block: Range<usize>) {
        let keys: Vec<_> = head.keys(query, block).collect();
        let scores: Vec<_> = keys.iter().map(|&key| head.score(query, key).value).collect();
        // `max` passes over NaN; the weight of a NaN score is NaN under any maximum.
        let maximum = scores.iter().copied().fold(self.maximum, Float::max);
        self.rescale(maximum);
        let reference = self.reference();
        for (key, score) in keys.into_iter().zip(scores) {
            let weight = (score - reference).exp();
            self.normalizer += weight;
            if head.dropout.keeps(query, key) {
                add_scaled(&mut self.numerator, E::store(weight).load(), head.value.row(key));
            }
        }
    }

    /// Moves to a larger maximum: both sums were weighted by `e^(s - old)`, and `e^(old - new)`
    /// times that is `e^(s - new)`. From `-inf` the factor is 0, and what it meets is 0 too.
    ///
    /// Clause: `FAS:fwd.online.rescale`.
    pub(in crate::cpu) fn rescale(&mut self, maximum: E::Accumulator) {
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
    pub(in crate::cpu) fn reference(&self) -> E::Accumulator {
        if self.maximum == E::Accumulator::neg_infinity() {
            E::Accumulator::zero()
        } else {
            self.maximum
        }
    }

    /// `z n / l` and `m + ln l`, with `z` what dropout multiplies kept weights by, once for all of
    /// them. Where nothing had weight, no key was visible (or every score was `-inf`, which this
    /// kernel does not tell apart).
    ///
    /// Clauses: `FAS:fwd.softmax.definition`, `FAS:fwd.softmax.empty-row`,
    /// `FAS:fwd.lse.definition`, `FAS:score.dropout.keep`.
    pub(in crate::cpu) fn finish(self, head: &Head<'_, E>) -> Row<E::Accumulator> {
        if self.normalizer == E::Accumulator::zero() {
            return Row::without_keys(self.numerator.len());
        }
        let kept = head.dropout.scale;
        Row {
            output: self.numerator.into_iter().map(|sum| kept * (sum / self.normalizer)).collect(),
            lse: self.maximum + self.normalizer.ln(),
        }
    }
}
