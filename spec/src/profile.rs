//! How a kernel computes: its precision contract.
//!
//! A profile is declared by the kernel, never guessed from its output. Every field is one source
//! of rounding error in the bounds of [`crate::bound`]; `FAS:num.profile.*` state them as clauses.

use serde::{Deserialize, Serialize};

use crate::format::Format;

/// The roundings that a kernel commits between its inputs and its outputs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Profile {
    /// Format of the running maximum, normalizer and numerator, and of every operation on them.
    pub arithmetic: Format,
    /// How query-key products are summed.
    pub score_accumulation: Accumulation,
    /// How weight-value products are summed.
    pub value_accumulation: Accumulation,
    /// Largest error of the exponential, in units in the last place of `arithmetic`.
    pub exp_ulp: f64,
    /// Largest error of the hyperbolic tangent of a softcap, in units in the last place of
    /// `arithmetic`: relative, also where the tangent is small.
    pub tanh_ulp: f64,
    /// Roundings in the factor applied to a dot product: `scale`, or `scale * log2(e)`.
    pub scale_roundings: u32,
    /// Roundings of the two factors of a query-key product by a scale that is multiplied into them
    /// beforehand: 1 where it is folded into query or key, 2 where its root is folded into both. One
    /// is counted in any case.
    #[serde(default = "one_operand")]
    pub operand_roundings: u32,
    /// Whether the scaled score is rounded before the maximum is subtracted (no fused
    /// multiply-add).
    pub scaled_score_rounded: bool,
    /// Format in which scores are kept between the product and the exponential.
    pub score_format: Format,
    /// Format to which weights are rounded before they meet the values.
    pub weight_format: Format,
    /// What weights are multiplied by before that rounding, and the product with the values divided
    /// by after it, so that small weights are not flushed (`FAS:num.weight-scale`).
    #[serde(default = "unscaled")]
    pub weight_scale: f64,
    /// Whether that rounding comes before or after the division by the normalizer.
    pub weights: Weights,
    /// Which weights the normalizer sums.
    pub normalizer: Normalizer,
    /// Longest chain of additions in the normalizer; `None`: any order.
    pub normalizer_depth: Option<usize>,
    /// Whether keys are taken all at once or in blocks.
    pub schedule: Schedule,
    /// What weights are relative to before they are rounded; `None`: undeclared, and the kernel is not
    /// put to the strict gate ([`crate::bound::strict`]).
    #[serde(default)]
    pub max_policy: Option<MaxPolicy>,
    /// Into how many parts, at most, the keys of a row and its sink are divided that are finished each
    /// by itself, into an output and an LSE of `arithmetic`, and then merged by the exponentials of
    /// their LSEs; `None`: the row is finished at once.
    #[serde(default)]
    pub merged_parts: Option<usize>,
    /// Format of the numerator carried between blocks, and of gradients where `carried_gradients` has
    /// none for them.
    pub carried_format: Format,
    /// Format of the normalizer carried between blocks; `None`: that of `arithmetic`.
    #[serde(default)]
    pub carried_normalizer: Option<Format>,
    /// How gradients of query, key and value are carried between blocks.
    #[serde(default)]
    pub carried_gradients: CarriedGradients,
    /// Whether results below the smallest normal number become zero. The bounds count lost results;
    /// an operand that is subnormal in the arithmetic format is taken to be read as it is.
    pub flush_to_zero: bool,
    /// Largest error of the division by the normalizer (or of multiplying by its reciprocal), in
    /// units in the last place of `arithmetic`.
    pub division_ulp: f64,
    /// Largest error of the logarithm.
    pub log: LogError,
    /// Format of the LSE output.
    pub lse_format: Format,
}

/// The gradients that are carried between blocks otherwise than in `carried_format`, rounded to it with
/// every term.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct CarriedGradients {
    /// `dQ`, between blocks of keys.
    pub query: Option<Carried>,
    /// `dK`, between blocks of queries.
    pub key: Option<Carried>,
    /// `dV`, between blocks of queries.
    pub value: Option<Carried>,
}

/// How one gradient is carried.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Carried {
    /// The format that the sum is rounded to after each block.
    pub format: Format,
    /// Positions in a block, or more (the last block of each head may be shorter).
    pub block: usize,
}

/// How a sum of products is accumulated.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub enum Accumulation {
    /// IEEE additions in `format`, in any order, or with at most `depth` of them in a chain: in
    /// every sum of this kind, forward and backward, whatever its length.
    Ieee {
        /// Format of the accumulator.
        format: Format,
        /// Longest chain of additions; `None`: any order.
        #[serde(default)]
        depth: Option<usize>,
    },
    /// A tensor core: products aligned to the largest and truncated to `fraction_bits`, `chunk` at
    /// a time, the result truncated to `output_bits` (MMA-Sim, arXiv 2511.10909).
    TensorCore {
        /// Products summed in one step.
        chunk: u32,
        /// Fraction bits kept of each aligned product.
        fraction_bits: u32,
        /// Fraction bits of the result.
        output_bits: u32,
    },
}

/// When weights are rounded to the weight format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Weights {
    /// `e^(s - m)` is rounded; the division by the normalizer comes last.
    Unnormalized,
    /// `e^(s - m) / l` is rounded; the product with the values comes last.
    Normalized,
}

/// Which weights the normalizer sums.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Normalizer {
    /// The exponentials as computed.
    Unrounded,
    /// The exponentials after rounding to the weight format.
    Rounded,
}

