//! The known faults of forward kernels, each as a prediction.
//!
//! Sources: the public reports that the pinned cases cite. To add a fault, add a row to [`FAULTS`]
//! and a function that lists what a kernel with it would answer.

use flashproof_spec::mask::{Mask, Rule};
use flashproof_spec::problem::Problem;

use super::prediction::{LseForm, Prediction, Term};
use super::row::{RowModel, Score};

/// A way in which a forward kernel can be wrong.
pub struct Fault {
    /// Short name, as in the list of mutants.
    pub name: &'static str,
    /// The clause that is violated.
    pub clause: &'static str,
    /// What a kernel with this fault does.
    pub explanation: &'static str,
    /// Whether its particulars must be the same in every row: a block size, but not a key.
    pub(super) same_variant: bool,
    /// What it would answer, for each particular.
    pub(super) variants: for<'r> fn(&'r RowModel<'_>) -> Variants<'r>,
}

/// What a fault can look like, one at a time: a long row has as many variants as keys.
pub(super) type Variants<'r> = Box<dyn Iterator<Item = Variant> + 'r>;

/// A fault with its particulars.
pub(super) struct Variant {
    pub(super) prediction: Prediction,
    /// The particulars in words; empty where there are none.
    pub(super) detail: String,
}

/// Every fault, the most specific first: those without a particular to choose before those that
/// could be adjusted to the row.
pub static FAULTS: &[Fault] = &[
    Fault {
        name: "lse-base2",
        clause: "FAS:choice.lse.base",
        explanation: "the LSE is in base 2 where the natural logarithm is declared",
        same_variant: true,
        variants: |row| lse_form(row, LseForm::BaseTwo),
    },
    Fault {
        name: "lse-without-max",
        clause: "FAS:fwd.lse.definition",
        explanation: "the LSE is ln l: the maximum is not added",
        same_variant: true,
        variants: |row| lse_form(row, LseForm::WithoutMaximum),
    },
    Fault {
        name: "lse-max-only",
        clause: "FAS:fwd.lse.definition",
        explanation: "the LSE is the maximum alone: ln l is not added",
        same_variant: true,
        variants: |row| lse_form(row, LseForm::MaximumOnly),
    },
    Fault {
        name: "lse-negated",
        clause: "FAS:fwd.lse.definition",
        explanation: "the LSE has the wrong sign",
        same_variant: true,
        variants: |row| lse_form(row, LseForm::Negated),
    },
    Fault {
        name: "causal-top-left",
        clause: "FAS:mask.causal.bottom-right",
        explanation: "the causal mask is aligned top-left where bottom-right is asked for",
        same_variant: true,
        variants: |row| realigned(row, &Rule::CausalBottomRight, &Rule::CausalTopLeft),
    },
    Fault {
        name: "causal-bottom-right",
        clause: "FAS:mask.causal.top-left",
        explanation: "the causal mask is aligned bottom-right where top-left is asked for",
        same_variant: true,
        variants: |row| realigned(row, &Rule::CausalTopLeft, &Rule::CausalBottomRight),
    },
    Fault {
        name: "causal-ignored",
        clause: "FAS:mask.causal.bottom-right",
        explanation: "the causal mask is not applied",
        same_variant: true,
        variants: |row| without_rule(row, |rule| matches!(rule, Rule::CausalBottomRight)),
    },
    Fault {
        name: "causal-ignored",
        clause: "FAS:mask.causal.top-left",
        explanation: "the causal mask is not applied",
        same_variant: true,
        variants: |row| without_rule(row, |rule| matches!(rule, Rule::CausalTopLeft)),
    },
    Fault {
        name: "padding-visible",
        clause: "FAS:mask.length.padding",
        explanation: "keys at or past the key length take part",
        same_variant: true,
        variants: |row| without_rule(row, |rule| matches!(rule, Rule::KeyLengths(_))),
    },
    Fault {
        name: "mask-wider",
        clause: "FAS:mask.intersection",
        explanation: "one key past the last visible one takes part",
        same_variant: true,
        variants: mask_wider,
    },
    Fault {
        name: "uniform-weights",
        clause: "FAS:fwd.softmax.definition",
        explanation: "every visible key has the same weight",
        same_variant: true,
        variants: uniform,
    },
    Fault {
        name: "wrong-scale",
        clause: "FAS:fwd.score.scale",
        explanation: "the scores are scaled by another factor",
        same_variant: true,
        variants: rescored,
    },
    Fault {
        name: "gqa-head",
        clause: "FAS:head.group.block",
        explanation: "the query head reads another key head",
        same_variant: false,
        variants: other_heads,
    },
    Fault {
        name: "skip-acc-rescale",
        clause: "FAS:fwd.online.rescale",
        explanation: "the numerator is not rescaled when the maximum moves",
        same_variant: true,
        variants: |row| not_rescaled(row, Stale::Numerator),
    },
    Fault {
        name: "skip-l-rescale",
        clause: "FAS:fwd.online.rescale",
        explanation: "the normalizer is not rescaled when the maximum moves",
        same_variant: true,
        variants: |row| not_rescaled(row, Stale::Normalizer),
    },
    Fault {
        name: "skip-rescale",
        clause: "FAS:fwd.online.rescale",
        explanation: "neither numerator nor normalizer is rescaled when the maximum moves",
        same_variant: true,
        variants: |row| not_rescaled(row, Stale::Both),
    },
    Fault {
        name: "tail-score-zero",
        clause: "FAS:fwd.tiled.tail",
        explanation: "positions past the last key count in the normalizer with score 0",
        same_variant: false,
        variants: tail_score_zero,
    },
    Fault {
        name: "drop-tail-block",
        clause: "FAS:fwd.softmax.every-key",
        explanation: "the last visible keys do not take part",
        same_variant: false,
        variants: truncated,
    },
    Fault {
        name: "drop-key",
        clause: "FAS:fwd.softmax.every-key",
        explanation: "a visible key does not take part",
        same_variant: false,
        variants: without_key,
    },
    Fault {
        name: "repeat-key",
        clause: "FAS:fwd.softmax.every-key",
        explanation: "a visible key takes part twice",
        same_variant: false,
        variants: repeated_key,
    },
];

