//! The weight `e^(s - m)` of a single key, to a relative precision.
//!
//! The gradients of a key that no query attends to are sums of tiny weights, and want as many
//! digits as those of any other. So weights here have endpoints of a fixed number of significant
//! bits, where the forward pass has a grid of fixed spacing ([`crate::weights`]).
//!
//! A gap `x` is rounded up to `X`, with `X - x` below `2^-(precision + 8)`. Where nothing is added to
//! dot products, `x = |scale| * |dot - largest dot|`. Scale and product round at
//! `g = precision + 27` bits, so `0 <= X - x <= X * 2^(2.1 - g)`, which is small enough for
//! `X <= 2^16`. Any other gap is asked for to as many bits ([`crate::score`]). The score that gaps
//! are counted from is then the largest but for a small distance, so a gap can be negative.
//!
//! Let `w` be `e^-X` rounded down to `precision` bits and `u` its unit in the last place. Then
//! `e^-x <= e^-X (1 + 2^-(precision + 7)) < w + u (1 + 2^-7)`, so `[w, w + 4u]` contains the weight.
//!
//! At a precision higher by two bits or more the enclosure is contained in this one: `X` does not
//! grow, so `w` does not shrink; and with the new unit at most `u/2`, a change of binade included,
//! the new upper end, rounded up, is at most `e^-x + 5 u/2 < w + 4u`.

use rug::float::Round;
use rug::{Float, Integer};

use crate::enclosure::Enclosure;
use crate::scale::{ExactScale, dyadic};

/// Above this gap a weight counts as anything from 0 to `2^-65536`. A product with a few finite `f64`
/// is then far below half the smallest positive number of any format.
const NEGLIGIBLE_GAP: u32 = 1 << 16;

/// Bits that a gap has beyond the weights' precision: [`NEGLIGIBLE_GAP`] has 17 before the point.
const GAP_BITS: u32 = 27;

/// How close gaps are, beyond the weights' precision.
const GAP_SLACK_BITS: u32 = 8;

/// Four units in the last place, as a power of two.
const SLACK_BITS: u32 = 2;

/// Takes distances between dot products to weights.
#[derive(Debug)]
pub(crate) struct Exponential {
    precision: u32,
    /// The scale's magnitude.
    scale: Enclosure,
}

impl Exponential {
    /// Weights with endpoints of `precision` bits.
    pub(crate) fn new(scale: ExactScale, precision: u32) -> Self {
        let enclosure = scale.enclose(precision + GAP_BITS);
        let scale = if scale.sign().is_lt() { enclosure.neg() } else { enclosure };
        Self { precision, scale }
    }

    /// Bits of the endpoints.
    pub(crate) const fn precision(&self) -> u32 {
        self.precision
    }

    /// How close gaps must be rounded up: to less than `2^-bits` above.
    pub(crate) const fn gap_bits(&self) -> u32 {
        self.precision + GAP_SLACK_BITS
    }

    /// The weight of the largest score.
    pub(crate) fn one(&self) -> Enclosure {
        Enclosure::point(Float::with_val(self.precision, 1))
    }

    /// The weight of a key whose dot product is this far, in units of `2^exponent`, from the one of
    /// largest score.
    pub(crate) fn weight(&self, gap: &Integer, exponent: i32) -> Enclosure {
        let bits = self.precision + GAP_BITS;
        let gap = Float::with_val_round(bits, self.scale.hi() * gap, Round::Up).0 << exponent;
        if gap.is_zero() { self.one() } else { self.weight_at(&gap) }
    }

    /// That distance between the scores.
    pub(crate) fn gap(&self, gap: &Integer, exponent: i32) -> Enclosure {
        let gap = Enclosure::point(dyadic(gap, exponent));
        self.scale.mul(&gap, self.precision + GAP_BITS)
    }

