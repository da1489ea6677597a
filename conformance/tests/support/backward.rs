//! A built-in kernel whose backward pass is changed on the way.

use flashproof_conformance::adapter::builtin::Builtin;
use flashproof_conformance::adapter::{Backward, Choices, Failure, Subject};
use flashproof_spec::format::Format;
use flashproof_spec::problem::Problem;
use flashproof_spec::profile::Profile;
use flashproof_spec::tensor::{Cotangents, Inputs, Outputs};

/// A kernel that computes right and answers with what `tamper` makes of its backward pass.
pub struct TamperedBackward<T> {
    kernel: Builtin,
    tamper: T,
    choices: Choices,
    profile: Option<Profile>,
}

impl<T: FnMut(Backward) -> Result<Backward, Failure> + Send> TamperedBackward<T> {
    /// The built-in kernel of that name, tampered with.
    pub fn new(kernel: &str, tamper: T) -> Self {
        let kernel = Builtin::open(kernel).expect("a built-in kernel");
        Self { kernel, tamper, choices: Choices::default(), profile: None }
    }

    /// The same under other declared choices.
    pub fn declaring(self, choices: Choices) -> Self {
        Self { choices, ..self }
    }

    /// The same under another declared profile.
    pub fn computing(self, profile: Profile) -> Self {
        Self { profile: Some(profile), ..self }
    }
}

impl<T: FnMut(Backward) -> Result<Backward, Failure> + Send> Subject for TamperedBackward<T> {
    fn name(&self) -> &str {
        self.kernel.name()
    }

    fn description(&self) -> &str {
        self.kernel.description()
    }

    fn profile(&mut self, format: Format) -> Result<Profile, Failure> {
        self.profile.clone().map_or_else(|| self.kernel.profile(format), Ok)
    }

    fn choices(&self) -> Choices {
        self.choices
    }

    fn forward(&mut self, problem: &Problem, inputs: &Inputs) -> Result<Outputs, Failure> {
        self.kernel.forward(problem, inputs)
    }

    fn backward(
        &mut self,
        problem: &Problem,
        inputs: &Inputs,
        cotangents: &Cotangents,
    ) -> Result<Backward, Failure> {
        (self.tamper)(self.kernel.backward(problem, inputs, cotangents)?)
    }
}
