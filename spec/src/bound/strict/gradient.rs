//! The strict gate on the gradients of queries, keys and values (`FAS:bound.bwd.strict`).
//!
//! # Derivation
//! A backward kernel starts from its own LSE `L^` and output `O^`, which are known numbers. With
//! `D^ = sum_j dO_j O^_j`, exactly, it would have without any rounding of its own
//!
//! ```text
//! P_i = e^(s_i - L^)    dX_i = c_i P_i (dP_i - D^ + g)
//! ```
//!
//! These are the centres: what the hard bounds count of `L^` and `O^` as errors is part of them. Around
//! them the kernel errs as derived in [`super::super::gradient`] with `L^` for the exact LSE and `D^` for
//! the exact `D`: by `P_i E_i`, and by `|b| p_i c_i + W_i` with `b` no more than the rounding of the sum `D^`.
//! `P` is rounded to the weight format where it meets `dO`, and `dX` where it meets keys and queries, each
//! to what [`super::snap`] says: `P_i` and `dX_i` again, within radii `h_i` and `k_i` that are zero where
//! they snap. Then
//!
//! ```text
//! |dV_j - sum_r P_r dO_rj| <= sum_r h_r |dO_rj| + sums
//! |dQ_j - scale sum_i dX_i k_ij| <= |scale| sum_i k_i |k_ij| + sums + scale
//! ```
//!
//! and `dK` like `dQ`, before the result is stored. `b` is common to a row, but what snaps forgets it, so it
//! counts in each term by itself.

use super::super::gradient::sum::{Carry, GradientSum};
use super::super::gradient::{GradientCondition, GradientRow};
use super::super::outward::Upper;
use super::super::weight;
use super::applies_backward;
use super::interval::{Admitted, Sum};
use super::snap::Snapped;
use crate::problem::Problem;
use crate::profile::Profile;

/// What one query row would be with a kernel's own LSE and output, and no other error: over the keys of
/// its [`GradientCondition`], each number between two that are rounded outward to `f64`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Centre {
    /// `e^(s_i - L^)`.
    pub probability: Vec<(f64, f64)>,
    /// `dX_i = c_i e^(s_i - L^) (z_i dP_i - D^ + g)`.
    pub argument: Vec<(f64, f64)>,
    /// At least `|z_i dP_i - D^ + g|`.
    pub centred_magnitude_hi: Vec<f64>,
}

/// `P` and `dX` of one query row as a kernel rounds them.
#[derive(Clone, Debug)]
pub struct StrictRow {
    /// Of each key.
    keys: Vec<StrictKey>,
}

#[derive(Clone, Copy, Debug)]
struct StrictKey {
    weight: Snapped,
    argument: Snapped,
}

impl StrictRow {
    /// `None` where the strict gate does not apply, or something might leave its range.
    ///
    /// # Panics
    /// When the vectors of `row` and `centre` differ in length.
    #[must_use]
    pub fn new(
        problem: &Problem,
        profile: &Profile,
        row: &GradientCondition,
        centre: &Centre,
    ) -> Option<Self> {
        if !applies_backward(problem, profile) {
            return None;
        }
        let errors = GradientRow::new(problem, profile, &recentred(row, centre));
        let centres = centre.probability.iter().zip(&centre.argument);
        let keys = errors.before_rounding(profile)?.zip(centres);
        let keys = keys.map(|((of_weight, of_argument), (&weight, &argument))| {
            let (lo, hi) = widened(weight, of_weight);
            let weight = Snapped::new(profile, lo.max(0.0), hi)?;
            let (lo, hi) = widened(argument, of_argument);
            Some(StrictKey { weight, argument: Snapped::new(profile, lo, hi)? })
        });
        Some(Self { keys: keys.collect::<Option<_>>()? })
    }
}

/// The condition of a row whose LSE and `D` are the kernel's.
fn recentred(row: &GradientCondition, centre: &Centre) -> GradientCondition {
    let probability_hi = centre.probability.iter().map(|ends| ends.1).collect();
    let log = |&log: &f64| (log + row.lse_shift_hi).next_up();
    GradientCondition {
        probability_hi,
        log_probability_hi: row.log_probability_hi.iter().map(log).collect(),
        lse_magnitude_hi: (row.lse_magnitude_hi + row.lse_shift_hi).next_up(),
        lse_shift_hi: 0.0,
        centred_magnitude_hi: centre.centred_magnitude_hi.clone(),
        delta_shift_hi: 0.0,
        // It takes part in none of these sums.
        sink: None,
        ..row.clone()
    }
}

