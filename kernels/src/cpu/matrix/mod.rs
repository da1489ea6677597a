//! The tiled kernel as tensor cores compute it.
//!
//! Tiles, online softmax and every operation of the row are those of [`tiled`](super::tiled). The two
//! products of matrices, scores and numerator, are accumulated as a generation of tensor cores does
//! ([`TensorCore`]): some products at a time, aligned, truncated, and added exactly.
//!
//! Where each field of its [`Profile`] happens: as in [`tiled`](super::tiled), and
//!
//! | field | forward |
//! |---|---|
//! | `score_accumulation` | `Operands::score`: entries of query and key in order, from zero |
//! | `value_accumulation` | `Operands::absorb`: the keys of a block in order, onto the rescaled numerator; a step takes the visible ones among `chunk` positions |
//!
//! | `weight_format`, `weight_scale` | `Operands::stored`: beside values of 8 bits, 256 times the weight in `e4m3` |
//!
//! It takes every mask and score modification in `f16` and `bf16`, and in `e4m3` and `e5m2` with
//! descales, where the generation takes them. It has no backward pass.

mod forward;
mod operands;
mod sums;

use std::num::NonZeroUsize;

use flashproof_spec::format::Format;
use flashproof_spec::problem::Problem;
use flashproof_spec::profile::{Accumulation, Profile, Schedule};
use flashproof_spec::tensor::{Cotangents, Gradients, Inputs, Outputs};
use flashproof_spec::tensor_core::TensorCore;

pub(in crate::cpu) use forward::rows;
pub(in crate::cpu) use sums::Sums;

use super::{IEEE_DIVISION_ULP, SCALE_ROUNDINGS};
use crate::{Kernel, Unsupported};

/// Queries and keys of a tile.
const BLOCK: NonZeroUsize = NonZeroUsize::new(64).unwrap();

/// The format of weights beside values of 8 bits.
pub(in crate::cpu) const QUANTIZED_WEIGHT: Format = Format::E4m3;

/// What weights are multiplied by before that: so they keep their bits down to `2^-14`, and the
/// largest, 1, is in range.
pub(in crate::cpu) const WEIGHT_SCALE: f64 = 256.0;

/// Tiled attention whose products are accumulated by tensor cores.
#[derive(Clone, Debug)]
pub struct Matrix {
    name: String,
    core: TensorCore,
}

impl Matrix {
    /// The kernel of a generation, named `matrix:GENERATION` after it.
    #[must_use]
    pub fn new(core: TensorCore) -> Self {
        Self { name: format!("matrix:{}", core.name()), core }
    }

    /// How products of elements of `format` are accumulated; an IEEE sum stands for none, in formats
    /// that the kernel refuses.
    fn accumulation(&self, format: Format) -> Accumulation {
        let none = Accumulation::Ieee { format: Format::F32, depth: None };
        self.core.accumulation(format).unwrap_or(none)
    }

    fn unsupported(&self, feature: impl Into<String>) -> Unsupported {
        Unsupported { kernel: self.name.clone(), feature: feature.into() }
    }
}

impl Default for Matrix {
    /// Hopper's, `matrix:hopper`.
    fn default() -> Self {
        Self::new(TensorCore::Hopper)
    }
}

impl Kernel for Matrix {
    fn name(&self) -> &str {
        &self.name
    }

    fn summary(&self) -> &'static str {
        "the tiled kernel with products accumulated as tensor cores do (MMA-Sim); forward only"
    }

    fn profile(&self, format: Format) -> Profile {
        let accumulation = self.accumulation(format);
        profile(accumulation, WEIGHT_SCALE, format)
    }

    fn takes(&self, format: Format) -> bool {
        self.core.accumulation(format).is_some()
    }

    fn forward(&self, problem: &Problem, inputs: &Inputs) -> Result<Outputs, Unsupported> {
        if !self.takes(problem.format) {
            return Err(self.unsupported(format!("number format {}", problem.format)));
        }
        if is_quantized(problem.format) {
            super::forward::run_quantized(self, problem, inputs)
        } else {
            super::forward::run(self, problem, inputs)
        }
    }

    fn backward(
        &self,
        _: &Problem,
        _: &Inputs,
        _: &Outputs,
        _: &Cotangents,
    ) -> Result<Gradients, Unsupported> {
        Err(self.unsupported("a backward pass"))
    }
}

/// The profile of these products, accumulated so, on inputs of `format`.
pub(in crate::cpu) fn profile(
    accumulation: Accumulation,
    weight_scale: f64,
    format: Format,
) -> Profile {
    let standard = Profile::standard(format);
    let (weight_format, weight_scale) = if is_quantized(format) {
        (QUANTIZED_WEIGHT, weight_scale)
    } else {
        (standard.weight_format, standard.weight_scale)
    };
    Profile {
        score_accumulation: accumulation,
        value_accumulation: accumulation,
        scale_roundings: SCALE_ROUNDINGS,
        weight_format,
        weight_scale,
        division_ulp: IEEE_DIVISION_ULP,
        schedule: Schedule::Blocks(BLOCK.get()),
        ..standard
    }
}

const fn is_quantized(format: Format) -> bool {
    matches!(format, Format::E4m3 | Format::E5m2)
}
