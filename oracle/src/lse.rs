//! The log-sum-exp of a row, `L = m + ln l`, enclosed and rounded.
//!
//! `L = r` for a rational `r` means `sum_i e^(s_i) = e^r`. Scores are algebraic, so by the
//! Lindemann-Weierstrass theorem (see [`crate::tie`]) this holds only with one visible key, of
//! score `r`. Hence `L` is a midpoint of two format values only then; otherwise a rising
//! precision must separate it from every one. It may have to rise without reason in one
//! case: `m` itself is the midpoint, and `l` exceeds 1 by next to nothing. There, `l > 1` decides.

use std::cmp::Ordering;

use flashproof_spec::format::Format;
use rug::{Float, Integer, Rational};

use crate::enclosure::Enclosure;
use crate::round::{Decision, above, decide, nearest};
use crate::scale::{ExactScale, dyadic};

/// Bits by which an LSE's endpoints are finer than the weights' grid, for a maximum that is large
/// beside the logarithm.
const MAXIMUM_BITS: u32 = 64;

/// The largest score of a row, and how many keys there are.
#[derive(Debug)]
pub(crate) struct Maximum {
    scale: ExactScale,
    dot: Float,
    rational: Option<Rational>,
    keys: usize,
}

impl Maximum {
    /// `scale * dot * 2^exponent` is the largest of the scores of this many keys.
    pub(crate) fn new(scale: ExactScale, dot: &Integer, exponent: i32, keys: usize) -> Self {
        let dot = dyadic(dot, exponent);
        let rational = scale.rational_score(&dot);
        Self { scale, dot, rational, keys }
    }

    /// The largest score, with endpoints of `precision` bits.
    pub(crate) fn enclose(&self, precision: u32) -> Enclosure {
        self.scale.enclose(precision).mul(&Enclosure::point(self.dot.clone()), precision)
    }

    /// The LSE, from bounds on the normalizer in units of `2^-precision`.
    pub(crate) fn lse(&self, normalizer: &(Integer, Integer), precision: u32) -> Enclosure {
        let digits = precision + MAXIMUM_BITS;
        let bound = |units: &Integer| dyadic(units, -(precision as i32));
        let normalizer = Enclosure::new(bound(&normalizer.0), bound(&normalizer.1));
        self.enclose(digits).add(&normalizer.ln(digits), digits)
    }

    /// The value of `format` nearest to the LSE, unless its enclosure is too wide to tell.
    pub(crate) fn round_lse(&self, enclosure: &Enclosure, format: Format) -> Option<f64> {
        match decide(enclosure, format) {
            Decision::Value(value) => Some(value),
            Decision::Midpoint(midpoint) if self.is(&midpoint) => {
                // The LSE of one key is its score, that of more keys lies above the largest.
                Some(match self.keys.cmp(&1) {
                    Ordering::Greater => above(&midpoint, format),
                    Ordering::Less | Ordering::Equal => nearest(&midpoint, format),
                })
            }
            Decision::Midpoint(_) | Decision::Open => None,
        }
    }

    /// Whether the largest score is exactly this number.
    fn is(&self, x: &Float) -> bool {
        self.rational.as_ref().is_some_and(|score| *x == *score)
    }
}
