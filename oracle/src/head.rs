//! The inputs of one row: its query, and the keys and values of the head that it reads.

use std::borrow::Cow;

use flashproof_spec::problem::Problem;
use flashproof_spec::tensor::{Inputs, Tensor};
use ndarray::{ArrayView1, ArrayView2, Axis};

use crate::dot::{Query, mass_hi};
use crate::finite::FiniteRow;
use crate::grid::Grid;
use crate::numerator::Values;
use crate::row::{Expected, RowIndex};
use crate::scale::ExactScale;
use crate::special::{self, Scores, Special};

/// Keys and values of one key head of one batch member: those in use, padding left out.
#[derive(Debug)]
pub(crate) struct Head<'a> {
    pub(crate) keys: Slab<'a>,
    pub(crate) values: Slab<'a>,
}

/// Rows of entries, as they are and on a grid.
#[derive(Debug)]
pub(crate) struct Slab<'a> {
    pub(crate) entries: ArrayView2<'a, f64>,
    pub(crate) grid: Grid,
}

/// What one query row reads.
#[derive(Debug)]
pub(crate) struct RowInputs<'r, 'a> {
    scale: ExactScale,
    entries: ArrayView1<'a, f64>,
    query: Query,
    head: &'r Head<'a>,
    visible: &'r [usize],
}

impl<'a> Head<'a> {
    pub(crate) fn new(problem: &Problem, inputs: &'a Inputs, batch: usize, head: usize) -> Self {
        let used = problem.mask.used_keys(batch, problem.key_len);
        let slab = |tensor: &'a Tensor| {
            let (entries, _padding) = rows_of(tensor, batch, head).split_at(Axis(0), used);
            Slab { entries, grid: Grid::new(&entries) }
        };
        Self { keys: slab(&inputs.key), values: slab(&inputs.value) }
    }
}

impl<'r, 'a> RowInputs<'r, 'a> {
    pub(crate) fn new(
        problem: &Problem,
        inputs: &'a Inputs,
        head: &'r Head<'a>,
        index: RowIndex,
        visible: &'r [usize],
    ) -> Self {
        let RowIndex { batch, head: query_head, query } = index;
        let entries = rows_of(&inputs.query, batch, query_head).index_axis_move(Axis(0), query);
        let query = Query::new(&entries);
        Self { scale: ExactScale::of(problem), entries, query, head, visible }
    }

    /// What the scores alone decide.
    pub(crate) fn scores(&self) -> Scores {
        let keys = &self.head.keys;
        special::classify(self.visible, |key| {
            if self.query.is_finite() && keys.grid.is_finite(key) {
                Special::Finite
            } else {
                special::score(&self.entries, &keys.entries.row(key), self.scale.sign())
            }
        })
    }

    /// The output entries that are no numbers, in a row whose `weighted` keys have finite scores and
    /// whose other keys have minus infinity.
    pub(crate) fn special_outputs(&self, weighted: &[usize]) -> Vec<Option<Expected>> {
        let values = &self.head.values;
        let keys: Vec<usize> =
            self.visible.iter().copied().filter(|&key| !values.grid.is_finite(key)).collect();
        let entry = |column, key: usize| {
            (values.entries[[key, column]], weighted.binary_search(&key).is_ok())
        };
        (0..values.entries.ncols())
            .map(|column| special::output(keys.iter().map(|&key| entry(column, key))))
            .collect()
    }

    /// The finite computation behind these columns of the output, and behind the LSE.
    pub(crate) fn finite_row<'w>(
        &'w self,
        weighted: &'w [usize],
        columns: Vec<usize>,
    ) -> FiniteRow<'w> {
        let Head { keys, values } = self.head;
        let query = contiguous(&self.entries);
        let dot = |&key: &usize| self.query.dot(&keys.grid, key);
        let mass = |&key: &usize| mass_hi(&query, &contiguous(&keys.entries.row(key)));
        FiniteRow {
            scale: self.scale,
            dots: weighted.iter().map(dot).collect(),
            exponent: self.query.exponent(&keys.grid),
            masses: weighted.iter().map(mass).collect(),
            values: Values { grid: &values.grid, keys: weighted },
            columns,
            value_dim: values.entries.ncols(),
        }
    }
}

/// The entries of one head, `[position, dimension]`.
fn rows_of(tensor: &Tensor, batch: usize, head: usize) -> ArrayView2<'_, f64> {
    tensor.view4().index_axis_move(Axis(0), batch).index_axis_move(Axis(0), head)
}

/// The entries side by side, copied only where they are not.
pub(crate) fn contiguous<'a>(row: &ArrayView1<'a, f64>) -> Cow<'a, [f64]> {
    row.to_slice().map_or_else(|| Cow::Owned(row.to_vec()), Cow::Borrowed)
}
