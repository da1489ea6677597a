//! `dQ` of the rows that read a key head, and `dK` and `dV` of its keys.

use std::collections::BTreeMap;

use flashproof_oracle::backward::{ExpectedGradient, KeyGradientRow, KeyIndex};
use flashproof_oracle::error::OracleError;
use flashproof_oracle::row::RowIndex;
use flashproof_spec::bound::gradient::{
    Contribution, QueryEntry, key_gradient, query_gradient, value_gradient,
};
use flashproof_spec::bound::strict::{self, StrictContribution};
use flashproof_spec::problem::Problem;
use flashproof_spec::tensor::Tensor;
use ndarray::{Axis, s};
use rayon::prelude::*;

use super::element::Judge;
use super::row_errors::{Errors, RowErrors};
use super::{GradientAnswer, NO_BOUND, judge_each};
use crate::verdict::element::Compared;
use crate::verdict::place::{Location, Quantity};
use crate::verdict::rows::Answer;
use crate::verdict::strict::put;
use crate::verdict::tally::Tally;

/// One key head, with the errors of the rows that its gradients are sums over.
pub(super) struct KeyHead<'e> {
    of: &'e Errors<'e>,
    /// Of every row that sees one of the keys that are judged, and has a bound.
    errors: BTreeMap<RowIndex, RowErrors>,
    /// Whether those cover every key that the row sees.
    cover_all: bool,
}

impl<'e> KeyHead<'e> {
    /// `keys` are those of one head whose gradients are to be judged.
    pub(super) fn new(of: &'e Errors<'e>, keys: &[KeyIndex]) -> Result<Self, OracleError> {
        let problem = of.answer.forward.problem;
        let cover_all = keys.len() == problem.key_len;
        let mut head = Self { of, errors: BTreeMap::new(), cover_all };
        let Some(&KeyIndex { batch, key_head, .. }) = keys.first() else { return Ok(head) };
        let positions: Vec<_> = keys.iter().map(|key| key.key).collect();
        let covered = (!cover_all).then_some(&positions[..]);
        head.errors = readers(problem, batch, key_head)
            .into_par_iter()
            .filter_map(|row| match of.of_row(row, covered) {
                Ok(errors) => errors.map(|errors| Ok((row, errors))),
                Err(error) => Some(Err(error)),
            })
            .collect::<Result<_, _>>()?;
        Ok(head)
    }

    pub(super) fn judge(
        &self,
        rows: &[RowIndex],
        keys: &[KeyIndex],
        visit: &(impl Fn(&[Compared]) + Sync),
    ) -> Result<Tally, OracleError> {
        let of_queries = judge_each(rows, visit, |&row| self.compare_query(row))?;
        let of_keys = judge_each(keys, visit, |&key| self.compare_key(key))?;
        Ok(of_queries.merged(of_keys))
    }

    /// Every element of one row of `dQ`.
    fn compare_query(&self, index: RowIndex) -> Result<Vec<Compared>, OracleError> {
        let Answer { problem, profile, inputs, .. } = self.of.answer.forward;
        let RowIndex { batch, head, query } = index;
        let expected = self.of.backward.query_gradient_row(index)?;
        let computed;
        let errors = if self.cover_all {
            self.errors.get(&index)
        } else {
            computed = self.of.of_row(index, None)?;
            computed.as_ref()
        };
        let sees_none = inputs.visible_keys(problem, batch, head, query).is_empty();
        let keys = inputs.key.view4();
        let keys = keys.slice(s![batch, problem.key_head_of(head), .., ..]);
        let bound = |entry: usize| {
            let Some(RowErrors { keys: visible, errors, .. }) = errors else { return NO_BOUND };
            let column = keys.column(entry).select(Axis(0), visible);
            let entry = QueryEntry {
                keys: &column.to_vec(),
                gradient_hi: expected.query[entry].magnitude_hi(),
                mean_key_hi: expected.mean_key_hi[entry],
            };
            query_gradient(problem, profile, errors, entry)
        };
        let admitted = |entry: usize| {
            let RowErrors { keys: visible, strict, .. } = errors?;
            let column = keys.column(entry).select(Axis(0), visible);
            strict::query_gradient(problem, profile, strict.as_ref()?, &column.to_vec())
        };
        let got = self.of.answer.gradients.query.view4();
        Ok(expected
            .query
            .iter()
            .enumerate()
            .map(|(entry, expected)| {
                let judge = Judge {
                    quantity: Quantity::QueryGradient,
                    location: Location::of_row(index, Some(entry)),
                    got: got[[batch, head, query, entry]],
                };
                put(judge.compare(expected, sees_none, || bound(entry)), || admitted(entry))
            })
            .collect())
    }

