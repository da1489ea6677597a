//! The cases of `pointed` in every layout.

use flashproof_spec::format::Format;
use flashproof_spec::layout::{Layout, Paged, Placed, Ragged, Strided, packed_qkv};
use flashproof_spec::mask::Rule;
use flashproof_spec::problem::Problem;
use flashproof_spec::tensor::{Gradients, Outputs, Tensor};

use super::conduct::{Answer, Pass};
use super::pointed;

/// Elements of no tensor before the first and after the last.
const GUARD: usize = 5;

/// A stride at which an offset of 32 bits wraps.
const GIANT: usize = 1 << 33;

/// Keys in a page: the last page of a member is not full.
const PAGE: usize = 6;

/// Problems that point, each with the name of its layout.
pub fn problems(format: Format) -> Vec<(&'static str, Problem)> {
    let problem = pointed::problem(format);
    let strided = |strided| Problem { layout: Layout::Strided(strided), ..problem.clone() };
    let bshd = Strided::bshd(&problem);
    let guarded = Strided {
        query: bshd.query.guarded(GUARD),
        key: bshd.key.guarded(GUARD),
        value: bshd.value.guarded(GUARD),
        output: bshd.output.guarded(GUARD),
    };
    // all heads have the same keys
    let shared = Strided { key: bshd.key.spread(problem.key_shape(), 1, 0), ..bshd.clone() };
    let giant = Strided {
        key: bshd.key.spread(problem.key_shape(), 0, GIANT),
        output: bshd.output.spread(problem.output_shape(), 1, GIANT),
        ..bshd.clone()
    };
    let square = Problem { query_len: 20, ..problem.clone() };
    let packed = packed_qkv(&square).expect("as many queries as keys");
    vec![
        ("bshd", strided(bshd)),
        ("transposed", strided(Strided::transposed(&problem))),
        ("guarded", strided(guarded)),
        ("shared", strided(shared)),
        ("giant", strided(giant)),
        ("packed", Problem { layout: Layout::Strided(packed), ..square }),
        ("ragged", ragged(&problem)),
        ("paged", paged(&problem)),
    ]
}

/// The second member first, and rows of nobody before, between and after them.
fn ragged(problem: &Problem) -> Problem {
    let ragged =
        Ragged { query_starts: vec![6, 1], query_rows: 13, key_starts: vec![19, 1], key_rows: 40 };
    let mut problem = Problem { layout: Layout::Ragged(ragged), ..problem.clone() };
    problem.mask.rules.push(Rule::QueryLengths(vec![5, 3]));
    problem
}

/// Shuffled pages, some of which are nobody's.
fn paged(problem: &Problem) -> Problem {
    let paged =
        Paged { page_size: PAGE, pages: 10, block_table: vec![vec![7, 0, 9, 4], vec![2, 8, 3]] };
    Problem { layout: Layout::Paged(paged), ..problem.clone() }
}

/// The exact answer, NaN where a row has no storage.
pub fn exact(pass: Pass, problem: &Problem) -> Answer {
    let Answer { outputs: Outputs { output, lse }, gradients } = pass.exact(problem);
    let stored = |placed, tensor: Tensor| problem.as_stored(placed, &tensor);
    Answer {
        outputs: Outputs {
            output: stored(Placed::Output, output),
            lse: lse.map(|lse| stored(Placed::Lse, lse)),
        },
        gradients: gradients.map(|Gradients { query, key, value, bias, sink }| Gradients {
            query: stored(Placed::QueryGradient, query),
            key: stored(Placed::KeyGradient, key),
            value: stored(Placed::ValueGradient, value),
            bias,
            sink,
        }),
    }
}

/// Whether two answers are the same, NaN for NaN.
pub fn same(a: &Answer, b: &Answer) -> bool {
    let tensors = |answer: &Answer| {
        let Answer { outputs, gradients } = answer.clone();
        let mut tensors = vec![Some(outputs.output), outputs.lse];
        if let Some(gradients) = gradients {
            let Gradients { query, key, value, bias, sink } = gradients;
            tensors.extend([Some(query), Some(key), Some(value), bias, sink]);
        }
        tensors
    };
    let (a, b) = (tensors(a), tensors(b));
    a.len() == b.len()
        && a.iter().zip(&b).all(|pair| match pair {
            (Some(a), Some(b)) => same_tensor(a, b),
            (a, b) => a == b,
        })
}

fn same_tensor(a: &Tensor, b: &Tensor) -> bool {
    let equal = |(a, b): (&f64, &f64)| a == b || (a.is_nan() && b.is_nan());
    a.format() == b.format()
        && a.shape() == b.shape()
        && a.values().iter().zip(b.values()).all(equal)
}
