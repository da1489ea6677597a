//! The forward pass around a kernel: which rows there are, and where they are stored.

use flashproof_spec::problem::Problem;
use flashproof_spec::tensor::{Inputs, Outputs};
use ndarray::{Array1, Array3, Array4, s};
use num_traits::Zero;

use super::convert::{rounded, tensor};
use super::element::Element;
use super::head::{Head, Heads};
use super::merge::Row;
use super::number_type::{self, Computation};
use crate::{Kernel, Unsupported};

/// How a kernel answers the queries of one head.
pub(super) trait Algorithm: Kernel {
    /// One row for each query, in order.
    fn rows<E: Element>(&self, head: &Head<'_, E>) -> Vec<Row<E::Accumulator>>;
}

/// Runs `algorithm` on every head, in the number type of the problem's format.
pub(super) fn run(
    algorithm: &impl Algorithm,
    problem: &Problem,
    inputs: &Inputs,
) -> Result<Outputs, Unsupported> {
    inputs.check(problem).expect("inputs of the problem's shapes and formats");
    number_type::run(algorithm.name(), problem, Forward { algorithm, problem, inputs })
}

/// As [`run`], on inputs of 8 bits with descales, for a kernel that heeds those of the head.
pub(super) fn run_quantized(
    algorithm: &impl Algorithm,
    problem: &Problem,
    inputs: &Inputs,
) -> Result<Outputs, Unsupported> {
    inputs.check(problem).expect("inputs of the problem's shapes and formats");
    number_type::run_quantized(algorithm.name(), problem, Forward { algorithm, problem, inputs })
}

struct Forward<'a, K> {
    algorithm: &'a K,
    problem: &'a Problem,
    inputs: &'a Inputs,
}

impl<K: Algorithm> Computation for Forward<'_, K> {
    type Answer = Outputs;

    /// Clause: `FAS:fwd.output.written`.
    fn run<E: Element>(self, scale: E::Accumulator) -> Outputs {
        let Self { algorithm, problem, inputs } = self;
        let heads = Heads::<E>::new(problem, inputs, scale);
        let mut output = Array4::from_elem(problem.output_shape(), E::Accumulator::zero());
        let mut lse = Array3::from_elem(problem.lse_shape(), E::Accumulator::zero());
        for batch in 0..problem.batch {
            for query_head in 0..problem.query_heads {
                let rows = algorithm.rows(&heads.head(batch, query_head));
                for (query, row) in rows.into_iter().enumerate() {
                    let entries = Array1::from(row.output);
                    output.slice_mut(s![batch, query_head, query, ..]).assign(&entries);
                    lse[[batch, query_head, query]] = row.lse;
                }
            }
        }
        let output = match problem.quantization {
            None => tensor(&output.mapv(E::store)),
            Some(quantization) => {
                let sums: Vec<_> = output.into_iter().collect();
                rounded(quantization.output, &problem.output_shape(), &sums)
            }
        };
        Outputs { output, lse: Some(tensor(&lse)) }
    }
}
