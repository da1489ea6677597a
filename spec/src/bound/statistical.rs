//! Bounds that hold with high probability, where roundings are independent
//! (`FAS:bound.fwd.statistical`, `FAS:bound.fwd.mean-error`).
//!
//! # Model
//! Each rounding to nearest is a random variable, `delta` with `|delta| <= u` and mean zero given those
//! before it (Higham and Mary 2019, doi:10.1137/18M1226312, model 2.1 and its form by martingales). A
//! sum `sum a_k delta_k` whose coefficients depend on earlier roundings at most, `|a_k| <= A_k`, then
//! obeys Azuma's inequality
//!
//! ```text
//! P( |sum a_k delta_k| > lambda u sqrt(sum A_k^2) ) <= 2 e^(-lambda^2 / 2)
//! ```
//!
//! With `lambda = sqrt(2 ln(2 / 10^-9)) = 6.545` that is `10^-9` for each element.
//!
//! # What is random, and what is not
//! Random are the roundings of the sums and of narrower formats: in a score, `d - 1` additions whose
//! partial sums are at most its half mass `H_i`, and the products; each weight's rounding to the weight
//! format; the additions and rescalings of numerator and normalizer. All else stays as in the
//! worst-case bound: an approximate exponential, division or logarithm errs by a function of its
//! argument, not by chance; the rounded constant `scale * log2 e`, a scale folded into the query and the
//! reference are common to many keys; underflow is one-sided.
//!
//! # Derivation
//! Write `|y_i| <= e_i` for the random part of key `i`'s score, its coefficients of 2-norm `c_i`, and `x_i`,
//! `|x_i| <= D_i`, for the rest of its log-weight. Then `t_i = (e^(x_i) - 1) + e^(x_i) y_i + r_i` with
//! `|r_i| <= e^(x_i) (e^(e_i) - 1 - e_i)`, and
//!
//! ```text
//! c_i^2 = u^2 [ (d - 1) H_i^2 + M_i^2 ] + u_S^2 |s_i|^2
//! |o'_j - o_j| <= [ sum p_i (|e^(x_i) - 1| + |r_i|) |v_ij - o_j| + lambda sqrt(sum (p_i e^(D_i) c_i |v_ij - o_j|)^2) ] / kept
//! ```
//!
//! With normalized weights `p'_i`: their roundings to a narrower format add `lambda u_P
//! sqrt(sum (p'_i v_ij)^2)`; the numerator's sum `lambda u sqrt((n - 1 + R) H_j^2 + sum (p'_i v_ij)^2)`; the
//! normalizer's `lambda u sqrt(h + R)` relatively, since the partial sums of positive terms that pass
//! through at most `h` additions have squares that add up to at most `h l^2`. All are random sums of
//! different roundings, so their 2-norms add as squares.
//!
//! # The mean of many
//! Errors of a row's entries share the row's roundings, so the 2-norm of their sum is at most the sum of
//! theirs; rows share none, and their squares add up; the rounding of each output entry is its own. Hence
//! with `s` the systematic parts, `sigma` the shared and `omega` the entry's own,
//!
//! ```text
//! |sum_rj +-e_rj| <= sum_rj s_rj + lambda sqrt( sum_r (sum_j sigma_rj)^2 + sum_rj omega_rj^2 )
//! ```
//!
//! for any signs that do not depend on the roundings. The mean of `N` such errors is that, over `N`: it
//! shrinks as the number of rows grows, and a bias does not.

use ndarray::{ArrayView1, ArrayView2};

use super::accumulation::{self, Sum};
use super::forward::{self, ForwardBounds, NormalizerError, Row};
use super::outward::{Lower, Upper};
use super::weight::{self, WeightError, Weights};
use super::{Bound, RowCondition, lse, merge, score};
use crate::problem::Problem;
use crate::profile::{Accumulation, Normalizer, Profile, Weights as WeightRounding};

