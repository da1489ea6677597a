//! The rows of a case against the oracle.

use flashproof_oracle::error::OracleError;
use flashproof_oracle::row::{Expected, Row, RowIndex};
use flashproof_spec::bound::{self, Bound, ForwardBounds, NoBound, RowCondition};
use flashproof_spec::mask::Site;
use flashproof_spec::problem::Problem;
use flashproof_spec::profile::Profile;
use flashproof_spec::tensor::{Inputs, Outputs};
use ndarray::{Array2, ArrayView1, s};
use rayon::prelude::*;

use super::convention::Convention;
use super::element::{Compared, Judge, Want};
use super::empty::Empty;
use super::place::{Location, Quantity};
use super::strict;
use super::substitute::{Dequantized, Oracles, Rows, Substitute};
use super::tally::Tally;
use crate::adapter::{Choices, EmptyRow};

/// What a kernel answered, to what, and under which contract.
#[derive(Clone, Copy, Debug)]
pub struct Answer<'a> {
    /// What was to be computed, as the kernel reads it ([`Choices::read`]).
    pub problem: &'a Problem,
    /// What the kernel was given.
    pub inputs: &'a Inputs,
    /// What it gave.
    pub outputs: &'a Outputs,
    /// How it declares to compute.
    pub profile: &'a Profile,
    /// Its declared choices.
    pub choices: Choices,
}

/// Judges the given rows, in parallel, holding a few at a time in memory. `visit` is shown each
/// row's elements, from any thread and in no particular order.
///
/// # Errors
/// [`OracleError`] when problem, inputs and rows do not belong together.
pub fn judge_rows(
    answer: &Answer<'_>,
    rows: &[RowIndex],
    visit: impl Fn(&[Compared]) + Sync,
) -> Result<Tally, OracleError> {
    let exact = Dequantized::of(answer);
    let without_sink = Substitute::without_sink(answer);
    let mean = Substitute::mean(answer);
    let oracles = Oracles::new(answer, exact.as_ref(), without_sink.as_ref(), mean.as_ref())?;
    let judge = RowJudge {
        answer,
        without_sink: without_sink.as_ref().map(|it| it.answer(answer)),
        mean: mean.as_ref().map(|it| it.answer(answer)),
    };
    let judge_row = |&index: &RowIndex| {
        let compared = judge.compare(&oracles.rows(index)?);
        visit(&compared);
        Ok(Tally::of_row(index, &compared))
    };
    rows.par_iter().map(judge_row).try_reduce(Tally::default, |a, b| Ok(a.merged(b)))
}

/// An answer, and the same as one to the substitutes of its problem.
struct RowJudge<'s> {
    answer: &'s Answer<'s>,
    without_sink: Option<Answer<'s>>,
    mean: Option<Answer<'s>>,
}

