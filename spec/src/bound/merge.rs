//! What it costs to finish parts of a row by themselves and merge them by their LSEs
//! (`FAS:fwd.merge.partials`).
//!
//! Part `k` is finished into `o_k = N_k / l_k` and `L_k = m_k + ln l_k`, and the merge gives it the weight
//! `e^(L_k - m_L)` with the greatest LSE `m_L`. The computed `l_k` is divided by in `o_k` and multiplied
//! with in `e^(L_k)`, so in the numerator it cancels, whatever its error; in the normalizer it counts
//! as it does without parts. What does not cancel:
//!
//! - the error of `L_k` beside that of `l_k`, common to the keys of the part: the logarithm's, of
//!   `ln l_k <= ln n`; the reference, which does not cancel in an LSE ([`super::lse`]):
//!   `(n_c + 3) u |m_k|`, and `m_k` lies between `s_i` and `m`, so `|m_k| <= X_i`; the change of base of the
//!   logarithm; the sum, and storing it;
//! - the argument `L_k - m_L`, at most `m - s_i + ln l`, rounded, and one more exponential;
//! - in the numerator the division of each part, and the product with its weight.
//!
//! The first two are added to `D_i`.

use super::RowCondition;
use super::lse::{LOG_ROUNDINGS, REFERENCE_ROUNDINGS, SUM_ROUNDINGS, log_error};
use super::outward::Upper;
use super::weight::{division_error, underflow, unit};
use crate::profile::Profile;

/// How many parts are merged; 0 where the row is finished at once.
pub(super) fn parts(profile: &Profile) -> usize {
    profile.merged_parts.unwrap_or(0)
}

/// Part of `D_i`, for a key with this `X_i` and `E_i`, where weights are at most `e^greatest` in the
/// frame of their part; zero where nothing is merged.
pub(super) fn weight_error(
    profile: &Profile,
    row: &RowCondition,
    (magnitude, slack): (Upper, Upper),
    greatest: Upper,
) -> Upper {
    if parts(profile) == 0 {
        return Upper::ZERO;
    }
    let u = unit(profile);
    let terms = row.gap_hi.len() + usize::from(row.sink.is_some());
    let log_normalizer = Upper::count(terms).ln() + greatest;
    let per_reference = u
        .compound(profile.scale_roundings as usize + REFERENCE_ROUNDINGS)
        .and(u.compound(SUM_ROUNDINGS));
    // The argument's rounding on top of the logarithm's own.
    let per_log = u.compound(LOG_ROUNDINGS + SUM_ROUNDINGS + 1);
    per_reference * magnitude
        + per_reference * slack
        + log_error(profile, log_normalizer)
        + per_log * log_normalizer
        + underflow(profile)
}

/// What the division of each part and the product with its weight change in the numerator.
pub(super) fn numerator_error(profile: &Profile) -> Upper {
    match parts(profile) {
        0 => Upper::ZERO,
        _ => division_error(profile).and(unit(profile)),
    }
}
