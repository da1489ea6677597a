//! Heads filled up with zeros to as many entries as a kernel is compiled for, as a host would do.
//!
//! A zero entry of a query meets one of a key, and adds a product of zero; the entries past a value's are
//! columns of their own. So the answer is that of the problem, and its first entries are the answer.

use flashproof_spec::layout::Placed;
use flashproof_spec::problem::{Problem, Scale};
use flashproof_spec::tensor::{Cotangents, Gradients, Inputs, Outputs, Tensor};
use ndarray::{ArrayD, Axis, IxDyn, Slice};

use crate::adapter::Backward;

/// Entries that heads are filled up to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Padding {
    /// Of a query and a key.
    pub(super) head_dim: usize,
    /// Of a value and an output.
    pub(super) value_dim: usize,
}

impl Padding {
    /// Whether the problem's heads fit.
    pub(super) const fn holds(self, problem: &Problem) -> bool {
        problem.head_dim <= self.head_dim && problem.value_dim <= self.value_dim
    }

    /// The problem with heads filled up; its scale is that of the problem.
    pub(super) fn problem(self, problem: &Problem) -> Problem {
        Problem {
            head_dim: self.head_dim,
            value_dim: self.value_dim,
            scale: Scale::Value(problem.scale_f64()),
            ..problem.clone()
        }
    }

    pub(super) fn inputs(self, inputs: &Inputs) -> Inputs {
        Inputs {
            query: widened(&inputs.query, self.head_dim),
            key: widened(&inputs.key, self.head_dim),
            value: widened(&inputs.value, self.value_dim),
            ..inputs.clone()
        }
    }

    pub(super) fn cotangents(self, cotangents: &Cotangents) -> Cotangents {
        Cotangents {
            output: widened(&cotangents.output, self.value_dim),
            lse: cotangents.lse.clone(),
        }
    }
}

/// The part of the outputs that is the problem's.
pub(super) fn outputs(problem: &Problem, outputs: &Outputs) -> Outputs {
    Outputs { output: narrowed(&outputs.output, problem, Placed::Output), lse: outputs.lse.clone() }
}

/// The part of a backward pass that is the problem's.
pub(super) fn backward(problem: &Problem, passes: &Backward) -> Backward {
    let Gradients { query, key, value, .. } = &passes.gradients;
    Backward {
        outputs: outputs(problem, &passes.outputs),
        gradients: Gradients {
            query: narrowed(query, problem, Placed::QueryGradient),
            key: narrowed(key, problem, Placed::KeyGradient),
            value: narrowed(value, problem, Placed::ValueGradient),
            ..passes.gradients.clone()
        },
    }
}

const ENTRIES: Axis = Axis(3);

fn widened(tensor: &Tensor, entries: usize) -> Tensor {
    let mut shape = tensor.shape().to_vec();
    let held = shape[ENTRIES.index()];
    shape[ENTRIES.index()] = entries;
    let mut values = ArrayD::zeros(IxDyn(&shape));
    values.slice_axis_mut(ENTRIES, Slice::from(..held)).assign(tensor.values());
    Tensor::rounded(tensor.format(), &values)
}

fn narrowed(tensor: &Tensor, problem: &Problem, placed: Placed) -> Tensor {
    let [.., entries] = problem.placed_shape(placed);
    let values = tensor.values().slice_axis(ENTRIES, Slice::from(..entries)).to_owned();
    Tensor::rounded(tensor.format(), &values)
}
