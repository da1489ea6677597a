//! How far a kernel's score can stray from `s` (`FAS:bound.score`).
//!
//! Errors are absolute, in nats: what a score is off by, its weight's logarithm is off by. Factors
//! that multiply whole scores, and so only their differences, are left to [`super::weight`].
//!
//! # The product
//! `x = scale * <q, k>` errs by `|scale|` times the error of [`super::accumulation`], by the
//! roundings of each product's factors where the scale is folded into them, by the underflow of the
//! products, and by its rounding to the score format.
//!
//! Under descales ([`crate::quantization`]) the factor is `scale` times those of query and key. It is
//! not common to the keys, so its `n_c + 2` roundings and the product's count here, relative to `|x|`.
//!
//! # What is added
//! A kernel adds bias and ALiBi term after the product is complete: in nats, in base two, or, divided by
//! the scale, to the unscaled product. It multiplies `x` by its factor and the others by a constant of
//! their own, so no factor is common to all terms. But that of `x` is the same for all keys, and may be
//! taken out, as it is without addends: what remains is one rounding of the product with it, and of
//! `b` and `a` the `n_c` roundings taken out, one of their constant (`log2 e`, or a reciprocal), one of
//! the product with that, and one of `slope * distance`. Hence `u |x| + (n_c + 3) u (|b| + |a|)`; and
//! under [`Slopes::Standard`], which kernels compute themselves, one f32 ulp of the slope.
//!
//! The sum of two or three terms obeys the half-mass lemma (`FAS:bound.half-mass`), each addition
//! rounded in the arithmetic and then to the score format: `(|x| + |b| + |a| + |s|)/2` bounds every
//! partial sum. A change of base rounds to the score format once more.
//!
//! # The softcap
//! `z = cap * tanh(y / cap)` has a slope of at most 1, so an error `e` of `y` moves `z` by at most `e`;
//! by at most `2 cap`, the whole range; and, since `1 - tanh^2 t <= 4 e^(-2|t|)` and a tangent's slope
//! falls with `|t|`, by at most `4 e^(-2 (|y| - e)/cap) e`: far beyond the cap even large errors
//! change nothing.
//!
//! `tanh` is concave above 0, so `tanh(a t) >= a tanh t` for `a <= 1` and `<=` for `a >= 1`: a relative
//! error of `y` or of the cap is at most the same relative error of `z`. So every rounding on the way
//! counts relative to `|z| <= min(|y|, cap)`: the `n_c` of the factor and the product with it, which
//! are not common to the row here; the cap, which need not be a number of the arithmetic; its
//! reciprocal or the division; `tanh` itself, whose error is relative also near 0; `cap * log2 e`;
//! the product; and one rounding of quotient, tangent, product and the product in another base each to
//! the score format.
//! Quotient and tangent may underflow; the cap multiplies what that loses.

use super::accumulation::{self, Sum};
use super::exponential;
use super::outward::{Lower, Upper};
use super::weight::{
    division_error, division_underflow, narrowing, narrowing_underflow, scale_magnitude,
    sum_underflow, ulps_underflow, underflow, unit,
};
use crate::format::Format;
use crate::problem::Problem;
use crate::profile::{Accumulation, Profile};
use crate::score::{Alibi, Slopes, Softcap, SoftcapOrder};

/// Magnitudes of what one score is made of, in nats.
#[derive(Clone, Copy, Debug)]
pub(super) struct ScoreParts {
    /// `|scale| * sum_t |q_t k_t|`, from above.
    pub(super) mass: Upper,
    /// `|x| = |scale * <q, k>|`, from above.
    pub(super) product: Upper,
    /// `|b| + |a|`, from above.
    pub(super) addend: Upper,
    /// `|s|`, from above.
    pub(super) score: Upper,
    /// `|y| / cap`, with `y` what the softcap is taken of, from below; 0 without softcap.
    pub(super) cap_argument_lo: f64,
    /// What a product of stored entries is multiplied by beside the scale, from above.
    pub(super) unit: Upper,
}

/// A number from above, and the most that the kernel's differs from it.
#[derive(Clone, Copy)]
struct Value {
    magnitude: Upper,
    error: Upper,
}

