//! The quantities that the stated error bounds depend on, rounded outward to `f64`.

use flashproof_spec::bound::RowCondition;
use rug::float::Round;
use rug::ops::CompleteRound;
use rug::{Float, Integer};

use crate::enclosure::Enclosure;
use crate::groups::Groups;
use crate::scale::{ExactScale, dyadic};
use crate::weights::Weights;

/// What is known of a row's scores.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ScoreBounds<'a> {
    pub(crate) scale: ExactScale,
    /// Dot products, in units of `2^exponent`.
    pub(crate) dots: &'a [Integer],
    pub(crate) exponent: i32,
    /// Upper bounds on `sum_t |q_t k_it|`.
    pub(crate) masses: &'a [f64],
    pub(crate) groups: &'a Groups,
    pub(crate) weights: &'a Weights,
    /// Bounds on the sum of the weights, in units of the weights' grid.
    pub(crate) normalizer: &'a (Integer, Integer),
}

/// The condition of a row with this largest score, LSE and output; `None` for an output that is no
/// number.
pub(crate) fn condition(
    scores: ScoreBounds<'_>,
    max: &Enclosure,
    lse: &Enclosure,
    outputs: &[Option<&Enclosure>],
) -> RowCondition {
    let ScoreBounds { scale, dots, exponent, masses, groups, weights, normalizer } = scores;
    let scale_hi = scale.magnitude_hi(f64::MANTISSA_DIGITS);
    let units = |units: &Integer| dyadic(units, -(weights.precision as i32));
    let (normalizer_lo, normalizer_hi) =
        Enclosure::new(units(&normalizer.0), units(&normalizer.1)).to_f64();
    let mut of_key = vec![0; dots.len()];
    groups.keys().for_each(|(key, group)| of_key[key] = group);
    let by_key = |value: &dyn Fn(usize) -> f64| of_key.iter().map(|&group| value(group)).collect();
    let whole_line = (f64::NEG_INFINITY, f64::INFINITY);
    let (output_lo, output_hi) =
        outputs.iter().map(|output| output.map_or(whole_line, Enclosure::to_f64)).unzip();
    RowCondition {
        gap_hi: by_key(&|group| weights.gaps_hi[group]),
        score_magnitude_hi: dots.iter().map(|dot| score_hi(&scale_hi, dot, exponent)).collect(),
        dot_mass_hi: masses.iter().map(|&mass| scaled_mass_hi(&scale_hi, mass)).collect(),
        probability_lo: by_key(&|group| quotient_lo(weights.bounds[group].0, normalizer_hi)),
        probability_hi: by_key(&|group| quotient_hi(weights.bounds[group].1, normalizer_lo)),
        max_magnitude_hi: max.magnitude_hi(),
        normalizer_lo,
        normalizer_hi,
        lse_magnitude_hi: lse.magnitude_hi(),
        output_lo,
        output_hi,
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
