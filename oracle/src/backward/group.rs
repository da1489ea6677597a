//! The inputs of a key head and of the query heads that read it, and what is known of their rows.

use std::iter;
use std::sync::{Arc, OnceLock};

use flashproof_spec::mask::Site;
use flashproof_spec::problem::Problem;
use flashproof_spec::score::Addends;
use flashproof_spec::tensor::{Cotangents, Inputs, Tensor};
use ndarray::{Axis, CowArray, Ix2, Slice};
use rug::{Integer, Rational};

use super::dropout::KeptScale;
use super::row::{Kept, Pair, RationalPair, Scores, Summary, WeighedRow};
use super::score::{Score, ScoreRef, Weigher};
use super::weight::Exponential;
use crate::dot::dot;
use crate::enclosure::Enclosure;
use crate::grid::Grid;
use crate::head::Head;
use crate::numerator::NARROW_PRECISION;
use crate::row::RowIndex;
use crate::scale::ExactScale;
use crate::score::{Parts, ScoreRule};

/// How many working precisions, each twice the one before, are remembered for each row.
const LEVELS: usize = 8;

/// A key head of one batch member with the query heads that read it.
#[derive(Debug)]
pub(crate) struct Group<'a> {
    pub(crate) problem: &'a Problem,
    inputs: &'a Inputs,
    pub(crate) scale: ExactScale,
    /// How scores come from dot products and what is added to them.
    pub(crate) rule: ScoreRule,
    kept_scale: KeptScale,
    pub(crate) batch: usize,
    pub(crate) key_head: usize,
    pub(crate) head: Head<'a>,
    /// Queries, those of the first query head first.
    pub(crate) queries: Stack<'a>,
    /// `dO`, in the same order.
    pub(crate) cotangents: Stack<'a>,
    /// `g`, in the same order.
    lse_gradients: Vec<f64>,
    rows: Vec<RowCache>,
}

/// What is known of a row, once somebody asked.
#[derive(Debug, Default)]
struct RowCache {
    kind: OnceLock<RowKind>,
    summaries: [OnceLock<Arc<Summary>>; LEVELS],
}

/// What a row brings to the gradients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RowKind {
    /// Nothing: it sees no key.
    Empty,
    /// Numbers that are not finite.
    Unspecified,
    /// Real numbers.
    Finite,
}

/// The rows of several heads, as they are and on a grid.
#[derive(Debug)]
pub(crate) struct Stack<'a> {
    pub(crate) entries: CowArray<'a, f64, Ix2>,
    pub(crate) grid: Grid,
}

