//! The strict gate: what the exact rounding of a declared schedule leaves of the bounds
//! (`FAS:bound.fwd.strict`, `FAS:bound.bwd.strict`).
//!
//! The hard bounds hold for every order and every rounding. Most of their width is the rounding of
//! weights to a narrow format, and of the result to its own. A kernel that declares its
//! [`MaxPolicy`](crate::profile::MaxPolicy) says which numbers it rounds: then both are known.
//!
//! - *Snapping.* Where all numbers that a correct kernel can have before it rounds them round to the
//!   same, the rounded one is known exactly, and its rounding error moves the centre of the bound
//!   instead of widening it. Otherwise it lies between two known numbers (`snap`).
//! - *Interval, then round.* What the kernel has before it stores its result lies in an interval. The
//!   result is accepted if and only if some number of the interval rounds to it ([`Admitted`]).
//!
//! A correct kernel passes, for every choice of the roundings that the profile leaves open. Elements
//! are put to this gate after the hard one, which alone covers every profile.
//!
//! # Where it applies
//! Where weights are rounded to a narrower format, it must be known what is rounded: so weights are not
//! normalized first, and there is no dropout, whose factor a kernel may apply before that rounding or
//! after it. Nothing is rounded between blocks, in tensor cores, or when parts are merged; nothing is
//! scaled by descales, and weights are not scaled. Elsewhere
//! the gate does not apply, and says so.

mod forward;
mod frames;
mod gradient;
mod interval;
mod snap;

pub use forward::forward;
pub use gradient::{
    Centre, StrictContribution, StrictRow, key_gradient, query_gradient, value_gradient,
};
pub use interval::Admitted;

use super::{merge, weight};
use crate::problem::Problem;
use crate::profile::{Accumulation, CarriedGradients, Profile, Weights};

/// Whether the strict gate is defined for the forward pass.
#[must_use]
pub fn applies_forward(problem: &Problem, profile: &Profile) -> bool {
    let known = profile.weights == Weights::Unnormalized && problem.dropout.is_none();
    applies(problem, profile) && (known || !narrows_weights(profile))
}

/// Whether the strict gate is defined for the gradients of queries, keys and values.
#[must_use]
pub fn applies_backward(problem: &Problem, profile: &Profile) -> bool {
    applies(problem, profile) && problem.dropout.is_none()
}

fn applies(problem: &Problem, profile: &Profile) -> bool {
    let ieee = |it: Accumulation| matches!(it, Accumulation::Ieee { .. });
    profile.max_policy.is_some_and(|policy| policy.fits(profile.schedule))
        && merge::parts(profile) == 0
        && problem.quantization.is_none()
        && profile.weight_scale == 1.0
        && !carries_narrowly(profile)
        && ieee(profile.score_accumulation)
        && ieee(profile.value_accumulation)
}

/// Whether anything is rounded to a narrower format between blocks.
fn carries_narrowly(profile: &Profile) -> bool {
    let CarriedGradients { query, key, value } = profile.carried_gradients;
    let gradients = [query, key, value].into_iter().flatten().map(|carried| carried.format);
    let mut carried =
        [profile.carried_format].into_iter().chain(profile.carried_normalizer).chain(gradients);
    carried.any(|format| weight::narrows(profile, format))
}

/// Whether weights are rounded to a format of their own.
fn narrows_weights(profile: &Profile) -> bool {
    weight::narrows(profile, profile.weight_format)
}
