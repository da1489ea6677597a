//! The gradients of a case against the oracle.
//!
//! One key head at a time, with the query heads that read it: `dQ` of those rows, and `dK` and `dV`,
//! which are sums over them. Then `dBias`, a row of the bias at a time, and `dSink`, a query head at a
//! time, over the rows that share it. The bounds take the errors of the kernel's own output and LSE as
//! measured, so a forward pass that is wrong widens the bounds on its gradients, and is reported as
//! what it is.

mod bias;
mod element;
mod key_head;
mod row_errors;
mod sink;

use std::collections::BTreeMap;

use flashproof_oracle::backward::{BiasRowIndex, KeyIndex};
use flashproof_oracle::error::OracleError;
use flashproof_oracle::row::RowIndex;
use flashproof_spec::bound::{Bound, NoBound};
use flashproof_spec::problem::Problem;
use flashproof_spec::score::Sink;
use flashproof_spec::tensor::{Cotangents, Gradients};
use rayon::prelude::*;

use self::key_head::KeyHead;
use self::row_errors::Errors;
use super::element::Compared;
use super::rows::Answer;
use super::substitute::Substitute;
use super::tally::Tally;

/// What a kernel answered in its backward pass, and from what.
#[derive(Clone, Copy, Debug)]
pub struct GradientAnswer<'a> {
    /// The forward pass that it starts from.
    pub forward: Answer<'a>,
    /// The upstream gradients that it was given.
    pub cotangents: &'a Cotangents,
    /// What it gave.
    pub gradients: &'a Gradients,
    /// Rows of the forward pass that are proven wrong, ascending. What the kernel gave there may not be
    /// what it went on from, so their gradients are not put to the strict gate, which takes it to be.
    pub wrong_rows: &'a [RowIndex],
}

/// Which gradients of a problem are judged.
#[derive(Clone, Debug, Default)]
pub struct GradientPlaces {
    /// Rows of `dQ`.
    pub rows: Vec<RowIndex>,
    /// Keys, for `dK` and `dV`.
    pub keys: Vec<KeyIndex>,
    /// Rows of `dBias`.
    pub bias_rows: Vec<BiasRowIndex>,
    /// Query heads, for `dSink`.
    pub sinks: Vec<usize>,
}

/// Judges gradients at the given places, in parallel, holding in memory the errors of the rows that one
/// key head, one row of the bias, or a few query heads are read by. `visit` is shown the elements of
/// each row, key and sink, from any thread and in no particular order.
///
/// # Errors
/// [`OracleError`] when problem, tensors and places do not belong together.
pub fn judge_gradients(
    answer: &GradientAnswer<'_>,
    places: &GradientPlaces,
    visit: impl Fn(&[Compared]) + Sync,
) -> Result<Tally, OracleError> {
    let problem = answer.forward.problem;
    let without_sink = Substitute::without_sink(&answer.forward);
    let errors = Errors::new(answer, without_sink.as_ref())?;
    let mut heads: BTreeMap<(usize, usize), (Vec<RowIndex>, Vec<KeyIndex>)> = BTreeMap::new();
    for &row in &places.rows {
        row.check(problem)?;
        let head = (row.batch, problem.key_head_of(row.head));
        heads.entry(head).or_default().0.push(row);
    }
    for &key in &places.keys {
        heads.entry((key.batch, key.key_head)).or_default().1.push(key);
    }
    let mut tally = Tally::default();
    for (rows, keys) in heads.into_values() {
        let head = KeyHead::new(&errors, &keys)?;
        tally = tally.merged(head.judge(&rows, &keys, &visit)?);
    }
    let of_bias = judge_each(&places.bias_rows, &visit, |&row| bias::compare(&errors, row))?;
    let of_sinks = judge_each(&places.sinks, &visit, |&head| sink::compare(&errors, head))?;
    Ok(tally.merged(of_bias).merged(of_sinks))
}

/// The tally of what each of the items compares, in parallel.
fn judge_each<T: Sync>(
    items: &[T],
    visit: &(impl Fn(&[Compared]) + Sync),
    compare: impl Fn(&T) -> Result<Vec<Compared>, OracleError> + Sync,
) -> Result<Tally, OracleError> {
    let judge = |item| {
        let compared = compare(item)?;
        visit(&compared);
        Ok(Tally::of_gradients(&compared))
    };
    items.par_iter().map(judge).try_reduce(Tally::default, |a, b| Ok(a.merged(b)))
}

impl GradientAnswer<'_> {
    /// Everything there is to judge.
    #[must_use]
    pub fn every_place(&self) -> GradientPlaces {
        GradientPlaces {
            rows: self.forward.every_row(),
            keys: self.every_key(),
            bias_rows: self.every_bias_row(),
            sinks: self.every_sink(),
        }
    }

    /// Every key of the problem that is stored, ascending.
    #[must_use]
    pub fn every_key(&self) -> Vec<KeyIndex> {
        let problem = self.forward.problem;
        let Problem { batch, key_heads, key_len, .. } = *problem;
        ndarray::indices((batch, key_heads, key_len))
            .into_iter()
            .filter(|&(batch, _, key)| problem.has_key_row(batch, key))
            .map(|(batch, key_head, key)| KeyIndex { batch, key_head, key })
            .collect()
    }

    /// Every row of the bias, ascending; none without a bias.
    #[must_use]
    pub fn every_bias_row(&self) -> Vec<BiasRowIndex> {
        let [batch, heads, queries, _] = self.forward.problem.bias.map_or([0; 4], |it| it.shape);
        ndarray::indices((batch, heads, queries))
            .into_iter()
            .map(|(batch, head, query)| BiasRowIndex { batch, head, query })
            .collect()
    }

    /// Every query head whose sink has a gradient.
    #[must_use]
    pub fn every_sink(&self) -> Vec<usize> {
        match self.forward.problem.sink {
            Some(Sink::Logits(_)) => (0..self.forward.problem.query_heads).collect(),
            Some(Sink::Zero) | None => Vec::new(),
        }
    }
}

const NO_BOUND: Bound = Bound::None(NoBound::Accumulation);
