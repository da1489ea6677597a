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

use super::forward::NormalizerError;
use super::outward::Upper;
use super::weight::{self, Weights};
use super::{Bound, RowCondition};
use crate::profile::Profile;

pub(super) fn bound(
    profile: &Profile,
    row: &RowCondition,
    weights: &Weights,
    normalizer: &NormalizerError,
) -> Bound {
    /// Product with the factor, change of base, product with that.
    const REFERENCE_ROUNDINGS: usize = 3;
    /// Change of base of the logarithm, and the product.
    const LOG_ROUNDINGS: usize = 3;
    /// The sum of the two, and storing it.
    const SUM_ROUNDINGS: usize = 2;
    let u = weight::unit(profile);
    let moved = perturbation(row, weights) + normalizer.of_logarithm();
    // The kernel's reference is off by the score error at most, and its normalizer's logarithm too.
    let log_normalizer = Upper::new(row.normalizer_hi).ln() + moved + weights.score_error;
    let logarithm = Upper::new(profile.log.absolute)
        .max(Upper::new(2.0 * profile.log.ulp) * u * log_normalizer);
    let reference = Upper::new(row.max_magnitude_hi) + weights.score_error;
    let roundings = u.compound(profile.scale_roundings as usize + REFERENCE_ROUNDINGS) * reference
        + u.compound(LOG_ROUNDINGS) * log_normalizer;
    let before_sum = moved + logarithm + roundings;
    let lse = Upper::new(row.lse_magnitude_hi) + before_sum;
    let stored = before_sum
        + u.compound(SUM_ROUNDINGS) * lse
        + weight::narrowing(profile, profile.lse_format) * lse * (Upper::ONE + u + u)
        + weight::narrowing_underflow(profile, profile.lse_format)
        + weight::underflow(profile);
    weight::within_range(stored, Upper::new(row.lse_magnitude_hi), profile.lse_format)
}

fn perturbation(row: &RowCondition, weights: &Weights) -> Upper {
    let grown: Upper = row
        .probability_hi
        .iter()
        .zip(&weights.relative_error)
        .map(|(&p, &c)| Upper::new(p) * c)
        .sum();
    let up = grown.min((Upper::ONE + grown).ln());
    let down = weights.kept.reciprocal().ln();
    let largest = weights.log_error.iter().copied().fold(Upper::ZERO, Upper::max);
    up.max(down).min(largest)
}
