//! Changes to what the correct kernel is handed.

pub(super) mod backward;
pub(super) mod descale;
pub(super) mod heads;
pub(super) mod mask;
pub(super) mod score;

use flashproof_spec::tensor::Tensor;
use ndarray::{Array4, ArrayD};

/// The values of a tensor changed, and rounded to its format again.
fn changed(tensor: &mut Tensor, change: impl FnOnce(&mut ArrayD<f64>)) {
    let mut values = tensor.values().clone();
    change(&mut values);
    *tensor = Tensor::rounded(tensor.format(), &values);
}

/// A tensor of the same format, with the value of each place.
fn drawn(
    like: &Tensor,
    shape: [usize; 4],
    at: impl FnMut((usize, usize, usize, usize)) -> f64,
) -> Tensor {
    Tensor::rounded(like.format(), &Array4::from_shape_fn(shape, at).into_dyn())
}
