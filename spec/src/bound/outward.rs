//! Non-negative numbers that are known from one side, and arithmetic that keeps it so.
//!
//! Every operation steps to the next `f64` in the safe direction, so a chain of any length stays
//! on its side of the exact value. No library function is trusted: exponential and logarithm are
//! built from the four operations and the square root, which IEEE 754 rounds correctly.

use std::ops::{Add, Div, Mul};

/// At least the exact value; possibly infinite, never negative or NaN.
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd)]
pub(super) struct Upper(f64);

/// At most the exact value; never negative or NaN.
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd)]
pub(super) struct Lower(f64);

impl Upper {
    pub(super) const ZERO: Self = Self(0.0);
    pub(super) const ONE: Self = Self(1.0);
    pub(super) const INFINITE: Self = Self(f64::INFINITY);

    /// `value`, which bounds the quantity from above; NaN bounds nothing and becomes infinity.
    pub(super) fn new(value: f64) -> Self {
        if value.is_nan() { Self::INFINITE } else { Self(value.max(0.0)) }
    }

    /// A count, exact below `2^53`.
    pub(super) fn count(n: usize) -> Self {
        Self(n as f64)
    }

    pub(super) const fn get(self) -> f64 {
        self.0
    }

    pub(super) fn is_finite(self) -> bool {
        self.0.is_finite()
    }

    pub(super) fn min(self, other: Self) -> Self {
        Self(self.0.min(other.0))
    }

    pub(super) fn max(self, other: Self) -> Self {
        Self(self.0.max(other.0))
    }

    /// `1 - self`, not below zero.
    pub(super) fn complement(self) -> Lower {
        if self.0 == 0.0 {
            return Lower(1.0);
        }
        Lower::new((1.0 - self.0).next_down())
    }

    /// `e^self - 1`.
    ///
    /// For `0 <= y <= 1`, `e^y - 1 <= y / (1 - y/2)`: term by term, `y^k/k! <= y^k/2^(k-1)`. Halving
    /// the argument makes that tight, and `e^2y - 1 = z (z + 2)` with `z = e^y - 1` undoes it.
    pub(super) fn exp_m1(self) -> Self {
        /// `e^710` exceeds the largest `f64`.
        const OVERFLOW: f64 = 710.0;
        /// Below `2^-20` the inequality is tight to `y^2/12 < 2^-43`.
        const TIGHT: f64 = 1.0 / (1 << 20) as f64;
        if self.0 > OVERFLOW {
            return Self::INFINITE;
        }
        let mut y = self.0;
        let mut halvings = 0;
        while y > TIGHT {
            y /= 2.0;
            halvings += 1;
        }
        let small = Self(y) / Self(y / 2.0).complement();
        (0..halvings).fold(small, |z, _| z * (z + Self(2.0)))
    }

    /// `e^(-self)`.
    pub(super) fn exp_neg(self) -> Lower {
        let growth = self.exp_m1() + Self::ONE;
        Lower::new((1.0 / growth.0).next_down())
    }

    /// The square root.
    pub(super) fn sqrt(self) -> Self {
        if self.0 == 0.0 { Self::ZERO } else { Self(self.0.sqrt().next_up()) }
    }

    /// `sqrt(self^2 + other^2)`; not below the greater, where a square leaves the range of `f64`.
    pub(super) fn hypot(self, other: Self) -> Self {
        (self * self + other * other).sqrt().max(self.max(other))
    }

    /// `ln self`, not below zero.
    ///
    /// For `f >= 1`, `ln f <= (f - 1) / sqrt(f)`; ten square roots make that tight, each halving
    /// the logarithm.
    pub(super) fn ln(self) -> Self {
        const ROOTS: i32 = 10;
        if self.0 <= 1.0 {
            return Self::ZERO;
        }
        if !self.is_finite() {
            return self;
        }
        let mut root = self.0;
        for _ in 0..ROOTS {
            root = root.sqrt().next_up();
        }
        let slope = Lower(root.sqrt().next_down());
        Self((root - 1.0).next_up()) / slope * Self(f64::from(1 << ROOTS))
    }

    /// `(1 + self)(1 + other) - 1`: two relative errors, one after the other.
    pub(super) fn and(self, other: Self) -> Self {
        self + other + self * other
    }

    /// `(1 + self)^n - 1`, through `n x / (1 - n x)`; infinite when `n x >= 1`.
    pub(super) fn compound(self, n: usize) -> Self {
        let first_order = Self::count(n) * self;
        first_order / first_order.complement()
    }
}

impl Lower {
    pub(super) const ZERO: Self = Self(0.0);

    /// `value`, which bounds the quantity from below; negative and NaN become zero.
    pub(super) fn new(value: f64) -> Self {
        Self(value.max(0.0))
    }

    pub(super) const fn get(self) -> f64 {
        self.0
    }

    pub(super) fn max(self, other: Self) -> Self {
        Self(self.0.max(other.0))
    }

    /// `1 / self`, infinite for zero.
    pub(super) fn reciprocal(self) -> Upper {
        Upper::ONE / self
    }
}

impl Add for Upper {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        if self.0 == 0.0 {
            other
        } else if other.0 == 0.0 {
            self
        } else {
            Self((self.0 + other.0).next_up())
        }
    }
}

impl Mul for Upper {
    type Output = Self;

    /// A factor of exactly zero gives zero, whatever bounds the other.
    fn mul(self, other: Self) -> Self {
        if self.0 == 0.0 || other.0 == 0.0 {
            Self::ZERO
        } else if self.0 == 1.0 {
            other
        } else if other.0 == 1.0 {
            self
        } else {
            Self((self.0 * other.0).next_up())
        }
    }
}

