//! Random arrays of one distribution each.

use flashproof_spec::format::Format;
use ndarray::Array4;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use rand_distr::{Bernoulli, Distribution, StandardNormal};

/// The tensor that a stream of random numbers is for: each has its own, so that a change to the
/// pattern of one leaves the others as they were.
#[derive(Clone, Copy)]
pub(super) enum Stream {
    Query = 1,
    Key = 2,
    Value = 3,
    OutputGradient = 4,
    LseGradient = 5,
    Bias = 6,
    Sink = 7,
    Descale = 8,
}

/// FlashAttention-3 (arXiv 2407.08608, section 4.3) draws entries from
/// `N(0, 1) + N(0, 100) * Bernoulli(0.001)`.
const OUTLIER_PROBABILITY: f64 = 0.001;
/// The standard deviation of that second normal distribution.
const OUTLIER_DEVIATION: f64 = 10.0;

pub(super) fn generator(seed: u64, stream: Stream) -> ChaCha8Rng {
    let mut generator = ChaCha8Rng::seed_from_u64(seed);
    generator.set_stream(stream as u64);
    generator
}

/// Entries from the normal distribution of mean 0 and the given standard deviation.
pub(super) fn normal(shape: [usize; 4], deviation: f64, rng: &mut ChaCha8Rng) -> Array4<f64> {
    Array4::from_shape_simple_fn(shape, || deviation * standard_normal(rng))
}

pub(super) fn standard_normal(rng: &mut ChaCha8Rng) -> f64 {
    StandardNormal.sample(rng)
}

/// Normal entries, a few of them far out.
pub(super) fn outliers(shape: [usize; 4], rng: &mut ChaCha8Rng) -> Array4<f64> {
    let chosen = Bernoulli::new(OUTLIER_PROBABILITY).expect("a probability between 0 and 1");
    Array4::from_shape_simple_fn(shape, || {
        let (near, far) = (standard_normal(rng), OUTLIER_DEVIATION * standard_normal(rng));
        if chosen.sample(rng) { near + far } else { near }
    })
}

/// Whole entries, uniform on `-largest..=largest`.
pub(super) fn integers(shape: [usize; 4], largest: i32, rng: &mut ChaCha8Rng) -> Array4<f64> {
    Array4::from_shape_simple_fn(shape, || f64::from(rng.random_range(-largest..=largest)))
}

/// Entries uniform on `[low, high)`.
pub(super) fn uniform(shape: [usize; 4], low: f64, high: f64, rng: &mut ChaCha8Rng) -> Array4<f64> {
    Array4::from_shape_simple_fn(shape, || rng.random_range(low..high))
}

/// Entries of either sign below the smallest normal number of `format`.
pub(super) fn subnormal(shape: [usize; 4], format: Format, rng: &mut ChaCha8Rng) -> Array4<f64> {
    let largest = format.smallest_normal() - format.smallest_subnormal();
    Array4::from_shape_simple_fn(shape, || largest * rng.random_range(-1.0..=1.0))
}

/// Every entry moved into the finite range of `format`.
pub(super) fn within_range(mut values: Array4<f64>, format: Format) -> Array4<f64> {
    let largest = format.max_finite();
    values.mapv_inplace(|value| value.clamp(-largest, largest));
    values
}
