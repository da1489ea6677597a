//! What a run shows of a case while it judges it.

use flashproof_spec::problem::Problem;
use flashproof_spec::profile::Profile;
use flashproof_spec::tensor::{Gradients, Outputs, Tensor};

use crate::case::Case;
use crate::verdict::{Compared, Quantity};

/// What a run shows of a case.
#[derive(Clone, Debug)]
pub enum Shown<'a> {
    /// What the kernel gave, once for each case that it answered, before anything of it is judged.
    Answers {
        /// The case's problem, as the kernel reads it.
        problem: &'a Problem,
        /// The contract that it gave them under.
        profile: &'a Profile,
        /// Every tensor, in an order that the case fixes: a case may ask more than once.
        tensors: Vec<AnswerTensor<'a>>,
    },
    /// Elements of one row, key or sink, compared with their exact answers: in parallel, and in no
    /// particular order. A comparison with something else, such as the kernel's answer to another
    /// problem, is not shown.
    Elements(&'a [Compared]),
}

/// A tensor that a kernel gave.
#[derive(Clone, Copy, Debug)]
pub struct AnswerTensor<'a> {
    /// Which of its outputs.
    pub quantity: Quantity,
    /// To what problem, as the kernel reads it.
    pub problem: &'a Problem,
    /// The tensor.
    pub tensor: &'a Tensor,
}

/// Somebody who watches a run.
pub trait Watch: Sync {
    /// Called from any thread.
    fn see(&self, case: &Case, shown: Shown<'_>);
}

impl<F: Fn(&Case, Shown<'_>) + Sync> Watch for F {
    fn see(&self, case: &Case, shown: Shown<'_>) {
        self(case, shown);
    }
}

impl<'a> AnswerTensor<'a> {
    pub(super) fn outputs(problem: &'a Problem, outputs: &'a Outputs) -> Vec<Self> {
        let Outputs { output, lse } = outputs;
        let all = [(Quantity::Output, Some(output)), (Quantity::Lse, lse.as_ref())];
        Self::present(problem, &all)
    }

    pub(super) fn gradients(problem: &'a Problem, gradients: &'a Gradients) -> Vec<Self> {
        let Gradients { query, key, value, bias, sink } = gradients;
        let all = [
            (Quantity::QueryGradient, Some(query)),
            (Quantity::KeyGradient, Some(key)),
            (Quantity::ValueGradient, Some(value)),
            (Quantity::BiasGradient, bias.as_ref()),
            (Quantity::SinkGradient, sink.as_ref()),
        ];
        Self::present(problem, &all)
    }

    fn present(problem: &'a Problem, all: &[(Quantity, Option<&'a Tensor>)]) -> Vec<Self> {
        let given = |&(quantity, tensor)| Some(Self { quantity, problem, tensor: tensor? });
        all.iter().filter_map(given).collect()
    }
}
