//! Dual numbers over the exact model: every quantity with its derivative along one direction.
//!
//! Run in this arithmetic, the forward pass differentiates itself. The derivative of `2^s` is
//! `ln 2` times `2^s` times that of `s`: derivatives of scores and of what comes from them are held
//! in units of `ln 2`, and those of an LSE are in nats, which is the same.

use flashproof_spec::arithmetic::{Arithmetic, ExactModel, Logarithm};
use rug::Rational;

/// The exact model with derivatives.
pub struct DualModel;

/// A number and its derivative.
#[derive(Clone, Debug, PartialEq)]
pub struct Dual {
    pub value: Rational,
    pub derivative: Rational,
}

/// A score and its derivative.
#[derive(Clone, Debug, PartialEq, PartialOrd)]
pub struct DualScore {
    pub score: Logarithm,
    pub derivative: Rational,
}

impl Arithmetic for DualModel {
    type Score = DualScore;
    type Number = Dual;

    fn zero(&self) -> Dual {
        Dual { value: Rational::new(), derivative: Rational::new() }
    }

    fn add(&self, a: &Dual, b: &Dual) -> Dual {
        Dual {
            value: Rational::from(&a.value + &b.value),
            derivative: Rational::from(&a.derivative + &b.derivative),
        }
    }

    fn sub(&self, a: &Dual, b: &Dual) -> Dual {
        Dual {
            value: Rational::from(&a.value - &b.value),
            derivative: Rational::from(&a.derivative - &b.derivative),
        }
    }

    fn mul(&self, a: &Dual, b: &Dual) -> Dual {
        let left = Rational::from(&a.derivative * &b.value);
        let right = Rational::from(&a.value * &b.derivative);
        Dual { value: Rational::from(&a.value * &b.value), derivative: left + right }
    }

    fn div(&self, a: &Dual, b: &Dual) -> Dual {
        let value = Rational::from(&a.value / &b.value);
        let moved = &a.derivative - Rational::from(&value * &b.derivative);
        Dual { value, derivative: moved / &b.value }
    }

    fn weight(&self, score: &DualScore, reference: &DualScore) -> Dual {
        let value = ExactModel.weight(&score.score, &reference.score);
        let moved = Rational::from(&score.derivative - &reference.derivative);
        Dual { derivative: moved * &value, value }
    }

    fn lse(&self, reference: &DualScore, normalizer: &Dual) -> DualScore {
        let moved = Rational::from(&normalizer.derivative / &normalizer.value);
        DualScore {
            score: ExactModel.lse(&reference.score, &normalizer.value),
            derivative: moved + &reference.derivative,
        }
    }

    fn shift(&self, score: &DualScore, by: &DualScore) -> DualScore {
        DualScore {
            score: ExactModel.shift(&score.score, &by.score),
            derivative: Rational::from(&score.derivative + &by.derivative),
        }
    }
}
