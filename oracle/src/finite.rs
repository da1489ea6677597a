//! A row of finite scores: enclosures at a rising precision until every element is decided.

use std::cmp::Ordering;

use flashproof_spec::bound::RowCondition;
use flashproof_spec::format::Format;
use rug::Integer;

use crate::condition::{Bounded, condition};
use crate::enclosure::Enclosure;
use crate::numerator::{NARROW_PRECISION, Values, numerators};
use crate::ranking::{Ranking, RowScores};
use crate::round::{self, Decision};
use crate::row::{Exact, RowEnclosures};
use crate::scale::{ExactScale, dyadic};
use crate::tie;
use crate::weights::Weights;

/// Bits that the first working precision has beyond the formats': for the sum over the keys, for
/// moderate cancellation, and to make an undecided element rare.
const GUARD_BITS: u32 = 32;

/// Bits by which endpoints of outputs are finer than the weights' grid, for the value entries' own.
const QUOTIENT_BITS: u32 = 8;

/// No higher working precision is tried on scores with a softcap: no theorem says that it would end, and
/// what this one leaves open are scores that differ by less, such as those near the cap.
const TRANSCENDENTAL_PRECISION: u32 = 1 << 12;

/// Everything exact about a row.
#[derive(Debug)]
pub(crate) struct FiniteRow<'a> {
    /// Of each weighted key, at least one.
    pub(crate) scores: RowScores,
    pub(crate) magnitudes: Magnitudes,
    pub(crate) values: Values<'a>,
    /// Columns whose values are all finite.
    pub(crate) columns: Vec<usize>,
    /// How many columns there are.
    pub(crate) value_dim: usize,
}

/// What the condition needs of scores beyond the scores.
#[derive(Debug)]
pub(crate) struct Magnitudes {
    pub(crate) scale: ExactScale,
    /// Upper bound on the mass of each dot product; infinite with an infinite one.
    pub(crate) masses: Vec<f64>,
    /// Upper bound on what is added to each score; empty where nothing is.
    pub(crate) addends: Vec<f64>,
    /// Places of the keys whose argument of the softcap is infinite.
    pub(crate) saturated: Vec<usize>,
    /// The sink's logit.
    pub(crate) logit: Option<f64>,
}

/// Where elements are rounded to, and how far to go.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Target {
    pub(crate) output_format: Format,
    pub(crate) lse_format: Format,
    pub(crate) max_precision: u32,
}

/// A row's elements; outputs stand in the order of the row's `columns`.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) outputs: Vec<Exact>,
    pub(crate) lse: Exact,
    pub(crate) condition: RowCondition,
}

/// A row with its keys in order of score.
struct Level<'a> {
    row: &'a FiniteRow<'a>,
    ranking: Ranking<'a>,
}

impl FiniteRow<'_> {
    /// The elements, enclosed at one working precision.
    pub(crate) fn enclose(&self, precision: u32) -> RowEnclosures {
        let level = Level::new(self);
        let (weights, normalizer) = level.weights(precision);
        RowEnclosures {
            outputs: level.outputs(&self.columns, &weights, &normalizer),
            lse: level.ranking.lse(&normalizer, precision),
        }
    }

    /// The elements, rounded.
    pub(crate) fn answer(&self, target: Target) -> Answer {
        let level = Level::new(self);
        let mut precision =
            first_precision(target.output_format.precision().max(target.lse_format.precision()));
        let (weights, normalizer) = level.weights(precision);
        let mut outputs: Vec<Exact> = level
            .outputs(&self.columns, &weights, &normalizer)
            .into_iter()
            .zip(&self.columns)
            .map(|(enclosure, &column)| level.round_output(enclosure, column, target))
            .collect();
        let mut lse = level.round_lse(level.ranking.lse(&normalizer, precision), target);
        while precision <= level.max_precision(target) / 2 {
            let open: Vec<usize> =
                (0..outputs.len()).filter(|&entry| outputs[entry].rounded.is_none()).collect();
            if open.is_empty() && lse.rounded.is_some() {
                break;
            }
            precision *= 2;
            level.refine(precision, &open, &mut outputs, &mut lse, target);
        }
        let condition = level.condition(&weights, &normalizer, &outputs, &lse);
        Answer { outputs, lse, condition }
    }
}

