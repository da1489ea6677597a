//! How far a sink's weight can stray from `e^(t - m)` (`FAS:bound.weight`).
//!
//! The sink's logit `t` is an input, exact but for its conversion (a constant and the product with it)
//! and its rounding to the score format. The factor of the products, which is taken out of the keys'
//! scores, does not multiply it; so taking that out costs its `n_c` roundings. Otherwise it is a weight
//! like theirs.
//!
//! Kernels take it in at three places. With the first block, or as a split of its own, it is one more
//! candidate for the maximum and one more rescaling for all. Or it joins the finished normalizer as
//! `e^(t - m')`, in the frame of the greatest key `m'`: then its argument is `t - m'` rather than
//! `t - m`. Where that exponential surely overflows, the other two places remain; where it may, see
//! [`super::range`].

use super::outward::Upper;
use super::weight::{
    self, ArgumentRounding, Scores, excess, narrowing, narrowing_underflow, underflow, unit,
};
use super::{RowCondition, SinkCondition, merge};
use crate::profile::Profile;

/// What a sink's weight can be off by, and what it does to the frame of the weights.
pub(super) struct Sink {
    /// `D` of the sink.
    pub(super) log_error: Upper,
    /// An upper bound on its weight in the frame of the greatest key.
    pub(super) largest: Upper,
    /// `m - m'` from above, as far as a kernel may take `m'` as its reference.
    pub(super) shift: Upper,
}

impl Sink {
    pub(super) fn new(
        profile: &Profile,
        row: &RowCondition,
        sink: SinkCondition,
        scores: &Scores,
        rounding: &ArgumentRounding,
    ) -> Self {
        let own = logit_error(profile, sink);
        let frame = KeyFrame::new(row, scores);
        // An exponential of more is infinite.
        let limit = Upper::new(profile.arithmetic.max_finite()).ln();
        let (mut gap, mut slack) = (weight::magnitude(sink.gap_hi), own.max(scores.reference));
        let mut reference = scores.max_magnitude;
        let mut shift = Upper::ZERO;
        if frame.least_shift <= (limit + own).get() {
            shift = frame.shift.min(limit);
            gap = gap.max(Upper::new(sink.key_gap_hi).min(limit));
            slack = slack.max(frame.error);
            reference = reference + shift;
        }
        // Running maxima lie between the logit and the greatest score.
        let magnitude = reference.max(scores.common.0).max(Upper::new(sink.logit.abs()));
        let greatest = rounding.at_the_greatest(profile, scores);
        let exponent = frame.shift + own + rounding.exponentials;
        Self {
            log_error: own
                + rounding.of(gap, magnitude, slack)
                + merge::weight_error(profile, row, (magnitude, slack), greatest),
            largest: exponent.exp_m1() + Upper::ONE,
            shift,
        }
    }
}

/// The computed maximum of the keys alone.
struct KeyFrame {
    /// At least `m` less that maximum.
    shift: Upper,
    /// At most the same.
    least_shift: f64,
    /// The most that it differs from the exact one.
    error: Upper,
}

impl KeyFrame {
    fn new(row: &RowCondition, scores: &Scores) -> Self {
        let keys = || scores.errors.iter().copied().zip(row.gap_lo.iter().zip(&row.gap_hi));
        let shift =
            keys().map(|(e, (_, &hi))| Upper::new(hi) + e).fold(Upper::INFINITE, Upper::min);
        let least_shift =
            keys().map(|(e, (&lo, _))| (lo - e.get()).next_down()).fold(f64::INFINITY, f64::min);
        // `m` less the exact maximum is at most every key's gap.
        let least_gap = row.gap_hi.iter().copied().fold(f64::INFINITY, f64::min);
        let error = keys()
            .map(|(e, (&lo, _))| excess(e, (lo - least_gap).next_down().max(0.0)))
            .fold(Upper::ZERO, Upper::max);
        Self { shift, least_shift, error }
    }
}

/// What the conversion of the logit changes.
pub(super) fn logit_error(profile: &Profile, sink: SinkCondition) -> Upper {
    /// Conversion constant, and the product with it.
    const ROUNDINGS: usize = 2;
    let logit = Upper::new(sink.logit.abs());
    if logit == Upper::ZERO {
        return Upper::ZERO;
    }
    let relative = unit(profile)
        .compound(profile.scale_roundings as usize + ROUNDINGS)
        .and(narrowing(profile, profile.score_format));
    relative * logit + underflow(profile) + narrowing_underflow(profile, profile.score_format)
}
