//! How far a kernel's weights can stray from `e^(s_i - m)` (`FAS:bound.weight`).
//!
//! A kernel's weight of key `i`, as it enters numerator and normalizer alike, is
//! `e^(s_i - r) (1 + t_i)` with one reference `r` for the whole row and `|ln(1 + t_i)| <= D_i`:
//!
//! - the dot product: `|scale|` times the error of [`super::accumulation`], one more rounding of
//!   each product where the scale is folded into the query, and underflow of the products;
//! - the factor `scale` (or `scale * log2 e`) with `n_c` roundings: it multiplies `s_i - r`, so it
//!   costs `n_c u (m - s_i)`;
//! - the reference, rounded once per block: `u X`, `X = max |s_i|`; the scaled score, where it is
//!   rounded before the subtraction: another `u X`;
//! - the difference and the arguments of the rescaling factors: each a relative rounding or two of
//!   a difference, and the differences of one row add up to at most `m - s_i`: `4 u (m - s_i)`;
//! - the exponential and each of the `R` rescaling factors: `(1 + R) eps_exp`.
//!
//! The rescaling factors must be computed from the same rounded references that the weights were,
//! or from unrounded ones: then their roundings telescope. (`exp2(fma(m_old, c, -fl(m_new c)))`
//! with `fl(m_old c)` in the weights does not; no kernel in the list of sources does so.) Where the
//! scale is folded into the query, the scaled query must stay in the normal range: what
//! underflow loses is multiplied by the key.

use super::accumulation::{self, Sum};
use super::outward::{Lower, Upper};
use super::{Bound, NoBound, RowCondition};
use crate::format::Format;
use crate::problem::{Problem, Scale};
use crate::profile::{Accumulation, Normalizer, Profile};

/// Errors of the weights of one row.
pub(super) struct Weights {
    /// `D_i`: bounds `|ln(1 + t_i)|`.
    pub(super) log_error: Vec<Upper>,
    /// `c_i = e^(D_i) - 1`: bounds `|t_i|`.
    pub(super) relative_error: Vec<Upper>,
    /// `sum p_i e^(-D_i)`, below the ratio of the perturbed normalizer to the exact one.
    pub(super) kept: Lower,
    /// The largest error of a score.
    pub(super) score_error: Upper,
    /// A lower bound on the normalizer in the kernel's own frame, where underflow is absolute.
    pub(super) own_normalizer: Lower,
    /// An upper bound on a single weight in the frame of the greatest score up to it.
    pub(super) largest: Upper,
}

/// The arithmetic format's `u`.
pub(super) fn unit(profile: &Profile) -> Upper {
    Upper::new(profile.arithmetic.unit_roundoff())
}

/// Largest absolute error of an arithmetic result that underflows.
pub(super) fn underflow(profile: &Profile) -> Upper {
    lost_below(profile.arithmetic, profile.flush_to_zero)
}

/// Largest absolute error of a product or a sum that underflows in its accumulator.
pub(super) fn sum_underflow(profile: &Profile, accumulation: Accumulation) -> Upper {
    let format = accumulation::format(accumulation, profile.arithmetic);
    underflow(profile).max(lost_below(format, profile.flush_to_zero))
}

/// Largest absolute error of a quotient below the smallest normal number: its ulps are those of the
/// smallest subnormal there.
pub(super) fn division_underflow(profile: &Profile) -> Upper {
    let ulp = Upper::new(profile.arithmetic.smallest_subnormal());
    underflow(profile).max(Upper::new(profile.division_ulp) * ulp)
}

/// Largest absolute error of an exponential below the smallest normal number: its ulps are those of
/// the smallest subnormal there.
pub(super) fn exponential_underflow(profile: &Profile) -> Upper {
    let ulp = Upper::new(profile.arithmetic.smallest_subnormal());
    underflow(profile).max(Upper::new(profile.exp_ulp) * ulp)
}

/// What rounding to a narrower format can add absolutely; nothing where no rounding happens.
pub(super) fn narrowing_underflow(profile: &Profile, to: Format) -> Upper {
    if narrows(profile, to) { lost_below(to, profile.flush_to_zero) } else { Upper::ZERO }
}

/// What rounding to a narrower format can change relatively; nothing where no rounding happens.
pub(super) fn narrowing(profile: &Profile, to: Format) -> Upper {
    if narrows(profile, to) { Upper::new(to.unit_roundoff()) } else { Upper::ZERO }
}

/// The bound on a stored result of this magnitude; none where it might exceed the largest number of
/// its format, or where the error itself is unbounded.
pub(super) fn within_range(error: Upper, magnitude: Upper, format: Format) -> Bound {
    if !error.is_finite() {
        Bound::None(NoBound::Accumulation)
    } else if (magnitude + error).get() > format.max_finite() {
        Bound::None(NoBound::Overflow)
    } else {
        Bound::Within(error.get())
    }
}

/// `|scale|`, from above.
pub(super) fn scale_magnitude(problem: &Problem) -> Upper {
    match problem.scale {
        Scale::Value(scale) => Upper::new(scale.abs()),
        Scale::InverseSqrtHeadDim => {
            Upper::ONE / Lower::new((problem.head_dim as f64).sqrt().next_down())
        }
    }
}

fn narrows(profile: &Profile, to: Format) -> bool {
    to != profile.arithmetic && to != Format::F64
}

