//! Where a real number lies: intervals with binary floating-point endpoints of any precision.
//!
//! Every operation rounds its lower endpoint down and its upper endpoint up, so its result contains
//! the exact result for every choice of numbers from its operands. Where the operation is not
//! defined on all of them, the result is the whole line.
//!
//! A number of `p` bits is also a number of more bits. Rounding down at a higher precision
//! therefore gives no smaller result, rounding up no larger one, and an expression evaluated at
//! a higher precision is contained in the same expression evaluated at a lower one.

use rug::Float;
use rug::float::{Round, Special};
use rug::ops::{CompleteRound, NegAssign};

/// Precision of the differences behind [`Enclosure::error_of`]: twice that of `f64`, so that their
/// rounding does not show in the `f64` result.
const ERROR_PRECISION: u32 = 106;

/// A closed interval that contains the number it stands for.
///
/// Endpoints are never NaN; infinite ones say that nothing better is known.
#[derive(Clone, Debug, PartialEq)]
pub struct Enclosure {
    lo: Float,
    hi: Float,
}

impl Enclosure {
    /// The interval between two endpoints.
    ///
    /// # Panics
    /// When an endpoint is NaN or `lo > hi`.
    #[must_use]
    pub fn new(lo: Float, hi: Float) -> Self {
        assert!(lo <= hi, "an enclosure from {lo} to {hi}");
        Self { lo, hi }
    }

    /// Exactly this number, with all of its digits.
    ///
    /// # Panics
    /// When `x` is NaN.
    #[must_use]
    pub fn point(x: Float) -> Self {
        Self::new(x.clone(), x)
    }

    /// Every real number.
    #[must_use]
    pub fn whole_line() -> Self {
        let infinity = |special| Float::with_val(rug::float::prec_min(), special);
        Self { lo: infinity(Special::NegInfinity), hi: infinity(Special::Infinity) }
    }

    /// The lower endpoint.
    #[must_use]
    pub const fn lo(&self) -> &Float {
        &self.lo
    }

    /// The upper endpoint.
    #[must_use]
    pub const fn hi(&self) -> &Float {
        &self.hi
    }

    /// The lower and the upper endpoint.
    #[must_use]
    pub fn into_endpoints(self) -> (Float, Float) {
        (self.lo, self.hi)
    }

    /// Evaluates an operation's endpoints with its lower one rounded down and its upper one up.
    fn outward<L, H>(precision: u32, lo: L, hi: H) -> Self
    where
        L: CompleteRound<
                Completed = Float,
                Prec = u32,
                Round = Round,
                Ordering = std::cmp::Ordering,
            >,
        H: CompleteRound<
                Completed = Float,
                Prec = u32,
                Round = Round,
                Ordering = std::cmp::Ordering,
            >,
    {
        Self {
            lo: lo.complete_round(precision, Round::Down).0,
            hi: hi.complete_round(precision, Round::Up).0,
        }
    }

    /// The same number, with endpoints of at most `precision` bits.
    #[must_use]
    pub fn rounded(&self, precision: u32) -> Self {
        Self {
            lo: Float::with_val_round(precision, &self.lo, Round::Down).0,
            hi: Float::with_val_round(precision, &self.hi, Round::Up).0,
        }
    }

    /// The negated number.
    #[must_use]
    pub fn neg(&self) -> Self {
        let (mut lo, mut hi) = (self.hi.clone(), self.lo.clone());
        lo.neg_assign();
        hi.neg_assign();
        Self { lo, hi }
    }

    /// The sum.
    #[must_use]
    pub fn add(&self, other: &Self, precision: u32) -> Self {
        Self::outward(precision, &self.lo + &other.lo, &self.hi + &other.hi)
    }

    /// The difference.
    #[must_use]
    pub fn sub(&self, other: &Self, precision: u32) -> Self {
        Self::outward(precision, &self.lo - &other.hi, &self.hi - &other.lo)
    }

    /// The product.
    #[must_use]
    pub fn mul(&self, other: &Self, precision: u32) -> Self {
        if self.lo >= 0 && self.is_bounded() && other.is_bounded() {
            // The sign of the other factor's end says which end of this one goes furthest.
            let lo = if other.lo < 0 { &self.hi } else { &self.lo };
            let hi = if other.hi < 0 { &self.lo } else { &self.hi };
            return Self::outward(precision, lo * &other.lo, hi * &other.hi);
        }
        self.hull(other, |x, y, round| (x * y).complete_round(precision, round).0)
    }

