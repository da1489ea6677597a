//! Gradients that are none.

use std::collections::BTreeMap;

use flashproof_spec::format::Format;
use flashproof_spec::score::Sink;
use flashproof_spec::tensor::{Gradients, Tensor};
use ndarray::{ArrayD, IxDyn};

use super::forward::{SEED, cycled, noise};
use super::{Answer, Question, reference};
use crate::inputs::{self, Family, Scores, Upstream, upstream};
use crate::verdict::Quantity;

/// The tensors that the answer replaces; none where the question has no backward pass.
pub(super) fn tensors(answer: Answer, question: &Question<'_>) -> BTreeMap<Quantity, Tensor> {
    let Some(cotangents) = question.cotangents else { return BTreeMap::new() };
    let each = |make: &dyn Fn(Quantity, &Tensor) -> Tensor| {
        let made = |(quantity, zero): (Quantity, Tensor)| (quantity, make(quantity, &zero));
        zeros(question).into_iter().map(made).collect()
    };
    match answer {
        Answer::ZeroGradients => zeros(question),
        Answer::ZeroQueryAndKey => {
            let mut zeros = zeros(question);
            zeros.retain(|it, _| matches!(it, Quantity::QueryGradient | Quantity::KeyGradient));
            zeros
        }
        Answer::CopiedInputs => each(&|quantity, zero| {
            let inputs = question.inputs;
            let input = match quantity {
                Quantity::QueryGradient => Some(&inputs.query),
                Quantity::KeyGradient => Some(&inputs.key),
                Quantity::ValueGradient => Some(&inputs.value),
                Quantity::BiasGradient => inputs.bias.as_ref(),
                _ => inputs.sink.as_ref(),
            };
            cycled(input.unwrap_or(zero), zero)
        }),
        Answer::CopiedUpstream => each(&|_, zero| cycled(&cotangents.output, zero)),
        Answer::NoiseGradients => {
            each(&|quantity, zero| noise(zero.format(), zero.shape(), quantity as u64))
        }
        Answer::NanGradients => {
            each(&|_, zero| Tensor::rounded(zero.format(), &zero.values().mapv(|_| f64::NAN)))
        }
        Answer::StaleGradients => {
            let problem = question.problem;
            let other = inputs::generate(problem, Family::of(Scores::Normal), SEED);
            let other = other.expect("normal inputs fit every problem");
            let kind = match cotangents.lse {
                Some(_) => Upstream::OutputAndLse,
                None => Upstream::Output,
            };
            let upstream = upstream::cotangents(problem, kind, question.lse_format, SEED);
            let stale = reference::gradients(problem, &other, &upstream);
            each(&|quantity, zero| {
                Tensor::rounded(zero.format(), of(&stale, quantity, zero).values())
            })
        }
        Answer::NarrowerGradients => {
            let exact = reference::gradients(question.problem, question.inputs, cotangents);
            each(&|quantity, zero| reference::rounded(zero.format(), of(&exact, quantity, zero)))
        }
        _ => BTreeMap::new(),
    }
}

/// One of the gradients; `none` where there is none.
fn of<'a>(gradients: &'a Gradients, quantity: Quantity, none: &'a Tensor) -> &'a Tensor {
    match quantity {
        Quantity::QueryGradient => &gradients.query,
        Quantity::KeyGradient => &gradients.key,
        Quantity::ValueGradient => &gradients.value,
        Quantity::BiasGradient => gradients.bias.as_ref().unwrap_or(none),
        _ => gradients.sink.as_ref().unwrap_or(none),
    }
}

/// Gradients of zeros: those that the problem has.
fn zeros(question: &Question<'_>) -> BTreeMap<Quantity, Tensor> {
    let problem = question.problem;
    let zeros =
        |format: Format, shape: &[usize]| Tensor::rounded(format, &ArrayD::zeros(IxDyn(shape)));
    let mut tensors = BTreeMap::from([
        (Quantity::QueryGradient, zeros(problem.format, &problem.query_shape())),
        (Quantity::KeyGradient, zeros(problem.format, &problem.key_shape())),
        (Quantity::ValueGradient, zeros(problem.format, &problem.value_shape())),
    ]);
    if let Some(bias) = problem.bias {
        tensors.insert(Quantity::BiasGradient, zeros(bias.format, &bias.shape));
    }
    if let Some(Sink::Logits(format)) = problem.sink {
        tensors.insert(Quantity::SinkGradient, zeros(format, &problem.sink_shape()));
    }
    tensors
}