    /// Every element of one key's rows of `dK` and `dV`.
    fn compare_key(&self, index: KeyIndex) -> Result<Vec<Compared>, OracleError> {
        let GradientAnswer { forward, cotangents, gradients, .. } = self.of.answer;
        let row = self.of.backward.key_gradient_row(index)?;
        let contributions = self.contributions(&row);
        let strict = self.strict_contributions(&row);
        let key = KeySum {
            quantity: Quantity::KeyGradient,
            expected: &row.key,
            got: &gradients.key,
            factors: &forward.inputs.query,
        };
        let value = KeySum {
            quantity: Quantity::ValueGradient,
            expected: &row.value,
            got: &gradients.value,
            factors: &cotangents.output,
        };
        let terms = (contributions.as_deref(), strict.as_deref());
        let compare = |sum| self.compare_sum(&sum, &row, terms);
        Ok([key, value].into_iter().flat_map(compare).collect())
    }

    /// Every element of one key's row of `dK` or `dV`.
    fn compare_sum(
        &self,
        sum: &KeySum<'_>,
        row: &KeyGradientRow,
        (contributions, strict): (Option<&[Contribution<'_>]>, Option<&[StrictContribution<'_>]>),
    ) -> Vec<Compared> {
        let Answer { problem, profile, .. } = self.of.answer.forward;
        let KeyIndex { batch, key_head, key } = row.index;
        let (got, factors) = (sum.got.view4(), sum.factors.view4());
        let bound = |entry: usize| {
            let Some(contributions) = contributions else { return NO_BOUND };
            let terms: Vec<_> = (contributions.iter().zip(&row.contributors))
                .map(|(it, row)| Contribution {
                    factor: factors[[row.batch, row.head, row.query, entry]],
                    ..*it
                })
                .collect();
            let bound = match sum.quantity {
                Quantity::ValueGradient => value_gradient,
                _ => key_gradient,
            };
            bound(problem, profile, &terms, sum.expected[entry].magnitude_hi())
        };
        let admitted = |entry: usize| {
            let terms: Vec<_> = (strict?.iter().zip(&row.contributors))
                .map(|(it, row)| StrictContribution {
                    factor: factors[[row.batch, row.head, row.query, entry]],
                    ..*it
                })
                .collect();
            let admitted = match sum.quantity {
                Quantity::ValueGradient => strict::value_gradient,
                _ => strict::key_gradient,
            };
            admitted(problem, profile, &terms)
        };
        let compare = |(entry, expected)| {
            let judge = Judge {
                quantity: sum.quantity,
                location: Location::of_key(row.index, entry),
                got: got[[batch, key_head, key, entry]],
            };
            let compared = judge.compare(expected, row.contributors.is_empty(), || bound(entry));
            put(compared, || admitted(entry))
        };
        sum.expected.iter().enumerate().map(compare).collect()
    }

    /// What each row that sees the key brings to its gradients, but for the factor; `None` where some
    /// row has no bound.
    fn contributions(&self, key: &KeyGradientRow) -> Option<Vec<Contribution<'_>>> {
        key.contributors
            .iter()
            .map(|row| {
                let RowErrors { keys, errors, .. } = self.errors.get(row)?;
                let key = keys.binary_search(&key.index.key).ok()?;
                Some(Contribution { row: errors, key, factor: 0.0 })
            })
            .collect()
    }

    /// The same as the strict gate has it; `None` where that does not apply to some row.
    fn strict_contributions(&self, key: &KeyGradientRow) -> Option<Vec<StrictContribution<'_>>> {
        key.contributors
            .iter()
            .map(|row| {
                let RowErrors { keys, strict, .. } = self.errors.get(row)?;
                let key = keys.binary_search(&key.index.key).ok()?;
                Some(StrictContribution { row: strict.as_ref()?, key, factor: 0.0 })
            })
            .collect()
    }
}

/// A gradient that is a sum over the query rows that see a key.
struct KeySum<'r> {
    quantity: Quantity,
    expected: &'r [ExpectedGradient],
    got: &'r Tensor,
    /// What multiplies a row's probability or score gradient.
    factors: &'r Tensor,
}

/// The rows of the query heads that read a key head.
fn readers(problem: &Problem, batch: usize, key_head: usize) -> Vec<RowIndex> {
    (0..problem.query_heads)
        .filter(|&head| problem.key_head_of(head) == key_head)
        .flat_map(|head| (0..problem.query_len).map(move |query| RowIndex { batch, head, query }))
        .collect()
}
