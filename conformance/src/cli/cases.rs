//! `flashproof cases`: what a suite asks, and why.

use std::io::{self, Write};

use flashproof_conformance::case::{Case, FORMATS};
use flashproof_conformance::report::Outcome;
use flashproof_conformance::suite::{self, DEFAULT_SEED, Suite};
use flashproof_spec::format::Format;

use super::error::CliError;
use super::{distinct, output};

/// List the cases of a suite, and why each exists
#[derive(clap::Args)]
pub struct Args {
    /// Which suite
    #[arg(long, value_enum, default_value_t)]
    suite: Suite,

    /// Number formats, such as f32,bf16
    #[arg(long, value_name = "FORMATS", value_delimiter = ',', default_values_t = FORMATS)]
    format: Vec<Format>,

    /// Only cases that reproduce this reported fault: its number, or a report such as jax#24491
    #[arg(long, value_name = "FAULT")]
    bug: Option<String>,

    /// Say of each case what it computes, where its fault was reported and which clauses it tests
    #[arg(long)]
    long: bool,
}

pub fn run(args: &Args) -> Result<Outcome, CliError> {
    let mut cases = suite::cases(args.suite, &distinct(&args.format), DEFAULT_SEED);
    if let Some(query) = &args.bug {
        let example = cases.iter().find_map(|case| case.source.first()).cloned();
        cases.retain(|case| case.reproduces(query));
        if cases.is_empty() {
            let (query, example) = (query.clone(), example.unwrap_or_default());
            return Err(CliError::NoFault { query, example });
        }
    }
    output::print(|sink| {
        for case in &cases {
            if args.long { write_long(case, sink)? } else { write_short(case, sink)? }
        }
        Ok(())
    })?;
    Ok(Outcome::Passed)
}

fn write_short(case: &Case, sink: &mut impl Write) -> io::Result<()> {
    writeln!(sink, "{}  {}", case.name, case.why)
}

fn write_long(case: &Case, sink: &mut impl Write) -> io::Result<()> {
    writeln!(sink, "{}", case.name)?;
    writeln!(sink, "  why      {}", case.why)?;
    if !case.source.is_empty() {
        writeln!(sink, "  source   {}", case.source.join(", "))?;
    }
    writeln!(sink, "  inputs   {}", case.family)?;
    if let Some(upstream) = case.upstream {
        writeln!(sink, "  upstream {}", upstream.name())?;
    }
    writeln!(sink, "  problem  {}", serde_json::to_string(&case.problem)?)?;
    writeln!(sink, "  clauses  {}\n", case.clauses().join(", "))
}
