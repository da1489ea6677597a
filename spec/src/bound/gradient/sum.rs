//! A gradient as the sum that a kernel forms of its terms: in any order, scaled, and stored.
//!
//! The half-mass lemma (`FAS:bound.half-mass`) bounds the summation, and its terms add up to no more
//! than the exact result and their errors. Accumulators carried between blocks in a narrower format
//! round once a block, at most once a term: where a block adds nothing, what is carried is a number of
//! the format already. Each rounding is relative to a partial sum, whose magnitude is at most the
//! mass. The scale of `dQ` and `dK` comes last; storing the result rounds once more.
//!
//! Dropout multiplies `P` and `dP` where they are formed, or (FlashAttention-2) what they are summed
//! to: `z sum p (keep dP - D/z)`. Then all that underflows before is multiplied by its scale, and two
//! more roundings, of the scale and of the product, come with the last one. (A scale below 1, which
//! no probability gives, must be multiplied early: sums without it could leave their range.)

use crate::bound::accumulation::{self, Sum};
use crate::bound::outward::Upper;
use crate::bound::weight;
use crate::bound::{Bound, NoBound};
use crate::format::Format;
use crate::problem::Problem;
use crate::profile::{Accumulation, Carried, Profile};

/// The product with the scale of dropout, and that scale itself, which a kernel may compute from a
/// probability.
const DROPOUT_ROUNDINGS: usize = 2;

/// `(1 + u)^2 - 1` where the problem has dropout.
pub(super) fn dropout_rounding(problem: &Problem, profile: &Profile) -> Upper {
    match problem.dropout {
        None => Upper::ZERO,
        Some(_) => weight::unit(profile).compound(DROPOUT_ROUNDINGS),
    }
}

/// What dropout may multiply a result by after it has underflowed, at least 1.
pub(super) fn dropout_growth(problem: &Problem) -> Upper {
    problem.dropout.as_ref().map_or(Upper::ONE, |dropout| Upper::new(dropout.scale).max(Upper::ONE))
}

/// The format that a sum is carried in, and how often it is rounded to it at most.
#[derive(Clone, Copy, Debug)]
pub(in crate::bound) struct Carry {
    format: Format,
    roundings: usize,
}

impl Carry {
    /// In the profile's `carried_format`, rounded with every term.
    pub(in crate::bound) const fn every_term(profile: &Profile, terms: usize) -> Self {
        Self { format: profile.carried_format, roundings: terms }
    }

    /// As declared, over `positions` in each of `heads`; where nothing is, with every term.
    pub(in crate::bound) fn declared(
        carried: Option<Carried>,
        profile: &Profile,
        terms: usize,
        (heads, positions): (usize, usize),
    ) -> Self {
        carried.map_or(Self::every_term(profile, terms), |Carried { format, block }| {
            let blocks = heads.saturating_mul(positions.div_ceil(block.max(1)));
            Self { format, roundings: terms.min(blocks) }
        })
    }
}

/// A sum over keys or query rows.
pub(in crate::bound) struct GradientSum {
    pub(in crate::bound) terms: usize,
    /// As in [`Sum`].
    pub(in crate::bound) positions: usize,
    /// As in [`Sum`].
    pub(in crate::bound) runs: usize,
    pub(in crate::bound) accumulation: Accumulation,
    pub(in crate::bound) carry: Carry,
    /// The scale of `dQ` and `dK`.
    pub(in crate::bound) scale: Option<Upper>,
    /// Mass of the terms as computed, before the scale.
    pub(in crate::bound) mass: Upper,
    /// Magnitude of the exact result, after the scale.
    pub(in crate::bound) gradient: Upper,
    /// What the result is stored in.
    pub(in crate::bound) stored: Format,
}

impl GradientSum {
    /// The bound on the stored result, given the error that the terms bring after the scale.
    pub(super) fn bound(&self, problem: &Problem, profile: &Profile, terms_error: Upper) -> Bound {
        let Some(scaled) = self.before_storing(problem, profile, terms_error) else {
            return Bound::None(NoBound::Overflow);
        };
        let stored = scaled
            + weight::narrowing(profile, self.stored) * (self.gradient + scaled)
            + weight::narrowing_underflow(profile, self.stored);
        weight::within_range(stored, self.gradient, self.stored)
    }

    /// The same before the result is stored; `None` where a partial sum might leave its range.
    pub(in crate::bound) fn before_storing(
        &self,
        problem: &Problem,
        profile: &Profile,
        terms_error: Upper,
    ) -> Option<Upper> {
        let scale = self.scale.unwrap_or(Upper::ONE);
        let mass = scale * self.mass;
        if self.leaves_range(profile, mass) {
            return None;
        }
        // The computed terms add up to the exact result and their error, and to no more than their
        // mass.
        let total = (self.gradient + terms_error).min(mass);
        let Self { terms, positions, runs, .. } = *self;
        let growth = dropout_growth(problem);
        let aligned = scale * growth * accumulation::aligned(profile.weight_format, problem.format);
        let sum = Sum { terms, positions, runs, rescalings: 0, mass, total, aligned };
        let summation = accumulation::error(self.accumulation, &sum)
            + weight::sum_underflow(profile, self.accumulation)
                * Upper::count(2 * terms)
                * scale.max(Upper::ONE)
                * growth;
        let Carry { format, roundings } = self.carry;
        let carried = weight::narrowing(profile, format).compound(roundings) * (mass + summation)
            + weight::narrowing_underflow(profile, format)
                * Upper::count(roundings)
                * scale
                * growth;
        let unscaled = terms_error + summation + carried;
        Some(unscaled + self.scaling(problem, profile, mass, unscaled) + weight::underflow(profile))
    }

    /// Whether a partial sum might exceed the largest number of its accumulator.
    fn leaves_range(&self, profile: &Profile, mass: Upper) -> bool {
        let accumulator = accumulation::format(self.accumulation, profile.arithmetic);
        let largest = accumulator.max_finite().min(self.carry.format.max_finite());
        mass.max(self.mass).get() * 2.0 > largest
    }

    /// The scale's roundings, and one of each product where it is folded into query or key, in the
    /// arithmetic format. A scale folded into `dS` before that is rounded to a narrower format is
    /// not covered: what underflows there is multiplied by no scale.
    fn scaling(&self, problem: &Problem, profile: &Profile, mass: Upper, error: Upper) -> Upper {
        let u = weight::unit(profile);
        let late = dropout_rounding(problem, profile);
        if self.scale.is_none() {
            return late * (self.gradient + error);
        }
        let roundings = u.compound(profile.scale_roundings as usize + 1).and(late);
        u * mass + roundings * (self.gradient + error)
    }
}
