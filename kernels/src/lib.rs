//! Flash attention kernels to read, to port and to test against.
//!
//! Kernels know the problem and compute; they know nothing of the oracle or of the bounds they are
//! held to, and each finds visible keys by loop bounds of its own, never through
//! [`flashproof_spec::mask`]: that is part of what is under test.

pub mod cpu;

use flashproof_spec::format::Format;
use flashproof_spec::problem::Problem;
use flashproof_spec::profile::Profile;
use flashproof_spec::tensor::{Inputs, Outputs};

/// A kernel of this crate: maps a problem and its inputs to outputs.
pub trait Kernel: Send + Sync {
    /// The name that `builtin:` takes.
    fn name(&self) -> &str;

    /// What it is and what to read it for, in one line.
    fn summary(&self) -> &str;

    /// The roundings it commits on inputs of `format`.
    fn profile(&self, format: Format) -> Profile;

    /// Attention output and LSE, in natural logarithm.
    ///
    /// # Errors
    /// [`Unsupported`] names the feature of the problem that this kernel lacks.
    ///
    /// # Panics
    /// When the inputs' shapes or formats are not the problem's; check them first.
    fn forward(&self, problem: &Problem, inputs: &Inputs) -> Result<Outputs, Unsupported>;
}

/// The kernel lacks a feature that the problem asks for.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{kernel} does not support {feature}")]
pub struct Unsupported {
    /// The kernel's name.
    pub kernel: String,
    /// What the problem asks for.
    pub feature: String,
}
