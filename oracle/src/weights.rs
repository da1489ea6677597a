//! The weights `e^(s_i - m)` of a row, as integers on a grid of absolute spacing `2^-precision`.
//!
//! Every score is at most the largest one, `m`, so weights lie in `(0, 1]`, the largest is exactly
//! 1, and a sum of weighted values loses the same absolute amount whatever the weight. What follows
//! the exponential is then integer arithmetic: sums are exact.
//!
//! The gap `x` of a linear score ([`crate::score`]), `|factor| * |integer - largest integer|`, is rounded
//! up to `X`. With `2^b` above every gap that
//! matters and `X` computed at `precision + 10 + b` bits from a scale rounded up at as many, two
//! roundings give `0 <= X - x <= 2^b * 2^(2.1 - precision - 10 - b) < 2^-(precision + 7)`. Gaps of other
//! scores are rounded up to within `2^-gap_bits`, which is closer still. With one
//! unit being `2^-precision`, MPFR's `e^-X`, rounded down and then down to the grid, is the grid's
//! largest value `w` with `w <= e^-X`: rounding down twice onto nested grids is rounding down once.
//! From `e^-x <= e^-X + (X - x)` follows `w <= e^-x < w + 1 + 2^-7` units, so `[w, w + 2]` contains
//! the weight.
//!
//! These enclosures shrink with rising precision: `X` does not grow, so `w` does not shrink; and at
//! twice the precision the upper end is at most `e^-x` plus two of the finer units, which is below
//! `w + 2` coarse units, as that is at least `e^-x + 1 - 2^-7` of them.
//!
//! The reference of scores that are not linear is the largest to within `2^-63` ([`crate::groups`]).
//! Their weights can exceed 1 by as much, relatively, which the steps from `<` to `+ 2^-7` leave room
//! for, and at [`crate::numerator::NARROW_PRECISION`] stay below `2^63` units.

use rug::float::Round;
use rug::ops::CompleteRound;
use rug::{Float, Integer};

use crate::scale::ExactScale;

/// How far above its integer a weight can lie, in units of the grid; the weight 1 is exact.
pub(crate) const WEIGHT_SLACK: u32 = 2;

/// Relative precision of the `f64` bounds: a few bits more than `f64` has.
const RELATIVE_BITS: u32 = 56;

/// Above this gap a weight is below half the smallest subnormal `f64`: `e^-746 < 2^-1075`.
const NEGLIGIBLE_GAP: f64 = 746.0;

/// Weights of groups of keys, the group of the largest score first.
#[derive(Debug)]
pub(crate) struct Weights {
    /// The grid's spacing is `2^-precision`.
    pub(crate) precision: u32,
    /// Each weight, rounded down to the grid, in units.
    pub(crate) floors: Vec<Integer>,
    /// Bounds on each weight, with a relative error of a few units in the last place of `f64`.
    pub(crate) bounds: Vec<(f64, f64)>,
    /// Each gap, rounded down; below zero where a score may exceed the first one.
    pub(crate) gaps_lo: Vec<f64>,
    /// Each gap, rounded up.
    pub(crate) gaps_hi: Vec<f64>,
    /// How far above the first score another one can lie.
    pub(crate) excess_hi: f64,
}

impl Weights {
    /// The weights of groups of linear scores at these distances (first zero, then rising), in units
    /// of `2^exponent` and before the factor.
    pub(crate) fn new(gaps: &[Integer], exponent: i32, factor: ExactScale, precision: u32) -> Self {
        let mut weights = Self::with_capacity(gaps.len(), precision);
        let gap_precision = gap_precision(precision);
        let factor_hi = factor.magnitude_hi(gap_precision);
        for gap in gaps {
            let gap =
                Float::with_val_round(gap_precision, &factor_hi * gap, Round::Up).0 << exponent;
            // Two roundings at 74 bits or more are far less than one unit in the last place of `f64`.
            let lo = gap.to_f64_round(Round::Down).next_down().max(0.0);
            weights.push(&gap, lo);
        }
        weights
    }

    /// The weights of groups at these distances, the first zero, each rounded up by less than
    /// `2^-gap_bits(precision)`.
    pub(crate) fn of_gaps(gaps: impl ExactSizeIterator<Item = Float>, precision: u32) -> Self {
        let mut weights = Self::with_capacity(gaps.len(), precision);
        let error = Float::with_val(rug::float::prec_min(), 1) >> gap_bits(precision);
        for (group, gap) in gaps.enumerate() {
            let lo = (&gap - &error).complete_round(f64::MANTISSA_DIGITS, Round::Down).0;
            let lo = if group == 0 { 0.0 } else { lo.to_f64_round(Round::Down) };
            weights.push(&gap, lo);
        }
        weights
    }

    fn with_capacity(groups: usize, precision: u32) -> Self {
        Self {
            precision,
            floors: Vec::with_capacity(groups),
            bounds: Vec::with_capacity(groups),
            gaps_lo: Vec::with_capacity(groups),
            gaps_hi: Vec::with_capacity(groups),
            excess_hi: 0.0,
        }
    }

