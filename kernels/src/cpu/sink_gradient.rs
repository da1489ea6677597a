//! The gradient of the sinks: summed over batch members and queries.

use flashproof_spec::problem::Problem;
use flashproof_spec::score::Sink;
use flashproof_spec::tensor::Tensor;

use super::backward::Upstream;
use super::convert::rounded;
use super::element::{Accumulator, Element};

/// The gradient of each query head's logit, in the accumulator.
pub(super) struct SinkGradient<A> {
    sums: Vec<A>,
}

impl<A: Accumulator> SinkGradient<A> {
    /// Empty sums, one a query head.
    pub(super) fn zero(problem: &Problem) -> Self {
        Self { sums: vec![A::zero(); problem.query_heads] }
    }

    /// Adds what the queries of one head bring, in order: `p (g - D)`, with `p = e^(t - L)` the
    /// weight of the logit `t`. The weight has no value, so nothing of `dP` enters. Where no key is
    /// visible the sink is all there is, and weighs 1. Padding queries bring nothing.
    ///
    /// Clause: `FAS:bwd.sink.gradient`.
    pub(super) fn add<E: Element<Accumulator = A>>(
        &mut self,
        query_head: usize,
        queries_in_use: usize,
        upstream: &Upstream<'_, E>,
    ) {
        let Some(logit) = upstream.head.sink else { return };
        for (query, &delta) in upstream.delta.iter().enumerate().take(queries_in_use) {
            let probability = if upstream.head.sees_any(query) {
                (logit - upstream.lse[query]).exp()
            } else {
                A::one()
            };
            self.sums[query_head] -= probability * delta;
        }
    }

    /// The finished gradient, each sum rounded once to the sinks' format; none of a sink that is
    /// the number 0, which is no input.
    pub(super) fn finish(self, problem: &Problem) -> Option<Tensor> {
        match problem.sink {
            None | Some(Sink::Zero) => None,
            Some(Sink::Logits(format)) => Some(rounded(format, &problem.sink_shape(), &self.sums)),
        }
    }
}
