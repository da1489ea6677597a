//! The bound on attention outputs (`FAS:bound.fwd.output`) and its row-wise entry point.
//!
//! # Derivation
//! Write `w_i = e^(s_i - m) (1 + t_i)` for the perturbed weights of [`super::weight`], `|t_i| <=
//! c_i`, and `o' = sum w_i v_i / sum w_i` for what a kernel with those weights and no further
//! rounding returns. Because numerator and normalizer share them,
//!
//! ```text
//! o'_j - o_j = sum p_i t_i (v_ij - o_j) / sum p_i (1 + t_i)
//! |o'_j - o_j| <= S_j = min( sum p_i c_i |v_ij - o_j| / sum p_i e^(-D_i),  max_i |v_ij - o_j| )
//! ```
//!
//! the second because `o'` is a convex combination of value rows. Constant values therefore cancel
//! every error in the scores. Next, with normalized weights `p'_i`, `V'_j = sum p'_i |v_ij| <=
//! min( sum p_i (1 + c_i) |v_ij| / sum p_i e^(-D_i), max_i |v_ij| )`:
//!
//! - each weight is rounded to the weight format, and where it is normalized first, divided:
//!   `a V'_j` with `1 + a = (1 + u_P)(1 + eps_div if normalized)` (`u_P` counts in `D_i` instead
//!   where the normalizer sums the rounded weights, which then share it);
//!   then there is no division at the end, and `eps = 0` below;
//! - products and sums: [`super::accumulation::error`] with mass `(1 + a) V'_j` and total
//!   `|o'_j| + a V'_j`, the rescalings counted as roundings;
//! - the numerator carried between blocks in a narrower format: one rounding a block;
//! - underflow, absolute in the kernel's frame: of weights and rescaling factors, times
//!   `sum |v_ij|`; of products, sums and rescalings, in the accumulator's format. Divided by the
//!   normalizer there. An approximate exponential or quotient below the normal range errs by its
//!   ulps of the smallest subnormal.
//!
//! Together `E_N`. The normalizer's sum has positive terms, so it errs relatively by
//! `E_l = (1 + u)^(h + R) - 1` and its own underflow. With the division,
//!
//! ```text
//! O = (o' + e) (1 + eps) / (1 + f),   |e| <= E_N, |eps| <= eps_div, |f| <= E_l
//! |O - o'| <= [ E_N (1 + eps_div) + |o'| (eps_div + E_l) ] / (1 - E_l)
//! ```
//!
//! and rounding to the output format adds `u_out |O|` and half its smallest subnormal.
//! Where a score, a weight, a partial numerator or the result might leave the range of its format,
//! no bound exists. Partial numerators are relative to the running maximum, so keys that count for
//! nothing in the end may have weighed as much as any.

use std::f64::consts::LOG2_E;

use ndarray::{ArrayView1, ArrayView2};

use super::accumulation::{self, Sum};
use super::outward::Upper;
use super::weight::{self, Weights};
use super::{Bound, NoBound, RowCondition, lse};
use crate::problem::Problem;
use crate::profile::{Normalizer, Profile, Weights as WeightRounding};

/// The bounds of one query row.
#[derive(Clone, Debug, PartialEq)]
pub struct ForwardBounds {
    /// For each output entry, in the units of the values.
    pub output: Vec<Bound>,
    /// For the LSE, in nats.
    pub lse: Bound,
}

/// Bounds on the outputs and the LSE of one query row with at least one visible key.
///
/// `values` holds the visible keys' value rows, `[visible, value_dim]`, in the order of `row`.
///
/// # Panics
/// When `values` has not one row for each visible key, or `row` not one output for each of its
/// columns.
#[must_use]
pub fn forward(
    problem: &Problem,
    profile: &Profile,
    row: &RowCondition,
    values: &ArrayView2<'_, f64>,
) -> ForwardBounds {
    assert_eq!(values.nrows(), row.gap_hi.len(), "one value row for each visible key");
    assert_eq!(values.ncols(), row.output_hi.len(), "one output for each value entry");
    let unbounded = || {
        let none = Bound::None(NoBound::Overflow);
        ForwardBounds { output: vec![none; values.ncols()], lse: none }
    };
    if scores_overflow(problem, profile, row) {
        return unbounded();
    }
    let weights = Weights::new(problem, profile, row);
    if weights_overflow(profile, &weights) {
        return unbounded();
    }
    let normalizer = NormalizerError::new(problem, profile, &weights);
    let entry = Entry { problem, profile, row, weights: &weights, normalizer: &normalizer };
    let output = values
        .columns()
        .into_iter()
        .enumerate()
        .map(|(j, column)| entry.bound(&column, row.output_lo[j], row.output_hi[j]))
        .collect();
    ForwardBounds { output, lse: lse::bound(profile, row, &weights, &normalizer) }
}

