//! Numbers known to within a radius, the midpoint a double word.
//!
//! Every operation adds to the radius what its own rounding can add, from the bounds of
//! [`super::word`]; radii are `f64` and each step of theirs is followed by `next_up`, which is more
//! than its rounding. Products too small for these bounds, which exclude underflow, become a radius
//! of their own.

use std::ops::{Add, Div, Mul, Neg, Sub};

use rug::Float;
use rug::float::Round;
use rug::ops::AddAssignRound;

use super::word::DoubleWord;
use crate::enclosure::Enclosure;

/// `4 u^2`, above the relative errors `3 u^2 / (1 - 4 u)` of a sum and `3/2 u^2 + 4 u^3` of a product
/// with an `f64`, also when taken relative to the computed `hi` instead of the exact result.
pub(super) const SUM_ERROR: f64 = power_of_two(-104);

/// `8 u^2`, above the relative error `5 u^2` of a product, likewise.
const PRODUCT_ERROR: f64 = power_of_two(-103);

/// Products of `hi` words below this are not computed. Above it every partial product, at least `2^-106`
/// times as large, is a normal number.
pub(super) const SMALLEST_PRODUCT: f64 = power_of_two(-900);

/// Twice [`SMALLEST_PRODUCT`]: above the product of two double words whose `hi` words stay below it.
pub(super) const SMALL_PRODUCT_RADIUS: f64 = power_of_two(-899);

/// Bits of an endpoint: a midpoint's 107 and some of the radius.
const ENDPOINT_BITS: u32 = 160;

/// `2^exponent`, for a normal number.
pub(super) const fn power_of_two(exponent: i32) -> f64 {
    f64::from_bits(((exponent + f64::MAX_EXP - 1) as u64) << (f64::MANTISSA_DIGITS - 1))
}

/// A number within `radius` of `value`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ball {
    pub(super) value: DoubleWord,
    pub(super) radius: f64,
}

impl Ball {
    /// Exactly this number.
    pub(super) const fn exact(x: f64) -> Self {
        Self { value: DoubleWord::new(x), radius: 0.0 }
    }

    /// The same midpoint, with room for a further error.
    pub(super) fn widened(self, error: f64) -> Self {
        Self { radius: (self.radius + error).next_up(), ..self }
    }

    /// The product with a power of two between `2^-1022` and 2. What the low word may lose to
    /// underflow, at most half the smallest positive number, and the radius likewise, `next_up` adds.
    pub(super) fn scaled(self, power: f64) -> Self {
        Self { value: self.value.scaled(power), radius: (self.radius * power).next_up() }
    }

    /// An upper bound on the magnitude.
    pub(super) fn magnitude_hi(self) -> f64 {
        (self.value.magnitude_hi() + self.radius).next_up()
    }

    /// A lower bound on the magnitude.
    pub(super) fn magnitude_lo(self) -> f64 {
        (self.value.hi.abs().next_down() - self.radius).next_down().max(0.0)
    }

    /// The interval from `value - radius` to `value + radius`.
    pub(super) fn enclosure(self) -> Enclosure {
        let endpoint = |radius: f64, round| {
            let mut sum = Float::with_val(ENDPOINT_BITS, self.value.hi);
            sum.add_assign_round(self.value.lo, round);
            sum.add_assign_round(radius, round);
            sum
        };
        Enclosure::new(endpoint(-self.radius, Round::Down), endpoint(self.radius, Round::Up))
    }
}

impl Add for Ball {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        let value = self.value.add(other.value);
        let radius = (self.radius + other.radius).next_up();
        Self { value, radius }.widened((value.hi.abs() * SUM_ERROR).next_up())
    }
}

impl Neg for Ball {
    type Output = Self;

    fn neg(self) -> Self {
        Self { value: self.value.neg(), ..self }
    }
}

impl Sub for Ball {
    type Output = Self;

    fn sub(self, other: Self) -> Self {
        self + -other
    }
}

impl Mul for Ball {
    type Output = Self;

    /// `|x y - a b| <= |a| r_b + |b| r_a + r_a r_b` for `x` and `y` in balls around `a` and `b`.
    fn mul(self, other: Self) -> Self {
        let (a, b) = (self.value.magnitude_hi(), other.value.magnitude_hi());
        let from_other = (a * other.radius).next_up();
        let from_self = ((b + other.radius).next_up() * self.radius).next_up();
        let radius = (from_other + from_self).next_up();
        if (self.value.hi * other.value.hi).abs() < SMALLEST_PRODUCT {
            return Self { value: DoubleWord::ZERO, radius }.widened(SMALL_PRODUCT_RADIUS);
        }
        let value = self.value.mul(other.value);
        Self { value, radius }.widened((value.hi.abs() * PRODUCT_ERROR).next_up())
    }
}

impl Div for Ball {
    type Output = Self;

    /// Any two words make a quotient `q`; how far it is from the exact one, `(x - q y) / y`, is
    /// computed and becomes the radius. Infinite where the divisor may be zero.
    fn div(self, divisor: Self) -> Self {
        let first = Self::exact(self.value.hi / divisor.value.hi);
        let rest = self - first * divisor;
        let second = Self::exact(rest.value.hi / divisor.value.hi);
        let value = first.value.add(second.value);
        let quotient = Self { value, radius: 0.0 };
        let residual = (self - quotient * divisor).magnitude_hi();
        quotient.widened((residual / divisor.magnitude_lo()).next_up())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use rug::Rational;

    /// A ball, and a number in it.
    fn ball() -> impl Strategy<Value = (Ball, Rational)> {
        (-1.0..1.0_f64, -60..60_i32, 0.0..1.0_f64, -1.0..1.0_f64).prop_map(|(x, e, r, at)| {
            let x = x * f64::from(e).exp2();
            let ball = Ball { value: DoubleWord::new(x), radius: r * x.abs() * power_of_two(-60) };
            let offset = Rational::from_f64(at).unwrap() * Rational::from_f64(ball.radius).unwrap();
            (ball, Rational::from_f64(x).unwrap() + offset)
        })
    }

    fn holds(ball: Ball, x: &Rational) -> bool {
        let enclosure = ball.enclosure();
        enclosure.lo() <= x && x <= enclosure.hi()
    }

    proptest! {
        #[test]
        fn operations_contain_the_exact_result((x, a) in ball(), (y, b) in ball()) {
            prop_assert!(holds(x + y, &(a.clone() + &b)));
            prop_assert!(holds(x - y, &(a.clone() - &b)));
            prop_assert!(holds(x * y, &(a.clone() * &b)));
            prop_assert!(holds(x.scaled(0.125), &(a.clone() / 8)));
            prop_assert!(b == 0 || holds(x / y, &(a.clone() / &b)));
            let magnitude = a.abs();
            prop_assert!(Rational::from_f64(x.magnitude_lo()).unwrap() <= magnitude);
            prop_assert!(Rational::from_f64(x.magnitude_hi()).unwrap() >= magnitude);
        }
    }

    #[test]
    fn products_that_would_underflow_are_still_contained() {
        let x = Ball::exact(power_of_two(-500));
        assert!(holds(x * x, &(Rational::from(1) >> 1000_u32)));
        let third = Ball::exact(power_of_two(-700)) / Ball::exact(3.0);
        assert!(holds(third * third, &((Rational::from(1) >> 1400_u32) / 9)));
    }

    #[test]
    fn division_by_a_ball_around_zero_says_nothing() {
        let zero = Ball { value: DoubleWord::new(1e-9), radius: 1e-8 };
        assert_eq!((Ball::exact(1.0) / zero).radius, f64::INFINITY);
    }
}
