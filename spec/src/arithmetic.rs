//! The arithmetic that executable clauses are generic over.
//!
//! Online softmax needs very little: scores form an ordered additive group, numbers a field, and
//! the *weight* `e^(s - r)` of a score against a reference turns one into the other so that
//!
//! ```text
//! weight(s, r) * weight(r, t) = weight(s, t)        weight(s, s) = 1
//! ```
//!
//! That law is all that equations 26.1 and 26.2 of the chapter ever use of the exponential. So the
//! same functions run in three arithmetics:
//!
//! | instance | scores and numbers | identities hold |
//! |---|---|---|
//! | [`F64`] | `f64` | up to rounding |
//! | `Mpfr` | MPFR floats of a chosen precision | up to rounding |
//! | `ExactModel` | logarithms of rationals; rationals | exactly: compare with `==` |
//!
//! `Mpfr` and `ExactModel` need the feature `multiprecision`.

#[cfg(feature = "multiprecision")]
mod exact;
#[cfg(feature = "multiprecision")]
mod mpfr;

use std::fmt::Debug;

#[cfg(feature = "multiprecision")]
pub use exact::{ExactModel, Logarithm, NotPositive};
#[cfg(feature = "multiprecision")]
pub use mpfr::{Mpfr, PrecisionError};

/// Scores, numbers, and the exponential between them.
///
/// Methods take `&self` so that an instance can carry a precision. An instance whose operations
/// round satisfies the laws up to its roundings.
pub trait Arithmetic {
    /// A score: an element of an ordered additive group.
    type Score: Clone + PartialOrd + Debug;
    /// A weight, value, normalizer or numerator: an element of a field.
    type Number: Clone + PartialEq + Debug;

    /// The number 0.
    fn zero(&self) -> Self::Number;

    /// `a + b`.
    fn add(&self, a: &Self::Number, b: &Self::Number) -> Self::Number;

    /// `a - b`.
    fn sub(&self, a: &Self::Number, b: &Self::Number) -> Self::Number;

    /// `a * b`.
    fn mul(&self, a: &Self::Number, b: &Self::Number) -> Self::Number;

    /// `a / b`.
    ///
    /// # Panics
    /// May panic when `b` is 0 and the field has no infinity.
    fn div(&self, a: &Self::Number, b: &Self::Number) -> Self::Number;

    /// `e^(score - reference)`: how much a key of that score counts, next to one whose score is the
    /// reference. Zero for a score of minus infinity, whatever the reference
    /// (`FAS:fwd.special.infinity`).
    fn weight(&self, score: &Self::Score, reference: &Self::Score) -> Self::Number;

    /// `reference + ln normalizer`: the LSE of a row (`FAS:fwd.lse.definition`).
    ///
    /// # Panics
    /// May panic when the normalizer is not positive and scores have no infinity.
    fn lse(&self, reference: &Self::Score, normalizer: &Self::Number) -> Self::Score;

    /// `score + by`.
    fn shift(&self, score: &Self::Score, by: &Self::Score) -> Self::Score;

    /// The sum, from left to right.
    fn sum(&self, terms: impl IntoIterator<Item = Self::Number>) -> Self::Number {
        terms.into_iter().fold(self.zero(), |sum, term| self.add(&sum, &term))
    }
}

/// The greater of two scores; the other where one is missing. A NaN on the left is kept.
pub(crate) fn greater<S: PartialOrd + Clone>(a: Option<&S>, b: Option<&S>) -> Option<S> {
    match (a, b) {
        (Some(a), Some(b)) => Some(if b > a { b } else { a }.clone()),
        (one, None) | (None, one) => one.cloned(),
    }
}

/// Binary64: every operation rounds to nearest, ties to even; `exp` and `ln` are the standard
/// library's.
///
/// Overflow and underflow follow IEEE 754: a weight below `2^-1075` is 0, one above `2^1024` is
/// infinite.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct F64;

impl Arithmetic for F64 {
    type Score = f64;
    type Number = f64;

    fn zero(&self) -> f64 {
        0.0
    }

    fn add(&self, a: &f64, b: &f64) -> f64 {
        a + b
    }

    fn sub(&self, a: &f64, b: &f64) -> f64 {
        a - b
    }

    fn mul(&self, a: &f64, b: &f64) -> f64 {
        a * b
    }

    fn div(&self, a: &f64, b: &f64) -> f64 {
        a / b
    }

    fn weight(&self, score: &f64, reference: &f64) -> f64 {
        if *score == f64::NEG_INFINITY { 0.0 } else { (score - reference).exp() }
    }

    fn lse(&self, reference: &f64, normalizer: &f64) -> f64 {
        reference + normalizer.ln()
    }

    fn shift(&self, score: &f64, by: &f64) -> f64 {
        score + by
    }
}