    /// The weight of a score at this distance, rounded up to [`Exponential::gap_bits`].
    pub(crate) fn weight_at(&self, gap_hi: &Float) -> Enclosure {
        let precision = self.precision;
        if *gap_hi > NEGLIGIBLE_GAP {
            let hi = Float::with_val(precision, 1) >> NEGLIGIBLE_GAP;
            return Enclosure::new(Float::new(precision), hi);
        }
        let gap = Float::with_val(gap_hi.prec(), -gap_hi);
        let lo = Float::with_val_round(precision, gap.exp_ref(), Round::Down).0;
        let leading = lo.get_exp().expect("the exponential of a gap in range is a positive number");
        let slack =
            Float::with_val(precision, 1) << (leading - precision as i32 + SLACK_BITS as i32);
        let hi = Float::with_val_round(precision, &lo + &slack, Round::Up).0;
        Enclosure::new(lo, hi)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn scales() -> impl Strategy<Value = ExactScale> {
        prop_oneof![
            (1_u64..300).prop_map(ExactScale::InverseSqrt),
            (1_u64..17).prop_map(ExactScale::Reciprocal),
            (-4.0..4.0_f64).prop_map(ExactScale::Value),
        ]
    }

    /// Distances of every size: from nothing to far beyond what counts.
    fn gaps() -> impl Strategy<Value = (u64, i32)> {
        (0_u64..1 << 20, prop_oneof![-24..0_i32, -60..60_i32])
    }

    fn weight(scale: ExactScale, (gap, exponent): (u64, i32), precision: u32) -> Enclosure {
        Exponential::new(scale, precision).weight(&Integer::from(gap), exponent)
    }

    proptest! {
        #[test]
        fn the_weight_is_enclosed_to_a_few_units(
            gap in gaps(), scale in scales(), precision in 2_u32..200,
        ) {
            let exact = (-Float::with_val(600, scale.enclose(600).lo() * gap.0).abs() << gap.1).exp();
            let enclosure = weight(scale, gap, precision);
            prop_assert!(*enclosure.lo() <= exact && exact <= *enclosure.hi());
            if *enclosure.lo() > 0 {
                let width = Float::with_val(600, enclosure.hi() - enclosure.lo());
                // Four units, or six where the upper end was rounded up in the next binade.
                let unit = enclosure.lo().clone() >> (precision - 1);
                prop_assert!(width <= Float::with_val(600, 6 * unit));
            } else {
                prop_assert!(enclosure.hi().get_exp() <= Some(1 - NEGLIGIBLE_GAP as i32));
            }
        }

        #[test]
        fn two_more_bits_are_contained(
            gap in gaps(), scale in scales(), precision in 2_u32..100, more in 2_u32..100,
        ) {
            let (coarse, fine) = (weight(scale, gap, precision), weight(scale, gap, precision + more));
            prop_assert!(coarse.contains(&fine), "{coarse:?} does not contain {fine:?}");
        }
    }

    proptest! {
        #[test]
        fn any_gap_rounded_up_makes_an_enclosure_that_shrinks(
            gap in -1e-9..800.0_f64, above in 0.0..1.0_f64, finer in 0.0..1.0_f64,
            precision in 2_u32..100, more in 2_u32..100,
        ) {
            let float = |x: f64| Float::with_val(600, x);
            let exact = (-float(gap)).exp();
            let at = |precision, above: Float| {
                let exponential = Exponential::new(ExactScale::Value(1.0), precision);
                let slack = above >> exponential.gap_bits();
                exponential.weight_at(&(float(gap) + slack))
            };
            let coarse = at(precision, float(above));
            prop_assert!(*coarse.lo() <= exact && exact <= *coarse.hi());
            // No farther above than before, as gaps of more bits are.
            let fine = at(precision + more, float(finer).min(&(float(above) << more)));
            prop_assert!(coarse.contains(&fine), "{coarse:?} does not contain {fine:?}");
        }
    }

    #[test]
    fn equal_scores_weigh_exactly_one() {
        let one = Enclosure::point(Float::with_val(64, 1));
        assert_eq!(weight(ExactScale::InverseSqrt(3), (0, 5), 64), one);
        assert_eq!(weight(ExactScale::Value(0.0), (7, 5), 64), one);
    }
}
