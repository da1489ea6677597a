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
//! every error in the scores. A sink is a term of these sums with a value of 0. Next, with normalized
//! weights `p'_i`, `V'_j = sum p'_i |v_ij| <= min( sum p_i (1 + c_i) |v_ij| / sum p_i e^(-D_i), max_i |v_ij| )`:
//!
//! - each weight is rounded to the weight format, and where it is normalized first, divided:
//!   `a V'_j` with `1 + a = (1 + u_P)(1 + eps_div if normalized)` (`u_P` counts in `D_i` instead
//!   where the normalizer sums the rounded weights, which then share it);
//!   then there is no division at the end, and `eps = 0` below;
//! - products and sums: [`super::accumulation::error`] with mass `(1 + a) V'_j` and total
//!   `|o'_j| + a V'_j`, the rescalings counted as roundings;
//! - the numerator carried between blocks in a narrower format: one rounding a block;
//! - descales of the value ([`crate::quantization`]): one rounding of the finished sum, or one of each
//!   part and its addition to the others, counted as rescalings are;
//! - a scale of the weights, exact where it is a power of two: what they lose by underflow is divided
//!   by it;
//! - parts that are finished by themselves: [`super::merge`];
//! - dropout: its factor `z_i` is part of the values here, exactly, `z_i v_ij`. It may be rounded itself,
//!   and so may its product: with the weight before or after that is rounded to the weight format
//!   (which is then rounded to it once more), or with the output. `(1 + u)^2 (1 + u_P)` more;
//! - underflow, absolute in the kernel's frame: of weights and rescaling factors, times
//!   `sum |v_ij|`; of products, sums and rescalings, in the accumulator's format. Divided by the
//!   normalizer there, it is part of the mass and of the total of the sums. An approximate
//!   exponential or quotient below the normal range errs by its ulps of the smallest subnormal.
//!
//! Together `E_N`. The normalizer's sum has positive terms, so it errs relatively by
//! `E_l = (1 + u)^(h + R) (1 + u_l)^(1 + R) - 1` and its own underflow, with `u_l` the roundoff of a
//! narrower format that it is carried in between blocks. With the division,
//!
//! ```text
//! O = (o' + e) (1 + eps) / (1 + f),   |e| <= E_N, |eps| <= eps_div, |f| <= E_l
//! |O - o'| <= [ E_N (1 + eps_div) + |o'| (eps_div + E_l) ] / (1 - E_l)
//! ```
//!
//! and rounding to the output format adds `u_out |O|` and half its smallest subnormal.
//! Where a score, a weight, a partial numerator or the result might leave the range of its format,
//! no bound exists ([`super::range`]). Partial numerators are relative to the running maximum, so keys
//! that count for nothing in the end may have weighed as much as any.

use ndarray::{ArrayView1, ArrayView2};

use super::accumulation::{self, Sum};
use super::outward::{Lower, Upper};
use super::weight::{self, Weights};
use super::{Bound, NoBound, RowCondition, lse, merge, range};
use crate::format::Format;
use crate::problem::Problem;
use crate::profile::{Normalizer, Profile, Weights as WeightRounding};
use crate::quantization::Descale;
use crate::score::Dropout;

/// `1 / (1 - probability)`, and the product with it.
const DROPOUT_ROUNDINGS: usize = 2;

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
/// `values` holds the visible keys' value rows, `[visible, value_dim]`, in the order of `row`, each
/// entry multiplied by what dropout multiplies the weight that meets it by.
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
    let Some(row) = Row::new(problem, profile, row) else { return unbounded() };
    let output = values.columns().into_iter().enumerate();
    let output = output.map(|(j, column)| row.bound(&column, j)).collect();
    let lse = if row.sink_overflows {
        Bound::None(NoBound::Overflow)
    } else {
        lse::bound(profile, row.condition, &row.weights, &row.normalizer)
    };
    ForwardBounds { output, lse }
}

/// Relative error of the computed normalizer.
pub(super) struct NormalizerError {
    /// `E_l`.
    pub(super) relative: Upper,
    /// The part of it that need not average out: underflow, and roundings to a narrower format that it
    /// is carried in.
    pub(super) systematic: Upper,
    /// How many roundings a term passes on its way, at most.
    pub(super) roundings: usize,
}

