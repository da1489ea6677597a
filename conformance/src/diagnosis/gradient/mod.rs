//! Which fault explains failing gradients: names the clause behind a bound that was exceeded.
//!
//! As for the forward pass, each known fault is a hypothesis that predicts the failing elements. The
//! backward pass is recomputed in plain `f64` from the kernel's own output and LSE, as the kernel
//! does, with that one fault in it.

mod change;
mod element;
mod fault;
mod model;

use flashproof_spec::problem::Problem;
use flashproof_spec::profile::Profile;
use flashproof_spec::tensor::{Cotangents, Gradients, Inputs, Outputs};

use super::{Finding, spread};
use change::Change;
pub use fault::{GRADIENT_FAULTS, GradientFault};
use model::Model;

/// Which gradient an element belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum GradientOf {
    /// `dQ`.
    Query,
    /// `dK`.
    Key,
    /// `dV`.
    Value,
    /// `dBias`.
    Bias,
    /// `dSink`.
    Sink,
}

impl GradientOf {
    /// Every gradient.
    pub const ALL: [Self; 5] = [Self::Query, Self::Key, Self::Value, Self::Bias, Self::Sink];
}

/// An element of a gradient that is outside its bound.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FailingGradient {
    /// The gradient it belongs to.
    pub quantity: GradientOf,
    /// Batch member; of `dBias`, that of the bias, and 0 for `dSink`.
    pub batch: usize,
    /// Query head for `dQ` and `dSink`, key head for `dK` and `dV`; of `dBias`, that of the bias.
    pub head: usize,
    /// Query position for `dQ`, key position for `dK` and `dV`; of `dBias`, the query of the bias, and
    /// 0 for `dSink`.
    pub position: usize,
    /// Entry; of `dBias`, the key of the bias, and 0 for `dSink`.
    pub entry: usize,
    /// Its bound; 0 where it is required exactly.
    pub bound: f64,
}

/// What is known of a case with failing gradients.
#[derive(Clone, Copy, Debug)]
pub struct GradientEvidence<'a> {
    /// What was to be computed.
    pub problem: &'a Problem,
    /// How the kernel says it computes.
    pub profile: &'a Profile,
    /// What it was given.
    pub inputs: &'a Inputs,
    /// Its forward outputs, the LSE in nats, of positive sign and with any sink.
    pub outputs: &'a Outputs,
    /// The upstream gradients.
    pub cotangents: &'a Cotangents,
    /// What it answered.
    pub gradients: &'a Gradients,
    /// Elements outside their bounds, in any order.
    pub failing: &'a [FailingGradient],
}

/// Failing elements of each gradient that are examined.
const EXAMINED: usize = 24;

/// The faults that explain every examined element, most specific first. None without the kernel's
/// own LSE, from which its weights are recomputed.
#[must_use]
pub fn diagnose_gradients(evidence: &GradientEvidence<'_>) -> Vec<Finding> {
    let Some(model) = Model::new(evidence) else { return Vec::new() };
    let failing: Vec<FailingGradient> = GradientOf::ALL
        .into_iter()
        .flat_map(|quantity| examined(evidence.failing, quantity))
        .collect();
    // Predictions are looser than bounds. Where the right computation comes as near as that, no
    // change to it explains anything.
    let off = failing.iter().any(|at| !element::explains(Change::None, &model, at));
    GRADIENT_FAULTS.iter().filter_map(|fault| fault.finding(&model, &failing, off)).collect()
}

/// Some of the elements of one gradient, evenly spread.
fn examined(failing: &[FailingGradient], quantity: GradientOf) -> Vec<FailingGradient> {
    let all: Vec<_> = failing.iter().filter(|it| it.quantity == quantity).copied().collect();
    spread(&all, EXAMINED).collect()
}
