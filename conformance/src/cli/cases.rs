//! `flashproof cases`: what a suite asks, and why.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Write};

use flashproof_conformance::case::{Case, every_format};
use flashproof_conformance::report::Outcome;
use flashproof_conformance::run;
use flashproof_conformance::suite::{self, DEFAULT_SEED, Feature, Suite};
use flashproof_conformance::trivial::Mark;
use flashproof_spec::format::Format;
use rayon::prelude::*;

use super::error::CliError;
use super::{distinct, output};

/// What `--bug` stands for without a value.
const EVERY_FAULT: &str = "all";

/// List the cases of a suite, and why each exists
#[derive(clap::Args)]
pub struct Args {
    /// Which suite
    #[arg(long, value_enum, default_value_t)]
    suite: Suite,

    /// Number formats, such as f32,bf16
    #[arg(long, value_name = "FORMATS", value_delimiter = ',', default_values_t = every_format())]
    format: Vec<Format>,

    /// Only cases that reproduce this reported fault: its number, or a report such as jax#24491.
    /// Without one, a line for each fault: its cases, the clauses they violate, where they were
    /// reported
    #[arg(long, value_name = "FAULT", num_args = 0..=1, default_missing_value = EVERY_FAULT)]
    bug: Option<String>,

    /// Only cases that ask for one of these features
    #[arg(long, value_enum, value_name = "FEATURES", value_delimiter = ',')]
    feature: Vec<Feature>,

    /// Say of each case what it computes, where its fault was reported, which clauses it tests, and
    /// which answers that are no attention would pass it, and why
    #[arg(long)]
    long: bool,
}

pub fn run(args: &Args) -> Result<Outcome, CliError> {
    let all = suite::cases(args.suite, &distinct(&args.format), DEFAULT_SEED);
    let mut cases = suite::with_features(all, &args.feature);
    match args.bug.as_deref() {
        None => {}
        Some(EVERY_FAULT) => {
            output::print(|sink| write_faults(&cases, sink))?;
            return Ok(Outcome::Passed);
        }
        Some(query) => {
            let example = cases.iter().find_map(|case| case.source.first()).cloned();
            cases.retain(|case| case.reproduces(query));
            if cases.is_empty() {
                let (query, example) = (query.to_owned(), example.unwrap_or_default());
                return Err(CliError::NoFault { query, example });
            }
        }
    }
    if args.long {
        print_long(&cases)?;
    } else {
        output::print(|sink| cases.iter().try_for_each(|case| write_short(case, sink)))?;
    }
    Ok(Outcome::Passed)
}

/// What there is of one reported fault, whatever the format.
#[derive(Default)]
struct Fault<'c> {
    cases: BTreeSet<&'c str>,
    clauses: BTreeSet<&'c str>,
    sources: BTreeSet<&'c str>,
}

/// A line for each reported fault, by its number.
fn write_faults(cases: &[Case], sink: &mut impl Write) -> io::Result<()> {
    let mut faults = BTreeMap::<u32, Fault<'_>>::new();
    for (case, bug) in cases.iter().filter_map(|case| Some((case, case.bug?))) {
        let fault = faults.entry(bug).or_default();
        fault.cases.insert(case.name.rsplit('/').next().unwrap_or(&case.name));
        fault.clauses.extend(case.clause);
        fault.sources.extend(case.source.iter().map(String::as_str));
    }
    for (bug, Fault { cases, clauses, sources }) in faults {
        let list = |words: BTreeSet<&str>| words.into_iter().collect::<Vec<_>>().join(", ");
        writeln!(sink, "{bug:>3}  {}  {}  {}", list(cases), list(clauses), list(sources))?;
    }
    Ok(())
}

fn write_short(case: &Case, sink: &mut impl Write) -> io::Result<()> {
    writeln!(sink, "{}  {}", case.name, case.why)
}

/// Prints the cases as their trivial answers are judged, some at a time, since that takes a while.
fn print_long(cases: &[Case]) -> Result<(), CliError> {
    /// Cases that are judged at a time.
    const AT_A_TIME: usize = 16;
    let mut failed = Ok(());
    let judged = cases.chunks(AT_A_TIME).map(|cases| {
        cases
            .par_iter()
            .map(|case| run::not_discriminating(case).map(|marks| (case, marks)))
            .collect::<Result<Vec<_>, _>>()
    });
    let until_failed = judged.map_while(|judged| judged.map_err(|it| failed = Err(it)).ok());
    output::print_each(until_failed.flatten(), |(case, marks), sink| {
        write_long(case, marks, sink)
    })?;
    Ok(failed?)
}

fn write_long(case: &Case, marks: &[Mark], sink: &mut impl Write) -> io::Result<()> {
    writeln!(sink, "{}", case.name)?;
    writeln!(sink, "  why      {}", case.why)?;
    if !case.source.is_empty() {
        writeln!(sink, "  source   {}", case.source.join(", "))?;
    }
    if let Some(clause) = case.clause {
        writeln!(sink, "  violates {clause}")?;
    }
    writeln!(sink, "  inputs   {}", case.family)?;
    if let Some(upstream) = case.upstream {
        writeln!(sink, "  upstream {}", upstream.name())?;
    }
    writeln!(sink, "  problem  {}", serde_json::to_string(&case.problem)?)?;
    writeln!(sink, "  clauses  {}", case.clauses().join(", "))?;
    for Mark { answer, reason, .. } in marks {
        writeln!(sink, "  passes   {answer}: {reason}")?;
    }
    writeln!(sink)
}
