//! The backward pass of a case in plain `f64`, one pair of query row and key at a time.

use flashproof_oracle::row::RowIndex;
use flashproof_spec::mask::Site;
use flashproof_spec::problem::Problem;
use flashproof_spec::profile::Profile;
use ndarray::{ArrayView3, ArrayView4};

use super::{FailingGradient, GradientEvidence, GradientOf};

/// The tensors of a case, and what the kernel stored.
pub struct Model<'a> {
    pub(super) problem: &'a Problem,
    pub(super) profile: &'a Profile,
    pub(super) query: ArrayView4<'a, f64>,
    pub(super) key: ArrayView4<'a, f64>,
    value: ArrayView4<'a, f64>,
    output: ArrayView4<'a, f64>,
    lse: ArrayView3<'a, f64>,
    pub(super) output_gradient: ArrayView4<'a, f64>,
    lse_gradient: Option<ArrayView3<'a, f64>>,
    gradients: [ArrayView4<'a, f64>; 3],
}

impl<'a> Model<'a> {
    pub(super) fn new(evidence: &GradientEvidence<'a>) -> Option<Self> {
        let gradients = evidence.gradients;
        Some(Self {
            problem: evidence.problem,
            profile: evidence.profile,
            query: evidence.inputs.query.view4(),
            key: evidence.inputs.key.view4(),
            value: evidence.inputs.value.view4(),
            output: evidence.outputs.output.view4(),
            lse: evidence.outputs.lse.as_ref()?.view3(),
            output_gradient: evidence.cotangents.output.view4(),
            lse_gradient: evidence.cotangents.lse.as_ref().map(|lse| lse.view3()),
            gradients: [gradients.query.view4(), gradients.key.view4(), gradients.value.view4()],
        })
    }

    /// What the kernel gave.
    pub(super) fn given(&self, at: &FailingGradient) -> f64 {
        self.of(at.quantity)[[at.batch, at.head, at.position, at.entry]]
    }

    /// A whole gradient that the kernel gave.
    pub(super) fn of(&self, quantity: GradientOf) -> &ArrayView4<'a, f64> {
        &self.gradients[quantity as usize]
    }

    /// Whether the row sees the key; none past the last one.
    pub(super) fn sees(&self, row: RowIndex, key: usize) -> bool {
        let RowIndex { batch, head, query } = row;
        key < self.problem.key_len && self.problem.sees(Site { batch, head, query, key })
    }

    /// `scale * <q, k>`.
    pub(super) fn score(&self, row: RowIndex, key: usize) -> f64 {
        let head = self.problem.key_head_of(row.head);
        let products = (0..self.problem.head_dim).map(|t| {
            self.query[[row.batch, row.head, row.query, t]] * self.key[[row.batch, head, key, t]]
        });
        self.problem.scale_f64() * products.sum::<f64>()
    }

    /// `dP = <dO, v>`.
    pub(super) fn dp(&self, row: RowIndex, key: usize) -> f64 {
        let head = self.problem.key_head_of(row.head);
        (0..self.problem.value_dim)
            .map(|j| {
                self.output_gradient[[row.batch, row.head, row.query, j]]
                    * self.value[[row.batch, head, key, j]]
            })
            .sum()
    }

    /// `<dO, O>` with the output of another row, `stale`.
    pub(super) fn delta(&self, row: RowIndex, stale: RowIndex) -> f64 {
        (0..self.problem.value_dim)
            .map(|j| {
                self.output_gradient[[row.batch, row.head, row.query, j]]
                    * self.output[[stale.batch, stale.head, stale.query, j]]
            })
            .sum()
    }

    /// The kernel's own LSE.
    pub(super) fn lse(&self, row: RowIndex) -> f64 {
        self.lse[[row.batch, row.head, row.query]]
    }

    /// The upstream gradient of the LSE.
    pub(super) fn lse_gradient(&self, row: RowIndex) -> f64 {
        self.lse_gradient.map_or(0.0, |lse| lse[[row.batch, row.head, row.query]])
    }

    /// The query rows that read a key head, ascending.
    pub(super) fn readers(&self, batch: usize, key_head: usize) -> Vec<RowIndex> {
        let Problem { query_heads, key_heads, query_len, .. } = *self.problem;
        let group = query_heads / key_heads;
        (key_head * group..(key_head + 1) * group)
            .flat_map(|head| (0..query_len).map(move |query| RowIndex { batch, head, query }))
            .collect()
    }
}
