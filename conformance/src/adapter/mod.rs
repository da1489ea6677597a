//! How a kernel under test is reached.

pub mod builtin;
mod choices;
pub mod compiled;
pub mod exec;
mod failure;
mod ownership;

use std::time::Duration;

use flashproof_spec::format::Format;
use flashproof_spec::problem::Problem;
use flashproof_spec::profile::Profile;
use flashproof_spec::quantization::Descales;
use flashproof_spec::tensor::{Cotangents, Gradients, Inputs, Outputs, Tensor};

pub use choices::{
    CausalAlignment, Choices, EmptyRow, LseBase, LseSign, LseSink, SoftcapChoice, WindowConvention,
};
pub use failure::{AnswerError, Failure};
pub use ownership::OwnershipError;

/// A kernel under test, behind an adapter.
///
/// Runs cases one at a time; a failed case never ends the run.
pub trait Subject: Send {
    /// The name to report, such as `builtin:tiled` or `exec:python3 worker.py`.
    fn name(&self) -> &str;

    /// What the kernel says it is, in a few words: for people, not for scripts.
    fn description(&self) -> &str;

    /// The precision contract that the kernel declares for inputs of `format`, in the way that it computes
    /// now ([`Subject::begin`]; the first, where that was not called).
    ///
    /// # Errors
    /// [`Failure::Unsupported`] where the kernel does not take that format; others where the
    /// kernel could not be asked.
    fn profile(&mut self, format: Format) -> Result<Profile, Failure>;

    /// The options that the kernel declares where the specification leaves a choice.
    fn choices(&self) -> Choices;

    /// What the kernel promises of its answers beyond their bounds.
    fn guarantees(&self) -> Guarantees {
        Guarantees::default()
    }

    /// The ways in which the kernel computes what its device leaves open, by name: each case is put to
    /// it in every one of them, and the worst verdict is the case's. None where it computes in one way.
    fn policies(&self) -> Vec<String> {
        Vec::new()
    }

    /// Prepares for a case: until the next call, answers are given in the way of that number, and what is
    /// drawn beside the inputs is drawn from the seed. Gives the name that reaches the kernel so.
    fn begin(&mut self, _policy: usize, _seed: u64) -> String {
        self.name().to_owned()
    }

    /// Runs the kernel.
    ///
    /// The outputs have the problem's shapes and formats ([`Outputs::check`]) and may hold anything;
    /// the kernel did not write to the inputs.
    ///
    /// # Errors
    /// Says what happened instead of an answer.
    fn forward(&mut self, problem: &Problem, inputs: &Inputs) -> Result<Outputs, Failure>;

    /// Runs the kernel's forward pass, and its backward pass from what that stored.
    ///
    /// Outputs and gradients have the problem's shapes and formats ([`Outputs::check`],
    /// [`Gradients::check`]) and may hold anything; the kernel did not write to the inputs or the
    /// cotangents. The gradient of the LSE is with respect to the LSE in nats, whatever base the
    /// kernel gives it in (`FAS:bwd.lse.gradient`).
    ///
    /// # Errors
    /// Says what happened instead of an answer; [`Failure::Unsupported`] where the kernel has no
    /// backward pass, or none that takes a gradient of the LSE where there is one.
    fn backward(
        &mut self,
        problem: &Problem,
        inputs: &Inputs,
        cotangents: &Cotangents,
    ) -> Result<Backward, Failure>;

    /// Merges finished partial results of disjoint sets of keys into one (`FAS:fwd.merge.partials`).
    ///
    /// Each partial has the problem's shapes and formats, and an LSE; that of a row that sees none of
    /// the partial's keys is minus infinity. LSEs are in the base and of the sign that the kernel
    /// declares, going in and coming out. Of the problem only shapes and format are of interest: the
    /// tensors are dense.
    ///
    /// # Errors
    /// Says what happened instead of an answer; [`Failure::Unsupported`] where the kernel offers no
    /// merge.
    fn merge(&mut self, _problem: &Problem, _partials: &[Outputs]) -> Result<Outputs, Failure> {
        Err(Failure::Unsupported("it offers no merge".to_owned()))
    }
}

/// What a kernel promises of its answers beyond their bounds. Nothing, unless it says so.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Guarantees {
    /// The same inputs give the same bits (`FAS:repeat.deterministic`).
    pub deterministic: bool,
    /// A batch member's bits do not depend on the others (`FAS:repeat.batch-invariant`).
    pub batch_invariant: bool,
}

