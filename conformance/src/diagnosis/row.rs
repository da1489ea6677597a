//! One failing row in plain `f64`: scores of every key, visible or not, and what was answered.

use flashproof_oracle::row::RowIndex;
use flashproof_spec::mask::Site;
use flashproof_spec::problem::Problem;
use flashproof_spec::profile::Profile;
use ndarray::{ArrayView1, ArrayView2, Axis};

use super::Evidence;

/// A query row, its keys and the kernel's answer.
pub struct RowModel<'a> {
    pub(super) problem: &'a Problem,
    pub(super) profile: &'a Profile,
    pub(super) index: RowIndex,
    /// The heads' keys and values, `[head, key, entry]`, of this row's batch member.
    keys: Vec<ArrayView2<'a, f64>>,
    values: Vec<ArrayView2<'a, f64>>,
    query: ArrayView1<'a, f64>,
    /// The output entries that the kernel gave.
    pub(super) output: ArrayView1<'a, f64>,
    /// The LSE that the kernel gave, in nats.
    pub(super) lse: Option<f64>,
}

/// A key's score and the mass of the sum behind it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Score {
    /// `scale * <q, k>`.
    pub(super) value: f64,
    /// `|scale| * sum |q_t k_t|`.
    pub(super) mass: f64,
}

impl<'a> RowModel<'a> {
    pub(super) fn new(evidence: &Evidence<'a>, index: RowIndex) -> Self {
        let heads = |tensor: &'a flashproof_spec::tensor::Tensor| {
            let member = tensor.view4().index_axis_move(Axis(0), index.batch);
            (0..evidence.problem.key_heads)
                .map(|head| member.index_axis_move(Axis(0), head))
                .collect()
        };
        let row = |tensor: &'a flashproof_spec::tensor::Tensor| {
            let head = tensor.view4().index_axis_move(Axis(0), index.batch);
            head.index_axis_move(Axis(0), index.head).index_axis_move(Axis(0), index.query)
        };
        Self {
            problem: evidence.problem,
            profile: evidence.profile,
            index,
            keys: heads(&evidence.inputs.key),
            values: heads(&evidence.inputs.value),
            query: row(&evidence.inputs.query),
            output: row(&evidence.outputs.output),
            lse: evidence
                .outputs
                .lse
                .as_ref()
                .map(|lse| lse.view3()[[index.batch, index.head, index.query]]),
        }
    }

    /// The key head that this row reads.
    pub(super) fn key_head(&self) -> usize {
        self.problem.key_head_of(self.index.head)
    }

    /// The score of `key` under the problem's scale.
    pub(super) fn score(&self, head: usize, key: usize) -> Score {
        let scale = self.problem.scale_f64();
        let products = self.query.iter().zip(self.keys[head].row(key)).map(|(q, k)| q * k);
        let (value, mass) =
            products.fold((0.0, 0.0), |(sum, mass), x: f64| (sum + x, mass + x.abs()));
        Score { value: scale * value, mass: scale.abs() * mass }
    }

    /// Entry `j` of the value row of `key`.
    pub(super) fn value(&self, head: usize, key: usize, j: usize) -> f64 {
        self.values[head][[key, j]]
    }

    /// The keys that this row sees under the problem's mask.
    pub(super) fn visible(&self) -> Vec<usize> {
        self.seen_by(self.problem)
    }

    /// The keys that this row would see under another problem of the same shapes.
    pub(super) fn seen_by(&self, problem: &Problem) -> Vec<usize> {
        let RowIndex { batch, head, query } = self.index;
        (0..problem.key_len).filter(|&key| problem.sees(Site { batch, head, query, key })).collect()
    }

    /// How many keys this batch member uses.
    pub(super) fn used_keys(&self) -> usize {
        self.problem.mask.used_keys(self.index.batch, self.problem.key_len)
    }
}
