//! The gradients of a case against the oracle.
//!
//! One key head at a time, with the query heads that read it: `dQ` of those rows, and `dK` and `dV`,
//! which are sums over them. The bounds take the errors of the kernel's own output and LSE as
//! measured, so a forward pass that is wrong widens the bounds on its gradients, and is reported as
//! what it is.

mod element;

use std::collections::BTreeMap;

use flashproof_oracle::backward::{
    Backward, ConditionRequest, ExpectedGradient, KeyGradientRow, KeyIndex, LseKnowledge, Options,
};
use flashproof_oracle::error::OracleError;
use flashproof_oracle::forward::{self, Oracle};
use flashproof_oracle::row::RowIndex;
use flashproof_spec::bound::gradient::{
    Contribution, GradientRow, QueryEntry, key_gradient, query_gradient, value_gradient,
};
use flashproof_spec::bound::{Bound, NoBound};
use flashproof_spec::problem::Problem;
use flashproof_spec::tensor::{Cotangents, Gradients, Tensor};
use ndarray::{Axis, s};
use rayon::prelude::*;

use self::element::Judge;
use super::element::{Compared, most_error_in_nats};
use super::place::{Location, Quantity};
use super::rows::Answer;
use super::tally::Tally;
use crate::adapter::LseBase;

/// What a kernel answered in its backward pass, and from what.
#[derive(Clone, Copy, Debug)]
pub struct GradientAnswer<'a> {
    /// The forward pass that it starts from.
    pub forward: Answer<'a>,
    /// The upstream gradients that it was given.
    pub cotangents: &'a Cotangents,
    /// What it gave.
    pub gradients: &'a Gradients,
}

/// Judges `dQ` of the given rows, and `dK` and `dV` of the given keys, in parallel, holding the errors
/// of one key head's rows in memory at a time. `visit` is shown the elements of each row and of each
/// key, from any thread and in no particular order.
///
/// # Errors
/// [`OracleError`] when problem, tensors, rows and keys do not belong together.
pub fn judge_gradients(
    answer: &GradientAnswer<'_>,
    rows: &[RowIndex],
    keys: &[KeyIndex],
    visit: impl Fn(&[Compared]) + Sync,
) -> Result<Tally, OracleError> {
    let Answer { problem, inputs, profile, .. } = answer.forward;
    let oracles = Oracles {
        backward: Backward::new(
            problem,
            inputs,
            answer.cotangents,
            Options::new(profile.lse_format),
        )?,
        forward: Oracle::new(problem, inputs, forward::Options::new(profile.lse_format))?,
    };
    let mut heads: BTreeMap<(usize, usize), (Vec<RowIndex>, Vec<KeyIndex>)> = BTreeMap::new();
    for &row in rows {
        row.check(problem)?;
        let head = (row.batch, problem.key_head_of(row.head));
        heads.entry(head).or_default().0.push(row);
    }
    for &key in keys {
        heads.entry((key.batch, key.key_head)).or_default().1.push(key);
    }
    heads.into_values().try_fold(Tally::default(), |tally, (rows, keys)| {
        let head = KeyHead::new(answer, &oracles, &keys)?;
        Ok(tally.merged(head.judge(&rows, &keys, &visit)?))
    })
}

impl GradientAnswer<'_> {
    /// Every key of the problem, ascending.
    #[must_use]
    pub fn every_key(&self) -> Vec<KeyIndex> {
        let Problem { batch, key_heads, key_len, .. } = *self.forward.problem;
        ndarray::indices((batch, key_heads, key_len))
            .into_iter()
            .map(|(batch, key_head, key)| KeyIndex { batch, key_head, key })
            .collect()
    }
}

struct Oracles<'a> {
    backward: Backward<'a>,
    forward: Oracle<'a>,
}

/// One key head, with the errors of the rows that its gradients are sums over.
struct KeyHead<'o, 'a> {
    answer: &'o GradientAnswer<'a>,
    oracles: &'o Oracles<'a>,
    /// Of every row that sees one of the keys that are judged, and has a bound.
    errors: BTreeMap<RowIndex, RowErrors>,
    /// Whether those cover every key that the row sees.
    cover_all: bool,
}

/// How far a kernel's probabilities and score gradients of one row can be off.
struct RowErrors {
    /// The keys covered, ascending.
    keys: Vec<usize>,
    errors: GradientRow,
}

impl<'o, 'a> KeyHead<'o, 'a> {
    /// `keys` are those of one head whose gradients are to be judged.
    fn new(
        answer: &'o GradientAnswer<'a>,
        oracles: &'o Oracles<'a>,
        keys: &[KeyIndex],
    ) -> Result<Self, OracleError> {
        let problem = answer.forward.problem;
        let cover_all = keys.len() == problem.key_len;
        let mut head = Self { answer, oracles, errors: BTreeMap::new(), cover_all };
        let Some(&KeyIndex { batch, key_head, .. }) = keys.first() else { return Ok(head) };
        let positions: Vec<_> = keys.iter().map(|key| key.key).collect();
        let covered = (!cover_all).then_some(&positions[..]);
        head.errors = readers(problem, batch, key_head)
            .into_par_iter()
            .filter_map(|row| match head.row_errors(row, covered) {
                Ok(errors) => errors.map(|errors| Ok((row, errors))),
                Err(error) => Some(Err(error)),
            })
            .collect::<Result<_, _>>()?;
        Ok(head)
    }

