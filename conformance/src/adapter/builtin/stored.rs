//! A case whose tensors stand in buffers.

use flashproof_kernels::Kernel;
use flashproof_spec::layout::{
    Buffer, Placed, StoreError, StoredCotangents, StoredGradients, StoredInputs, StoredOutputs,
};
use flashproof_spec::problem::Problem;
use flashproof_spec::tensor::{Cotangents, Gradients, Inputs, Outputs};

use super::caught;
use super::fingerprint::Fingerprint;
use crate::adapter::ownership::check_ownership;
use crate::adapter::{AnswerError, Backward, Failure};

/// A kernel and a problem whose layout is not contiguous.
pub(super) struct Stored<'a> {
    pub(super) kernel: &'a dyn Kernel,
    pub(super) problem: &'a Problem,
}

impl Stored<'_> {
    pub(super) fn forward(&self, inputs: &Inputs) -> Result<Outputs, Failure> {
        let inputs =
            StoredInputs::store(self.problem, inputs).map_err(|error| impossible(&error))?;
        let before = Fingerprint::of(&buffers(&inputs, None));
        let outputs = self.outputs(&inputs)?;
        before.check(&buffers(&inputs, None))?;
        self.gathered_outputs(&outputs)
    }

    pub(super) fn backward(
        &self,
        inputs: &Inputs,
        cotangents: &Cotangents,
    ) -> Result<Backward, Failure> {
        let problem = self.problem;
        let inputs = StoredInputs::store(problem, inputs).map_err(|error| impossible(&error))?;
        let cotangents =
            StoredCotangents::store(problem, cotangents).map_err(|error| impossible(&error))?;
        let before = Fingerprint::of(&buffers(&inputs, Some(&cotangents)));
        let stored = self.outputs(&inputs)?;
        let outputs = self.gathered_outputs(&stored)?;
        let gradients =
            caught(|| self.kernel.backward_stored(problem, &inputs, &stored, &cotangents))?;
        before.check(&buffers(&inputs, Some(&cotangents)))?;
        Ok(Backward { outputs, gradients: self.gathered_gradients(&gradients)? })
    }

    fn outputs(&self, inputs: &StoredInputs) -> Result<StoredOutputs, Failure> {
        caught(|| self.kernel.forward_stored(self.problem, inputs))
    }

    /// The outputs, once each of their elements and nothing else is seen to have been written.
    fn gathered_outputs(&self, stored: &StoredOutputs) -> Result<Outputs, Failure> {
        check_ownership(self.problem, Placed::Output, &stored.output)?;
        if let Some(lse) = &stored.lse {
            check_ownership(self.problem, Placed::Lse, lse)?;
        }
        let lse_format = self.kernel.profile(self.problem.format).lse_format;
        let outputs = stored.gather(self.problem);
        outputs.check(self.problem, lse_format).map_err(AnswerError::from)?;
        Ok(outputs)
    }

    fn gathered_gradients(&self, stored: &StoredGradients) -> Result<Gradients, Failure> {
        for (placed, buffer) in [
            (Placed::QueryGradient, &stored.query),
            (Placed::KeyGradient, &stored.key),
            (Placed::ValueGradient, &stored.value),
        ] {
            check_ownership(self.problem, placed, buffer)?;
        }
        let gradients = stored.gather(self.problem);
        gradients.check(self.problem).map_err(AnswerError::from)?;
        Ok(gradients)
    }
}

fn buffers<'a>(
    inputs: &'a StoredInputs,
    cotangents: Option<&'a StoredCotangents>,
) -> Vec<(&'static str, &'a Buffer)> {
    let mut named = vec![("query", &inputs.query), ("key", &inputs.key), ("value", &inputs.value)];
    if let Some(StoredCotangents { output, lse }) = cotangents {
        named.push(("output_gradient", output));
        named.extend(lse.as_ref().map(|lse| ("lse_gradient", lse)));
    }
    named
}

fn impossible(error: &StoreError) -> Failure {
    Failure::Environment(error.to_string())
}
