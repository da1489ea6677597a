//! How far a kernel's weights can stray from `e^(s_i - m)` (`FAS:bound.weight`).
//!
//! A kernel's weight of key `i`, as it enters numerator and normalizer alike, is
//! `e^(s_i - r) (1 + t_i)` with one reference `r` for the whole row and `|ln(1 + t_i)| <= D_i`:
//!
//! - the score: its error `e_i` ([`super::score`]);
//! - the factor `scale` (or `scale * log2 e`) with `n_c` roundings: it multiplies `s_i - r`, so it
//!   costs `n_c u (m - s_i)`;
//! - the reference, rounded once per block: `u X_i`; the scaled score, where it is rounded before the
//!   subtraction: another `u X_i`. Key `i` meets its own score and running maxima that lie between
//!   it and `m`, so `X_i = max(|s_i|, |m|)`;
//! - the difference and the arguments of the rescaling factors: each a relative rounding or two of
//!   a difference, and the differences of one row add up to at most `m - s_i`: `4 u (m - s_i)`;
//! - the exponential and each of the `R` rescaling factors: `(1 + R) eps_exp`.
//!
//! `m - s_i` and the maxima are the kernel's, so they are off by at most `E_i`, the greater of `e_i`
//! and `max_j (e_j - (m - s_j))`: how far the greatest computed score can lie from `m`. Where nothing
//! is added to scores no key is hidden, and the row's greatest `|s_j|` and `e_j` stand for `X_i` and
//! `E_i` of every key.
//!
//! The rescaling factors must be computed from the same rounded references that the weights were,
//! or from unrounded ones: then their roundings telescope. (`exp2(fma(m_old, c, -fl(m_new c)))`
//! with `fl(m_old c)` in the weights does not; no kernel in the list of sources does so.) Where the
//! scale is folded into the query, the scaled query must stay in the normal range: what
//! underflow loses is multiplied by the key.
//!
//! # Hidden keys
//! With a bias of -3.4e38 the error of a score may be 1e32 and its gap 3.4e38. What counts is
//! `p_i |t_i| <= e^(D_i - (m - s_i)) / l`, which is then nothing, and is evaluated in the exponent where
//! `p_i` has left the range of `f64`. Where *all* keys lie there, `D_i` allows any weights, and what
//! remains is that an output is a mean of values ([`super::forward`]).
//!
//! A score that is surely not the greatest and may not fit the score format (in base two, or
//! unscaled, the lowest number of a format does not) may be minus infinity in a correct kernel: its
//! weight is then 0, `t_i = -1`. The greatest may not ([`super::range`]).
//!
//! A sink is one more weight ([`super::sink`]).

use std::f64::consts::LOG2_E;

use super::accumulation;
use super::exponential;
use super::outward::{Lower, Upper};
use super::score::{self, ScoreParts};
use super::sink::{self, Sink};
use super::{Bound, NoBound, RowCondition, merge};
use crate::format::Format;
use crate::problem::{Problem, Scale};
use crate::profile::{Accumulation, Normalizer, Profile};

/// The product with the scale of the weights, and the product with its reciprocal, itself rounded.
const WEIGHT_SCALINGS: usize = 3;

/// Errors of the weights of one row.
pub(super) struct Weights {
    /// Those of the keys.
    pub(super) keys: Vec<WeightError>,
    /// That of the sink, where there is one.
    pub(super) sink: Option<WeightError>,
    /// `sum p_i e^(-D_i)`, below the ratio of the perturbed normalizer to the exact one.
    pub(super) kept: Lower,
    /// The most that the greatest computed score differs from `m`.
    pub(super) reference_error: Upper,
    /// A lower bound on the normalizer in the kernel's own frame, where underflow is absolute.
    pub(super) own_normalizer: Lower,
    /// An upper bound on a single weight in the frame of the greatest score up to it.
    pub(super) largest: Upper,
    /// An upper bound on the sink's weight in the frame of the greatest key; zero without a sink.
    pub(super) largest_sink: Upper,
    /// What `m` exceeds the maximum of the keys alone by, as far as a kernel may take that as its
    /// reference; zero without a sink.
    pub(super) reference_shift: Upper,
}

