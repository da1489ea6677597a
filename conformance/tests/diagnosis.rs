//! Each fault, committed by a small reference in `f64`, is found under its own name first, and not in
//! a right answer.

mod support;

use flashproof_conformance::diagnosis::faults;
use flashproof_conformance::diagnosis::gradient::GRADIENT_FAULTS;
use flashproof_spec::clause;
use flashproof_spec::format::Format;
use flashproof_spec::mask::{Mask, Rule, Site};
use flashproof_spec::problem::Problem;
use support::diagnosed::{assert_found, findings};
use support::simulated::{Committed, Entry, NONE, right};

/// Blocks of 16 keys; the numerator keeps its old frame when the maximum moves.
fn stale_numerator(
    row: &[Entry],
    _: &[f64],
    value: &dyn Fn(usize, usize) -> f64,
    d_v: usize,
) -> (Vec<f64>, f64) {
    let (mut m, mut l, mut n) = (f64::NEG_INFINITY, 0.0, vec![0.0; d_v]);
    for block in row.chunk_by(|a, b| a.key / 16 == b.key / 16) {
        let new = block.iter().map(|it| it.score).fold(m, f64::max);
        l *= (m - new).exp();
        for it in block {
            l += (it.score - new).exp();
            for (j, n) in n.iter_mut().enumerate() {
                *n += (it.score - new).exp() * value(it.key, j);
            }
        }
        m = new;
    }
    (n.into_iter().map(|n| n / l).collect(), m + l.ln())
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
    assert_found(square, fault, "lse-negated", "FAS:choice.lse.sign");
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

/// Memory that was zero before.
fn nothing(_: &[Entry], _: &[f64], _: &dyn Fn(usize, usize) -> f64, d_v: usize) -> (Vec<f64>, f64) {
    (vec![0.0; d_v], 0.0)
}

#[test]
fn unwritten_rows() {
    let fault = Committed { row: nothing, ..NONE };
    assert_found(square, fault, "output-unwritten", "FAS:fwd.output.written");
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
    let fault = Committed { score: |parts| 4.0 * parts.score(), ..NONE };
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
    let fault = Committed { score: |_| 0.0, ..NONE };
    assert_found(square, fault, "uniform-weights", "FAS:fwd.softmax.definition");
}

/// Noise has no explanation.
#[test]
fn an_unknown_fault_has_no_finding() {
    let fault = Committed {
        row: |row, sinks, value, d_v| {
            let (output, lse) = right(row, sinks, value, d_v);
            (output.into_iter().enumerate().map(|(j, o)| o + 0.5 * (j as f64).sin()).collect(), lse)
        },
        ..NONE
    };
    for format in [Format::F32, Format::Bf16] {
        assert_eq!(findings(&square(format), fault), []);
    }
}

#[test]
fn every_fault_cites_a_clause_of_the_specification() {
    let forward = faults().map(|fault| (fault.name, fault.clause));
    let backward = GRADIENT_FAULTS.iter().map(|fault| (fault.name, fault.clause));
    for (name, id) in forward.chain(backward) {
        assert!(clause::find(id).is_some(), "{name} cites {id}");
    }
}
