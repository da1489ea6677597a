//! Scales, biases, sinks and kept weights that are read as others.

use flashproof_spec::format::Format;
use flashproof_spec::problem::{Problem, Scale};
use flashproof_spec::score::{Bias, Slopes, SoftcapOrder, standard_slopes};
use flashproof_spec::tensor::{Inputs, Tensor};

use super::drawn;

/// The scale rounded to bf16.
pub(in crate::cpu::mutant) fn scale_bf16(problem: &mut Problem, _: &mut Inputs) {
    problem.scale = Scale::Value(Format::Bf16.round(problem.scale_f64()));
}

/// The scale applied to the query and to the product.
pub(in crate::cpu::mutant) fn scale_twice(problem: &mut Problem, _: &mut Inputs) {
    problem.scale = Scale::Value(problem.scale_f64().powi(2));
}

/// The scale taken from the entries of a value.
pub(in crate::cpu::mutant) fn scale_of_value_dim(problem: &mut Problem, _: &mut Inputs) {
    if problem.scale == Scale::InverseSqrtHeadDim {
        problem.scale = Scale::Value(1.0 / (problem.value_dim as f64).sqrt());
    }
}

/// A softcap on the other side of the bias.
pub(in crate::cpu::mutant) fn softcap_order(problem: &mut Problem, _: &mut Inputs) {
    if let Some(softcap) = &mut problem.softcap {
        softcap.order = match softcap.order {
            SoftcapOrder::BeforeBias => SoftcapOrder::AfterBias,
            SoftcapOrder::AfterBias => SoftcapOrder::BeforeBias,
        };
    }
}

/// The bias added to the product before that is scaled.
pub(in crate::cpu::mutant) fn bias_scaled(problem: &mut Problem, inputs: &mut Inputs) {
    let scale = problem.scale_f64();
    if let (Some(bias), Some(tensor)) = (&mut problem.bias, &mut inputs.bias) {
        // In f64, so that the product is not rounded twice; what hides a key still does.
        bias.format = Format::F64;
        let scaled = |&value: &f64| if value == f64::NEG_INFINITY { value } else { scale * value };
        *tensor = Tensor::rounded(Format::F64, &tensor.values().map(scaled));
    }
}

/// The bias of the first head read for all.
pub(in crate::cpu::mutant) fn bias_of_first_head(problem: &mut Problem, inputs: &mut Inputs) {
    read_bias_at(problem, inputs, |[batch, _, query, key]| [batch, 0, query, key]);
}

/// The bias of the first query read for all.
pub(in crate::cpu::mutant) fn bias_of_first_query(problem: &mut Problem, inputs: &mut Inputs) {
    read_bias_at(problem, inputs, |[batch, head, _, key]| [batch, head, 0, key]);
}

fn read_bias_at(problem: &mut Problem, inputs: &mut Inputs, at: fn([usize; 4]) -> [usize; 4]) {
    if let (Some(Bias { shape, .. }), Some(tensor)) = (problem.bias, &mut inputs.bias) {
        let values = tensor.view4().to_owned();
        *tensor = drawn(tensor, shape, |(b, h, q, k)| values[at([b, h, q, k])]);
    }
}

/// A step of strides that is not zero along a shared axis: neighbours are read, round the end of the
/// tensor.
pub(in crate::cpu::mutant) fn bias_not_broadcast(problem: &mut Problem, inputs: &mut Inputs) {
    let full = problem.score_shape();
    if let (Some(bias), Some(tensor)) = (&mut problem.bias, &mut inputs.bias) {
        let flat: Vec<f64> = tensor.values().iter().copied().collect();
        if !flat.is_empty() {
            let [_, heads, queries, keys] = full;
            let at = |(b, h, q, k)| ((b * heads + h) * queries + q) * keys + k;
            *tensor = drawn(tensor, full, |place| flat[at(place) % flat.len()]);
            bias.shape = full;
        }
    }
}

/// Slopes whose exponent starts from 0.
pub(in crate::cpu::mutant) fn alibi_exponent(problem: &mut Problem, _: &mut Inputs) {
    change_slopes(problem, |heads, head| (-8.0 * head as f64 / heads as f64).exp2());
}

/// Slopes of a power of two heads, for any number of them.
pub(in crate::cpu::mutant) fn alibi_power_of_two(problem: &mut Problem, _: &mut Inputs) {
    change_slopes(problem, |heads, head| (-8.0 * (head + 1) as f64 / heads as f64).exp2());
}

/// Scores that rise with the distance.
pub(in crate::cpu::mutant) fn alibi_sign(problem: &mut Problem, _: &mut Inputs) {
    let heads = problem.query_heads;
    if let Some(alibi) = &mut problem.alibi {
        let slopes = match &alibi.slopes {
            Slopes::Standard => standard_slopes(heads),
            Slopes::Given(slopes) => slopes.clone(),
        };
        alibi.slopes = Slopes::Given(slopes.into_iter().map(|slope| -slope).collect());
    }
}

/// Other slopes where they are the standard ones.
fn change_slopes(problem: &mut Problem, slope: fn(usize, usize) -> f64) {
    let heads = problem.query_heads;
    if let Some(alibi) = &mut problem.alibi
        && alibi.slopes == Slopes::Standard
    {
        let changed = (0..heads).map(|head| Format::F32.round(slope(heads, head)));
        alibi.slopes = Slopes::Given(changed.collect());
    }
}

/// No sink.
pub(in crate::cpu::mutant) fn sink_dropped(problem: &mut Problem, inputs: &mut Inputs) {
    problem.sink = None;
    inputs.sink = None;
}

/// Kept weights as they are.
pub(in crate::cpu::mutant) fn dropout_unscaled(problem: &mut Problem, _: &mut Inputs) {
    if let Some(dropout) = &mut problem.dropout {
        dropout.scale = 1.0;
    }
}