/// `|computed - s|` in nats, before any factor that is common to the row.
pub(super) fn score_error(problem: &Problem, profile: &Profile, parts: ScoreParts) -> Upper {
    let error = uncapped_error(problem, profile, parts);
    let Some(Softcap { cap, order }) = problem.softcap else { return error };
    let stage = Capping { problem, profile, cap, argument_lo: parts.cap_argument_lo };
    match order {
        SoftcapOrder::AfterBias => stage.error(Value { magnitude: parts.score, error }),
        SoftcapOrder::BeforeBias => {
            let magnitude = parts.product.min(Upper::new(cap));
            let error = stage.error(Value { magnitude, error });
            let converted = addend_error(problem, profile, 0) * parts.addend;
            let capped = Value { magnitude, error };
            sum_error(problem, profile, capped, parts.addend, (converted, parts.score))
        }
    }
}

/// `|computed - exact|`, in nats, of what the softcap is taken of; the score's where there is none.
pub(super) fn uncapped_error(problem: &Problem, profile: &Profile, parts: ScoreParts) -> Upper {
    let error = product_error(problem, profile, parts);
    let product = Value { magnitude: parts.product, error };
    match problem.softcap.map(|softcap| softcap.order) {
        Some(SoftcapOrder::BeforeBias) => error,
        // Of the sum before the softcap no more is known.
        Some(SoftcapOrder::AfterBias) => {
            uncapped_sum(problem, profile, product, parts, parts.product + parts.addend)
        }
        None => uncapped_sum(problem, profile, product, parts, parts.score),
    }
}

/// `|computed - exact|` of the sum of a product and what is added to it, of magnitude `total`.
fn uncapped_sum(
    problem: &Problem,
    profile: &Profile,
    product: Value,
    parts: ScoreParts,
    total: Upper,
) -> Upper {
    if additions(problem) == 0 {
        return product.error;
    }
    let u = unit(profile);
    let converted = u * product.magnitude
        + u * product.error
        + addend_error(problem, profile, profile.scale_roundings as usize) * parts.addend;
    sum_error(problem, profile, product, parts.addend, (converted, total))
}

/// Relative error of an addend that is converted with a constant of so many roundings, and one.
fn addend_error(problem: &Problem, profile: &Profile, roundings: usize) -> Upper {
    /// One more of the constant, product with it, and slope times distance.
    const ROUNDINGS: usize = 3;
    unit(profile).compound(roundings + ROUNDINGS).and(slope_error(problem))
}

/// Whether a score is the result of an addition; a softcap after it is in range whatever the sum.
pub(super) fn ends_with_addition(problem: &Problem) -> bool {
    let order = problem.softcap.map(|softcap| softcap.order);
    additions(problem) > 0 && order != Some(SoftcapOrder::AfterBias)
}

/// How many terms are added to a product.
pub(super) fn additions(problem: &Problem) -> usize {
    usize::from(problem.bias.is_some()) + usize::from(problem.alibi.is_some())
}

/// `|computed - exact|`, in nats, of the scaled product.
pub(super) fn product_error(problem: &Problem, profile: &Profile, parts: ScoreParts) -> Upper {
    let ScoreParts { mass, product, .. } = parts;
    let scale = scale_magnitude(problem);
    let aligned = scale * parts.unit * accumulation::aligned(problem.format, problem.format);
    let sum = Sum::contiguous(problem.head_dim, mass, product, aligned);
    let dot = accumulation::error(profile.score_accumulation, &sum)
        + operand_error(problem, profile, parts);
    let dot = dot + descaling(problem, profile) * (product + dot);
    dot + narrowing(profile, profile.score_format) * (product + dot)
        + narrowing_underflow(profile, profile.score_format) * scale.max(Upper::ONE)
}

/// The part of it that comes before the sum: factors rounded beforehand, and products that underflow.
pub(super) fn operand_error(problem: &Problem, profile: &Profile, parts: ScoreParts) -> Upper {
    let scale = scale_magnitude(problem);
    let folded = match profile.score_accumulation {
        Accumulation::Ieee { format, .. } => {
            let u = Upper::new(format.unit_roundoff());
            u.and(u.compound(profile.operand_roundings.saturating_sub(1) as usize))
        }
        Accumulation::TensorCore { .. } => Upper::ZERO,
    };
    folded * parts.mass
        // A product with the scaled query underflows after the scaling.
        + sum_underflow(profile, profile.score_accumulation)
            * scale.max(Upper::ONE)
            * Upper::count(2 * problem.head_dim)
}

