//! The bounds on the gradients (`FAS:bound.bwd.query`, `FAS:bound.bwd.key`, `FAS:bound.bwd.value`,
//! `FAS:bound.bwd.bias`, `FAS:bound.bwd.sink`).
//!
//! A backward kernel recomputes `P = e^(S - L^)` from its own LSE `L^` and forms
//! `dS = P (z dP - D^ + g)` with `D^ = rowsum(dO O^)` from its own output `O^`, where `z` is the factor
//! of dropout (1 without) and `g` the upstream gradient of the LSE. Where the score has a softcap, `dX
//! = dS c` goes on to queries and keys, with `c` the softcap's slope (1 without). Forward errors
//! enter as measured: `L^` and `O^` are known, so their distance from the exact `L` and `o` is a
//! number, not a bound.
//!
//! # One row
//! With `p_i` exact and `T_i = z_i dP_i - D + g`:
//!
//! - `P^_i = p_i e^(-(L^ - L)) (1 + t_i)`, `|t_i| <= E_i = e^(D_i) - 1`, where `D_i` collects the
//!   score's error, `(n_c + 2) u` of score and LSE for factor, products and difference, and the
//!   exponential (`probability.rs`). The factor `e^(-(L^ - L))` is common to the row.
//! - `D^ - D = b`: the measured `sum dO_j (O^_j - o_j)` and the rounding of its own sum. Common to
//!   the row as well.
//! - `z dP^_i - z dP_i`: the sum's rounding, times `z`, and with dropout two roundings of the product,
//!   at most `eps_i`. Differences and product: three roundings.
//! - `c^_i - c_i`: at most `C_i`, besides four relative roundings (`softcap.rs`); both zero without
//!   a softcap.
//!
//! ```text
//! dX^_i = e^(-(L^ - L)) [ dX_i - b p_i c_i + w_i ]
//! |w_i| <= W_i = p_i [ (|T_i| + |b|) (F_i c_i + (1 + F_i) C_i) + eps_i (1 + F_i) (c_i + C_i) ]
//! 1 + F_i = (1 + E_i) (1 + u)^(3 or 7)
//! ```
//!
//! and rounding to the weight format adds `u_P |dX^_i|` and what underflows. The same with `c = 1`, `C
//! = 0` and three roundings is `dS^_i`. Rounding `dS` to the weight format before the slope
//! multiplies it, and the product once more, is not covered.
//!
//! # The sums
//! In `dQ_j = scale sum_i dX_i k_ij` the common factors stay outside the sum, so they multiply the
//! *signed* sums `|dQ_j|` and `|sum_i p_i c_i k_ij|`. In `dK` and `dV`, which sum over query rows,
//! each row has factors of its own and they multiply magnitudes; so they do in the gradient of a
//! bias, the sum of `dS` (of `dX` where the softcap follows the bias) over all that an entry is
//! broadcast over. Terms of `dV` are `z_i P^_i`: two more roundings with dropout. Every sum errs by
//! the half-mass lemma (`FAS:bound.half-mass`) in any order; the scale, and storing the result, come
//! last (`sum.rs`).
//!
//! # The sink
//! Its part in a row is `p (g - D)` with `p = e^(t - L)` recomputed from its logit `t`: a score
//! gradient with `dP = 0`, two roundings, and no rounding to the weight format, for no tensor core
//! meets it. A row without visible keys has `p = 1` and `D = 0`.

mod condition;
mod probability;
mod row;
mod softcap;
pub(super) mod sum;

pub use condition::{GradientCondition, SinkGradientCondition};
pub use row::GradientRow;

use self::row::{KeyError, ScoreGradient};
use self::sum::{Carry, GradientSum};
use super::outward::Upper;
use super::weight;
use super::{Bound, NoBound};
use crate::format::Format;
use crate::problem::Problem;
use crate::profile::{Accumulation, Carried, Profile};
use crate::score::{Sink, SoftcapOrder};

/// What the bound on one entry of a query gradient depends on, besides its row.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct QueryEntry<'a> {
    /// `k_ij` over the row's visible keys.
    pub keys: &'a [f64],
    /// At least `|dQ_j|`.
    pub gradient_hi: f64,
    /// At least `|sum_i p_i c_i k_ij|`, with `c_i` the slope of the softcap, 1 without.
    pub mean_key_hi: f64,
}

