//! The softmax scale, exactly: it takes exact dot products to exact scores.

use std::cell::RefCell;
use std::cmp::Ordering;
use std::collections::HashMap;

use flashproof_spec::problem::{Problem, Scale};
use rug::float::Round;
use rug::{Float, Integer, Rational};

use crate::enclosure::Enclosure;

/// The scale of a problem.
#[derive(Clone, Copy, Debug)]
pub(crate) enum ExactScale {
    /// This number.
    Value(f64),
    /// `1 / root`: the inverse root of a head dimension that is a square.
    Reciprocal(u64),
    /// `1 / sqrt(head_dim)`, irrational.
    InverseSqrt(u64),
}

impl ExactScale {
    pub(crate) fn of(problem: &Problem) -> Self {
        match problem.scale {
            Scale::Value(value) => Self::Value(value),
            Scale::InverseSqrtHeadDim => {
                let head_dim = problem.head_dim as u64;
                let root = head_dim.isqrt();
                if root * root == head_dim {
                    Self::Reciprocal(root)
                } else {
                    Self::InverseSqrt(head_dim)
                }
            }
        }
    }

    /// How the scale compares with zero: whether larger dot products make larger scores.
    pub(crate) fn sign(self) -> Ordering {
        match self {
            Self::Value(value) => value.partial_cmp(&0.0).unwrap_or(Ordering::Equal),
            Self::Reciprocal(_) | Self::InverseSqrt(_) => Ordering::Greater,
        }
    }

    /// Whether the scale is a rational number.
    pub(crate) const fn is_rational(self) -> bool {
        !matches!(self, Self::InverseSqrt(_))
    }

    /// The scale, with endpoints of `precision` bits.
    pub(crate) fn enclose(self, precision: u32) -> Enclosure {
        Enclosure::new(self.rounded(precision, Round::Down), self.rounded(precision, Round::Up))
    }

    /// The scale, rounded up or down.
    pub(crate) fn rounded(self, precision: u32, round: Round) -> Float {
        match self {
            Self::Value(value) => Float::with_val_round(precision, value, round).0,
            Self::Reciprocal(root) => reciprocal(root, precision, round),
            Self::InverseSqrt(head_dim) => inverse_sqrt(head_dim, precision, round),
        }
    }

    /// The scale's magnitude, rounded up to `precision` bits.
    pub(crate) fn magnitude_hi(self, precision: u32) -> Float {
        let (lo, hi) = self.enclose(precision).into_endpoints();
        hi.max(&-lo).abs()
    }

    /// The score of a dot product, where it is rational: always, unless the scale is irrational and
    /// the dot product is not zero.
    pub(crate) fn rational_score(self, dot: &Float) -> Option<Rational> {
        self.rational_product(Rational::try_from(dot).ok()?)
    }

    /// The scale times a rational number, where that is rational.
    pub(crate) fn rational_product(self, x: Rational) -> Option<Rational> {
        match self {
            Self::Value(value) => Some(x * Rational::try_from(value).ok()?),
            Self::Reciprocal(root) => Some(x / Integer::from(root)),
            Self::InverseSqrt(_) => (x == 0).then_some(x),
        }
    }
}

thread_local! {
    /// Inverse roots by head dimension, precision and whether they are rounded up. Every key of every
    /// row wants the same few, and one costs as much as an exponential.
    static INVERSE_ROOTS: RefCell<HashMap<(u64, u32, bool), Float>> = RefCell::default();
}

/// Inverse roots that are kept at most.
const MOST_ROOTS: usize = 1 << 10;

/// `1 / sqrt(head_dim)`, rounded up or down.
fn inverse_sqrt(head_dim: u64, precision: u32, round: Round) -> Float {
    let key = (head_dim, precision, round == Round::Up);
    INVERSE_ROOTS.with_borrow_mut(|known| {
        if known.len() >= MOST_ROOTS {
            known.clear();
        }
        let root = || {
            // Sixty-four bits hold the head dimension exactly; only the last step rounds.
            let mut value = Float::with_val(u64::BITS.max(precision), head_dim);
            value.recip_sqrt_round(round);
            value.set_prec_round(precision, round);
            value
        };
        known.entry(key).or_insert_with(root).clone()
    })
}

fn reciprocal(root: u64, precision: u32, round: Round) -> Float {
    let mut value = Float::with_val(u64::BITS.max(precision), root);
    value.recip_round(round);
    value.set_prec_round(precision, round);
    value
}

/// `integer * 2^exponent`, with all of its digits.
pub(crate) fn dyadic(integer: &Integer, exponent: i32) -> Float {
    let bits = integer.significant_bits().max(rug::float::prec_min());
    Float::with_val(bits, integer) << exponent
}