/// Whether a dot product, or a score in its own format, might leave the range of its format.
fn scores_overflow(problem: &Problem, profile: &Profile, row: &RowCondition) -> bool {
    let largest = |xs: &[f64]| xs.iter().copied().fold(0.0, f64::max);
    let scale = problem.scale_f64().abs();
    // Products and scores may be kept before they are scaled, after, or in base two.
    let stored = |x: f64| (x * LOG2_E).max(if scale == 0.0 { 0.0 } else { x / scale });
    let accumulator = accumulation::format(profile.score_accumulation, profile.arithmetic);
    // A factor of two stands for every rounding on the way.
    2.0 * stored(largest(&row.dot_mass_hi)) > accumulator.max_finite()
        || 2.0 * stored(largest(&row.score_magnitude_hi)) > profile.score_format.max_finite()
}

/// Whether a weight, or the normalizer, might leave the range of its format.
fn weights_overflow(profile: &Profile, weights: &Weights) -> bool {
    // A factor of two stands for every rounding on the way.
    let weight = Upper::new(2.0) * weights.largest;
    let normalizer = weight * Upper::count(weights.log_error.len());
    weight.get() > profile.weight_format.max_finite()
        || normalizer.get() > profile.arithmetic.max_finite()
}

/// Relative error of the computed normalizer.
pub(super) struct NormalizerError {
    /// `E_l`.
    pub(super) relative: Upper,
}

impl NormalizerError {
    fn new(problem: &Problem, profile: &Profile, weights: &Weights) -> Self {
        let keys = weights.log_error.len();
        let rescalings = profile.schedule.rescalings(problem.key_len);
        let depth = profile.normalizer_depth.unwrap_or(usize::MAX).min(keys.saturating_sub(1));
        let rounding = weight::unit(profile).compound(depth + rescalings);
        let mut lost = weight::exponential_underflow(profile)
            * Upper::count((keys + 1) * (1 + rescalings))
            + weight::underflow(profile) * Upper::count(keys + rescalings);
        if profile.normalizer == Normalizer::Rounded {
            lost = lost
                + weight::narrowing_underflow(profile, profile.weight_format) * Upper::count(keys);
        }
        Self { relative: rounding + lost / weights.own_normalizer }
    }

    /// `-ln(1 - E_l)`, which bounds `|ln(1 + f)|` for `|f| <= E_l`.
    pub(super) fn of_logarithm(&self) -> Upper {
        self.relative.complement().reciprocal().ln()
    }
}

/// What the bound of one output entry is computed from.
struct Entry<'a> {
    problem: &'a Problem,
    profile: &'a Profile,
    row: &'a RowCondition,
    weights: &'a Weights,
    normalizer: &'a NormalizerError,
}

