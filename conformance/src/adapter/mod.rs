//! How a kernel under test is reached.

use flashproof_spec::format::Format;
use flashproof_spec::problem::Problem;
use flashproof_spec::profile::Profile;
use flashproof_spec::tensor::{Inputs, Outputs};

/// A kernel under test, behind an adapter.
///
/// Runs cases one at a time; a failed case never ends the run.
pub trait Subject: Send {
    /// The name to report, such as `builtin:tiled` or `exec:python3 worker.py`.
    fn name(&self) -> &str;

    /// The precision contract that the kernel declares for inputs of `format`.
    ///
    /// # Errors
    /// [`Failure::Unsupported`] where the kernel does not take that format; others where the
    /// kernel could not be asked.
    fn profile(&mut self, format: Format) -> Result<Profile, Failure>;

    /// The options that the kernel declares where the specification leaves a choice.
    fn choices(&self) -> Choices;

    /// Runs the kernel. Outputs have been checked against the problem's shapes and formats.
    ///
    /// # Errors
    /// Says what happened instead of an answer.
    fn forward(&mut self, problem: &Problem, inputs: &Inputs) -> Result<Outputs, Failure>;
}

/// The options that a kernel declares where honest kernels differ.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct Choices {
    /// Base of the LSE output (`FAS:choice.lse.base`).
    pub lse_base: LseBase,
    /// Output of a row without visible keys (`FAS:choice.empty-row.output`); its LSE is minus infinity.
    pub empty_row: EmptyRow,
}

/// Base of the logarithm and exponential behind an LSE output.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LseBase {
    /// `m + ln sum e^(s - m)`.
    #[default]
    Natural,
    /// The same divided by `ln 2`.
    Two,
}

/// Output of a row without visible keys.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum EmptyRow {
    /// Every entry is zero.
    #[default]
    Zero,
    /// Every entry is NaN.
    Nan,
}

/// Why a case has no output to judge.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum Failure {
    /// The kernel does not offer what the case asks for: counted, and never a pass.
    #[error("unsupported: {0}")]
    Unsupported(String),
    /// The kernel's process ended, or could not be started.
    #[error("crashed: {0}")]
    Crashed(String),
    /// The kernel gave no answer within the time limit.
    #[error("timed out after {seconds} s")]
    TimedOut {
        /// The limit.
        seconds: f64,
    },
    /// The kernel answered with something that is not an answer to the case.
    #[error("malformed answer: {0}")]
    Malformed(String),
    /// The kernel changed its inputs.
    #[error("the kernel wrote to its input '{0}'")]
    InputChanged(String),
}
