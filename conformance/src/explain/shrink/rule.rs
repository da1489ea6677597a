//! Simpler rules of a mask, and fewer modifications of scores.

use flashproof_spec::mask::{BlockSparse, Chunked, Dilated, Mask, Prefix, Rule, Window};
use flashproof_spec::pattern::Pattern;
use flashproof_spec::problem::{Problem, Scale};
use flashproof_spec::score::{Dropout, Sink};
use flashproof_spec::tensor::{Cotangents, Inputs};

use crate::run::Instance;

/// Patterns of more truth values are left as they are but for their shape.
const SMALL_PATTERN: usize = 64;

/// The instance with one thing less: a modification, a rule, a pass or a poison. Each is strictly
/// simpler.
#[must_use]
pub fn without_one(instance: &Instance, is_forward: bool) -> Vec<Instance> {
    let Instance { problem, inputs, cotangents, poison } = instance;
    let mut simpler = Vec::new();
    let mut add = |problem: Problem, inputs: Inputs| {
        simpler.push(Instance { problem, inputs, ..instance.clone() });
    };
    for at in 0..problem.mask.rules.len() {
        let mut rules = problem.mask.rules.clone();
        rules.remove(at);
        add(Problem { mask: Mask { rules }, ..problem.clone() }, inputs.clone());
    }
    if problem.softcap.is_some() {
        add(Problem { softcap: None, ..problem.clone() }, inputs.clone());
    }
    if problem.alibi.is_some() {
        add(Problem { alibi: None, ..problem.clone() }, inputs.clone());
    }
    if problem.dropout.is_some() {
        add(Problem { dropout: None, ..problem.clone() }, inputs.clone());
    }
    if problem.bias.is_some() {
        let inputs = Inputs { bias: None, ..inputs.clone() };
        add(Problem { bias: None, ..problem.clone() }, inputs);
    }
    if problem.sink.is_some() {
        let inputs = Inputs { sink: None, ..inputs.clone() };
        add(Problem { sink: None, ..problem.clone() }, inputs.clone());
        if problem.sink != Some(Sink::Zero) {
            add(Problem { sink: Some(Sink::Zero), ..problem.clone() }, inputs);
        }
    }
    if problem.scale != Scale::Value(1.0) && problem.head_dim > 1 {
        add(Problem { scale: Scale::Value(1.0), ..problem.clone() }, inputs.clone());
    }
    if poison.is_some() {
        simpler.push(Instance { poison: None, ..instance.clone() });
    }
    if let Some(Cotangents { output, lse: Some(_) }) = cotangents {
        let cotangents = Some(Cotangents { output: output.clone(), lse: None });
        simpler.push(Instance { cotangents, ..instance.clone() });
    }
    if is_forward && cotangents.is_some() {
        simpler.push(Instance { cotangents: None, ..instance.clone() });
    }
    simpler
}

/// The instance with a simpler rule, or a plainer dropout: smaller numbers, fewer places hidden. Each
/// is strictly simpler.
#[must_use]
pub fn simpler_rules(instance: &Instance) -> Vec<Instance> {
    let problem = &instance.problem;
    let with = |problem: Problem| Instance { problem, ..instance.clone() };
    let mut simpler = Vec::new();
    for (at, rule) in problem.mask.rules.iter().enumerate() {
        for rule in variants(rule, problem) {
            let mut rules = problem.mask.rules.clone();
            rules[at] = rule;
            simpler.push(with(Problem { mask: Mask { rules }, ..problem.clone() }));
        }
    }
    if let Some(Dropout { scale, keep }) = &problem.dropout {
        let mut add = |scale: f64, keep: Pattern| {
            simpler
                .push(with(Problem { dropout: Some(Dropout { scale, keep }), ..problem.clone() }));
        };
        if *scale != 1.0 {
            add(1.0, keep.clone());
        }
        for keep in opened(keep) {
            add(*scale, keep);
        }
    }
    simpler
}

/// Simpler rules of the same kind.
fn variants(rule: &Rule, problem: &Problem) -> Vec<Rule> {
    match rule {
        Rule::CausalTopLeft | Rule::CausalBottomRight | Rule::Documents(_) => Vec::new(),
        Rule::KeyLengths(lengths) => filled(lengths, problem.key_len, Rule::KeyLengths),
        Rule::QueryLengths(lengths) => filled(lengths, problem.query_len, Rule::QueryLengths),
        Rule::KeyStarts(starts) => filled(starts, 0, Rule::KeyStarts),
        Rule::Prefix(Prefix { lengths, alignment }) => {
            filled(lengths, 0, |lengths| Rule::Prefix(Prefix { lengths, alignment: *alignment }))
        }
        Rule::Window(window) => windows(*window),
        Rule::Chunked(Chunked { size, alignment }) => smaller(*size, 1)
            .map(|size| Rule::Chunked(Chunked { size, alignment: *alignment }))
            .collect(),
        Rule::Dilated(Dilated { step, alignment }) => smaller(*step, 1)
            .map(|step| Rule::Dilated(Dilated { step, alignment: *alignment }))
            .collect(),
        Rule::Boolean(pattern) => opened(pattern).into_iter().map(Rule::Boolean).collect(),
        Rule::BlockSparse(blocks) => opened(&blocks.pattern)
            .into_iter()
            .map(|pattern| Rule::BlockSparse(BlockSparse { pattern, ..blocks.clone() }))
            .collect(),
    }
}

/// The rule with the length of one batch member at its plainest.
fn filled(lengths: &[usize], plainest: usize, rule: impl Fn(Vec<usize>) -> Rule) -> Vec<Rule> {
    (0..lengths.len())
        .filter(|&member| lengths[member] != plainest)
        .map(|member| {
            let mut lengths = lengths.to_vec();
            lengths[member] = plainest;
            rule(lengths)
        })
        .collect()
}

/// Windows without a bound, or with a smaller one.
fn windows(window: Window) -> Vec<Rule> {
    let sides = |bound: Option<usize>| {
        let smaller = bound.into_iter().flat_map(|bound| smaller(bound, 0)).map(Some);
        bound.map(|_| None).into_iter().chain(smaller)
    };
    let left = sides(window.left).map(|left| Window { left, ..window });
    let right = sides(window.right).map(|right| Window { right, ..window });
    left.chain(right).map(Rule::Window).collect()
}

/// Smaller numbers down to the least: it, half, and one less.
fn smaller(number: usize, least: usize) -> impl Iterator<Item = usize> {
    let mut candidates = vec![least, number / 2, number.saturating_sub(1)];
    candidates.retain(|&it| it >= least && it < number);
    candidates.dedup();
    candidates.into_iter()
}

/// Patterns that hold everywhere, or at one more place.
fn opened(pattern: &Pattern) -> Vec<Pattern> {
    let hidden: Vec<usize> = (0..pattern.bits().len()).filter(|&at| !pattern.bits()[at]).collect();
    if hidden.is_empty() || pattern.bits().len() > SMALL_PATTERN {
        return Vec::new();
    }
    let open = |at: &[usize]| {
        let mut bits = pattern.bits().to_vec();
        for &at in at {
            bits[at] = true;
        }
        Pattern::new(pattern.shape(), bits).ok()
    };
    let one = hidden.iter().filter_map(|&at| open(&[at]));
    open(&hidden).into_iter().chain(one).collect()
}
