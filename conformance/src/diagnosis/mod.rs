//! Which fault explains a failing case: names the clause behind a bound that was exceeded.
//!
//! The verdict says *that* a row is wrong; a bound knows no reason. Here each known fault is a
//! hypothesis that predicts what the row would be if the kernel had just that fault. A hypothesis
//! that predicts every examined failing row, within the bound of the row it predicts, is a
//! [`Finding`]. A finding is a statement of consistency, never a verdict: it can not make a kernel
//! pass or fail.
//!
//! Predictions are computed in plain `f64` from the inputs alone; the oracle is not consulted.

mod fault;
pub mod gradient;
mod prediction;
mod reading;
mod row;

use std::collections::BTreeSet;

use flashproof_oracle::row::RowIndex;
use flashproof_spec::problem::Problem;
use flashproof_spec::profile::Profile;
use flashproof_spec::tensor::{Inputs, Outputs};

pub use fault::{Fault, faults};
use row::RowModel;

/// What is known of a failing case.
#[derive(Clone, Copy, Debug)]
pub struct Evidence<'a> {
    /// What was to be computed.
    pub problem: &'a Problem,
    /// How the kernel says it computes.
    pub profile: &'a Profile,
    /// What it was given.
    pub inputs: &'a Inputs,
    /// What it answered, the LSE in nats, of positive sign and with any sink.
    pub outputs: &'a Outputs,
    /// Rows with an element outside its bound, in any order.
    pub failing: &'a [RowIndex],
}

/// A fault that explains the failing rows of a case.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Finding {
    /// The fault's name, as in the list of mutants: `drop-key`, `lse-base2`.
    pub fault: &'static str,
    /// The clause that a kernel with this fault violates.
    pub clause: &'static str,
    /// What the kernel seems to have done, with the particulars found.
    pub explanation: String,
}

/// Failing rows that are examined; more would cost time and seldom change the answer.
const EXAMINED_ROWS: usize = 8;

/// Some faults have as many variants as keys, so a row costs the square of its keys: long rows are
/// examined fewer at a time, to a total of this much.
const EXAMINED_PAIRS: usize = EXAMINED_ROWS << 20;

/// The faults that explain every examined failing row, most specific first.
#[must_use]
pub fn diagnose(evidence: &Evidence<'_>) -> Vec<Finding> {
    let pairs = evidence.problem.key_len.pow(2).max(1);
    let count = (EXAMINED_PAIRS / pairs).clamp(1, EXAMINED_ROWS);
    let rows: Vec<RowModel<'_>> =
        spread(evidence.failing, count).map(|index| RowModel::new(evidence, index)).collect();
    if rows.is_empty() {
        return Vec::new();
    }
    faults().filter_map(|fault| explain(fault, &rows)).collect()
}

/// At most `count` items, evenly spread, the first and the last among them.
fn spread<T: Copy>(items: &[T], count: usize) -> impl Iterator<Item = T> + '_ {
    let taken = items.len().min(count);
    (0..taken).map(move |k| items[if taken > 1 { k * (items.len() - 1) / (taken - 1) } else { 0 }])
}

/// The finding, if for each row some variant of the fault predicts it; where the variant is a
/// property of the kernel, the same one for all rows.
fn explain(fault: &Fault, rows: &[RowModel<'_>]) -> Option<Finding> {
    let mut common: Option<BTreeSet<String>> = None;
    for row in rows {
        let found: BTreeSet<String> = (fault.variants)(row)
            .filter(|variant| variant.prediction.explains(row))
            .map(|variant| variant.detail)
            .collect();
        let kept = match common {
            Some(before) if fault.same_variant => before.intersection(&found).cloned().collect(),
            Some(before) if !found.is_empty() => before.union(&found).cloned().collect(),
            _ => found,
        };
        if kept.is_empty() {
            return None;
        }
        common = Some(kept);
    }
    let details: Vec<String> = common?.into_iter().filter(|detail| !detail.is_empty()).collect();
    Some(Finding {
        fault: fault.name,
        clause: fault.clause,
        explanation: describe(fault.explanation, &details),
    })
}

fn describe(explanation: &str, details: &[String]) -> String {
    /// Particulars that are listed before "and more".
    const LISTED: usize = 4;
    match details.len() {
        0 => explanation.to_owned(),
        n if n <= LISTED => format!("{explanation} ({})", details.join(", ")),
        n => format!("{explanation} ({}, and {} more)", details[..LISTED].join(", "), n - LISTED),
    }
}
