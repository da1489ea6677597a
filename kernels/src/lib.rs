//! Flash attention kernels to read, to port and to test against.
//!
//! Kernels know the problem and compute; they know nothing of the oracle or of the bounds they are
//! held to, and each finds visible keys by loop bounds of its own, never through
//! [`flashproof_spec::mask`]: that is part of what is under test.
//!
//! Every function that carries out a clause of the specification names it.
//!
//! A [`Kernel`] has two passes. [`Kernel::forward`] gives output and LSE. [`Kernel::backward`] takes
//! both back, with the gradients of a loss with respect to them, and gives the gradients of query,
//! key and value, and of bias and sinks where the problem has them.
//!
//! ```
//! use flashproof_kernels::builtin;
//! use flashproof_spec::format::Format;
//! use flashproof_spec::problem::Problem;
//! use flashproof_spec::tensor::{Cotangents, Inputs, Tensor};
//!
//! // One head of two queries and two keys of one entry; equal scores make the mean of the values.
//! let problem = Problem::new(Format::Bf16, 1, 2, 1);
//! let tensor = |values: [f64; 2]| {
//!     Tensor::rounded_from(Format::Bf16, &[1, 1, 2, 1], values.to_vec())
//! };
//! let inputs = Inputs::new(tensor([0.0, 0.0])?, tensor([5.0, 7.0])?, tensor([1.0, 3.0])?);
//! let kernel = builtin("tiled:1x2")?;
//! let outputs = kernel.forward(&problem, &inputs)?;
//! assert!(outputs.output.values().iter().all(|&entry| entry == 2.0));
//!
//! // Each query gives each value half of its gradient: (4 + 8) / 2.
//! let cotangents = Cotangents { output: tensor([4.0, 8.0])?, lse: None };
//! let gradients = kernel.backward(&problem, &inputs, &outputs, &cotangents)?;
//! assert!(gradients.value.values().iter().all(|&entry| entry == 6.0));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

pub mod cpu;
mod merge;
mod registry;
mod storage;

pub use cpu::mutant;
pub use registry::{MOST_SPLITS, UnknownKernel, builtin, builtins};

use flashproof_spec::format::Format;
use flashproof_spec::layout::{StoredCotangents, StoredGradients, StoredInputs, StoredOutputs};
use flashproof_spec::problem::Problem;
use flashproof_spec::profile::Profile;
use flashproof_spec::tensor::{Cotangents, Gradients, Inputs, Outputs};

/// A kernel of this crate: maps a problem and its inputs to outputs, and upstream gradients back to
/// gradients of the inputs.
pub trait Kernel: Send + Sync {
    /// The name that `builtin:` takes.
    fn name(&self) -> &str;

    /// What it is and what to read it for, in one line.
    fn summary(&self) -> &str;

    /// The roundings it commits on inputs of `format`, in both passes; of no use for a format that
    /// [`Kernel::forward`] refuses.
    fn profile(&self, format: Format) -> Profile;

    /// Whether it takes inputs of `format` at all: those of 8 bits, with descales, only where it says
    /// so.
    fn takes(&self, format: Format) -> bool {
        matches!(format, Format::F64 | Format::F32 | Format::F16 | Format::Bf16)
    }

    /// Attention output and LSE, in natural logarithm.
    ///
    /// # Errors
    /// [`Unsupported`] names the feature of the problem that this kernel lacks.
    ///
    /// # Panics
    /// When the problem is not [valid](Problem::validate) or the inputs' shapes or formats are not
    /// [the problem's](Inputs::check); check them first.
    fn forward(&self, problem: &Problem, inputs: &Inputs) -> Result<Outputs, Unsupported>;

    /// Gradients of query, key and value, and of bias and sinks where the problem has them, given
    /// those of output and LSE.
    ///
    /// `outputs` are what [`Kernel::forward`] returned for the same problem and inputs. Both are
    /// used as stored: `D = rowsum(dO O)` from the output, `P = e^(S - L)` from the LSE. Nothing of
    /// the forward pass is computed again but the scores.
    ///
    /// # Errors
    /// [`Unsupported`] names the feature of the problem that this kernel lacks, or the LSE where
    /// `outputs` has none and the kernel needs it.
    ///
    /// # Panics
    /// When the problem is not [valid](Problem::validate) or the shapes or formats of
    /// [inputs](Inputs::check), [outputs](Outputs::check) or [cotangents](Cotangents::check) are
    /// not the problem's and the profile's; check them first.
    fn backward(
        &self,
        problem: &Problem,
        inputs: &Inputs,
        outputs: &Outputs,
        cotangents: &Cotangents,
    ) -> Result<Gradients, Unsupported>;

    /// Merges finished results of disjoint sets of keys into one (`FAS:fwd.merge.partials`). Of the
    /// problem, shapes and format are of interest.
    ///
    /// # Errors
    /// [`Unsupported`] names the feature of the problem that this kernel lacks.
    ///
    /// # Panics
    /// When a partial result's shapes or formats are not [the problem's](Outputs::check) and the
    /// profile's, or it has no LSE; check them first.
    fn merge(&self, problem: &Problem, partials: &[Outputs]) -> Result<Outputs, Unsupported> {
        merge::merge(self.name(), problem, partials)
    }

    /// As [`Kernel::forward`], on tensors as the problem's [layout](flashproof_spec::layout) has them
    /// stand in memory; other methods take dense tensors whatever the layout.
    ///
    /// Writes every element of the outputs that has a place, and nothing beside them
    /// (`FAS:layout.ownership`).
    ///
    /// # Errors
    /// As [`Kernel::forward`].
    ///
    /// # Panics
    /// As [`Kernel::forward`], and when a buffer is not as long as the layout says.
    fn forward_stored(
        &self,
        problem: &Problem,
        inputs: &StoredInputs,
    ) -> Result<StoredOutputs, Unsupported> {
        storage::forward(self, problem, inputs)
    }

    /// As [`Kernel::backward`], on tensors as the problem's [layout](flashproof_spec::layout) has them
    /// stand in memory.
    ///
    /// # Errors
    /// As [`Kernel::backward`].
    ///
    /// # Panics
    /// As [`Kernel::backward`], and when a buffer is not as long as the layout says.
    fn backward_stored(
        &self,
        problem: &Problem,
        inputs: &StoredInputs,
        outputs: &StoredOutputs,
        cotangents: &StoredCotangents,
    ) -> Result<StoredGradients, Unsupported> {
        storage::backward(self, problem, inputs, outputs, cotangents)
    }
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