fn lost_below(format: Format, flush_to_zero: bool) -> Upper {
    // `e4m3` and `f16` keep subnormals on every device; flushing is a mode of wider arithmetic.
    let flushes = flush_to_zero && matches!(format, Format::F32 | Format::Tf32 | Format::Bf16);
    if flushes {
        Upper::new(format.smallest_normal())
    } else {
        // Half the smallest subnormal; in f64 that half is itself below the smallest f64.
        Upper::new((format.smallest_subnormal() / 2.0).max(f64::from_bits(1)))
    }
}

impl Weights {
    pub(super) fn new(problem: &Problem, profile: &Profile, row: &RowCondition) -> Self {
        let score_errors: Vec<Upper> = row
            .dot_mass_hi
            .iter()
            .zip(&row.score_magnitude_hi)
            .map(|(&mass, &score)| {
                score_error(problem, profile, Upper::new(mass), Upper::new(score))
            })
            .collect();
        let largest_error = score_errors.iter().copied().fold(Upper::ZERO, Upper::max);
        let rounding = ArgumentRounding::new(problem, profile, row, largest_error);
        let log_error: Vec<Upper> = score_errors
            .iter()
            .zip(&row.gap_hi)
            .map(|(&score, &gap)| score + rounding.of(Upper::new(gap)))
            .collect();
        let kept = log_error
            .iter()
            .zip(&row.probability_lo)
            .fold(Lower::ZERO, |sum, (d, &p)| sum + Lower::new(p) * d.exp_neg());
        Self {
            relative_error: log_error.iter().map(|d| d.exp_m1()).collect(),
            own_normalizer: own_normalizer(profile, row, kept, largest_error, &rounding),
            largest: rounding.largest_weight(profile),
            log_error,
            kept,
            score_error: largest_error,
        }
    }
}

/// `|computed score - s_i|` in nats, before any common factor, for a score of magnitude `score`
/// whose products have mass `mass`.
pub(super) fn score_error(
    problem: &Problem,
    profile: &Profile,
    mass: Upper,
    score: Upper,
) -> Upper {
    let scale = scale_magnitude(problem);
    let sum = Sum::contiguous(problem.head_dim, mass, score);
    let folded = match profile.score_accumulation {
        Accumulation::Ieee { format, .. } => Upper::new(format.unit_roundoff()),
        Accumulation::TensorCore { .. } => Upper::ZERO,
    };
    let dot = accumulation::error(profile.score_accumulation, &sum)
        + folded * mass
        // A product with the scaled query underflows after the scaling.
        + sum_underflow(profile, profile.score_accumulation)
            * scale.max(Upper::ONE)
            * Upper::count(2 * problem.head_dim);
    dot + narrowing(profile, profile.score_format) * (score + dot)
        + narrowing_underflow(profile, profile.score_format) * scale.max(Upper::ONE)
}

/// Roundings between a score and its weight.
struct ArgumentRounding {
    per_gap: Upper,
    constant: Upper,
    exponentials: Upper,
    gap_slack: Upper,
}

impl ArgumentRounding {
    fn new(problem: &Problem, profile: &Profile, row: &RowCondition, score_error: Upper) -> Self {
        /// Difference, and difference and product in the arguments of rescaling factors, and one
        /// for the second order.
        const DIFFERENCE_ROUNDINGS: usize = 4;
        let u = unit(profile);
        let per_gap = u.compound(profile.scale_roundings as usize + DIFFERENCE_ROUNDINGS);
        let largest = row.score_magnitude_hi.iter().fold(Upper::ZERO, |x, &s| x.max(Upper::new(s)));
        let references = Upper::count(1 + usize::from(profile.scaled_score_rounded));
        let constant = references * u * (largest + score_error) * (Upper::ONE + per_gap);
        let exponential = exponential_error(profile);
        let rescalings = profile.schedule.rescalings(problem.key_len);
        let mut exponentials =
            Upper::count(1 + rescalings) * (exponential / exponential.complement());
        if profile.normalizer == Normalizer::Rounded {
            // The rounding of the weights is common to numerator and normalizer.
            let narrow = narrowing(profile, profile.weight_format);
            exponentials = exponentials + narrow / narrow.complement();
        }
        Self { per_gap, constant, exponentials, gap_slack: Upper::new(2.0) * score_error }
    }

    /// The greatest score meets itself. Where its product with the scale is rounded on one side
    /// only, the difference is not zero but that rounding.
    fn largest_weight(&self, profile: &Profile) -> Upper {
        let argument = if profile.scaled_score_rounded { Upper::ZERO } else { self.constant };
        (argument + self.exponentials).exp_m1() + Upper::ONE
    }

    fn of(&self, gap: Upper) -> Upper {
        self.per_gap * (gap + self.gap_slack) + self.constant + self.exponentials
    }
}

/// Relative error of one exponential: an ulp is at most `2u`.
pub(super) fn exponential_error(profile: &Profile) -> Upper {
    Upper::new(profile.exp_ulp) * Upper::new(2.0) * unit(profile)
}

/// In the kernel's frame the largest weight is that of the largest computed score.
///
/// Two bounds hold. From the exact row: `l kept e^(-score error)`. And where the scaled score is
/// rounded before the subtraction, the largest one meets itself, its weight is `e^0 = 1` up to the
/// exponentials' own errors, whatever the magnitude of the scores.
fn own_normalizer(
    profile: &Profile,
    row: &RowCondition,
    kept: Lower,
    score_error: Upper,
    rounding: &ArgumentRounding,
) -> Lower {
    let from_row = Lower::new(row.normalizer_lo) * kept * score_error.exp_neg();
    if profile.scaled_score_rounded {
        from_row.max(rounding.exponentials.exp_neg())
    } else {
        from_row
    }
}
