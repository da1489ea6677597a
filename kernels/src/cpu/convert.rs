//! Tensors as elements, and back: both without rounding.

use flashproof_spec::tensor::Tensor;
use ndarray::{Array, ArrayRef, Dimension};

use super::element::Element;

/// The values of a tensor of format [`Element::FORMAT`].
pub(super) fn elements<E: Element, D: Dimension>(values: &ArrayRef<f64, D>) -> Array<E, D> {
    values.mapv(E::from_exact)
}

/// The tensor of these elements.
pub(super) fn tensor<E: Element, D: Dimension>(elements: &Array<E, D>) -> Tensor {
    let values = elements.map(|element| element.to_exact()).into_dyn();
    Tensor::exact(E::FORMAT, values).expect("an element is a value of its own format")
}
