//! `builtin:NAME`: a kernel in this process.

mod fingerprint;
mod stored;

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

use flashproof_kernels::{Kernel, UnknownKernel, Unsupported};
use flashproof_spec::format::Format;
use flashproof_spec::problem::Problem;
use flashproof_spec::profile::Profile;
use flashproof_spec::tensor::{Cotangents, Inputs, Outputs};

use super::{
    AnswerError, Backward, Choices, Failure, Guarantees, Subject, check_case, check_cotangents,
    check_partials, named_inputs,
};
use fingerprint::Fingerprint;
use stored::Stored;

/// A Rust kernel behind the adapter interface.
///
/// A panic costs one case. A kernel that never returns is not interrupted: a thread can not be
/// stopped from outside. Where the layout is not contiguous, tensors are handed over in buffers that
/// are poison wherever no element stands, and the outputs' must come back with exactly their
/// elements written. Dense outputs are not poisoned, since the kernel allocates them itself.
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
        if !self.kernel.takes(format) {
            let kernel = self.kernel.name().to_owned();
            let unsupported = Unsupported { kernel, feature: format!("number format {format}") };
            return Err(Failure::Unsupported(unsupported.to_string()));
        }
        Ok(self.kernel.profile(format))
    }

    /// One thread, in an order that the problem fixes, one batch member after another.
    fn guarantees(&self) -> Guarantees {
        Guarantees { deterministic: true, batch_invariant: true }
    }

    fn choices(&self) -> Choices {
        Choices::default()
    }

    fn forward(&mut self, problem: &Problem, inputs: &Inputs) -> Result<Outputs, Failure> {
        check_case(problem, inputs)?;
        if !problem.layout.is_contiguous() {
            return self.stored(problem).forward(inputs);
        }
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
        if !problem.layout.is_contiguous() {
            return self.stored(problem).backward(inputs, cotangents);
        }
        let before = Fingerprint::of(&named_inputs(inputs, Some(cotangents)));
        let outputs = self.outputs(problem, inputs)?;
        let gradients = caught(|| self.kernel.backward(problem, inputs, &outputs, cotangents))?;
        before.check(&named_inputs(inputs, Some(cotangents)))?;
        gradients.check(problem).map_err(AnswerError::from)?;
        Ok(Backward { outputs, gradients })
    }

    fn merge(&mut self, problem: &Problem, partials: &[Outputs]) -> Result<Outputs, Failure> {
        let lse_format = self.kernel.profile(problem.format).lse_format;
        check_partials(problem, partials, lse_format)?;
        let outputs = caught(|| self.kernel.merge(problem, partials))?;
        outputs.check(problem, lse_format).map_err(AnswerError::from)?;
        Ok(outputs)
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

    fn stored<'a>(&'a self, problem: &'a Problem) -> Stored<'a> {
        Stored { kernel: self.kernel.as_ref(), problem }
    }
}

/// Runs a pass of a kernel. A kernel holds no state of ours that a panic could leave half-changed.
fn caught<T>(pass: impl FnOnce() -> Result<T, Unsupported>) -> Result<T, Failure> {
    catch_unwind(AssertUnwindSafe(pass))
        .map_err(|panic| Failure::Crashed(panic_message(panic.as_ref())))?
        .map_err(|unsupported| Failure::Unsupported(unsupported.to_string()))
}

fn panic_message(panic: &(dyn Any + Send)) -> String {
    let text = panic
        .downcast_ref::<String>()
        .map(String::as_str)
        .or_else(|| panic.downcast_ref::<&str>().copied());
    text.map_or_else(|| "panicked".to_owned(), |text| format!("panicked: {text}"))
}