fn widened((lo, hi): (f64, f64), error: Upper) -> (f64, f64) {
    ((lo - error.get()).next_down(), (hi + error.get()).next_up())
}

/// What one query row brings to the gradient of a key or value.
#[derive(Clone, Copy, Debug)]
pub struct StrictContribution<'a> {
    /// The query row.
    pub row: &'a StrictRow,
    /// Where the key stands among the keys of the row's condition.
    pub key: usize,
    /// `q_rj` for the gradient of a key, `dO_rj` for that of a value.
    pub factor: f64,
}

/// A sum of rounded numbers times exact ones.
#[derive(Clone, Copy, Default)]
struct Terms {
    centre: Sum,
    radius: Sum,
}

impl Terms {
    fn add(&mut self, term: Snapped, factor: f64) {
        self.centre.add(term.centre * factor);
        self.radius.add(term.radius.get() * factor);
    }

    /// Where the sum lies, multiplied by the scale if there is one, before it is stored.
    fn admitted(
        &self,
        problem: &Problem,
        profile: &Profile,
        (terms, positions, runs): (usize, usize, usize),
        scaled: bool,
    ) -> Option<Admitted> {
        let (factor, scale) = if scaled {
            (problem.scale_f64(), weight::scale_magnitude(problem))
        } else {
            (1.0, Upper::ONE)
        };
        let centre = factor * self.centre.value();
        // Root, quotient and product.
        let evaluation = Upper::new(3.0 * f64::EPSILON) * Upper::new(centre.abs())
            + scale * self.centre.error()
            + Upper::new(f64::from_bits(1));
        let radius = self.radius.mass();
        let sum = GradientSum {
            terms,
            positions,
            runs,
            accumulation: profile.value_accumulation,
            // Where the gate applies, nothing is rounded between blocks.
            carry: Carry::every_term(profile, terms),
            scale: scaled.then_some(scale),
            mass: self.centre.mass() + radius,
            gradient: Upper::new(centre.abs()) + evaluation,
            stored: problem.format,
        };
        let bound = sum.before_storing(problem, profile, scale * radius)?;
        Admitted::new(profile, problem.format, centre, bound + evaluation)
    }
}

/// Where one entry of `dQ` lies before it is stored, with `k_ij` over the row's visible keys.
///
/// # Panics
/// When `keys` has not one entry for each visible key of the row.
#[must_use]
pub fn query_gradient(
    problem: &Problem,
    profile: &Profile,
    row: &StrictRow,
    keys: &[f64],
) -> Option<Admitted> {
    assert_eq!(keys.len(), row.keys.len(), "one key entry for each visible key");
    let mut terms = Terms::default();
    for (key, &entry) in row.keys.iter().zip(keys) {
        terms.add(key.argument, entry);
    }
    let runs = 1 + profile.schedule.rescalings(problem.key_len);
    terms.admitted(problem, profile, (keys.len(), problem.key_len, runs), true)
}

/// Where one entry of `dK` lies before it is stored, summed over the query rows that see the key, in
/// every query head that reads it.
///
/// # Panics
/// When a row does not see as many keys as a contribution says.
#[must_use]
pub fn key_gradient(
    problem: &Problem,
    profile: &Profile,
    rows: &[StrictContribution<'_>],
) -> Option<Admitted> {
    over_rows(problem, profile, rows, |key| key.argument, true)
}

/// Where one entry of `dV` lies before it is stored, summed as in [`key_gradient`].
///
/// # Panics
/// As [`key_gradient`] does.
#[must_use]
pub fn value_gradient(
    problem: &Problem,
    profile: &Profile,
    rows: &[StrictContribution<'_>],
) -> Option<Admitted> {
    over_rows(problem, profile, rows, |key| key.weight, false)
}

fn over_rows(
    problem: &Problem,
    profile: &Profile,
    rows: &[StrictContribution<'_>],
    term: fn(&StrictKey) -> Snapped,
    scaled: bool,
) -> Option<Admitted> {
    let mut terms = Terms::default();
    for StrictContribution { row, key, factor } in rows {
        terms.add(term(&row.keys[*key]), *factor);
    }
    let count = rows.len();
    terms.admitted(problem, profile, (count, count, count), scaled)
}