/// In which portions a kernel takes the keys of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Schedule {
    /// One maximum over the whole row; no rescaling.
    Dense,
    /// Blocks of at least this many keys (the last may be shorter), with a rescaling where the
    /// maximum moves.
    Blocks(usize),
    /// Blocks of unknown size: as many rescalings as keys.
    Undeclared,
}

/// The maximum that a weight `e^(s - m)` is relative to when it is rounded to the weight format. It is
/// that of the scores as computed, to the last bit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum MaxPolicy {
    /// That of the sink, where there is one, and of the row's visible keys up to and including those of
    /// the weight's block. Blocks are of exactly as many keys as [`Schedule::Blocks`] says, from key 0
    /// on, padding and hidden keys counted, and ascend. The sums so far are rescaled when the maximum
    /// moves, and only then; a factor of exactly 1 is none.
    Running,
    /// That of the whole row, sink included; with [`Schedule::Dense`].
    Row,
}

impl MaxPolicy {
    /// Whether keys are taken in the portions that it speaks of.
    #[must_use]
    pub const fn fits(self, schedule: Schedule) -> bool {
        matches!(
            (self, schedule),
            (Self::Running, Schedule::Blocks(_)) | (Self::Row, Schedule::Dense)
        )
    }
}

/// Error of a logarithm: the larger of an absolute error and some units in the last place.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LogError {
    /// Absolute error, in nats.
    pub absolute: f64,
    /// Error in units in the last place of the arithmetic format.
    pub ulp: f64,
}

/// PTX ISA, `ex2.approx.f32`: 2 ulp from the correctly rounded value, hence 2.5 ulp from the exact
/// one. The C and Rust libraries' `exp` err by less.
pub const EXP_ULP: f64 = 2.5;

/// CUDA programming guide, table of mathematical functions: `tanhf` errs by 2 ulp (1 in later
/// editions) from the correctly rounded value, hence by 2.5 ulp from the exact one; the C library's
/// `tanh` by no more. A kernel that uses `tanh.approx.f32` declares 4096: its relative error of
/// 2^-11 (PTX ISA) in units of 2^-23.
pub const TANH_ULP: f64 = 2.5;

/// A reciprocal good to 1 ulp and the product with it, each counted as a whole ulp and the second
/// order with a half: above the half ulp of a true division.
pub const DIVISION_ULP: f64 = 2.5;

/// CUDA programming guide, table of intrinsic functions: `__logf` errs by 2^-21.41 absolute on
/// [0.5, 2] and by 3 ulp elsewhere. The C and Rust libraries' `log` err by less.
pub const LOG_ERROR: LogError = LogError { absolute: 3.592_267_9e-7, ulp: 3.0 };

/// Roundings in `scale * log2(e)`: square root, division, product.
pub const SCALE_ROUNDINGS: u32 = 3;

/// A scale folded into the query, as `FlashAttention` and others do; that covers one which is not.
const fn one_operand() -> u32 {
    1
}

const fn unscaled() -> f64 {
    1.0
}

impl Profile {
    /// The strict profile of a flash kernel for inputs of `format`: accumulators and scores in f32
    /// (f64 for f64 inputs), weights rounded to the input format before they meet the values, the
    /// normalizer summed from unrounded weights, a reciprocal at the end.
    #[must_use]
    pub fn standard(format: Format) -> Self {
        let arithmetic = if format == Format::F64 { Format::F64 } else { Format::F32 };
        let accumulation = Accumulation::Ieee { format: arithmetic, depth: None };
        let weight_format =
            if matches!(format, Format::F64 | Format::F32) { arithmetic } else { format };
        Self {
            arithmetic,
            score_accumulation: accumulation,
            value_accumulation: accumulation,
            exp_ulp: EXP_ULP,
            tanh_ulp: TANH_ULP,
            scale_roundings: SCALE_ROUNDINGS,
            operand_roundings: one_operand(),
            scaled_score_rounded: true,
            score_format: arithmetic,
            weight_format,
            weight_scale: unscaled(),
            weights: Weights::Unnormalized,
            normalizer: Normalizer::Unrounded,
            normalizer_depth: None,
            schedule: Schedule::Undeclared,
            max_policy: None,
            merged_parts: None,
            carried_format: arithmetic,
            carried_normalizer: None,
            carried_gradients: CarriedGradients::default(),
            flush_to_zero: false,
            division_ulp: DIVISION_ULP,
            log: if arithmetic == Format::F64 {
                LogError { absolute: 0.0, ulp: LOG_ERROR.ulp }
            } else {
                LOG_ERROR
            },
            lse_format: arithmetic,
        }
    }

    /// The profile of a kernel that holds the whole score row (the chapter, listing 26.2) and keeps
    /// normalized weights in the accumulator's format.
    #[must_use]
    pub fn dense(format: Format) -> Self {
        let standard = Self::standard(format);
        Self {
            weight_format: standard.arithmetic,
            weights: Weights::Normalized,
            schedule: Schedule::Dense,
            ..standard
        }
    }
}

impl Schedule {
    /// The most rescalings that a row of `keys` visible keys among `key_len` can undergo.
    #[must_use]
    pub const fn rescalings(self, key_len: usize) -> usize {
        match self {
            Self::Dense => 0,
            Self::Blocks(keys) => {
                let keys = if keys == 0 { 1 } else { keys };
                key_len.div_ceil(keys).saturating_sub(1)
            }
            Self::Undeclared => key_len.saturating_sub(1),
        }
    }
}
