//! Upstream gradients: what a backward pass starts from.

use flashproof_spec::format::Format;
use flashproof_spec::problem::Problem;
use flashproof_spec::tensor::{Cotangents, Tensor};
use ndarray::{Array4, Axis};
use serde::{Deserialize, Serialize};

use super::draw::{self, Stream};

/// How the gradients of output and LSE are drawn. Never constant: a gradient of ones makes the score
/// gradients of many inputs vanish, and with them the faults.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Upstream {
    /// The output's standard normal, none of the LSE.
    #[serde(rename = "gradient")]
    Output,
    /// The output's and the LSE's standard normal.
    #[serde(rename = "gradient+lse")]
    OutputAndLse,
    /// The output's uniform on `[1, 2)`, none of the LSE.
    #[serde(rename = "gradient-positive")]
    Positive,
}

impl Upstream {
    /// Every kind.
    pub const ALL: [Self; 3] = [Self::Output, Self::OutputAndLse, Self::Positive];

    /// The name, as in a case's name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Output => "gradient",
            Self::OutputAndLse => "gradient+lse",
            Self::Positive => "gradient-positive",
        }
    }

    /// What it is for and which fault it exposes.
    #[must_use]
    pub const fn purpose(self) -> &'static str {
        match self {
            Self::Output => "The backward pass, from a random gradient of the output.",
            Self::OutputAndLse => {
                "The backward pass, from random gradients of output and LSE: one that ignores the latter is wrong in dQ and dK."
            }
            Self::Positive => {
                "The backward pass, from positive gradients: terms of dV have one sign, so a narrow accumulator stagnates."
            }
        }
    }

    /// Whether the loss depends on the LSE.
    #[must_use]
    pub const fn has_lse(self) -> bool {
        matches!(self, Self::OutputAndLse)
    }
}

/// Upstream gradients of the kind for the problem, from streams of the seed that no input shares; the
/// LSE's is rounded to `lse_format`.
#[must_use]
pub fn cotangents(
    problem: &Problem,
    upstream: Upstream,
    lse_format: Format,
    seed: u64,
) -> Cotangents {
    let shape = problem.output_shape();
    let rng = &mut draw::generator(seed, Stream::OutputGradient);
    let output: Array4<f64> = match upstream {
        Upstream::Output | Upstream::OutputAndLse => draw::normal(shape, 1.0, rng),
        Upstream::Positive => draw::uniform(shape, 1.0, 2.0, rng),
    };
    let lse = upstream.has_lse().then(|| {
        let [batch, heads, queries] = problem.lse_shape();
        let rng = &mut draw::generator(seed, Stream::LseGradient);
        let drawn = draw::normal([batch, heads, queries, 1], 1.0, rng);
        Tensor::rounded(lse_format, &drawn.remove_axis(Axis(3)).into_dyn())
    });
    Cotangents { output: Tensor::rounded(problem.format, &output.into_dyn()), lse }
}