impl RowJudge<'_> {
    /// Every element of the row, with what it should be.
    fn compare(&self, rows: &Rows) -> Vec<Compared> {
        let answer = self.answer;
        let row = &rows.asked;
        let RowIndex { batch, head, query } = row.index;
        let empty = Empty::of(answer.problem, answer.inputs, row);
        let clause = empty.map_or_else(|| answer.special_clause(row), Empty::clause);
        let judge = Judge {
            quantity: Quantity::Output,
            exact_clause: clause,
            empty_row: empty.map_or(EmptyRow::Zero, |it| it.output(answer.choices)),
            empty_lse_may_be_nan: empty.is_some_and(|it| it.lse_may_be_nan(answer.choices)),
            convention: Convention::PLAIN,
        };
        let bounds = answer.bounds(row);
        let is_mean = empty.is_some() && judge.empty_row == EmptyRow::Mean;
        let mean = rows.mean.as_ref().zip(self.mean.as_ref()).filter(|_| is_mean);
        let output = answer.outputs.output.view4();
        let output = output.slice(s![batch, head, query, ..]);
        let mut compared = match (empty, mean) {
            (_, Some((mean, of_mean))) => {
                let compared = compare_outputs(&judge, &output, mean, &of_mean.bounds(mean));
                compared.into_iter().map(|compared| strict::put(compared, || None)).collect()
            }
            (Some(Empty::Sink { .. }), _) => compare_with_zeros(&judge, &output, row),
            _ => {
                let compared = compare_outputs(&judge, &output, row, &bounds);
                let admitted = answer.admitted(row);
                let both = compared.into_iter().zip(admitted);
                both.map(|(compared, admitted)| strict::put(compared, || admitted)).collect()
            }
        };
        let Some(lse) = &answer.outputs.lse else { return compared };
        let (row, bound) = match rows.without_sink.as_ref().zip(self.without_sink.as_ref()) {
            Some((row, of_keys)) => (row, of_keys.bounds(row).lse),
            None => (row, bounds.lse),
        };
        let convention = Convention::of_lse(answer.choices);
        let judge = Judge { quantity: Quantity::Lse, convention, ..judge };
        let (got, location) =
            (lse.view3()[[batch, head, query]], Location::of_row(row.index, None));
        compared.push(if is_mean {
            judge.require(location, got, Want::Unspecified)
        } else {
            judge.compare(location, got, &row.lse, bound)
        });
        compared
    }
}

fn compare_outputs(
    judge: &Judge,
    output: &ArrayView1<'_, f64>,
    row: &Row,
    bounds: &ForwardBounds,
) -> Vec<Compared> {
    let expected = row.outputs.iter().zip(&bounds.output);
    (output.iter().zip(expected).enumerate())
        .map(|(entry, (&got, (expected, &bound)))| {
            judge.compare(Location::of_row(row.index, Some(entry)), got, expected, bound)
        })
        .collect()
}

/// The outputs of a row in which nothing that has a value has a weight: exactly zero, but where a
/// value is not finite.
fn compare_with_zeros(judge: &Judge, output: &ArrayView1<'_, f64>, row: &Row) -> Vec<Compared> {
    (output.iter().zip(&row.outputs).enumerate())
        .map(|(entry, (&got, expected))| {
            let location = Location::of_row(row.index, Some(entry));
            match expected {
                Expected::Exact(_) => judge.require(location, got, Want::Zero),
                _ => judge.compare(location, got, expected, NO_BOUND),
            }
        })
        .collect()
}

const NO_BOUND: Bound = Bound::None(NoBound::Overflow);

