//! The exact backward pass: gradients of queries, keys, values, bias and sinks, and what their bounds
//! depend on.
//!
//! With `p_i` the softmax of a row, `z_i` the factor of dropout, `c_i` the slope of a softcap, `dO` and `g`
//! the upstream gradients of the row's output and LSE (`FAS:bwd.*`):
//!
//! ```text
//! dP_i = sum_j dO_j v_ij     D = sum_i p_i z_i dP_i     dS_i = p_i (z_i dP_i - D + g)
//! dQ_rj = scale * sum_i c_ri dS_ri k_ij     dK_ij = scale * sum_r c_ri dS_ri q_rj
//! dV_ij = sum_r p_ri z_ri dO_rj
//! dBias = sum dS, or sum c dS where the softcap is taken of scores with the bias
//! dSink = sum_r p_r (g_r - D_r), with p the weight of the sink
//! ```
//!
//! `c` is 1 without a softcap and `1 - tanh^2` with one (`FAS:bwd.softcap.slope`), `z` is 1 without dropout
//! (`FAS:bwd.dropout.keep`); a sink counts in every `p`. `dK` and `dV` sum over the query rows that see the
//! key, in every query head that reads it; `dBias` over all that an entry is broadcast over
//! (`FAS:bwd.bias.reduce`); `dSink` over all rows of a head, where one without keys has `p = 1` and `D = 0`
//! (`FAS:bwd.sink.gradient`). All is computed from the inputs, nothing from an output or LSE that is
//! rounded:
//!
//! 1. Dot products, `dP_i` included, are exact integers on common grids (`group`). What is added to
//!    them is exact too (`score`).
//! 2. Each pair of query and key has an enclosed `p`, `dS` and `c`, of a fixed number of significant bits
//!    (`score`, `weight`, `row`). What a row's pairs share is computed once for each working precision.
//! 3. These multiply exact entries, in integers (`sum`), or are added up (`reduce`); sums without terms
//!    are exactly zero.
//! 4. Entries are rounded, at a rising precision where one does not decide (`settle`).
//!
//! A sum is exactly zero by construction where the row sees no key or the key is seen by no query
//! that keeps it, and where a mask or bias hides all sites of an entry of the bias. With `g = 0`, `dS` is
//! exactly zero where all `z_i dP_i` of a row are equal, the zero of a sink among them (`row`): without
//! dropout and sink where it sees one key, and for constant values; with either only if all those
//! products are zero, or if dropout treats all keys alike and there is no sink. Then `dQ` is exactly zero as
//! well; without softcap and sink it is so also where keys do not differ (`query`), and an entry of the bias
//! that is broadcast over keys too (`bias`). Rows of equal scores, the sink's among them, make rational
//! entries, which are compared with midpoints exactly. Other entries can be midpoints or zero
//! too, sums over rows above all, where no theorem at hand decides it. There the precision
//! rises to [`Options::max_precision`], and the answer is the enclosure alone.
//!
//! Memory grows with the number of query rows and of keys, never with their product.

mod answer;
mod bias;
mod condition;
mod dropout;
mod group;
mod key;
mod query;
mod reduce;
mod row;
mod score;
mod settle;
mod sink;
mod sum;
mod weight;

use std::sync::OnceLock;

use flashproof_spec::bound::strict::Centre;
use flashproof_spec::format::Format;
use flashproof_spec::problem::Problem;
use flashproof_spec::tensor::{Cotangents, Inputs, Outputs};
use rayon::prelude::*;

pub use answer::{
    BiasGradientRow, BiasRowIndex, ExpectedGradient, KeyGradientEnclosures, KeyGradientRow,
    KeyIndex, QueryGradientRow, SinkGradient,
};
pub use condition::{ConditionRequest, ConditionedRow, LseKnowledge};

use self::condition::Measured;
use self::group::{Group, RowKind};
use self::key::{KeyEntries, KeyGradient, ValueGradient};
use self::query::QueryEntries;
use self::settle::{Target, settle};
use self::weight::Exponential;
use crate::enclosure::Enclosure;
use crate::error::OracleError;
use crate::finite::first_precision;
use crate::forward::MIN_PRECISION;
use crate::row::RowIndex;

/// Bits by which endpoints of entries are finer than the working precision.
const RESULT_BITS: u32 = 8;

/// How far the oracle goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// Format of LSEs and of their upstream gradients.
    pub lse_format: Format,
    /// No working precision above this many bits is tried, but for the first one.
    pub max_precision: u32,
}

impl Options {
    /// Enough for a zero that comes from cancellation to round to zero in every format but `f64`,
    /// whose smallest positive number is `2^-1074`; those of the others are above `2^-150`.
    const MAX_PRECISION: u32 = 1 << 9;

