//! How the tensor cores of each generation accumulate.
//!
//! A step takes some products and the accumulator, aligns them all to the greatest exponent among
//! them, truncates each to so many fraction bits below it, adds them exactly, and truncates the sum to
//! the fraction bits of the result (`FAS:num.accumulation.tensor-core`). The numbers were found by
//! experiment, and confirmed bit for bit on the devices, in MMA-Sim (arXiv 2511.10909).
//!
//! | generation | `f16`, `bf16`: products, bits, result | `e4m3`, `e5m2` |
//! |---|---|---|
//! | Volta | 4, 23, 23 (`f16` alone) | |
//! | Turing | 8, 24, 23 (`f16` alone) | |
//! | Ampere | 8, 24, 23: an instruction of 16 takes two steps | |
//! | Ada | 8, 24, 23: likewise | 16, 13, 13: one of 32 takes two steps |
//! | Hopper | 16, 25, 23 | 32, 13, 13 |
//! | Blackwell | 16, 25, 23 | 32, 25, 23 |
//!
//! The products of a step are those of the instruction that flash kernels use there. Modes that keep
//! the result in `f16` and those of scaled blocks are not in the table.

use crate::format::Format;
use crate::profile::Accumulation;

/// A generation of tensor cores.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs)] // the variants are the generations' own names
pub enum TensorCore {
    Volta,
    Turing,
    Ampere,
    Ada,
    Hopper,
    Blackwell,
}

/// Fraction bits of an `f32` result.
const SINGLE_BITS: u32 = 23;

/// Fraction bits of aligned products, and of the result, where Ada and Hopper take 8-bit operands.
const SHORT_BITS: u32 = 13;

impl TensorCore {
    /// Every generation, oldest first.
    pub const ALL: [Self; 6] =
        [Self::Volta, Self::Turing, Self::Ampere, Self::Ada, Self::Hopper, Self::Blackwell];

    /// The generation's name, as in the names of kernels.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Volta => "volta",
            Self::Turing => "turing",
            Self::Ampere => "ampere",
            Self::Ada => "ada",
            Self::Hopper => "hopper",
            Self::Blackwell => "blackwell",
        }
    }

    /// How products of two numbers of `format` are accumulated in `f32`; `None` where the generation
    /// does not take such operands, or the table does not have them.
    #[must_use]
    pub const fn accumulation(self, format: Format) -> Option<Accumulation> {
        let (chunk, fraction_bits, output_bits) = match (self, format) {
            (Self::Volta, Format::F16) => (4, 23, SINGLE_BITS),
            (Self::Turing, Format::F16)
            | (Self::Ampere | Self::Ada, Format::F16 | Format::Bf16) => (8, 24, SINGLE_BITS),
            (Self::Hopper | Self::Blackwell, Format::F16 | Format::Bf16) => (16, 25, SINGLE_BITS),
            (Self::Ada, Format::E4m3 | Format::E5m2) => (16, SHORT_BITS, SHORT_BITS),
            (Self::Hopper, Format::E4m3 | Format::E5m2) => (32, SHORT_BITS, SHORT_BITS),
            (Self::Blackwell, Format::E4m3 | Format::E5m2) => (32, 25, SINGLE_BITS),
            _ => return None,
        };
        Some(Accumulation::TensorCore { chunk, fraction_bits, output_bits })
    }
}
