//! Each fault, committed by a small reference in `f64`, is found under its own name first.

use flashproof_conformance::diagnosis::{Evidence, Finding, diagnose};
use flashproof_oracle::row::RowIndex;
use flashproof_spec::format::Format;
use flashproof_spec::mask::{Mask, Rule, Site};
use flashproof_spec::problem::Problem;
use flashproof_spec::profile::{Profile, Schedule};
use flashproof_spec::tensor::{Inputs, Outputs, Tensor};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

/// Printed by a failing assertion through the problem; change it to see other draws.
const SEED: u64 = 20_261_129;

/// A scores-and-values row with a fault: from `(key, score)` pairs in key order to `(output, lse)`.
type Row = fn(&[(usize, f64)], &dyn Fn(usize, usize) -> f64, usize) -> (Vec<f64>, f64);

fn right(row: &[(usize, f64)], value: &dyn Fn(usize, usize) -> f64, d_v: usize) -> (Vec<f64>, f64) {
    let m = row.iter().map(|(_, s)| *s).fold(f64::NEG_INFINITY, f64::max);
    let l: f64 = row.iter().map(|(_, s)| (s - m).exp()).sum();
    let output = |j| row.iter().map(|&(i, s)| (s - m).exp() * value(i, j)).sum::<f64>() / l;
    ((0..d_v).map(output).collect(), m + l.ln())
}

/// Blocks of 16 keys; the numerator keeps its old frame when the maximum moves.
fn stale_numerator(
    row: &[(usize, f64)],
    value: &dyn Fn(usize, usize) -> f64,
    d_v: usize,
) -> (Vec<f64>, f64) {
    let (mut m, mut l, mut n) = (f64::NEG_INFINITY, 0.0, vec![0.0; d_v]);
    for block in row.chunk_by(|a, b| a.0 / 16 == b.0 / 16) {
        let new = block.iter().map(|(_, s)| *s).fold(m, f64::max);
        l *= (m - new).exp();
        for &(i, s) in block {
            l += (s - new).exp();
            for (j, n) in n.iter_mut().enumerate() {
                *n += (s - new).exp() * value(i, j);
            }
        }
        m = new;
    }
    (n.into_iter().map(|n| n / l).collect(), m + l.ln())
}

fn inputs(problem: &Problem, seed: u64) -> Inputs {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let mut draw = |shape: &[usize]| {
        let count = shape.iter().product();
        let values = (0..count).map(|_| rng.random_range(-2.0..2.0)).collect();
        Tensor::rounded_from(problem.format, shape, values).expect("a full tensor")
    };
    Inputs {
        query: draw(&problem.query_shape()),
        key: draw(&problem.key_shape()),
        value: draw(&problem.value_shape()),
    }
}

/// What a faulty kernel does differently.
#[derive(Clone, Copy)]
struct Committed {
    /// Whether a key is seen, given the problem.
    sees: fn(&Problem, Site) -> bool,
    /// The factor on top of the scale.
    factor: f64,
    /// The key head read.
    key_head: fn(&Problem, usize) -> usize,
    row: Row,
    lse: fn(f64) -> f64,
}

const NONE: Committed = Committed {
    sees: Problem::sees,
    factor: 1.0,
    key_head: Problem::key_head_of,
    row: right,
    lse: |lse| lse,
};

fn run(problem: &Problem, inputs: &Inputs, fault: Committed) -> Outputs {
    let (q, k, v) = (inputs.query.view4(), inputs.key.view4(), inputs.value.view4());
    let mut output = Vec::new();
    let mut lses = Vec::new();
    for index in all_rows(problem) {
        let RowIndex { batch, head, query } = index;
        let h = (fault.key_head)(problem, head);
        let row: Vec<(usize, f64)> = (0..problem.key_len)
            .filter(|&key| (fault.sees)(problem, Site { batch, head, query, key }))
            .map(|key| {
                let dot: f64 = (0..problem.head_dim)
                    .map(|t| q[[batch, head, query, t]] * k[[batch, h, key, t]])
                    .sum();
                (key, dot * problem.scale_f64() * fault.factor)
            })
            .collect();
        let (o, lse) = (fault.row)(&row, &|key, j| v[[batch, h, key, j]], problem.value_dim);
        output.extend(o);
        lses.push((fault.lse)(lse));
    }
    let tensor = |format, shape: &[usize], values| {
        Tensor::rounded_from(format, shape, values).expect("a full tensor")
    };
    Outputs {
        output: tensor(problem.format, &problem.output_shape(), output),
        lse: Some(tensor(Format::F32, &problem.lse_shape(), lses)),
    }
}

fn all_rows(problem: &Problem) -> Vec<RowIndex> {
    let mut rows = Vec::new();
    for batch in 0..problem.batch {
        for head in 0..problem.query_heads {
            rows.extend((0..problem.query_len).map(|query| RowIndex { batch, head, query }));
        }
    }
    rows
}

/// The rows on which the faulty outputs differ from the right ones.
fn findings(problem: &Problem, fault: Committed) -> Vec<Finding> {
    let inputs = inputs(problem, SEED);
    let outputs = run(problem, &inputs, fault);
    let clean = run(problem, &inputs, NONE);
    let failing: Vec<RowIndex> =
        all_rows(problem).into_iter().filter(|&row| differs(&outputs, &clean, row)).collect();
    assert!(!failing.is_empty(), "the fault changes nothing");
    let profile = Profile { schedule: Schedule::Blocks(16), ..Profile::standard(problem.format) };
    diagnose(&Evidence {
        problem,
        profile: &profile,
        inputs: &inputs,
        outputs: &outputs,
        failing: &failing,
    })
}