/// What a forward and a backward pass give.
#[derive(Clone, Debug, PartialEq)]
pub struct Backward {
    /// What the backward pass started from: the bounds on gradients take its errors as measured.
    pub outputs: Outputs,
    /// The gradients of query, key and value.
    pub gradients: Gradients,
}

/// The forms that [`open`] takes.
pub const SCHEMES: &str = "builtin:NAME, exec:COMMAND, ptx:MANIFEST, cuda:MANIFEST";

/// How long to wait for a kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// For a worker to start and introduce itself; importing a framework can take long.
    pub start_limit: Duration,
    /// For the answer to one case. A built-in kernel is not interrupted.
    pub case_limit: Duration,
}

impl Default for Options {
    fn default() -> Self {
        Self { start_limit: Duration::from_secs(120), case_limit: Duration::from_secs(60) }
    }
}

/// The kernel named can not be reached.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)] // each variant's message is its documentation
pub enum OpenError {
    #[error("'{spec}' names no kernel: expected one of {SCHEMES}")]
    Scheme { spec: String },
    #[error(transparent)]
    UnknownKernel(#[from] flashproof_kernels::UnknownKernel),
    #[error(transparent)]
    Start(#[from] exec::StartError),
    #[error(transparent)]
    Manifest(#[from] compiled::ManifestError),
}

/// Reaches the kernel that `spec` names: `builtin:NAME`, `exec:COMMAND` (`PROTOCOL.md`), `ptx:MANIFEST` or
/// `cuda:MANIFEST` (`MANIFEST.md`).
///
/// # Errors
/// Names the scheme, kernel or command at fault, and what was expected.
pub fn open(spec: &str, options: &Options) -> Result<Box<dyn Subject>, OpenError> {
    match spec.split_once(':') {
        Some(("builtin", name)) => Ok(Box::new(builtin::Builtin::open(name)?)),
        Some(("exec", command)) => Ok(Box::new(exec::Exec::start(command, options)?)),
        Some(("ptx", manifest)) => Ok(Box::new(compiled::Compiled::emulated(manifest)?)),
        Some(("cuda", manifest)) => Ok(Box::new(compiled::Compiled::on_device(manifest)?)),
        _ => Err(OpenError::Scheme { spec: spec.to_owned() }),
    }
}

/// Refuses a case that no kernel could be held to, before the kernel sees it.
fn check_case(problem: &Problem, inputs: &Inputs) -> Result<(), Failure> {
    problem.validate().map_err(|error| Failure::Environment(error.to_string()))?;
    inputs.check(problem).map_err(|error| Failure::Environment(error.to_string()))
}

/// As [`check_case`], for upstream gradients; `lse_format` is the profile's.
fn check_cotangents(
    problem: &Problem,
    cotangents: &Cotangents,
    lse_format: Format,
) -> Result<(), Failure> {
    cotangents.check(problem, lse_format).map_err(|error| Failure::Environment(error.to_string()))
}

/// Refuses partial results that can not be merged; `lse_format` is the profile's.
fn check_partials(
    problem: &Problem,
    partials: &[Outputs],
    lse_format: Format,
) -> Result<(), Failure> {
    let environment = |error: String| Err(Failure::Environment(error));
    if let Err(error) = problem.validate() {
        return environment(error.to_string());
    }
    if partials.is_empty() {
        return environment("there are no partial results to merge".to_owned());
    }
    for (index, partial) in partials.iter().enumerate() {
        if let Err(error) = partial.check(problem, lse_format) {
            return environment(format!("partial result {index}: {error}"));
        }
        if partial.lse.is_none() {
            return environment(format!("partial result {index} has no LSE"));
        }
    }
    Ok(())
}

/// What a kernel reads and must not change, by the names of the worker protocol; cotangents are
/// those of a backward pass.
fn named_inputs<'a>(
    inputs: &'a Inputs,
    cotangents: Option<&'a Cotangents>,
) -> Vec<(&'static str, &'a Tensor)> {
    let mut named = vec![("query", &inputs.query), ("key", &inputs.key), ("value", &inputs.value)];
    named.extend(inputs.bias.as_ref().map(|bias| ("bias", bias)));
    named.extend(inputs.sink.as_ref().map(|sink| ("sink", sink)));
    named.extend(inputs.descale.iter().flat_map(Descales::named));
    if let Some(Cotangents { output, lse }) = cotangents {
        named.push(("output_gradient", output));
        named.extend(lse.as_ref().map(|lse| ("lse_gradient", lse)));
    }
    named
}