/// `sqrt(2 ln(2 / 10^-9))`, rounded up: a sum of independent roundings exceeds this many times the 2-norm
/// of their coefficients with a probability below `10^-9`.
pub const LAMBDA: f64 = 6.55;

/// Why nothing is said of the probability of an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum NotApplicable {
    /// A tensor core truncates: its errors have one sign where the terms do.
    Truncation,
    /// Flushing to zero rounds towards zero.
    FlushToZero,
    /// Scores or weights are modified, or parts are merged, whose roundings are not modelled.
    Modified,
}

impl NotApplicable {
    /// The reason in a few words.
    #[must_use]
    pub const fn words(self) -> &'static str {
        match self {
            Self::Truncation => "an accumulator that truncates",
            Self::FlushToZero => "arithmetic that flushes to zero",
            Self::Modified => "modified scores or weights, or merged parts",
        }
    }
}

/// How errors of one element are made up.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Spread {
    /// What need not average out.
    pub systematic: f64,
    /// The 2-norm of the roundings that the row's elements share, each by its greatest size.
    pub shared: f64,
    /// The greatest size of the rounding that is this element's alone.
    pub own: f64,
    /// What the error exceeds with a probability below `10^-9`; never more than the worst case.
    pub bound: Bound,
}

/// How errors of one query row are made up.
#[derive(Clone, Debug, PartialEq)]
pub struct Spreads {
    /// For each output entry, in the units of the values.
    pub output: Vec<Spread>,
    /// For the LSE, in nats.
    pub lse: Spread,
}

/// Why the profile or the problem allows no statement; `None` where they allow one, for inputs that are
/// drawn independently.
#[must_use]
pub fn not_applicable(problem: &Problem, profile: &Profile) -> Option<NotApplicable> {
    let Problem { softcap, bias, alibi, sink, dropout, quantization, .. } = problem;
    let modified = softcap.is_some()
        || quantization.is_some()
        || bias.is_some()
        || alibi.is_some()
        || sink.is_some()
        || dropout.is_some()
        || merge::parts(profile) > 0;
    let truncates = |it| matches!(it, Accumulation::TensorCore { .. });
    if truncates(profile.score_accumulation) || truncates(profile.value_accumulation) {
        Some(NotApplicable::Truncation)
    } else if profile.flush_to_zero {
        Some(NotApplicable::FlushToZero)
    } else {
        modified.then_some(NotApplicable::Modified)
    }
}

/// How errors of the outputs and the LSE of one query row with at least one visible key are made up;
/// `values` are as for [`forward`](fn@super::forward).
///
/// Clause: `FAS:bound.fwd.statistical`.
///
/// # Errors
/// [`NotApplicable`] as [`not_applicable`] has it. That the inputs are drawn independently is the
/// caller's to know.
///
/// # Panics
/// As [`forward`](fn@super::forward).
pub fn statistical(
    problem: &Problem,
    profile: &Profile,
    row: &RowCondition,
    values: &ArrayView2<'_, f64>,
) -> Result<Spreads, NotApplicable> {
    if let Some(reason) = not_applicable(problem, profile) {
        return Err(reason);
    }
    let ForwardBounds { output: worst, lse } = forward::forward(problem, profile, row, values);
    let Some(row) = Row::new(problem, profile, row) else {
        let output = worst.into_iter().map(Spread::unbounded).collect();
        return Ok(Spreads { output, lse: Spread::unbounded(lse) });
    };
    let model = Model::new(row);
    let columns = values.columns().into_iter().zip(worst).enumerate();
    let output = columns.map(|(j, (column, worst))| model.entry(&column, j, worst)).collect();
    Ok(Spreads { output, lse: model.lse(lse) })
}

struct Model<'a> {
    /// The worst case.
    row: Row<'a>,
    keys: Vec<Key>,
    /// The 2-norm of the normalizer's roundings, relative.
    normalizer_spread: Upper,
}