impl<'a> Level<'a> {
    fn new(row: &'a FiniteRow<'a>) -> Self {
        Self { row, ranking: Ranking::new(&row.scores) }
    }

    fn max_precision(&self, target: Target) -> u32 {
        if self.ranking.is_algebraic() {
            target.max_precision
        } else {
            target.max_precision.min(TRANSCENDENTAL_PRECISION)
        }
    }

    fn weights(&self, precision: u32) -> (Weights, (Integer, Integer)) {
        let weights = self.ranking.weights(precision);
        let groups = &self.ranking.groups;
        let normalizer = weights.normalizer((0..groups.len()).map(|group| groups.terms(group)));
        (weights, normalizer)
    }

    /// `o_j = N_j / l` in these columns. Both are in units of the weights' grid, which cancels.
    fn outputs(
        &self,
        columns: &[usize],
        weights: &Weights,
        normalizer: &(Integer, Integer),
    ) -> Vec<Enclosure> {
        let digits = weights.precision + QUOTIENT_BITS;
        let exponent = self.row.values.exponent();
        let normalizer = Enclosure::new(dyadic(&normalizer.0, 0), dyadic(&normalizer.1, 0));
        numerators(self.row.values, &self.ranking.groups, weights, columns)
            .into_iter()
            .map(|(lo, hi)| Enclosure::new(dyadic(&lo, exponent), dyadic(&hi, exponent)))
            .map(|numerator| numerator.div(&normalizer, digits))
            .collect()
    }

    /// Encloses and rounds again what a lower precision left open.
    fn refine(
        &self,
        precision: u32,
        open: &[usize],
        outputs: &mut [Exact],
        lse: &mut Exact,
        target: Target,
    ) {
        let (weights, normalizer) = self.weights(precision);
        let columns: Vec<usize> = open.iter().map(|&entry| self.row.columns[entry]).collect();
        let refined = self.outputs(&columns, &weights, &normalizer);
        for ((&entry, enclosure), column) in open.iter().zip(refined).zip(columns) {
            outputs[entry] = self.round_output(enclosure, column, target);
        }
        if lse.rounded.is_none() {
            *lse = self.round_lse(self.ranking.lse(&normalizer, precision), target);
        }
    }

    fn round_output(&self, enclosure: Enclosure, column: usize, target: Target) -> Exact {
        let format = target.output_format;
        let rounded = match round::decide(&enclosure, format) {
            Decision::Value(value) => Some(value),
            Decision::Open => None,
            Decision::Midpoint(midpoint) => {
                let FiniteRow { values, .. } = *self.row;
                tie::compare_output(&midpoint, column, values, &self.ranking, target.max_precision)
                    .map(|side| match side {
                        Ordering::Less => round::below(&midpoint, format),
                        Ordering::Equal => round::nearest(&midpoint, format),
                        Ordering::Greater => round::above(&midpoint, format),
                    })
            }
        };
        Exact { enclosure, rounded }
    }

    fn round_lse(&self, enclosure: Enclosure, target: Target) -> Exact {
        let rounded = self.ranking.round_lse(&enclosure, target.lse_format);
        Exact { enclosure, rounded }
    }

    fn condition(
        &self,
        weights: &Weights,
        normalizer: &(Integer, Integer),
        outputs: &[Exact],
        lse: &Exact,
    ) -> RowCondition {
        let FiniteRow { scores, magnitudes, .. } = self.row;
        let bounded = Bounded { scores, magnitudes, ranking: &self.ranking, weights, normalizer };
        let mut columns = vec![None; self.row.value_dim];
        for (&column, output) in self.row.columns.iter().zip(outputs) {
            columns[column] = Some(&output.enclosure);
        }
        condition(bounded, &lse.enclosure, &columns)
    }
}

/// The lowest doubling of [`NARROW_PRECISION`] that leaves [`GUARD_BITS`] beyond a format's bits.
pub(crate) fn first_precision(format_bits: u32) -> u32 {
    let mut precision = NARROW_PRECISION;
    while precision < format_bits + GUARD_BITS {
        precision *= 2;
    }
    precision
}
