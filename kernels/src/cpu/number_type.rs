//! In which number type a problem is computed, or why these kernels do not.

use flashproof_spec::format::Format;
use flashproof_spec::problem::{Problem, Scale};
use flashproof_spec::score::Softcap;
use half::{bf16, f16};

use super::element::{Accumulator, E4m3, E5m2, Element};
use crate::Unsupported;

/// A computation that is written once for every number type.
pub(super) trait Computation {
    /// What it computes.
    type Answer;

    /// Computes on tensors of `E`, with the softmax scale rounded to the accumulator.
    fn run<E: Element>(self, scale: E::Accumulator) -> Self::Answer;
}

/// Runs `computation` in the number type of the problem's format, for a kernel that does not know
/// descales, and so neither formats of 8 bits.
pub(super) fn run<C: Computation>(
    kernel: &str,
    problem: &Problem,
    computation: C,
) -> Result<C::Answer, Unsupported> {
    // By name, so that a field that these kernels do not know stops the build: none is ignored.
    let &Problem {
        softcap: _,
        bias: _,
        alibi: _,
        sink: _,
        dropout: _,
        layout: _,
        batch: _,
        query_heads: _,
        key_heads: _,
        query_len: _,
        key_len: _,
        head_dim: _,
        value_dim: _,
        format,
        quantization,
        scale: _,
        mask: _,
    } = problem;
    let answer = match format {
        _ if quantization.is_some() => Err("inputs with descales".to_owned()),
        Format::F64 => run_as::<f64, C>(problem, computation),
        Format::F32 => run_as::<f32, C>(problem, computation),
        Format::F16 => run_as::<f16, C>(problem, computation),
        Format::Bf16 => run_as::<bf16, C>(problem, computation),
        Format::Tf32 | Format::E4m3 | Format::E5m2 => Err(format!("number format {format}")),
    };
    answer.map_err(|feature| Unsupported { kernel: kernel.to_owned(), feature })
}

/// Runs `computation` in the number type of inputs with descales.
pub(super) fn run_quantized<C: Computation>(
    kernel: &str,
    problem: &Problem,
    computation: C,
) -> Result<C::Answer, Unsupported> {
    let answer = match problem.format {
        _ if problem.quantization.is_none() => Err("inputs of 8 bits without descales".to_owned()),
        Format::E4m3 => run_as::<E4m3, C>(problem, computation),
        Format::E5m2 => run_as::<E5m2, C>(problem, computation),
        format => Err(format!("number format {format}")),
    };
    answer.map_err(|feature| Unsupported { kernel: kernel.to_owned(), feature })
}

fn run_as<E: Element, C: Computation>(
    problem: &Problem,
    computation: C,
) -> Result<C::Answer, String> {
    check_softcap::<E::Accumulator>(problem)?;
    softmax_scale(problem).map(|scale| computation.run::<E>(scale))
}

/// A softcap that the accumulator would flush, overflow or hold with fewer bits is refused by name.
fn check_softcap<A: Accumulator>(problem: &Problem) -> Result<(), String> {
    match problem.softcap {
        Some(Softcap { cap, .. }) if !A::nearest(cap).is_normal() => {
            Err(format!("a softcap of {cap:e} in {} arithmetic", A::FORMAT))
        }
        _ => Ok(()),
    }
}

/// The softmax scale: `1/sqrt(head_dim)` by a square root and a division in `f64`, then rounded to
/// the accumulator. In `f64` these are two roundings; in `f32` the first two are so small beside
/// the third that all three stay below two.
///
/// A scale that the accumulator would flush, overflow or hold with fewer bits is refused by name.
///
/// Clause: `FAS:fwd.score.scale`.
fn softmax_scale<A: Accumulator>(problem: &Problem) -> Result<A, String> {
    let scale = match problem.scale {
        Scale::InverseSqrtHeadDim => 1.0 / (problem.head_dim as f64).sqrt(),
        Scale::Value(scale) => scale,
    };
    let rounded = A::nearest(scale);
    if rounded.is_normal() || scale == 0.0 {
        Ok(rounded)
    } else {
        Err(format!("a softmax scale of {scale:e} in {} arithmetic", A::FORMAT))
    }
}
