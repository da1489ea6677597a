//! Causal attention in `f64`, and how far a kernel in f32 with 16-bit or tf32 factors may lie from it.
//!
//! Bounds are worst cases over every order of summation. `u` is the unit roundoff of f32, `u_P` that
//! of what weights are rounded to, `u_in` that of what tf32 instructions read of an f32. A sum of `n`
//! f32 numbers, kept in f32 by whatever order and at most one rounding a term, errs by at most
//! `G(n) = n u / (1 - n u)` of the sum of magnitudes.
//!
//! A tensor core that truncates adds to that, for each chunk of `k` terms, `(k + 1) 2^-F` for terms
//! that lose bits at the largest exponent of the chunk and `2^-ob` for the sum: `g` in all, and
//! `g / (1 - g)` of the sum of magnitudes.
//!
//! - Score (scaled to base 2): `|ds| <= D`, `D = tau (G(d) + 2 u_in + u_in^2) sum |q k| + 8 u X + 5 u`
//!   with `X` the largest magnitude of a score or an LSE of the row; three roundings of scale and
//!   product, two of the subtracted maximum, and a reserve; 5 u is the error of `ex2` of 2.5 ulp.
//! - Weight: a factor within `e^(+-D)` and, rescaled at every block, `e^(+-5 u B)` for B blocks.
//! - Output: numerator and normalizer each within such factors, the numerator's terms also rounded by
//!   `u_P` and `u_in`, both summed in f32, and a quotient of 2.5 ulp.

use flashproof_ptx::TensorCore;

use super::{Format, HEAD_DIM, Inputs, SCALE, TILE};

const U: f64 = 1.0 / 16_777_216.0;

/// `n u / (1 - n u)`.
fn sum_error(n: usize) -> f64 {
    let error = n as f64 * U;
    error / (1.0 - error)
}

/// What a tensor core adds to the error of a sum.
fn tensor_error(n: usize, model: TensorCore, format: Format) -> f64 {
    let TensorCore::Truncating { terms, tf32_terms, fraction_bits, output_bits } = model else {
        return 0.0;
    };
    let k = if format == Format::F32 { tf32_terms } else { terms };
    let chunk = (k as f64 + 1.0) * 2f64.powi(-fraction_bits) + 2f64.powi(-output_bits);
    let g = n.div_ceil(k) as f64 * chunk;
    g / (1.0 - g)
}

/// A value and how far from it a kernel may lie.
#[derive(Clone, Copy)]
pub struct Bounded {
    pub value: f64,
    pub bound: f64,
}

pub struct Forward {
    pub output: Vec<Bounded>,
    pub lse: Vec<Bounded>,
}

pub struct Backward {
    pub query: Vec<Bounded>,
    pub key: Vec<Bounded>,
    pub value: Vec<Bounded>,
}

/// Unit roundoff of weights, and of inputs where instructions do not read all of them.
fn roundoffs(format: Format) -> (f64, f64) {
    match format {
        Format::F16 => (2f64.powi(-11), 0.0),
        Format::Bf16 => (2f64.powi(-8), 0.0),
        // tf32 keeps 11 bits and drops the rest: twice the unit roundoff.
        Format::F32 => (2f64.powi(-10), 2f64.powi(-10)),
    }
}

/// One row of scores and weights.
struct Row {
    scores: Vec<f64>,
    /// `sum |q k|` of each key, scaled.
    magnitudes: Vec<f64>,
    weights: Vec<f64>,
    lse: f64,
}

fn entry(values: &[f32], row: usize, column: usize) -> f64 {
    f64::from(values[row * HEAD_DIM + column])
}

fn row(inputs: &Inputs, query: usize) -> Row {
    let scale = f64::from(SCALE);
    let dot = |key: usize, magnitude: bool| -> f64 {
        (0..HEAD_DIM)
            .map(|c| entry(&inputs.query, query, c) * entry(&inputs.key, key, c))
            .map(|term| if magnitude { term.abs() } else { term })
            .sum::<f64>()
            * scale
    };
    let scores: Vec<f64> = (0..=query).map(|key| dot(key, false)).collect();
    let magnitudes = (0..=query).map(|key| dot(key, true)).collect();
    let maximum = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let normalizer: f64 = scores.iter().map(|score| (score - maximum).exp()).sum();
    let lse = maximum + normalizer.ln();
    let weights = scores.iter().map(|score| (score - lse).exp()).collect();
    Row { scores, magnitudes, weights, lse }
}

impl Row {
    /// `D`, the largest error of the logarithm of a weight.
    fn log_error(&self, format: Format, model: TensorCore) -> f64 {
        let (_, u_in) = roundoffs(format);
        let magnitude = self.magnitudes.iter().copied().fold(0.0, f64::max);
        let largest = self.scores.iter().fold(self.lse.abs(), |most, score| most.max(score.abs()));
        let sums = sum_error(HEAD_DIM) + tensor_error(HEAD_DIM, model, format);
        (sums + 2.0 * u_in + u_in * u_in) * magnitude + 8.0 * U * largest + 5.0 * U
    }
}