    /// The quotient; the whole line when the divisor's interval contains zero.
    #[must_use]
    pub fn div(&self, divisor: &Self, precision: u32) -> Self {
        if divisor.contains_zero() {
            return Self::whole_line();
        }
        if divisor.lo > 0 && self.is_bounded() && divisor.is_bounded() {
            let lo = if self.lo < 0 { &divisor.lo } else { &divisor.hi };
            let hi = if self.hi < 0 { &divisor.hi } else { &divisor.lo };
            return Self::outward(precision, &self.lo / lo, &self.hi / hi);
        }
        self.hull(divisor, |x, y, round| (x / y).complete_round(precision, round).0)
    }

    /// The smallest interval around an operation that is monotone in each operand: its extremes are
    /// taken at endpoints.
    fn hull(&self, other: &Self, operation: impl Fn(&Float, &Float, Round) -> Float) -> Self {
        let pairs = [
            (&self.lo, &other.lo),
            (&self.lo, &other.hi),
            (&self.hi, &other.lo),
            (&self.hi, &other.hi),
        ];
        // An infinite endpoint stands for numbers without limit, not for infinity: their product
        // with zero is zero, and so is the limit of a quotient of two of them.
        let at = |(x, y): (&Float, &Float), round| {
            let result = operation(x, y, round);
            if result.is_nan() { Float::new(result.prec()) } else { result }
        };
        let mut lo = at(pairs[0], Round::Down);
        let mut hi = at(pairs[0], Round::Up);
        for pair in &pairs[1..] {
            lo.min_mut(&at(*pair, Round::Down));
            hi.max_mut(&at(*pair, Round::Up));
        }
        Self { lo, hi }
    }

    /// `e` to the power of the number.
    #[must_use]
    pub fn exp(&self, precision: u32) -> Self {
        Self::outward(precision, self.lo.exp_ref(), self.hi.exp_ref())
    }

    /// The natural logarithm; the whole line unless the interval is positive.
    #[must_use]
    pub fn ln(&self, precision: u32) -> Self {
        if self.lo <= 0 {
            return Self::whole_line();
        }
        Self::outward(precision, self.lo.ln_ref(), self.hi.ln_ref())
    }

    /// The square root; the whole line when the interval contains a negative number.
    #[must_use]
    pub fn sqrt(&self, precision: u32) -> Self {
        if self.lo < 0 {
            return Self::whole_line();
        }
        Self::outward(precision, self.lo.sqrt_ref(), self.hi.sqrt_ref())
    }

    /// Whether both endpoints are finite.
    fn is_bounded(&self) -> bool {
        self.lo.is_finite() && self.hi.is_finite()
    }

    /// Whether every number of `other` is one of these.
    #[must_use]
    pub fn contains(&self, other: &Self) -> bool {
        self.lo <= other.lo && other.hi <= self.hi
    }

    /// Whether zero is one of these numbers.
    #[must_use]
    pub fn contains_zero(&self) -> bool {
        self.lo <= 0 && self.hi >= 0
    }

    /// Whether some number is in both.
    #[must_use]
    pub fn intersects(&self, other: &Self) -> bool {
        self.lo <= other.hi && other.lo <= self.hi
    }

    /// The distance between the endpoints, rounded up to `f64`.
    #[must_use]
    pub fn width(&self) -> f64 {
        (&self.hi - &self.lo).complete_round(ERROR_PRECISION, Round::Up).0.to_f64_round(Round::Up)
    }

    /// Bounds `(lo, hi)`, rounded outward to `f64`, on the number.
    #[must_use]
    pub fn to_f64(&self) -> (f64, f64) {
        (self.lo.to_f64_round(Round::Down), self.hi.to_f64_round(Round::Up))
    }

    /// A bound, rounded up to `f64`, on the number's magnitude.
    #[must_use]
    pub fn magnitude_hi(&self) -> f64 {
        let (lo, hi) = self.to_f64();
        hi.max(-lo)
    }

