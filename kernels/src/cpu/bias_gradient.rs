//! The gradient of the bias: summed over everything that shares an entry.

use flashproof_spec::problem::Problem;
use flashproof_spec::tensor::Tensor;

use super::convert::rounded;
use super::element::{Accumulator, Element};
use super::head::Head;

/// `dB`, in the accumulator, over all batch members and heads.
///
/// Terms are added where and when they arise: batch members in turn, key heads in turn, and within
/// one the order of the kernel, which is fixed. So the sums are the same in every run. Where tiles
/// change that order they change the last bits: of an entry that is shared along the keys and also
/// along queries or heads; no other.
///
/// A kernel that works on batch members, heads or tiles at the same time has to reduce what they
/// bring to one entry: by atomic additions in no fixed order, or from a buffer that is not shared.
pub(super) struct BiasGradient<A> {
    sums: Vec<A>,
}

impl<A: Accumulator> BiasGradient<A> {
    /// Empty sums of the bias's shape; none where the problem has no bias.
    pub(super) fn zero(problem: &Problem) -> Self {
        let entries = problem.bias.map_or(0, |bias| bias.shape.iter().product());
        Self { sums: vec![A::zero(); entries] }
    }

    /// Adds the gradient that a visible key brings to its bias; nothing where there is none.
    ///
    /// Clauses: `FAS:bwd.bias.gradient`, `FAS:bwd.bias.reduce`.
    pub(super) fn add<E: Element<Accumulator = A>>(
        &mut self,
        head: &Head<'_, E>,
        query: usize,
        key: usize,
        gradient: A,
    ) {
        if let Some(bias) = head.score_rule.bias {
            self.sums[bias.place(query, key)] += gradient;
        }
    }

    /// The finished gradient, each sum rounded once to the bias's format.
    pub(super) fn finish(self, problem: &Problem) -> Option<Tensor> {
        problem.bias.map(|bias| rounded(bias.format, &bias.shape, &self.sums))
    }
}