    /// LSEs in `lse_format`.
    #[must_use]
    pub const fn new(lse_format: Format) -> Self {
        Self { lse_format, max_precision: Self::MAX_PRECISION }
    }
}

/// Exact gradients of attention on given inputs.
///
/// The inputs of a key head are prepared once, by the first question about it.
#[derive(Debug)]
pub struct Backward<'a> {
    problem: &'a Problem,
    inputs: &'a Inputs,
    cotangents: &'a Cotangents,
    options: Options,
    /// One for each key head of each batch member.
    groups: Vec<OnceLock<Group<'a>>>,
}

impl<'a> Backward<'a> {
    /// Checks the problem, its inputs and its upstream gradients.
    ///
    /// # Errors
    /// The first fault found in any of them.
    pub fn new(
        problem: &'a Problem,
        inputs: &'a Inputs,
        cotangents: &'a Cotangents,
        options: Options,
    ) -> Result<Self, OracleError> {
        problem.validate()?;
        inputs.check(problem)?;
        cotangents.check(problem, options.lse_format)?;
        let groups = (0..problem.batch * problem.key_heads).map(|_| OnceLock::new()).collect();
        Ok(Self { problem, inputs, cotangents, options, groups })
    }

    /// The exact gradient of one query. One that sees no key has a gradient of exactly zero.
    ///
    /// # Errors
    /// [`OracleError::Row`] when the problem has no such row.
    pub fn query_gradient_row(&self, index: RowIndex) -> Result<QueryGradientRow, OracleError> {
        let (group, member) = self.row(index)?;
        let head_dim = self.problem.head_dim;
        let all_alike = |entry: ExpectedGradient, mean_key_hi| QueryGradientRow {
            index,
            query: vec![entry; head_dim],
            mean_key_hi: vec![mean_key_hi; head_dim],
        };
        match group.kind(member) {
            RowKind::Empty => return Ok(all_alike(ExpectedGradient::zero(), 0.0)),
            RowKind::Unspecified => {
                return Ok(all_alike(ExpectedGradient::Unspecified, f64::INFINITY));
            }
            RowKind::Finite => {}
        }
        let visible = group.visible_keys(member);
        let columns: Vec<usize> = (0..head_dim).collect();
        let entries = QueryEntries { group, member, visible: &visible };
        let precision = self.first_precision();
        let pairs = entries.pairs(precision);
        let mean_key = entries.mean_key(&pairs, &columns);
        let first = entries.gradient(&pairs, &columns);
        let settled = settle(&entries, first, precision, self.target());
        Ok(QueryGradientRow {
            index,
            query: settled.into_iter().map(ExpectedGradient::Exact).collect(),
            mean_key_hi: mean_key.iter().map(Enclosure::magnitude_hi).collect(),
        })
    }

    /// The exact gradients of many queries, in the order asked for, computed in parallel; `progress`
    /// is called once a row, from any thread.
    ///
    /// # Errors
    /// [`OracleError::Row`] when the problem lacks one of the rows.
    pub fn query_gradient_rows(
        &self,
        rows: &[RowIndex],
        progress: impl Fn() + Sync,
    ) -> Result<Vec<QueryGradientRow>, OracleError> {
        in_parallel(rows, |&index| self.query_gradient_row(index), progress)
    }

    /// The exact gradients of one key and its value. A key that no query sees has gradients of
    /// exactly zero.
    ///
    /// # Errors
    /// [`OracleError::Key`] when the problem has no such key.
    pub fn key_gradient_row(&self, index: KeyIndex) -> Result<KeyGradientRow, OracleError> {
        let group = self.key_group(index)?;
        let rows = group.contributors(index.key);
        let (key, value) = self.key_gradients(group, index.key, &rows);
        let contributors = rows.iter().map(|&member| group.index(member)).collect();
        Ok(KeyGradientRow { index, key, value, contributors })
    }

    /// The exact gradients of many keys and their values, in the order asked for, computed in
    /// parallel; `progress` is called once a key, from any thread.
    ///
    /// # Errors
    /// [`OracleError::Key`] when the problem lacks one of the keys.
    pub fn key_gradient_rows(
        &self,
        keys: &[KeyIndex],
        progress: impl Fn() + Sync,
    ) -> Result<Vec<KeyGradientRow>, OracleError> {
        self.summarise_contributors(keys)?;
        in_parallel(keys, |&index| self.key_gradient_row(index), progress)
    }

