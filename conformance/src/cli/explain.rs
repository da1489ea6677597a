//! `flashproof explain`: where and why one case fails.

use std::path::PathBuf;
use std::time::Duration;

use flashproof_conformance::adapter;
use flashproof_conformance::case::{Case, FORMATS};
use flashproof_conformance::explain::{self, Explanation, Limits as SearchLimits, Request};
use flashproof_conformance::report::Outcome;
use flashproof_conformance::suite::{self, DEFAULT_SEED, Suite};
use flashproof_conformance::verdict::Verdict;

use super::error::{CliError, near};
use super::{Limits, output, seconds};

/// Explain why a kernel fails a case
///
/// Shrinks the input for as long as the kernel still fails in the same way, shows the failing row block
/// by block beside the exact answer, names the first block where they part and the faults that would
/// explain it.
#[derive(clap::Args)]
pub struct Args {
    /// builtin:NAME (see `flashproof kernels`), exec:COMMAND for a worker in any language, ptx:MANIFEST for
    /// PTX kernels in an emulator, or cuda:MANIFEST for the same on a device
    kernel: String,

    /// The case's name, as `flashproof check` reports it
    case: String,

    /// The suite that the case is of
    #[arg(long, value_enum, default_value_t)]
    suite: Suite,

    /// Seed of the inputs
    #[arg(long, default_value_t = DEFAULT_SEED)]
    seed: u64,

    /// Write the smallest input that fails, what the kernel gave and what it should have given to this
    /// safetensors file, which `flashproof judge` takes
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,

    /// Explain the case's own input, without looking for a smaller one
    #[arg(long)]
    no_shrink: bool,

    /// Most smaller inputs to try
    #[arg(long, value_name = "NUMBER", default_value_t = SearchLimits::default().questions)]
    questions: usize,

    /// Seconds to look for a smaller input
    #[arg(long, value_name = "SECONDS", default_value = "60", value_parser = seconds)]
    shrink_limit: Duration,

    /// Write the explanation as JSON to this file, or to standard output for -
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,

    #[command(flatten)]
    limits: Limits,
}

pub fn run(args: &Args) -> Result<Outcome, CliError> {
    let case = find(args)?;
    let mut subject = adapter::open(&args.kernel, &args.limits.options())?;
    let questions = if args.no_shrink { 0 } else { args.questions };
    let limits = SearchLimits { questions, time: args.shrink_limit };
    let bar = output::progress(questions as u64, "questions");
    let request = Request { case: &case, suite: args.suite, limits };
    let explanation = explain::explain(subject.as_mut(), &request, &|| bar.inc(1));
    bar.finish_and_clear();
    let explanation = explanation?;
    let written = match (&args.out, &explanation.example) {
        (Some(path), Some(example)) => {
            explain::write(&explanation, example, path)?;
            Some(path.as_path())
        }
        _ => None,
    };
    output::text_and_json(
        args.json.as_deref(),
        |sink| explain::text::write(&explanation, written, sink),
        |sink| explain::write_json(&explanation, sink),
    )?;
    Ok(outcome(&explanation))
}

/// The case of that very name.
fn find(args: &Args) -> Result<Case, CliError> {
    let cases = suite::cases(args.suite, &FORMATS, args.seed);
    if let Some(case) = cases.iter().find(|case| case.name == args.case) {
        return Ok(case.clone());
    }
    let near = near(&args.case, cases.iter().map(|case| case.name.as_str()));
    Err(CliError::NoCase { suite: args.suite.to_string(), pattern: args.case.clone(), near })
}

fn outcome(explanation: &Explanation) -> Outcome {
    match explanation.report.verdict {
        Verdict::Pass => Outcome::Passed,
        verdict if verdict.is_failure() => Outcome::Failed,
        _ => Outcome::NothingChecked,
    }
}