impl Answer<'_> {
    /// Every row of the problem that is stored, ascending.
    #[must_use]
    pub fn every_row(&self) -> Vec<RowIndex> {
        let Problem { batch, query_heads, query_len, .. } = *self.problem;
        ndarray::indices((batch, query_heads, query_len))
            .into_iter()
            .filter(|&(batch, _, query)| self.problem.has_query_row(batch, query))
            .map(|(batch, head, query)| RowIndex { batch, head, query })
            .collect()
    }

    /// The bounds of a row; where it has no condition, none is asked for, but for the LSE of a sink
    /// alone.
    pub(crate) fn bounds(&self, row: &Row) -> ForwardBounds {
        let Some(condition) = &row.condition else {
            let lse = match Empty::of(self.problem, self.inputs, row) {
                Some(Empty::Sink { logit, .. }) => self.bound_of_sink(logit),
                _ => NO_BOUND,
            };
            return ForwardBounds { output: vec![NO_BOUND; row.outputs.len()], lse };
        };
        let values = self.kept_values(row);
        match self.descaled(row.index) {
            None => bound::forward(self.problem, self.profile, condition, &values.view()),
            Some((product_unit_hi, value_unit_hi)) => {
                let condition =
                    &RowCondition { product_unit_hi, value_unit_hi, ..condition.clone() };
                bound::forward(self.problem, self.profile, condition, &values.view())
            }
        }
    }

    /// What products of entries of query and key, and entries of values, of a row's head are multiplied
    /// by at most; `None` without descales.
    fn descaled(&self, RowIndex { batch, head, query }: RowIndex) -> Option<(f64, f64)> {
        let (quantization, descales) =
            self.problem.quantization.zip(self.inputs.descale.as_ref())?;
        let (key, value) = descales.largest_of(batch, self.problem.key_head_of(head));
        let query = descales.query.view3()[[batch, head, quantization.query.of(query)]];
        // Products of two f32 numbers are exact.
        Some((query * key, value))
    }

    /// What a value's entries are multiplied by.
    fn value_descale(&self, batch: usize, key_head: usize, key: usize) -> f64 {
        let descales = self.problem.quantization.zip(self.inputs.descale.as_ref());
        descales.map_or(1.0, |(quantization, descales)| {
            descales.value.view3()[[batch, key_head, quantization.value.of(key)]]
        })
    }

    /// The values of the weighted keys, each times its factor of dropout, `[key, entry]`.
    pub(crate) fn kept_values(&self, row: &Row) -> Array2<f64> {
        let RowIndex { batch, head, query } = row.index;
        let values = self.inputs.value.view4();
        let key_head = self.problem.key_head_of(head);
        let values = values.slice(s![batch, key_head, .., ..]);
        let kept = |(i, entry)| {
            let key = row.weighted[i];
            let value: f64 = values[[key, entry]] * self.value_descale(batch, key_head, key);
            let factor = self.problem.dropout_at(Site { batch, head, query, key });
            // A column that holds an infinity or a NaN is judged by those, not by a bound.
            if value.is_finite() { factor * value } else { 0.0 }
        };
        Array2::from_shape_fn((row.weighted.len(), values.ncols()), kept)
    }

    /// The bound on the LSE of a row that has a sink and no keys: that of a row with one key, whose
    /// product is zero and whose score is all bias.
    fn bound_of_sink(&self, logit: f64) -> Bound {
        let condition = RowCondition {
            gap_lo: vec![0.0],
            gap_hi: vec![0.0],
            product_magnitude_hi: vec![0.0],
            addend_magnitude_hi: vec![logit.abs()],
            cap_argument_lo: vec![0.0],
            score_magnitude_hi: vec![logit.abs()],
            dot_mass_hi: vec![0.0],
            probability_lo: vec![1.0],
            probability_hi: vec![1.0],
            max_magnitude_hi: logit.abs(),
            normalizer_lo: 1.0,
            normalizer_hi: 1.0,
            lse_magnitude_hi: logit.abs(),
            output_lo: vec![0.0],
            output_hi: vec![0.0],
            sink: None,
            product_unit_hi: 0.0,
            value_unit_hi: 0.0,
        };
        let problem = Problem { sink: None, softcap: None, ..self.problem.clone() };
        let values = Array2::zeros((1, 1));
        bound::forward(&problem, self.profile, &condition, &values.view()).lse
    }

    /// The clause that decides what a row holding no ordinary number should be.
    fn special_clause(&self, row: &Row) -> &'static str {
        let RowIndex { batch, head, query } = row.index;
        let key_head = self.problem.key_head_of(head);
        let (keys, values) = (self.inputs.key.view4(), self.inputs.value.view4());
        let nan_at = |key: usize| {
            [&keys, &values].iter().any(|it| has_nan(&it.slice(s![batch, key_head, key, ..])))
                || self.inputs.bias_at(self.problem, Site { batch, head, query, key }).is_nan()
        };
        let queries = self.inputs.query.view4();
        let any = has_nan(&queries.slice(s![batch, head, query, ..]))
            || self.inputs.sink_at(self.problem, head).is_some_and(f64::is_nan)
            || row.visible.iter().any(|&key| nan_at(key));
        if any { "FAS:fwd.special.nan" } else { "FAS:fwd.special.infinity" }
    }
}

fn has_nan(entries: &ArrayView1<'_, f64>) -> bool {
    entries.iter().any(|entry| entry.is_nan())
}
