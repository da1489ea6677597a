//! How far a kernel's `P`, `dS` and `dX` of one query row can lie from the exact ones.

use super::condition::{GradientCondition, SinkGradientCondition};
use super::probability::Probability;
use super::softcap::Slope;
use super::sum::{dropout_growth, dropout_rounding};
use crate::bound::accumulation::{self, Sum};
use crate::bound::outward::Upper;
use crate::bound::weight;
use crate::format::Format;
use crate::problem::Problem;
use crate::profile::{Accumulation, Profile};

/// The two differences in `dP - D + g` and the product with `P`.
const SCORE_GRADIENT_ROUNDINGS: usize = 3;

/// `g - D` and its product with the sink's probability.
const SINK_ROUNDINGS: usize = 2;

/// How far a kernel's `P` and `dS` of one query row can lie from the exact ones.
#[derive(Clone, Debug)]
pub struct GradientRow {
    /// `e^|L^ - L|`.
    pub(super) common: Upper,
    /// `e^|L^ - L| - 1`.
    pub(super) excess: Upper,
    /// `|b|`.
    pub(super) delta: Upper,
    /// Whether a partial sum of `D` might leave the range of its accumulator.
    delta_overflows: bool,
    /// Whether a partial sum of a `dP_i` might.
    dp_overflows: bool,
    pub(super) keys: Vec<KeyError>,
    pub(super) sink: Option<ScoreGradient>,
}

/// What one key's weight and score gradient can be off by.
#[derive(Clone, Copy, Debug)]
pub(super) struct KeyError {
    pub(super) probability: Probability,
    /// `z_i`.
    pub(super) dropout: Upper,
    /// `dS_i`, the gradient of the score.
    pub(super) score: ScoreGradient,
    /// `dX_i`, that of what the softcap is taken of; `dS_i` without softcap.
    pub(super) argument: ScoreGradient,
    /// The same before it is rounded to the weight format.
    wide: ScoreGradient,
}

/// A product of `P` and `dP - D + g`, and of the softcap's slope where it has one.
#[derive(Clone, Copy, Debug)]
pub(super) struct ScoreGradient {
    /// Its exact magnitude.
    pub(super) exact: Upper,
    /// What `b` is multiplied by: `p_i`, or `p_i c_i`.
    pub(super) pull: Upper,
    /// Magnitude of the computed one, before it is rounded to the weight format.
    pub(super) computed: Upper,
    /// What no common factor explains, rounding to the weight format and underflow included.
    pub(super) error: Upper,
}

impl ScoreGradient {
    /// Rounded to the weight format.
    fn narrowed(self, problem: &Problem, profile: &Profile) -> Self {
        let lost = weight::narrowing_underflow(profile, profile.weight_format);
        let error = self.error
            + weight::narrowing(profile, profile.weight_format) * self.computed
            + lost * dropout_growth(problem);
        Self { error, ..self }
    }

    /// Whether it might exceed the largest number of `format`.
    fn leaves_range(&self, format: Format) -> bool {
        self.magnitude().get() > format.max_finite()
    }

    /// Magnitude of the computed one, rounded.
    pub(super) fn magnitude(&self) -> Upper {
        self.computed + self.error
    }
}

impl KeyError {
    /// Whether `dX`, or `dS` before it, might exceed the largest number of its format.
    pub(super) fn argument_leaves_range(&self, profile: &Profile) -> bool {
        self.argument.leaves_range(profile.weight_format)
            || self.score.leaves_range(profile.arithmetic)
    }

    /// Whether `dS` might exceed the largest number of the format that it may be rounded to.
    pub(super) fn score_leaves_range(&self, profile: &Profile) -> bool {
        self.score.leaves_range(profile.weight_format)
    }
}

impl GradientRow {
    /// The errors of one row under a profile.
    ///
    /// # Panics
    /// When the vectors of `row` differ in length.
    #[must_use]
    pub fn new(problem: &Problem, profile: &Profile, row: &GradientCondition) -> Self {
        let keys = row.keys();
        let errors = RowErrors::new(problem, profile, row);
        let dp_mass = row.dp_mass_hi.iter().copied().fold(0.0, f64::max);
        let accumulator = accumulation::format(profile.score_accumulation, profile.arithmetic);
        let dropped = dropout_growth(problem) * Upper::new(dp_mass);
        Self {
            common: errors.common,
            excess: errors.excess,
            delta: errors.delta,
            delta_overflows: 2.0 * row.delta_mass_hi > profile.arithmetic.max_finite(),
            dp_overflows: 2.0 * dp_mass > accumulator.max_finite()
                || 2.0 * dropped.get() > profile.arithmetic.max_finite(),
            keys: (0..keys).map(|i| errors.key(i)).collect(),
            sink: row.sink.as_ref().map(|sink| errors.sink(sink)),
        }
    }