/// Bound on one entry of `dQ`.
///
/// # Panics
/// When `entry.keys` has not one entry for each visible key of the row.
#[must_use]
pub fn query_gradient(
    problem: &Problem,
    profile: &Profile,
    row: &GradientRow,
    entry: QueryEntry<'_>,
) -> Bound {
    assert_eq!(entry.keys.len(), row.keys.len(), "one key entry for each visible key");
    if row.overflows() || row.keys.iter().any(|key| key.argument_leaves_range(profile)) {
        return Bound::None(NoBound::Overflow);
    }
    let scale = weight::scale_magnitude(problem);
    let gradient = Upper::new(entry.gradient_hi);
    let mut own = Upper::ZERO;
    let mut mass = Upper::ZERO;
    for (key, &k) in row.keys.iter().zip(entry.keys) {
        let k = Upper::new(k.abs());
        own = own + key.argument.error * k;
        mass = mass + key.argument.magnitude() * k;
    }
    let shared =
        row.excess * gradient + scale * row.common * row.delta * Upper::new(entry.mean_key_hi);
    let before_sum = shared + scale * own;
    let sum = GradientSum {
        terms: entry.keys.len(),
        positions: problem.key_len,
        runs: 1 + profile.schedule.rescalings(problem.key_len),
        accumulation: profile.value_accumulation,
        carry: Carry::declared(
            profile.carried_gradients.query,
            profile,
            entry.keys.len(),
            (1, problem.key_len),
        ),
        scale: Some(scale),
        mass,
        gradient,
        stored: problem.format,
    };
    sum.bound(problem, profile, before_sum)
}

/// What one query row brings to the gradient of a key, value or bias.
#[derive(Clone, Copy, Debug)]
pub struct Contribution<'a> {
    /// The query row.
    pub row: &'a GradientRow,
    /// Where the key stands among the row's visible keys.
    pub key: usize,
    /// `q_rj` for the gradient of a key, `dO_rj` for that of a value, 1 for that of a bias.
    pub factor: f64,
}

impl Contribution<'_> {
    fn key(&self) -> &KeyError {
        &self.row.keys[self.key]
    }
}

/// Terms of a sum over query rows: what they can be off by, and their mass as computed.
#[derive(Clone, Copy, Debug)]
struct Terms {
    error: Upper,
    mass: Upper,
}

impl Terms {
    const NONE: Self = Self { error: Upper::ZERO, mass: Upper::ZERO };

    /// With the multiple of a score gradient of one row.
    fn and(self, row: &GradientRow, term: &ScoreGradient, factor: f64) -> Self {
        let factor = Upper::new(factor.abs());
        Self {
            error: self.error + row.error(term) * factor,
            mass: self.mass + term.magnitude() * factor,
        }
    }
}

/// A sum over query rows, in blocks of unknown size.
fn over_rows(
    rows: usize,
    (accumulation, carry): (Accumulation, Carry),
    terms: Terms,
    stored: Format,
) -> GradientSum {
    GradientSum {
        terms: rows,
        positions: rows,
        runs: rows,
        accumulation,
        carry,
        scale: None,
        mass: terms.mass,
        gradient: Upper::ZERO,
        stored,
    }
}

