//! `flashproof kernels`: what `builtin:` reaches.

use std::io::Write;

use flashproof_conformance::adapter::SCHEMES;
use flashproof_conformance::report::Outcome;

use super::error::CliError;
use super::output;

/// List the built-in kernels
#[derive(clap::Args)]
pub struct Args {}

pub fn run(_: &Args) -> Result<Outcome, CliError> {
    output::print(|sink| {
        for kernel in flashproof_kernels::builtins() {
            writeln!(sink, "{:22}  {}", format!("builtin:{}", kernel.name()), kernel.summary())?;
        }
        writeln!(sink, "\nKernels are reached by {SCHEMES}.")
    })?;
    Ok(Outcome::Passed)
}
