//! The command line.

mod cases;
mod check;
mod drift;
mod error;
mod explain;
mod judge;
mod kernels;
mod mutants;
mod output;
mod spec;
mod traffic;

use std::collections::HashSet;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Parser, Subcommand};

use flashproof_conformance::adapter;
use flashproof_conformance::report::Outcome;
use flashproof_spec::format::Format;

/// Checks attention kernels against the exact answer, within derived error bounds.
///
/// Exit status: 0 all that was checked passed, 1 some verdict is not a pass, 2 the command could not
/// be carried out or nothing was checked.
#[derive(Parser)]
#[command(name = "flashproof", version, arg_required_else_help = true, max_term_width = 100)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Check(check::Args),
    Drift(drift::Args),
    Kernels(kernels::Args),
    Cases(cases::Args),
    Judge(Box<judge::Args>),
    Explain(explain::Args),
    Mutants(mutants::Args),
    Traffic(traffic::Args),
    Spec(spec::Args),
}

/// Every case, or every element, passed.
const PASSED: u8 = 0;
/// Some verdict is neither a pass nor unsupported.
const FAILED: u8 = 1;
/// The command could not be carried out, or checked nothing.
const NOT_CHECKED: u8 = 2;

/// Carries out the command line of this process.
pub fn main() -> ExitCode {
    let done = match Cli::parse().command {
        Command::Check(args) => check::run(&args),
        Command::Drift(args) => drift::run(&args),
        Command::Kernels(args) => kernels::run(&args),
        Command::Cases(args) => cases::run(&args),
        Command::Judge(args) => judge::run(&args),
        Command::Explain(args) => explain::run(&args),
        Command::Mutants(args) => mutants::run(&args),
        Command::Traffic(args) => traffic::run(&args),
        Command::Spec(args) => spec::run(&args),
    };
    match done {
        Ok(outcome) => ExitCode::from(status(outcome)),
        Err(error) => {
            output::error(&error);
            ExitCode::from(NOT_CHECKED)
        }
    }
}

const fn status(outcome: Outcome) -> u8 {
    match outcome {
        Outcome::Passed => PASSED,
        Outcome::Failed => FAILED,
        Outcome::NothingChecked => NOT_CHECKED,
    }
}

/// How long to wait for a kernel.
#[derive(clap::Args)]
struct Limits {
    /// Seconds that a kernel has for one case
    #[arg(long, value_name = "SECONDS", default_value = "60", value_parser = seconds)]
    time_limit: Duration,

    /// Seconds that a worker has to start and introduce itself
    #[arg(long, value_name = "SECONDS", default_value = "120", value_parser = seconds)]
    start_limit: Duration,
}

impl Limits {
    const fn options(&self) -> adapter::Options {
        adapter::Options { start_limit: self.start_limit, case_limit: self.time_limit }
    }
}

/// The formats in the order given, each once.
fn distinct(formats: &[Format]) -> Vec<Format> {
    let mut seen = HashSet::new();
    formats.iter().copied().filter(|format| seen.insert(*format)).collect()
}

fn seconds(text: &str) -> Result<Duration, String> {
    let expected = || "expected a positive number of seconds".to_owned();
    let seconds: f64 = text.parse().map_err(|_| expected())?;
    Duration::try_from_secs_f64(seconds)
        .ok()
        .filter(|duration| !duration.is_zero())
        .ok_or_else(expected)
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_command_line_is_well_formed() {
        Cli::command().debug_assert();
    }

    proptest! {
        #[test]
        fn no_word_panics_the_parser(words in prop::collection::vec(".{0,12}", 0..6)) {
            let line = ["flashproof"].into_iter().map(str::to_owned).chain(words);
            let _ = Cli::try_parse_from(line);
        }

        #[test]
        fn a_time_limit_is_positive_or_refused(text in ".{0,12}") {
            if let Ok(limit) = seconds(&text) {
                prop_assert!(!limit.is_zero());
            }
        }
    }
}
