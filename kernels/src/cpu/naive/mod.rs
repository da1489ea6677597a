//! Dense attention, one whole score row at a time (the chapter, listing 26.2, computing equation
//! 26.1), and its derivative.
//!
//! Where each field of its [`Profile`] happens:
//!
//! | field | forward | backward |
//! |---|---|---|
//! | `arithmetic`, `score_format`, `weight_format`, `carried_format`, `lse_format` | every number between load and store is an accumulator | the same; `O` enters as stored, `L` in the accumulator's own format |
//! | `score_accumulation` | `Head::score` | `Head::score`, and `Upstream::weight_gradient` for `dP` |
//! | `scale_roundings` | the scale that `ScoreRule::score` applies | the same, and `GroupGradients::scaled`, once on each finished sum |
//! | `scaled_score_rounded` | `ScoreRule::score`, before the maximum is subtracted | `ScoreRule::score`, before `L` is |
//! | `tanh_ulp` | `tanh` of the standard library in `ScoreRule::score`, of the accumulator's quotient by the cap | the same, and the slope `1 - tanh^2` from it |
//! | `exp_ulp` | `exp` of the standard library, on a score or a sink less the maximum | the same, on a score or a sink less `L` |
//! | `normalizer`, `normalizer_depth` | weights as `exp` returned them, added in key order, that of a sink last | none: `L` holds it |
//! | `division_ulp`, `weights` | one IEEE division a weight, before the values are met | none |
//! | `value_accumulation` | `add_scaled` to the output, in key order | `add_scaled`: `dQ` in key order; `dK` and `dV` in the order of query heads and queries |
//! | `schedule` | one maximum over the row, so no rescaling | none |
//! | `max_policy` | the maximum over the row's keys and its sink | none: weights are relative to `L` |
//! | `log` | `ln` of the standard library | none |
//!
//! Roundings that every profile has where the problem asks for them, each to the accumulator:
//!
//! | of | forward | backward |
//! |---|---|---|
//! | a softcap | the cap itself; `ScoreRule::score`: the quotient by it and the product with it | the same; `1 - tanh^2`: product and difference; `dX = dS (1 - tanh^2)` |
//! | a bias, a sink | `convert::addends`, only where their format is wider; the sum with the bias | `BiasGradient`: dS summed in the accumulator; `SinkGradient`: `e^(t - L)`, its product with `D - g`, the sum; both rounded once to their formats |
//! | ALiBi | `HeadAlibi`: the slope by one `exp2` in `f32`; its product with the distance, and the sum with it | the same |
//! | dropout | its scale, once on each weight, after the division | its scale, on `P` where it meets `dO` and on `dP` |
//! | every problem | | `D = <dO, O>` and `dP` are sums; `D - g`, the difference from `dP` and its product with `P` |

mod backward;
mod forward;

use flashproof_spec::format::Format;
use flashproof_spec::problem::Problem;
use flashproof_spec::profile::{MaxPolicy, Profile};
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
            max_policy: Some(MaxPolicy::Row),
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