    /// Whether `D` or a `dP_i` might leave the range of its accumulator.
    pub(super) fn overflows(&self) -> bool {
        self.delta_overflows || self.dp_overflows
    }

    /// Whether `D`, or the sink's part, might leave the range of the arithmetic.
    pub(super) fn sink_overflows(&self, profile: &Profile) -> bool {
        let leaves = |sink: &ScoreGradient| sink.leaves_range(profile.arithmetic);
        self.delta_overflows || self.sink.as_ref().is_some_and(leaves)
    }

    /// The weight that meets the output gradient in `dV`: kept or dropped, and rounded to the weight
    /// format.
    pub(super) fn kept_weight(
        &self,
        problem: &Problem,
        profile: &Profile,
        key: &KeyError,
    ) -> Probability {
        let Probability { exact, error } = key.probability;
        let narrow = weight::narrowing(profile, profile.weight_format);
        let rounding = narrow.and(dropout_rounding(problem, profile));
        let computed = self.excess * exact + self.common * error;
        let lost = weight::narrowing_underflow(profile, profile.weight_format)
            + weight::exponential_underflow(profile)
            + weight::underflow(profile) * Upper::count(usize::from(problem.dropout.is_some()));
        // A dropped weight is exactly zero.
        let lost = if key.dropout == Upper::ZERO { Upper::ZERO } else { lost };
        Probability {
            exact: key.dropout * exact,
            error: key.dropout * (computed + rounding * (exact + computed))
                + lost * dropout_growth(problem),
        }
    }

    /// What `P` and `dX` of each key can be off by before they are rounded to the weight format; `None`
    /// where something might leave its range.
    pub(in crate::bound) fn before_rounding(
        &self,
        profile: &Profile,
    ) -> Option<impl Iterator<Item = (Upper, Upper)>> {
        let leaves = |key: &KeyError| key.argument_leaves_range(profile);
        if self.overflows() || self.keys.iter().any(leaves) {
            return None;
        }
        let lost = weight::exponential_underflow(profile);
        Some(self.keys.iter().map(move |key| (key.probability.error + lost, self.error(&key.wide))))
    }

    /// The whole error of one term, where the sum that it enters takes others from other rows:
    /// nothing relates their common factors.
    pub(super) fn error(&self, term: &ScoreGradient) -> Upper {
        self.excess * term.exact + self.common * self.delta * term.pull + term.error
    }
}

/// `|b|`: what `D` is measured to be off by, the rounding of its sum, and that of what may be done to
/// it before it meets `dP`: dropout's scale may divide it, and `g` be subtracted.
fn delta_error(
    problem: &Problem,
    profile: &Profile,
    row: &GradientCondition,
    dropout: Upper,
) -> Upper {
    let magnitude = Upper::new(row.delta_magnitude_hi);
    let mass = Upper::new(row.delta_mass_hi);
    let sum = Sum::contiguous(problem.value_dim, mass, magnitude, Upper::ZERO);
    let arithmetic = Accumulation::Ieee { format: profile.arithmetic, depth: None };
    let tiny = weight::underflow(profile) * Upper::count(2 * problem.value_dim);
    let error = accumulation::error(arithmetic, &sum);
    let g = Upper::new(row.lse_gradient_magnitude_hi);
    let folded =
        if g == Upper::ZERO { Upper::ZERO } else { weight::unit(profile) * (magnitude + g) };
    Upper::new(row.delta_shift_hi) + error + folded + tiny + dropout * (magnitude + error)
}

struct RowErrors<'a> {
    problem: &'a Problem,
    profile: &'a Profile,
    row: &'a GradientCondition,
    common: Upper,
    excess: Upper,
    delta: Upper,
    /// `(1 + u)^2 - 1` where the problem has dropout.
    dropout: Upper,
}

