//! What one head's matrices are to a tensor core, and the two products of them.

use std::ops::Range;

use ndarray::{Array2, ArrayView2};
use num_traits::{Float, Zero};

use super::QUANTIZED_WEIGHT;
use super::sums::Sums;
use crate::cpu::element::{Accumulator, Element};
use crate::cpu::head::Head;
use crate::cpu::merge::Row;
use crate::cpu::tensor_core::Operand;
use crate::cpu::tiled::State;

/// The matrices of one head, each entry with the exponent that it is aligned by.
pub(super) struct Operands<'h, 'a, E: Element> {
    head: &'h Head<'a, E>,
    sums: Sums,
    weight_scale: f64,
    query: Array2<Operand>,
    key: Array2<Operand>,
    value: Array2<Operand>,
}

/// A key and its weight, as that meets the values.
type Weight = (usize, Operand);

impl<'h, 'a, E: Element> Operands<'h, 'a, E> {
    pub(super) fn new(head: &'h Head<'a, E>, sums: Sums, weight_scale: f64) -> Self {
        let [query, key, value] = [&head.query, &head.key, &head.value].map(operands::<E>);
        Self { head, sums, weight_scale, query, key, value }
    }

    /// The score of a visible key, of a dot product that starts at zero; descaled before it is scaled.
    fn score(&self, query: usize, key: usize) -> E::Accumulator {
        let factors = self.query.row(query).into_iter().zip(self.key.row(key));
        let entries = self.sums.dot(factors.map(|(q, k)| q.times(*k)));
        let entries = E::Accumulator::nearest(entries);
        let dot = match &self.head.descale {
            None => entries,
            Some(descale) => descale.of_product(query, key) * entries,
        };
        self.head.score_rule.score(dot, query, key).value
    }

    /// Takes the keys of one block that the query sees, as [`State::absorb`] does. Keys that it does
    /// not see, or that dropout leaves out, are nothing in their step.
    ///
    /// Clauses: `FAS:fwd.online.absorb`, `FAS:fwd.online.masked-block`, `FAS:score.dropout.keep`.
    pub(super) fn absorb(&self, state: &mut State<E>, query: usize, block: Range<usize>) {
        let head = self.head;
        let keys: Vec<_> = head.keys(query, block.clone()).collect();
        let scores: Vec<_> = keys.iter().map(|&key| self.score(query, key)).collect();
        // `max` passes over NaN; the weight of a NaN score is NaN under any maximum.
        state.rescale(scores.iter().copied().fold(state.maximum, Float::max));
        let reference = state.reference();
        let mut weights = Vec::with_capacity(keys.len());
        for (key, score) in keys.into_iter().zip(scores) {
            let weight = (score - reference).exp();
            state.normalizer += weight;
            if head.dropout.keeps(query, key) {
                weights.push((key, self.stored(weight)));
            }
        }
        let part = |key| head.descale.as_ref().map_or(0, |descale| descale.part(key));
        for weights in weights.chunk_by(|(one, _), (next, _)| part(*one) == part(*next)) {
            let descale = head.descale.as_ref().and_then(|it| it.of_part(part(weights[0].0)));
            self.add_part(&mut state.numerator, weights, block.start, descale);
        }
    }

    /// A weight as an operand: in the format of the inputs, or scaled and in `e4m3` beside values of 8
    /// bits.
    ///
    /// Clause: `FAS:num.weight-scale`.
    fn stored(&self, weight: E::Accumulator) -> Operand {
        if self.head.descale.is_none() {
            return operand(E::store(weight));
        }
        Operand::new(
            QUANTIZED_WEIGHT,
            QUANTIZED_WEIGHT.round(self.weight_scale * weight.to_exact()),
        )
    }

    /// Adds keys whose values share a descale: onto the numerator or, where that is the descale of
    /// these keys alone, onto zero, the sum of which is multiplied by it and then added.
    ///
    /// Clause: `FAS:num.descale.block`.
    fn add_part(
        &self,
        numerator: &mut [E::Accumulator],
        weights: &[Weight],
        start: usize,
        descale: Option<E::Accumulator>,
    ) {
        let Some(descale) = descale else { return self.add(numerator, weights, start) };
        let mut part = vec![E::Accumulator::zero(); numerator.len()];
        self.add(&mut part, weights, start);
        for (sum, part) in numerator.iter_mut().zip(part) {
            *sum += descale * part;
        }
    }

    /// The steps that a block of keys takes.
    ///
    /// Clause: `FAS:num.accumulation.tensor-core`.
    fn add(&self, sums: &mut [E::Accumulator], weights: &[Weight], start: usize) {
        let step = |key: usize| self.sums.step_of(key - start);
        let mut products = Vec::with_capacity(weights.len());
        for together in weights.chunk_by(|(one, _), (next, _)| step(*one) == step(*next)) {
            for (column, sum) in sums.iter_mut().enumerate() {
                products.clear();
                products
                    .extend(together.iter().map(|(key, w)| w.times(self.value[[*key, column]])));
                *sum = E::Accumulator::nearest(self.sums.add(sum.to_exact(), &products));
            }
        }
    }

    /// As [`State::finish`]; where inputs are quantized, times the descale of all values and divided
    /// by the scale of the weights, a power of two.
    ///
    /// Clauses: `FAS:num.descale.head`, `FAS:num.weight-scale`.
    pub(super) fn finish(&self, state: State<E>) -> Row<E::Accumulator> {
        let mut row = state.finish(self.head);
        if let Some(descale) = &self.head.descale {
            let unscaled = E::Accumulator::nearest(self.weight_scale.recip());
            let factor = descale.of_sum().map_or(unscaled, |of_sum| of_sum * unscaled);
            for entry in &mut row.output {
                *entry *= factor;
            }
        }
        row
    }
}

fn operands<E: Element>(matrix: &ArrayView2<'_, E>) -> Array2<Operand> {
    matrix.mapv(operand)
}

fn operand<E: Element>(element: E) -> Operand {
    Operand::new(E::FORMAT, element.to_exact())
}
