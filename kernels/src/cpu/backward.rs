//! The backward pass around a kernel: what it reads of each query head, which query heads share a key
//! head, and where gradients are stored.

use std::ops::Range;

use flashproof_spec::problem::Problem;
use flashproof_spec::tensor::{Cotangents, Gradients, Inputs, Outputs, Tensor};
use ndarray::{Array2, Array3, Array4, ArrayView1, ArrayView2, s};
use num_traits::Zero as _;

use super::bias_gradient::BiasGradient;
use super::convert::{elements, tensor};
use super::element::{Accumulator, Element};
use super::head::{Head, Heads, query_heads};
use super::number_type::{self, Computation};
use super::position::InUse;
use super::row::dot;
use super::sink_gradient::SinkGradient;
use crate::{Kernel, Unsupported};

/// What the backward pass reads of one query head.
pub(super) struct Upstream<'a, E: Element> {
    /// The inputs.
    pub(super) head: Head<'a, E>,
    /// `L` of each query, as the forward pass stored it.
    pub(super) lse: ArrayView1<'a, E::Accumulator>,
    /// `dO`, `[query_len, value_dim]`.
    pub(super) output_gradient: ArrayView2<'a, E>,
    /// `D - g` of each query, where `D = <dO, O>` and `g` is the upstream gradient of its LSE.
    pub(super) delta: Vec<E::Accumulator>,
}

impl<E: Element> Upstream<'_, E> {
    /// `dP = <dO, v>`, before dropout: each product and each addition rounded to the accumulator.
    pub(super) fn weight_gradient(&self, query: usize, key: usize) -> E::Accumulator {
        dot(self.output_gradient.row(query), self.head.value.row(key))
    }
}

/// Gradients of one key head and of the query heads that read it, before they are stored.
pub(super) struct GroupGradients<A> {
    /// `dQ` of each query head, `[query_len, head_dim]`.
    pub(super) query: Vec<Array2<A>>,
    /// `dK`, `[key_len, head_dim]`.
    pub(super) key: Array2<A>,
    /// `dV`, `[key_len, value_dim]`.
    pub(super) value: Array2<A>,
}

impl<A: Accumulator> GroupGradients<A> {
    /// Empty sums, shaped for `group`: what remains of a query without keys and of a key that no
    /// query sees.
    ///
    /// Clauses: `FAS:bwd.empty-row.zero`, `FAS:bwd.output.written`.
    pub(super) fn zero<E: Element>(group: &[Upstream<'_, E>]) -> Self {
        let head = &group[0].head;
        Self {
            query: vec![Array2::zeros(head.query.raw_dim()); group.len()],
            key: Array2::zeros(head.key.raw_dim()),
            value: Array2::zeros(head.value.raw_dim()),
        }
    }

    /// The softmax scale, once on each finished sum of `dQ` and `dK`.
    ///
    /// Clauses: `FAS:bwd.query.scale`, `FAS:bwd.key.scale`.
    pub(super) fn scaled(mut self, scale: A) -> Self {
        for sums in self.query.iter_mut().chain([&mut self.key]) {
            sums.mapv_inplace(|sum| scale * sum);
        }
        self
    }
}

/// How a kernel finds the gradients of one key head and of the query heads that read it.
pub(super) trait Algorithm: Kernel {
    /// `group` is those query heads, in order and at least one; `dK` and `dV` are sums over all of
    /// them. What they bring to the gradient of the bias is added to `bias`.
    ///
    /// Clause: `FAS:bwd.head.group-sum`.
    fn gradients<E: Element>(
        &self,
        group: &[Upstream<'_, E>],
        bias: &mut BiasGradient<E::Accumulator>,
    ) -> GroupGradients<E::Accumulator>;
}

/// Runs `algorithm` on every key head, in the number type of the problem's format.
pub(super) fn run(
    algorithm: &impl Algorithm,
    problem: &Problem,
    inputs: &Inputs,
    outputs: &Outputs,
    cotangents: &Cotangents,
) -> Result<Gradients, Unsupported> {
    let lse_format = algorithm.profile(problem.format).lse_format;
    inputs.check(problem).expect("inputs of the problem's shapes and formats");
    outputs.check(problem, lse_format).expect("outputs of the problem's shapes and formats");
    cotangents.check(problem, lse_format).expect("cotangents of the problem's shapes and formats");
    let lse = outputs.lse.as_ref().ok_or_else(|| Unsupported {
        kernel: algorithm.name().to_owned(),
        feature: "a backward pass without the forward pass's LSE".to_owned(),
    })?;
    let output = &outputs.output;
    let backward = Backward { algorithm, problem, inputs, output, lse, cotangents };
    number_type::run(algorithm.name(), problem, backward)
}

struct Backward<'a, K> {
    algorithm: &'a K,
    problem: &'a Problem,
    inputs: &'a Inputs,
    output: &'a Tensor,
    lse: &'a Tensor,
    cotangents: &'a Cotangents,
}

impl<K: Algorithm> Computation for Backward<'_, K> {
    type Answer = Gradients;

