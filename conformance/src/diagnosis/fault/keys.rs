//! Faults of tiling and of the loop over keys.

use flashproof_oracle::row::RowIndex;
use flashproof_spec::problem::Problem;

use super::{Fault, Variant, Variants, none, only};
use crate::diagnosis::prediction::{LseForm, Prediction, Term, Weights};
use crate::diagnosis::reading::Reading;
use crate::diagnosis::row::RowModel;

pub(super) const FAULTS: &[Fault] = &[
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
        name: "lazy-rescale-frame",
        clause: "FAS:fwd.online.rescale",
        explanation: "where the maximum rises little nothing is rescaled, but weights are measured from it",
        same_variant: true,
        variants: lazily_rescaled,
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
    Fault {
        name: "output-transposed",
        clause: "FAS:problem.shape",
        explanation: "the output has the axes of heads and queries swapped",
        same_variant: true,
        variants: transposed,
    },
    Fault {
        name: "output-unwritten",
        clause: "FAS:fwd.output.written",
        explanation: "the output is zero, as memory that nothing was written to",
        same_variant: true,
        variants: unwritten,
    },
];

fn other_heads<'r>(row: &'r RowModel<'_>) -> Variants<'r> {
    let right = row.key_head();
    Box::new((0..row.problem.key_heads).filter(move |&head| head != right).map(move |key_head| {
        let reading = Reading { key_head, ..row.reading() };
        let detail = format!("query head {}: {key_head} for {right}", row.index.head);
        Variant { prediction: reading.prediction(), detail }
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
    let reading = row.reading();
    let right = reading.terms();
    Box::new((1..=row.used_keys()).filter_map(move |block| {
        let terms = in_frames_of_blocks(&right, block, stale)?;
        let prediction = reading.prediction_of(terms);
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

/// A rise of the maximum that lazy kernels do not follow, in binary logarithm (FlashAttention-4).
const LAZY_LOG2: f64 = 8.0;

/// Blocks of every size, counted from key 0.
fn lazily_rescaled<'r>(row: &'r RowModel<'_>) -> Variants<'r> {
    let reading = row.reading();
    let right = reading.terms();
    Box::new((1..=row.used_keys()).filter_map(move |block| {
        let terms = in_frames_of_lazy_blocks(&right, block)?;
        let prediction = reading.prediction_of(terms);
        Some(Variant { prediction, detail: format!("blocks of {block} keys") })
    }))
}

/// The terms in the frames of their blocks where those of the sums stay behind; `None` where they do not.
fn in_frames_of_lazy_blocks(right: &[Term], block: usize) -> Option<Vec<Term>> {
    let most = LAZY_LOG2 * std::f64::consts::LN_2;
    let block_of = |term: &Term| term.key.map_or(0, |key| key / block);
    let mut followed = f64::NEG_INFINITY;
    let mut lags = false;
    let mut terms = Vec::with_capacity(right.len());
    for members in right.chunk_by(|a, b| block_of(a) == block_of(b)) {
        let maximum = members.iter().map(|term| term.score.value).fold(followed, f64::max);
        let ahead = if maximum - followed <= most { maximum - followed } else { 0.0 };
        if ahead == 0.0 {
            followed = maximum;
        }
        lags |= ahead > 0.0;
        terms.extend(members.iter().map(|term| Term {
            log_numerator: term.log_numerator - ahead,
            log_normalizer: term.log_normalizer - ahead,
            ..*term
        }));
    }
    lags.then_some(terms)
}

/// Key blocks of kernels in use reach 256 keys; a tail is at most that long.
const LARGEST_BLOCK: usize = 256;

/// As many phantom positions as could fill the last block.
fn tail_score_zero<'r>(row: &'r RowModel<'_>) -> Variants<'r> {
    let reading = row.reading();
    let mut counted = reading.terms();
    Box::new((1..=LARGEST_BLOCK).map(move |count| {
        counted.push(Term::without_value(0.0));
        let prediction = reading.prediction_of(counted.clone());
        Variant { prediction, detail: format!("{count} of them") }
    }))
}

fn truncated<'r>(row: &'r RowModel<'_>) -> Variants<'r> {
    let reading = row.reading();
    let right = reading.terms();
    Box::new((1..right.len()).rev().map(move |kept| {
        let prediction = reading.prediction_of(right[..kept].to_vec());
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

/// What stands at the row's place where `[query, head]` is written for `[head, query]`. The LSE may
/// stand where it should.
fn transposed<'r>(row: &'r RowModel<'_>) -> Variants<'r> {
    let RowIndex { batch, head, query } = row.index;
    let Problem { query_heads, query_len, .. } = *row.problem;
    let place = head * query_len + query;
    let there = RowIndex { batch, head: place % query_heads, query: place / query_heads };
    if there == row.index {
        return none();
    }
    let reading = Reading::of_row(row, there);
    only(reading.prediction().with_lse(LseForm::Unknown))
}

fn unwritten<'r>(row: &'r RowModel<'_>) -> Variants<'r> {
    if row.visible().is_empty() {
        return none();
    }
    let weights = Weights { head: row.key_head(), terms: Vec::new(), lse: LseForm::Unknown };
    only(Prediction::Weighted(weights))
}

fn each_key<'r>(row: &'r RowModel<'_>, change: fn(&mut Vec<Term>, usize)) -> Variants<'r> {
    let reading = row.reading();
    let right = reading.terms();
    if right.len() < 2 {
        return none();
    }
    Box::new((0..right.len()).map(move |i| {
        let mut terms = right.clone();
        change(&mut terms, i);
        let key = right[i].key.map_or_else(String::new, |key| format!("key {key}"));
        let detail = format!("{key} of query {}", row.index.query);
        Variant { prediction: reading.prediction_of(terms), detail }
    }))
}
