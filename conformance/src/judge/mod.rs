//! Judging tensors from a file: the output of a real run, or of a kernel on real inputs.

mod answer;
mod description;
mod elements;
mod error;
pub mod sample;
pub mod scale;
mod source;

use std::collections::BTreeMap;
use std::path::PathBuf;

use flashproof_spec::mask::Rule;
use indicatif::ProgressBar;

use crate::adapter::{self, Choices};
use crate::case::problem_clauses;
use crate::report::model::{Report, RowsJudged, Run, Subject};
use crate::run::{About, Judged};
use crate::verdict::{Answer, judge_rows};
use answer::Answered;
use elements::Elements;
use source::Source;

pub use error::JudgeError;

/// What to judge, and how.
#[derive(Clone, Debug)]
pub struct Request {
    /// A safetensors file with query, key and value, and perhaps output and LSE.
    pub inputs: PathBuf,
    /// Where the answer comes from.
    pub from: Origin,
    /// Names of the tensors.
    pub names: Names,
    /// What was computed, as far as the tensors do not tell.
    pub described: Described,
    /// The name or file of the profile; without one, the kernel's own, or `standard`.
    pub profile: Option<String>,
    /// The most pairs of a row and a key that are judged without sampling the rows.
    pub most_pairs: usize,
    /// Seed of the sample of rows.
    pub seed: u64,
    /// Where to write the comparison of each element.
    pub elements: Option<PathBuf>,
    /// The command that asks for this, for the report.
    pub command: String,
}

/// Where the answer comes from.
#[derive(Clone, Debug)]
pub enum Origin {
    /// Output and LSE stand in a file: this one, or that of the inputs.
    File {
        /// The file; `None` for that of the inputs.
        outputs: Option<PathBuf>,
        /// The choices of the kernel that made them.
        choices: Choices,
    },
    /// A kernel is run on the inputs.
    Kernel {
        /// How to reach it, as for `check`.
        kernel: String,
        /// How long to wait for it.
        options: adapter::Options,
    },
}

/// Names of tensors in the files; each that is not given is looked for under its usual names.
#[derive(Clone, Debug, Default)]
#[allow(missing_docs)] // the fields are the tensors
pub struct Names {
    pub query: Option<String>,
    pub key: Option<String>,
    pub value: Option<String>,
    pub output: Option<String>,
    pub lse: Option<String>,
}

/// A problem as far as shapes do not tell it; what is given here overrides the file's metadata.
#[derive(Clone, Debug, Default)]
pub struct Described {
    /// The alignment of a causal mask.
    pub causal: Option<Rule>,
    /// The softmax scale, as [`scale::parse`] takes it.
    pub scale: Option<String>,
    /// Key lengths: a list such as `7,5`, or the name of an integer tensor.
    pub lengths: Option<String>,
}

/// Judges the answer that the request describes. `progress` counts rows.
///
/// # Errors
/// [`JudgeError`] names the file, tensor or word at fault. What the kernel does wrong is a verdict.
pub fn judge(request: &Request, progress: &ProgressBar) -> Result<Report, JudgeError> {
    let mut source = Source::open(&request.inputs)?;
    let (problem, inputs) = source.problem_and_inputs(request)?;
    let answered = Answered::obtain(request, &mut source, &problem, &inputs)?;
    let mut rows = RowsJudged { judged: 0, of: 0, sample_seed: None };
    let judged = match &answered.outputs {
        Err(failure) => Judged::without_answer(failure)
            .ok_or_else(|| JudgeError::Environment(failure.to_string()))?,
        Ok(outputs) => {
            let answer = Answer {
                problem: &problem,
                inputs: &inputs,
                outputs,
                profile: &answered.profile,
                choices: answered.choices,
            };
            judge_answer(request, &answer, &mut rows, progress)?
        }
    };
    let about = About {
        name: source.name(request),
        clauses: problem_clauses(&problem),
        why: "tensors from a file".to_owned(),
        source: Vec::new(),
        reproduce: request.command.clone(),
        problem: problem.clone(),
    };
    let subject = Subject {
        name: answered.name,
        description: answered.description,
        choices: answered.choices,
        profiles: BTreeMap::from([(problem.format, answered.profile)]),
        formats_refused: BTreeMap::new(),
    };
    let inputs = request.inputs.display().to_string();
    Ok(Report::new(subject, Run::Judge { inputs, rows }, vec![judged.report(about)]))
}

fn judge_answer(
    request: &Request,
    answer: &Answer<'_>,
    judged: &mut RowsJudged,
    progress: &ProgressBar,
) -> Result<Judged, JudgeError> {
    let every = answer.every_row();
    let most = sample::most_rows(answer.problem.key_len, request.most_pairs);
    let sampled = every.len() > most;
    let rows = if sampled { sample::sample(&every, most, request.seed) } else { every.clone() };
    *judged = RowsJudged {
        judged: rows.len(),
        of: every.len(),
        sample_seed: sampled.then_some(request.seed),
    };
    progress.set_length(rows.len() as u64);
    let elements = request.elements.as_ref().map(|_| Elements::new(answer));
    let tally = judge_rows(answer, &rows, |compared| {
        progress.inc(1);
        if let Some(elements) = &elements {
            elements.record(compared);
        }
    })?;
    if let (Some(elements), Some(path)) = (elements, &request.elements) {
        elements.write(path)?;
    }
    Ok(Judged::of_tally(tally, answer))
}
