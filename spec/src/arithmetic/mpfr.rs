//! Multiprecision floats: the algebra of online softmax with roundings as small as one asks for.

use rug::Float;
use rug::float::{prec_max, prec_min};

use super::Arithmetic;

/// MPFR floats of one precision, every operation (`exp` and `ln` included) correctly rounded to
/// nearest, ties to even.
///
/// Scores and numbers of any precision are accepted; results have the instance's. The exponent
/// range is MPFR's, so weights do not underflow at any score that an attention kernel can form.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mpfr {
    precision: u32,
}

/// A precision that MPFR does not have.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a precision of {0} bits: expected {min} to {max}", min = prec_min(), max = prec_max())]
pub struct PrecisionError(pub u32);

impl Mpfr {
    /// Arithmetic of `precision` significant bits.
    ///
    /// # Errors
    /// [`PrecisionError`] outside MPFR's range.
    pub fn new(precision: u32) -> Result<Self, PrecisionError> {
        if (prec_min()..=prec_max()).contains(&precision) {
            Ok(Self { precision })
        } else {
            Err(PrecisionError(precision))
        }
    }

    /// Significant bits of every result.
    #[must_use]
    pub const fn precision(self) -> u32 {
        self.precision
    }

    /// `x` in this precision, rounded to nearest: exactly `x` from 53 bits up.
    #[must_use]
    pub fn number(self, x: f64) -> Float {
        Float::with_val(self.precision, x)
    }
}

impl Arithmetic for Mpfr {
    type Score = Float;
    type Number = Float;

    fn zero(&self) -> Float {
        Float::new(self.precision)
    }

    fn add(&self, a: &Float, b: &Float) -> Float {
        Float::with_val(self.precision, a + b)
    }

    fn sub(&self, a: &Float, b: &Float) -> Float {
        Float::with_val(self.precision, a - b)
    }

    fn mul(&self, a: &Float, b: &Float) -> Float {
        Float::with_val(self.precision, a * b)
    }

    fn div(&self, a: &Float, b: &Float) -> Float {
        Float::with_val(self.precision, a / b)
    }

    fn weight(&self, score: &Float, reference: &Float) -> Float {
        if score.is_infinite() && score.is_sign_negative() {
            return self.zero();
        }
        Float::with_val(self.precision, score - reference).exp()
    }

    fn lse(&self, reference: &Float, normalizer: &Float) -> Float {
        let logarithm = Float::with_val(self.precision, normalizer.ln_ref());
        Float::with_val(self.precision, reference + &logarithm)
    }

    fn shift(&self, score: &Float, by: &Float) -> Float {
        Float::with_val(self.precision, score + by)
    }
}