    /// What the bounds on gradients need of one query row, with the kernel's own `outputs`; `None`
    /// for a row with entries that are not finite, and for one that sees no key and has no sink. A row
    /// that sees no key and has a sink has a condition without keys.
    ///
    /// # Errors
    /// [`OracleError::Row`] and [`OracleError::Key`] when the problem has no such row or key,
    /// [`OracleError::Inputs`] when the outputs are not the problem's, [`OracleError::NoLse`] when
    /// their LSE is to be measured and there is none.
    pub fn condition(
        &self,
        outputs: &Outputs,
        request: ConditionRequest<'_>,
    ) -> Result<Option<ConditionedRow>, OracleError> {
        outputs.check(self.problem, self.options.lse_format)?;
        let ConditionRequest { index, lse, keys } = request;
        let (group, member) = self.row(index)?;
        let visible = group.visible_keys(member);
        let keys = match keys {
            None => visible.clone(),
            Some(wanted) => self.seen(wanted, &visible)?,
        };
        let precision = self.first_precision();
        let measured = Measured { group, member, outputs, lse, precision };
        let condition = match group.kind(member) {
            RowKind::Finite => Some(measured.condition(&keys, &visible)?),
            RowKind::Empty => measured.condition_of_sink()?.map(|it| (it, Centre::default())),
            RowKind::Unspecified => None,
        };
        Ok(condition.map(|(condition, centre)| ConditionedRow { index, keys, condition, centre }))
    }

    /// The conditions of many rows, in the order asked for, computed in parallel; `progress` is
    /// called once a row, from any thread.
    ///
    /// # Errors
    /// As for [`Backward::condition`].
    pub fn conditions(
        &self,
        outputs: &Outputs,
        requests: &[ConditionRequest<'_>],
        progress: impl Fn() + Sync,
    ) -> Result<Vec<Option<ConditionedRow>>, OracleError> {
        in_parallel(requests, |&request| self.condition(outputs, request), progress)
    }

    /// The gradient of one query, enclosed at one working precision; `None` where it is not a sum of
    /// real numbers. The enclosures at twice the precision are contained in these
    /// (`FAS:oracle.enclosure`).
    ///
    /// # Errors
    /// [`OracleError::Row`] when the problem has no such row, [`OracleError::Precision`] for a
    /// precision below [`MIN_PRECISION`] or above [`Options::max_precision`].
    pub fn enclose_query_gradient(
        &self,
        index: RowIndex,
        precision: u32,
    ) -> Result<Option<Vec<Enclosure>>, OracleError> {
        self.check_precision(precision)?;
        let (group, member) = self.row(index)?;
        if group.kind(member) != RowKind::Finite {
            return Ok(None);
        }
        let visible = group.visible_keys(member);
        let columns: Vec<usize> = (0..self.problem.head_dim).collect();
        let entries = QueryEntries { group, member, visible: &visible };
        Ok(Some(entries.gradient(&entries.pairs(precision), &columns)))
    }

    /// The gradients of one key and its value, enclosed at one working precision; `None` where they
    /// are not sums of real numbers. The enclosures at twice the precision are contained in these
    /// (`FAS:oracle.enclosure`).
    ///
    /// # Errors
    /// [`OracleError::Key`] when the problem has no such key, [`OracleError::Precision`] for a
    /// precision below [`MIN_PRECISION`] or above [`Options::max_precision`].
    pub fn enclose_key_gradient(
        &self,
        index: KeyIndex,
        precision: u32,
    ) -> Result<Option<KeyGradientEnclosures>, OracleError> {
        self.check_precision(precision)?;
        let group = self.key_group(index)?;
        let rows = group.contributors(index.key);
        if rows.is_empty() || !all_finite(group, &rows) {
            return Ok(None);
        }
        let entries = KeyEntries { group, key: index.key, rows: &rows };
        let pairs = entries.pairs(precision);
        let (head_columns, value_columns) = self.key_columns();
        Ok(Some(KeyGradientEnclosures {
            key: KeyGradient(entries).gradient(&pairs, precision, &head_columns),
            value: ValueGradient(entries).gradient(&pairs, precision, &value_columns),
        }))
    }

    /// `dK` and `dV` of a key that these rows see.
    fn key_gradients(
        &self,
        group: &Group<'a>,
        key: usize,
        rows: &[usize],
    ) -> (Vec<ExpectedGradient>, Vec<ExpectedGradient>) {
        let Problem { head_dim, value_dim, .. } = *self.problem;
        let all_alike =
            |entry: ExpectedGradient| (vec![entry.clone(); head_dim], vec![entry; value_dim]);
        if rows.is_empty() {
            return all_alike(ExpectedGradient::zero());
        }
        if !all_finite(group, rows) {
            return all_alike(ExpectedGradient::Unspecified);
        }
        let entries = KeyEntries { group, key, rows };
        let precision = self.first_precision();
        let pairs = entries.pairs(precision);
        let (head_columns, value_columns) = self.key_columns();
        let key = KeyGradient(entries);
        let value = ValueGradient(entries);
        let d_key = key.gradient(&pairs, precision, &head_columns);
        let d_value = value.gradient(&pairs, precision, &value_columns);
        let exact = |entries: Vec<_>| entries.into_iter().map(ExpectedGradient::Exact).collect();
        (
            exact(settle(&key, d_key, precision, self.target())),
            exact(settle(&value, d_value, precision, self.target())),
        )
    }

    /// Computes in parallel what the keys' terms need of their rows. Keys in parallel meet the same
    /// rows in the same order, and would wait for each other.
    fn summarise_contributors(&self, keys: &[KeyIndex]) -> Result<(), OracleError> {
        keys.iter().try_for_each(|&index| self.key_group(index).map(drop))?;
        let mut sorted = keys.to_vec();
        sorted.sort_unstable();
        let head = |index: &KeyIndex| (index.batch, index.key_head);
        for keys in sorted.chunk_by(|a, b| head(a) == head(b)) {
            let group = self.key_group(keys[0])?;
            let exponential = Exponential::new(group.scale, self.first_precision());
            let contributes = |&member: &usize| {
                group.kind(member) == RowKind::Finite
                    && keys.iter().any(|index| group.sees(member, index.key))
            };
            (0..group.members()).into_par_iter().filter(contributes).for_each(|member| {
                group.summary(member, &exponential);
            });
        }
        Ok(())
    }

    fn first_precision(&self) -> u32 {
        first_precision(self.problem.format.precision())
    }

    const fn target(&self) -> Target {
        Target { format: self.problem.format, max_precision: self.options.max_precision }
    }

    /// All columns of a key, and of a value.
    fn key_columns(&self) -> (Vec<usize>, Vec<usize>) {
        ((0..self.problem.head_dim).collect(), (0..self.problem.value_dim).collect())
    }

    fn check_precision(&self, precision: u32) -> Result<(), OracleError> {
        let max_precision = self.options.max_precision;
        if (MIN_PRECISION..=max_precision).contains(&precision) {
            Ok(())
        } else {
            Err(OracleError::Precision { precision, max_precision })
        }
    }

    /// The group of a row, and the row's place in it, after a check that there is such a row.
    fn row(&self, index: RowIndex) -> Result<(&Group<'a>, usize), OracleError> {
        index.check(self.problem)?;
        let group = self.group(index.batch, self.problem.key_head_of(index.head));
        Ok((group, group.member(index)))
    }

    /// The group of a key, after a check that there is such a key.
    fn key_group(&self, index: KeyIndex) -> Result<&Group<'a>, OracleError> {
        let problem = self.problem;
        for (field, index, extent) in [
            ("batch", index.batch, problem.batch),
            ("key_head", index.key_head, problem.key_heads),
            ("key", index.key, problem.key_len),
        ] {
            if index >= extent {
                return Err(OracleError::Key { field, index, extent });
            }
        }
        Ok(self.group(index.batch, index.key_head))
    }

