//! Rows in which no key has a weight, and what a kernel may make of them.

use flashproof_oracle::row::Row;
use flashproof_spec::problem::Problem;
use flashproof_spec::tensor::Inputs;

use crate::adapter::{Choices, EmptyRow};

/// Why no key of a row has a weight.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Empty {
    /// The mask admits none (`FAS:fwd.softmax.empty-row`).
    Mask,
    /// Those that it admits have a bias of minus infinity (`FAS:choice.masked-row.output`).
    Bias,
    /// A sink has all the weight: the output is zero, and the LSE its logit.
    Sink {
        /// The logit.
        logit: f64,
        /// Whether there are visible keys, of a score of minus infinity.
        has_keys: bool,
    },
}

impl Empty {
    /// Why no key of the row has a weight, where none has.
    pub(super) fn of(problem: &Problem, inputs: &Inputs, row: &Row) -> Option<Self> {
        let has_keys = !row.visible.is_empty();
        if row.weighted.is_empty() && row.lse.exact().is_some() {
            let logit = inputs.sink_at(problem, row.index.head)?;
            return Some(Self::Sink { logit, has_keys });
        }
        let without_sink =
            inputs.sink_at(problem, row.index.head).is_none_or(|logit| logit == f64::NEG_INFINITY);
        match (has_keys, without_sink) {
            (false, true) if row.admitted == 0 => Some(Self::Mask),
            (false, true) => Some(Self::Bias),
            // Scores or a sink that are infinite or NaN are no lack of keys.
            _ => None,
        }
    }

    /// The clause that says what the row is.
    pub(super) const fn clause(self) -> &'static str {
        match self {
            Self::Mask | Self::Sink { has_keys: false, .. } => "FAS:fwd.softmax.empty-row",
            Self::Bias => "FAS:choice.masked-row.output",
            Self::Sink { has_keys: true, .. } => "FAS:score.sink.normalizer",
        }
    }

    /// What the kernel declares to give for it.
    pub(super) const fn output(self, choices: Choices) -> EmptyRow {
        match self {
            Self::Mask => choices.empty_row,
            Self::Bias => choices.masked_row,
            Self::Sink { .. } => EmptyRow::Zero,
        }
    }

    /// Whether the LSE may be NaN: one of a softmax over minus infinity alone, and declared.
    pub(super) fn lse_may_be_nan(self, choices: Choices) -> bool {
        self == Self::Bias && choices.masked_row == EmptyRow::Nan
    }
}
