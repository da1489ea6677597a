//! Putting a kernel through cases.

mod answered;
mod asked;
mod instance;
mod judged;
mod judging;
mod same;
mod watch;

use std::collections::BTreeMap;

use flashproof_kernels::Kernel;
use flashproof_kernels::cpu::{Naive, Quantized};
use flashproof_oracle::error::OracleError;
use flashproof_spec::format::Format;
use flashproof_spec::mask::Rule;
use rayon::prelude::*;

pub(crate) use answered::{Answered, Answers, drawn};
pub(crate) use same::same_bits;

use crate::adapter::Subject;
use crate::adapter::builtin::Builtin;
use crate::case::Case;
use crate::fit::{self, Fit};
use crate::inputs::Misfit;
use crate::report::CaseReport;
use crate::suite::Suite;
use crate::trivial::Mark;
use crate::verdict::Verdict;
use asked::{Asked, Outcome, Profiles};

pub use instance::{Examined, Given, Instance, examine};
pub use judged::{About, Judged, quoted};
pub use watch::{AnswerTensor, Shown, Watch};

/// A case that could not be put to the kernel, for a reason that is not the kernel's.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)] // each variant's message is its documentation
pub enum RunError {
    #[error("case {case}: {source}")]
    Inputs { case: String, source: Misfit },
    #[error("case {case}: {source}")]
    Oracle { case: String, source: OracleError },
    #[error("case {case}: {reason}")]
    Environment { case: String, reason: String },
}

/// Elements of answers that are held while they are judged together: at 8 bytes each, and inputs and
/// poisoned runs of the same order beside them, some tens of megabytes.
const ELEMENTS_HELD: usize = 1 << 20;

/// Runs cases of the suite in order and judges each; `progress` is told of each case when it is judged.
///
/// The kernel runs one case at a time, alone, so that its time limit is its own. Then the cases so
/// far are judged in parallel. Where it computes in several ways ([`Subject::policies`]), the worst verdict
/// is the case's.
///
/// # Errors
/// [`RunError`] where a case could not be put to the kernel or to the oracle. What the kernel does
/// wrong is a verdict, not an error.
pub fn run(
    subject: &mut dyn Subject,
    suite: Suite,
    cases: &[Case],
    progress: impl FnMut(&CaseReport),
) -> Result<Vec<CaseReport>, RunError> {
    run_with(subject, suite, cases, Tests::default(), progress)
}

/// Which tests are made besides those of every run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tests {
    /// Those that reject a correct kernel with a probability below `10^-9` each
    /// ([`crate::statistics`]).
    pub statistical: bool,
}

/// As [`run`], with more tests.
///
/// # Errors
/// As [`run`].
pub fn run_with(
    subject: &mut dyn Subject,
    suite: Suite,
    cases: &[Case],
    tests: Tests,
    progress: impl FnMut(&CaseReport),
) -> Result<Vec<CaseReport>, RunError> {
    run_watched(subject, suite, cases, tests, &unwatched, progress)
}

