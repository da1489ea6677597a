//! The bounds on the gradients (`FAS:bound.bwd.query`, `FAS:bound.bwd.key`, `FAS:bound.bwd.value`).
//!
//! A backward kernel recomputes `P = e^(S - L^)` from its own LSE `L^` and forms
//! `dS = P (dP - D^ + g)` with `D^ = rowsum(dO O^)` from its own output `O^`, where `g` is the
//! upstream gradient of the LSE. Forward errors enter as measured: `L^` and `O^` are known, so
//! their distance from the exact `L` and `o` is a number, not a bound.
//!
//! # One row
//! With `p_i` exact and `T_i = dP_i - D + g`:
//!
//! - `P^_i = p_i e^(-(L^ - L)) (1 + t_i)`, `|t_i| <= E_i = e^(D_i) - 1`, where `D_i` collects the
//!   score's error, `(n_c + 2) u (|s_i| + |L|)` for factor, products and difference, and the
//!   exponential. The factor `e^(-(L^ - L))` is common to the row.
//! - `D^ - D = b`: the measured `sum dO_j (O^_j - o_j)` and the rounding of its own sum. Common to
//!   the row as well.
//! - `dP^_i - dP_i`: the sum's rounding, at most `eps_i`. Differences and product: three roundings.
//!
//! ```text
//! dS^_i = e^(-(L^ - L)) [ dS_i - b p_i + w_i ]
//! |w_i| <= W_i = p_i [ (|T_i| + |b|) F_i + eps_i (1 + F_i) ],   1 + F_i = (1 + E_i) (1 + u)^3
//! ```
//!
//! and rounding to the weight format adds `u_P |dS^_i|` and what underflows.
//!
//! # The sums
//! In `dQ_j = scale sum_i dS_i k_ij` the common factors stay outside the sum, so they multiply the
//! *signed* sums `|dQ_j|` and `|sum_i p_i k_ij|`. In `dK` and `dV`, which sum over query rows, each
//! row has factors of its own and they multiply magnitudes. Every sum errs by
//! the half-mass lemma (`FAS:bound.half-mass`) in any order; the scale, and storing the result, come last.

use super::accumulation::{self, Sum};
use super::outward::Upper;
use super::weight;
use super::{Bound, NoBound};
use crate::problem::Problem;
use crate::profile::{Accumulation, Profile};

/// The exact data of one query row that its part in the gradients depends on.
///
/// Vectors run over the row's visible keys, in ascending key order. Every field is at least the
/// exact value.
#[derive(Clone, Debug, PartialEq)]
pub struct GradientCondition {
    /// `|s_i|`.
    pub score_magnitude_hi: Vec<f64>,
    /// `|scale| * sum_t |q_t k_it|`.
    pub dot_mass_hi: Vec<f64>,
    /// `p_i`.
    pub probability_hi: Vec<f64>,
    /// `|L|`.
    pub lse_magnitude_hi: f64,
    /// `|dP_i|`, `dP_i = sum_j dO_j v_ij`.
    pub dp_magnitude_hi: Vec<f64>,
    /// `sum_j |dO_j v_ij|`.
    pub dp_mass_hi: Vec<f64>,
    /// `|T_i| = |dP_i - D + g|`.
    pub centred_magnitude_hi: Vec<f64>,
    /// `|g|`, the upstream gradient of the LSE.
    pub lse_gradient_magnitude_hi: f64,
    /// `|sum_j dO_j O^_j|` with the kernel's own output.
    pub delta_magnitude_hi: f64,
    /// `sum_j |dO_j O^_j|` with the kernel's own output.
    pub delta_mass_hi: f64,
    /// `|sum_j dO_j (O^_j - o_j)|`.
    pub delta_shift_hi: f64,
    /// `|L^ - L|`.
    pub lse_shift_hi: f64,
}

/// How far a kernel's `P` and `dS` of one query row can lie from the exact ones.
#[derive(Clone, Debug)]
pub struct GradientRow {
    /// `e^|L^ - L|`.
    common: Upper,
    /// `e^|L^ - L| - 1`.
    excess: Upper,
    /// `|b|`.
    delta: Upper,
    /// Whether a partial sum of `D` or of a `dP_i` might leave the range of its accumulator.
    overflows: bool,
    keys: Vec<KeyError>,
}