fn differs(a: &Outputs, b: &Outputs, RowIndex { batch, head, query }: RowIndex) -> bool {
    let row = |outputs: &Outputs| {
        let output = outputs.output.view4();
        let mut row: Vec<f64> =
            (0..output.dim().3).map(|j| output[[batch, head, query, j]]).collect();
        row.extend(outputs.lse.as_ref().map(|lse| lse.view3()[[batch, head, query]]));
        row
    };
    row(a) != row(b)
}

/// The fault found first has this name and clause, in every format.
fn assert_found(shape: impl Fn(Format) -> Problem, fault: Committed, name: &str, clause: &str) {
    for format in [Format::F32, Format::F16, Format::Bf16] {
        let problem = shape(format);
        let found = findings(&problem, fault);
        let first = found.first().map(|finding| (finding.fault, finding.clause));
        assert_eq!(first, Some((name, clause)), "{problem:?}: {found:?}");
    }
}

fn square(format: Format) -> Problem {
    Problem::new(format, 2, 40, 16)
}

fn wide(rule: Rule) -> impl Fn(Format) -> Problem {
    move |format| Problem {
        query_len: 12,
        key_len: 40,
        mask: Mask::only(rule.clone()),
        ..Problem::new(format, 1, 40, 16)
    }
}

#[test]
fn base_two_lse() {
    let fault = Committed { lse: |lse| lse / std::f64::consts::LN_2, ..NONE };
    assert_found(square, fault, "lse-base2", "FAS:choice.lse.base");
}

#[test]
fn negated_lse() {
    let fault = Committed { lse: |lse| -lse, ..NONE };
    assert_found(square, fault, "lse-negated", "FAS:fwd.lse.definition");
}

#[test]
fn numerator_not_rescaled() {
    let fault = Committed { row: stale_numerator, ..NONE };
    assert_found(square, fault, "skip-acc-rescale", "FAS:fwd.online.rescale");
}

#[test]
fn one_key_dropped_in_one_row() {
    let sees = |problem: &Problem, site: Site| {
        problem.sees(site) && (site.head, site.query, site.key) != (1, 7, 11)
    };
    let fault = Committed { sees, ..NONE };
    // A key of 12 rather than 40: its weight exceeds what bf16 can round away.
    let shape = |format| Problem { key_len: 12, ..square(format) };
    assert_found(shape, fault, "drop-tail-block", "FAS:fwd.softmax.every-key");
    let sees = |problem: &Problem, site: Site| {
        problem.sees(site) && (site.head, site.query, site.key) != (1, 7, 5)
    };
    assert_found(shape, Committed { sees, ..NONE }, "drop-key", "FAS:fwd.softmax.every-key");
}

#[test]
fn causal_alignment() {
    let top_left = |_: &Problem, site: Site| site.key <= site.query;
    assert_found(
        wide(Rule::CausalBottomRight),
        Committed { sees: top_left, ..NONE },
        "causal-top-left",
        "FAS:mask.causal.bottom-right",
    );
    let bottom_right = |problem: &Problem, site: Site| {
        site.key + problem.query_len <= site.query + problem.key_len
    };
    assert_found(
        wide(Rule::CausalTopLeft),
        Committed { sees: bottom_right, ..NONE },
        "causal-bottom-right",
        "FAS:mask.causal.top-left",
    );
}

#[test]
fn padding_seen() {
    let fault = Committed { sees: |_, _| true, ..NONE };
    let rule = Rule::KeyLengths(vec![29]);
    assert_found(wide(rule), fault, "padding-visible", "FAS:mask.length.padding");
}

#[test]
fn one_key_too_many() {
    let sees = |problem: &Problem, site: Site| {
        problem.sees(site)
            || site.key.checked_sub(1).is_some_and(|key| problem.sees(Site { key, ..site }))
    };
    let fault = Committed { sees, ..NONE };
    assert_found(wide(Rule::CausalTopLeft), fault, "mask-wider", "FAS:mask.intersection");
}

#[test]
fn unscaled_scores() {
    let fault = Committed { factor: 4.0, ..NONE };
    assert_found(square, fault, "wrong-scale", "FAS:fwd.score.scale");
}

#[test]
fn heads_taken_modulo() {
    let fault = Committed { key_head: |problem, head| head % problem.key_heads, ..NONE };
    let shape = |format| Problem { query_heads: 6, key_heads: 2, ..square(format) };
    assert_found(shape, fault, "gqa-head", "FAS:head.group.block");
}

#[test]
fn equal_weights() {
    let fault = Committed { factor: 0.0, ..NONE };
    assert_found(square, fault, "uniform-weights", "FAS:fwd.softmax.definition");
}

/// Noise has no explanation.
#[test]
fn an_unknown_fault_has_no_finding() {
    let fault = Committed {
        row: |row, value, d_v| {
            let (output, lse) = right(row, value, d_v);
            (output.into_iter().enumerate().map(|(j, o)| o + 0.5 * (j as f64).sin()).collect(), lse)
        },
        ..NONE
    };
    for format in [Format::F32, Format::Bf16] {
        assert_eq!(findings(&square(format), fault), []);
    }
}
