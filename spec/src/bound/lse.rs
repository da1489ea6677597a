//! The bound on the LSE (`FAS:bound.fwd.lse`).
//!
//! With the perturbed weights of [`super::weight`], the kernel's normalizer is
//! `l (sum p_i (1 + t_i))` in the frame of its reference, so its logarithm moves by at most
//!
//! ```text
//! min( max( ln(1 + sum p_i c_i), -ln(sum p_i e^(-D_i)) ),  max D_i )
//! ```
//!
//! Added to it: the sum's own error `-ln(1 - E_l)`; the logarithm's; the reference, which here does
//! not cancel: the factor's `n_c` roundings, the product with it and, where the kernel works in base
//! two, the change of base and its product, `(n_c + 3) u |m|`; the same change of base on `ln l`;
//! the final sum; and rounding to the LSE's own format.
//!
//! A kernel that adds a sink to the finished normalizer may have the maximum `m'` of the keys alone as
//! its reference: then `m - m'` comes on top of `|m|` and of `ln l`.
//!
//! Scores that are in the range of their format, at its edge even, have a greatest one and a logarithm of
//! their number in range: rounding the sum does not leave it, so the LSE has a bound wherever its
//! format holds the scores.

use super::forward::NormalizerError;
use super::outward::Upper;
use super::weight::{self, Weights};
use super::{Bound, RowCondition, merge};
use crate::profile::Profile;

/// Product with the factor, change of base, product with that.
pub(super) const REFERENCE_ROUNDINGS: usize = 3;

/// Change of base of the logarithm, and the product.
pub(super) const LOG_ROUNDINGS: usize = 3;

/// The sum of the two, and storing it.
pub(super) const SUM_ROUNDINGS: usize = 2;

/// Absolute error of the logarithm of a number whose logarithm is at most this.
pub(super) fn log_error(profile: &Profile, logarithm: Upper) -> Upper {
    let relative = Upper::new(2.0 * profile.log.ulp) * weight::unit(profile);
    Upper::new(profile.log.absolute).max(relative * logarithm)
}

pub(super) fn bound(
    profile: &Profile,
    row: &RowCondition,
    weights: &Weights,
    normalizer: &NormalizerError,
) -> Bound {
    let u = weight::unit(profile);
    let moved = perturbation(weights) + normalizer.of_logarithm();
    // The kernel's reference is off by the score error at most, and its normalizer's logarithm too.
    let log_normalizer = Upper::new(row.normalizer_hi).ln()
        + moved
        + weights.reference_error
        + weights.reference_shift;
    let logarithm = log_error(profile, log_normalizer);
    let reference_roundings = u.compound(profile.scale_roundings as usize + REFERENCE_ROUNDINGS);
    let reference = weight::magnitude(row.max_magnitude_hi);
    // The greatest LSE of a part is the reference where parts are merged.
    let merged = if merge::parts(profile) > 0 { log_normalizer } else { Upper::ZERO };
    // Scaled down before they are added: a score may be the lowest number of f64.
    let roundings = reference_roundings * reference
        + reference_roundings * (weights.reference_error + weights.reference_shift + merged)
        + u.compound(LOG_ROUNDINGS) * log_normalizer;
    let before_sum = moved + logarithm + roundings;
    let storing = u.compound(SUM_ROUNDINGS)
        + weight::narrowing(profile, profile.lse_format) * (Upper::ONE + u + u);
    let lse = weight::magnitude(row.lse_magnitude_hi);
    let stored = before_sum
        + storing * lse
        + storing * before_sum
        + weight::narrowing_underflow(profile, profile.lse_format)
        + weight::underflow(profile);
    let scores_fit = profile.lse_format.max_finite() >= profile.score_format.max_finite();
    if scores_fit && stored.is_finite() {
        return Bound::Within(stored.get());
    }
    weight::within_range(stored, Upper::new(row.lse_magnitude_hi), profile.lse_format)
}

fn perturbation(weights: &Weights) -> Upper {
    let all = || weights.keys.iter().chain(&weights.sink);
    let grown: Upper = all().map(|weight| weight.moved).sum();
    let up = grown.min((Upper::ONE + grown).ln());
    let down = weights.kept.reciprocal().ln();
    let largest = all().map(|weight| weight.log).fold(Upper::ZERO, Upper::max);
    up.max(down).min(largest)
}
