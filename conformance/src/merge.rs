//! Merging finished partials: what a kernel is given, and the attention problem that the answer is
//! judged by (`FAS:fwd.merge.partials`).
//!
//! Partials `o_k` with LSEs `L_k` merge to attention over keys whose scores are the LSEs and whose
//! values are the outputs. So the exact answer is that of a problem with zero queries and the LSEs as
//! its bias, in which each row of the partials is a batch member of its own.

use flashproof_spec::format::Format;
use flashproof_spec::problem::{Problem, Scale};
use flashproof_spec::score::Bias;
use flashproof_spec::tensor::{Inputs, Outputs, Tensor};
use ndarray::{Array3, Array4, ArrayD};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use rand_distr::{Distribution, StandardNormal};

/// Largest distance of two LSEs that are drawn: weights then reach from 1 to below the smallest
/// number of f32 (`e^-104`).
const LSE_SPREAD: f64 = 120.0;

/// One partial in this many is empty in a row, and one row in this many has nothing but such.
const EMPTY: u32 = 4;

/// So many partials of the problem's rows, in `lse_format`: outputs normal, LSEs near each other, far
/// apart or equal, and minus infinity with outputs of zero, whole rows of it included.
#[must_use]
pub fn partials(problem: &Problem, splits: usize, lse_format: Format, seed: u64) -> Vec<Outputs> {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let rows = Array3::from_shape_simple_fn(problem.lse_shape(), || rng.random_range(0..EMPTY));
    (0..splits)
        .map(|_| {
            let lse = rows.mapv(|kind| {
                let normal: f64 = StandardNormal.sample(&mut rng);
                let empty = kind == 0 || rng.random_range(0..EMPTY) == 0;
                match kind {
                    _ if empty => f64::NEG_INFINITY,
                    1 => 0.0,
                    2 => rng.random_range(-LSE_SPREAD..0.0),
                    _ => normal,
                }
            });
            let output = Array4::from_shape_fn(problem.output_shape(), |(b, h, q, _)| {
                let normal: f64 = StandardNormal.sample(&mut rng);
                if lse[[b, h, q]] == f64::NEG_INFINITY { 0.0 } else { normal }
            });
            Outputs {
                output: Tensor::rounded(problem.output_format(), &output.into_dyn()),
                lse: Some(Tensor::rounded(lse_format, &lse.into_dyn())),
            }
        })
        .collect()
}

/// The attention problem whose answer is the merge of these partials, and its inputs.
///
/// # Panics
/// When a partial has no LSE.
#[must_use]
pub fn as_attention(problem: &Problem, partials: &[Outputs]) -> (Problem, Inputs) {
    let rows = problem.lse_shape().iter().product();
    let (keys, entries) = (partials.len(), problem.value_dim);
    let lses: Vec<&Tensor> =
        partials.iter().map(|it| it.lse.as_ref().expect("a partial with its LSE")).collect();
    let lse_format = lses.first().map_or(Format::F32, |lse| lse.format());
    let shape = [rows, 1, 1, keys];
    let merged = Problem {
        batch: rows,
        query_len: 1,
        value_dim: entries,
        scale: Scale::Value(1.0),
        bias: Some(Bias { shape, format: lse_format }),
        ..Problem::new(problem.output_format(), 1, keys, 1)
    };
    let flat = |tensor: &Tensor, columns: usize| {
        tensor.values().to_shape((rows, columns)).expect("rows of a tensor").to_owned()
    };
    let lses: Vec<_> = lses.into_iter().map(|lse| flat(lse, 1)).collect();
    let outputs: Vec<_> = partials.iter().map(|it| flat(&it.output, entries)).collect();
    let tensor = |format, values: Array4<f64>| Tensor::rounded(format, &values.into_dyn());
    let zeros = |shape: [usize; 4]| tensor(problem.output_format(), Array4::zeros(shape));
    let value = Array4::from_shape_fn([rows, 1, keys, entries], |(r, _, k, j)| outputs[k][[r, j]]);
    let bias = Array4::from_shape_fn(shape, |(r, _, _, k)| lses[k][[r, 0]]);
    let inputs = Inputs {
        bias: Some(tensor(lse_format, bias)),
        ..Inputs::new(
            zeros(merged.query_shape()),
            zeros(merged.key_shape()),
            tensor(problem.output_format(), value),
        )
    };
    (merged, inputs)
}

/// What a kernel answered, as an answer to that problem.
///
/// # Panics
/// When the outputs are not the problem's: check them first.
#[must_use]
pub fn as_attention_outputs(problem: &Problem, outputs: &Outputs) -> Outputs {
    let rows = problem.lse_shape().iter().product();
    let reshaped = |tensor: &Tensor, shape: &[usize]| {
        let values: ArrayD<f64> = tensor.values().to_shape(shape).expect("its rows").to_owned();
        Tensor::rounded(tensor.format(), &values)
    };
    Outputs {
        output: reshaped(&outputs.output, &[rows, 1, 1, problem.value_dim]),
        lse: outputs.lse.as_ref().map(|lse| reshaped(lse, &[rows, 1, 1])),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every kind of row that merges have failed on occurs.
    #[test]
    fn rows_of_empty_partials_and_ties_occur() {
        let problem = Problem { batch: 2, query_len: 40, ..Problem::new(Format::F32, 2, 1, 4) };
        let partials = partials(&problem, 3, Format::F32, 1);
        let lses: Vec<_> = partials.iter().map(|it| it.lse.as_ref().expect("given")).collect();
        let rows = lses[0]
            .values()
            .indexed_iter()
            .map(|(at, _)| lses.iter().map(|lse| lse.values()[&at]).collect::<Vec<f64>>());
        let rows: Vec<_> = rows.collect();
        let some = |is: &dyn Fn(&[f64]) -> bool| rows.iter().any(|row| is(row));
        assert!(some(&|row| row.iter().all(|&lse| lse == f64::NEG_INFINITY)));
        assert!(some(&|row| row.iter().filter(|&&lse| lse == f64::NEG_INFINITY).count() == 1));
        assert!(some(&|row| row.iter().all(|&lse| lse == 0.0)));
        assert!(some(&|row| row.iter().any(|&lse| lse < -88.0) && row.iter().any(|&l| l > -9.0)));
        let (merged, inputs) = as_attention(&problem, &partials);
        assert_eq!(merged.validate(), Ok(()));
        assert_eq!(inputs.check(&merged), Ok(()));
        let values = inputs.value.values().to_shape((rows.len(), 3, 4)).expect("rows").to_owned();
        assert_eq!(values.shape(), [rows.len(), 3, 4]);
        let second: Vec<f64> = partials[1].output.values().iter().copied().collect();
        let moved: Vec<f64> = values.index_axis(ndarray::Axis(1), 1).iter().copied().collect();
        assert_eq!(moved, second);
    }
}
