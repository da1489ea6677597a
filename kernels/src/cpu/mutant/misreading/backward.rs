//! What the backward pass reads as something else.

use std::f64::consts::LN_2;

use flashproof_spec::pattern::Pattern;
use ndarray::s;

use super::changed;
use crate::cpu::mutant::Read;

/// No gradient arrives through the LSE.
pub(in crate::cpu::mutant) fn lse_gradient_ignored(read: &mut Read) {
    read.cotangents.lse = None;
}

/// The gradient of the LSE is added to `D`, not taken from it.
pub(in crate::cpu::mutant) fn lse_gradient_negated(read: &mut Read) {
    if let Some(lse) = &mut read.cotangents.lse {
        changed(lse, |values| values.mapv_inplace(|value| -value));
    }
}

/// An LSE in natural logarithm taken for a binary one.
pub(in crate::cpu::mutant) fn lse_from_base_2(read: &mut Read) {
    if let Some(lse) = &mut read.outputs.lse {
        changed(lse, |values| values.mapv_inplace(|value| value * LN_2));
    }
}

/// `D` of the query before, where there is one.
pub(in crate::cpu::mutant) fn delta_of_another_row(read: &mut Read) {
    changed(&mut read.outputs.output, |values| {
        let before = values.clone();
        let queries = before.shape()[2];
        if queries > 1 {
            let mut later = values.slice_mut(s![.., .., 1.., ..]);
            later.assign(&before.slice(s![.., .., ..queries - 1, ..]));
        }
    });
}

/// `D` of the output's gradient with itself.
pub(in crate::cpu::mutant) fn delta_of_gradient(read: &mut Read) {
    read.outputs.output = read.cotangents.output.clone();
}

/// Kept weights are looked up one key too far.
pub(in crate::cpu::mutant) fn kept_shifted(read: &mut Read) {
    if let Some(dropout) = &mut read.problem.dropout {
        let keep = dropout.keep.clone();
        let keys = keep.shape()[3];
        dropout.keep = Pattern::from_fn(keep.shape(), |[batch, head, query, key]| {
            keep.at([batch, head, query, (key + 1) % keys])
        });
    }
}

/// Kept weights as they are.
pub(in crate::cpu::mutant) fn dropout_unscaled(read: &mut Read) {
    super::score::dropout_unscaled(&mut read.problem, &mut read.inputs);
}
