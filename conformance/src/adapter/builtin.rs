//! `builtin:NAME`: a kernel in this process.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

use flashproof_kernels::{Kernel, UnknownKernel, Unsupported};
use flashproof_spec::format::Format;
use flashproof_spec::problem::Problem;
use flashproof_spec::profile::Profile;
use flashproof_spec::tensor::{Cotangents, Inputs, Outputs, Tensor};
use sha2::{Digest, Sha256};

use super::{
    AnswerError, Backward, Choices, Failure, Subject, check_case, check_cotangents, named_inputs,
};

/// A Rust kernel behind the adapter interface.
///
/// A panic costs one case. A kernel that never returns is not interrupted: a thread can not be
/// stopped from outside. Outputs are not poisoned, since the kernel allocates them itself.
pub struct Builtin {
    name: String,
    kernel: Box<dyn Kernel>,
}

impl Builtin {
    /// The kernel that `builtin:NAME` names.
    ///
    /// # Errors
    /// [`UnknownKernel`] names the kernels that exist.
    pub fn open(name: &str) -> Result<Self, UnknownKernel> {
        flashproof_kernels::builtin(name).map(Self::new)
    }

    /// Puts any Rust kernel under test.
    #[must_use]
    pub fn new(kernel: Box<dyn Kernel>) -> Self {
        Self { name: format!("builtin:{}", kernel.name()), kernel }
    }
}

impl Subject for Builtin {
    fn name(&self) -> &str {
        &self.name
    }

    fn description(&self) -> &str {
        self.kernel.summary()
    }

    fn profile(&mut self, format: Format) -> Result<Profile, Failure> {
        Ok(self.kernel.profile(format))
    }

    fn choices(&self) -> Choices {
        Choices::default()
    }

    fn forward(&mut self, problem: &Problem, inputs: &Inputs) -> Result<Outputs, Failure> {
        check_case(problem, inputs)?;
        let before = Fingerprint::of(&named_inputs(inputs, None));
        let outputs = self.outputs(problem, inputs)?;
        before.check(&named_inputs(inputs, None))?;
        Ok(outputs)
    }

    fn backward(
        &mut self,
        problem: &Problem,
        inputs: &Inputs,
        cotangents: &Cotangents,
    ) -> Result<Backward, Failure> {
        let lse_format = self.kernel.profile(problem.format).lse_format;
        check_case(problem, inputs)?;
        check_cotangents(problem, cotangents, lse_format)?;
        let before = Fingerprint::of(&named_inputs(inputs, Some(cotangents)));
        let outputs = self.outputs(problem, inputs)?;
        let gradients = caught(|| self.kernel.backward(problem, inputs, &outputs, cotangents))?;
        before.check(&named_inputs(inputs, Some(cotangents)))?;
        gradients.check(problem).map_err(AnswerError::from)?;
        Ok(Backward { outputs, gradients })
    }
}

impl Builtin {
    /// The outputs, once they have been seen to have the shapes and formats that a backward pass
    /// may take for granted.
    fn outputs(&self, problem: &Problem, inputs: &Inputs) -> Result<Outputs, Failure> {
        let outputs = caught(|| self.kernel.forward(problem, inputs))?;
        let lse_format = self.kernel.profile(problem.format).lse_format;
        outputs.check(problem, lse_format).map_err(AnswerError::from)?;
        Ok(outputs)
    }
}

/// Runs a pass of a kernel. A kernel holds no state of ours that a panic could leave half-changed.
fn caught<T>(pass: impl FnOnce() -> Result<T, Unsupported>) -> Result<T, Failure> {
    catch_unwind(AssertUnwindSafe(pass))
        .map_err(|panic| Failure::Crashed(panic_message(panic.as_ref())))?
        .map_err(|unsupported| Failure::Unsupported(unsupported.to_string()))
}

/// SHA-256 of the bits of each tensor that a kernel reads.
struct Fingerprint(Vec<(&'static str, [u8; 32])>);

impl Fingerprint {
    fn of(tensors: &[(&'static str, &Tensor)]) -> Self {
        Self(tensors.iter().map(|&(name, tensor)| (name, digest(tensor))).collect())
    }

    fn check(&self, tensors: &[(&'static str, &Tensor)]) -> Result<(), Failure> {
        let changed =
            self.0.iter().zip(Self::of(tensors).0).find(|(before, after)| *before != after);
        changed.map_or(Ok(()), |((name, _), _)| Err(Failure::InputChanged((*name).to_owned())))
    }
}

fn digest(tensor: &Tensor) -> [u8; 32] {
    let mut hasher = Sha256::new();
    for value in tensor.values() {
        hasher.update(value.to_bits().to_le_bytes());
    }
    hasher.finalize().into()
}

fn panic_message(panic: &(dyn Any + Send)) -> String {
    let text = panic
        .downcast_ref::<String>()
        .map(String::as_str)
        .or_else(|| panic.downcast_ref::<&str>().copied());
    text.map_or_else(|| "panicked".to_owned(), |text| format!("panicked: {text}"))
}

#[cfg(test)]
mod tests {
    use ndarray::{ArrayD, IxDyn};

    use super::*;

    fn tensor(value: f64) -> Tensor {
        Tensor::rounded(Format::F32, &ArrayD::from_elem(IxDyn(&[1, 1, 1, 2]), value))
    }

    #[test]
    fn a_changed_input_is_named() {
        let inputs = Inputs { query: tensor(1.0), key: tensor(f64::NAN), value: tensor(0.0) };
        let cotangents = Cotangents { output: tensor(2.0), lse: Some(tensor(3.0)) };
        let fingerprint = Fingerprint::of(&named_inputs(&inputs, Some(&cotangents)));
        let check = |inputs: &Inputs, cotangents: &Cotangents| {
            fingerprint.check(&named_inputs(inputs, Some(cotangents)))
        };
        let changed = |name: &str| Err(Failure::InputChanged(name.to_owned()));
        assert_eq!(check(&inputs, &cotangents), Ok(()));
        let key = Inputs { key: tensor(1.0), ..inputs.clone() };
        assert_eq!(check(&key, &cotangents), changed("key"));
        let value = Inputs { value: tensor(-0.0), ..inputs.clone() };
        assert_eq!(check(&value, &cotangents), changed("value"));
        let output = Cotangents { output: tensor(-2.0), ..cotangents.clone() };
        assert_eq!(check(&inputs, &output), changed("output_gradient"));
        let lse = Cotangents { lse: Some(tensor(0.0)), ..cotangents };
        assert_eq!(check(&inputs, &lse), changed("lse_gradient"));
    }
}