/// What one weight can be off by.
#[derive(Clone, Copy)]
pub(super) struct WeightError {
    /// `D_i`: bounds `|ln(1 + t_i)|`.
    pub(super) log: Upper,
    /// Bounds `p_i |t_i|`.
    pub(super) moved: Upper,
    /// Bounds `p_i (1 + t_i)`.
    pub(super) grown: Upper,
    /// `p_i e^(-D_i)`.
    pub(super) kept: Lower,
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

/// Largest absolute error, below the smallest normal number, of an operation that errs by `ulp` units
/// in the last place: they are those of the smallest subnormal there.
pub(super) fn ulps_underflow(profile: &Profile, ulp: f64) -> Upper {
    let unit = Upper::new(profile.arithmetic.smallest_subnormal());
    underflow(profile).max(Upper::new(ulp) * unit)
}

/// That of a quotient.
pub(super) fn division_underflow(profile: &Profile) -> Upper {
    ulps_underflow(profile, profile.division_ulp)
}

/// That of an exponential.
pub(super) fn exponential_underflow(profile: &Profile) -> Upper {
    ulps_underflow(profile, profile.exp_ulp)
}

/// Relative error of a division: an ulp is at most `2u`.
pub(super) fn division_error(profile: &Profile) -> Upper {
    Upper::new(profile.division_ulp) * Upper::new(2.0) * unit(profile)
}

/// What rounding to a narrower format can add absolutely; nothing where no rounding happens.
pub(super) fn narrowing_underflow(profile: &Profile, to: Format) -> Upper {
    if narrows(profile, to) { lost_below(to, profile.flush_to_zero) } else { Upper::ZERO }
}

/// What rounding a weight can add absolutely, in units of the weight before it is scaled.
pub(super) fn weight_underflow(profile: &Profile) -> Upper {
    narrowing_underflow(profile, profile.weight_format) / Lower::new(profile.weight_scale)
}

/// Relative error of scaling weights and of undoing it; nothing where the scale is a power of two.
pub(super) fn weight_scaling(profile: &Profile) -> Upper {
    let is_power_of_two =
        profile.weight_scale.to_bits().trailing_zeros() >= f64::MANTISSA_DIGITS - 1;
    if is_power_of_two { Upper::ZERO } else { unit(profile).compound(WEIGHT_SCALINGS) }
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

/// Whether a result of the arithmetic is rounded when it is put into this format.
pub(super) fn narrows(profile: &Profile, to: Format) -> bool {
    to != profile.arithmetic && to != Format::F64
}

/// Whether results in this format that are subnormal may become zero. `e4m3` and `f16` keep subnormals
/// on every device; flushing is a mode of wider arithmetic.
pub(super) const fn flushes(format: Format, flush_to_zero: bool) -> bool {
    flush_to_zero && matches!(format, Format::F32 | Format::Tf32 | Format::Bf16)
}

fn lost_below(format: Format, flush_to_zero: bool) -> Upper {
    if flushes(format, flush_to_zero) {
        Upper::new(format.smallest_normal())
    } else {
        // Half the smallest subnormal; in f64 that half is itself below the smallest f64.
        Upper::new((format.smallest_subnormal() / 2.0).max(f64::from_bits(1)))
    }
}

/// How many terms the normalizer of a row has beside its keys: the sink, which is also one more
/// rescaling.
pub(super) fn extra_terms(problem: &Problem) -> usize {
    usize::from(problem.sink.is_some())
}

/// How often a partial sum is multiplied by a rescaling factor, or by the weight of its part.
pub(super) fn rescalings(problem: &Problem, profile: &Profile) -> usize {
    profile.schedule.rescalings(problem.key_len)
        + extra_terms(problem)
        + usize::from(merge::parts(profile) > 0)
}

/// What the score of one key is made of.
pub(super) fn parts(row: &RowCondition, key: usize) -> ScoreParts {
    ScoreParts {
        mass: Upper::new(row.dot_mass_hi[key]),
        product: Upper::new(row.product_magnitude_hi[key]),
        addend: magnitude(row.addend_magnitude_hi[key]),
        score: magnitude(row.score_magnitude_hi[key]),
        cap_argument_lo: row.cap_argument_lo[key],
        unit: Upper::new(row.product_unit_hi),
    }
}

/// A magnitude that rounding outward may have taken out of the range of `f64`, where the lowest
/// number of `f64` is itself a bias: the largest number stands for it. It is only ever multiplied by
/// a rounding error, which rounds outward again.
pub(super) fn magnitude(x: f64) -> Upper {
    Upper::new(if x == f64::INFINITY { f64::MAX } else { x })
}

/// `x - y` from above, not below zero.
pub(super) fn excess(x: Upper, y: f64) -> Upper {
    Upper::new((x.get() - y).next_up())
}

/// The errors of the weights of one row.
pub(super) fn weights(problem: &Problem, profile: &Profile, row: &RowCondition) -> Weights {
    let scores = Scores::new(problem, profile, row);
    let rounding = ArgumentRounding::new(problem, profile);
    let greatest = rounding.at_the_greatest(profile, &scores);
    let keys: Vec<WeightError> = (0..row.gap_hi.len())
        .map(|i| {
            let gap = magnitude(row.gap_hi[i]);
            let (magnitude, slack) = (scores.magnitude(i), scores.slack(i));
            let log = scores.errors[i]
                + rounding.of(gap, magnitude, slack)
                + merge::weight_error(profile, row, (magnitude, slack), greatest);
            let may_vanish = may_vanish(problem, profile, row, (i, scores.errors[i]));
            let probability = (row.probability_lo[i], row.probability_hi[i]);
            WeightError::new(row, log, row.gap_lo[i], probability, may_vanish)
        })
        .collect();
    let sink = row.sink.map(|sink| (sink, Sink::new(profile, row, sink, &scores, &rounding)));
    let of_sink = |of: fn(&Sink) -> Upper| sink.as_ref().map_or(Upper::ZERO, |(_, s)| of(s));
    let (largest_sink, reference_shift) = (of_sink(|s| s.largest), of_sink(|s| s.shift));
    let sink = sink.map(|(sink, Sink { log_error, .. })| {
        let probability = (sink.probability_lo, sink.probability_hi);
        WeightError::new(row, log_error, sink.gap_lo, probability, false)
    });
    let kept = keys.iter().chain(&sink).fold(Lower::ZERO, |sum, weight| sum + weight.kept);
    Weights {
        own_normalizer: own_normalizer(profile, row, kept, scores.reference, greatest),
        largest: greatest.exp_m1() + Upper::ONE,
        largest_sink,
        reference_shift,
        reference_error: scores.reference,
        keys,
        sink,
        kept,
    }
}

/// The part of each key's `D_i` that the roundings between its score and its weight are, where there is
/// neither sink nor merge.
pub(super) fn argument_errors(
    problem: &Problem,
    profile: &Profile,
    row: &RowCondition,
) -> Vec<Upper> {
    let scores = Scores::new(problem, profile, row);
    let rounding = ArgumentRounding::new(problem, profile);
    let of = |i| rounding.of(magnitude(row.gap_hi[i]), scores.magnitude(i), scores.slack(i));
    (0..row.gap_hi.len()).map(of).collect()
}

impl WeightError {
    pub(super) fn new(
        row: &RowCondition,
        log: Upper,
        gap_lo: f64,
        (probability_lo, probability_hi): (f64, f64),
        may_vanish: bool,
    ) -> Self {
        let (lo, hi) = (Lower::new(probability_lo), Upper::new(probability_hi));
        let relative = log.exp_m1();
        let (moved, grown) = (hi * relative, hi * (Upper::ONE + relative));
        if probability_hi >= f64::MIN_POSITIVE && !may_vanish {
            return Self { log, moved, grown, kept: lo * log.exp_neg() };
        }
        // Below the normal range, `p_i` no longer says how small it is.
        let power = exponential::of_sum(-gap_lo, log) / Lower::new(row.normalizer_lo);
        let (moved, grown) = (moved.min(power), grown.min(power));
        if may_vanish {
            Self { log: Upper::INFINITE, moved: moved.max(hi), grown, kept: Lower::ZERO }
        } else {
            Self { log, moved, grown, kept: lo * log.exp_neg() }
        }
    }
}

/// Whether a kernel may store the score of this key, which errs by so much, as minus infinity.
pub(super) fn may_vanish(
    problem: &Problem,
    profile: &Profile,
    row: &RowCondition,
    (key, error): (usize, Upper),
) -> bool {
    if !score::ends_with_addition(problem) || error.get() >= row.gap_lo[key] {
        return false;
    }
    let parts = parts(row, key);
    // A factor of two stands for every rounding on the way.
    let reach = 2.0 * (parts.product + parts.addend).get();
    stored(problem, reach) > profile.score_format.max_finite()
}

/// The most that a number in nats is where scores may be kept before they are scaled, after, or in
/// base two.
pub(super) fn stored(problem: &Problem, x: f64) -> f64 {
    let scale = problem.scale_f64().abs();
    (x * LOG2_E).max(if scale == 0.0 { 0.0 } else { x / scale })
}

/// The computed scores of a row.
pub(super) struct Scores {
    /// `e_i`.
    pub(super) errors: Vec<Upper>,
    /// `|s_i|`.
    pub(super) magnitudes: Vec<Upper>,
    /// `|m|`.
    pub(super) max_magnitude: Upper,
    /// The greatest `|s_i|` and `e_i`, where no key is hidden.
    pub(super) common: (Upper, Upper),
    /// The most that the greatest computed score differs from `m`.
    pub(super) reference: Upper,
}

impl Scores {
    pub(super) fn new(problem: &Problem, profile: &Profile, row: &RowCondition) -> Self {
        let keys = row.gap_hi.len();
        let errors: Vec<Upper> =
            (0..keys).map(|i| score::score_error(problem, profile, parts(row, i))).collect();
        let magnitudes: Vec<Upper> =
            row.score_magnitude_hi.iter().map(|&score| magnitude(score)).collect();
        let largest = |xs: &[Upper]| xs.iter().copied().fold(Upper::ZERO, Upper::max);
        let common = match score::additions(problem) {
            0 => (largest(&magnitudes), largest(&errors)),
            _ => (Upper::ZERO, Upper::ZERO),
        };
        let above = errors.iter().zip(&row.gap_lo).map(|(&error, &gap)| excess(error, gap));
        let sink = row.sink.map(|sink| excess(sink::logit_error(profile, sink), sink.gap_lo));
        Self {
            reference: above.chain(sink).fold(common.1, Upper::max),
            max_magnitude: magnitude(row.max_magnitude_hi),
            errors,
            magnitudes,
            common,
        }
    }

    /// `X_i`.
    fn magnitude(&self, key: usize) -> Upper {
        self.magnitudes[key].max(self.max_magnitude).max(self.common.0)
    }

    /// `E_i`.
    fn slack(&self, key: usize) -> Upper {
        self.errors[key].max(self.reference)
    }
}

/// Roundings between a score and its weight.
pub(super) struct ArgumentRounding {
    per_gap: Upper,
    per_magnitude: Upper,
    /// Of the exponential and the rescaling factors.
    pub(super) exponentials: Upper,
}

impl ArgumentRounding {
    fn new(problem: &Problem, profile: &Profile) -> Self {
        /// Difference, and difference and product in the arguments of rescaling factors, and one
        /// for the second order.
        const DIFFERENCE_ROUNDINGS: usize = 4;
        let u = unit(profile);
        let per_gap = u.compound(profile.scale_roundings as usize + DIFFERENCE_ROUNDINGS);
        let references = Upper::count(1 + usize::from(profile.scaled_score_rounded));
        let per_magnitude = references * u * (Upper::ONE + per_gap);
        let exponential = exponential_error(profile);
        let mut exponentials = Upper::count(1 + rescalings(problem, profile))
            * (exponential / exponential.complement());
        if profile.normalizer == Normalizer::Rounded {
            // The rounding of the weights is common to numerator and normalizer.
            let narrow = narrowing(profile, profile.weight_format);
            exponentials = exponentials + narrow / narrow.complement();
        }
        Self { per_gap, per_magnitude, exponentials }
    }

    /// For a score of this gap, `X_i` and `E_i`. Scaled down before they are added: a score may be the
    /// lowest number of `f64`.
    pub(super) fn of(&self, gap: Upper, magnitude: Upper, slack: Upper) -> Upper {
        self.per_gap * gap
            + self.per_gap * Upper::new(2.0) * slack
            + self.constant(magnitude, slack)
            + self.exponentials
    }

    /// Of the reference, and of the scaled score.
    fn constant(&self, magnitude: Upper, slack: Upper) -> Upper {
        self.per_magnitude * magnitude + self.per_magnitude * slack
    }

    /// How far the logarithm of the greatest score's weight lies from 0. Every score is the greatest
    /// for a while, hidden ones too, and meets itself. Where its product with the scale is rounded on
    /// one side only, the difference is not zero but that rounding.
    pub(super) fn at_the_greatest(&self, profile: &Profile, scores: &Scores) -> Upper {
        if profile.scaled_score_rounded {
            return self.exponentials;
        }
        let keys = 0..scores.errors.len();
        let constants = keys.map(|i| self.constant(scores.magnitude(i), scores.slack(i)));
        constants.fold(Upper::ZERO, Upper::max) + self.exponentials
    }
}

/// Relative error of one exponential: an ulp is at most `2u`.
pub(super) fn exponential_error(profile: &Profile) -> Upper {
    Upper::new(profile.exp_ulp) * Upper::new(2.0) * unit(profile)
}

/// In the kernel's frame the largest weight is that of the largest computed score.
///
/// Two bounds hold. From the exact row: `l kept e^(-reference error)`; not where parts of the row have
/// frames of their own. And the largest score meets itself: where the scaled score is rounded before
/// the subtraction, its weight is `e^0 = 1` up to the exponentials' own errors, whatever the
/// magnitude of the scores.
fn own_normalizer(
    profile: &Profile,
    row: &RowCondition,
    kept: Lower,
    reference_error: Upper,
    greatest: Upper,
) -> Lower {
    let merged = merge::parts(profile) > 0;
    let from_row = Lower::new(row.normalizer_lo) * kept * reference_error.exp_neg();
    let own = greatest.exp_neg();
    match (merged, profile.scaled_score_rounded) {
        (true, _) => own,
        (false, true) => from_row.max(own),
        (false, false) => from_row,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use rug::Float;

    /// Far beyond `f64`: rounding at this precision can not flip a comparison below.
    const BITS: u32 = 300;

    /// A row whose greatest weight is 1 and whose others count for nothing.
    fn row() -> RowCondition {
        RowCondition {
            gap_lo: vec![0.0],
            gap_hi: vec![0.0],
            product_magnitude_hi: vec![0.0],
            addend_magnitude_hi: vec![0.0],
            cap_argument_lo: vec![0.0],
            score_magnitude_hi: vec![0.0],
            dot_mass_hi: vec![0.0],
            probability_lo: vec![1.0],
            probability_hi: vec![1.0],
            max_magnitude_hi: 0.0,
            normalizer_lo: 1.0,
            normalizer_hi: 1.0,
            lse_magnitude_hi: 0.0,
            output_lo: Vec::new(),
            output_hi: Vec::new(),
            sink: None,
            product_unit_hi: 1.0,
            value_unit_hi: 1.0,
        }
    }

    proptest! {
        /// On both sides of where `p` leaves the range of `f64`, and of where its error outgrows it.
        #[test]
        fn a_weight_is_bounded_through_its_logarithm(gap in 0.0..2000.0_f64, log in 0.0..2500.0_f64) {
            let exact = |x: f64| Float::with_val(BITS, x);
            let p = exact(-gap).exp();
            let grown = p.clone() * exact(log).exp();
            let moved = Float::with_val(BITS, &grown - &p);
            let hi = p.to_f64_round(rug::float::Round::Up);
            let error = WeightError::new(&row(), Upper::new(log), gap, (0.0, hi), false);
            prop_assert!(exact(error.moved.get()) >= moved);
            prop_assert!(exact(error.grown.get()) >= grown);
            let vanished = WeightError::new(&row(), Upper::new(log), gap, (0.0, hi), true);
            prop_assert!(exact(vanished.moved.get()) >= moved.max(&p));
            prop_assert_eq!(vanished.kept, Lower::ZERO);
        }
    }
}
