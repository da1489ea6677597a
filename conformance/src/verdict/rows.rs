//! The rows of a case against the oracle.

use flashproof_oracle::error::OracleError;
use flashproof_oracle::forward::{Options, Oracle};
use flashproof_oracle::row::{Row, RowIndex};
use flashproof_spec::bound::{self, Bound, ForwardBounds, NoBound};
use flashproof_spec::problem::Problem;
use flashproof_spec::profile::Profile;
use flashproof_spec::tensor::{Inputs, Outputs};
use ndarray::{ArrayView1, Axis, s};
use rayon::prelude::*;

use super::element::{Compared, Judge};
use super::place::{Location, Quantity};
use super::tally::Tally;
use crate::adapter::{Choices, LseBase};

/// What a kernel answered, to what, and under which contract.
#[derive(Clone, Copy, Debug)]
pub struct Answer<'a> {
    /// What was to be computed.
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
    let options = Options::new(answer.profile.lse_format);
    let oracle = Oracle::new(answer.problem, answer.inputs, options)?;
    let judge_row = |&index: &RowIndex| {
        let compared = answer.compare(&oracle.row(index)?);
        visit(&compared);
        Ok(Tally::of_row(index, &compared))
    };
    rows.par_iter().map(judge_row).try_reduce(Tally::default, |a, b| Ok(a.merged(b)))
}

impl Answer<'_> {
    /// Every row of the problem, ascending.
    #[must_use]
    pub fn every_row(&self) -> Vec<RowIndex> {
        let Problem { batch, query_heads, query_len, .. } = *self.problem;
        ndarray::indices((batch, query_heads, query_len))
            .into_iter()
            .map(|(batch, head, query)| RowIndex { batch, head, query })
            .collect()
    }

    /// Every element of the row, with what it should be.
    fn compare(&self, row: &Row) -> Vec<Compared> {
        let RowIndex { batch, head, query } = row.index;
        let bounds = self.bounds(row);
        let judge = Judge {
            quantity: Quantity::Output,
            special_clause: self.special_clause(row),
            empty: row.visible.is_empty(),
            empty_row: self.choices.empty_row,
            base: LseBase::Natural,
        };
        let output = self.outputs.output.view4();
        let mut compared: Vec<_> = (row.outputs.iter().zip(&bounds.output).enumerate())
            .map(|(entry, (expected, &bound))| {
                let got = output[[batch, head, query, entry]];
                judge.compare(Location::of_row(row.index, Some(entry)), got, expected, bound)
            })
            .collect();
        if let Some(lse) = &self.outputs.lse {
            let judge = Judge { quantity: Quantity::Lse, base: self.choices.lse_base, ..judge };
            let got = lse.view3()[[batch, head, query]];
            let location = Location::of_row(row.index, None);
            compared.push(judge.compare(location, got, &row.lse, bounds.lse));
        }
        compared
    }

    /// The bounds of a row; where it has no condition, none is asked for.
    pub(super) fn bounds(&self, row: &Row) -> ForwardBounds {
        let Some(condition) = &row.condition else {
            let none = Bound::None(NoBound::Overflow);
            return ForwardBounds { output: vec![none; row.outputs.len()], lse: none };
        };
        let head = self.problem.key_head_of(row.index.head);
        let values = self.inputs.value.view4();
        let visible =
            values.slice(s![row.index.batch, head, .., ..]).select(Axis(0), &row.weighted);
        // A column that holds an infinity or a NaN is judged by those, not by a bound.
        let finite = visible.mapv_into(|value| if value.is_finite() { value } else { 0.0 });
        bound::forward(self.problem, self.profile, condition, &finite.view())
    }

    /// The clause that decides what a row holding no ordinary number should be.
    fn special_clause(&self, row: &Row) -> &'static str {
        let RowIndex { batch, head, query } = row.index;
        let key_head = self.problem.key_head_of(head);
        let (keys, values) = (self.inputs.key.view4(), self.inputs.value.view4());
        let nan_at = |key: usize| {
            [&keys, &values].iter().any(|it| has_nan(&it.slice(s![batch, key_head, key, ..])))
        };
        let queries = self.inputs.query.view4();
        let any = has_nan(&queries.slice(s![batch, head, query, ..]))
            || row.visible.iter().any(|&key| nan_at(key));
        if any { "FAS:fwd.special.nan" } else { "FAS:fwd.special.infinity" }
    }
}

fn has_nan(entries: &ArrayView1<'_, f64>) -> bool {
    entries.iter().any(|entry| entry.is_nan())
}