    fn push(&mut self, gap_hi: &Float, gap_lo: f64) {
        let gap = gap_hi.to_f64_round(Round::Up);
        self.gaps_lo.push(gap_lo);
        self.excess_hi = self.excess_hi.max(-gap_lo);
        self.gaps_hi.push(gap);
        if gap_hi.is_zero() {
            // Rounded up to zero from below, a gap is that of a weight a little above 1.
            let above = if gap_lo < 0.0 { 1.0_f64.next_up() } else { 1.0 };
            self.floors.push(Integer::from(1) << self.precision);
            self.bounds.push((1.0, above));
        } else if gap > NEGLIGIBLE_GAP.max(vanishing_gap(self.precision)) {
            self.floors.push(Integer::new());
            self.bounds.push((0.0, f64::from_bits(1)));
        } else {
            let weight = exp_down(gap_hi, gap, self.precision);
            let lo = weight.to_f64_round(Round::Down);
            // `e^-x` exceeds `weight` by a factor below `1 + 2^-54`, and `next_up` adds `2^-53`.
            self.bounds.push((lo, weight.to_f64_round(Round::Up).next_up()));
            let floor = (weight << self.precision).to_integer_round(Round::Down);
            self.floors.push(floor.map_or_else(Integer::new, |(floor, _)| floor));
        }
    }

    /// The sum of all weights, each taken `counts` times, in units of the grid.
    pub(crate) fn normalizer(&self, counts: impl Iterator<Item = usize>) -> (Integer, Integer) {
        let (mut lo, mut slack) = (Integer::new(), 0);
        for (group, count) in counts.enumerate() {
            lo += &self.floors[group] * count as u64;
            slack += if group == 0 { 0 } else { count as u64 * u64::from(WEIGHT_SLACK) };
        }
        let hi = Integer::from(&lo + slack);
        (lo, hi)
    }
}

/// Bits to which gaps of scores that are not linear are known; never fewer than the `f64` bounds need.
pub(crate) fn gap_bits(precision: u32) -> u32 {
    precision.max(u64::BITS) + 8
}

/// Precision of a scaled gap; see the module's derivation. Never below what the `f64` bounds need.
fn gap_precision(precision: u32) -> u32 {
    const ROUNDING_BITS: u32 = 10;
    let largest = precision.max(NEGLIGIBLE_GAP as u32);
    let gap_bits = u32::BITS - largest.leading_zeros();
    precision.max(u64::BITS) + ROUNDING_BITS + gap_bits
}

/// A gap from which on the weight is below one unit of the grid.
fn vanishing_gap(precision: u32) -> f64 {
    f64::from(precision) * std::f64::consts::LN_2 + 1.0
}

/// `e^-gap`, rounded down at a precision whose spacing there is no coarser than the grid's.
fn exp_down(gap: &Float, approximate_gap: f64, precision: u32) -> Float {
    // The weight's leading bit is 2^-ceil(gap / ln 2). One bit more covers the product's rounding.
    let leading_zeros = (approximate_gap * std::f64::consts::LOG2_E) as u32;
    let bits = (precision + 2).saturating_sub(leading_zeros).max(RELATIVE_BITS);
    let exponent = Float::with_val(gap.prec(), -gap);
    Float::with_val_round(bits, exponent.exp_ref(), Round::Down).0
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The weight to 400 bits, from the definition.
    fn reference(gap: u64, exponent: i32, scale: ExactScale) -> Float {
        let precision = 400;
        let scale = scale.enclose(precision);
        let gap = Float::with_val(precision, gap) << exponent;
        let score = Float::with_val(precision, scale.lo() * &gap).abs();
        (-score).exp()
    }

    fn scales() -> impl Strategy<Value = ExactScale> {
        prop_oneof![
            (1_u64..300).prop_map(ExactScale::InverseSqrt),
            (1_u64..17).prop_map(ExactScale::Reciprocal),
            (-4.0..4.0_f64).prop_map(ExactScale::Value),
        ]
    }

    proptest! {
        #[test]
        fn weights_lie_in_their_enclosures(
            gap in 0_u64..1 << 20, exponent in -24..0_i32, scale in scales(),
            precision in 2_u32..200,
        ) {
            let weights = Weights::new(
                &[Integer::new(), Integer::from(gap)], exponent, scale, precision,
            );
            let exact = reference(gap, exponent, scale);
            let units = Float::with_val(600, &exact << precision);
            let lo = &weights.floors[1];
            prop_assert!(*lo <= units);
            prop_assert!(units <= Integer::from(lo + WEIGHT_SLACK));
            let (lo, hi) = weights.bounds[1];
            prop_assert!(lo <= exact && exact <= hi);
            prop_assert!(hi == lo || (hi - lo) / lo <= 4.0 * f64::EPSILON || exact < f64::MIN_POSITIVE);
        }

        #[test]
        fn enclosures_shrink_with_rising_precision(
            gap in 0_u64..1 << 20, exponent in -24..0_i32, scale in scales(),
            precision in 2_u32..200,
        ) {
            let at = |precision| {
                let gaps = [Integer::new(), Integer::from(gap)];
                Weights::new(&gaps, exponent, scale, precision).floors[1].clone()
            };
            let (coarse, fine) = (at(precision), at(2 * precision));
            let coarse_lo = Integer::from(&coarse << precision);
            let coarse_hi = (coarse + WEIGHT_SLACK) << precision;
            prop_assert!(coarse_lo <= fine);
            prop_assert!(fine + WEIGHT_SLACK <= coarse_hi);
        }
    }
}