impl NormalizerError {
    pub(super) fn new(problem: &Problem, profile: &Profile, weights: &Weights) -> Self {
        let keys = weights.keys.len();
        let extra = weight::extra_terms(problem);
        let rescalings = weight::rescalings(problem, profile);
        let any_order = (keys + extra).saturating_sub(1);
        let depth = profile
            .normalizer_depth
            .map_or(any_order, |h| any_order.min(h.saturating_add(extra + merge::parts(profile))));
        let carried = profile.carried_normalizer.unwrap_or(profile.arithmetic);
        let narrowed = weight::narrowing(profile, carried).compound(1 + rescalings);
        let rounding = weight::unit(profile).compound(depth + rescalings).and(narrowed);
        let mut lost = weight::exponential_underflow(profile)
            * Upper::count((keys + extra + 1) * (1 + rescalings))
            + weight::underflow(profile) * Upper::count(keys + extra + rescalings)
            + weight::narrowing_underflow(profile, carried) * Upper::count(1 + rescalings);
        if profile.normalizer == Normalizer::Rounded {
            lost = lost + weight::weight_underflow(profile) * Upper::count(keys);
        }
        let lost = lost / weights.own_normalizer;
        Self {
            relative: rounding + lost,
            systematic: narrowed + lost,
            roundings: depth + rescalings,
        }
    }

    /// `-ln(1 - E_l)`, which bounds `|ln(1 + f)|` for `|f| <= E_l`.
    pub(super) fn of_logarithm(&self) -> Upper {
        self.relative.complement().reciprocal().ln()
    }
}

/// What the bounds of the output entries of one row are computed from.
pub(super) struct Row<'a> {
    pub(super) problem: &'a Problem,
    pub(super) profile: &'a Profile,
    pub(super) condition: &'a RowCondition,
    pub(super) weights: Weights,
    pub(super) normalizer: NormalizerError,
    /// Whether a kernel might divide by infinity.
    pub(super) sink_overflows: bool,
}

impl<'a> Row<'a> {
    /// `None` where a score or a weight might leave its range.
    pub(super) fn new(
        problem: &'a Problem,
        profile: &'a Profile,
        condition: &'a RowCondition,
    ) -> Option<Self> {
        if range::scores_overflow(problem, profile, condition) {
            return None;
        }
        let weights = weight::weights(problem, profile, condition);
        if range::weights_overflow(problem, profile, &weights) {
            return None;
        }
        let normalizer = NormalizerError::new(problem, profile, &weights);
        let sink_overflows = range::sink_overflows(profile, &weights);
        Some(Self { problem, profile, condition, weights, normalizer, sink_overflows })
    }

    fn bound(&self, values: &ArrayView1<'_, f64>, entry: usize) -> Bound {
        let Some(before_output) = self.before_output(values, entry) else {
            return Bound::None(NoBound::Overflow);
        };
        let output = self.output(entry);
        let rounded = before_output
            + weight::narrowing(self.profile, self.problem.output_format())
                * (output + before_output)
            + weight::narrowing_underflow(self.profile, self.problem.output_format());
        weight::within_range(rounded, output, self.problem.output_format())
    }

    /// `|o_j|`.
    fn output(&self, entry: usize) -> Upper {
        let (lo, hi) = self.output_ends(entry);
        Upper::new(lo.abs().max(hi.abs()))
    }

    /// Bounds on `o_j`.
    pub(super) fn output_ends(&self, entry: usize) -> (f64, f64) {
        (self.condition.output_lo[entry], self.condition.output_hi[entry])
    }

