//! Tensors as elements, and back.

use flashproof_spec::format::Format;
use flashproof_spec::tensor::Tensor;
use ndarray::{Array, ArrayD, ArrayRef, Dimension, IxDyn};

use super::element::{Accumulator, Element};

/// The values of a tensor of format [`Element::FORMAT`], without rounding.
pub(super) fn elements<E: Element, D: Dimension>(values: &ArrayRef<f64, D>) -> Array<E, D> {
    values.mapv(E::from_exact)
}

/// The tensor of these elements, without rounding.
pub(super) fn tensor<E: Element, D: Dimension>(elements: &Array<E, D>) -> Tensor {
    let values = elements.map(|element| element.to_exact()).into_dyn();
    Tensor::exact(E::FORMAT, values).expect("an element is a value of its own format")
}

/// The values of a bias or of sinks, of a format of their own, as they are added: row-major.
///
/// Only a format wider than the accumulator rounds. A finite number past the largest becomes that:
/// only infinity hides a key, and a row of nothing but the lowest `f64` has equal weights.
///
/// Clauses: `FAS:score.bias.add`, `FAS:score.bias.finite`.
pub(super) fn addends<A: Accumulator>(tensor: &Tensor) -> Vec<A> {
    let addend = |&value: &f64| {
        let nearest = A::nearest(value);
        if value.is_finite() { nearest.max(A::min_value()).min(A::max_value()) } else { nearest }
    };
    tensor.values().iter().map(addend).collect()
}

/// The tensor of these sums, row-major, each rounded once to a format of its own.
pub(super) fn rounded<A: Accumulator>(format: Format, shape: &[usize], sums: &[A]) -> Tensor {
    let values = sums.iter().map(|sum| sum.to_exact()).collect();
    let values = ArrayD::from_shape_vec(IxDyn(shape), values).expect("a sum for each entry");
    Tensor::rounded(format, &values)
}