/// What one key's weight and score gradient can be off by.
#[derive(Clone, Copy, Debug)]
struct KeyError {
    probability: Upper,
    /// `E_i`.
    weight: Upper,
    /// `|dS_i|`.
    ds: Upper,
    /// `|dS^_i|`, before it is rounded to the weight format.
    ds_computed: Upper,
    /// `e^|L^ - L| W_i`, the rounding to the weight format and underflow: what no common factor
    /// explains.
    ds_error: Upper,
}

impl GradientRow {
    /// The errors of one row under a profile.
    ///
    /// # Panics
    /// When the vectors of `row` differ in length.
    #[must_use]
    pub fn new(problem: &Problem, profile: &Profile, row: &GradientCondition) -> Self {
        let keys = row.probability_hi.len();
        for vector in [
            &row.score_magnitude_hi,
            &row.dot_mass_hi,
            &row.dp_magnitude_hi,
            &row.dp_mass_hi,
            &row.centred_magnitude_hi,
        ] {
            assert_eq!(vector.len(), keys, "one entry for each visible key");
        }
        let delta_sum = Sum::contiguous(
            problem.value_dim,
            Upper::new(row.delta_mass_hi),
            Upper::new(row.delta_magnitude_hi),
        );
        let arithmetic = Accumulation::Ieee { format: profile.arithmetic, depth: None };
        let tiny = weight::underflow(profile) * Upper::count(2 * problem.value_dim);
        let delta = Upper::new(row.delta_shift_hi)
            + accumulation::error(arithmetic, &delta_sum)
            + folded_lse_gradient(profile, row)
            + tiny;
        let excess = Upper::new(row.lse_shift_hi).exp_m1();
        let common = excess + Upper::ONE;
        let dp_mass = row.dp_mass_hi.iter().copied().fold(0.0, f64::max);
        let accumulator = accumulation::format(profile.score_accumulation, profile.arithmetic);
        let overflows = 2.0 * dp_mass > accumulator.max_finite()
            || 2.0 * row.delta_mass_hi > profile.arithmetic.max_finite();
        let errors = RowErrors { problem, profile, row, common, delta };
        Self { common, excess, delta, overflows, keys: (0..keys).map(|i| errors.key(i)).collect() }
    }
}

/// The rounding of `D - g`, where a kernel folds an LSE gradient into `D`.
fn folded_lse_gradient(profile: &Profile, row: &GradientCondition) -> Upper {
    let g = Upper::new(row.lse_gradient_magnitude_hi);
    if g == Upper::ZERO {
        Upper::ZERO
    } else {
        weight::unit(profile) * (Upper::new(row.delta_magnitude_hi) + g)
    }
}

struct RowErrors<'a> {
    problem: &'a Problem,
    profile: &'a Profile,
    row: &'a GradientCondition,
    common: Upper,
    delta: Upper,
}

impl RowErrors<'_> {
    fn key(&self, i: usize) -> KeyError {
        /// The two differences in `dP - D + g` and the product with `P`.
        const SCORE_GRADIENT_ROUNDINGS: usize = 3;
        let (profile, row) = (self.profile, self.row);
        let u = weight::unit(profile);
        let tiny = weight::underflow(profile);
        let probability = Upper::new(row.probability_hi[i]);
        let centred = Upper::new(row.centred_magnitude_hi[i]);
        let weight_error = self.log_error(i).exp_m1();
        let dp_error = self.dp_error(i);
        // Where the LSE has a gradient, `dP - D` is rounded before `g` is added.
        let difference = dp_error + u * Upper::new(row.lse_gradient_magnitude_hi);
        let factor =
            (Upper::ONE + weight_error) * (Upper::ONE + u.compound(SCORE_GRADIENT_ROUNDINGS));
        let f = weight_error + (Upper::ONE + weight_error) * u.compound(SCORE_GRADIENT_ROUNDINGS);
        let own = probability * ((centred + self.delta) * f + difference * factor);
        let ds = probability * centred;
        let computed_centre = centred + self.delta + difference;
        // The exponential, the two differences and the product can each lose what underflows.
        let lost = weight::exponential_underflow(profile) * computed_centre
            + tiny * (Upper::new(2.0) * probability + Upper::ONE);
        let ds_computed = self.common * (ds + self.delta * probability + own) + lost;
        let narrow = weight::narrowing(profile, profile.weight_format);
        let ds_error = self.common * own
            + lost
            + narrow * ds_computed
            + weight::narrowing_underflow(profile, profile.weight_format);
        KeyError { probability, weight: weight_error, ds, ds_computed, ds_error }
    }

    /// `D_i`: what `P` can be off by, apart from the row's common factor.
    fn log_error(&self, i: usize) -> Upper {
        /// Product with the factor and difference, or change of base, product and difference.
        const ARGUMENT_ROUNDINGS: usize = 2;
        let (profile, row) = (self.profile, self.row);
        let u = weight::unit(profile);
        let score_magnitude = Upper::new(row.score_magnitude_hi[i]);
        let score = weight::score_error(
            self.problem,
            profile,
            Upper::new(row.dot_mass_hi[i]),
            score_magnitude,
        );
        let own_lse = Upper::new(row.lse_magnitude_hi) + Upper::new(row.lse_shift_hi);
        let argument = u.compound(profile.scale_roundings as usize + ARGUMENT_ROUNDINGS)
            * (score_magnitude + score + own_lse);
        let exponential = weight::exponential_error(profile);
        score + argument + exponential / exponential.complement()
    }

    fn dp_error(&self, i: usize) -> Upper {
        let sum = Sum::contiguous(
            self.problem.value_dim,
            Upper::new(self.row.dp_mass_hi[i]),
            Upper::new(self.row.dp_magnitude_hi[i]),
        );
        let tiny = weight::sum_underflow(self.profile, self.profile.score_accumulation)
            * Upper::count(2 * self.problem.value_dim);
        accumulation::error(self.profile.score_accumulation, &sum) + tiny
    }
}

