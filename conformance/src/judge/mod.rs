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

use flashproof_oracle::row::RowIndex;
use flashproof_spec::mask::Rule;
use flashproof_spec::tensor::Tensor;
use indicatif::ProgressBar;

use crate::adapter::{self, Choices};
use crate::case::{gradient_clauses, problem_clauses};
use crate::report::model::{Report, RowsJudged, Run, Subject};
use crate::run::{About, Judged};
use crate::verdict::{
    Answer, Compared, GradientAnswer, GradientPlaces, Quantity, judge_gradients, judge_rows,
};
use answer::Answered;
use elements::Elements;
use sample::sample;
use source::Source;

pub use error::JudgeError;

/// What to judge, and how.
#[derive(Clone, Debug)]
pub struct Request {
    /// A safetensors file with query, key and value, and perhaps bias, sinks and a mask, output and LSE;
    /// with upstream gradients, and perhaps gradients, where a backward pass is to be judged.
    pub inputs: PathBuf,
    /// Where the answer comes from.
    pub from: Origin,
    /// Names of the tensors.
    pub names: Names,
    /// The order of their axes.
    pub order: AxisOrder,
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
    pub bias: Option<String>,
    pub sink: Option<String>,
    pub mask: Option<String>,
    pub output_gradient: Option<String>,
    pub lse_gradient: Option<String>,
    pub query_gradient: Option<String>,
    pub key_gradient: Option<String>,
    pub value_gradient: Option<String>,
    pub bias_gradient: Option<String>,
    pub sink_gradient: Option<String>,
}

/// In which order the tensors of a file have their axes: queries, keys, values, outputs and their
/// gradients. LSE, bias and mask have theirs as ever.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AxisOrder {
    /// Batch, head, position, entry.
    #[default]
    Bhsd,
    /// Batch, position, head, entry.
    Bshd,
}

/// A problem as far as shapes do not tell it; what is given here overrides the file's metadata.
#[derive(Clone, Debug, Default)]
pub struct Described {
    /// JSON with any fields of a problem, in place of the metadata's `problem`.
    pub problem: Option<String>,
    /// JSON of a mask: a list of rules.
    pub mask: Option<String>,
    /// The alignment of a causal mask.
    pub causal: Option<Rule>,
    /// The softmax scale, as [`scale::parse`] takes it.
    pub scale: Option<String>,
    /// Key lengths: a list such as `7,5`, or the name of an integer tensor.
    pub lengths: Option<String>,
}

/// Judges the answer that the request describes. `progress` counts rows, keys and sinks.
///
/// # Errors
/// [`JudgeError`] names the file, tensor or word at fault. What the kernel does wrong is a verdict.
pub fn judge(request: &Request, progress: &ProgressBar) -> Result<Report, JudgeError> {
    let mut source = Source::open(&request.inputs, request.order)?;
    let (problem, inputs) = source.problem_and_inputs(request)?;
    let answered = Answered::obtain(request, &mut source, &problem, &inputs)?;
    let mut clauses = problem_clauses(&problem);
    let read = answered.choices.read(&problem);
    let (judged, places) = match &answered.passes {
        Err(failure) => {
            let judged = Judged::without_answer(failure)
                .ok_or_else(|| JudgeError::Environment(failure.to_string()))?;
            (judged, Places::default())
        }
        Ok(passes) => {
            let answer = Answer {
                problem: &read,
                inputs: &inputs,
                outputs: &passes.outputs,
                profile: &answered.profile,
                choices: answered.choices,
            };
            let backward = passes.backward.as_ref().map(|(cotangents, gradients)| {
                clauses.extend(gradient_clauses(&problem, cotangents.lse.is_some()));
                // Not known before it is judged.
                let wrong_rows = &[];
                GradientAnswer { forward: answer, cotangents, gradients, wrong_rows }
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
        policy: None,
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
    let run = Run::Judge {
        inputs,
        rows: places.rows_judged,
        keys: places.keys_judged,
        bias_rows: places.bias_rows_judged,
        sinks: places.sinks_judged,
    };
    Ok(Report::new(subject, run, vec![judged.report(about)]))
}

/// What there is to judge, and how much of it that is.
#[derive(Default)]
struct Places {
    rows: Vec<RowIndex>,
    rows_judged: RowsJudged,
    /// Empty without a backward pass.
    gradients: GradientPlaces,
    keys_judged: Option<RowsJudged>,
    bias_rows_judged: Option<RowsJudged>,
    sinks_judged: Option<RowsJudged>,
}

impl Places {
    fn new(request: &Request, answer: &Answer<'_>, backward: Option<&GradientAnswer<'_>>) -> Self {
        let Request { most_pairs, seed, .. } = *request;
        let problem = answer.problem;
        let every_row = answer.every_row();
        let rows = sample(&every_row, sample::most_rows(problem.key_len, most_pairs), seed);
        let judged = |judged: usize, of: usize| RowsJudged {
            judged,
            of,
            sample_seed: (judged < of).then_some(seed),
        };
        let rows_judged = judged(rows.len(), every_row.len());
        let Some(backward) = backward else {
            return Self { rows, rows_judged, ..Self::default() };
        };
        let keys = sample::sample_keys(problem, most_pairs, seed);
        let (every_bias_row, every_sink) = (backward.every_bias_row(), backward.every_sink());
        let bias_rows = sample::sample_bias_rows(problem, &every_bias_row, most_pairs, seed);
        let sinks = sample::sample_sinks(problem, &every_sink, most_pairs, seed);
        let of_some = |count: usize, of: usize| (of > 0).then(|| judged(count, of));
        Self {
            rows_judged,
            keys_judged: Some(judged(keys.len(), backward.every_key().len())),
            bias_rows_judged: of_some(bias_rows.len(), every_bias_row.len()),
            sinks_judged: of_some(sinks.len(), every_sink.len()),
            gradients: GradientPlaces { rows: rows.clone(), keys, bias_rows, sinks },
            rows,
        }
    }

    /// Rows, keys and sinks, each as often as it is compared.
    fn count(&self) -> usize {
        let GradientPlaces { rows, keys, bias_rows, sinks } = &self.gradients;
        self.rows.len() + rows.len() + keys.len() + bias_rows.len() + sinks.len()
    }
}

fn judge_answer(
    request: &Request,
    answer: &Answer<'_>,
    backward: Option<&GradientAnswer<'_>>,
    places: &Places,
    progress: &ProgressBar,
) -> Result<Judged, JudgeError> {
    progress.set_length(places.count() as u64);
    let elements = request.elements.as_ref().map(|_| Elements::new(tensors(answer, backward)));
    let visit = |compared: &[Compared]| {
        progress.inc(1);
        if let Some(elements) = &elements {
            elements.record(compared);
        }
    };
    let mut judged = Judged::of_tally(judge_rows(answer, &places.rows, visit)?, answer);
    if let Some(backward) = backward {
        let wrong_rows = &judged.tally.failing.clone();
        let backward = GradientAnswer { wrong_rows, ..*backward };
        let tally = judge_gradients(&backward, &places.gradients, visit)?;
        judged = judged.with_gradients(tally, &backward);
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
        tensors.extend(gradients.bias.as_ref().map(|bias| (Quantity::BiasGradient, bias)));
        tensors.extend(gradients.sink.as_ref().map(|sink| (Quantity::SinkGradient, sink)));
    }
    tensors
}
