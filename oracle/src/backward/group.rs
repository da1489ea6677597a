//! The inputs of a key head and of the query heads that read it, and what is known of their rows.

use std::iter;
use std::sync::{Arc, OnceLock};

use flashproof_spec::mask::Site;
use flashproof_spec::problem::Problem;
use flashproof_spec::tensor::{Cotangents, Inputs, Tensor};
use ndarray::{Axis, CowArray, Ix2, Slice};
use rug::Integer;

use super::row::{Pair, Products, RationalPair, Summary, WeighedRow};
use super::weight::Exponential;
use crate::dot::dot;
use crate::grid::Grid;
use crate::head::Head;
use crate::numerator::NARROW_PRECISION;
use crate::row::RowIndex;
use crate::scale::ExactScale;

/// How many working precisions, each twice the one before, are remembered for each row.
const LEVELS: usize = 8;

/// A key head of one batch member with the query heads that read it.
#[derive(Debug)]
pub(crate) struct Group<'a> {
    pub(crate) problem: &'a Problem,
    pub(crate) scale: ExactScale,
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
        Self {
            problem,
            scale: ExactScale::of(problem),
            batch,
            key_head,
            head: Head::new(problem, inputs, batch, key_head),
            queries: stack(&inputs.query),
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

    /// The keys that a row sees, ascending.
    pub(crate) fn visible_keys(&self, member: usize) -> Vec<usize> {
        let RowIndex { batch, head, query } = self.index(member);
        self.problem.visible_keys(batch, head, query)
    }

    /// The rows that see a key, ascending.
    pub(crate) fn contributors(&self, key: usize) -> Vec<usize> {
        (0..self.members()).filter(|&member| self.sees(member, key)).collect()
    }

    /// Whether a row sees a key.
    pub(crate) fn sees(&self, member: usize, key: usize) -> bool {
        let RowIndex { batch, head, query } = self.index(member);
        self.problem.sees(Site { batch, head, query, key })
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
        self.queries.grid.is_finite(member)
            && self.cotangents.grid.is_finite(member)
            && self.lse_gradients[member].is_finite()
            && visible.iter().all(|&key| keys.grid.is_finite(key) && values.grid.is_finite(key))
    }

    /// Exponent of the unit of dot products `<q, k_i>`.
    pub(crate) const fn dot_exponent(&self) -> i32 {
        self.queries.grid.exponent() + self.head.keys.grid.exponent()
    }

    /// Exponent of the unit of `dP_i = <dO, v_i>`.
    pub(crate) const fn dp_exponent(&self) -> i32 {
        self.cotangents.grid.exponent() + self.head.values.grid.exponent()
    }

    fn dp(&self, member: usize, key: usize) -> Integer {
        dot((&self.cotangents.grid, member), (&self.head.values.grid, key))
    }

    fn products(&self, member: usize, key: usize) -> Products {
        let dot = dot((&self.queries.grid, member), (&self.head.keys.grid, key));
        Products { dot, dp: self.dp(member, key) }
    }

    fn weigh(&self, member: usize, visible: &[usize], exponential: &Exponential) -> WeighedRow {
        let products = visible.iter().map(|&key| self.products(member, key));
        WeighedRow::new(self, products, exponential)
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
        let products = self.products(member, key);
        let gap = Integer::from(&summary.largest - &products.dot).abs();
        let weight = exponential.weight(&gap, self.dot_exponent());
        summary.pair(self, products, &weight, exponential.precision())
    }

    /// The same pair, where its row has equal scores.
    pub(crate) fn rational_pair(&self, member: usize, key: usize) -> Option<RationalPair> {
        let summary = self.summary(member, &Exponential::new(self.scale, NARROW_PRECISION));
        summary.rational_pair(self, &self.dp(member, key))
    }
}

/// Where a working precision stands among those that are remembered.
fn level(precision: u32) -> Option<usize> {
    (0..LEVELS).find(|&level| precision == NARROW_PRECISION << level)
}