/// The terms of the row as it should be, over the given keys.
fn terms(row: &RowModel<'_>, keys: &[usize]) -> Vec<Term> {
    let head = row.key_head();
    keys.iter().map(|&key| Term::of(key, row.score(head, key))).collect()
}

fn only<'r>(prediction: Prediction) -> Variants<'r> {
    Box::new(std::iter::once(Variant { prediction, detail: String::new() }))
}

fn none<'r>() -> Variants<'r> {
    Box::new(std::iter::empty())
}

fn lse_form<'r>(row: &'r RowModel<'_>, lse: LseForm) -> Variants<'r> {
    if row.lse.is_none() {
        return none();
    }
    only(Prediction { lse, ..Prediction::new(row, terms(row, &row.visible())) })
}

/// The row under another mask, where that shows other keys.
fn masked<'r>(row: &'r RowModel<'_>, rules: Vec<Rule>) -> Variants<'r> {
    let seen = row.seen_by(&Problem { mask: Mask { rules }, ..row.problem.clone() });
    if seen == row.visible() { none() } else { only(Prediction::new(row, terms(row, &seen))) }
}

fn realigned<'r>(row: &'r RowModel<'_>, asked: &Rule, used: &Rule) -> Variants<'r> {
    let rules = &row.problem.mask.rules;
    if !rules.contains(asked) {
        return none();
    }
    masked(row, rules.iter().map(|rule| if rule == asked { used } else { rule }.clone()).collect())
}

fn without_rule<'r>(row: &'r RowModel<'_>, dropped: fn(&Rule) -> bool) -> Variants<'r> {
    masked(row, row.problem.mask.rules.iter().filter(|rule| !dropped(rule)).cloned().collect())
}

fn mask_wider<'r>(row: &'r RowModel<'_>) -> Variants<'r> {
    let mut keys = row.visible();
    let next = keys.last().map_or(0, |last| last + 1);
    if next >= row.problem.key_len {
        return none();
    }
    keys.push(next);
    only(Prediction::new(row, terms(row, &keys)))
}

fn uniform<'r>(row: &'r RowModel<'_>) -> Variants<'r> {
    let zero = Score { value: 0.0, mass: 0.0 };
    let terms = row.visible().into_iter().map(|key| Term::of(key, zero)).collect();
    only(Prediction::new(row, terms))
}

/// The factors that kernels mistake for the scale, relative to it.
fn rescored<'r>(row: &'r RowModel<'_>) -> Variants<'r> {
    let problem = row.problem;
    let (d, d_v) = (problem.head_dim as f64, problem.value_dim as f64);
    let scale = problem.scale_f64();
    let mistakes = [
        ("1: not scaled", 1.0),
        ("scale squared: scaled twice", scale * scale),
        ("1/head_dim", 1.0 / d),
        ("1/sqrt(head_dim)", 1.0 / d.sqrt()),
        ("1/sqrt(value_dim)", 1.0 / d_v.sqrt()),
        ("scale * ln 2: base two without the change of base", scale * std::f64::consts::LN_2),
        ("scale * log2(e): the change of base with base e", scale * std::f64::consts::LOG2_E),
        ("-scale", -scale),
    ];
    let right = terms(row, &row.visible());
    Box::new(mistakes.into_iter().filter(move |(_, used)| *used != scale && scale != 0.0).map(
        move |(detail, used)| {
            let factor = used / scale;
            let rescored = right.iter().map(|term| {
                let Score { value, mass } = term.score;
                let score = Score { value: value * factor, mass: mass * factor.abs() };
                Term { score, log_numerator: score.value, log_normalizer: score.value, ..*term }
            });
            let prediction = Prediction::new(row, rescored.collect());
            Variant { prediction, detail: detail.to_owned() }
        },
    ))
}

