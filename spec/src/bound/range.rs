//! Whether a row's scores and weights can leave the ranges of their formats, so that no bound exists.
//!
//! # Products
//! A dot product, its terms, or the scaled product may be kept before it is scaled, after, or in base
//! two, and twice that must fit the accumulator and the score format. A cap, its reciprocal and
//! `cap * log2 e` must be numbers of the arithmetic.
//!
//! # What is added
//! The lowest number of a format is in use as a bias that hides a key, so a score must be allowed to
//! reach the edge of its format, and that in one place only: in nats. There `x + b` rounds to a finite
//! number as long as what exceeds the largest one is less than half its ulp. A kernel that keeps
//! scores in base two or unscaled has infinity there. Where another key outweighs it, nothing is
//! lost by that: a score of minus infinity is a weight of 0 ([`super::weight`]). Where *no* key does,
//! a finite bias hides nothing (`FAS:score.bias.finite`), the row has a finite answer, which a kernel
//! in nats gives, and the row keeps its bound: a kernel whose scores are all infinite fails it.
//! The same holds on the positive side. So there is no bound only where the greatest score may not
//! fit in nats, or where the positive terms of some other score do not: plus infinity is never
//! harmless. Half of magnitude plus score bounds the sum of the positive terms.
//!
//! # Weights and the sink
//! A weight in the frame of the greatest score up to it is 1 but for errors. A kernel that adds a
//! sink to the finished normalizer, in the frame of the keys alone, may find `e^(t - m')` infinite.
//! It then returns an infinite LSE, and 0 for each output: the exact ones are as small as
//! `e^(m' - t)`. Kernels in use do so, and the profile does not say which reference is taken. So the LSE has
//! no bound there, and outputs have one that admits 0.

use std::f64::consts::LOG2_E;

use super::RowCondition;
use super::accumulation;
use super::outward::Upper;
use super::score;
use super::weight::{self, Weights, magnitude, parts, stored};
use crate::problem::Problem;
use crate::profile::Profile;

/// Whether a dot product, or a score in its own format, might leave the range of its format.
pub(super) fn scores_overflow(problem: &Problem, profile: &Profile, row: &RowCondition) -> bool {
    let largest = |xs: &[f64]| xs.iter().copied().fold(0.0, f64::max);
    let accumulator = accumulation::format(profile.score_accumulation, profile.arithmetic);
    // A factor of two stands for every rounding on the way.
    2.0 * stored(problem, largest(&row.dot_mass_hi)) > accumulator.max_finite()
        || 2.0 * stored(problem, largest(&row.product_magnitude_hi))
            > profile.score_format.max_finite()
        || cap_overflows(problem, profile)
        || row.sink.is_some_and(|sink| sink.logit.abs() > profile.score_format.max_finite())
        || (score::ends_with_addition(problem)
            && (0..row.gap_hi.len()).any(|key| sum_overflows(problem, profile, row, key)))
}

fn cap_overflows(problem: &Problem, profile: &Profile) -> bool {
    problem.softcap.is_some_and(|softcap| {
        2.0 * LOG2_E * softcap.cap.max(softcap.cap.recip()) > profile.arithmetic.max_finite()
    })
}

/// Whether the score of one key might be plus infinity in nats, or minus infinity though no other
/// outweighs it.
fn sum_overflows(problem: &Problem, profile: &Profile, row: &RowCondition, key: usize) -> bool {
    let parts = parts(row, key);
    let error = score::score_error(problem, profile, parts);
    let product = parts.product + score::product_error(problem, profile, parts);
    let largest = profile.score_format.max_finite();
    if row.gap_lo[key] <= error.get() {
        let half_ulp = largest * profile.score_format.unit_roundoff() / 2.0;
        let beyond = (parts.addend.get() - largest).next_up() + product.get();
        return beyond.next_up() >= half_ulp;
    }
    // Halves, each within the range of f64: `(product + addend + s)/2`, `s = m - gap`.
    let half = Upper::new(0.5);
    let magnitudes = half * product + half * parts.addend;
    let positive = magnitudes + half * magnitude(row.max_magnitude_hi);
    (positive.get() - row.gap_lo[key] / 2.0).next_up() > largest
}

/// Whether a weight, or the normalizer, might leave the range of its format.
pub(super) fn weights_overflow(problem: &Problem, profile: &Profile, weights: &Weights) -> bool {
    // A factor of two stands for every rounding on the way.
    let weight = Upper::new(2.0) * weights.largest;
    let terms = weights.keys.len() + weight::extra_terms(problem);
    let normalizer = weight * Upper::count(terms);
    normalizer.get() > profile.arithmetic.max_finite()
        || profile.carried_normalizer.is_some_and(|it| normalizer.get() > it.max_finite())
        || weights_overflow_their_format(problem, profile, weights)
}

/// Whether a weight, as it is scaled and multiplied by dropout, might round to more than the largest
/// number of its format: half an ulp past that, of which `u/2` of it is less.
fn weights_overflow_their_format(problem: &Problem, profile: &Profile, weights: &Weights) -> bool {
    /// Scaling, and the factor of dropout and its product.
    const ROUNDINGS: usize = 3;
    let kept = problem.dropout.as_ref().map_or(1.0, |dropout| dropout.scale.max(1.0));
    let rounded = Upper::ONE + weight::unit(profile).compound(ROUNDINGS);
    let scaled = weights.largest * Upper::new(profile.weight_scale) * Upper::new(kept) * rounded;
    let format = profile.weight_format;
    let largest = format.max_finite() * (1.0 + format.unit_roundoff() / 2.0).next_down();
    scaled.get() > largest.next_down()
}

/// Whether a kernel might find the sink's weight infinite, or the reciprocal of the normalizer below
/// the normal range.
pub(super) fn sink_overflows(profile: &Profile, weights: &Weights) -> bool {
    // A factor of two stands for every rounding on the way.
    let normalizer = Upper::new(2.0)
        * (weights.largest_sink + weights.largest * Upper::count(weights.keys.len()));
    let carried = profile.carried_normalizer.unwrap_or(profile.arithmetic);
    let limits = [profile.arithmetic, carried]
        .map(|format| format.max_finite().min(format.smallest_normal().recip()));
    let limit = limits[0].min(limits[1]);
    weights.sink.is_some() && normalizer.get() > limit
}
