//! The rows of the table as kernels: query, key and value in f16 to an output in f16.

use std::error::Error;

use flashproof_spec::format::Format;
use flashproof_spec::problem::Problem;
use flashproof_spec::tensor::{Inputs, Tensor};
use ndarray::{Array1, Array2, ArrayView2, Axis, s};

use super::arithmetic::{largest, softmax, stored, times, times_transposed};
use super::quantize::{Rotation, Scaled, quantized, saturated};

/// What weights are multiplied by before they are rounded to e4m3, so that small ones are not
/// flushed.
const WEIGHT_SCALE: f64 = 256.0;

/// Rows that share a scale, and keys of a block.
const BLOCK: usize = 128;

/// The seed of the random signs.
const ROTATION_SEED: u64 = 3;

/// One head's inputs, of values in f16.
pub struct Head {
    pub query: Array2<f64>,
    pub key: Array2<f64>,
    pub value: Array2<f64>,
}

/// A way of computing attention.
#[derive(Clone, Copy, Debug)]
pub enum Method {
    /// In f16, a whole score row at a time.
    DenseF16,
    /// `builtin:tiled` in f16.
    FlashF16,
    /// In e4m3, one scale a tensor; weights scaled by their largest too, or as they are.
    DenseF8 { scaled_weights: bool },
    /// In e4m3, block by block.
    FlashF8 { blocks: bool, incoherent: bool },
}

impl Method {
    /// The output of one head.
    pub fn run(self, head: &Head) -> Result<Array2<f64>, Box<dyn Error>> {
        Ok(match self {
            Self::DenseF16 => dense_f16(head),
            Self::FlashF16 => flash_f16(head)?,
            Self::DenseF8 { scaled_weights } => dense_f8(head, scaled_weights),
            Self::FlashF8 { blocks, incoherent } => flash_f8(head, blocks, incoherent),
        })
    }
}

fn softmax_scale(head: &Head) -> f64 {
    f64::from((1.0 / (head.query.ncols() as f64).sqrt()) as f32)
}

fn dense_f16(head: &Head) -> Array2<f64> {
    let products = stored(Format::F16, times_transposed(&head.query.view(), &head.key.view()));
    let scores = stored(Format::F16, products * softmax_scale(head));
    let weights = stored(Format::F16, softmax(&scores));
    stored(Format::F16, times(&weights.view(), &head.value.view()))
}

fn flash_f16(head: &Head) -> Result<Array2<f64>, Box<dyn Error>> {
    let [queries, keys] = [&head.query, &head.key].map(Array2::nrows);
    let mut problem = Problem::new(Format::F16, 1, queries, head.query.ncols());
    problem.key_len = keys;
    let tensor = |matrix: &Array2<f64>| {
        let values = matrix.clone().insert_axis(Axis(0)).insert_axis(Axis(0)).into_dyn();
        Tensor::exact(Format::F16, values)
    };
    let inputs = Inputs::new(tensor(&head.query)?, tensor(&head.key)?, tensor(&head.value)?);
    let outputs = flashproof_kernels::builtin("tiled")?.forward(&problem, &inputs)?;
    Ok(outputs.output.view4().slice(s![0, 0, .., ..]).to_owned())
}

fn dense_f8(head: &Head, scaled_weights: bool) -> Array2<f64> {
    let [query, key, value] = [&head.query, &head.key, &head.value]
        .map(|matrix| quantized(&matrix.view(), Scaled::Together));
    let products = times_transposed(&query.view(), &key.view());
    let scores = stored(Format::F16, products * softmax_scale(head));
    let weights = stored(Format::F16, softmax(&scores));
    let weights = if scaled_weights {
        quantized(&weights.view(), Scaled::Together)
    } else {
        stored(Format::E4m3, weights)
    };
    stored(Format::F16, times(&weights.view(), &value.view()))
}

fn flash_f8(head: &Head, blocks: bool, incoherent: bool) -> Array2<f64> {
    let scaled = if blocks { Scaled::Blocks(BLOCK) } else { Scaled::Together };
    let rotation = Rotation::new(head.query.ncols(), ROTATION_SEED);
    let [query, key] = [&head.query, &head.key].map(|matrix| {
        let matrix = if incoherent { rotation.apply(&matrix.view()) } else { matrix.clone() };
        quantized(&matrix.view(), scaled)
    });
    let value = quantized(&head.value.view(), scaled);
    let scores = times_transposed(&query.view(), &key.view()) * softmax_scale(head);
    let mut output = Array2::zeros((query.nrows(), value.ncols()));
    for (scores, mut output) in scores.rows().into_iter().zip(output.rows_mut()) {
        output.assign(&online(&scores.insert_axis(Axis(0)), &value.view()));
    }
    stored(Format::F16, output)
}

/// One row of scores by online softmax over blocks of keys, in f32.
fn online(scores: &ArrayView2<'_, f64>, value: &ArrayView2<'_, f64>) -> Array1<f64> {
    let (mut maximum, mut normalizer) = (f64::NEG_INFINITY, 0.0_f32);
    let mut numerator = Array1::<f64>::zeros(value.ncols());
    let blocks = scores.axis_chunks_iter(Axis(1), BLOCK);
    for (scores, value) in blocks.zip(value.axis_chunks_iter(Axis(0), BLOCK)) {
        let greatest = maximum.max(largest(&scores.row(0)));
        let factor = ((maximum - greatest) as f32).exp();
        maximum = greatest;
        let weights = scores.mapv(|s| f64::from(((s - maximum) as f32).exp()));
        normalizer = weights.iter().fold(normalizer * factor, |sum, &weight| sum + weight as f32);
        let rounded = weights.mapv(|weight| saturated(WEIGHT_SCALE * weight));
        let added = times(&rounded.view(), &value);
        numerator.zip_mut_with(&added.row(0), |sum, &product| {
            *sum = f64::from(*sum as f32 * factor + product as f32);
        });
    }
    numerator.mapv(|sum| f64::from(sum as f32 / normalizer) / WEIGHT_SCALE)
}
