//! The backward pass of a case in plain `f64`, one pair of query row and key at a time.

use flashproof_oracle::row::RowIndex;
use flashproof_spec::mask::Site;
use flashproof_spec::problem::Problem;
use flashproof_spec::profile::Profile;
use flashproof_spec::score::{Softcap, SoftcapOrder};
use flashproof_spec::tensor::{Gradients, Inputs, Tensor};
use ndarray::{ArrayView3, ArrayView4};

use super::{FailingGradient, GradientEvidence, GradientOf};
use crate::diagnosis::row::site;

/// The tensors of a case, and what the kernel stored.
pub struct Model<'a> {
    pub(super) problem: &'a Problem,
    pub(super) profile: &'a Profile,
    inputs: &'a Inputs,
    pub(super) query: ArrayView4<'a, f64>,
    pub(super) key: ArrayView4<'a, f64>,
    value: ArrayView4<'a, f64>,
    output: ArrayView4<'a, f64>,
    lse: ArrayView3<'a, f64>,
    pub(super) output_gradient: ArrayView4<'a, f64>,
    lse_gradient: Option<ArrayView3<'a, f64>>,
    gradients: &'a Gradients,
}

impl<'a> Model<'a> {
    pub(super) fn new(evidence: &GradientEvidence<'a>) -> Option<Self> {
        Some(Self {
            problem: evidence.problem,
            profile: evidence.profile,
            inputs: evidence.inputs,
            query: evidence.inputs.query.view4(),
            key: evidence.inputs.key.view4(),
            value: evidence.inputs.value.view4(),
            output: evidence.outputs.output.view4(),
            lse: evidence.outputs.lse.as_ref()?.view3(),
            output_gradient: evidence.cotangents.output.view4(),
            lse_gradient: evidence.cotangents.lse.as_ref().map(|lse| lse.view3()),
            gradients: evidence.gradients,
        })
    }

    /// What the kernel gave; NaN where it gave no such gradient.
    pub(super) fn given(&self, at: &FailingGradient) -> f64 {
        let Some(tensor) = self.of(at.quantity) else { return f64::NAN };
        let FailingGradient { batch, head, position, entry, .. } = *at;
        match at.quantity {
            GradientOf::Sink => tensor.values()[[head]],
            _ => tensor.view4()[[batch, head, position, entry]],
        }
    }

    /// A whole gradient that the kernel gave.
    pub(super) const fn of(&self, quantity: GradientOf) -> Option<&'a Tensor> {
        match quantity {
            GradientOf::Query => Some(&self.gradients.query),
            GradientOf::Key => Some(&self.gradients.key),
            GradientOf::Value => Some(&self.gradients.value),
            GradientOf::Bias => self.gradients.bias.as_ref(),
            GradientOf::Sink => self.gradients.sink.as_ref(),
        }
    }

    /// Whether there is anything that could hide a key.
    pub(super) fn hides_keys(&self) -> bool {
        !self.problem.mask.rules.is_empty() || self.problem.bias.is_some()
    }

    /// Whether the row sees the key; none past the last one.
    pub(super) fn sees(&self, row: RowIndex, key: usize) -> bool {
        key < self.problem.key_len && self.sees_site(site(row, key))
    }

    fn sees_site(&self, site: Site) -> bool {
        self.problem.sees(site) && self.inputs.bias_at(self.problem, site) != f64::NEG_INFINITY
    }

    /// `scale * <q, k>`, the addends, and the score that softcap makes of them.
    pub(super) fn score(&self, row: RowIndex, key: usize) -> f64 {
        let (product, addend) = (self.product(row, key), self.addend(row, key));
        let capped = |x: f64, cap: f64| cap * (x / cap).tanh();
        match self.problem.softcap {
            None => product + addend,
            Some(Softcap { cap, order: SoftcapOrder::BeforeBias }) => capped(product, cap) + addend,
            Some(Softcap { cap, order: SoftcapOrder::AfterBias }) => capped(product + addend, cap),
        }
    }

    /// `1 - tanh^2` where there is a softcap, and 1 elsewhere.
    pub(super) fn slope(&self, row: RowIndex, key: usize) -> f64 {
        let Some(Softcap { cap, order }) = self.problem.softcap else { return 1.0 };
        let capped = match order {
            SoftcapOrder::BeforeBias => self.product(row, key),
            SoftcapOrder::AfterBias => self.product(row, key) + self.addend(row, key),
        };
        // 1 / cosh^2, without cancellation.
        (capped / cap).cosh().powi(-2)
    }

    fn product(&self, row: RowIndex, key: usize) -> f64 {
        let head = self.problem.key_head_of(row.head);
        let products = (0..self.problem.head_dim).map(|t| {
            self.query[[row.batch, row.head, row.query, t]] * self.key[[row.batch, head, key, t]]
        });
        self.problem.scale_f64() * products.sum::<f64>()
    }

    fn addend(&self, row: RowIndex, key: usize) -> f64 {
        let addends = self.inputs.addends_at(self.problem, site(row, key));
        addends.bias + addends.alibi
    }

    /// What dropout multiplies the weight by.
    pub(super) fn dropout(&self, row: RowIndex, key: usize) -> f64 {
        self.problem.dropout_at(site(row, key))
    }

    /// The logit of the row's sink; `None` where it has none.
    pub(super) fn sink(&self, row: RowIndex) -> Option<f64> {
        self.inputs.sink_at(self.problem, row.head)
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

    /// `<dO, dO>`.
    pub(super) fn square_of_gradient(&self, row: RowIndex) -> f64 {
        let gradient = |j| self.output_gradient[[row.batch, row.head, row.query, j]];
        (0..self.problem.value_dim).map(|j| gradient(j) * gradient(j)).sum()
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
