//! `flashproof traffic`: what kernels move through memory and hold in it.

use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use flashproof_conformance::report::Outcome;
use flashproof_conformance::suite::DEFAULT_SEED;
use flashproof_conformance::traffic::{self, Plan, Survey, markdown, plot, text};
use flashproof_spec::format::Format;

use super::error::CliError;
use super::{distinct, output};

/// Count what compiled kernels move through global memory, and hold in it, over a range of lengths
///
/// The emulator counts the bytes that a kernel asks for. Fails where scratch memory is not affine in the
/// length (FAS:io.memory.linear), or traffic is not that of a tiled kernel (FAS:io.traffic.shared-memory).
#[derive(clap::Args)]
pub struct Args {
    /// Kernels, as ptx:MANIFEST
    #[arg(required = true, value_name = "KERNEL")]
    kernels: Vec<String>,

    /// Number formats, such as bf16,f32; those that a kernel does not take are named and left out
    #[arg(long, value_name = "FORMATS", value_delimiter = ',', default_value = "bf16")]
    format: Vec<Format>,

    /// Queries, and as many keys: three lengths or more
    #[arg(long, value_name = "LENGTHS", value_delimiter = ',', default_values_t = [256, 512, 1024])]
    lengths: Vec<usize>,

    /// Entries of a query, key or value
    #[arg(long, value_name = "NUMBER", default_value = "64")]
    head_dim: usize,

    /// Hide later keys from each query
    #[arg(long)]
    causal: bool,

    /// Measure the backward pass, too
    #[arg(long)]
    backward: bool,

    /// Seed of the inputs
    #[arg(long, default_value_t = DEFAULT_SEED)]
    seed: u64,

    /// Write a plot to this file
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,

    /// Write the tables as Markdown to this file, with the plot of --svg
    #[arg(long, value_name = "FILE")]
    markdown: Option<PathBuf>,

    /// Write the counts as JSON to this file, or to standard output for - in place of the text
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

pub fn run(args: &Args) -> Result<Outcome, CliError> {
    let plan = Plan {
        kernels: args.kernels.clone(),
        formats: distinct(&args.format),
        lengths: args.lengths.clone(),
        head_dim: args.head_dim,
        causal: args.causal,
        backward: args.backward,
        seed: args.seed,
    };
    let steps = plan.kernels.len() * plan.formats.len() * plan.passes().len() * plan.lengths.len();
    let bar = output::progress(steps as u64, "problems");
    let survey = traffic::run(&plan, &|| bar.inc(1))?;
    bar.finish_and_clear();
    write(args, &survey)?;
    Ok(survey.outcome())
}

fn write(args: &Args, survey: &Survey) -> Result<(), CliError> {
    if let Some(path) = &args.svg {
        to_file(path, |file| file.write_all(plot::svg(survey)?.as_bytes()))?;
    }
    if let Some(path) = &args.markdown {
        // As seen from the file, where both are in one folder.
        let plot =
            args.svg.as_ref().map(|svg| match svg.strip_prefix(path.parent().unwrap_or(svg)) {
                Ok(beside) => beside.display().to_string(),
                Err(_) => svg.display().to_string(),
            });
        to_file(path, |file| markdown::write(survey, plot.as_deref(), file))?;
    }
    let json = |sink: &mut Vec<u8>| {
        serde_json::to_writer_pretty(&mut *sink, survey)?;
        writeln!(sink)
    };
    output::text_and_json(args.json.as_deref(), |sink| text::write(survey, sink), json)
}

fn to_file(
    path: &Path,
    render: impl FnOnce(&mut Vec<u8>) -> io::Result<()>,
) -> Result<(), CliError> {
    output::file(path, render)
        .map_err(|source| CliError::Write { path: path.display().to_string(), source })
}