/// What the bound on one entry of a query gradient depends on, besides its row.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct QueryEntry<'a> {
    /// `k_ij` over the row's visible keys.
    pub keys: &'a [f64],
    /// At least `|dQ_j|`.
    pub gradient_hi: f64,
    /// At least `|sum_i p_i k_ij|`.
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
    if row.overflows || row.keys.iter().any(|key| key.leaves_range(profile)) {
        return Bound::None(NoBound::Overflow);
    }
    let scale = weight::scale_magnitude(problem);
    let gradient = Upper::new(entry.gradient_hi);
    let mut own = Upper::ZERO;
    let mut mass = Upper::ZERO;
    for (key, &k) in row.keys.iter().zip(entry.keys) {
        let k = Upper::new(k.abs());
        own = own + key.ds_error * k;
        mass = mass + (key.ds_computed + key.ds_error) * k;
    }
    let shared =
        row.excess * gradient + scale * row.common * row.delta * Upper::new(entry.mean_key_hi);
    let before_sum = shared + scale * own;
    let sum = ScaledSum {
        terms: entry.keys.len(),
        positions: problem.key_len,
        runs: 1 + profile.schedule.rescalings(problem.key_len),
        scale: Some(scale),
        mass,
        gradient,
    };
    sum.bound(problem, profile, before_sum)
}

impl KeyError {
    /// Whether `dS` might exceed the largest number of the format it is rounded to.
    fn leaves_range(&self, profile: &Profile) -> bool {
        (self.ds_computed + self.ds_error).get() > profile.weight_format.max_finite()
    }
}

/// What one query row brings to the gradient of a key or value.
#[derive(Clone, Copy, Debug)]
pub struct Contribution<'a> {
    /// The query row.
    pub row: &'a GradientRow,
    /// Where the key stands among the row's visible keys.
    pub key: usize,
    /// `q_rj` for the gradient of a key, `dO_rj` for that of a value.
    pub factor: f64,
}