/// The log-weight of one key.
struct Key {
    /// As far as it is not random.
    systematic: WeightError,
    /// `c_i`.
    spread: Upper,
    /// `e^(e_i) - 1 - e_i`.
    second_order: Upper,
}

impl<'a> Model<'a> {
    fn new(row: Row<'a>) -> Self {
        let Row { problem, profile, condition, normalizer, .. } = &row;
        let arguments = weight::argument_errors(problem, profile, condition);
        let keys = arguments.iter().enumerate();
        let keys = keys.map(|(i, &it)| Key::new(problem, profile, condition, i, it)).collect();
        let growth = Upper::ONE + normalizer.relative;
        let normalizer_spread =
            weight::unit(profile) * Upper::count(normalizer.roundings).sqrt() * growth;
        Self { row, keys, normalizer_spread }
    }

    fn entry(&self, values: &ArrayView1<'_, f64>, j: usize, worst: Bound) -> Spread {
        let Bound::Within(hard) = worst else { return Spread::unbounded(worst) };
        let hard = Upper::new(hard);
        let Row { problem, profile, .. } = &self.row;
        let (lo, hi) = self.row.output_ends(j);
        let output = Upper::new(lo.abs().max(hi.abs()));
        let moved = self.moved(values.iter().map(|&v| forward::distance(v, lo, hi)));
        let quotient = self.quotient(values, output, (lo, hi));
        let lost_quotient = weight::division_underflow(profile);
        let own = weight::narrowing(profile, problem.format) * (output + hard)
            + weight::narrowing_underflow(profile, problem.format);
        let systematic = moved.systematic + quotient.systematic + lost_quotient;
        Spread::new(systematic, moved.spread.hypot(quotient.spread), own, hard)
    }

    /// What the log-weights' errors move a mean by, of numbers at these distances from it.
    fn moved(&self, distances: impl Iterator<Item = Upper>) -> Part {
        let (mut systematic, mut squares) = (Upper::ZERO, Upper::ZERO);
        for (key, distance) in self.keys.iter().zip(distances) {
            let Key { systematic: weight, spread, second_order } = key;
            systematic = systematic + (weight.moved + weight.grown * *second_order) * distance;
            let scattered = weight.grown * *spread * distance;
            squares = squares + scattered * scattered;
        }
        let kept = self.row.weights.kept;
        Part { systematic: systematic / kept, spread: squares.sqrt() / kept }
    }

    /// What numerator, normalizer and division add.
    fn quotient(&self, values: &ArrayView1<'_, f64>, output: Upper, (lo, hi): (f64, f64)) -> Part {
        let Row { profile, normalizer, .. } = &self.row;
        let perturbed = output + self.row.shift(values, lo, hi);
        let numerator = self.numerator(values, perturbed);
        let division = match profile.weights {
            WeightRounding::Normalized => Upper::ZERO,
            WeightRounding::Unnormalized => weight::division_error(profile),
        };
        let (once, rest) = (Upper::ONE + division, normalizer.relative.complement());
        let systematic =
            numerator.systematic * once + perturbed * (division + normalizer.systematic);
        let spread = (numerator.spread * once).hypot(perturbed * self.normalizer_spread);
        Part { systematic: systematic / rest, spread: spread / rest }
    }