impl Div<Lower> for Upper {
    type Output = Self;

    fn div(self, other: Lower) -> Self {
        if self.0 == 0.0 {
            Self::ZERO
        } else if other.0 == 0.0 {
            Self::INFINITE
        } else if other.0 == 1.0 {
            self
        } else {
            Self((self.0 / other.0).next_up())
        }
    }
}

impl std::iter::Sum for Upper {
    fn sum<I: Iterator<Item = Self>>(terms: I) -> Self {
        terms.fold(Self::ZERO, Add::add)
    }
}

impl Add for Lower {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self::new((self.0 + other.0).next_down())
    }
}

impl Mul for Lower {
    type Output = Self;

    fn mul(self, other: Self) -> Self {
        if other.0 == 1.0 {
            return self;
        }
        Self::new((self.0 * other.0).next_down())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use rug::Float;

    /// Far beyond `f64`: rounding at this precision can not flip a comparison below.
    const BITS: u32 = 300;

    fn exact(x: f64) -> Float {
        Float::with_val(BITS, x)
    }

    /// `bound` is above `truth` and exceeds it by at most the relative `slack`.
    fn assert_tight_above(bound: Upper, truth: &Float, slack: f64) {
        assert!(exact(bound.get()) >= *truth, "{bound:?} is below {truth}");
        let allowed = Float::with_val(BITS, truth * (exact(1.0) + exact(slack)));
        assert!(exact(bound.get()) <= allowed, "{bound:?} is far above {truth}");
    }

    proptest! {
        /// The inequality costs `y^2/12 < 2^-43` at `y < 2^-20`; thirty doublings of two roundings
        /// each cost `2^-52` apiece, doubled at most once by `z + 2 <= 2 z` for large `z`.
        #[test]
        fn exponential_is_above_and_tight(y in prop_oneof![0.0..1e-9, 1e-9..1.0, 1.0..700.0_f64]) {
            let truth = exact(y).exp_m1();
            assert_tight_above(Upper::new(y).exp_m1(), &truth, y.max(1.0) * 2f64.powi(-42));
            let lower = Upper::new(y).exp_neg();
            prop_assert!(exact(lower.0) <= exact(-y).exp());
        }

        /// `(ln f)^2/24` at `f = x^(1/1024)`, and ten square roots, each an ulp, magnified by the
        /// cancellation in `f - 1` to `2^-52 / ln f`.
        #[test]
        fn logarithm_is_above_and_tight(x in prop_oneof![1.0..1.0001, 1.0..100.0, 1.0..1e300_f64]) {
            let truth = exact(x).ln();
            let root = truth.to_f64() / 1024.0;
            let absolute = 1024.0 * 2f64.powi(-50);
            let bound = Upper::new(x).ln();
            prop_assert!(exact(bound.get()) >= truth);
            let allowed = truth.to_f64() * (1.0 + root * root) + absolute;
            prop_assert!(bound.get() <= allowed, "{} above {allowed}", bound.get());
        }

        #[test]
        fn operations_step_outward(a in 0.0..1e200_f64, b in 0.0..1e100_f64, c in 1e-100..1e100_f64) {
            let (x, y) = (Upper::new(a), Upper::new(b));
            prop_assert!(exact((x + y).get()) >= exact(a) + exact(b));
            prop_assert!(exact((x * y).get()) >= exact(a) * exact(b));
            prop_assert!(exact((x / Lower::new(c)).get()) >= exact(a) / exact(c));
            let (x, y) = (Lower::new(a), Lower::new(b));
            prop_assert!(exact((x + y).0) <= exact(a) + exact(b));
            prop_assert!(exact((x * y).0) <= exact(a) * exact(b));
        }

        #[test]
        fn consecutive_errors_are_above_their_product(a in 0.0..10.0_f64, b in 0.0..1e-3_f64) {
            let truth = (exact(a) + 1.0) * (exact(b) + 1.0) - 1.0;
            prop_assert!(exact(Upper::new(a).and(Upper::new(b)).get()) >= truth);
        }

        #[test]
        fn compounding_is_above_the_power(n in 0_usize..10_000, u in 1e-16..1e-5_f64) {
            let truth = (exact(1.0) + exact(u)).ln() * Float::with_val(BITS, n);
            prop_assert!(exact(Upper::new(u).compound(n).get()) >= truth.exp_m1());
        }
    }

    #[test]
    fn the_edges_bound_everything_or_nothing() {
        assert_eq!(Upper::new(f64::NAN), Upper::INFINITE);
        assert_eq!(Upper::new(-1.0), Upper::ZERO);
        assert_eq!(Lower::new(f64::NAN), Lower::ZERO);
        assert_eq!(Upper::INFINITE * Upper::ZERO, Upper::ZERO);
        assert_eq!(Upper::ONE / Lower::ZERO, Upper::INFINITE);
        assert_eq!(Upper::ZERO / Lower::ZERO, Upper::ZERO);
        assert_eq!(Upper::new(1e4).exp_m1(), Upper::INFINITE);
        assert_eq!(Upper::new(1e4).exp_neg(), Lower::ZERO);
        assert_eq!(Upper::new(0.5).compound(2), Upper::INFINITE);
        assert_eq!(Upper::ONE.ln(), Upper::ZERO);
        assert_eq!(Upper::new(1.0).complement(), Lower::ZERO);
    }
}