    fn run<E: Element>(self, scale: E::Accumulator) -> Gradients {
        let problem = self.problem;
        let upstreams = Upstreams::<E>::new(&self, scale);
        let mut stored = Stored::<E>::zero(problem);
        let mut bias = BiasGradient::zero(problem);
        let mut sink = SinkGradient::zero(problem);
        for batch in 0..problem.batch {
            for key_head in 0..problem.key_heads {
                let readers = query_heads(problem, key_head);
                let group: Vec<_> =
                    readers.clone().map(|head| upstreams.upstream(batch, head)).collect();
                let in_use = InUse::new(problem, batch).queries;
                for (head, upstream) in readers.clone().zip(&group) {
                    sink.add(head, in_use, upstream);
                }
                let gradients = self.algorithm.gradients(&group, &mut bias);
                stored.store(batch, key_head, readers, gradients);
            }
        }
        let Stored { query, key, value } = stored;
        Gradients {
            query: tensor(&query),
            key: tensor(&key),
            value: tensor(&value),
            bias: bias.finish(problem),
            sink: sink.finish(problem),
        }
    }
}

/// Inputs, outputs and upstream gradients as elements, to be read head by head.
struct Upstreams<'a, E: Element> {
    heads: Heads<'a, E>,
    output: Array4<E>,
    lse: Array3<E::Accumulator>,
    output_gradient: Array4<E>,
    /// Zero where the loss does not depend on the LSE.
    lse_gradient: Array3<E::Accumulator>,
}

impl<'a, E: Element> Upstreams<'a, E> {
    fn new<K>(backward: &Backward<'a, K>, scale: E::Accumulator) -> Self {
        let &Backward { problem, inputs, output, lse, cotangents, .. } = backward;
        let lse_gradient = match &cotangents.lse {
            Some(gradient) => elements(&gradient.view3()),
            None => Array3::zeros(problem.lse_shape()),
        };
        Self {
            heads: Heads::new(problem, inputs, scale),
            output: elements(&output.view4()),
            lse: elements(&lse.view3()),
            output_gradient: elements(&cotangents.output.view4()),
            lse_gradient,
        }
    }

    /// What belongs to one query head. `D` comes from the output as it was stored, and `g` is folded
    /// into it, one subtraction a row: `dP - (D - g)` for `dP - D + g`. A row without visible keys
    /// has a `D` of zero, whatever stands in its output and in the gradient of that.
    ///
    /// Clauses: `FAS:bwd.delta.rowsum`, `FAS:bwd.lse.gradient`.
    fn upstream(&self, batch: usize, query_head: usize) -> Upstream<'_, E> {
        let head = self.heads.head(batch, query_head);
        let output = self.output.slice(s![batch, query_head, .., ..]);
        let output_gradient = self.output_gradient.slice(s![batch, query_head, .., ..]);
        let lse_gradient = self.lse_gradient.slice(s![batch, query_head, ..]);
        let rowsum = |query| {
            if head.sees_any(query) {
                dot(output_gradient.row(query), output.row(query))
            } else {
                E::Accumulator::zero()
            }
        };
        Upstream {
            lse: self.lse.slice(s![batch, query_head, ..]),
            output_gradient,
            delta: lse_gradient.iter().enumerate().map(|(query, &g)| rowsum(query) - g).collect(),
            head,
        }
    }
}

/// Gradients as stored.
struct Stored<E> {
    query: Array4<E>,
    key: Array4<E>,
    value: Array4<E>,
}

impl<E: Element> Stored<E> {
    fn zero(problem: &Problem) -> Self {
        let [query, key, value] =
            [problem.query_shape(), problem.key_shape(), problem.value_shape()]
                .map(|shape| Array4::from_elem(shape, E::from_exact(0.0)));
        Self { query, key, value }
    }

    /// Rounds what one group has summed, each sum once, and writes every element of it.
    ///
    /// Clause: `FAS:bwd.output.written`.
    fn store(
        &mut self,
        batch: usize,
        key_head: usize,
        query_heads: Range<usize>,
        gradients: GroupGradients<E::Accumulator>,
    ) {
        let GroupGradients { query, key, value } = gradients;
        for (query_head, query) in query_heads.zip(query) {
            self.query.slice_mut(s![batch, query_head, .., ..]).assign(&query.mapv(E::store));
        }
        self.key.slice_mut(s![batch, key_head, .., ..]).assign(&key.mapv(E::store));
        self.value.slice_mut(s![batch, key_head, .., ..]).assign(&value.mapv(E::store));
    }
}
