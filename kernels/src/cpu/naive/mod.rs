//! Dense attention, one whole score row at a time (the chapter, listing 26.2, computing equation
//! 26.1), and its derivative.
//!
//! Where each field of its [`Profile`] happens:
//!
//! | field | forward | backward |
//! |---|---|---|
//! | `arithmetic`, `score_format`, `weight_format`, `carried_format`, `lse_format` | every number between load and store is an accumulator | the same; `O` enters as stored, `L` in the accumulator's own format |
//! | `score_accumulation` | `Head::score` | `Head::score`, and `Upstream::probability_gradient` for `dP` |
//! | `scale_roundings` | the scale that `Head::score` applies | the same, and `GroupGradients::scaled`, once on each finished sum |
//! | `scaled_score_rounded` | `Head::score`, before the maximum is subtracted | `Head::score`, before `L` is |
//! | `exp_ulp` | `exp` of the standard library, on a score less the maximum | the same, on a score less `L` |
//! | `normalizer`, `normalizer_depth` | weights as `exp` returned them, added in key order | none: `L` holds it |
//! | `division_ulp`, `weights` | one IEEE division a weight, before the values are met | none |
//! | `value_accumulation` | `add_scaled` to the output, in key order | `add_scaled`: `dQ` in key order; `dK` and `dV` in the order of query heads and queries |
//! | `schedule` | one maximum over the row, so no rescaling | none |
//! | `log` | `ln` of the standard library | none |
//!
//! Backward roundings that every profile has: `D = <dO, O>` and `dP` are sums in the accumulator;
//! `D - g`, the difference from `dP` and its product with `P` are one rounding each.

mod backward;
mod forward;

use flashproof_spec::format::Format;
use flashproof_spec::problem::Problem;
use flashproof_spec::profile::Profile;
use flashproof_spec::tensor::{Cotangents, Gradients, Inputs, Outputs};

use super::{IEEE_DIVISION_ULP, SCALE_ROUNDINGS};
use crate::{Kernel, Unsupported};

/// Dense attention, to be read first: it is equation 26.1 and nothing else.
#[derive(Clone, Copy, Debug, Default)]
pub struct Naive;

impl Kernel for Naive {
    fn name(&self) -> &'static str {
        "naive"
    }

    fn summary(&self) -> &'static str {
        "dense attention, one whole score row at a time (the chapter, listing 26.2)"
    }

    fn profile(&self, format: Format) -> Profile {
        Profile {
            scale_roundings: SCALE_ROUNDINGS,
            division_ulp: IEEE_DIVISION_ULP,
            ..Profile::dense(format)
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