impl Entry<'_> {
    fn bound(&self, values: &ArrayView1<'_, f64>, output_lo: f64, output_hi: f64) -> Bound {
        let profile = self.profile;
        let output = Upper::new(output_lo.abs().max(output_hi.abs()));
        let shift = self.shift(values, output_lo, output_hi);
        let perturbed = output + shift;
        let magnitude = self.magnitude(values);
        if self.numerator_overflows(values, magnitude) {
            return Bound::None(NoBound::Overflow);
        }
        let numerator = self.numerator(values, magnitude, perturbed);
        let division = match profile.weights {
            WeightRounding::Unnormalized => division_error(profile),
            // Counted in each weight.
            WeightRounding::Normalized => Upper::ZERO,
        };
        let rest = self.normalizer.relative.complement();
        let quotient =
            numerator * (Upper::ONE + division) + perturbed * (division + self.normalizer.relative);
        let before_output = shift + quotient / rest + weight::division_underflow(profile);
        let rounded = before_output
            + weight::narrowing(profile, self.problem.format) * (output + before_output)
            + weight::narrowing_underflow(profile, self.problem.format);
        weight::within_range(rounded, output, self.problem.format)
    }

    /// `S_j`: what errors in the weights, shared by numerator and normalizer, can move.
    fn shift(&self, values: &ArrayView1<'_, f64>, output_lo: f64, output_hi: f64) -> Upper {
        let mut weighted = Upper::ZERO;
        let mut hull = Upper::ZERO;
        for ((&v, &p), &c) in
            values.iter().zip(&self.row.probability_hi).zip(&self.weights.relative_error)
        {
            let distance = distance(v, output_lo, output_hi);
            weighted = weighted + Upper::new(p) * c * distance;
            hull = hull.max(distance);
        }
        (weighted / self.weights.kept).min(hull)
    }

    /// `V'_j`: the mass of the perturbed, normalized terms.
    fn magnitude(&self, values: &ArrayView1<'_, f64>) -> Upper {
        let mut weighted = Upper::ZERO;
        let mut largest = Upper::ZERO;
        for ((&v, &p), &c) in
            values.iter().zip(&self.row.probability_hi).zip(&self.weights.relative_error)
        {
            let v = Upper::new(v.abs());
            weighted = weighted + Upper::new(p) * (Upper::ONE + c) * v;
            largest = largest.max(v);
        }
        (weighted / self.weights.kept).min(largest)
    }

    /// `E_N`: roundings of weights, products and sums, relative to the perturbed normalizer.
    fn numerator(&self, values: &ArrayView1<'_, f64>, magnitude: Upper, total: Upper) -> Upper {
        let profile = self.profile;
        let per_weight = self.per_weight_error();
        let rounding = per_weight * magnitude;
        let rescalings = profile.schedule.rescalings(self.problem.key_len);
        let sum = Sum {
            terms: values.len(),
            positions: self.problem.key_len,
            runs: 1 + rescalings,
            rescalings,
            mass: magnitude + rounding,
            total: total + rounding,
        };
        let summation = accumulation::error(profile.value_accumulation, &sum);
        let carried = weight::narrowing(profile, profile.carried_format).compound(1 + rescalings)
            * (sum.mass + summation);
        rounding + summation + carried + self.lost(values, rescalings)
    }

    fn per_weight_error(&self) -> Upper {
        let profile = self.profile;
        let narrow = weight::narrowing(profile, profile.weight_format);
        match (profile.weights, profile.normalizer) {
            (WeightRounding::Unnormalized, Normalizer::Unrounded) => narrow,
            // The normalizer shares that rounding; it is counted in each weight.
            (WeightRounding::Unnormalized, Normalizer::Rounded) => Upper::ZERO,
            // Rounded again after the division.
            (WeightRounding::Normalized, _) => {
                let division = division_error(profile);
                narrow + division + narrow * division
            }
        }
    }

    /// Underflow on the way to the numerator, over the normalizer of the kernel's own frame.
    fn lost(&self, values: &ArrayView1<'_, f64>, rescalings: usize) -> Upper {
        let profile = self.profile;
        let tiny = weight::underflow(profile);
        let sum_tiny = weight::sum_underflow(profile, profile.value_accumulation);
        let weight_tiny = weight::narrowing_underflow(profile, profile.weight_format);
        let carried_tiny = weight::narrowing_underflow(profile, profile.carried_format);
        let values_mass: Upper = values.iter().map(|v| Upper::new(v.abs())).sum();
        let exponential_tiny = weight::exponential_underflow(profile);
        let per_value = weight_tiny
            + exponential_tiny * Upper::count(1 + rescalings)
            + weight::division_underflow(profile).max(tiny);
        let sums = sum_tiny * Upper::count(2 * values.len() + rescalings)
            + carried_tiny * Upper::count(1 + rescalings);
        let frame = match profile.weights {
            WeightRounding::Unnormalized => self.weights.own_normalizer.reciprocal(),
            // Weights that are normalized first underflow after the division as well as before.
            WeightRounding::Normalized => self.weights.own_normalizer.reciprocal() + Upper::ONE,
        };
        (per_value * values_mass + sums) * frame
    }

    /// Whether a partial numerator might leave the range of the accumulator.
    ///
    /// Its weights are relative to the greatest score so far, so keys that count for nothing in the
    /// end may have weighed as much as any.
    fn numerator_overflows(&self, values: &ArrayView1<'_, f64>, magnitude: Upper) -> bool {
        let profile = self.profile;
        let accumulator = accumulation::format(profile.value_accumulation, profile.arithmetic);
        let mass = match profile.weights {
            WeightRounding::Unnormalized => {
                let values: Upper = values.iter().map(|v| Upper::new(v.abs())).sum();
                self.weights.largest * values
            }
            WeightRounding::Normalized => magnitude,
        };
        let largest = Upper::new(2.0) * mass;
        largest.get() > accumulator.max_finite().min(profile.carried_format.max_finite())
    }
}

/// Relative error of the division by the normalizer: an ulp is at most `2u`.
fn division_error(profile: &Profile) -> Upper {
    Upper::new(profile.division_ulp) * Upper::new(2.0) * weight::unit(profile)
}

/// `|v - o|` for any `o` in `[lo, hi]`.
fn distance(v: f64, lo: f64, hi: f64) -> Upper {
    // One rounding of the subtraction, undone by one ulp.
    Upper::new(v - lo).max(Upper::new(hi - v)) * Upper::new(1.0_f64.next_up())
}
