//! Cases whose exact gradients are plain, in every format and tiling.

use flashproof_kernels::Kernel;
use flashproof_spec::format::Format;
use flashproof_spec::mask::{Mask, Rule};
use flashproof_spec::problem::{Problem, Scale};
use flashproof_spec::tensor::{Cotangents, Gradients, Inputs, Outputs, Tensor};
use ndarray::{Axis, Slice};

use crate::support::{
    FORMATS, arithmetic, cotangents, differentiate, exp, inputs, kernels, lse, outputs, products,
    run, uniform, uniform_cotangents, values,
};

fn in_every_format(test: impl Fn(&dyn Kernel, Format)) {
    for format in FORMATS {
        for kernel in kernels() {
            test(kernel.as_ref(), format);
        }
    }
}

/// `dQ`, `dK` and `dV`, row-major.
fn all(gradients: &Gradients) -> [Vec<f64>; 3] {
    [&gradients.query, &gradients.key, &gradients.value].map(values)
}

/// Gradients by way of the kernel's own forward pass.
fn both_passes(
    kernel: &dyn Kernel,
    problem: &Problem,
    inputs: &Inputs,
    cotangents: &Cotangents,
) -> Gradients {
    differentiate(kernel, problem, inputs, &run(kernel, problem, inputs), cotangents)
}

/// Two queries of `(1, 0)` and two keys of `(0, 1)` and `(0, 2)`, so that scores are zero; an LSE of
/// zero, so that every weight is 1.
///
/// ```text
/// dO = (1, 2), (3, -1)   V = (4, 5), (6, 7)   O = (1, 1), (2, 0)   g = 10, 0   scale 1/4
/// dP = dO V^T = (14, 20), (7, 11)      D = 3, 6      dS = dP - D + g = (21, 27), (1, 5)
/// dV_i = dO_1 + dO_2 = (4, 1)   dQ_r = (0, dS_r1 + 2 dS_r2) / 4   dK_i = (dS_1i + dS_2i, 0) / 4
/// ```
#[test]
fn two_by_two_by_hand() {
    in_every_format(|kernel, format| {
        let problem = Problem { scale: Scale::Value(0.25), ..Problem::new(format, 1, 2, 2) };
        let gradients = differentiate(
            kernel,
            &problem,
            &inputs(&problem, &[1.0, 0.0, 1.0, 0.0], &[0.0, 1.0, 0.0, 2.0], &[4.0, 5.0, 6.0, 7.0]),
            &outputs(&problem, &[1.0, 1.0, 2.0, 0.0], &[0.0, 0.0]),
            &cotangents(&problem, &[1.0, 2.0, 3.0, -1.0], Some(&[10.0, 0.0])),
        );
        let expected = [
            vec![0.0, 75.0 / 4.0, 0.0, 11.0 / 4.0],
            vec![22.0 / 4.0, 0.0, 32.0 / 4.0, 0.0],
            vec![4.0, 1.0, 4.0, 1.0],
        ];
        assert_eq!(all(&gradients), expected, "{} {format}", kernel.name());
    });
}

/// The shape of flash-attention#334, whose query gradient was NaN: one key takes all the weight
/// whatever it is, so the output does not depend on query and key.
#[test]
fn a_single_key_gives_its_value_the_whole_gradient() {
    in_every_format(|kernel, format| {
        for seed in 0..8 {
            let problem = Problem::new(format, 1, 1, 16);
            let drawn = uniform(&problem, seed);
            let tripled = |tensor: &Tensor| Tensor::rounded(format, &(tensor.values() * 3.0));
            let inputs =
                Inputs::new(tripled(&drawn.query), tripled(&drawn.key), tripled(&drawn.value));
            let cotangents = Cotangents { lse: None, ..uniform_cotangents(&problem, seed + 100) };
            let gradients = both_passes(kernel, &problem, &inputs, &cotangents);
            let expected = [vec![0.0; 16], vec![0.0; 16], values(&cotangents.output)];
            assert_eq!(all(&gradients), expected, "{} {format} seed {seed}", kernel.name());
        }
    });
}

/// The shape of flash-attention#443, whose query gradient was NaN: causal, with far more queries
/// than keys. The queries without keys have no gradient, and the others have what they have alone.
#[test]
fn queries_before_the_first_key_have_no_gradient_and_add_none() {
    const EMPTY: usize = 61;
    in_every_format(|kernel, format| {
        let alone =
            Problem { mask: Mask::only(Rule::CausalBottomRight), ..Problem::new(format, 1, 3, 4) };
        let problem = Problem { query_len: EMPTY + 3, ..alone.clone() };
        let inputs = uniform(&problem, 1);
        let outputs = run(kernel, &problem, &inputs);
        let cotangents = uniform_cotangents(&problem, 2);
        let Gradients { query, key, value, .. } =
            differentiate(kernel, &problem, &inputs, &outputs, &cotangents);
        let head = query.values().slice_axis(Axis(2), Slice::from(..EMPTY));
        assert!(head.iter().all(|&entry| entry == 0.0), "{} {format}", kernel.name());

        let tail = |tensor: &Tensor| {
            let rows = tensor.values().slice_axis(Axis(2), Slice::from(EMPTY..)).to_owned();
            Tensor::exact(tensor.format(), rows).expect("values of the format")
        };
        let expected = differentiate(
            kernel,
            &alone,
            &Inputs { query: tail(&inputs.query), ..inputs.clone() },
            &Outputs { output: tail(&outputs.output), lse: outputs.lse.as_ref().map(tail) },
            &Cotangents {
                output: tail(&cotangents.output),
                lse: cotangents.lse.as_ref().map(tail),
            },
        );
        let found = Gradients::new(tail(&query), key, value);
        assert_eq!(found, expected, "{} {format}", kernel.name());
    });
}

