//! Faults of weights: sinks, dropout, and rows in which nothing has a weight.

use flashproof_spec::score::{Dropout, Sink};

use super::{Fault, Variant, Variants, none, only, readings};
use crate::diagnosis::prediction::{LseForm, Prediction, Term, Weights};
use crate::diagnosis::reading::{Reading, Score};
use crate::diagnosis::row::RowModel;

pub(super) const FAULTS: &[Fault] = &[
    Fault {
        name: "sink-ignored",
        clause: "FAS:score.sink.normalizer",
        explanation: "the sink is not in the normalizer",
        same_variant: true,
        variants: sink_ignored,
    },
    Fault {
        name: "sink-head0",
        clause: "FAS:score.sink.normalizer",
        explanation: "every head has the sink of head 0",
        same_variant: true,
        variants: sink_of_head_0,
    },
    Fault {
        name: "sink-per-split",
        clause: "FAS:score.sink.once",
        explanation: "the sink is counted more than once",
        same_variant: true,
        variants: sink_repeated,
    },
    // After those: where no value tells them apart, a sink is more likely wrong than its LSE alone.
    Fault {
        name: "lse-sink",
        clause: "FAS:choice.lse.sink",
        explanation: "the LSE does not count the sink as declared",
        same_variant: true,
        variants: lse_of_sink,
    },
    Fault {
        name: "dropout-ignored",
        clause: "FAS:score.dropout.keep",
        explanation: "no weight is dropped",
        same_variant: true,
        variants: dropout_ignored,
    },
    Fault {
        name: "dropout-unscaled",
        clause: "FAS:score.dropout.keep",
        explanation: "weights that are kept are not scaled",
        same_variant: true,
        variants: dropout_unscaled,
    },
    Fault {
        name: "dropout-inverted",
        clause: "FAS:score.dropout.keep",
        explanation: "what is to be kept is dropped, and the other way round",
        same_variant: true,
        variants: dropout_inverted,
    },
    Fault {
        name: "dropout-normalizer",
        clause: "FAS:score.dropout.keep",
        explanation: "weights that are dropped are missing from the normalizer",
        same_variant: true,
        variants: dropout_normalizer,
    },
    Fault {
        name: "output-unwritten",
        clause: "FAS:fwd.output.written",
        explanation: "the row is zero, as memory is that was never written",
        same_variant: true,
        variants: unwritten,
    },
    Fault {
        name: "masked-row-nan",
        clause: "FAS:choice.masked-row.output",
        explanation: "a row whose every key has a bias of minus infinity is NaN",
        same_variant: true,
        variants: |row| nan(row, is_masked(row)),
    },
    Fault {
        name: "empty-row-nan",
        clause: "FAS:fwd.softmax.empty-row",
        explanation: "a row that sees no key is NaN",
        same_variant: true,
        variants: |row| nan(row, row.visible().is_empty()),
    },
    Fault {
        name: "masked-row-mean",
        clause: "FAS:choice.masked-row.output",
        explanation: "a row whose every key has a bias of minus infinity is the mean of the values",
        same_variant: true,
        variants: |row| mean(row, is_masked(row)),
    },
    Fault {
        name: "empty-row-mean",
        clause: "FAS:fwd.softmax.empty-row",
        explanation: "a row that sees no key is the mean of the values",
        same_variant: true,
        variants: |row| mean(row, row.visible().is_empty()),
    },
];

fn sink_ignored<'r>(row: &'r RowModel<'_>) -> Variants<'r> {
    if row.problem.sink.is_none() {
        return none();
    }
    readings(vec![("", Reading::with(row, |problem| problem.sink = None))])
}

fn sink_of_head_0<'r>(row: &'r RowModel<'_>) -> Variants<'r> {
    match row.problem.sink {
        Some(Sink::Logits(_)) if row.index.head > 0 => {
            readings(vec![("", Reading { sink_head: 0, ..row.reading() })])
        }
        _ => none(),
    }
}

