//! Tiled attention with online softmax (the chapter, listing 26.3, computing equation 26.2;
//! FlashAttention-2, arXiv 2307.08691, algorithms 1 and 2).
//!
//! Where each field of its [`Profile`] happens:
//!
//! | field | forward | backward |
//! |---|---|---|
//! | `arithmetic`, `score_format`, `carried_format`, `lse_format` | every number between load and store, but the weights, is an accumulator | the same, but `P` and `dS`; `O` enters as stored, `L` in the accumulator's own format |
//! | `score_accumulation` | `Head::score` | `Head::score`, and `Upstream::probability_gradient` for `dP` |
//! | `scale_roundings` | the scale that `Head::score` applies | the same, and `GroupGradients::scaled`, once on each finished sum |
//! | `scaled_score_rounded` | `Head::score`, before the maximum is subtracted | `Head::score`, before `L` is |
//! | `exp_ulp` | `exp` of the standard library, on a score less the maximum and on a maximum less its successor | the same, on a score less `L` |
//! | `normalizer`, `normalizer_depth` | `State::absorb`: weights before they are rounded, added in key order | none: `L` holds it |
//! | `weight_format` | `State::absorb`: `E::store(weight)` | `KeyBlock::absorb`: `E::store` of `P` where it meets `dO`, and of `dS` where it meets keys and queries; `dS` comes from the `P` before that |
//! | `weights` | before the division | none: no division |
//! | `value_accumulation` | `State::absorb`: `add_scaled` to the numerator, in key order | `KeyBlock::absorb`: `add_scaled`, `dQ` in key order, `dK` and `dV` in the order of query heads and queries |
//! | `schedule` | `State::rescale`, at most once a block of `block_keys` | none: nothing is rescaled |
//! | `division_ulp`, `log` | `State::finish`: one IEEE division an entry, `ln` of the standard library | none |
//!
//! Backward roundings that every profile has: `D = <dO, O>` and `dP` are sums in the accumulator;
//! `D - g`, the difference from `dP` and its product with `P` are one rounding each.

mod backward;
mod forward;

use std::num::NonZeroUsize;
use std::ops::Range;

use flashproof_spec::format::Format;
use flashproof_spec::problem::Problem;
use flashproof_spec::profile::{Profile, Schedule};
use flashproof_spec::tensor::{Cotangents, Gradients, Inputs, Outputs};

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

/// `0..len` in blocks of `size`, the last one shorter where `size` does not divide `len`.
fn blocks(len: usize, size: NonZeroUsize) -> impl Iterator<Item = Range<usize>> {
    let size = size.get();
    (0..len).step_by(size).map(move |start| start..len.min(start + size))
}
