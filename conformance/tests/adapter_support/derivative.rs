//! Gradients by their definition, where each row weighs a few keys alike and the others not at all.

use flashproof_spec::problem::Problem;
use flashproof_spec::tensor::{Cotangents, Gradients, Inputs, Tensor};
use ndarray::{Array4, ArrayView1, s};

/// Batch member, query head and query.
pub type Row = (usize, usize, usize);

/// Exact gradients.
pub struct Derivative {
    pub gradients: Gradients,
    /// Whether the terms of each sum over query rows have one sign, so that none cancels another and
    /// a relative error of the terms is one of the sum.
    pub one_signed: bool,
}

/// A sum and the sum of the magnitudes.
struct Sum {
    total: Array4<f64>,
    mass: Array4<f64>,
}

impl Sum {
    fn zero(shape: [usize; 4]) -> Self {
        Self { total: Array4::zeros(shape), mass: Array4::zeros(shape) }
    }

    fn add(&mut self, (b, h, i): Row, factor: f64, vector: &ArrayView1<f64>) {
        let terms = factor * vector;
        let mut total = self.total.slice_mut(s![b, h, i, ..]);
        total += &terms;
        let mut mass = self.mass.slice_mut(s![b, h, i, ..]);
        mass += &terms.mapv(f64::abs);
    }

    fn one_signed(&self) -> bool {
        self.total.mapv(f64::abs) == self.mass
    }

    fn exact(self, problem: &Problem) -> Tensor {
        super::pointed::exact(problem.format, self.total)
    }
}

/// The gradients where a row's weights are equal on the keys that `targets` gives and zero elsewhere.
/// Whole numbers and weights that are powers of two make all of it exact.
pub fn gradients(
    problem: &Problem,
    inputs: &Inputs,
    cotangents: &Cotangents,
    targets: impl Fn(Row) -> Vec<usize>,
) -> Derivative {
    let scale = problem.scale_f64();
    let (query, key, value) = (inputs.query.view4(), inputs.key.view4(), inputs.value.view4());
    let d_output = cotangents.output.view4();
    let [mut d_query, mut d_key, mut d_value] =
        [problem.query_shape(), problem.key_shape(), problem.value_shape()].map(Sum::zero);
    for (b, h, i) in ndarray::indices(problem.lse_shape()) {
        let head = problem.key_head_of(h);
        let targets = targets((b, h, i));
        let weight = 1.0 / targets.len() as f64;
        let d_output = d_output.slice(s![b, h, i, ..]);
        let d_lse = cotangents.lse.as_ref().map_or(0.0, |lse| lse.view3()[[b, h, i]]);
        let d_weight = |t: usize| d_output.dot(&value.slice(s![b, head, t, ..]));
        let delta: f64 = targets.iter().map(|&t| weight * d_weight(t)).sum();
        for &t in &targets {
            let d_score = weight * (d_weight(t) - delta + d_lse);
            d_query.add((b, h, i), scale * d_score, &key.slice(s![b, head, t, ..]));
            d_key.add((b, head, t), scale * d_score, &query.slice(s![b, h, i, ..]));
            d_value.add((b, head, t), weight, &d_output);
        }
    }
    let one_signed = [&d_query, &d_key, &d_value].into_iter().all(Sum::one_signed);
    let gradients = Gradients {
        query: d_query.exact(problem),
        key: d_key.exact(problem),
        value: d_value.exact(problem),
        bias: None,
        sink: None,
    };
    Derivative { gradients, one_signed }
}