fn other_heads<'r>(row: &'r RowModel<'_>) -> Variants<'r> {
    let right = row.key_head();
    let visible = row.visible();
    Box::new((0..row.problem.key_heads).filter(move |&head| head != right).map(move |head| {
        let terms = visible.iter().map(|&key| Term::of(key, row.score(head, key))).collect();
        let prediction = Prediction { head, terms, lse: LseForm::Natural };
        let detail = format!("query head {}: {head} for {right}", row.index.head);
        Variant { prediction, detail }
    }))
}

/// Which part of the state keeps the frame of its own block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stale {
    Numerator,
    Normalizer,
    Both,
}

/// Blocks of every size, counted from key 0.
fn not_rescaled<'r>(row: &'r RowModel<'_>, stale: Stale) -> Variants<'r> {
    let right = terms(row, &row.visible());
    Box::new((1..=row.used_keys()).filter_map(move |block| {
        let terms = in_frames_of_blocks(&right, block, stale)?;
        let prediction = Prediction::new(row, terms);
        Some(Variant { prediction, detail: format!("blocks of {block} keys") })
    }))
}

/// The terms with stale frames, or `None` where the maximum never moves and nothing is stale.
fn in_frames_of_blocks(right: &[Term], block: usize, stale: Stale) -> Option<Vec<Term>> {
    let last = right.iter().map(|term| term.score.value).fold(f64::NEG_INFINITY, f64::max);
    let block_of = |term: &Term| term.key.map_or(0, |key| key / block);
    let mut running = f64::NEG_INFINITY;
    let mut moved = false;
    let mut terms = Vec::with_capacity(right.len());
    for members in right.chunk_by(|a, b| block_of(a) == block_of(b)) {
        running = members.iter().map(|term| term.score.value).fold(running, f64::max);
        let behind = last - running;
        moved |= behind > 0.0;
        terms.extend(members.iter().map(|term| Term {
            log_numerator: term.log_numerator
                + if stale == Stale::Normalizer { 0.0 } else { behind },
            log_normalizer: term.log_normalizer
                + if stale == Stale::Numerator { 0.0 } else { behind },
            ..*term
        }));
    }
    moved.then_some(terms)
}

/// Key blocks of kernels in use reach 256 keys; a tail is at most that long.
const LARGEST_BLOCK: usize = 256;

/// As many phantom positions as could fill the last block.
fn tail_score_zero<'r>(row: &'r RowModel<'_>) -> Variants<'r> {
    let right = terms(row, &row.visible());
    let zero = Score { value: 0.0, mass: 0.0 };
    let phantom =
        Term { key: None, score: zero, log_numerator: f64::NEG_INFINITY, log_normalizer: 0.0 };
    let mut counted = right.clone();
    Box::new((1..=LARGEST_BLOCK).map(move |count| {
        counted.push(phantom);
        let prediction = Prediction::new(row, counted.clone());
        Variant { prediction, detail: format!("{count} of them") }
    }))
}

fn truncated<'r>(row: &'r RowModel<'_>) -> Variants<'r> {
    let right = terms(row, &row.visible());
    Box::new((1..right.len()).rev().map(move |kept| {
        let prediction = Prediction::new(row, right[..kept].to_vec());
        Variant { prediction, detail: format!("the last {}", right.len() - kept) }
    }))
}

fn without_key<'r>(row: &'r RowModel<'_>) -> Variants<'r> {
    each_key(row, |terms, i| {
        terms.remove(i);
    })
}

fn repeated_key<'r>(row: &'r RowModel<'_>) -> Variants<'r> {
    each_key(row, |terms, i| terms.push(terms[i]))
}

fn each_key<'r>(row: &'r RowModel<'_>, change: fn(&mut Vec<Term>, usize)) -> Variants<'r> {
    let right = terms(row, &row.visible());
    if right.len() < 2 {
        return none();
    }
    Box::new((0..right.len()).map(move |i| {
        let mut terms = right.clone();
        change(&mut terms, i);
        let key = right[i].key.map_or_else(String::new, |key| format!("key {key}"));
        let detail = format!("{key} of query {}", row.index.query);
        Variant { prediction: Prediction::new(row, terms), detail }
    }))
}
