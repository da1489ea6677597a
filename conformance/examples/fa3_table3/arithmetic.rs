//! Products of matrices in f32, and the softmax of rows.

use flashproof_spec::format::Format;
use ndarray::{Array2, ArrayView1, ArrayView2};

/// `a b^T`: each product and each addition rounded to f32, in order.
pub fn times_transposed(a: &ArrayView2<'_, f64>, b: &ArrayView2<'_, f64>) -> Array2<f64> {
    let (a, b) = (a.mapv(|x| x as f32), b.mapv(|x| x as f32));
    Array2::from_shape_fn((a.nrows(), b.nrows()), |(row, column)| {
        let products = a.row(row).into_iter().zip(b.row(column));
        f64::from(products.fold(0.0_f32, |sum, (x, y)| sum + x * y))
    })
}

/// `a b`, likewise.
pub fn times(a: &ArrayView2<'_, f64>, b: &ArrayView2<'_, f64>) -> Array2<f64> {
    times_transposed(a, &b.t())
}

/// Every entry rounded to `format`.
pub fn stored(format: Format, matrix: Array2<f64>) -> Array2<f64> {
    matrix.mapv_into(|x| format.round(x))
}

/// The softmax of each row, in f32.
pub fn softmax(scores: &Array2<f64>) -> Array2<f64> {
    let mut weights = scores.clone();
    for mut row in weights.rows_mut() {
        let maximum = largest(&row.view());
        row.mapv_inplace(|s| f64::from(((s - maximum) as f32).exp()));
        let normalizer = row.iter().fold(0.0_f32, |sum, &weight| sum + weight as f32);
        row.mapv_inplace(|weight| f64::from(weight as f32 / normalizer));
    }
    weights
}

/// The largest entry; minus infinity of none.
pub fn largest(row: &ArrayView1<'_, f64>) -> f64 {
    row.iter().copied().fold(f64::NEG_INFINITY, f64::max)
}