/// Splits of a long sequence that kernels in use make.
const MOST_SPLITS: usize = 128;

fn sink_repeated<'r>(row: &'r RowModel<'_>) -> Variants<'r> {
    let reading = row.reading();
    let Some(sink) = reading.sink() else { return none() };
    let mut terms = reading.terms();
    Box::new((2..=MOST_SPLITS).map(move |times| {
        terms.push(sink);
        let prediction = reading.prediction_of(terms.clone());
        Variant { prediction, detail: format!("{times} times") }
    }))
}

fn lse_of_sink<'r>(row: &'r RowModel<'_>) -> Variants<'r> {
    if row.lse.is_none() || row.problem.sink.is_none() {
        return none();
    }
    let forms = [
        ("it leaves the sink out", LseForm::WithoutSink),
        ("it counts a sink that is declared to be left out", LseForm::WithSinkAgain),
    ];
    Box::new(forms.into_iter().map(|(detail, form)| Variant {
        prediction: row.reading().prediction().with_lse(form),
        detail: detail.to_owned(),
    }))
}

/// The row with what dropout does to it changed.
fn with_dropout<'r>(
    row: &'r RowModel<'_>,
    change: impl FnOnce(Dropout) -> Option<Dropout>,
) -> Variants<'r> {
    let Some(dropout) = row.problem.dropout.clone() else { return none() };
    readings(vec![("", Reading::with(row, |problem| problem.dropout = change(dropout)))])
}

fn dropout_ignored<'r>(row: &'r RowModel<'_>) -> Variants<'r> {
    with_dropout(row, |_| None)
}

fn dropout_unscaled<'r>(row: &'r RowModel<'_>) -> Variants<'r> {
    with_dropout(row, |dropout| Some(Dropout { scale: 1.0, ..dropout }))
}

fn dropout_inverted<'r>(row: &'r RowModel<'_>) -> Variants<'r> {
    let Some(Dropout { scale, .. }) = row.problem.dropout else { return none() };
    let inverted = |term: Term| Term { factor: scale - term.factor, ..term };
    changed_terms(row, inverted)
}

fn dropout_normalizer<'r>(row: &'r RowModel<'_>) -> Variants<'r> {
    if row.problem.dropout.is_none() {
        return none();
    }
    let removed = |term: Term| {
        if term.factor == 0.0 {
            Term { log_numerator: f64::NEG_INFINITY, log_normalizer: f64::NEG_INFINITY, ..term }
        } else {
            // What is left is a softmax of its own, with or without the scale.
            term
        }
    };
    let unscaled = move |term: Term| Term { factor: term.factor.min(1.0), ..removed(term) };
    Box::new(changed_terms(row, removed).chain(changed_terms(row, unscaled)))
}

fn changed_terms<'r>(row: &'r RowModel<'_>, change: impl Fn(Term) -> Term) -> Variants<'r> {
    let reading = row.reading();
    only(reading.prediction_of(reading.terms().into_iter().map(change).collect()))
}

/// Whether the mask admits keys and the bias hides them all.
fn is_masked(row: &RowModel<'_>) -> bool {
    row.visible().is_empty() && !row.admitted().is_empty()
}

fn unwritten<'r>(row: &'r RowModel<'_>) -> Variants<'r> {
    if row.visible().is_empty() { none() } else { only(Prediction::Zero) }
}

fn nan<'r>(_: &'r RowModel<'_>, applies: bool) -> Variants<'r> {
    if applies { only(Prediction::Nan) } else { none() }
}

fn mean<'r>(row: &'r RowModel<'_>, applies: bool) -> Variants<'r> {
    if !applies {
        return none();
    }
    let terms = (0..row.used_keys()).map(|key| Term::of(key, Score::default())).collect();
    only(Prediction::Weighted(Weights { head: row.key_head(), terms, lse: LseForm::Unknown }))
}