/// Relative error of a product whose factor is not common to the row, for descales of keys differ.
fn descaling(problem: &Problem, profile: &Profile) -> Upper {
    /// Product of two descales, of that with the scale, and of that with the dot product.
    const ROUNDINGS: usize = 3;
    match problem.quantization {
        None => Upper::ZERO,
        Some(_) => unit(profile).compound(profile.scale_roundings as usize + ROUNDINGS),
    }
}

/// `|computed - exact|` of the sum, of magnitude `total`, of `value` and addends, the terms of which err
/// by `converted` besides.
fn sum_error(
    problem: &Problem,
    profile: &Profile,
    value: Value,
    addend: Upper,
    (converted, total): (Upper, Upper),
) -> Upper {
    /// Conversions, and slope times distance.
    const PRODUCTS: usize = 3;
    let additions = additions(problem);
    if additions == 0 {
        return value.error;
    }
    let terms = value.error + converted;
    let narrow = narrowing(profile, profile.score_format);
    let each = unit(profile).and(narrow).compound(additions);
    // Scaled down before they are added: an addend may be the lowest number of f64.
    let half = each * Upper::new(0.5);
    let partial = half * value.magnitude + half * addend + half * total;
    let lost = underflow(profile) * Upper::count(PRODUCTS + additions)
        + narrowing_underflow(profile, profile.score_format) * Upper::count(additions + 1);
    let sum = terms + partial + each * terms;
    sum + narrow * total + narrow * sum + lost * scale_magnitude(problem).max(Upper::ONE)
}

/// Relative error of the slopes of ALiBi.
fn slope_error(problem: &Problem) -> Upper {
    match &problem.alibi {
        // An ulp is at most twice the unit roundoff.
        Some(Alibi { slopes: Slopes::Standard, .. }) => {
            Upper::new(2.0 * Format::F32.unit_roundoff())
        }
        _ => Upper::ZERO,
    }
}

/// A softcap and what it is taken of.
struct Capping<'a> {
    problem: &'a Problem,
    profile: &'a Profile,
    cap: f64,
    /// `|y| / cap`, from below.
    argument_lo: f64,
}

impl Capping<'_> {
    /// `|computed - z|`, given `|z|` and the error of `y`.
    fn error(&self, Value { magnitude, error }: Value) -> Upper {
        let moved = self.moved(error);
        moved + self.relative() * (magnitude + moved) + self.lost()
    }

    /// What an error of `y` moves `z` by.
    fn moved(&self, error: Upper) -> Upper {
        let cap = Upper::new(self.cap);
        let shift = error / Lower::new(self.cap);
        let slope = Upper::new(4.0)
            * exponential::of_minus(2.0 * (self.argument_lo - shift.get()).next_down());
        error.min(cap + cap).min(slope * error)
    }

    /// What the roundings change relatively.
    fn relative(&self) -> Upper {
        /// Product with the factor, cap, its reciprocal and the product with that, `log2 e`, its
        /// product with the cap, and the product with the tangent.
        const ROUNDINGS: usize = 7;
        /// Quotient, tangent, product, and that in another base.
        const STORED: usize = 4;
        let profile = self.profile;
        let u = unit(profile);
        let tanh = Upper::new(2.0 * profile.tanh_ulp) * u;
        let narrow = narrowing(profile, profile.score_format).compound(STORED);
        u.compound(profile.scale_roundings as usize + ROUNDINGS)
            .and(division_error(profile))
            .and(tanh)
            .and(narrow)
    }

    /// What underflow loses.
    fn lost(&self) -> Upper {
        let profile = self.profile;
        let stored = narrowing_underflow(profile, profile.score_format);
        let small = division_underflow(profile)
            + ulps_underflow(profile, profile.tanh_ulp)
            + stored
            + stored;
        let products = underflow(profile) + stored + stored;
        small * Upper::new(self.cap) + products * scale_magnitude(self.problem).max(Upper::ONE)
    }
}
