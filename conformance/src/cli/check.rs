//! `flashproof check`: a kernel through a suite.

use std::collections::BTreeMap;
use std::path::PathBuf;

use flashproof_conformance::adapter::{self, Failure, Subject};
use flashproof_conformance::case::{Case, every_format};
use flashproof_conformance::report::{Outcome, Report, model};
use flashproof_conformance::run;
use flashproof_conformance::suite::{self, DEFAULT_SEED, Direction, Feature, Suite};
use flashproof_spec::format::Format;

use super::error::{CliError, near};
use super::{Limits, distinct, output};

/// Put a kernel through a suite of cases
///
/// Compares every element of output, LSE and gradients with the exact answer, and fails those that lie outside
/// the error bound of the precision profile that the kernel declares.
#[derive(clap::Args)]
pub struct Args {
    /// builtin:NAME (see `flashproof kernels`), exec:COMMAND for a worker in any language, ptx:MANIFEST for
    /// PTX kernels in an emulator, or cuda:MANIFEST for the same on a device
    kernel: String,

    /// How thorough
    #[arg(long, value_enum, default_value_t)]
    suite: Suite,

    /// Which passes
    #[arg(long, value_enum, default_value_t)]
    direction: Direction,

    /// Number formats, such as f32,bf16 [default: those of f64,f32,f16,bf16,e4m3,e5m2 that the kernel takes]
    #[arg(long, value_name = "FORMATS", value_delimiter = ',')]
    format: Vec<Format>,

    /// Only cases of this name; * stands for any text, and the option may be repeated
    #[arg(long = "case", value_name = "NAME")]
    cases: Vec<String>,

    /// Only cases that ask for one of these features
    #[arg(long, value_enum, value_name = "FEATURES", value_delimiter = ',')]
    feature: Vec<Feature>,

    /// Also test elements and mean errors against bounds that a correct kernel exceeds with a
    /// probability below 1e-9 each, in cases whose inputs are drawn independently
    #[arg(long)]
    statistical: bool,

    /// Seed of the inputs
    #[arg(long, default_value_t = DEFAULT_SEED)]
    seed: u64,

    /// For a kernel that fails, search for the least departure from its declared precision under which
    /// it would pass; the verdicts stay as they are
    #[arg(long)]
    fit: bool,

    /// Write the report as JSON to this file, or to standard output for -
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,

    #[command(flatten)]
    limits: Limits,
}

pub fn run(args: &Args) -> Result<Outcome, CliError> {
    let formats = if args.format.is_empty() { every_format() } else { distinct(&args.format) };
    let chosen = choose(args, &formats)?;
    let mut subject = adapter::open(&args.kernel, &args.limits.options())?;
    let about = ask(subject.as_mut(), &formats);
    if about.formats_refused.len() == formats.len() {
        let (subject, refused) = (about.name, about.formats_refused);
        return Err(CliError::NoFormat { subject, refused });
    }
    // Formats that were not asked for by name, and that the kernel does not take, are left out.
    let cases: Vec<_> = chosen
        .into_iter()
        .filter(|case| {
            !args.format.is_empty() || !about.formats_refused.contains_key(&case.problem.format)
        })
        .collect();
    let tests = run::Tests { statistical: args.statistical };
    let bar = output::progress(cases.len() as u64, "cases");
    let suite = args.suite;
    let (reports, fits) = if args.fit {
        run::run_and_fit(subject.as_mut(), suite, &cases, tests, |_| bar.inc(1))?
    } else {
        (run::run_with(subject.as_mut(), suite, &cases, tests, |_| bar.inc(1))?, Vec::new())
    };
    bar.finish_and_clear();
    let Args { suite, direction, seed, .. } = *args;
    let run = model::Run::Check { suite, direction, seed, only: args.only() };
    output::report(&Report::new(about, run, reports).with_fits(fits), args.json.as_deref())
}

impl Args {
    /// What the cases were narrowed down to, as it was asked for.
    fn only(&self) -> Vec<String> {
        let features = self.feature.iter().map(|feature| format!("with {feature}"));
        self.cases.iter().cloned().chain(features).collect()
    }
}

/// The cases to run, before the kernel is started.
fn choose(args: &Args, formats: &[Format]) -> Result<Vec<Case>, CliError> {
    let mut cases = suite::cases(args.suite, formats, args.seed);
    cases.retain(|case| args.direction.includes(case));
    let cases = suite::with_features(cases, &args.feature);
    for pattern in &args.cases {
        if !cases.iter().any(|case| suite::is_match(case, pattern)) {
            let near = near(pattern, cases.iter().map(|case| case.name.as_str()));
            let suite = args.suite.to_string();
            return Err(CliError::NoCase { suite, pattern: pattern.clone(), near });
        }
    }
    Ok(suite::matching(cases, &args.cases))
}

/// What the kernel says of itself. A format whose profile it can not tell, though it does not refuse
/// it, is left to its cases.
fn ask(subject: &mut dyn Subject, formats: &[Format]) -> model::Subject {
    let mut profiles = BTreeMap::new();
    let mut formats_refused = BTreeMap::new();
    for &format in formats {
        match subject.profile(format) {
            Ok(profile) => drop(profiles.insert(format, profile)),
            Err(failure @ Failure::Unsupported(_)) => {
                drop(formats_refused.insert(format, failure.to_string()));
            }
            Err(_) => {}
        }
    }
    model::Subject {
        name: subject.name().to_owned(),
        description: subject.description().to_owned(),
        choices: subject.choices(),
        profiles,
        formats_refused,
    }
}
