//! Cases with exact answers: each row points at one key, whose score towers over the others' so that
//! their weights are zero and its own is one.

use flashproof_spec::format::Format;
use flashproof_spec::mask::{Mask, Rule};
use flashproof_spec::problem::{Problem, Scale};
use flashproof_spec::tensor::{Cotangents, Gradients, Inputs, Outputs, Tensor};
use ndarray::{Array3, Array4, Dimension};

use super::derivative::{self, Row};

/// The score of the key pointed at; all others score 0. `e^-1024` rounds to 0 in every format.
const PEAK: f64 = 1024.0;

/// The keys of the first and the second batch member that are in use; the others hold NaN.
const LENGTHS: [usize; 2] = [20, 17];

/// Grouped heads, padding, and a causal mask on the last of more keys than queries.
pub fn problem(format: Format) -> Problem {
    Problem {
        batch: 2,
        key_heads: 2,
        query_len: 5,
        value_dim: 3,
        scale: Scale::Value(1.0),
        mask: Mask { rules: vec![Rule::CausalBottomRight, Rule::KeyLengths(LENGTHS.to_vec())] },
        ..Problem::new(format, 4, 20, 20)
    }
}

/// The same with other rules.
pub fn problem_with(format: Format, rules: Vec<Rule>) -> Problem {
    Problem { mask: Mask { rules }, ..problem(format) }
}

/// The key that a row points at: the last that it sees, but the middle one in the last row.
pub fn target(problem: &Problem, (batch, head, query): Row) -> Option<usize> {
    let seen = problem.visible_keys(batch, head, query);
    let middle = query + 1 == problem.query_len;
    seen.get(if middle { seen.len() / 2 } else { seen.len().wrapping_sub(1) }).copied()
}

/// Whole numbers that tell keys, entries and key heads apart, exact in every format from bf16 up.
fn value(key_head: usize, key: usize, entry: usize) -> f64 {
    (1 + key + 32 * entry + 96 * key_head) as f64
}

/// Queries and keys are unit vectors, one to a key; values are [`value`]; padding is NaN.
pub fn inputs(problem: &Problem) -> Inputs {
    let query = Array4::from_shape_fn(problem.query_shape(), |(b, h, i, t)| {
        f64::from(target(problem, (b, h, i)) == Some(t))
    });
    let padding = |b: usize, key: usize| key >= problem.mask.used_keys(b, problem.key_len);
    let key = Array4::from_shape_fn(problem.key_shape(), |(b, _, i, t)| {
        if padding(b, i) { f64::NAN } else { PEAK * f64::from(i == t) }
    });
    let value = Array4::from_shape_fn(problem.value_shape(), |(b, h, i, entry)| {
        if padding(b, i) { f64::NAN } else { value(h, i, entry) }
    });
    let tensor = |values: Array4<f64>| exact(problem.format, values);
    Inputs {
        query: tensor(query),
        key: tensor(key),
        value: tensor(value),
        bias: None,
        sink: None,
        descale: None,
    }
}

/// The exact answer: the value pointed at, and the score of its key; 0 and minus infinity in a row
/// that sees nothing.
pub fn outputs(problem: &Problem) -> Outputs {
    let output = Array4::from_shape_fn(problem.output_shape(), |(b, h, i, entry)| {
        target(problem, (b, h, i)).map_or(0.0, |key| value(problem.key_head_of(h), key, entry))
    });
    let lse = Array3::from_shape_fn(problem.lse_shape(), |row| {
        target(problem, row).map_or(f64::NEG_INFINITY, |_| PEAK)
    });
    Outputs { output: exact(problem.format, output), lse: Some(exact(lse_format(problem), lse)) }
}

/// Small whole numbers for the output, and 1 and 2 for the LSE; NaN in a row that sees nothing, whose
/// upstream gradients have no influence.
pub fn cotangents(problem: &Problem) -> Cotangents {
    let of = |row: Row, gradient: f64| target(problem, row).map_or(f64::NAN, |_| gradient);
    let output = Array4::from_shape_fn(problem.output_shape(), |(b, h, i, entry)| {
        of((b, h, i), ((b + h + i + entry) % 5) as f64 - 2.0)
    });
    let lse = Array3::from_shape_fn(problem.lse_shape(), |(b, h, i)| {
        of((b, h, i), ((h + i) % 2) as f64 + 1.0)
    });
    Cotangents { output: exact(problem.format, output), lse: Some(exact(lse_format(problem), lse)) }
}

/// The exact gradients: dS of the key pointed at is the gradient of the LSE.
pub fn gradients(problem: &Problem, cotangents: &Cotangents) -> Gradients {
    let targets = |row| target(problem, row).into_iter().collect();
    derivative::gradients(problem, &inputs(problem), cotangents, targets).gradients
}

/// The LSE's format in the profiles of both the built-in kernels and the numpy worker.
pub fn lse_format(problem: &Problem) -> Format {
    if problem.format == Format::F64 { Format::F64 } else { Format::F32 }
}

pub fn exact<D: Dimension>(format: Format, values: ndarray::Array<f64, D>) -> Tensor {
    Tensor::exact(format, values.into_dyn()).expect("values that every format represents")
}

/// The exact answer, and three partial results that merge into it: of the keys in use of even number,
/// of those of odd number, and of none. What a partial result without keys holds is NaN.
pub fn partials(problem: &Problem) -> (Outputs, Vec<Outputs>) {
    let whole = outputs(problem);
    let part = |keeps: fn(usize) -> bool| {
        let Outputs { output, lse } = whole.clone();
        let (mut output, mut lse) =
            (output.values().clone(), lse.expect("an LSE").values().clone());
        for (b, h, i) in ndarray::indices(problem.lse_shape()) {
            if !target(problem, (b, h, i)).is_some_and(keeps) {
                lse[[b, h, i]] = f64::NEG_INFINITY;
                for entry in 0..problem.value_dim {
                    output[[b, h, i, entry]] = f64::NAN;
                }
            }
        }
        let exact = |format, values| Tensor::exact(format, values).expect("exact values");
        Outputs {
            output: exact(problem.format, output),
            lse: Some(exact(lse_format(problem), lse)),
        }
    };
    let parts = vec![part(|key| key % 2 == 0), part(|key| key % 2 == 1), part(|_| false)];
    (whole, parts)
}