impl<'a> Group<'a> {
    pub(crate) fn new(
        problem: &'a Problem,
        inputs: &'a Inputs,
        cotangents: &'a Cotangents,
        batch: usize,
        key_head: usize,
    ) -> Self {
        let size = problem.query_heads / problem.key_heads;
        let heads = Slice::from(key_head * size..(key_head + 1) * size);
        let rows = size * problem.query_len;
        let stack = |tensor: &'a Tensor| {
            let entries = tensor.view4().index_axis_move(Axis(0), batch);
            let entries = entries.slice_axis_move(Axis(0), heads);
            let shape = (rows, entries.dim().2);
            let entries = entries.into_shape_with_order(shape).map_or_else(
                |_| CowArray::from(entries.to_shape(shape).expect("as many rows").into_owned()),
                CowArray::from,
            );
            Stack { grid: Grid::new(&entries.view()), entries }
        };
        let lse_gradients = cotangents.lse.as_ref().map_or_else(
            || vec![0.0; rows],
            |lse| {
                let lse = lse.view3().index_axis_move(Axis(0), batch);
                lse.slice_axis_move(Axis(0), heads).iter().copied().collect()
            },
        );
        let head = Head::new(problem, inputs, batch, key_head);
        let queries = stack(&inputs.query);
        let dot_exponent = queries.grid.exponent() + head.keys.grid.exponent();
        Self {
            problem,
            inputs,
            scale: ExactScale::of(problem),
            rule: ScoreRule::new(problem, dot_exponent),
            kept_scale: KeptScale::of(problem),
            batch,
            key_head,
            head,
            queries,
            cotangents: stack(&cotangents.output),
            lse_gradients,
            rows: iter::repeat_with(RowCache::default).take(rows).collect(),
        }
    }

    /// Where a row of this group stands in its stacks.
    pub(crate) const fn member(&self, index: RowIndex) -> usize {
        let size = self.problem.query_heads / self.problem.key_heads;
        (index.head - self.key_head * size) * self.problem.query_len + index.query
    }

    /// The row that stands there.
    pub(crate) const fn index(&self, member: usize) -> RowIndex {
        let size = self.problem.query_heads / self.problem.key_heads;
        let query_len = self.problem.query_len;
        RowIndex {
            batch: self.batch,
            head: self.key_head * size + member / query_len,
            query: member % query_len,
        }
    }

    /// Where a row meets a key.
    fn site(&self, member: usize, key: usize) -> Site {
        let RowIndex { batch, head, query } = self.index(member);
        Site { batch, head, query, key }
    }

    /// The keys that a row sees, ascending.
    pub(crate) fn visible_keys(&self, member: usize) -> Vec<usize> {
        let RowIndex { batch, head, query } = self.index(member);
        self.inputs.visible_keys(self.problem, batch, head, query)
    }

    /// The rows that see a key, ascending.
    pub(crate) fn contributors(&self, key: usize) -> Vec<usize> {
        (0..self.members()).filter(|&member| self.sees(member, key)).collect()
    }

    /// Whether a row sees a key.
    pub(crate) fn sees(&self, member: usize, key: usize) -> bool {
        let site = self.site(member, key);
        self.problem.sees(site) && self.inputs.bias_at(self.problem, site) != f64::NEG_INFINITY
    }

    /// How many rows there are.
    pub(crate) const fn members(&self) -> usize {
        self.rows.len()
    }

    /// The upstream gradient of a row's LSE.
    pub(crate) fn lse_gradient(&self, member: usize) -> f64 {
        self.lse_gradients[member]
    }

    /// What a row brings to the gradients.
    pub(crate) fn kind(&self, member: usize) -> RowKind {
        *self.rows[member].kind.get_or_init(|| match self.visible_keys(member) {
            visible if visible.is_empty() => RowKind::Empty,
            visible if self.is_finite(member, &visible) => RowKind::Finite,
            _ => RowKind::Unspecified,
        })
    }

    fn is_finite(&self, member: usize, visible: &[usize]) -> bool {
        let Head { keys, values } = &self.head;
        let has_finite_bias = |key| {
            self.problem.bias.is_none()
                || self.inputs.bias_at(self.problem, self.site(member, key)).is_finite()
        };
        self.queries.grid.is_finite(member)
            && self.cotangents.grid.is_finite(member)
            && self.lse_gradients[member].is_finite()
            && self.logit(member).is_none_or(|logit| logit.is_finite() || is_no_sink(logit))
            && visible.iter().all(|&key| {
                keys.grid.is_finite(key) && values.grid.is_finite(key) && has_finite_bias(key)
            })
    }

    /// Whether a row without keys gives its sink a real number: its `g`. `D` is zero there, whatever
    /// `dO` is, and the sink's weight is `e` to the power of its logit less itself.
    pub(crate) fn passes_on(&self, member: usize) -> bool {
        self.lse_gradients[member].is_finite() && self.logit(member).is_some_and(f64::is_finite)
    }

    /// The logit of a row's sink.
    pub(crate) fn logit(&self, member: usize) -> Option<f64> {
        self.inputs.sink_at(self.problem, self.index(member).head)
    }

    /// Exponent of the unit of dot products `<q, k_i>`.
    pub(crate) const fn dot_exponent(&self) -> i32 {
        self.queries.grid.exponent() + self.head.keys.grid.exponent()
    }

    /// Exponent of the unit of `dP_i = <dO, v_i>`.
    pub(crate) const fn dp_exponent(&self) -> i32 {
        self.cotangents.grid.exponent() + self.head.values.grid.exponent()
    }

    /// Exponent of the unit of `y_i = z_i dP_i`.
    pub(crate) const fn kept_exponent(&self) -> i32 {
        self.dp_exponent() + self.kept_scale.exponent()
    }

    /// `<q, k_i>`, in units of `2^`[`Group::dot_exponent`].
    pub(crate) fn dot(&self, member: usize, key: usize) -> Integer {
        dot((&self.queries.grid, member), (&self.head.keys.grid, key))
    }

    /// `dP_i`, in units of `2^`[`Group::dp_exponent`].
    pub(crate) fn dp(&self, member: usize, key: usize) -> Integer {
        dot((&self.cotangents.grid, member), (&self.head.values.grid, key))
    }

    /// What is added to a key's score.
    pub(crate) fn addends(&self, member: usize, key: usize) -> Addends {
        self.inputs.addends_at(self.problem, self.site(member, key))
    }

    /// What dropout multiplies a weight by.
    pub(crate) fn dropout(&self, member: usize, key: usize) -> f64 {
        self.problem.dropout_at(self.site(member, key))
    }

    fn kept(&self, member: usize, key: usize) -> Kept {
        let dropout = self.dropout(member, key);
        if dropout == 0.0 {
            return Kept { product: Integer::new(), dropout };
        }
        Kept { product: self.kept_scale.multiply(self.dp(member, key)), dropout }
    }

    fn parts(&self, member: usize, key: usize) -> Parts {
        self.rule.key(self.dot(member, key), self.addends(member, key))
    }

    /// The score of a key, exactly.
    pub(crate) fn score(&self, member: usize, key: usize) -> Score {
        if self.rule.is_plain() {
            Score::Dot(self.dot(member, key))
        } else {
            Score::Parts(self.parts(member, key))
        }
    }

    fn scores(&self, member: usize, visible: &[usize]) -> Scores {
        if self.rule.is_plain() {
            return Scores::Dots(visible.iter().map(|&key| self.dot(member, key)).collect());
        }
        let logit = self.logit(member).filter(|&logit| !is_no_sink(logit));
        Scores::Parts(
            visible.iter().map(|&key| self.parts(member, key)).collect(),
            logit.map(|logit| self.rule.sink(logit)),
        )
    }

    /// The slope of the softcap at a score, where there is one.
    pub(crate) fn slope(&self, score: ScoreRef<'_>, precision: u32) -> Option<Enclosure> {
        match score {
            ScoreRef::Parts(parts) if self.problem.softcap.is_some() => {
                Some(self.rule.slope(parts, precision).rounded(precision))
            }
            _ => None,
        }
    }

    /// Whether a score is its product with an exact factor of 1: without a softcap, or at its middle.
    pub(crate) fn has_slope_one(&self, score: ScoreRef<'_>) -> bool {
        match score {
            ScoreRef::Parts(parts) if self.problem.softcap.is_some() => {
                parts.dot == 0 && parts.inner.is_zero()
            }
            _ => true,
        }
    }

    fn weigh(&self, member: usize, visible: &[usize], exponential: &Exponential) -> WeighedRow {
        let values = visible.iter().map(|&key| self.kept(member, key)).collect();
        WeighedRow::new(self, self.scores(member, visible), values, exponential)
    }

    /// What the pairs of a [`RowKind::Finite`] row share.
    pub(crate) fn summary(&self, member: usize, exponential: &Exponential) -> Arc<Summary> {
        self.remember(member, exponential, || {
            let row = self.weigh(member, &self.visible_keys(member), exponential);
            row.summary(self, self.lse_gradients[member], exponential.precision())
        })
    }

    /// The same, and the pairs with these keys, all that the row sees.
    pub(crate) fn pairs(
        &self,
        member: usize,
        visible: &[usize],
        exponential: &Exponential,
    ) -> (Arc<Summary>, Vec<Pair>) {
        let precision = exponential.precision();
        let row = self.weigh(member, visible, exponential);
        let summary = self.remember(member, exponential, || {
            row.summary(self, self.lse_gradients[member], precision)
        });
        let pairs = row.pairs(self, &summary, precision);
        (summary, pairs)
    }

    fn remember(
        &self,
        member: usize,
        exponential: &Exponential,
        summarise: impl FnOnce() -> Summary,
    ) -> Arc<Summary> {
        match level(exponential.precision()) {
            Some(level) => {
                let summary = &self.rows[member].summaries[level];
                summary.get_or_init(|| Arc::new(summarise())).clone()
            }
            None => Arc::new(summarise()),
        }
    }

    /// The pair of a [`RowKind::Finite`] row and a key that it sees.
    pub(crate) fn pair(
        &self,
        member: usize,
        key: usize,
        summary: &Summary,
        exponential: &Exponential,
    ) -> Pair {
        let score = self.score(member, key);
        let weigher = Weigher::new(self, summary.largest.as_ref(), exponential);
        let weight = weigher.weight(score.as_ref());
        summary.pair(self, score, self.kept(member, key), &weight, exponential.precision())
    }

    /// What the row's pairs share, and those with some of the keys that it sees.
    pub(crate) fn pairs_with(
        &self,
        member: usize,
        keys: &[usize],
        visible: &[usize],
        exponential: &Exponential,
    ) -> (Arc<Summary>, Vec<Pair>) {
        if keys.len() == visible.len() {
            return self.pairs(member, visible, exponential);
        }
        let summary = self.summary(member, exponential);
        let pair = |&key: &usize| self.pair(member, key, &summary, exponential);
        let pairs = keys.iter().map(pair).collect();
        (summary, pairs)
    }

    /// The same pair, where its row has equal scores.
    pub(crate) fn rational_pair(&self, member: usize, key: usize) -> Option<RationalPair> {
        let score = self.score(member, key);
        let value = self.kept(member, key);
        self.rational_summary(member).rational_pair(self, score.as_ref(), &value)
    }

    /// What a row brings to the gradient of its sink, where that is rational.
    pub(crate) fn rational_sink(&self, member: usize) -> Option<Rational> {
        self.rational_summary(member).rational_sink(self)
    }

    /// A summary of any precision: what is rational does not depend on it.
    fn rational_summary(&self, member: usize) -> Arc<Summary> {
        self.summary(member, &Exponential::new(self.scale, NARROW_PRECISION))
    }
}

/// Whether the logit gives a sink no weight, as if there were none.
fn is_no_sink(logit: f64) -> bool {
    logit == f64::NEG_INFINITY
}

/// Where a working precision stands among those that are remembered.
fn level(precision: u32) -> Option<usize> {
    (0..LEVELS).find(|&level| precision == NARROW_PRECISION << level)
}
