//! Subjects for the tests: a built-in kernel whose answers are changed on the way, and others.
// Each test uses a part.
#![allow(dead_code)]

pub mod backward;
pub mod diagnosed;
pub mod faulty;
pub mod random;
pub mod simulated;

use flashproof_conformance::adapter::builtin::Builtin;
use flashproof_conformance::adapter::{Backward, Choices, Failure, Subject};
use flashproof_spec::format::Format;
use flashproof_spec::problem::Problem;
use flashproof_spec::profile::Profile;
use flashproof_spec::tensor::{Cotangents, Inputs, Outputs, Tensor};

/// A kernel that computes right and answers with what `tamper` makes of it.
pub struct Tampered<T> {
    kernel: Builtin,
    tamper: T,
    choices: Choices,
    profile: Option<Profile>,
}

impl<T> Tampered<T>
where
    T: FnMut(&Problem, &Inputs, Outputs) -> Result<Outputs, Failure> + Send,
{
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

impl<T> Subject for Tampered<T>
where
    T: FnMut(&Problem, &Inputs, Outputs) -> Result<Outputs, Failure> + Send,
{
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
        let outputs = self.kernel.forward(problem, inputs)?;
        (self.tamper)(problem, inputs, outputs)
    }

    fn backward(
        &mut self,
        problem: &Problem,
        inputs: &Inputs,
        cotangents: &Cotangents,
    ) -> Result<Backward, Failure> {
        self.kernel.backward(problem, inputs, cotangents)
    }
}

/// The tensor with every value replaced.
pub fn map(tensor: &Tensor, f: impl FnMut(f64) -> f64) -> Tensor {
    Tensor::rounded(tensor.format(), &tensor.values().mapv(f))
}

/// The tensor with the first element replaced that is of a row which sees some key.
pub fn with_value_at(tensor: &Tensor, at: &[usize], value: f64) -> Tensor {
    let mut values = tensor.values().clone();
    values[at] = value;
    Tensor::rounded(tensor.format(), &values)
}
