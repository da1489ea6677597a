//! The probability of a key, or of a sink, as a backward kernel recomputes it
//! (`FAS:bwd.probability.recompute`).
//!
//! `P^ = p e^(-(L^ - L)) (1 + t)`, `|t| <= E = e^D - 1`, where `e^(-(L^ - L))` is common to the row and
//! `D` collects the score's error, the roundings between the score and the exponential, and the
//! exponential's own. `p E` is also at most `e^(s - L + D)`: a score of `-3e38` has an error of
//! `1e32` and a weight of nothing all the same, and only in the exponent do the two meet.

use super::condition::{GradientCondition, SinkGradientCondition};
use crate::bound::outward::Upper;
use crate::bound::{exponential, score, weight};
use crate::problem::Problem;
use crate::profile::Profile;

/// A probability, and how far the kernel's can be off apart from the row's common factor.
#[derive(Clone, Copy, Debug)]
pub(super) struct Probability {
    /// `p`.
    pub(super) exact: Upper,
    /// `p E`.
    pub(super) error: Upper,
}

impl Probability {
    /// That of a visible key.
    pub(super) fn of_key(
        problem: &Problem,
        profile: &Profile,
        row: &GradientCondition,
        i: usize,
    ) -> Self {
        let parts = row.parts(i);
        let score = score::score_error(problem, profile, parts);
        let log_error = score + argument_error(profile, row, parts.score, score);
        Self::new(Upper::new(row.probability_hi[i]), row.log_probability_hi[i], log_error)
    }

    /// That of the row's sink, whose logit is an input and has no error.
    pub(super) fn of_sink(
        profile: &Profile,
        row: &GradientCondition,
        sink: &SinkGradientCondition,
    ) -> Self {
        let log_error = argument_error(profile, row, Upper::new(sink.logit.abs()), Upper::ZERO);
        // The logit is at most L, which is at most its magnitude.
        let log_probability = (sink.logit + row.lse_magnitude_hi).next_up().min(0.0);
        Self::new(Upper::new(sink.probability_hi), log_probability, log_error)
    }

    fn new(exact: Upper, log: f64, log_error: Upper) -> Self {
        let relative = exact * log_error.exp_m1();
        Self { exact, error: relative.min(exponential::of_sum(log, log_error)) }
    }

    /// The kernel's, before the common factor.
    pub(super) fn computed(self) -> Upper {
        self.exact + self.error
    }
}

/// What the roundings between a score and its probability, and the exponential, add to the logarithm.
fn argument_error(
    profile: &Profile,
    row: &GradientCondition,
    score: Upper,
    score_error: Upper,
) -> Upper {
    /// Product with the factor and difference, or change of base, product and difference.
    const ROUNDINGS: usize = 2;
    let roundings = weight::unit(profile).compound(profile.scale_roundings as usize + ROUNDINGS);
    let own_lse = Upper::new(row.lse_magnitude_hi) + Upper::new(row.lse_shift_hi);
    let exponential = weight::exponential_error(profile);
    // Scaled down before they are added: a score may be the lowest number of f64.
    roundings * score + roundings * (score_error + own_lse) + exponential / exponential.complement()
}
