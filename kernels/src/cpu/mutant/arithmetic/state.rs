//! Online softmax: what a query keeps between blocks of keys.

use std::ops::Range;

use flashproof_spec::format::Format;
use num_traits::{Float, One, Zero};

use super::exponential::{cut_to_bits, next_up, rounded, to_bits};
use super::forward::ForwardFault;
use super::terms::{Sight, Term};
use crate::cpu::element::{Accumulator, Element};
use crate::cpu::merge::Row;
use crate::cpu::row::add_scaled;

/// `(m, l, n)` of the keys absorbed so far, and what faults keep beside.
#[derive(Clone)]
pub(super) struct State<E: Element> {
    fault: Option<ForwardFault>,
    maximum: E::Accumulator,
    normalizer: E::Accumulator,
    /// The sum of weights as they were rounded.
    rounded_normalizer: E::Accumulator,
    numerator: Vec<E::Accumulator>,
}

/// What `MaxInitFinite` starts from.
const FINITE: f64 = -5e4;

/// A rise of the maximum, in binary logarithm, up to which a lazy kernel leaves its sums as they are
/// (FlashAttention-4).
const LAZY_LOG2: f64 = 8.0;

/// Significant bits of the exponential of `Exp12Bit`.
const EXP_BITS: u32 = 12;

/// Significant bits of the exponential of `ExpCut`.
const CUT_BITS: u32 = 16;

impl<E: Element> State<E> {
    /// The state of no keys and the head's sink, if it has one.
    pub(super) fn initial(sight: &Sight<'_, '_, E>) -> Self {
        let zero = E::Accumulator::zero();
        let mut state = Self {
            fault: sight.fault,
            maximum: E::Accumulator::neg_infinity(),
            normalizer: zero,
            rounded_normalizer: zero,
            numerator: vec![zero; sight.head.value.ncols()],
        };
        if state.has(ForwardFault::MaxInitFinite) {
            state.maximum = E::Accumulator::nearest(FINITE);
        }
        if let Some(logit) = sight.head.sink {
            let logit = logit - sight.shift();
            let reference = state.rescale(logit);
            if !state.has(ForwardFault::SinkNotInNormalizer) {
                let weight = state.weight(logit, reference);
                state.normalizer += weight;
                state.rounded_normalizer += weight;
            }
        }
        state
    }

    fn has(&self, fault: ForwardFault) -> bool {
        self.fault == Some(fault)
    }

    pub(super) fn maximum(&self) -> E::Accumulator {
        self.maximum
    }

    /// Takes a maximum that no key of this row need have.
    pub(super) fn start_from(&mut self, maximum: E::Accumulator) {
        self.rescale(maximum);
    }

    /// Takes the keys of one block.
    pub(super) fn absorb(&mut self, sight: &Sight<'_, '_, E>, query: usize, block: Range<usize>) {
        let terms = sight.terms(query, block.clone());
        let scores = terms.iter().map(|term| term.score);
        let maximum = self.of_block(&terms, scores.fold(self.maximum, Float::max));
        let reference = self.rescale(maximum);
        for term in &terms {
            let weight = self.weight(term.score, reference);
            let stored = self.stored(weight);
            let kept = term.key.filter(|&key| sight.head.dropout.keeps(query, key));
            if !self.has(ForwardFault::DropoutInNormalizer) || kept.is_some() {
                let rounded = self.has(ForwardFault::RoundedNormalizer)
                    || self.has(ForwardFault::DeclaredRoundedNormalizer);
                self.normalizer += if rounded { stored } else { weight };
                self.rounded_normalizer += stored;
            }
            if let Some(key) = kept {
                add_scaled(&mut self.numerator, stored, sight.head.value.row(key));
            }
        }
        if self.has(ForwardFault::MaskedValueMultiply) {
            let seen = |key| terms.iter().any(|term| term.key == Some(key));
            for key in block.filter(|&key| !seen(key)) {
                let zero = E::Accumulator::zero();
                add_scaled(&mut self.numerator, zero, sight.head.value.row(key));
            }
        }
        self.carry();
    }

    /// The maximum after a block whose terms and all before them have `maximum`.
    fn of_block(&self, terms: &[Term<E::Accumulator>], maximum: E::Accumulator) -> E::Accumulator {
        let zero = E::Accumulator::zero();
        match self.fault {
            Some(ForwardFault::DeadBlockMaxZero) if maximum == E::Accumulator::neg_infinity() => {
                zero
            }
            Some(ForwardFault::TieShift) => {
                let ties = terms.iter().filter(|term| term.score == maximum).count();
                match ties {
                    0 | 1 => maximum,
                    _ if maximum > zero => maximum + maximum,
                    _ => zero,
                }
            }
            _ => maximum,
        }
    }

