//! Inputs in 8 bits with descales.
//!
//! Entries are drawn as for any format, and are then quantized as kernels in use quantize: each head, or
//! block of positions, by its largest entry. Not quite by that alone: each is given a range of its own,
//! from all of the format's down to an eighth, so that no two descales of a case are near each other,
//! and one that is dropped, or taken of another head, block or tensor, shows.

use flashproof_spec::format::Format;
use flashproof_spec::problem::Problem;
use flashproof_spec::quantization::{Descale, Descales, Quantization};
use flashproof_spec::tensor::{Inputs, Tensor};
use ndarray::{Array3, s};
use rand::RngExt;
use rand_chacha::ChaCha8Rng;

use super::draw::{self, Stream};

/// The least part of the format's range that entries are scaled to, as a power of two.
const LEAST_RANGE: f64 = -3.0;

/// The inputs quantized as the problem says; as they are where it says nothing.
///
/// # Panics
/// When the inputs are not of the problem's shapes, or the problem is not valid.
pub(super) fn quantized(problem: &Problem, inputs: Inputs, seed: u64) -> Inputs {
    let Some(Quantization { query, key, value, .. }) = problem.quantization else {
        return inputs;
    };
    let rng = &mut draw::generator(seed, Stream::Descale);
    let (query, of_query) = quantize(problem.format, &inputs.query, query, rng);
    let (key, of_key) = quantize(problem.format, &inputs.key, key, rng);
    let (value, of_value) = quantize(problem.format, &inputs.value, value, rng);
    let descale = Some(Descales { query: of_query, key: of_key, value: of_value });
    Inputs { query, key, value, descale, ..inputs }
}

/// A tensor's entries in `format`, and their descales.
fn quantize(
    format: Format,
    tensor: &Tensor,
    descale: Descale,
    rng: &mut ChaCha8Rng,
) -> (Tensor, Tensor) {
    let mut entries = tensor.view4().to_owned();
    let (batch, heads, len, _) = entries.dim();
    let mut by = Array3::ones((batch, heads, descale.count(len)));
    for ((batch, head, block), by) in by.indexed_iter_mut() {
        let positions = match descale {
            Descale::Head => 0..len,
            Descale::Block(size) => block * size..len.min((block + 1) * size),
        };
        let mut shared = entries.slice_mut(s![batch, head, positions, ..]);
        let finite = shared.iter().filter(|entry| entry.is_finite());
        let largest = finite.fold(0.0_f64, |largest, entry| largest.max(entry.abs()));
        let range = format.max_finite() * rng.random_range(LEAST_RANGE..=0.0).exp2();
        if largest > 0.0 {
            *by = Format::F32.round(largest / range);
        }
        // The largest entry may be past the range by the rounding of the descale.
        shared.mapv_inplace(|entry| (entry / *by).clamp(-format.max_finite(), format.max_finite()));
    }
    let rounded = Tensor::rounded(format, &entries.into_dyn());
    (rounded, Tensor::rounded(Format::F32, &by.into_dyn()))
}