    fn numerator(&self, values: &ArrayView1<'_, f64>, total: Upper) -> Part {
        let Row { problem, profile, weights, .. } = &self.row;
        let rescalings = weight::rescalings(problem, profile);
        let values_mass: Upper = values.iter().map(|v| Upper::new(v.abs())).sum();
        let lost = self.row.lost(values_mass, weight::weight_underflow(profile), rescalings);
        let magnitude = self.row.magnitude(values);
        let per_weight = self.row.per_weight_error();
        let rounding = per_weight * magnitude;
        let sum = Sum {
            terms: values.len(),
            positions: problem.key_len,
            runs: 1 + rescalings,
            rescalings,
            mass: magnitude + rounding + lost,
            total: total + rounding + lost,
            // Of tensor cores alone.
            aligned: Upper::ZERO,
        };
        let summation = accumulation::error(profile.value_accumulation, &sum);
        let carried = weight::narrowing(profile, profile.carried_format).compound(1 + rescalings)
            * (sum.mass + summation);
        let division = match profile.weights {
            WeightRounding::Normalized => weight::division_error(profile),
            WeightRounding::Unnormalized => Upper::ZERO,
        };
        let squares: Upper = values
            .iter()
            .zip(&weights.keys)
            .map(|(&v, weight)| weight.grown * Upper::new(v.abs()))
            .map(|term| term * term)
            .sum();
        let norm = squares.sqrt() / weights.kept * (Upper::ONE + per_weight);
        let narrow = match (profile.weights, profile.normalizer) {
            // Common to numerator and normalizer, and counted in each weight.
            (WeightRounding::Unnormalized, Normalizer::Rounded) => Upper::ZERO,
            _ => weight::narrowing(profile, profile.weight_format),
        };
        let u = self.unit_of(profile.value_accumulation);
        let roundings = (values.len() + rescalings).saturating_sub(1);
        // Partial sums of the computed terms are off by the worst case at most.
        let half = (sum.mass + sum.total + summation) * Upper::new(0.5) + u * sum.mass;
        let added = u * Upper::count(roundings).sqrt() * half;
        let spread = (narrow * norm).hypot(u * norm).hypot(added);
        Part { systematic: division * magnitude + carried + lost, spread }
    }

    fn unit_of(&self, accumulation: Accumulation) -> Upper {
        let format = accumulation::format(accumulation, self.row.profile.arithmetic);
        Upper::new(format.unit_roundoff())
    }

    fn lse(&self, worst: Bound) -> Spread {
        let Bound::Within(hard) = worst else { return Spread::unbounded(worst) };
        let Row { profile, condition, weights: worst_weights, normalizer, .. } = &self.row;
        let rest = normalizer.relative.complement();
        let keys: Vec<_> = self.keys.iter().map(|key| key.systematic).collect();
        let kept = keys.iter().fold(Lower::ZERO, |sum, key| sum + key.kept);
        let weights = Weights { keys, kept, ..*worst_weights };
        let systematic = normalizer.systematic;
        let normalizer = NormalizerError { relative: systematic, systematic, roundings: 0 };
        let Bound::Within(rounded) = lse::bound(profile, condition, &weights, &normalizer) else {
            return Spread::unbounded(worst);
        };
        // `|ln a - ln b| <= |a - b| / min(a, b)`.
        let seconds = self.keys.iter().map(|key| key.systematic.grown * key.second_order);
        let second_order = seconds.sum::<Upper>() / worst_weights.kept;
        let squares = self.keys.iter().map(|key| key.systematic.grown * key.spread);
        let squares: Upper = squares.map(|term| term * term).sum();
        let moved = squares.sqrt() / worst_weights.kept;
        let spread = moved.hypot(self.normalizer_spread) / rest;
        let systematic = Upper::new(rounded) + second_order / rest;
        Spread::new(systematic, spread, Upper::ZERO, Upper::new(hard))
    }
}

/// A part of an error.
struct Part {
    systematic: Upper,
    spread: Upper,
}

