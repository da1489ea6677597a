//! One failing row in plain `f64`: the problem, and what was answered.

use flashproof_oracle::row::RowIndex;
use flashproof_spec::mask::Site;
use flashproof_spec::problem::Problem;
use flashproof_spec::profile::Profile;
use flashproof_spec::tensor::{Inputs, Tensor};
use ndarray::{ArrayView1, ArrayView2, ArrayView3, Axis, s};

use super::Evidence;
use super::reading::Reading;

/// A query row, its keys and the kernel's answer.
pub struct RowModel<'a> {
    pub(super) problem: &'a Problem,
    /// The same without sinks, for bounds: a prediction counts a sink as a term without value.
    pub(super) unsunk: Problem,
    pub(super) profile: &'a Profile,
    pub(super) inputs: &'a Inputs,
    pub(super) index: RowIndex,
    /// The heads' keys and values, `[head, key, entry]`, of this row's batch member.
    keys: Vec<ArrayView2<'a, f64>>,
    values: Vec<ArrayView2<'a, f64>>,
    /// The queries of this row's batch member, `[head, query, entry]`.
    queries: ArrayView3<'a, f64>,
    /// The output entries that the kernel gave.
    pub(super) output: ArrayView1<'a, f64>,
    /// The LSE that the kernel gave, in nats and with any sink.
    pub(super) lse: Option<f64>,
}

impl<'a> RowModel<'a> {
    pub(super) fn new(evidence: &Evidence<'a>, index: RowIndex) -> Self {
        let heads = |tensor: &'a Tensor| {
            let member = tensor.view4().index_axis_move(Axis(0), index.batch);
            (0..evidence.problem.key_heads)
                .map(|head| member.index_axis_move(Axis(0), head))
                .collect()
        };
        let row = |tensor: &'a Tensor| {
            let head = tensor.view4().index_axis_move(Axis(0), index.batch);
            head.index_axis_move(Axis(0), index.head).index_axis_move(Axis(0), index.query)
        };
        Self {
            problem: evidence.problem,
            unsunk: Problem { sink: None, ..evidence.problem.clone() },
            profile: evidence.profile,
            inputs: evidence.inputs,
            index,
            keys: heads(&evidence.inputs.key),
            values: heads(&evidence.inputs.value),
            queries: evidence.inputs.query.view4().index_axis_move(Axis(0), index.batch),
            output: row(&evidence.outputs.output),
            lse: evidence
                .outputs
                .lse
                .as_ref()
                .map(|lse| lse.view3()[[index.batch, index.head, index.query]]),
        }
    }

    /// The row as it should be read.
    pub(super) fn reading(&self) -> Reading<'_, 'a> {
        Reading::of(self)
    }

    /// The key head that this row reads.
    pub(super) fn key_head(&self) -> usize {
        self.problem.key_head_of(self.index.head)
    }

    /// `<q, k>` and `sum |q_t k_t|`, with the query of any row of this batch member.
    pub(super) fn dot(&self, of: RowIndex, head: usize, key: usize) -> (f64, f64) {
        let query = self.queries.slice(s![of.head, of.query, ..]);
        let products = query.iter().zip(self.keys[head].row(key)).map(|(q, k)| q * k);
        products.fold((0.0, 0.0), |(sum, mass), x: f64| (sum + x, mass + x.abs()))
    }

    /// Entry `j` of the value row of `key`.
    pub(super) fn value(&self, head: usize, key: usize, j: usize) -> f64 {
        self.values[head][[key, j]]
    }

    /// The keys that this row sees.
    pub(super) fn visible(&self) -> Vec<usize> {
        self.reading().visible()
    }

    /// The keys that the mask admits, whatever their bias.
    pub(super) fn admitted(&self) -> Vec<usize> {
        let RowIndex { batch, head, query } = self.index;
        self.problem.visible_keys(batch, head, query)
    }

    /// How many keys this batch member uses.
    pub(super) fn used_keys(&self) -> usize {
        self.problem.mask.used_keys(self.index.batch, self.problem.key_len)
    }
}

/// The site of a row and a key.
pub(super) const fn site(row: RowIndex, key: usize) -> Site {
    let RowIndex { batch, head, query } = row;
    Site { batch, head, query, key }
}
