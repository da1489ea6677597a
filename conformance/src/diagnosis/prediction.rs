//! What a faulty kernel would answer for a row, and whether that is what it answered.
//!
//! Nearly every fault of a forward kernel is a wrong pair of weights: `o = sum a_i z_i v_i / sum b_i`
//! and `L = ln sum b_i`, with `a_i = b_i = e^(s_i)` over the visible keys where nothing is wrong, and
//! `z_i` the factor of dropout. A sink is a term without value.

use flashproof_spec::bound::{self, Bound, RowCondition};
use ndarray::Array2;

use super::reading::Score;
use super::row::RowModel;

/// One key's part in a predicted row.
#[derive(Clone, Copy, Debug)]
pub(super) struct Term {
    /// The key, or `None` for a position that has no value row.
    pub(super) key: Option<usize>,
    /// Its score as the fault has it.
    pub(super) score: Score,
    /// What its value is multiplied by: dropout's factor.
    pub(super) factor: f64,
    /// `ln a_i`: minus infinity where it is missing from the numerator.
    pub(super) log_numerator: f64,
    /// `ln b_i`: minus infinity where it is missing from the normalizer.
    pub(super) log_normalizer: f64,
}

impl Term {
    /// A key that takes part as its score says.
    pub(super) fn of(key: usize, score: Score) -> Self {
        let (log_numerator, log_normalizer) = (score.value, score.value);
        Self { key: Some(key), score, factor: 1.0, log_numerator, log_normalizer }
    }

    /// A position of this score that has no value: a sink, or padding.
    pub(super) fn without_value(score: f64) -> Self {
        Self {
            key: None,
            score: Score { value: score, ..Score::default() },
            factor: 1.0,
            log_numerator: f64::NEG_INFINITY,
            log_normalizer: score,
        }
    }
}

/// What becomes of the logarithm of the normalizer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LseForm {
    /// `m + ln l`.
    Natural,
    /// `(m + ln l) / ln 2`.
    BaseTwo,
    /// `ln l`, the maximum forgotten.
    WithoutMaximum,
    /// `m`, the normalizer forgotten.
    MaximumOnly,
    /// `-(m + ln l)`.
    Negated,
    /// Over the keys alone.
    WithoutSink,
    /// With the sink counted once more.
    WithSinkAgain,
    /// Anything.
    Unknown,
}

/// A predicted row.
#[derive(Clone, Debug)]
pub(super) enum Prediction {
    /// Weighted values.
    Weighted(Weights),
    /// NaN in every entry of the output, whatever the LSE.
    Nan,
    /// Zero in every entry of the output, whatever the LSE.
    Zero,
}

/// The weights of a predicted row.
#[derive(Clone, Debug)]
pub(super) struct Weights {
    /// The key head whose values are read.
    pub(super) head: usize,
    /// The terms of numerator and normalizer.
    pub(super) terms: Vec<Term>,
    /// The form of the LSE.
    pub(super) lse: LseForm,
}

/// Relative slack for computing predictions in `f64`: dot products, exponentials and sums of the
/// suite's sizes err by less than `2^13` units of `2^-53`.
const PREDICTION_SLACK: f64 = 1.0 / (1_u64 << 40) as f64;

/// The logarithm of the normalizer, its maximum apart.
struct Normalizer {
    maximum: f64,
    sum: f64,
}

impl Normalizer {
    fn of(terms: &[Term]) -> Self {
        let logs = || terms.iter().map(|term| term.log_normalizer);
        let maximum = logs().fold(f64::NEG_INFINITY, f64::max);
        Self { maximum, sum: logs().map(|x| (x - maximum).exp()).sum() }
    }
}

impl Prediction {
    /// The same with another form of LSE.
    pub(super) fn with_lse(self, lse: LseForm) -> Self {
        match self {
            Self::Weighted(weights) => Self::Weighted(Weights { lse, ..weights }),
            Self::Nan | Self::Zero => self,
        }
    }

    /// Whether a kernel with this fault, within its declared profile, gives the row that was given.
    pub(super) fn explains(&self, row: &RowModel<'_>) -> bool {
        match self {
            Self::Weighted(weights) => weights.explain(row),
            Self::Nan => row.output.iter().all(|entry| entry.is_nan()),
            Self::Zero => row.output.iter().all(|&entry| entry == 0.0),
        }
    }
}

impl Weights {
    fn explain(&self, row: &RowModel<'_>) -> bool {
        let of_none = |term: &Term| term.log_normalizer == f64::NEG_INFINITY;
        if self.terms.iter().all(of_none) {
            return self.explains_nothing(row);
        }
        let normalizer = Normalizer::of(&self.terms);
        let finite = normalizer.maximum.is_finite()
            && self.terms.iter().all(|term| term.log_numerator < f64::INFINITY);
        // One entry at a time: a wrong hypothesis seldom survives the first.
        finite && (0..row.output.len()).all(|j| self.explains_entry(row, &normalizer, j))
    }

    /// Where nothing takes part the output is exactly zero, and the LSE infinite.
    fn explains_nothing(&self, row: &RowModel<'_>) -> bool {
        let explains_lse = |lse: f64| match self.lse {
            LseForm::Unknown => true,
            LseForm::Negated => lse == f64::INFINITY,
            _ => lse == f64::NEG_INFINITY,
        };
        row.output.iter().all(|&entry| entry == 0.0) && row.lse.is_none_or(explains_lse)
    }

