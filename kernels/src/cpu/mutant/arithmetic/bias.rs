//! The gradient of the bias: summed over what shares an entry, or not.

use flashproof_spec::problem::Problem;
use flashproof_spec::tensor::Tensor;
use num_traits::Zero;

use super::Arithmetic;
use super::backward::BackwardFault;
use crate::cpu::bias_gradient::BiasGradient;
use crate::cpu::convert::rounded;
use crate::cpu::element::{Accumulator, Element};
use crate::cpu::head::Head;

/// The sums, and the last that was added to each of them where the fault is to store that.
pub(super) struct BiasSums<A> {
    sums: BiasGradient<A>,
    last: Option<Vec<A>>,
}

impl<A: Accumulator> BiasSums<A> {
    pub(super) fn zero(arithmetic: &Arithmetic<BackwardFault>, problem: &Problem) -> Self {
        let entries = problem.bias.map_or(0, |bias| bias.shape.iter().product());
        let overwrites = arithmetic.has(&BackwardFault::BiasNoReduce);
        let last = overwrites.then(|| vec![<A as Zero>::zero(); entries]);
        Self { sums: BiasGradient::zero(problem), last }
    }

    pub(super) fn add<E: Element<Accumulator = A>>(
        &mut self,
        head: &Head<'_, E>,
        query: usize,
        key: usize,
        gradient: A,
    ) {
        self.sums.add(head, query, key, gradient);
        if let (Some(last), Some(bias)) = (&mut self.last, head.score_rule.bias) {
            last[bias.place(query, key)] = gradient;
        }
    }

    pub(super) fn finish(self, problem: &Problem) -> Option<Tensor> {
        match (self.last, problem.bias) {
            (Some(last), Some(bias)) => Some(rounded(bias.format, &bias.shape, &last)),
            _ => self.sums.finish(problem),
        }
    }
}