/// Bound on one entry of `dK`, summed over the query rows that see the key, in every query head
/// that reads it. `gradient_hi` is at least `|dK_j|`.
#[must_use]
pub fn key_gradient(
    problem: &Problem,
    profile: &Profile,
    rows: &[Contribution<'_>],
    gradient_hi: f64,
) -> Bound {
    let scale = weight::scale_magnitude(problem);
    let mut own = Upper::ZERO;
    let mut mass = Upper::ZERO;
    for contribution in rows {
        let row = contribution.row;
        let key = &row.keys[contribution.key];
        if row.overflows || key.leaves_range(profile) {
            return Bound::None(NoBound::Overflow);
        }
        let q = Upper::new(contribution.factor.abs());
        let shared = row.excess * key.ds + row.common * row.delta * key.probability;
        own = own + (shared + key.ds_error) * q;
        mass = mass + (key.ds_computed + key.ds_error) * q;
    }
    let gradient = Upper::new(gradient_hi);
    let sum = ScaledSum::over_rows(rows.len(), Some(scale), mass, gradient);
    sum.bound(problem, profile, scale * own)
}

/// Bound on one entry of `dV`, summed as in [`key_gradient`]. `gradient_hi` is at least `|dV_j|`.
#[must_use]
pub fn value_gradient(
    problem: &Problem,
    profile: &Profile,
    rows: &[Contribution<'_>],
    gradient_hi: f64,
) -> Bound {
    let narrow = weight::narrowing(profile, profile.weight_format);
    let lost = weight::narrowing_underflow(profile, profile.weight_format)
        + weight::exponential_underflow(profile);
    let mut own = Upper::ZERO;
    let mut mass = Upper::ZERO;
    for contribution in rows {
        let row = contribution.row;
        let key = &row.keys[contribution.key];
        let d_o = Upper::new(contribution.factor.abs());
        // (1 + u_P) (1 + E_i) e^|L^ - L| - 1, without cancellation.
        let computed = row.excess + row.common * key.weight;
        let relative = computed + narrow * (Upper::ONE + computed);
        own = own + (key.probability * relative + lost) * d_o;
        mass = mass + (key.probability * (Upper::ONE + relative) + lost) * d_o;
    }
    let gradient = Upper::new(gradient_hi);
    let sum = ScaledSum::over_rows(rows.len(), None, mass, gradient);
    sum.bound(problem, profile, own)
}

/// A sum over keys or query rows, scaled where it is one of `dQ` or `dK`, and stored.
struct ScaledSum {
    terms: usize,
    positions: usize,
    runs: usize,
    scale: Option<Upper>,
    /// Mass of the terms as computed, before the scale.
    mass: Upper,
    /// Magnitude of the exact result, after the scale.
    gradient: Upper,
}

impl ScaledSum {
    /// A sum over query rows, in blocks of unknown size.
    const fn over_rows(rows: usize, scale: Option<Upper>, mass: Upper, gradient: Upper) -> Self {
        Self { terms: rows, positions: rows, runs: rows, scale, mass, gradient }
    }

    /// The bound on the stored result, given the error that the terms bring after the scale.
    fn bound(&self, problem: &Problem, profile: &Profile, terms_error: Upper) -> Bound {
        let scale = self.scale.unwrap_or(Upper::ONE);
        let mass = scale * self.mass;
        let accumulator = accumulation::format(profile.value_accumulation, profile.arithmetic);
        let largest = accumulator.max_finite().min(profile.carried_format.max_finite());
        if mass.max(self.mass).get() * 2.0 > largest {
            return Bound::None(NoBound::Overflow);
        }
        // The computed terms add up to the exact result and their error, and to no more than their
        // mass.
        let total = (self.gradient + terms_error).min(mass);
        let Self { terms, positions, runs, .. } = *self;
        let sum = Sum { terms, positions, runs, rescalings: 0, mass, total };
        let tiny = weight::underflow(profile);
        let summation = accumulation::error(profile.value_accumulation, &sum)
            + weight::sum_underflow(profile, profile.value_accumulation)
                * Upper::count(2 * self.terms)
                * scale.max(Upper::ONE);
        let carried = weight::narrowing(profile, profile.carried_format).compound(self.terms)
            * (mass + summation)
            + weight::narrowing_underflow(profile, profile.carried_format)
                * Upper::count(self.terms)
                * scale;
        let unscaled = terms_error + summation + carried;
        let scaled = unscaled + self.scaling(profile, mass, unscaled) + tiny;
        let stored = scaled
            + weight::narrowing(profile, problem.format) * (self.gradient + scaled)
            + weight::narrowing_underflow(profile, problem.format);
        weight::within_range(stored, self.gradient, problem.format)
    }

    /// The scale's roundings, and one of each product where it is folded into query or key, in the
    /// arithmetic format. A scale folded into `dS` before that is rounded to a narrower format is
    /// not covered: what underflows there is multiplied by no scale.
    fn scaling(&self, profile: &Profile, mass: Upper, error: Upper) -> Upper {
        let u = weight::unit(profile);
        let roundings = u.compound(profile.scale_roundings as usize + 1);
        match self.scale {
            None => Upper::ZERO,
            Some(_) => u * mass + roundings * (self.gradient + error),
        }
    }
}
