//! Matrices in e4m3, each part scaled so that its largest entry is the format's.

use flashproof_spec::format::Format;
use ndarray::{Array1, Array2, ArrayView2, Axis};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

/// Which rows share a scale.
#[derive(Clone, Copy, Debug)]
pub enum Scaled {
    /// All of them.
    Together,
    /// So many consecutive ones.
    Blocks(usize),
}

/// The matrix as its e4m3 entries and scales stand for it.
pub fn quantized(matrix: &ArrayView2<'_, f64>, scaled: Scaled) -> Array2<f64> {
    let rows = match scaled {
        Scaled::Together => matrix.nrows().max(1),
        Scaled::Blocks(rows) => rows,
    };
    let mut quantized = matrix.to_owned();
    for mut block in quantized.axis_chunks_iter_mut(Axis(0), rows) {
        let largest = block.iter().fold(0.0_f64, |largest, x| largest.max(x.abs()));
        let scale = f64::from((largest / Format::E4m3.max_finite()) as f32);
        if scale > 0.0 {
            block.mapv_inplace(|x| scale * saturated(x / scale));
        }
    }
    quantized
}

/// The nearest e4m3 number, the largest where that would be past it.
pub fn saturated(x: f64) -> f64 {
    let largest = Format::E4m3.max_finite();
    Format::E4m3.round(x.clamp(-largest, largest))
}

/// An orthogonal matrix that spreads every entry of a row over all of it: random signs, then a Hadamard
/// transform.
#[derive(Debug)]
pub struct Rotation {
    signs: Array1<f64>,
}

impl Rotation {
    /// For rows of `len` entries, a power of two.
    pub fn new(len: usize, seed: u64) -> Self {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let sign = || if rng.random::<bool>() { 1.0 } else { -1.0 };
        Self { signs: Array1::from_shape_simple_fn(len, sign) }
    }

    /// The rows of a matrix, rotated in f64 by butterflies.
    pub fn apply(&self, matrix: &ArrayView2<'_, f64>) -> Array2<f64> {
        let mut rotated = matrix * &self.signs;
        let norm = (self.signs.len() as f64).sqrt().recip();
        for mut row in rotated.rows_mut() {
            let mut half = 1;
            while half < row.len() {
                for first in (0..row.len()).filter(|entry| entry & half == 0) {
                    let (x, y) = (row[first], row[first + half]);
                    (row[first], row[first + half]) = (x + y, x - y);
                }
                half *= 2;
            }
            row.mapv_inplace(|x| norm * x);
        }
        rotated
    }
}
