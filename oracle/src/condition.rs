//! The quantities that the stated error bounds depend on, rounded outward to `f64`.

use flashproof_spec::bound::{RowCondition, SinkCondition};
use rug::float::Round;
use rug::ops::CompleteRound;
use rug::{Float, Integer};

use crate::enclosure::Enclosure;
use crate::finite::Magnitudes;
use crate::ranking::{Ranking, RowScores};
use crate::scale::dyadic;
use crate::weights::Weights;

/// What is known of a row's scores.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounded<'a> {
    pub(crate) scores: &'a RowScores,
    pub(crate) magnitudes: &'a Magnitudes,
    pub(crate) ranking: &'a Ranking<'a>,
    pub(crate) weights: &'a Weights,
    /// Bounds on the sum of the weights, in units of the weights' grid.
    pub(crate) normalizer: &'a (Integer, Integer),
}

/// The condition of a row with this LSE and output; `None` for an output that is no number.
pub(crate) fn condition(
    bounded: Bounded<'_>,
    lse: &Enclosure,
    outputs: &[Option<&Enclosure>],
) -> RowCondition {
    let Bounded { magnitudes, ranking, weights, .. } = bounded;
    let scale_hi = magnitudes.scale.magnitude_hi(f64::MANTISSA_DIGITS);
    let score_magnitude_hi = ranking.magnitudes_hi();
    let keys = score_magnitude_hi.len();
    let mut of_key = vec![0; keys];
    ranking.groups.keys().for_each(|(key, group)| of_key[key] = group);
    let by_key = |value: &dyn Fn(usize) -> f64| of_key.iter().map(|&group| value(group)).collect();
    let (normalizer_lo, normalizer_hi) = bounded.normalizer();
    let largest = bounded.largest_normalizer_lo(normalizer_lo);
    let whole_line = (f64::NEG_INFINITY, f64::INFINITY);
    let (output_lo, output_hi) =
        outputs.iter().map(|output| output.map_or(whole_line, Enclosure::to_f64)).unzip();
    RowCondition {
        gap_lo: by_key(&|group| bounded.gap(group).0),
        gap_hi: by_key(&|group| bounded.gap(group).1),
        product_magnitude_hi: bounded.products_hi(&scale_hi, &score_magnitude_hi),
        addend_magnitude_hi: match &magnitudes.addends[..] {
            [] => vec![0.0; keys],
            addends => addends.to_vec(),
        },
        cap_argument_lo: bounded.cap_arguments_lo(keys),
        score_magnitude_hi,
        dot_mass_hi: magnitudes
            .masses
            .iter()
            .map(|&mass| scaled_mass_hi(&scale_hi, mass))
            .collect(),
        probability_lo: by_key(&|group| quotient_lo(weights.bounds[group].0, normalizer_hi)),
        probability_hi: by_key(&|group| quotient_hi(weights.bounds[group].1, normalizer_lo)),
        max_magnitude_hi: bounded.max_magnitude_hi(),
        normalizer_lo: largest,
        normalizer_hi,
        lse_magnitude_hi: lse.magnitude_hi(),
        output_lo,
        output_hi,
        sink: bounded.sink((normalizer_lo, normalizer_hi)),
        product_unit_hi: 1.0,
        value_unit_hi: 1.0,
    }
}