    /// The bound on an output entry before it is rounded to the output format; `None` where a partial
    /// numerator might leave its range.
    pub(super) fn before_output(
        &self,
        values: &ArrayView1<'_, f64>,
        entry: usize,
    ) -> Option<Upper> {
        let profile = self.profile;
        let (output_lo, output_hi) = self.output_ends(entry);
        let output = self.output(entry);
        let shift = self.shift(values, output_lo, output_hi);
        let perturbed = output + shift;
        let magnitude = self.magnitude(values);
        if self.numerator_overflows(values, magnitude) {
            return None;
        }
        let numerator = self.numerator(values, magnitude, perturbed);
        let parts = merge::parts(profile);
        let division = match profile.weights {
            // Counted in each weight.
            WeightRounding::Normalized if parts == 0 => Upper::ZERO,
            _ => weight::division_error(profile),
        };
        let rest = self.normalizer.relative.complement();
        let quotient =
            numerator * (Upper::ONE + division) + perturbed * (division + self.normalizer.relative);
        let lost_quotient = weight::division_underflow(profile) * Upper::count(1 + parts);
        // Whatever it is divided by, it may be 0 where that overflows.
        let vanished = if self.sink_overflows { output } else { Upper::ZERO };
        let scaled = self.problem.dropout.as_ref().map_or(Upper::ZERO, |kept| {
            weight::underflow(profile) + lost_quotient * Upper::new(kept.scale)
        });
        Some(shift + quotient / rest + lost_quotient + vanished + scaled)
    }

    /// `S_j`: what errors in the weights, shared by numerator and normalizer, can move.
    pub(super) fn shift(
        &self,
        values: &ArrayView1<'_, f64>,
        output_lo: f64,
        output_hi: f64,
    ) -> Upper {
        let mut weighted = Upper::ZERO;
        let mut hull = Upper::ZERO;
        // The sink has no value: it pulls the mean towards 0.
        let values = values.iter().copied().chain(self.weights.sink.map(|_| 0.0));
        for (v, weight) in values.zip(self.weights.keys.iter().chain(&self.weights.sink)) {
            let distance = distance(v, output_lo, output_hi);
            weighted = weighted + weight.moved * distance;
            hull = hull.max(distance);
        }
        (weighted / self.weights.kept).min(hull)
    }

    /// `V'_j`: the mass of the perturbed, normalized terms.
    pub(super) fn magnitude(&self, values: &ArrayView1<'_, f64>) -> Upper {
        let mut weighted = Upper::ZERO;
        let mut largest = Upper::ZERO;
        for (&v, weight) in values.iter().zip(&self.weights.keys) {
            let v = Upper::new(v.abs());
            weighted = weighted + weight.grown * v;
            largest = largest.max(v);
        }
        (weighted / self.weights.kept).min(largest)
    }

    /// `E_N`: roundings of weights, products and sums, relative to the perturbed normalizer.
    fn numerator(&self, values: &ArrayView1<'_, f64>, magnitude: Upper, total: Upper) -> Upper {
        let profile = self.profile;
        let per_weight = self.per_weight_error();
        let rounding = per_weight * magnitude;
        let rescalings = weight::rescalings(self.problem, profile);
        let values_mass: Upper = values.iter().map(|v| Upper::new(v.abs())).sum();
        let lost = self.lost(values_mass, weight::weight_underflow(profile), rescalings);
        let sum = Sum {
            terms: values.len(),
            positions: self.problem.key_len,
            runs: 1 + rescalings + self.descaled_blocks(),
            rescalings: rescalings + self.descalings(rescalings),
            mass: magnitude + rounding + lost,
            total: total + rounding + lost,
            aligned: self.aligned(values),
        };
        let summation = accumulation::error(profile.value_accumulation, &sum);
        let carried = weight::narrowing(profile, profile.carried_format).compound(1 + rescalings)
            * (sum.mass + summation);
        let merged = merge::numerator_error(profile) * (sum.mass + summation + carried);
        rounding + summation + carried + merged + lost
    }

    /// How many parts of the sum have a descale of the value of their own.
    fn descaled_blocks(&self) -> usize {
        match self.problem.quantization.map(|quantization| quantization.value) {
            None | Some(Descale::Head) => 0,
            Some(descale) => descale.count(self.problem.key_len),
        }
    }

    /// Roundings on the way of a term that descales of the value bring: one product with the finished
    /// sum, or for each part one with the part, and its addition to the others.
    fn descalings(&self, rescalings: usize) -> usize {
        match (self.problem.quantization, self.descaled_blocks()) {
            (None, _) => 0,
            (Some(_), 0) => 1,
            (Some(_), blocks) => 2 * (1 + rescalings + blocks),
        }
    }

