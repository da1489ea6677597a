//! Patterns of sink logits.

use flashproof_spec::format::Format;
use flashproof_spec::tensor::Tensor;
use ndarray::Array1;
use serde::{Deserialize, Serialize};

use super::draw::{self, Stream};

/// How the logits of the sinks are drawn, one a query head.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SinkValues {
    /// Standard normal.
    #[default]
    Normal,
    /// About 20, above the usual scores.
    Twenty,
    /// About 40, so far above them that hardly any weight is left.
    High,
    /// About -30000: no weight is left for the sink.
    Low,
}

/// A sink of 0 is invisible among normal scores; 20 takes nearly all weight (`TransformerEngine`
/// PR#3551, rocm-libraries PR#12229).
const TWENTY: f64 = 20.0;
/// `e^40` overflows `f16`, and leaves keys weights below its smallest number; a kernel that adds the
/// sink to a finished normalizer overflows `f32` from about 88 on, and then there is no bound
/// (`FAS:bound.fwd.lse`).
const HIGH: f64 = 40.0;
/// Finite in every format, and below every score that the suite draws beside sinks.
const LOW: f64 = -30_000.0;
/// Spread of the logits about their level.
const SPREAD: f64 = 1.0;
/// Spread of logits near [`LOW`], where neighbours in the narrower formats are 16 and 128 apart.
const SPREAD_LOW: f64 = 1000.0;

impl SinkValues {
    /// Every pattern.
    pub const ALL: [Self; 4] = [Self::Normal, Self::Twenty, Self::High, Self::Low];

    /// The name, as in a case's name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Normal => "normal",
            Self::Twenty => "twenty",
            Self::High => "high",
            Self::Low => "low",
        }
    }

    /// What the pattern is for and which fault it exposes.
    #[must_use]
    pub const fn purpose(self) -> &'static str {
        match self {
            Self::Normal => "Sinks about as large as scores: each takes part of its row's weight.",
            Self::Twenty => {
                "Sinks near 20: they take nearly all weight, so one that is dropped or counted twice shows."
            }
            Self::High => {
                "Sinks near 40: next to no weight is left for keys, and the LSE is the sink's."
            }
            Self::Low => "Sinks near -30000: they change nothing, and make nothing underflow.",
        }
    }
}

/// The logits of the sinks of so many query heads.
pub(super) fn draw(heads: usize, format: Format, values: SinkValues, seed: u64) -> Tensor {
    let rng = &mut draw::generator(seed, Stream::Sink);
    let (level, spread) = match values {
        SinkValues::Normal => (0.0, SPREAD),
        SinkValues::Twenty => (TWENTY, SPREAD),
        SinkValues::High => (HIGH, SPREAD),
        SinkValues::Low => (LOW, SPREAD_LOW),
    };
    let drawn = Array1::from_shape_simple_fn(heads, || level + spread * draw::standard_normal(rng));
    Tensor::rounded(format, &drawn.into_dyn())
}