impl Bounded<'_> {
    /// Bounds on the sum of the weights against the first group.
    fn normalizer(&self) -> (f64, f64) {
        let units = |units: &Integer| dyadic(units, -(self.weights.precision as i32));
        Enclosure::new(units(&self.normalizer.0), units(&self.normalizer.1)).to_f64()
    }

    /// A lower bound on the sum of the weights against the largest score, from one against the first
    /// group. With that group's score less than the largest by at most `d`, it is `e^-d >= 1 - d` times as
    /// large, and never below 1.
    fn largest_normalizer_lo(&self, normalizer_lo: f64) -> f64 {
        match self.weights.excess_hi {
            0.0 => normalizer_lo,
            excess => (normalizer_lo * (1.0 - excess).next_down()).next_down().max(1.0),
        }
    }

    /// Bounds on the distance of a group's score from the largest.
    fn gap(&self, group: usize) -> (f64, f64) {
        let Weights { gaps_lo, gaps_hi, .. } = self.weights;
        let hi = match self.weights.excess_hi {
            0.0 => gaps_hi[group],
            excess => (gaps_hi[group] + excess).next_up(),
        };
        (gaps_lo[group].max(0.0), hi)
    }

    /// Upper bounds on the scaled dot products. Plain scores are these.
    fn products_hi(&self, scale_hi: &Float, score_magnitude_hi: &[f64]) -> Vec<f64> {
        let RowScores { rule, dots, exponent, .. } = self.scores;
        if rule.is_plain() {
            return score_magnitude_hi.to_vec();
        }
        let mut products: Vec<f64> =
            dots.iter().map(|dot| score_hi(scale_hi, dot, *exponent)).collect();
        let Magnitudes { saturated, masses, .. } = self.magnitudes;
        for &key in saturated.iter().filter(|&&key| masses[key] == f64::INFINITY) {
            products[key] = f64::INFINITY;
        }
        products
    }

    /// Lower bounds on the arguments of the softcap.
    fn cap_arguments_lo(&self, keys: usize) -> Vec<f64> {
        let mut arguments = self.ranking.cap_arguments_lo(keys);
        for &key in &self.magnitudes.saturated {
            arguments[key] = f64::INFINITY;
        }
        arguments
    }

    fn max_magnitude_hi(&self) -> f64 {
        let reference = self.ranking.reference(self.weights.precision).magnitude_hi();
        match self.weights.excess_hi {
            0.0 => reference,
            excess => (reference + excess).next_up(),
        }
    }

    /// The condition of the sink, where there is one.
    fn sink(&self, (normalizer_lo, normalizer_hi): (f64, f64)) -> Option<SinkCondition> {
        let logit = self.magnitudes.logit?;
        let groups = &self.ranking.groups;
        let sink = groups.sink()?;
        let Weights { gaps_lo, gaps_hi, bounds, .. } = self.weights;
        let with_keys = || (0..groups.len()).filter(|&group| !groups.members(group).is_empty());
        let nearest_lo = with_keys().map(|group| gaps_lo[group]).fold(f64::INFINITY, f64::min);
        let nearest_hi = with_keys().map(|group| gaps_hi[group]).fold(f64::INFINITY, f64::min);
        let key_gap = (gaps_hi[sink] - nearest_lo).max(nearest_hi - gaps_lo[sink]);
        let (gap_lo, gap_hi) = self.gap(sink);
        Some(SinkCondition {
            logit,
            gap_lo,
            gap_hi,
            key_gap_hi: if key_gap == 0.0 { 0.0 } else { key_gap.next_up() },
            probability_lo: quotient_lo(bounds[sink].0, normalizer_hi),
            probability_hi: quotient_hi(bounds[sink].1, normalizer_lo),
        })
    }
}

/// `|scale * dot| * 2^exponent`, rounded up.
pub(crate) fn score_hi(scale_hi: &Float, dot: &Integer, exponent: i32) -> f64 {
    let product = (scale_hi * &*dot.as_abs()).complete_round(f64::MANTISSA_DIGITS, Round::Up).0;
    (product << exponent).to_f64_round(Round::Up)
}

/// `|scale| * mass`, rounded up; infinite with a mass beyond `f64`, unless the scale is zero.
pub(crate) fn scaled_mass_hi(scale_hi: &Float, mass: f64) -> f64 {
    if scale_hi.is_zero() {
        return 0.0;
    }
    (scale_hi * mass).complete_round(f64::MANTISSA_DIGITS, Round::Up).0.to_f64_round(Round::Up)
}

/// A non-negative quotient, rounded down and not below zero.
fn quotient_lo(x: f64, y: f64) -> f64 {
    (x / y).next_down().max(0.0)
}

/// A non-negative quotient, rounded up.
fn quotient_hi(x: f64, y: f64) -> f64 {
    (x / y).next_up()
}
