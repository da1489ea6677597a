//! Other problems whose exact answers a kernel's choices call for.

use flashproof_oracle::error::OracleError;
use flashproof_oracle::forward::{Options, Oracle};
use flashproof_oracle::row::{Row, RowIndex};
use flashproof_spec::mask::{Mask, Rule};
use flashproof_spec::problem::{Problem, Scale};
use flashproof_spec::tensor::Inputs;

use super::rows::Answer;
use crate::adapter::{EmptyRow, LseSink};

/// A problem of the same queries, keys and values, with its inputs.
#[derive(Debug)]
pub(super) struct Substitute {
    problem: Problem,
    inputs: Inputs,
    exact: Option<Dequantized>,
}

/// The problem and the inputs that quantized ones stand for, of which the exact answer is.
#[derive(Debug)]
pub(super) struct Dequantized {
    problem: Problem,
    inputs: Inputs,
}

impl Dequantized {
    /// `None` where inputs stand for themselves.
    pub(super) fn of(answer: &Answer<'_>) -> Option<Self> {
        answer.problem.quantization?;
        let Answer { problem, inputs, .. } = answer;
        Some(Self { problem: problem.dequantized(), inputs: inputs.dequantized(problem) })
    }
}

impl Substitute {
    /// The problem without sinks, of whose normalizer the LSE is, where the kernel leaves them out
    /// (`FAS:choice.lse.sink`).
    pub(super) fn without_sink(answer: &Answer<'_>) -> Option<Self> {
        if answer.problem.sink.is_none() || answer.choices.lse_sink == LseSink::Included {
            return None;
        }
        let problem = Problem { sink: None, ..answer.problem.clone() };
        Some(Self::new(answer, problem, Inputs { sink: None, ..answer.inputs.clone() }))
    }

    /// The problem in which each row is the mean of the values of the keys in use, where the kernel
    /// declares that of rows without keys (`FAS:choice.empty-row.output`,
    /// `FAS:choice.masked-row.output`).
    pub(super) fn mean(answer: &Answer<'_>) -> Option<Self> {
        let choices = answer.choices;
        if ![choices.empty_row, choices.masked_row].contains(&EmptyRow::Mean) {
            return None;
        }
        let in_use = |rule: &&Rule| matches!(rule, Rule::KeyLengths(_));
        let rules = answer.problem.mask.rules.iter().filter(in_use).cloned().collect();
        let problem = Problem {
            mask: Mask { rules },
            scale: Scale::Value(0.0),
            softcap: None,
            bias: None,
            alibi: None,
            sink: None,
            dropout: None,
            ..answer.problem.clone()
        };
        let inputs = Inputs { bias: None, sink: None, ..answer.inputs.clone() };
        Some(Self::new(answer, problem, inputs))
    }

    fn new(answer: &Answer<'_>, problem: Problem, inputs: Inputs) -> Self {
        let exact = Dequantized::of(&Answer { problem: &problem, inputs: &inputs, ..*answer });
        Self { problem, inputs, exact }
    }

    /// The answer to this problem in place of that to the one asked.
    pub(super) fn answer<'s>(&'s self, asked: &Answer<'s>) -> Answer<'s> {
        Answer { problem: &self.problem, inputs: &self.inputs, ..*asked }
    }
}

/// The exact answers of a row: to the problem, and to others where choices call for them.
#[derive(Debug)]
pub(super) struct Rows {
    pub(super) asked: Row,
    pub(super) without_sink: Option<Row>,
    /// Where the row sees no key and no sink.
    pub(super) mean: Option<Row>,
}

/// The oracles of a problem and of its substitutes.
#[derive(Debug)]
pub(super) struct Oracles<'a> {
    asked: Oracle<'a>,
    without_sink: Option<Oracle<'a>>,
    mean: Option<Oracle<'a>>,
}

impl<'a> Oracles<'a> {
    pub(super) fn new(
        answer: &Answer<'a>,
        exact: Option<&'a Dequantized>,
        without_sink: Option<&'a Substitute>,
        mean: Option<&'a Substitute>,
    ) -> Result<Self, OracleError> {
        let of = |it: &'a Substitute| oracle(&it.answer(answer), it.exact.as_ref());
        Ok(Self {
            asked: oracle(answer, exact)?,
            without_sink: without_sink.map(of).transpose()?,
            mean: mean.map(of).transpose()?,
        })
    }

    /// Whether LSEs are those of the problem without sinks.
    pub(super) const fn leaves_sink_out(&self) -> bool {
        self.without_sink.is_some()
    }

    pub(super) fn rows(&self, index: RowIndex) -> Result<Rows, OracleError> {
        let asked = self.asked.row(index)?;
        let mean = self.mean.as_ref().filter(|_| asked.visible.is_empty());
        let of = |oracle: Option<&Oracle<'a>>| oracle.map(|it| it.row(index)).transpose();
        Ok(Rows { without_sink: of(self.without_sink.as_ref())?, mean: of(mean)?, asked })
    }
}

fn oracle<'a>(
    answer: &Answer<'a>,
    exact: Option<&'a Dequantized>,
) -> Result<Oracle<'a>, OracleError> {
    let Answer { problem, inputs, profile, .. } = *answer;
    let options = Options {
        output_format: Some(problem.output_format()),
        ..Options::new(profile.lse_format)
    };
    match exact {
        None => Oracle::new(problem, inputs, options),
        Some(exact) => Oracle::new(&exact.problem, &exact.inputs, options),
    }
}
