//! Tiled attention with online softmax (the chapter, listing 26.3, computing equation 26.2;
//! FlashAttention-2, arXiv 2307.08691, algorithms 1 and 2).
//!
//! Where each field of its [`Profile`] happens:
//!
//! | field | forward | backward |
//! |---|---|---|
//! | `arithmetic`, `score_format`, `carried_format`, `lse_format` | every number between load and store, but the weights, is an accumulator | the same, but `P` and `dX`; `O` enters as stored, `L` in the accumulator's own format |
//! | `score_accumulation` | `Head::score` | `Head::score`, and `Upstream::weight_gradient` for `dP` |
//! | `scale_roundings` | the scale that `ScoreRule::score` applies | the same, and `GroupGradients::scaled`, once on each finished sum |
//! | `scaled_score_rounded` | `ScoreRule::score`, before the maximum is subtracted | `ScoreRule::score`, before `L` is |
//! | `tanh_ulp` | `tanh` of the standard library in `ScoreRule::score`, of the accumulator's quotient by the cap | the same, and the slope `1 - tanh^2` from it |
//! | `exp_ulp` | `exp` of the standard library, on a score less the maximum and on a maximum less its successor | the same, on a score or a sink less `L` |
//! | `normalizer`, `normalizer_depth` | `State::absorb`: weights before they are rounded, added in key order; a sink comes first | none: `L` holds it |
//! | `weight_format` | `State::absorb`: `E::store(weight)` | `KeyBlock::absorb`: `E::store` of `P` where it meets `dO`, and of `dX` where it meets keys and queries; `dS` comes from the `P` before that, and the bias's gradient from the `dS` before that |
//! | `weights` | before the division | none: no division |
//! | `value_accumulation` | `State::absorb`: `add_scaled` to the numerator, in key order | `KeyBlock::absorb`: `add_scaled`, `dQ` in key order, `dK` and `dV` in the order of query heads and queries |
//! | `schedule` | `State::rescale`, at most once a block of `block_keys`; from a sink to the first block the normalizer is 1, so that the factor is the sink's weight | none: nothing is rescaled |
//! | `max_policy` | `State::absorb`, of the maximum over the block and all before it; `State::with_sink`: the sink comes first | none: weights are relative to `L` |
//! | `division_ulp`, `log` | `State::finish`: one IEEE division an entry, `ln` of the standard library | none |
//!
//! Roundings that every profile has where the problem asks for them, each to the accumulator:
//!
//! | of | forward | backward |
//! |---|---|---|
//! | a softcap | the cap itself; `ScoreRule::score`: the quotient by it and the product with it | the same; `1 - tanh^2`: product and difference; `dX = dS (1 - tanh^2)` |
//! | a bias, a sink | `convert::addends`, only where their format is wider; the sum with the bias | `BiasGradient`: dS summed in the accumulator; `SinkGradient`: `e^(t - L)`, its product with `D - g`, the sum; both rounded once to their formats |
//! | ALiBi | `HeadAlibi`: the slope by one `exp2` in `f32`; its product with the distance, and the sum with it | the same |
//! | dropout | `State::finish`: its scale, once on each finished entry | `KeyBlock::write`: the same on `dV`; `KeyBlock::absorb`: on `dP` |
//! | every problem | | `D = <dO, O>` and `dP` are sums; `D - g`, the difference from `dP` and its product with `P` |

mod backward;
mod forward;
mod state;

use std::num::NonZeroUsize;
use std::ops::Range;

use flashproof_spec::format::Format;
use flashproof_spec::problem::Problem;
use flashproof_spec::profile::{MaxPolicy, Profile, Schedule};
use flashproof_spec::tensor::{Cotangents, Gradients, Inputs, Outputs};

pub(in crate::cpu) use state::State;

use super::{IEEE_DIVISION_ULP, SCALE_ROUNDINGS};
use crate::{Kernel, Unsupported};

/// Tiled attention with online softmax, in tiles of any size.
///
/// Sizes need not divide the lengths; a size past a length takes it whole.
#[derive(Clone, Debug)]
pub struct Tiled {
    name: String,
    block_queries: NonZeroUsize,
    block_keys: NonZeroUsize,
}

impl Tiled {
    /// A kernel of tiles of `block_queries` by `block_keys`, named `tiled:QxK` after them.
    #[must_use]
    pub fn new(block_queries: NonZeroUsize, block_keys: NonZeroUsize) -> Self {
        Self { name: format!("tiled:{block_queries}x{block_keys}"), block_queries, block_keys }
    }
}

impl Default for Tiled {
    /// Tiles of 64 by 64, named `tiled`.
    fn default() -> Self {
        let size = const { NonZeroUsize::new(64).unwrap() };
        Self { name: "tiled".to_owned(), block_queries: size, block_keys: size }
    }
}

impl Kernel for Tiled {
    fn name(&self) -> &str {
        &self.name
    }

    fn summary(&self) -> &'static str {
        "tiles of queries by keys with online softmax (the chapter, listing 26.3)"
    }

    fn profile(&self, format: Format) -> Profile {
        Profile {
            scale_roundings: SCALE_ROUNDINGS,
            division_ulp: IEEE_DIVISION_ULP,
            schedule: Schedule::Blocks(self.block_keys.get()),
            max_policy: Some(MaxPolicy::Running),
            ..Profile::standard(format)
        }
    }

    fn forward(&self, problem: &Problem, inputs: &Inputs) -> Result<Outputs, Unsupported> {
        super::forward::run(self, problem, inputs)
    }

    fn backward(
        &self,
        problem: &Problem,
        inputs: &Inputs,
        outputs: &Outputs,
        cotangents: &Cotangents,
    ) -> Result<Gradients, Unsupported> {
        super::backward::run(self, problem, inputs, outputs, cotangents)
    }
}

/// `all` in blocks of `size`, the last one shorter where `size` does not divide its length.
pub(in crate::cpu) fn blocks(
    all: Range<usize>,
    size: NonZeroUsize,
) -> impl Iterator<Item = Range<usize>> {
    let size = size.get();
    all.clone().step_by(size).map(move |start| start..all.end.min(start.saturating_add(size)))
}
