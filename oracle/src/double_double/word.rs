//! Double-word arithmetic: a number as the unevaluated sum of two `f64`.
//!
//! Algorithms and error bounds are those of Joldes, Muller and Popescu, "Tight and Rigorous Error
//! Bounds for Basic Building Blocks of Double-Word Arithmetic", ACM TOMS 44(2), 2017,
//! doi:10.1145/3121432, proved formally and tightened by Muller and Rideau, ACM TOMS 48(1), 2022,
//! doi:10.1145/3484514. Bounds are relative to the exact result, with `u = 2^-53`, and hold where
//! nothing overflows and no product underflows.

/// `hi + lo`, with `hi` the `f64` nearest to the sum.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct DoubleWord {
    pub(super) hi: f64,
    pub(super) lo: f64,
}

/// `a + b` as a rounded sum and its rounding error, exactly (Knuth's `2Sum`).
fn two_sum(a: f64, b: f64) -> (f64, f64) {
    let sum = a + b;
    let of_a = sum - b;
    let of_b = sum - of_a;
    (sum, (a - of_a) + (b - of_b))
}

/// The same for `|a| >= |b|` or `a = 0` (Dekker's `Fast2Sum`).
fn fast_two_sum(a: f64, b: f64) -> (f64, f64) {
    let sum = a + b;
    (sum, b - (sum - a))
}

/// `x` as a sum of two numbers of 26 bits, exactly (Veltkamp).
fn split(x: f64) -> (f64, f64) {
    const FACTOR: f64 = ((1_u64 << 27) + 1) as f64;
    let scaled = FACTOR * x;
    let hi = scaled - (scaled - x);
    (hi, x - hi)
}

/// `a * b` as a rounded product and its rounding error, exactly (Dekker's product).
fn two_product(a: f64, b: f64) -> (f64, f64) {
    let product = a * b;
    let ((a_hi, a_lo), (b_hi, b_lo)) = (split(a), split(b));
    let error = ((a_hi * b_hi - product) + a_hi * b_lo + a_lo * b_hi) + a_lo * b_lo;
    (product, error)
}

impl DoubleWord {
    pub(super) const ZERO: Self = Self { hi: 0.0, lo: 0.0 };

    pub(super) const fn new(x: f64) -> Self {
        Self { hi: x, lo: 0.0 }
    }

    /// The product of two `f64`, exactly.
    pub(super) fn product(a: f64, b: f64) -> Self {
        let (hi, lo) = two_product(a, b);
        Self { hi, lo }
    }

    /// Algorithm 6 (AccurateDWPlusDW): within `3 u^2 / (1 - 4 u)`.
    pub(super) fn add(self, other: Self) -> Self {
        let (s_hi, s_lo) = two_sum(self.hi, other.hi);
        let (t_hi, t_lo) = two_sum(self.lo, other.lo);
        let (v_hi, v_lo) = fast_two_sum(s_hi, s_lo + t_hi);
        let (hi, lo) = fast_two_sum(v_hi, t_lo + v_lo);
        Self { hi, lo }
    }

    /// Algorithm 10 (DWTimesDW1): within `5 u^2`.
    pub(super) fn mul(self, other: Self) -> Self {
        let (product, error) = two_product(self.hi, other.hi);
        let cross = self.hi * other.lo + self.lo * other.hi;
        let (hi, lo) = fast_two_sum(product, error + cross);
        Self { hi, lo }
    }

    /// Algorithm 7 (DWTimesFP1): within `3/2 u^2 + 4 u^3`.
    pub(super) fn mul_f64(self, y: f64) -> Self {
        let (product, error) = two_product(self.hi, y);
        let (t_hi, t_lo) = fast_two_sum(product, self.lo * y);
        let (hi, lo) = fast_two_sum(t_hi, t_lo + error);
        Self { hi, lo }
    }

    /// The product with a power of two, exactly where nothing underflows.
    pub(super) fn scaled(self, power: f64) -> Self {
        Self { hi: self.hi * power, lo: self.lo * power }
    }

    pub(super) fn neg(self) -> Self {
        Self { hi: -self.hi, lo: -self.lo }
    }

    /// An upper bound on the magnitude: `lo` is at most half a unit in the last place of `hi`.
    pub(super) fn magnitude_hi(self) -> f64 {
        self.hi.abs().next_up()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use rug::Rational;

    fn rational(x: DoubleWord) -> Rational {
        Rational::from_f64(x.hi).unwrap() + Rational::from_f64(x.lo).unwrap()
    }

    /// `|computed - exact| <= units * u^2 * |exact|`.
    fn within(computed: DoubleWord, exact: &Rational, units: (u32, u32)) -> bool {
        let error = (rational(computed) - exact).abs();
        error <= (exact.clone().abs() * Rational::from(units)) >> 106_u32
    }

    fn word() -> impl Strategy<Value = DoubleWord> {
        (-1.0..1.0_f64, -60..60_i32, -1.0..1.0_f64).prop_map(|(x, exponent, tail)| {
            let hi = x * f64::from(exponent).exp2();
            let (hi, lo) = fast_two_sum(hi, tail * hi * f64::EPSILON / 2.0);
            DoubleWord { hi, lo }
        })
    }

    proptest! {
        #[test]
        fn operations_keep_their_bounds(x in word(), y in word()) {
            let (a, b) = (rational(x), rational(y));
            // 3 u^2 / (1 - 4 u) < 3.01 u^2, and 3/2 u^2 + 4 u^3 < 1.51 u^2.
            prop_assert!(within(x.add(y), &(a.clone() + &b), (301, 100)));
            prop_assert!(within(x.add(x.neg().scaled(0.5)), &(a.clone() / 2), (301, 100)));
            prop_assert!(within(x.mul(y), &(a.clone() * &b), (5, 1)));
            let factor = Rational::from_f64(y.hi).unwrap();
            prop_assert!(within(x.mul_f64(y.hi), &(a.clone() * factor), (151, 100)));
            prop_assert_eq!(rational(DoubleWord::product(x.hi, y.hi)),
                Rational::from_f64(x.hi).unwrap() * Rational::from_f64(y.hi).unwrap());
            prop_assert!(a.abs() <= Rational::from_f64(x.magnitude_hi()).unwrap());
        }
    }
}
