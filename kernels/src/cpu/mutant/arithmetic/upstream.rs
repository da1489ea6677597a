//! The backward pass: what it reads, batch members and heads.

use flashproof_spec::problem::Problem;
use flashproof_spec::tensor::{Cotangents, Gradients, Inputs, Outputs, Tensor};
use ndarray::{Array3, Array4, s};
use num_traits::Zero;

use super::Arithmetic;
use super::backward::{BackwardFault, gradients};
use super::bias::BiasSums;
use crate::Unsupported;
use crate::cpu::backward::Upstream;
use crate::cpu::convert::{elements, tensor};
use crate::cpu::element::Element;
use crate::cpu::head::{Head, Heads, query_heads};
use crate::cpu::number_type::{self, Computation};
use crate::cpu::position::InUse;
use crate::cpu::row::dot;
use crate::cpu::sink_gradient::SinkGradient;

/// What a backward pass reads.
pub(in crate::cpu::mutant) struct Read<'a> {
    pub(in crate::cpu::mutant) problem: &'a Problem,
    pub(in crate::cpu::mutant) inputs: &'a Inputs,
    pub(in crate::cpu::mutant) outputs: &'a Outputs,
    pub(in crate::cpu::mutant) cotangents: &'a Cotangents,
}

/// The backward pass of the tiled kernel, with a fault if there is one; `reversed` takes blocks of keys
/// last to first.
pub(in crate::cpu::mutant) fn backward(
    arithmetic: &Arithmetic<BackwardFault>,
    reversed: bool,
    read: &Read<'_>,
) -> Result<Gradients, Unsupported> {
    // The caller puts its own name on a refusal.
    let lse = read.outputs.lse.as_ref().ok_or_else(|| Unsupported {
        kernel: "tiled".to_owned(),
        feature: "a backward pass without the forward pass's LSE".to_owned(),
    })?;
    number_type::run("tiled", read.problem, Backward { arithmetic, reversed, read, lse })
}

struct Backward<'a> {
    arithmetic: &'a Arithmetic<BackwardFault>,
    reversed: bool,
    read: &'a Read<'a>,
    lse: &'a Tensor,
}

impl Computation for Backward<'_> {
    type Answer = Gradients;

    fn run<E: Element>(self, scale: E::Accumulator) -> Gradients {
        let Self { arithmetic, reversed, read: &Read { problem, inputs, .. }, .. } = self;
        let heads = Heads::<E>::new(problem, inputs, scale);
        let read = Elements::<E>::new(&self);
        let [mut query, mut key, mut value] =
            [problem.query_shape(), problem.key_shape(), problem.value_shape()]
                .map(|shape| Array4::from_elem(shape, E::from_exact(0.0)));
        let mut bias = BiasSums::zero(arithmetic, problem);
        let mut sink = SinkGradient::zero(problem);
        for batch in 0..problem.batch {
            if arithmetic.has(&BackwardFault::SinkOfLastMember) {
                sink = SinkGradient::zero(problem);
            }
            for key_head in 0..problem.key_heads {
                let readers = readers(arithmetic, problem, key_head);
                let group: Vec<_> = readers
                    .iter()
                    .map(|&head| read.upstream(heads.head(batch, head), batch, head))
                    .collect();
                let in_use = InUse::new(problem, batch).queries;
                for (&head, upstream) in readers.iter().zip(&group) {
                    sink.add(head, in_use, upstream);
                }
                let sums =
                    gradients(arithmetic, reversed, in_use_keys(problem, batch), &group, &mut bias);
                for (&head, sum) in readers.iter().zip(&sums.query) {
                    query.slice_mut(s![batch, head, .., ..]).assign(&sum.mapv(E::store));
                }
                key.slice_mut(s![batch, key_head, .., ..]).assign(&sums.key.mapv(E::store));
                value.slice_mut(s![batch, key_head, .., ..]).assign(&sums.value.mapv(E::store));
            }
        }
        Gradients {
            query: tensor(&query),
            key: tensor(&key),
            value: tensor(&value),
            bias: bias.finish(problem),
            sink: sink.finish(problem),
        }
    }
}

fn in_use_keys(problem: &Problem, batch: usize) -> usize {
    InUse::new(problem, batch).keys
}

/// The query heads that are summed into a key head.
fn readers(
    arithmetic: &Arithmetic<BackwardFault>,
    problem: &Problem,
    key_head: usize,
) -> Vec<usize> {
    if arithmetic.has(&BackwardFault::WrongGroup) {
        (key_head..problem.query_heads).step_by(problem.key_heads).collect()
    } else {
        query_heads(problem, key_head).collect()
    }
}

/// Outputs and upstream gradients as elements.
struct Elements<E: Element> {
    output: Array4<E>,
    lse: Array3<E::Accumulator>,
    output_gradient: Array4<E>,
    lse_gradient: Array3<E::Accumulator>,
}

impl<E: Element> Elements<E> {
    fn new(backward: &Backward<'_>) -> Self {
        let &Backward { read: &Read { problem, outputs, cotangents, .. }, lse, .. } = backward;
        let lse_gradient = match &cotangents.lse {
            Some(gradient) => elements(&gradient.view3()),
            None => Array3::zeros(problem.lse_shape()),
        };
        Self {
            output: elements(&outputs.output.view4()),
            lse: elements(&lse.view3()),
            output_gradient: elements(&cotangents.output.view4()),
            lse_gradient,
        }
    }

    fn upstream<'a>(
        &'a self,
        head: Head<'a, E>,
        batch: usize,
        query_head: usize,
    ) -> Upstream<'a, E> {
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
        let delta = lse_gradient.iter().enumerate().map(|(query, &g)| rowsum(query) - g).collect();
        Upstream { lse: self.lse.slice(s![batch, query_head, ..]), output_gradient, delta, head }
    }
}
