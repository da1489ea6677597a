//! The exact model: the algebra of online softmax, without rounding.

use rug::{Integer, Rational};

use super::Arithmetic;

/// Binary logarithm of a positive rational, held as that rational.
///
/// The integer `k` is the logarithm of `2^k`; the sum of two logarithms is held as the product of
/// their rationals, and their order is the rationals' order. The group is closed under
/// `s + log2 l`, so a log-sum-exp is again a score and a finished split again a key, with nothing
/// lost.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Logarithm {
    exponential: Rational,
}

/// A number without a real logarithm.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0} has no real logarithm: expected a positive rational")]
pub struct NotPositive(pub Rational);

impl Logarithm {
    /// The logarithm of a rational.
    ///
    /// # Errors
    /// [`NotPositive`] for zero and below.
    pub fn of(exponential: Rational) -> Result<Self, NotPositive> {
        if exponential > 0 { Ok(Self { exponential }) } else { Err(NotPositive(exponential)) }
    }

    /// `2^self`.
    #[must_use]
    pub const fn exponential(&self) -> &Rational {
        &self.exponential
    }
}

impl From<i16> for Logarithm {
    /// The integer score `k`, as the logarithm of `2^k`.
    fn from(k: i16) -> Self {
        let power = Rational::from(Integer::from(1) << u32::from(k.unsigned_abs()));
        Self { exponential: if k < 0 { power.recip() } else { power } }
    }
}

/// The exact model: `e` is 2, scores are logarithms of rationals, numbers are rationals.
///
/// The weight of an integer score against an integer reference is a power of two, and every
/// quantity of a forward pass a rational. Since equations 26.1 and 26.2 of the chapter use no more
/// of `e` than `e^(a+b) = e^a e^b`, an identity between them that holds here for all rows holds for
/// the real exponential too; here it is checked with `==`, not within a tolerance.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ExactModel;

impl Arithmetic for ExactModel {
    type Score = Logarithm;
    type Number = Rational;

    fn zero(&self) -> Rational {
        Rational::new()
    }

    fn add(&self, a: &Rational, b: &Rational) -> Rational {
        Rational::from(a + b)
    }

    fn sub(&self, a: &Rational, b: &Rational) -> Rational {
        Rational::from(a - b)
    }

    fn mul(&self, a: &Rational, b: &Rational) -> Rational {
        Rational::from(a * b)
    }

    fn div(&self, a: &Rational, b: &Rational) -> Rational {
        Rational::from(a / b)
    }

    fn weight(&self, score: &Logarithm, reference: &Logarithm) -> Rational {
        Rational::from(score.exponential() / reference.exponential())
    }

    fn lse(&self, reference: &Logarithm, normalizer: &Rational) -> Logarithm {
        Logarithm::of(Rational::from(reference.exponential() * normalizer))
            .expect("the normalizer of a visible row is positive")
    }

    fn shift(&self, score: &Logarithm, by: &Logarithm) -> Logarithm {
        Logarithm { exponential: Rational::from(score.exponential() * by.exponential()) }
    }
}
