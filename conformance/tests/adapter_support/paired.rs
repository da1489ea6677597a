//! Cases with gradients that are exact in 8 bits: each row gives two neighbouring keys half of its
//! weight each, and none to the others.
//!
//! Their LSE, `ln 2`, and with it each weight has an error of the arithmetic. All terms of a sum have one
//! sign, so that the sum's relative error is no larger, and the sum has at most 8 significant bits: a
//! gradient rounded to bf16 or f16 is the exact one.

use flashproof_spec::format::Format;
use flashproof_spec::problem::{Problem, Scale};
use flashproof_spec::tensor::{Cotangents, Gradients, Inputs};
use ndarray::{Array3, Array4};

use super::derivative::{self, Row};
use super::pointed::{self, exact};

/// What all keys but two score, in magnitude. `e^-1024` rounds to 0 in every format.
const DEPTH: f64 = 1024.0;

/// A power of two, so that it is exact, and not 1, so that it shows.
const SCALE: f64 = 0.5;

/// Grouped heads, padding, and a causal mask on the last of more keys than queries.
pub fn problem(format: Format) -> Problem {
    Problem { scale: Scale::Value(SCALE), ..pointed::problem(format) }
}

/// The last whole pair that a row sees, but the middle one in the last row. A row that sees one key
/// has it alone.
fn targets(problem: &Problem, (batch, head, query): Row) -> Vec<usize> {
    let seen = problem.visible_keys(batch, head, query).len();
    let pairs = seen / 2;
    let pair = if query + 1 == problem.query_len { pairs / 2 } else { pairs.saturating_sub(1) };
    (2 * pair..seen.min(2 * pair + 2)).collect()
}

/// The second key of a pair has values larger by 2, 4 or 6: their mean is whole.
fn value(key_head: usize, key: usize, entry: usize) -> f64 {
    let pair = key / 2;
    let step = 2 * (1 + (pair + entry + key_head) % 3);
    (1 + pair + 16 * entry + 48 * key_head + (key % 2) * step) as f64
}

/// A query is -1 where its keys are not, and 0 in a row without a pair; keys are unit vectors;
/// padding is NaN.
pub fn inputs(problem: &Problem) -> Inputs {
    let query = Array4::from_shape_fn(problem.query_shape(), |(b, h, i, t)| {
        let targets = targets(problem, (b, h, i));
        if targets.len() < 2 || targets.contains(&t) { 0.0 } else { -1.0 }
    });
    let padding = |b: usize, key: usize| key >= problem.mask.used_keys(b, problem.key_len);
    let key = Array4::from_shape_fn(problem.key_shape(), |(b, _, i, t)| {
        if padding(b, i) { f64::NAN } else { DEPTH / SCALE * f64::from(i == t) }
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

/// 0, 1 and 2 for the entries of an output, and 1 and 2 for the LSE: too little to turn the sign of a
/// score gradient. NaN in a row that sees nothing.
pub fn cotangents(problem: &Problem) -> Cotangents {
    let of = |row: Row, gradient: usize| {
        if targets(problem, row).is_empty() { f64::NAN } else { gradient as f64 }
    };
    let output = Array4::from_shape_fn(problem.output_shape(), |(b, h, i, entry)| {
        of((b, h, i), (b + h + i + entry) % 3)
    });
    let lse =
        Array3::from_shape_fn(problem.lse_shape(), |(b, h, i)| of((b, h, i), (h + i) % 2 + 1));
    Cotangents {
        output: exact(problem.format, output),
        lse: Some(exact(pointed::lse_format(problem), lse)),
    }
}

/// The exact gradients.
pub fn gradients(problem: &Problem, cotangents: &Cotangents) -> Gradients {
    let targets = |row| targets(problem, row);
    let derivative = derivative::gradients(problem, &inputs(problem), cotangents, targets);
    assert!(derivative.one_signed, "no term of a sum cancels another: {problem:?}");
    derivative.gradients
}