impl<'a> RowErrors<'a> {
    fn new(problem: &'a Problem, profile: &'a Profile, row: &'a GradientCondition) -> Self {
        let excess = Upper::new(row.lse_shift_hi).exp_m1();
        let dropout = dropout_rounding(problem, profile);
        let common = excess + Upper::ONE;
        let delta = delta_error(problem, profile, row, dropout);
        Self { problem, profile, row, common, excess, delta, dropout }
    }

    fn key(&self, i: usize) -> KeyError {
        let Self { problem, profile, row, .. } = *self;
        let probability = Probability::of_key(problem, profile, row, i);
        let factors = |slope| Factors {
            probability,
            centred: Upper::new(row.centred_magnitude_hi[i]),
            difference: self.difference(i),
            slope,
            roundings: SCORE_GRADIENT_ROUNDINGS,
        };
        let score = self.product(&factors(Slope::NONE));
        let wide = problem.softcap.map_or(score, |softcap| {
            let slope = Slope::new(problem, profile, row, i, softcap);
            self.product(&factors(slope))
        });
        KeyError {
            probability,
            dropout: Upper::new(row.dropout[i]),
            score: score.narrowed(problem, profile),
            argument: wide.narrowed(problem, profile),
            wide,
        }
    }

    fn sink(&self, sink: &SinkGradientCondition) -> ScoreGradient {
        self.product(&Factors {
            probability: Probability::of_sink(self.profile, self.row, sink),
            centred: Upper::new(sink.centred_magnitude_hi),
            difference: Upper::ZERO,
            slope: Slope::NONE,
            roundings: SINK_ROUNDINGS,
        })
    }

    /// What `z dP - D + g` can be off by, apart from `b` and the relative roundings of its
    /// differences.
    fn difference(&self, i: usize) -> Upper {
        let Self { problem, profile, row, .. } = *self;
        let dp = self.dp_error(i);
        let product = self.dropout * (Upper::new(row.dp_magnitude_hi[i]) + dp);
        let products = Upper::count(usize::from(problem.dropout.is_some()));
        let dropped =
            Upper::new(row.dropout[i]) * (dp + product) + products * weight::underflow(profile);
        // Where the LSE has a gradient, `dP - D` is rounded before `g` is added; and where dropout
        // comes last, its scale divides `g` first.
        dropped + (weight::unit(profile) + self.dropout) * Upper::new(row.lse_gradient_magnitude_hi)
    }

    fn dp_error(&self, i: usize) -> Upper {
        let sum = Sum::contiguous(
            self.problem.value_dim,
            Upper::new(self.row.dp_mass_hi[i]),
            Upper::new(self.row.dp_magnitude_hi[i]),
            accumulation::aligned(self.problem.format, self.problem.format),
        );
        let tiny = weight::sum_underflow(self.profile, self.profile.score_accumulation)
            * Upper::count(2 * self.problem.value_dim);
        accumulation::error(self.profile.score_accumulation, &sum) + tiny
    }

    /// `P^ (dP^ - D^ + g) c^`, before it is rounded to the weight format.
    fn product(&self, factors: &Factors) -> ScoreGradient {
        let Factors { probability, centred, difference, slope, roundings } = *factors;
        let tiny = weight::underflow(self.profile);
        let p = probability.exact;
        let relative = weight::unit(self.profile).compound(roundings + slope.roundings);
        let computed_slope = slope.exact + slope.error;
        // p F_i, and p (1 + F_i).
        let error = probability.error + probability.computed() * relative;
        let computed = p + error;
        let own = (centred + self.delta) * (error * slope.exact + computed * slope.error)
            + difference * computed * computed_slope;
        let pull = p * slope.exact;
        let exact = pull * centred;
        let computed_centre = centred + self.delta + difference;
        // The exponential, the two differences and the products can each lose what underflows.
        let lost = weight::exponential_underflow(self.profile) * computed_centre * computed_slope
            + tiny * (Upper::new(2.0) * p * computed_slope + Upper::count(1 + slope.roundings));
        let lost = lost * dropout_growth(self.problem);
        ScoreGradient {
            exact,
            pull,
            computed: self.common * (exact + self.delta * pull + own) + lost,
            error: self.common * own + lost,
        }
    }
}

/// The factors of a score gradient, and what each can be off by.
struct Factors {
    probability: Probability,
    /// `|T_i|`.
    centred: Upper,
    /// What `T_i` can be off by.
    difference: Upper,
    slope: Slope,
    /// How many relative roundings differences and product take.
    roundings: usize,
}