/// pytorch#196678: half a tile of keys whose scores are all -120, so that the LSE is near -116.5. A
/// padded key that scored 0 would weigh `e^116.5`, past the largest `f32`.
///
/// Values of 0 and 2 have the mean 1, so that `dS` is `-p, p, -p, ..`: it adds up to zero over the
/// keys, which are equal, and the query has no gradient.
#[test]
fn half_a_tile_of_low_scores_does_not_overflow() {
    const KEYS: usize = 32;
    const SCORE: f64 = -120.0;
    in_every_format(|kernel, format| {
        let problem = products(format, 1, KEYS, 1);
        let inputs = inputs(&problem, &[1.0], &[SCORE; KEYS], &[0.0, 2.0].repeat(KEYS / 2));
        let outputs = run(kernel, &problem, &inputs);
        let cotangents = cotangents(&problem, &[1.0], None);
        let gradients = differentiate(kernel, &problem, &inputs, &outputs, &cotangents);
        let weight = exp(format, arithmetic(format).round(SCORE - lse(&outputs)[0]));
        let weight = format.round(weight);
        let expected = [vec![0.0], [-weight, weight].repeat(KEYS / 2), vec![weight; KEYS]];
        assert_eq!(all(&gradients), expected, "{} {format}", kernel.name());
    });
}

/// The output is that value whatever the weights, so `dP` equals `D` at every key.
#[test]
fn equal_values_leave_no_gradient_of_the_scores() {
    in_every_format(|kernel, format| {
        let problem = Problem { query_len: 7, ..Problem::new(format, 2, 5, 3) };
        let equal_rows = |shape: [usize; 4]| {
            let rows = [1.5, -2.0, 0.25].repeat(shape[0] * shape[1] * shape[2]);
            Tensor::rounded_from(format, &shape, rows).expect("a full list")
        };
        let inputs = Inputs { value: equal_rows(problem.value_shape()), ..uniform(&problem, 3) };
        let lse = run(kernel, &problem, &inputs).lse;
        let outputs = Outputs { output: equal_rows(problem.output_shape()), lse };
        let cotangents = Cotangents { lse: None, ..uniform_cotangents(&problem, 4) };
        let Gradients { query, key, .. } =
            differentiate(kernel, &problem, &inputs, &outputs, &cotangents);
        for gradient in [query, key] {
            let zero = values(&gradient).iter().all(|&entry| entry == 0.0);
            assert!(zero, "{} {format}: {gradient:?}", kernel.name());
        }
    });
}

/// flash-attention#141: the LSE of a single key is its score.
#[test]
fn the_lse_of_a_single_key_has_the_gradient_of_its_score() {
    in_every_format(|kernel, format| {
        let problem = Problem { key_len: 1, ..Problem::new(format, 1, 2, 4) };
        let query = [1.0, 2.0, 3.0, 4.0, -1.0, 0.0, 2.0, 0.0];
        let key = [5.0, 6.0, 7.0, 8.0];
        let inputs = inputs(&problem, &query, &key, &[0.125, -3.0, 7.0, 0.0]);
        let cotangents = cotangents(&problem, &[0.0; 8], Some(&[6.0, -2.0]));
        let gradients = both_passes(kernel, &problem, &inputs, &cotangents);
        // 1/sqrt(4) times 6 and -2.
        let expected = [
            vec![15.0, 18.0, 21.0, 24.0, -5.0, -6.0, -7.0, -8.0],
            vec![3.0 + 1.0, 6.0, 9.0 - 2.0, 12.0],
            vec![0.0; 4],
        ];
        assert_eq!(all(&gradients), expected, "{} {format}", kernel.name());
    });
}

/// Six query heads of one query read two key heads of one key; the gradient of the output counts
/// the query heads, so that each sum tells which heads are in it.
#[test]
fn keys_and_values_sum_over_the_query_heads_that_read_them() {
    in_every_format(|kernel, format| {
        let problem =
            Problem { query_heads: 6, key_heads: 2, batch: 2, ..products(format, 1, 1, 1) };
        let heads: Vec<f64> = (0..12).map(|head| f64::from(1 << (head % 6))).collect();
        // A score of zero and an LSE of zero; `dS = dO v` where the output is zero.
        let inputs = inputs(&problem, &[0.0; 12], &[3.0, 5.0, 3.0, 5.0], &[1.0, 2.0, 3.0, 4.0]);
        let outputs = outputs(&problem, &[0.0; 12], &[0.0; 12]);
        let cotangents = cotangents(&problem, &heads, None);
        let gradients = differentiate(kernel, &problem, &inputs, &outputs, &cotangents);
        let key = [3.0, 3.0, 3.0, 10.0, 10.0, 10.0, 9.0, 9.0, 9.0, 20.0, 20.0, 20.0];
        let expected = [
            heads.iter().zip(key).map(|(d_o, vk)| d_o * vk).collect(),
            vec![0.0; 4],
            vec![7.0, 56.0, 7.0, 56.0],
        ];
        assert_eq!(all(&gradients), expected, "{} {format}", kernel.name());
    });
}