    /// What a tensor core may align a product of a weight and a value by beyond its magnitude.
    fn aligned(&self, values: &ArrayView1<'_, f64>) -> Upper {
        let of = |format: Format| Upper::new(format.smallest_normal());
        let largest = values.iter().fold(Upper::ZERO, |most, v| most.max(Upper::new(v.abs())));
        let value = of(self.problem.format)
            * Upper::new(self.condition.value_unit_hi)
            * self.weights.largest;
        let weight =
            of(self.profile.weight_format) * largest / Lower::new(self.profile.weight_scale);
        weight.max(value) / self.weights.own_normalizer
    }

    pub(super) fn per_weight_error(&self) -> Upper {
        let profile = self.profile;
        let narrow = weight::narrowing(profile, profile.weight_format);
        let (own, kept) = match (profile.weights, profile.normalizer) {
            (WeightRounding::Unnormalized, Normalizer::Unrounded) => (narrow, narrow),
            // The normalizer shares that rounding; it is counted in each weight. Not so where the
            // factor of dropout comes first.
            (WeightRounding::Unnormalized, Normalizer::Rounded) => {
                (Upper::ZERO, narrow.and(narrow / narrow.complement()))
            }
            // Rounded again after the division.
            (WeightRounding::Normalized, _) => {
                (narrow.and(weight::division_error(profile)), narrow)
            }
        };
        let own = own.and(weight::weight_scaling(profile));
        match self.problem.dropout {
            None => own,
            Some(_) => own.and(kept).and(weight::unit(profile).compound(DROPOUT_ROUNDINGS)),
        }
    }

    /// Underflow on the way to the numerator, over the normalizer of the kernel's own frame: of values of
    /// this mass, where rounding a weight to its format may lose `weight_tiny`.
    pub(super) fn lost(&self, values_mass: Upper, weight_tiny: Upper, rescalings: usize) -> Upper {
        let profile = self.profile;
        let tiny = weight::underflow(profile);
        let sum_tiny = weight::sum_underflow(profile, profile.value_accumulation);
        let carried_tiny = weight::narrowing_underflow(profile, profile.carried_format);
        let exponential_tiny = weight::exponential_underflow(profile);
        let mut per_value = weight_tiny
            + exponential_tiny * Upper::count(1 + rescalings)
            + weight::division_underflow(profile).max(tiny);
        let products = 2 * self.weights.keys.len() + rescalings + 2 * merge::parts(profile);
        let mut sums =
            sum_tiny * Upper::count(products) + carried_tiny * Upper::count(1 + rescalings);
        if let Some(Dropout { scale, .. }) = &self.problem.dropout {
            // Before the weight meets a value, which is less than it counts as by the factor; or
            // multiplied by it in the end.
            per_value = (per_value + tiny + weight_tiny) * Upper::new(scale.recip().max(1.0));
            sums = sums * Upper::new(scale.max(1.0));
        }
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
    pub(super) fn numerator_overflows(
        &self,
        values: &ArrayView1<'_, f64>,
        magnitude: Upper,
    ) -> bool {
        let profile = self.profile;
        let accumulator = accumulation::format(profile.value_accumulation, profile.arithmetic);
        let mass = match profile.weights {
            WeightRounding::Normalized if merge::parts(profile) == 0 => magnitude,
            // Parts that are finished by themselves weigh as much as any, too.
            _ => {
                let values: Upper = values.iter().map(|v| Upper::new(v.abs())).sum();
                self.weights.largest * values
            }
        };
        // Values are not multiplied by the factor of dropout where it comes in the end.
        let raw = self.problem.dropout.as_ref().map_or(1.0, |kept| kept.scale.recip().max(1.0));
        let largest = Upper::new(2.0) * mass * Upper::new(raw);
        largest.get() > accumulator.max_finite().min(profile.carried_format.max_finite())
    }
}

/// `|v - o|` for any `o` in `[lo, hi]`.
pub(super) fn distance(v: f64, lo: f64, hi: f64) -> Upper {
    // One rounding of the subtraction, undone by one ulp.
    Upper::new(v - lo).max(Upper::new(hi - v)) * Upper::new(1.0_f64.next_up())
}