/// Nobody watches.
fn unwatched(_: &Case, _: Shown<'_>) {}

/// As [`run_with`], with `watch` shown what the kernel answers and each element that is compared with
/// its exact answer, before `progress` is told of the case.
///
/// # Errors
/// As [`run`].
pub fn run_watched(
    subject: &mut dyn Subject,
    suite: Suite,
    cases: &[Case],
    tests: Tests,
    watch: &impl Watch,
    progress: impl FnMut(&CaseReport),
) -> Result<Vec<CaseReport>, RunError> {
    run_each(subject, (suite, cases), tests, watch, progress, drop)
}

/// As [`run_with`], and the answers to failing cases are kept: how else the kernel may have computed, for each
/// format in which a case failed and whose profile the kernel declares.
///
/// # Errors
/// As [`run`].
pub fn run_and_fit(
    subject: &mut dyn Subject,
    suite: Suite,
    cases: &[Case],
    tests: Tests,
    progress: impl FnMut(&CaseReport),
) -> Result<(Vec<CaseReport>, Vec<Fit>), RunError> {
    let mut failing: BTreeMap<Format, Vec<Answered<'_>>> = BTreeMap::new();
    let reports = run_each(subject, (suite, cases), tests, &unwatched, progress, |answered| {
        failing.entry(answered.format()).or_default().push(answered);
    })?;
    let mut fits = Vec::new();
    subject.begin(0, 0);
    for (format, failing) in failing {
        if let Ok(declared) = subject.profile(format) {
            let found = fit::fit(format, &declared, &failing);
            fits.push(
                found.map_err(|source| RunError::Oracle { case: format.to_string(), source })?,
            );
        }
    }
    Ok((reports, fits))
}

/// Runs and judges the cases in batches; `keep` is given the answers to those that fail.
fn run_each<'c>(
    subject: &mut dyn Subject,
    (suite, cases): (Suite, &'c [Case]),
    tests: Tests,
    watch: &impl Watch,
    mut progress: impl FnMut(&CaseReport),
    mut keep: impl FnMut(Answered<'c>),
) -> Result<Vec<CaseReport>, RunError> {
    let mut profiles = Profiles::new();
    let mut reports = Vec::with_capacity(cases.len());
    let mut rest = cases;
    while !rest.is_empty() {
        let (batch, after) = rest.split_at(batch_len(rest, subject.policies().len().max(1)));
        let asked = batch
            .iter()
            .map(|case| Asked::ask(subject, case, &mut profiles))
            .collect::<Result<Vec<_>, _>>()?;
        let judged =
            asked.par_iter().map(|it| it.judge(tests, watch)).collect::<Result<Vec<_>, _>>()?;
        for ((case, asked), judged) in batch.iter().zip(asked).zip(judged) {
            let Outcome { judged, policy, subject, answered } = asked.into_outcome(judged);
            if judged.verdict.is_failure() && judged.verdict != Verdict::NoBound {
                keep(answered);
            }
            let about = About { policy, ..About::case(case, suite, &subject, tests) };
            let report = judged.report(about);
            progress(&report);
            reports.push(report);
        }
        rest = after;
    }
    Ok(reports)
}

/// The trivial answers that would pass the case, put to a kernel of the narrowest profile that the
/// kernels here have ([`Naive`]), each with the reason.
///
/// # Errors
/// [`RunError`] where the case could not be put to the oracle.
pub fn not_discriminating(case: &Case) -> Result<Vec<Mark>, RunError> {
    let kernel: Box<dyn Kernel> = if case.problem.quantization.is_some() {
        Box::new(Quantized::default())
    } else {
        Box::new(Naive)
    };
    let mut right = Builtin::new(kernel);
    let profile = right.profile(case.problem.format);
    Answered::put(&mut right, case, profile, drawn(case)?)?.marks()
}

/// How many of the first cases to hold at once, each answered in so many ways; at least one.
fn batch_len(cases: &[Case], ways: usize) -> usize {
    let mut held = 0_usize;
    let fits = |case: &&Case| {
        held = held.saturating_add(elements(case).saturating_mul(ways));
        held <= ELEMENTS_HELD
    };
    cases.iter().take_while(fits).count().max(1)
}

/// Elements that a case holds: inputs and output, once more where a backward pass takes an upstream
/// gradient of the one and gives gradients of the others, and patterns.
fn elements(case: &Case) -> usize {
    let problem = &case.problem;
    let count = |shape: [usize; 4]| shape.iter().product::<usize>();
    let tensors = count(problem.query_shape())
        + count(problem.key_shape())
        + count(problem.value_shape())
        + count(problem.output_shape())
        + problem.bias.map_or(0, |bias| count(bias.shape));
    let passes = if case.upstream.is_some() { 2 } else { 1 };
    let kept = problem.dropout.as_ref().map(|dropout| dropout.keep.shape());
    let masks = problem.mask.rules.iter().filter_map(|rule| match rule {
        Rule::Boolean(pattern) => Some(pattern.shape()),
        _ => None,
    });
    // A truth value takes an eighth of an element, and the problem is held thrice: as asked, as read
    // and in the report.
    let patterns: usize = masks.chain(kept).map(|shape| count(shape) * 3 / 8).sum();
    passes * tensors + patterns
}