    fn group(&self, batch: usize, key_head: usize) -> &Group<'a> {
        let (problem, inputs, cotangents) = (self.problem, self.inputs, self.cotangents);
        self.groups[batch * problem.key_heads + key_head]
            .get_or_init(|| Group::new(problem, inputs, cotangents, batch, key_head))
    }

    /// Those of the wanted keys that are visible, ascending.
    fn seen(&self, wanted: &[usize], visible: &[usize]) -> Result<Vec<usize>, OracleError> {
        let extent = self.problem.key_len;
        if let Some(&index) = wanted.iter().find(|&&key| key >= extent) {
            return Err(OracleError::Key { field: "key", index, extent });
        }
        let mut wanted = wanted.to_vec();
        wanted.sort_unstable();
        wanted.dedup();
        wanted.retain(|key| visible.binary_search(key).is_ok());
        Ok(wanted)
    }
}

/// Answers questions in parallel, in order.
fn in_parallel<Q: Sync, A: Send>(
    questions: &[Q],
    answer: impl Fn(&Q) -> Result<A, OracleError> + Sync,
    progress: impl Fn() + Sync,
) -> Result<Vec<A>, OracleError> {
    questions
        .par_iter()
        .map(|question| {
            let answer = answer(question);
            progress();
            answer
        })
        .collect()
}

fn all_finite(group: &Group<'_>, rows: &[usize]) -> bool {
    rows.iter().all(|&member| group.kind(member) == RowKind::Finite)
}
