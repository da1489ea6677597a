//! `flashproof mutants`: the kill matrix.

use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use flashproof_conformance::mutants::matrix::Matrix;
use flashproof_conformance::mutants::plan::{Extent, Plan};
use flashproof_conformance::mutants::specimen::{Specimen, specimens};
use flashproof_conformance::mutants::{self, Step, html, markdown, text};
use flashproof_conformance::report::Outcome;
use flashproof_conformance::suite::DEFAULT_SEED;
use flashproof_spec::format::Format;

use super::error::{CliError, near};
use super::{distinct, output};

/// Prove that the suite catches faults: kernels that are wrong on purpose, through the suite and through
/// the acceptance rules of other projects
///
/// Fails where a fault survives in every format, or a control, which is right in another way, is flagged.
#[derive(clap::Args)]
pub struct Args {
    /// Number formats, such as f32,bf16
    #[arg(long, value_name = "FORMATS", value_delimiter = ',', default_values_t = Plan::default().formats)]
    format: Vec<Format>,

    /// Only this fault or control; the option may be repeated [default: all]
    #[arg(long = "mutant", value_name = "NAME")]
    names: Vec<String>,

    /// Run every case, and judge each where an answer differs: an hour or more
    #[arg(long)]
    all: bool,

    /// Seed of the inputs
    #[arg(long, default_value_t = DEFAULT_SEED)]
    seed: u64,

    /// Write the matrix as Markdown to this file
    #[arg(long, value_name = "FILE")]
    markdown: Option<PathBuf>,

    /// Write the matrix as one HTML page to this file
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,

    /// Write the matrix as JSON to this file, or to standard output for - in place of the text
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

pub fn run(args: &Args) -> Result<Outcome, CliError> {
    let specimens = chosen(&args.names)?;
    let extent = if args.all { Extent::ALL } else { Extent::SAMPLE };
    let plan = Plan { formats: distinct(&args.format), seed: args.seed, extent };
    let bar = output::progress(0, "steps");
    let matrix = mutants::run(&specimens, &plan, &|step| match step {
        Step::Expected(more) => bar.inc_length(more as u64),
        Step::Done => bar.inc(1),
    })?;
    bar.finish_and_clear();
    write(args, &matrix)?;
    Ok(matrix.outcome())
}

fn chosen(names: &[String]) -> Result<Vec<Specimen>, CliError> {
    let all = specimens();
    if let Some(name) = names.iter().find(|name| !all.iter().any(|it| it.name == **name)) {
        let near = near(name, all.iter().map(|it| it.name.as_str()));
        return Err(CliError::NoMutant { name: name.clone(), near });
    }
    let is_chosen = |it: &Specimen| names.is_empty() || names.contains(&it.name);
    Ok(all.into_iter().filter(is_chosen).collect())
}

fn write(args: &Args, matrix: &Matrix) -> Result<(), CliError> {
    if let Some(path) = &args.markdown {
        to_file(path, |file| markdown::write(matrix, file))?;
    }
    if let Some(path) = &args.html {
        to_file(path, |file| {
            let page = html::render(matrix).map_err(io::Error::other)?;
            file.write_all(page.as_bytes())
        })?;
    }
    match args.json.as_deref() {
        None => return output::print(|sink| text::write(matrix, sink)),
        Some(path) if path == Path::new("-") => {
            return output::print(|sink| write_json(matrix, sink));
        }
        Some(path) => to_file(path, |file| write_json(matrix, file))?,
    }
    output::print(|sink| text::write(matrix, sink))
}

fn write_json(matrix: &Matrix, sink: &mut Vec<u8>) -> io::Result<()> {
    serde_json::to_writer_pretty(&mut *sink, matrix)?;
    writeln!(sink)
}

fn to_file(
    path: &Path,
    render: impl FnOnce(&mut Vec<u8>) -> io::Result<()>,
) -> Result<(), CliError> {
    output::file(path, render)
        .map_err(|source| CliError::Write { path: path.display().to_string(), source })
}