pub fn forward(inputs: &Inputs, model: TensorCore) -> Forward {
    let (u_p, u_in) = roundoffs(inputs.format);
    let (mut output, mut lse) = (Vec::new(), Vec::new());
    for query in 0..inputs.rows {
        let row = row(inputs, query);
        let keys = row.weights.len();
        let blocks = keys.div_ceil(TILE) as f64;
        let d = row.log_error(inputs.format, model) + 5.0 * U * blocks;
        let sums = sum_error(keys + keys.div_ceil(TILE));
        let products = sums + tensor_error(keys, model, inputs.format);
        let numerator = (1.0 + u_p) * (1.0 + u_in) * (1.0 + products) * d.exp();
        let normalizer = (1.0 - sums) * (-d).exp();
        let factor = numerator / normalizer * (1.0 + 5.0 * U) - 1.0;
        for c in 0..HEAD_DIM {
            let terms = || row.weights.iter().enumerate();
            let value = terms().map(|(key, p)| p * entry(&inputs.value, key, c)).sum();
            let magnitude: f64 =
                terms().map(|(key, p)| p * entry(&inputs.value, key, c).abs()).sum();
            output.push(Bounded { value, bound: factor * magnitude });
        }
        // Maximum times ln 2 and logarithm, each of a few roundings, and their sum.
        let bound = d + sums + 8.0 * U * (row.lse.abs() + (keys as f64).ln() + 1.0);
        lse.push(Bounded { value: row.lse, bound: bound * (1.0 + d) });
    }
    Forward { output, lse }
}

/// The LSE and the row sums `D = sum dO O` of each row, rounded to f32.
pub fn saved(inputs: &Inputs) -> (Vec<f32>, Vec<f32>) {
    let forward = forward(inputs, TensorCore::Rounded);
    let lse = forward.lse.iter().map(|lse| lse.value as f32).collect();
    let delta = (0..inputs.rows)
        .map(|query| {
            (0..HEAD_DIM)
                .map(|c| {
                    entry(&inputs.output_gradient, query, c)
                        * forward.output[query * HEAD_DIM + c].value
                })
                .sum::<f64>() as f32
        })
        .collect();
    (lse, delta)
}

/// Gradients given the exact LSE and row sums; the kernel has both rounded to f32.
pub fn backward(inputs: &Inputs, model: TensorCore) -> Backward {
    let (u_p, _) = roundoffs(inputs.format);
    let scale = f64::from(SCALE);
    let zero = Bounded { value: 0.0, bound: 0.0 };
    let count = inputs.rows * HEAD_DIM;
    let (mut dq, mut dk, mut dv) = (vec![zero; count], vec![zero; count], vec![zero; count]);
    let (_, deltas) = saved(inputs);
    for query in 0..inputs.rows {
        let row = row(inputs, query);
        // The LSE is rounded to f32: that is one of the roundings of `X`.
        let e = row.log_error(inputs.format, model).exp_m1();
        let head_sums = sum_error(HEAD_DIM) + tensor_error(HEAD_DIM, model, inputs.format);
        let row_sums = sum_error(inputs.rows + 8) + tensor_error(inputs.rows, model, inputs.format);
        let gradient = |c: usize| entry(&inputs.output_gradient, query, c);
        let delta = f64::from(deltas[query]);
        for (key, p) in row.weights.iter().enumerate() {
            let products = || (0..HEAD_DIM).map(|c| gradient(c) * entry(&inputs.value, key, c));
            let dp: f64 = products().sum();
            let dp_error = head_sums * products().map(f64::abs).sum::<f64>();
            let ds = p * (dp - delta);
            let delta_error = U * delta.abs();
            let ds_error =
                p * ((dp - delta).abs() * (e + 3.0 * U) + (dp_error + delta_error) * (1.0 + e));
            // Rounded once more, to the format of the factors; subnormals of bf16 are too small to show.
            let ds_error = ds_error + u_p * (ds.abs() + ds_error);
            for c in 0..HEAD_DIM {
                let add = |to: &mut Bounded, factor: f64, error: f64| {
                    // Each term errs by itself and by being summed and scaled.
                    to.value += factor;
                    to.bound += error + row_sums * (factor.abs() + error);
                };
                let (q, k) = (entry(&inputs.query, query, c), entry(&inputs.key, key, c));
                add(&mut dq[query * HEAD_DIM + c], scale * ds * k, scale * ds_error * k.abs());
                add(&mut dk[key * HEAD_DIM + c], scale * ds * q, scale * ds_error * q.abs());
                let p_error = p * (e + u_p * (1.0 + e));
                add(&mut dv[key * HEAD_DIM + c], p * gradient(c), p_error * gradient(c).abs());
            }
        }
    }
    // Outputs of keys and values are rounded to bf16.
    for gradient in dk.iter_mut().chain(&mut dv) {
        gradient.bound += u_p * (gradient.value.abs() + gradient.bound);
    }
    Backward { query: dq, key: dk, value: dv }
}

/// How many values lie outside their bounds.
pub fn outside(found: &[f32], expected: &[Bounded]) -> usize {
    let lies_within = |found: &f32, expected: &Bounded| {
        (f64::from(*found) - expected.value).abs() <= expected.bound
    };
    found.iter().zip(expected).filter(|(found, expected)| !lies_within(found, expected)).count()
}

/// Asserts that every value lies within its bound.
pub fn assert_within(what: &str, found: &[f32], expected: &[Bounded]) {
    assert_eq!(found.len(), expected.len(), "{what}");
    for (at, (found, expected)) in found.iter().zip(expected).enumerate() {
        let error = (f64::from(*found) - expected.value).abs();
        assert!(
            error <= expected.bound,
            "{what} {at}: {found}, expected {} within {:e}, off by {error:e}",
            expected.value,
            expected.bound
        );
    }
}