/// Bound on one entry of `dK`, summed over the query rows that see the key, in every query head
/// that reads it. `gradient_hi` is at least `|dK_j|`.
///
/// # Panics
/// When a row does not see as many keys as a contribution says.
#[must_use]
pub fn key_gradient(
    problem: &Problem,
    profile: &Profile,
    rows: &[Contribution<'_>],
    gradient_hi: f64,
) -> Bound {
    let scale = weight::scale_magnitude(problem);
    let mut terms = Terms::NONE;
    for contribution in rows {
        let (row, key) = (contribution.row, contribution.key());
        if row.overflows() || key.argument_leaves_range(profile) {
            return Bound::None(NoBound::Overflow);
        }
        terms = terms.and(row, &key.argument, contribution.factor);
    }
    let carry = over_queries(problem, profile, profile.carried_gradients.key, rows.len());
    let sum = over_rows(rows.len(), (profile.value_accumulation, carry), terms, problem.format);
    let sum = GradientSum { scale: Some(scale), gradient: Upper::new(gradient_hi), ..sum };
    sum.bound(problem, profile, scale * terms.error)
}

/// Bound on one entry of `dV`, summed as in [`key_gradient`]. `gradient_hi` is at least `|dV_j|`.
///
/// # Panics
/// As [`key_gradient`] does.
#[must_use]
pub fn value_gradient(
    problem: &Problem,
    profile: &Profile,
    rows: &[Contribution<'_>],
    gradient_hi: f64,
) -> Bound {
    let mut terms = Terms::NONE;
    for contribution in rows {
        let d_o = Upper::new(contribution.factor.abs());
        let kept = contribution.row.kept_weight(problem, profile, contribution.key());
        if kept.computed().get() > profile.weight_format.max_finite() {
            return Bound::None(NoBound::Overflow);
        }
        terms.error = terms.error + kept.error * d_o;
        terms.mass = terms.mass + kept.computed() * d_o;
    }
    let carry = over_queries(problem, profile, profile.carried_gradients.value, rows.len());
    let sum = over_rows(rows.len(), (profile.value_accumulation, carry), terms, problem.format);
    let sum = GradientSum { gradient: Upper::new(gradient_hi), ..sum };
    sum.bound(problem, profile, terms.error)
}

/// Bound on one entry of the bias's gradient, summed over every visible site that the entry is
/// broadcast over: batch members, heads, queries and keys. Each brings its row and the key's place
/// in it, with a factor of 1. `gradient_hi` is at least the entry's exact magnitude.
///
/// The sum is one of the arithmetic's, in any order, atomic or not; each term may or may not have
/// been rounded to the weight format, and may be multiplied by its factor first.
///
/// # Panics
/// When the problem has no bias, and as [`key_gradient`] does.
#[must_use]
pub fn bias_gradient(
    problem: &Problem,
    profile: &Profile,
    sites: &[Contribution<'_>],
    gradient_hi: f64,
) -> Bound {
    let stored = problem.bias.expect("a problem with a bias").format;
    let after = problem.softcap.is_some_and(|softcap| softcap.order == SoftcapOrder::AfterBias);
    let mut terms = Terms::NONE;
    for contribution in sites {
        let (row, key) = (contribution.row, contribution.key());
        let (term, leaves_range) = if after {
            (&key.argument, key.argument_leaves_range(profile))
        } else {
            (&key.score, key.score_leaves_range(profile))
        };
        if row.overflows() || leaves_range {
            return Bound::None(NoBound::Overflow);
        }
        terms = terms.and(row, term, contribution.factor);
    }
    let sum = over_rows(sites.len(), any_order(profile, sites.len()), terms, stored);
    let sum = GradientSum { gradient: Upper::new(gradient_hi), ..sum };
    sum.bound(problem, profile, terms.error)
}

/// Bound on the gradient of one query head's sink, summed over batch members and queries, rows
/// without visible keys included. `gradient_hi` is at least its exact magnitude.
///
/// The sum is one of the arithmetic's, in any order.
///
/// # Panics
/// When the problem's sink is no input, or a row has none.
#[must_use]
pub fn sink_gradient(
    problem: &Problem,
    profile: &Profile,
    rows: &[&GradientRow],
    gradient_hi: f64,
) -> Bound {
    let Some(Sink::Logits(stored)) = problem.sink else { panic!("a problem with a sink to give") };
    let mut terms = Terms::NONE;
    for row in rows {
        let term = row.sink.as_ref().expect("a row with a sink");
        if row.sink_overflows(profile) {
            return Bound::None(NoBound::Overflow);
        }
        terms = terms.and(row, term, 1.0);
    }
    let sum = over_rows(rows.len(), any_order(profile, rows.len()), terms, stored);
    let sum = GradientSum { gradient: Upper::new(gradient_hi), ..sum };
    sum.bound(problem, profile, terms.error)
}

/// Additions of the arithmetic, in any order.
const fn any_order(profile: &Profile, terms: usize) -> (Accumulation, Carry) {
    let accumulation = Accumulation::Ieee { format: profile.arithmetic, depth: None };
    (accumulation, Carry::every_term(profile, terms))
}

/// How a sum over the queries of a group of heads is carried.
fn over_queries(
    problem: &Problem,
    profile: &Profile,
    carried: Option<Carried>,
    terms: usize,
) -> Carry {
    let group = problem.query_heads / problem.key_heads;
    Carry::declared(carried, profile, terms, (group, problem.query_len))
}
