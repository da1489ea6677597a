//! The log-sum-exp of a row, `L = m + ln l`, enclosed and rounded.
//!
//! `L = r` for a rational `r` means `sum_i e^(s_i) = e^r`, the sink's term included. Where scores are
//! algebraic, this holds by the Lindemann-Weierstrass theorem (see [`crate::tie`]) only with one
//! term, of score `r`. Hence `L` is a midpoint of two format values only then; otherwise a rising
//! precision must separate it from every one. It may have to rise without reason in one case: `m`
//! itself is the midpoint, and `l` exceeds 1 by next to nothing. There, `l > 1` decides, as it does
//! for the score of any one of several terms in the place of `m`.
//!
//! With a softcap nothing is known of midpoints beyond this one case, and the precision may rise in
//! vain.

use std::cmp::Ordering;

use flashproof_spec::format::Format;
use rug::{Float, Integer};

use crate::enclosure::Enclosure;
use crate::ranking::Ranking;
use crate::round::{Decision, above, decide, nearest};
use crate::scale::dyadic;

/// Bits by which an LSE's endpoints are finer than the weights' grid, for a maximum that is large
/// beside the logarithm.
const MAXIMUM_BITS: u32 = 64;

impl Ranking<'_> {
    /// The LSE, from bounds on the normalizer in units of `2^-precision`.
    pub(crate) fn lse(&self, normalizer: &(Integer, Integer), precision: u32) -> Enclosure {
        let digits = precision + MAXIMUM_BITS;
        let bound = |units: &Integer| dyadic(units, -(precision as i32));
        let normalizer = Enclosure::new(bound(&normalizer.0), bound(&normalizer.1));
        self.reference(digits).add(&normalizer.ln(digits), digits)
    }

    /// The value of `format` nearest to the LSE, unless its enclosure is too wide to tell.
    pub(crate) fn round_lse(&self, enclosure: &Enclosure, format: Format) -> Option<f64> {
        match decide(enclosure, format) {
            Decision::Value(value) => Some(value),
            Decision::Midpoint(midpoint) if self.refers_to(&midpoint) => {
                // The LSE of one term is its score, that of more terms lies above the score of each.
                Some(match self.terms().cmp(&1) {
                    Ordering::Greater => above(&midpoint, format),
                    Ordering::Less | Ordering::Equal => nearest(&midpoint, format),
                })
            }
            Decision::Midpoint(_) | Decision::Open => None,
        }
    }

    /// Whether the score of the reference is exactly this number.
    fn refers_to(&self, x: &Float) -> bool {
        self.rational_reference().is_some_and(|score| *x == score)
    }
}