    /// Bounds `(lo, hi)`, rounded outward to `f64`, on `|actual - x|` for the number `x`; both are
    /// infinite for an `actual` that is NaN or infinite.
    #[must_use]
    pub fn error_of(&self, actual: f64) -> (f64, f64) {
        if !actual.is_finite() {
            return (f64::INFINITY, f64::INFINITY);
        }
        let actual = Self::point(Float::with_val(f64::MANTISSA_DIGITS, actual));
        let (lo, hi) = actual.sub(self, ERROR_PRECISION).to_f64();
        let nearest = if lo > 0.0 {
            lo
        } else if hi < 0.0 {
            -hi
        } else {
            0.0
        };
        (nearest, hi.max(-lo))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use rug::Rational;

    fn interval(a: f64, b: f64) -> Enclosure {
        let float = |x: f64| Float::with_val(53, x);
        Enclosure::new(float(a.min(b)), float(a.max(b)))
    }

    /// A number of the interval, between its endpoints.
    fn member(a: f64, b: f64) -> Rational {
        (Rational::from_f64(a).unwrap() + Rational::from_f64(b).unwrap()) / 2
    }

    fn holds(enclosure: &Enclosure, x: &Rational) -> bool {
        enclosure.lo() <= x && x <= enclosure.hi()
    }

    prop_compose! {
        fn endpoint()(mantissa in -1e3..1e3_f64, exponent in -40..40_i32) -> f64 {
            mantissa * f64::from(exponent).exp2()
        }
    }

    proptest! {
        #[test]
        fn arithmetic_contains_the_exact_result(
            a in endpoint(), b in endpoint(), c in endpoint(), d in endpoint(),
            precision in 2_u32..80,
        ) {
            let (x, y) = (interval(a, b), interval(c, d));
            let (p, q) = (member(a, b), member(c, d));
            prop_assert!(holds(&x.add(&y, precision), &(p.clone() + &q)));
            prop_assert!(holds(&x.sub(&y, precision), &(p.clone() - &q)));
            prop_assert!(holds(&x.mul(&y, precision), &(p.clone() * &q)));
            if q != 0 {
                prop_assert!(holds(&x.div(&y, precision), &(p / q)));
            }
        }

        #[test]
        fn a_higher_precision_is_contained(
            a in 1e-3..1e3_f64, b in 1e-3..1e3_f64, c in endpoint(), d in endpoint(),
            precision in 2_u32..80,
        ) {
            let expression = |p: u32| {
                let (x, y) = (interval(a, b), interval(c, d));
                let ratio = x.ln(p).mul(&y, p).div(&x.sqrt(p).exp(p), p);
                ratio.add(&y.neg(), p).sub(&x, p)
            };
            prop_assert!(expression(precision).contains(&expression(2 * precision)));
        }

        #[test]
        fn square_root_and_logarithm_invert(x in 1e-3..1e3_f64, precision in 4_u32..120) {
            let point = interval(x, x);
            let root = point.sqrt(precision);
            prop_assert!(root.mul(&root, precision).contains(&point));
            prop_assert!(point.ln(precision).exp(precision).contains(&point));
        }

        #[test]
        fn error_bounds_contain_the_error(a in endpoint(), b in endpoint(), actual in endpoint()) {
            let (lo, hi) = interval(a, b).error_of(actual);
            let error = (member(a, b) - Rational::from_f64(actual).unwrap()).abs();
            prop_assert!(Rational::from_f64(lo).unwrap() <= error);
            prop_assert!(error <= Rational::from_f64(hi).unwrap());
        }
    }

    #[test]
    fn undefined_operations_give_the_whole_line() {
        let across = interval(-1.0, 2.0);
        let whole = Enclosure::whole_line();
        assert_eq!(interval(1.0, 1.0).div(&across, 53), whole);
        assert_eq!(across.ln(53), whole);
        assert_eq!(across.sqrt(53), whole);
        assert_eq!(interval(0.0, 1.0).ln(53), whole);
        assert!(whole.mul(&interval(0.0, 0.0), 53).contains_zero());
        assert_eq!(whole.width(), f64::INFINITY);
        assert_eq!(whole.mul(&across, 53), whole);
    }

    #[test]
    fn error_of_an_exact_answer_is_zero_and_of_no_answer_infinite() {
        let third = interval(1.0, 1.0).div(&interval(3.0, 3.0), 200);
        let (lo, hi) = third.error_of(1.0 / 3.0);
        // fl(1/3) = 6004799503160661 / 2^54, and 1/3 exceeds it by 2^-54 / 3.
        let exact = Rational::from((1, 3)) >> 54_u32;
        assert!(
            Rational::from_f64(lo).unwrap() <= exact && exact <= Rational::from_f64(hi).unwrap()
        );
        assert!(hi <= lo.next_up());
        assert_eq!(interval(0.5, 0.5).error_of(0.5), (0.0, 0.0));
        assert_eq!(interval(0.5, 0.75).error_of(1.0), (0.25, 0.5));
        assert_eq!(interval(0.5, 0.75).error_of(0.25), (0.25, 0.5));
        assert_eq!(interval(0.5, 0.75).error_of(0.625), (0.0, 0.125));
        for none in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
            assert_eq!(third.error_of(none), (f64::INFINITY, f64::INFINITY));
        }
    }
}
