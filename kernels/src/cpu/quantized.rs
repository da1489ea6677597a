//! Attention on inputs of 8 bits with descales (FlashAttention-3, arXiv 2407.08608, section 3.3).
//!
//! It is the kernel of [`matrix`], with sums in `f32`: dot products of entries are descaled
//! and scaled, weights are multiplied by 256 and rounded to `e4m3`, and what they make of the values is
//! descaled, block by block or in the end.

use flashproof_spec::format::Format;
use flashproof_spec::problem::Problem;
use flashproof_spec::profile::{Accumulation, Profile};
use flashproof_spec::tensor::{Cotangents, Gradients, Inputs, Outputs};

use super::element::Element;
use super::forward::{self, Algorithm};
use super::head::Head;
use super::matrix::{self, Sums, WEIGHT_SCALE};
use super::merge::Row;
use crate::{Kernel, Unsupported};

/// Sums in `f32`, in any order.
const SUMS: Accumulation = Accumulation::Ieee { format: Format::F32, depth: None };

/// Tiled attention on `e4m3` and `e5m2` with descales; forward only.
#[derive(Clone, Debug)]
pub struct Quantized {
    weight_scale: f64,
}

impl Quantized {
    /// The kernel with weights multiplied by `2^exponent` before they are rounded.
    #[must_use]
    pub fn with_weight_scale(exponent: i8) -> Self {
        Self { weight_scale: f64::from(exponent).exp2() }
    }
}

impl Default for Quantized {
    /// Weights multiplied by 256.
    fn default() -> Self {
        Self { weight_scale: WEIGHT_SCALE }
    }
}

impl Kernel for Quantized {
    fn name(&self) -> &'static str {
        "quantized"
    }

    fn summary(&self) -> &'static str {
        "8-bit inputs with descales, weights scaled and rounded to e4m3, sums in f32; forward only"
    }

    fn profile(&self, format: Format) -> Profile {
        matrix::profile(SUMS, self.weight_scale, format)
    }

    fn takes(&self, format: Format) -> bool {
        matches!(format, Format::E4m3 | Format::E5m2)
    }

    fn forward(&self, problem: &Problem, inputs: &Inputs) -> Result<Outputs, Unsupported> {
        forward::run_quantized(self, problem, inputs)
    }

    fn backward(
        &self,
        _: &Problem,
        _: &Inputs,
        _: &Outputs,
        _: &Cotangents,
    ) -> Result<Gradients, Unsupported> {
        Err(Unsupported { kernel: self.name().to_owned(), feature: "a backward pass".to_owned() })
    }
}

impl Algorithm for Quantized {
    fn rows<E: Element>(&self, head: &Head<'_, E>) -> Vec<Row<E::Accumulator>> {
        matrix::rows(head, Sums::new(SUMS), self.weight_scale)
    }
}
