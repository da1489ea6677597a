//! Gradients of bias and sinks, which are summed over everything that shares an entry: whole numbers,
//! which every kernel must get exactly.
//!
//! All scores, sinks and LSEs are zero, so that every visible key and every sink weighs `e^0 = 1`.
//! (The LSE need not be the row's own: gradients are a function of the LSE that is handed over.)

use flashproof_spec::format::Format;
use flashproof_spec::mask::Site;
use flashproof_spec::problem::Problem;
use flashproof_spec::score::Sink;
use flashproof_spec::tensor::{Cotangents, Inputs, Outputs, Tensor};
use ndarray::{ArrayD, IxDyn};
use proptest::prelude::*;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

use crate::support::problems::{KEPT, modified_problems};
use crate::support::sight::{is_padding, shared, visible_keys};
use crate::support::{arithmetic, differentiate, kernels, uniform, values};

/// Entries of upstream gradients, values and outputs: small, so that no sum leaves the integers
/// that `f32` has.
const LARGEST: i64 = 3;

struct Case {
    problem: Problem,
    inputs: Inputs,
    outputs: Outputs,
    cotangents: Cotangents,
}

impl Case {
    fn draw(problem: Problem, seed: u64) -> Self {
        // Distances would make scores that are not zero.
        let problem = Problem { alibi: None, ..problem };
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let mut small = |format: Format, shape: &[usize]| {
            let values = ArrayD::from_shape_simple_fn(IxDyn(shape), || {
                rng.random_range(-LARGEST..=LARGEST) as f64
            });
            Tensor::exact(format, values).expect("small integers")
        };
        let (format, wide) = (problem.format, arithmetic(problem.format));
        // A bias is minus infinity here and there, and zero elsewhere.
        let zero = |tensor: &Tensor| {
            let values = tensor.values().mapv(|x| if x.is_finite() { 0.0 } else { x });
            Tensor::exact(tensor.format(), values).expect("zeros")
        };
        let drawn = uniform(&problem, seed);
        let inputs = Inputs {
            query: zero(&drawn.query),
            key: drawn.key,
            value: small(format, &problem.value_shape()),
            bias: drawn.bias.as_ref().map(zero),
            sink: drawn.sink.as_ref().map(zero),
            descale: None,
        };
        let lse = Tensor::rounded(wide, &ArrayD::zeros(IxDyn(&problem.lse_shape())));
        let outputs = Outputs { output: small(format, &problem.output_shape()), lse: Some(lse) };
        let cotangents = Cotangents {
            output: small(format, &problem.output_shape()),
            lse: Some(small(wide, &problem.lse_shape())),
        };
        Self { problem, inputs, outputs, cotangents }
    }

    /// `g - D` of a row, and for each key that it sees `z dP - D + g`.
    fn row(&self, row: [usize; 3]) -> (f64, Vec<(usize, f64)>) {
        let [batch, head, query] = row;
        let Self { problem, inputs, outputs, cotangents } = self;
        let (d_o, value) = (cotangents.output.view4(), inputs.value.view4());
        let dot = |other: &dyn Fn(usize) -> f64| -> f64 {
            (0..problem.value_dim).map(|j| d_o[[batch, head, query, j]] * other(j)).sum()
        };
        let g = cotangents.lse.as_ref().expect("a gradient").view3()[row];
        let keys = visible_keys(problem, inputs, row);
        let delta = match keys.len() {
            0 => 0.0,
            _ => dot(&|j| outputs.output.view4()[[batch, head, query, j]]),
        };
        let key_head = head * problem.key_heads / problem.query_heads;
        let score_gradient = |key: usize| {
            let kept = problem.dropout.as_ref().map_or(1.0, |dropout| {
                let place = shared(dropout.keep.shape(), [batch, head, query, key]);
                if dropout.keep.bits()[place] { KEPT } else { 0.0 }
            });
            (key, kept * dot(&|j| value[[batch, key_head, key, j]]) - delta + g)
        };
        (g - delta, keys.into_iter().map(score_gradient).collect())
    }

    /// `dB` and `dT`, before they are rounded to their formats.
    fn gradients(&self) -> [Vec<f64>; 2] {
        let problem = &self.problem;
        let shape = problem.bias.map_or([0; 4], |bias| bias.shape);
        let mut bias = vec![0.0; shape.iter().product()];
        let mut sink = vec![0.0; problem.query_heads];
        for ((batch, head, query), _) in self.lse_places() {
            let (of_sink, of_keys) = self.row([batch, head, query]);
            if !is_padding(problem, batch, query) {
                sink[head] += of_sink;
            }
            for (key, gradient) in of_keys {
                if problem.bias.is_some() {
                    let site = Site { batch, head, query, key };
                    bias[shared(shape, site.place())] += gradient;
                }
            }
        }
        [bias, sink]
    }

    fn lse_places(&self) -> Vec<((usize, usize, usize), f64)> {
        let lse = self.outputs.lse.as_ref().expect("an LSE").view3();
        lse.indexed_iter().map(|(place, &lse)| (place, lse)).collect()
    }
}

fn stored(sums: &[f64], format: Format) -> Vec<f64> {
    sums.iter().map(|&sum| format.round(sum)).collect()
}

proptest! {
    #[test]
    fn bias_and_sink_gradients_sum_over_all_that_shares_them(
        problem in modified_problems(),
        seed: u64,
    ) {
        let case = Case::draw(problem, seed);
        let Case { problem, inputs, outputs, cotangents } = &case;
        let [bias, sink] = case.gradients();
        for kernel in kernels() {
            let found = differentiate(kernel.as_ref(), problem, inputs, outputs, cotangents);
            prop_assert_eq!(found.bias.is_some(), problem.bias.is_some());
            if let (Some(found), Some(described)) = (&found.bias, problem.bias) {
                let expected = stored(&bias, described.format);
                prop_assert_eq!(values(found), expected, "dB, {}", kernel.name());
            }
            if let Some(Sink::Logits(format)) = problem.sink {
                let found = found.sink.as_ref().expect("a gradient of the sinks");
                prop_assert_eq!(values(found), stored(&sink, format), "dT, {}", kernel.name());
            } else {
                prop_assert!(found.sink.is_none(), "{}", kernel.name());
            }
        }
    }
}
