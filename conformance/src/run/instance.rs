//! Concrete inputs put to a kernel and judged, apart from any case.

use flashproof_spec::problem::Problem;
use flashproof_spec::profile::Profile;
use flashproof_spec::tensor::{Cotangents, Gradients, Inputs, Outputs, Tensor};

use super::RunError;
use super::answered::Answers;
use super::judged::Judged;
use crate::adapter::Subject;
use crate::inputs::poison::Poison;
use crate::verdict::Quantity;

/// A problem with concrete tensors: what a case comes to once its inputs are drawn.
#[derive(Clone, Debug)]
pub struct Instance {
    /// What is computed.
    pub problem: Problem,
    /// The inputs, without poison.
    pub inputs: Inputs,
    /// Upstream gradients without poison, where a backward pass is asked for.
    pub cotangents: Option<Cotangents>,
    /// What the kernel is given beside the clean inputs, or in a backward pass in place of them.
    pub poison: Option<Poison>,
}

/// What a kernel was given and gave: with the poison, where there is any.
#[derive(Clone, Debug)]
pub struct Given {
    /// The problem as the kernel reads it.
    pub read: Problem,
    /// What it was given.
    pub inputs: Inputs,
    /// What it gave.
    pub outputs: Outputs,
    /// The gradients that it gave, where it was asked for them.
    pub gradients: Option<Gradients>,
}

impl Given {
    /// What the kernel gave of an output; `None` where it gave none.
    #[must_use]
    pub fn tensor(&self, quantity: Quantity) -> Option<&Tensor> {
        let gradients = self.gradients.as_ref();
        match quantity {
            Quantity::Output => Some(&self.outputs.output),
            Quantity::Lse => self.outputs.lse.as_ref(),
            Quantity::QueryGradient => gradients.map(|it| &it.query),
            Quantity::KeyGradient => gradients.map(|it| &it.key),
            Quantity::ValueGradient => gradients.map(|it| &it.value),
            Quantity::BiasGradient => gradients.and_then(|it| it.bias.as_ref()),
            Quantity::SinkGradient => gradients.and_then(|it| it.sink.as_ref()),
        }
    }
}

/// A verdict, and what it is on.
#[derive(Clone, Debug)]
pub struct Examined {
    /// The verdict.
    pub judged: Judged,
    /// What it is on; `None` where there is no answer.
    pub given: Option<Given>,
}

/// Puts the instance to the kernel and judges what it gives under this profile.
///
/// # Errors
/// [`RunError`] where the instance could not be put to the kernel or to the oracle, of which `name` is
/// the case that it comes from. What the kernel does wrong is a verdict.
pub fn examine(
    subject: &mut dyn Subject,
    profile: &Profile,
    instance: &Instance,
    name: &str,
) -> Result<Examined, RunError> {
    let case = || name.to_owned();
    match Answers::of_instance(subject, profile.clone(), instance.clone()) {
        Ok(answers) => {
            answers.examined().map_err(|source| RunError::Oracle { case: case(), source })
        }
        Err(failure) => Judged::without_answer(&failure)
            .map(|judged| Examined { judged, given: None })
            .ok_or_else(|| RunError::Environment { case: case(), reason: failure.to_string() }),
    }
}
