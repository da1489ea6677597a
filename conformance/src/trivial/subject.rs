//! A trivial answer as a kernel under test.

use flashproof_spec::format::Format;
use flashproof_spec::problem::Problem;
use flashproof_spec::profile::Profile;
use flashproof_spec::tensor::{Cotangents, Inputs, Outputs, Tensor};
use ndarray::ArrayD;

use super::{Answer, Question, Replaced};
use crate::adapter::builtin::Builtin;
use crate::adapter::{Backward, Choices, Failure, Guarantees, Subject};
use crate::merge;
use crate::verdict::{Convention, Quantity};

/// A kernel that gives a trivial answer, and computes the rest of it right.
pub struct Trivial {
    answer: Answer,
    /// What computes the rest.
    right: Builtin,
    name: String,
}

impl Trivial {
    /// The kernel that gives this answer.
    #[must_use]
    pub fn new(answer: Answer) -> Self {
        let right = Builtin::new(Box::new(flashproof_kernels::cpu::Naive));
        Self { answer, right, name: format!("trivial:{answer}") }
    }

    fn replaced(
        &mut self,
        problem: &Problem,
        inputs: &Inputs,
        cotangents: Option<&Cotangents>,
    ) -> Result<Replaced, Failure> {
        let lse_format = self.right.profile(problem.format)?.lse_format;
        let convention = Convention::of_lse(self.choices());
        let question = Question { problem, inputs, cotangents, lse_format, convention };
        Ok(Replaced::of(self.answer, &question))
    }
}

impl Subject for Trivial {
    fn name(&self) -> &str {
        &self.name
    }

    fn description(&self) -> &'static str {
        "an answer that is no attention"
    }

    fn profile(&mut self, format: Format) -> Result<Profile, Failure> {
        self.right.profile(format)
    }

    fn choices(&self) -> Choices {
        self.right.choices()
    }

    fn guarantees(&self) -> Guarantees {
        self.right.guarantees()
    }

    fn forward(&mut self, problem: &Problem, inputs: &Inputs) -> Result<Outputs, Failure> {
        let right = self.right.forward(problem, inputs)?;
        Ok(self.replaced(problem, inputs, None)?.outputs(&right))
    }

    /// Gradients of a right forward pass, for every answer: one that replaces outputs only replaces
    /// them in what is judged.
    fn backward(
        &mut self,
        problem: &Problem,
        inputs: &Inputs,
        cotangents: &Cotangents,
    ) -> Result<Backward, Failure> {
        let Backward { outputs, gradients } = self.right.backward(problem, inputs, cotangents)?;
        let replaced = self.replaced(problem, inputs, Some(cotangents))?;
        Ok(Backward {
            outputs: replaced.outputs(&outputs),
            gradients: replaced.gradients(&gradients),
        })
    }

    /// The answer to the attention problem that the merge amounts to.
    fn merge(&mut self, problem: &Problem, partials: &[Outputs]) -> Result<Outputs, Failure> {
        let right = self.right.merge(problem, partials)?;
        let (attention, inputs) = merge::as_attention(problem, partials);
        let replaced = self.replaced(&attention, &inputs, None)?;
        let shaped = |quantity, right: &Tensor| match replaced.get(quantity) {
            None => right.clone(),
            Some(tensor) => {
                let values: ArrayD<f64> = tensor
                    .values()
                    .to_shape(right.shape())
                    .expect("as many rows as the problem has")
                    .to_owned();
                Tensor::rounded(right.format(), &values)
            }
        };
        Ok(Outputs {
            output: shaped(Quantity::Output, &right.output),
            lse: right.lse.as_ref().map(|lse| shaped(Quantity::Lse, lse)),
        })
    }
}