    /// Moves to a larger maximum, and gives what scores are measured from.
    fn rescale(&mut self, maximum: E::Accumulator) -> E::Accumulator {
        if self.has(ForwardFault::NoInfGuard) {
            self.multiply((self.maximum - maximum).exp());
            self.maximum = maximum;
            return maximum;
        }
        if maximum > self.maximum {
            let most = E::Accumulator::nearest(LAZY_LOG2 * std::f64::consts::LN_2);
            if maximum - self.maximum <= most {
                match self.fault {
                    Some(ForwardFault::LazyRescaleFrame) => return maximum,
                    Some(ForwardFault::LazyRescale) => return self.maximum,
                    _ => {}
                }
            }
            self.multiply(self.exp(self.maximum - maximum));
            self.maximum = maximum;
        }
        self.reference()
    }

    fn multiply(&mut self, factor: E::Accumulator) {
        if !self.has(ForwardFault::SkipNormalizerRescale) {
            self.normalizer *= factor;
            self.rounded_normalizer *= factor;
        }
        if !self.has(ForwardFault::SkipNumeratorRescale) {
            for sum in &mut self.numerator {
                *sum *= factor;
            }
        }
    }

    fn reference(&self) -> E::Accumulator {
        if self.maximum == E::Accumulator::neg_infinity() {
            E::Accumulator::zero()
        } else {
            self.maximum
        }
    }

    /// The weight of a score measured from `reference`.
    fn weight(&self, score: E::Accumulator, reference: E::Accumulator) -> E::Accumulator {
        if self.has(ForwardFault::FusedResidue) {
            let log2_e = E::Accumulator::nearest(std::f64::consts::LOG2_E);
            return score.mul_add(log2_e, -(reference * log2_e)).exp2();
        }
        self.exp(score - reference)
    }

    fn exp(&self, x: E::Accumulator) -> E::Accumulator {
        let exp = x.exp();
        match self.fault {
            Some(ForwardFault::Exp12Bit) => to_bits(EXP_BITS, exp),
            Some(ForwardFault::ExpCut) => cut_to_bits(CUT_BITS, exp),
            Some(ForwardFault::ExpOneUlp) => next_up(exp),
            _ => exp,
        }
    }

    /// A weight as it meets the values.
    fn stored(&self, weight: E::Accumulator) -> E::Accumulator {
        match self.fault {
            Some(ForwardFault::DeclaredWideWeights) => weight,
            _ => E::store(weight).load(),
        }
    }

    /// Stores the sums between blocks.
    fn carry(&mut self) {
        match self.fault {
            Some(ForwardFault::NumeratorBf16) => {
                for sum in &mut self.numerator {
                    *sum = rounded(Format::Bf16, *sum);
                }
            }
            Some(ForwardFault::NormalizerBf16) => {
                self.normalizer = rounded(Format::Bf16, self.normalizer);
            }
            _ => {}
        }
    }

    /// Output and LSE.
    pub(super) fn finish(self, sight: &Sight<'_, '_, E>) -> Row<E::Accumulator> {
        if self.normalizer == E::Accumulator::zero() {
            return self.without_keys(sight);
        }
        let Self { fault, maximum, normalizer, rounded_normalizer, numerator } = self;
        let kept = sight.head.dropout.scale;
        let reciprocal = E::Accumulator::one() / normalizer;
        let divided = |sum: E::Accumulator| match fault {
            Some(ForwardFault::Reciprocal) => sum * reciprocal,
            _ => sum / normalizer,
        };
        let lse = match fault {
            Some(ForwardFault::LseWithoutMaximum) => normalizer.ln(),
            Some(ForwardFault::LseFromRounded) => maximum + rounded_normalizer.ln(),
            Some(ForwardFault::AlibiShifted) => maximum + normalizer.ln() + sight.shift(),
            _ => maximum + normalizer.ln(),
        };
        Row { output: numerator.into_iter().map(|sum| kept * divided(sum)).collect(), lse }
    }

    fn without_keys(self, sight: &Sight<'_, '_, E>) -> Row<E::Accumulator> {
        let mut row = Row::without_keys(self.numerator.len());
        let values = &sight.head.value;
        if self.has(ForwardFault::EmptyRowMean) && values.nrows() > 0 {
            let share = E::Accumulator::one() / E::Accumulator::nearest(values.nrows() as f64);
            for value in values.rows() {
                add_scaled(&mut row.output, share, value);
            }
        }
        row
    }
}