    fn judge(
        &self,
        rows: &[RowIndex],
        keys: &[KeyIndex],
        visit: &(impl Fn(&[Compared]) + Sync),
    ) -> Result<Tally, OracleError> {
        let seen = |compared: Vec<Compared>| {
            visit(&compared);
            Tally::of_gradients(&compared)
        };
        let of_queries = rows
            .par_iter()
            .map(|&row| self.compare_query(row).map(seen))
            .try_reduce(Tally::default, |a, b| Ok(a.merged(b)))?;
        let of_keys = keys
            .par_iter()
            .map(|&key| self.compare_key(key).map(seen))
            .try_reduce(Tally::default, |a, b| Ok(a.merged(b)))?;
        Ok(of_queries.merged(of_keys))
    }

    /// The errors of a row; `None` where it has no visible keys or no real numbers, and where
    /// nothing bounds the LSE that the kernel works with.
    fn row_errors(
        &self,
        index: RowIndex,
        keys: Option<&[usize]>,
    ) -> Result<Option<RowErrors>, OracleError> {
        let Answer { problem, profile, outputs, .. } = self.answer.forward;
        let Some(lse) = self.lse_knowledge(index)? else { return Ok(None) };
        let request = ConditionRequest { index, lse, keys };
        let conditioned = self.oracles.backward.condition(outputs, request)?;
        Ok(conditioned.map(|it| RowErrors {
            errors: GradientRow::new(problem, profile, &it.condition),
            keys: it.keys,
        }))
    }

    /// What is known of the LSE that the kernel works with: a natural one is measured as it stands,
    /// one in base two in nats, and one that is not given lies within its forward bound.
    fn lse_knowledge(&self, index: RowIndex) -> Result<Option<LseKnowledge>, OracleError> {
        let answer = &self.answer.forward;
        let lse = answer.outputs.lse.as_ref();
        if lse.is_some() && answer.choices.lse_base == LseBase::Natural {
            return Ok(Some(LseKnowledge::Measured));
        }
        let row = self.oracles.forward.row(index)?;
        let within = match (lse, row.lse.exact()) {
            (_, None) => None,
            (Some(lse), Some(exact)) => {
                let got = lse.view3()[[index.batch, index.head, index.query]];
                Some(most_error_in_nats(got, &exact.enclosure))
            }
            (None, Some(_)) => match answer.bounds(&row).lse {
                Bound::Within(bound) => Some(bound),
                Bound::None(_) => None,
            },
        };
        Ok(within.map(LseKnowledge::Within))
    }

    /// Every element of one row of `dQ`.
    fn compare_query(&self, index: RowIndex) -> Result<Vec<Compared>, OracleError> {
        let Answer { problem, profile, inputs, .. } = self.answer.forward;
        let RowIndex { batch, head, query } = index;
        let expected = self.oracles.backward.query_gradient_row(index)?;
        let computed;
        let errors = if self.cover_all {
            self.errors.get(&index)
        } else {
            computed = self.row_errors(index, None)?;
            computed.as_ref()
        };
        let sees_none = problem.visible_keys(batch, head, query).is_empty();
        let keys = inputs.key.view4();
        let keys = keys.slice(s![batch, problem.key_head_of(head), .., ..]);
        let bound = |entry: usize| {
            let Some(RowErrors { keys: visible, errors }) = errors else { return NO_BOUND };
            let column = keys.column(entry).select(Axis(0), visible);
            let entry = QueryEntry {
                keys: &column.to_vec(),
                gradient_hi: expected.query[entry].magnitude_hi(),
                mean_key_hi: expected.mean_key_hi[entry],
            };
            query_gradient(problem, profile, errors, entry)
        };
        let got = self.answer.gradients.query.view4();
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
                judge.compare(expected, sees_none, || bound(entry))
            })
            .collect())
    }

    /// Every element of one key's rows of `dK` and `dV`.
    fn compare_key(&self, index: KeyIndex) -> Result<Vec<Compared>, OracleError> {
        let GradientAnswer { forward, cotangents, gradients } = self.answer;
        let row = self.oracles.backward.key_gradient_row(index)?;
        let contributions = self.contributions(&row);
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
        let compare = |sum| self.compare_sum(&sum, &row, contributions.as_deref());
        Ok([key, value].into_iter().flat_map(compare).collect())
    }

    /// Every element of one key's row of `dK` or `dV`.
    fn compare_sum(
        &self,
        sum: &KeySum<'_>,
        row: &KeyGradientRow,
        contributions: Option<&[Contribution<'_>]>,
    ) -> Vec<Compared> {
        let Answer { problem, profile, .. } = self.answer.forward;
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
        let compare = |(entry, expected)| {
            let judge = Judge {
                quantity: sum.quantity,
                location: Location::of_key(row.index, entry),
                got: got[[batch, key_head, key, entry]],
            };
            judge.compare(expected, row.contributors.is_empty(), || bound(entry))
        };
        sum.expected.iter().enumerate().map(compare).collect()
    }

    /// What each row that sees the key brings to its gradients, but for the factor; `None` where some
    /// row has no bound.
    fn contributions(&self, key: &KeyGradientRow) -> Option<Vec<Contribution<'_>>> {
        key.contributors
            .iter()
            .map(|row| {
                let RowErrors { keys, errors } = self.errors.get(row)?;
                let key = keys.binary_search(&key.index.key).ok()?;
                Some(Contribution { row: errors, key, factor: 0.0 })
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

const NO_BOUND: Bound = Bound::None(NoBound::Accumulation);

/// The rows of the query heads that read a key head.
fn readers(problem: &Problem, batch: usize, key_head: usize) -> Vec<RowIndex> {
    (0..problem.query_heads)
        .filter(|&head| problem.key_head_of(head) == key_head)
        .flat_map(|head| (0..problem.query_len).map(move |query| RowIndex { batch, head, query }))
        .collect()
}