    fn explains_entry(&self, row: &RowModel<'_>, normalizer: &Normalizer, j: usize) -> bool {
        let value = |key: usize| row.value(self.head, key, j);
        let values: Vec<f64> = (self.terms.iter())
            .map(|term| term.key.map_or(0.0, |key| term.factor * value(key)))
            .collect();
        let weighted = |log: fn(&Term) -> f64| {
            let share = move |term: &Term| (log(term) - normalizer.maximum).exp() / normalizer.sum;
            self.terms.iter().zip(&values).fold((0.0, 0.0), |(sum, mass), (term, v)| {
                let x = share(term) * v;
                (sum + x, mass + x.abs())
            })
        };
        let (output, mass) = weighted(|term| term.log_numerator);
        let (own, own_mass) = weighted(|term| term.log_normalizer);
        let condition = self.condition(normalizer, own, own_mass);
        let column = Array2::from_shape_vec((values.len(), 1), values);
        let Ok(column) = column else { return false };
        let bounds = bound::forward(&row.unsunk, row.profile, &condition, &column.view());
        // The bound is that of a row whose numerator has the normalizer's weights. Another numerator
        // errs in proportion to its own mass, and is stored with an error of its own.
        let swell = if own_mass > 0.0 { (mass / own_mass).max(1.0) } else { 1.0 };
        let stored = row.problem.format.unit_roundoff() * (output.abs() - own.abs()).max(0.0);
        let Bound::Within(bound) = bounds.output[0] else { return false };
        let allowed = bound * swell + stored + PREDICTION_SLACK * mass;
        (row.output[j] - output).abs() <= allowed
            && (j > 0 || self.explains_lse(row, normalizer, bounds.lse))
    }

    fn explains_lse(&self, row: &RowModel<'_>, normalizer: &Normalizer, bound: Bound) -> bool {
        let Some(actual) = row.lse else { return true };
        if self.lse == LseForm::Unknown {
            return true;
        }
        if let Some(others) = self.lse_weights() {
            let normalizer = Normalizer::of(&others.terms);
            let bound = others.lse_bound(row, &normalizer);
            return others.explains_lse(row, &normalizer, bound);
        }
        // What bounds nothing explains everything, that is, nothing.
        let Bound::Within(bound) = bound else { return false };
        let logarithm = normalizer.sum.ln();
        let natural = normalizer.maximum + logarithm;
        let base = std::f64::consts::LN_2.recip();
        let (predicted, unit) = match self.lse {
            LseForm::BaseTwo => (natural * base, base),
            LseForm::WithoutMaximum => (logarithm, 1.0),
            LseForm::MaximumOnly => (normalizer.maximum, 1.0),
            LseForm::Negated => (-natural, 1.0),
            _ => (natural, 1.0),
        };
        let magnitude = normalizer.maximum.abs() + logarithm.abs();
        (actual - predicted).abs() <= unit * (bound + PREDICTION_SLACK * magnitude)
    }

    /// The row whose LSE is given, where it is another.
    fn lse_weights(&self) -> Option<Self> {
        let is_sink = |term: &&Term| term.key.is_none();
        let of_sink = self.terms.iter().filter(is_sink).copied();
        let terms = match self.lse {
            LseForm::WithoutSink => {
                self.terms.iter().filter(|term| !is_sink(term)).copied().collect()
            }
            LseForm::WithSinkAgain => self.terms.iter().copied().chain(of_sink).collect(),
            _ => return None,
        };
        Some(Self { terms, lse: LseForm::Natural, ..*self })
    }

    fn lse_bound(&self, row: &RowModel<'_>, normalizer: &Normalizer) -> Bound {
        let condition = self.condition(normalizer, 0.0, 0.0);
        let column = Array2::zeros((self.terms.len(), 1));
        bound::forward(&row.unsunk, row.profile, &condition, &column.view()).lse
    }

    /// The condition of the predicted row, for an entry whose output is `output`.
    fn condition(&self, normalizer: &Normalizer, output: f64, mass: f64) -> RowCondition {
        let Normalizer { maximum, sum } = *normalizer;
        let up = 1.0 + PREDICTION_SLACK;
        let slack = PREDICTION_SLACK * mass;
        let each = |f: &dyn Fn(&Term) -> f64| self.terms.iter().map(f).collect::<Vec<f64>>();
        let share = |term: &Term| (term.log_normalizer - maximum).exp() / sum;
        // A term that is missing from the normalizer has no weight and, for the bound, no gap.
        let gap = |term: &Term| {
            if term.log_normalizer == f64::NEG_INFINITY {
                0.0
            } else {
                maximum - term.log_normalizer
            }
        };
        RowCondition {
            gap_lo: each(&|term| gap(term) / up),
            gap_hi: each(&|term| gap(term) * up),
            product_magnitude_hi: each(&|term| term.score.product.abs() * up),
            addend_magnitude_hi: each(&|term| term.score.addend * up),
            cap_argument_lo: each(&|term| term.score.cap_argument / up),
            score_magnitude_hi: each(&|term| term.score.value.abs() * up),
            dot_mass_hi: each(&|term| term.score.mass * up),
            probability_lo: each(&|term| share(term) / up),
            probability_hi: each(&|term| share(term) * up),
            max_magnitude_hi: maximum.abs() * up,
            normalizer_lo: sum / up,
            normalizer_hi: sum * up,
            lse_magnitude_hi: (maximum + sum.ln()).abs() * up,
            output_lo: vec![output - slack],
            output_hi: vec![output + slack],
            sink: None,
            product_unit_hi: 1.0,
            value_unit_hi: 1.0,
        }
    }
}
