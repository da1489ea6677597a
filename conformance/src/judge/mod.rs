//! Judging tensors from a file: the output of a real run, or of a kernel on real inputs.

mod answer;
mod description;
mod elements;
mod error;
mod gradient;
pub mod sample;
pub mod scale;
mod source;

use std::collections::BTreeMap;
use std::path::PathBuf;

use flashproof_oracle::backward::KeyIndex;
use flashproof_oracle::row::RowIndex;
use flashproof_spec::mask::Rule;
use flashproof_spec::tensor::Tensor;
use indicatif::ProgressBar;

use crate::adapter::{self, Choices};
use crate::case::{gradient_clauses, problem_clauses};
use crate::report::model::{Report, RowsJudged, Run, Subject};
use crate::run::{About, Judged};
use crate::verdict::{Answer, Compared, GradientAnswer, Quantity, judge_gradients, judge_rows};
use answer::Answered;
use elements::Elements;
use source::Source;

pub use error::JudgeError;

/// What to judge, and how.
#[derive(Clone, Debug)]
pub struct Request {
    /// A safetensors file with query, key and value, and perhaps output and LSE; with upstream
    /// gradients, and perhaps gradients, where a backward pass is to be judged.
    pub inputs: PathBuf,
    /// Where the answer comes from.
    pub from: Origin,
    /// Names of the tensors.
    pub names: Names,
    /// What was computed, as far as the tensors do not tell.
    pub described: Described,
    /// The name or file of the profile; without one, the kernel's own, or `standard`.
    pub profile: Option<String>,
    /// The most pairs of a row and a key that are judged without sampling rows or keys.
    pub most_pairs: usize,
    /// Seed of the sample of rows, and of that of keys.
    pub seed: u64,
    /// Where to write the comparison of each element.
    pub elements: Option<PathBuf>,
    /// The command that asks for this, for the report.
    pub command: String,
}

/// Where the answer comes from.
#[derive(Clone, Debug)]
pub enum Origin {
    /// Output, LSE and gradients stand in a file: this one, or that of the inputs.
    File {
        /// The file; `None` for that of the inputs.
        outputs: Option<PathBuf>,
        /// The choices of the kernel that made them.
        choices: Choices,
    },
    /// A kernel is run on the inputs, backward too where there is an upstream gradient.
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
    pub output_gradient: Option<String>,
    pub lse_gradient: Option<String>,
    pub query_gradient: Option<String>,
    pub key_gradient: Option<String>,
    pub value_gradient: Option<String>,
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

/// Judges the answer that the request describes. `progress` counts rows and keys.
///
/// # Errors
/// [`JudgeError`] names the file, tensor or word at fault. What the kernel does wrong is a verdict.
pub fn judge(request: &Request, progress: &ProgressBar) -> Result<Report, JudgeError> {
    let mut source = Source::open(&request.inputs)?;
    let (problem, inputs) = source.problem_and_inputs(request)?;
    let answered = Answered::obtain(request, &mut source, &problem, &inputs)?;
    let mut clauses = problem_clauses(&problem);
    let (judged, places) = match &answered.passes {
        Err(failure) => {
            let judged = Judged::without_answer(failure)
                .ok_or_else(|| JudgeError::Environment(failure.to_string()))?;
            (judged, Places::default())
        }
        Ok(passes) => {
            let answer = Answer {
                problem: &problem,
                inputs: &inputs,
                outputs: &passes.outputs,
                profile: &answered.profile,
                choices: answered.choices,
            };
            let backward = passes.backward.as_ref().map(|(cotangents, gradients)| {
                clauses.extend(gradient_clauses(&problem, cotangents.lse.is_some()));
                GradientAnswer { forward: answer, cotangents, gradients }
            });
            let places = Places::new(request, &answer, backward.as_ref());
            (judge_answer(request, &answer, backward.as_ref(), &places, progress)?, places)
        }
    };
    let about = About {
        name: source.name(request),
        clauses,
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
    let run = Run::Judge { inputs, rows: places.rows_judged, keys: places.keys_judged };
    Ok(Report::new(subject, run, vec![judged.report(about)]))
}

/// The rows and keys to judge.
#[derive(Default)]
struct Places {
    rows: Vec<RowIndex>,
    rows_judged: RowsJudged,
    /// Empty without a backward pass.
    keys: Vec<KeyIndex>,
    keys_judged: Option<RowsJudged>,
}

impl Places {
    fn new(request: &Request, answer: &Answer<'_>, backward: Option<&GradientAnswer<'_>>) -> Self {
        let every_row = answer.every_row();
        let most = sample::most_rows(answer.problem.key_len, request.most_pairs);
        let rows = sample::sample(&every_row, most, request.seed);
        let judged = |judged: usize, of: usize| RowsJudged {
            judged,
            of,
            sample_seed: (judged < of).then_some(request.seed),
        };
        let rows_judged = judged(rows.len(), every_row.len());
        let Some(backward) = backward else {
            return Self { rows, rows_judged, ..Self::default() };
        };
        let keys = sample::sample_keys(answer.problem, request.most_pairs, request.seed);
        let keys_judged = Some(judged(keys.len(), backward.every_key().len()));
        Self { rows, rows_judged, keys, keys_judged }
    }
}

fn judge_answer(
    request: &Request,
    answer: &Answer<'_>,
    backward: Option<&GradientAnswer<'_>>,
    places: &Places,
    progress: &ProgressBar,
) -> Result<Judged, JudgeError> {
    let Places { rows, keys, .. } = places;
    let passes = if backward.is_some() { 2 } else { 1 };
    progress.set_length((passes * rows.len() + keys.len()) as u64);
    let elements = request.elements.as_ref().map(|_| Elements::new(tensors(answer, backward)));
    let visit = |compared: &[Compared]| {
        progress.inc(1);
        if let Some(elements) = &elements {
            elements.record(compared);
        }
    };
    let mut judged = Judged::of_tally(judge_rows(answer, rows, visit)?, answer);
    if let Some(backward) = backward {
        let tally = judge_gradients(backward, rows, keys, visit)?;
        judged = judged.with_gradients(tally, backward);
    }
    if let (Some(elements), Some(path)) = (elements, &request.elements) {
        elements.write(path)?;
    }
    Ok(judged)
}

/// The tensors that are judged.
fn tensors<'a>(
    answer: &Answer<'a>,
    backward: Option<&GradientAnswer<'a>>,
) -> Vec<(Quantity, &'a Tensor)> {
    let mut tensors = vec![(Quantity::Output, &answer.outputs.output)];
    tensors.extend(answer.outputs.lse.as_ref().map(|lse| (Quantity::Lse, lse)));
    if let Some(GradientAnswer { gradients, .. }) = backward {
        tensors.extend([
            (Quantity::QueryGradient, &gradients.query),
            (Quantity::KeyGradient, &gradients.key),
            (Quantity::ValueGradient, &gradients.value),
        ]);
    }
    tensors
}
