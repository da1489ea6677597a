//! Changes to how the correct kernel's answer is stored.

use std::f64::consts::LN_2;

use flashproof_spec::problem::Problem;
use flashproof_spec::tensor::{Gradients, Outputs, Tensor};
use ndarray::{ArrayD, Axis, IxDyn, s};

use crate::cpu::position::InUse;

/// The values of a tensor changed, and rounded to its format again.
fn change(tensor: &mut Tensor, change: impl FnOnce(&mut ArrayD<f64>)) {
    let mut values = tensor.values().clone();
    change(&mut values);
    *tensor = Tensor::rounded(tensor.format(), &values);
}

fn change_lse(outputs: &mut Outputs, each: impl Fn(f64) -> f64) {
    if let Some(lse) = &mut outputs.lse {
        change(lse, |values| values.mapv_inplace(each));
    }
}

/// The LSE in binary logarithm.
pub(super) fn lse_in_base_2(_: &Problem, outputs: &mut Outputs) {
    change_lse(outputs, |lse| lse / LN_2);
}

/// The logarithm of an empty sum as that of an infinite one.
pub(super) fn empty_lse_plus_infinity(_: &Problem, outputs: &mut Outputs) {
    change_lse(outputs, |lse| if lse == f64::NEG_INFINITY { f64::INFINITY } else { lse });
}

/// NaN taken for a hole to be filled.
pub(super) fn nan_to_zero(_: &Problem, outputs: &mut Outputs) {
    change(&mut outputs.output, |values| {
        values.mapv_inplace(|value| if value.is_nan() { 0.0 } else { value });
    });
}

/// `[batch, query, head, entry]` written where `[batch, head, query, entry]` is read.
pub(super) fn heads_and_queries_swapped(problem: &Problem, outputs: &mut Outputs) {
    change(&mut outputs.output, |values| {
        let swapped = values.view().permuted_axes(IxDyn(&[0, 2, 1, 3]));
        let flat = swapped.iter().copied().collect();
        let shape = IxDyn(&problem.output_shape());
        *values = ArrayD::from_shape_vec(shape, flat).expect("as many values as before");
    });
}

/// The last query left as the memory was, here zero, where the queries do not fill their tile.
pub(super) fn last_query_unwritten(problem: &Problem, outputs: &mut Outputs) {
    /// Queries that one store takes.
    const STORED: usize = 4;
    if problem.query_len == 0 || problem.query_len.is_multiple_of(STORED) {
        return;
    }
    let last = problem.query_len - 1;
    change(&mut outputs.output, |values| {
        values.index_axis_mut(Axis(2), last).fill(0.0);
    });
    if let Some(lse) = &mut outputs.lse {
        change(lse, |values| values.index_axis_mut(Axis(2), last).fill(0.0));
    }
}

/// A gradient of the query that was never written, in memory that was zero.
pub(super) fn query_gradient_zero(_: &Problem, gradients: &mut Gradients) {
    change(&mut gradients.query, |values| values.fill(0.0));
}

/// The gradient of the bias as if it were multiplied by the softmax scale.
pub(super) fn bias_gradient_scaled(problem: &Problem, gradients: &mut Gradients) {
    if let Some(bias) = &mut gradients.bias {
        let scale = problem.scale_f64();
        change(bias, |values| values.mapv_inplace(|value| scale * value));
    }
}

/// Gradients of keys and values as the memory was, here NaN, where a batch member has no queries.
pub(super) fn unwritten_without_queries(problem: &Problem, gradients: &mut Gradients) {
    for batch in (0..problem.batch).filter(|&batch| InUse::new(problem, batch).queries == 0) {
        for tensor in [&mut gradients.key, &mut gradients.value] {
            change(tensor, |values| values.slice_mut(s![batch, .., .., ..]).fill(f64::NAN));
        }
    }
}