impl Key {
    fn new(
        problem: &Problem,
        profile: &Profile,
        row: &RowCondition,
        i: usize,
        argument: Upper,
    ) -> Self {
        let parts = weight::parts(row, i);
        let operands = score::operand_error(problem, profile, parts);
        let sum = Sum::contiguous(problem.head_dim, parts.mass, parts.product, Upper::ZERO);
        let added = accumulation::error(profile.score_accumulation, &sum);
        let narrow =
            weight::narrowing(profile, profile.score_format) * (parts.product + added + operands);
        let lost = weight::narrowing_underflow(profile, profile.score_format)
            * weight::scale_magnitude(problem).max(Upper::ONE);
        let format = accumulation::format(profile.score_accumulation, profile.arithmetic);
        let u = Upper::new(format.unit_roundoff());
        // Partial sums of the computed products are off by the worst case at most.
        let half = (parts.mass + parts.product + added) * Upper::new(0.5) + u * parts.mass;
        let additions = problem.head_dim.saturating_sub(1);
        let spread =
            (u * Upper::count(additions).sqrt() * half).hypot(u * parts.mass).hypot(narrow);
        let systematic = WeightError::new(
            row,
            operands + lost + argument,
            row.gap_lo[i],
            (row.probability_lo[i], row.probability_hi[i]),
            false,
        );
        let random = added + narrow;
        // `e^e - 1 - e <= e^2/2 e^e`.
        let second_order = random * random * Upper::new(0.5) * (random.exp_m1() + Upper::ONE);
        Self { systematic, spread, second_order }
    }
}

impl Spread {
    fn new(systematic: Upper, shared: Upper, own: Upper, hard: Upper) -> Self {
        let bound = (systematic + Upper::new(LAMBDA) * shared + own).min(hard);
        Self {
            systematic: systematic.get(),
            shared: shared.get(),
            own: own.get(),
            bound: Bound::Within(bound.get()),
        }
    }

    /// Where the worst case has no bound, nothing is said.
    const fn unbounded(worst: Bound) -> Self {
        let infinite = f64::INFINITY;
        Self { systematic: infinite, shared: infinite, own: infinite, bound: worst }
    }
}

/// What the signed errors of many elements may add up to (`FAS:bound.fwd.mean-error`).
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct MeanError {
    systematic: f64,
    squares: f64,
    elements: usize,
}

impl MeanError {
    /// That of some elements of one row.
    #[must_use]
    pub fn of_row(spreads: &[Spread]) -> Self {
        let sum = |of: fn(&Spread) -> f64| -> Upper {
            spreads.iter().map(|spread| Upper::new(of(spread))).sum()
        };
        let shared = sum(|it| it.shared);
        let own: Upper = spreads.iter().map(|it| Upper::new(it.own) * Upper::new(it.own)).sum();
        Self {
            systematic: sum(|it| it.systematic).get(),
            squares: (shared * shared + own).get(),
            elements: spreads.len(),
        }
    }

    /// That of these elements and those of other rows.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        let sum = |a: f64, b: f64| (Upper::new(a) + Upper::new(b)).get();
        Self {
            systematic: sum(self.systematic, other.systematic),
            squares: sum(self.squares, other.squares),
            elements: self.elements + other.elements,
        }
    }

    /// How many elements.
    #[must_use]
    pub const fn elements(self) -> usize {
        self.elements
    }

    /// What the magnitude of the sum of their errors, with signs that do not depend on the roundings,
    /// exceeds with a probability below `10^-9`.
    #[must_use]
    pub fn bound(self) -> f64 {
        let random = Upper::new(LAMBDA) * Upper::new(self.squares).sqrt();
        (Upper::new(self.systematic) + random).get()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lambda_is_of_the_probability() {
        const PROBABILITY: f64 = 1e-9;
        assert!(2.0 * (-LAMBDA * LAMBDA / 2.0).exp() < PROBABILITY);
        // Rounded up in the third digit.
        let below = LAMBDA - 0.01;
        assert!(2.0 * (-below * below / 2.0).exp() > PROBABILITY);
    }

    /// Errors that rows share are taken to be the same; those of rows are not.
    #[test]
    fn rows_add_as_squares_and_entries_as_they_are() {
        let spread = Spread { systematic: 0.5, shared: 3.0, own: 0.0, bound: Bound::Within(1.0) };
        let row = MeanError::of_row(&[spread; 4]);
        let rows = (0..9).fold(MeanError::default(), |sum, _| sum.and(row));
        assert_eq!(rows.elements(), 36);
        let expected = 18.0 + LAMBDA * 12.0 * 3.0;
        assert!(rows.bound() >= expected && rows.bound() < expected * (1.0 + 1e-12));
    }
}
