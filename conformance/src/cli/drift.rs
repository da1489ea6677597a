//! `flashproof drift`: how a kernel's answers change between versions and machines.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use flashproof_conformance::adapter::{self, SCHEMES};
use flashproof_conformance::case::FORMATS;
use flashproof_conformance::drift::{
    self, Asked, Comparison, DriftError, History, Request, Snapshot, text,
};
use flashproof_conformance::report::Outcome;
use flashproof_conformance::run::quoted;
use flashproof_conformance::suite::{self, DEFAULT_SEED, Suite};
use flashproof_spec::format::Format;

use super::error::{CliError, near};
use super::{Limits, distinct, output};

/// Snapshot how a kernel's answers are, and tell what changed
///
/// Whether bits are the same and whether answers are within their error bounds are two questions:
/// every comparison answers both, and neither for the other.
#[derive(clap::Args)]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(clap::Subcommand)]
enum Command {
    Record(Record),
    Compare(Compare),
    Accept(Accept),
}

/// Put a kernel through a suite, and write what its answers are like as text
#[derive(clap::Args)]
struct Record {
    /// builtin:NAME (see `flashproof kernels`), exec:COMMAND for a worker in any language, ptx:MANIFEST for
    /// PTX kernels in an emulator, or cuda:MANIFEST for the same on a device
    kernel: String,

    /// Write the snapshot to this file, and a summary to standard output; without it, the snapshot
    /// goes to standard output
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,

    /// How thorough
    #[arg(long, value_enum, default_value_t)]
    suite: Suite,

    /// Number formats, such as f32,bf16 [default: f64,f32,f16,bf16]
    #[arg(long, value_name = "FORMATS", value_delimiter = ',')]
    format: Vec<Format>,

    /// Only cases of this name; * stands for any text, and the option may be repeated
    #[arg(long = "case", value_name = "NAME")]
    cases: Vec<String>,

    /// Seed of the inputs
    #[arg(long, default_value_t = DEFAULT_SEED)]
    seed: u64,

    #[command(flatten)]
    how: How,
}

/// How a kernel is run to be recorded.
#[derive(clap::Args)]
struct How {
    /// How often each case is asked [default: once, or 3 times where the kernel does not promise to
    /// repeat its bits]
    #[arg(long)]
    runs: Option<u32>,

    /// Record the kernel under this name, so that it compares with another of that name
    #[arg(long = "as", value_name = "NAME")]
    name: Option<String>,

    /// Keep this with the environment, such as compiler='nvcc 13.0 -O3'; may be repeated
    #[arg(long = "note", value_name = "NAME=TEXT")]
    notes: Vec<String>,

    #[command(flatten)]
    limits: Limits,
}

/// Tell two snapshots apart, or a snapshot and what a kernel answers now
///
/// Exit status: 0 no verdict got worse (bits may have changed, which is said), 1 a verdict got worse,
/// or bits changed and --bits was given, 2 the two cannot be compared.
#[derive(clap::Args)]
struct Compare {
    /// The earlier snapshot
    before: PathBuf,

    /// The later snapshot, or the kernel to ask now: builtin:NAME, exec:COMMAND, ptx:MANIFEST or cuda:MANIFEST
    after: String,

    /// Exit with 1 where bits changed, even if every verdict is the same
    #[arg(long)]
    bits: bool,

    /// File of accepted changes [default: drift-history.toml beside the earlier snapshot]
    #[arg(long, value_name = "FILE")]
    history: Option<PathBuf>,

    #[command(flatten)]
    how: How,
}

/// Keep in the history that what changed between two snapshots is right, and why
///
/// A verdict that got worse is not accepted.
#[derive(clap::Args)]
struct Accept {
    /// The earlier snapshot
    before: PathBuf,

    /// The later snapshot
    after: PathBuf,

    /// Why the change is right
    #[arg(long)]
    reason: String,

    /// File of accepted changes [default: drift-history.toml beside the earlier snapshot]
    #[arg(long, value_name = "FILE")]
    history: Option<PathBuf>,
}

/// The name of a history that is given none.
const HISTORY: &str = "drift-history.toml";

pub fn run(args: &Args) -> Result<Outcome, CliError> {
    match &args.command {
        Command::Record(args) => record(args),
        Command::Compare(args) => compare(args),
        Command::Accept(args) => accept(args),
    }
}

fn record(args: &Record) -> Result<Outcome, CliError> {
    let formats = if args.format.is_empty() { FORMATS.to_vec() } else { distinct(&args.format) };
    check_patterns(args, &formats)?;
    let formats: BTreeSet<_> = formats.into_iter().collect();
    let Record { suite, seed, .. } = *args;
    let asked = Asked { suite, formats, only: args.cases.clone(), seed };
    let snapshot = args.how.snapshot(&args.kernel, asked)?;
    let Some(path) = &args.out else {
        output::print(|sink| write_plain(sink, &snapshot.to_string()))?;
        return Ok(Outcome::Passed);
    };
    snapshot.write(path)?;
    output::print(|sink| {
        text::write_snapshot(&snapshot, sink)?;
        let (path, kernel) = (shown(path), quoted(&args.kernel));
        write_plain(sink, &next(&format!("later: flashproof drift compare {path} {kernel}")))
    })?;
    Ok(Outcome::Passed)
}

/// Before the kernel is started.
fn check_patterns(args: &Record, formats: &[Format]) -> Result<(), CliError> {
    if args.cases.is_empty() {
        return Ok(());
    }
    let cases = suite::cases(args.suite, formats, args.seed);
    match args.cases.iter().find(|it| !cases.iter().any(|case| suite::is_match(case, it))) {
        None => Ok(()),
        Some(pattern) => Err(CliError::NoCase {
            suite: args.suite.to_string(),
            pattern: pattern.clone(),
            near: near(pattern, cases.iter().map(|case| case.name.as_str())),
        }),
    }
}

fn compare(args: &Compare) -> Result<Outcome, CliError> {
    let before = Snapshot::read(&args.before)?;
    let history_path = history_path(args.history.as_deref(), &args.before);
    let history = History::read(&history_path)?;
    let is_kernel =
        ["builtin:", "exec:", "ptx:", "cuda:"].iter().any(|scheme| args.after.starts_with(scheme));
    let after = if is_kernel {
        args.how.snapshot(&args.after, before.asked.clone())?
    } else {
        args.how.check_unused()?;
        Snapshot::read(Path::new(&args.after))?
    };
    let comparison = drift::compare(&before, &after)?;
    let trends = drift::trends(&history, &comparison);
    output::print(|sink| {
        text::write_comparison(&comparison, &trends, sink)?;
        write_plain(sink, &next(&advice(args, &comparison, is_kernel)))
    })?;
    let failed = comparison.verdicts_worse() || (args.bits && comparison.bits_changed());
    Ok(if failed { Outcome::Failed } else { Outcome::Passed })
}

/// What to do next.
fn advice(args: &Compare, comparison: &Comparison<'_>, is_kernel: bool) -> String {
    let failing = comparison.verdicts.iter().find_map(|it| it.newly_failing.first());
    let before = shown(&args.before);
    if let Some(case) = failing.filter(|_| is_kernel) {
        format!("flashproof check {} --case {}", quoted(&args.after), quoted(case))
    } else if let Some(case) = failing {
        format!("flashproof check KERNEL --case {}", quoted(case))
    } else if comparison.verdicts_worse() {
        "see which cases are unsupported now: flashproof check KERNEL".to_owned()
    } else if comparison.before.groups == comparison.after.groups {
        "nothing to do".to_owned()
    } else if is_kernel {
        let name = comparison.after.kernel.as_str();
        let named =
            if args.how.name.is_some() { format!(" --as {}", quoted(name)) } else { String::new() };
        let kernel = quoted(&args.after);
        format!(
            "if that is meant, flashproof drift record {kernel}{named} --out FILE, and accept FILE"
        )
    } else {
        let after = quoted(&args.after);
        format!("if that is meant: flashproof drift accept {before} {after} --reason WHY")
    }
}

fn accept(args: &Accept) -> Result<Outcome, CliError> {
    let before = Snapshot::read(&args.before)?;
    let after = Snapshot::read(&args.after)?;
    let comparison = drift::compare(&before, &after)?;
    let entry = drift::accept(&comparison, &args.reason, SystemTime::now())?;
    let path = history_path(args.history.as_deref(), &args.before);
    History::append(&path, &entry)?;
    let trends = drift::trends(&History::read(&path)?, &comparison);
    output::print(|sink| {
        write_plain(sink, &format!("{}: accepted in {}\n", after.kernel, shown(&path)))?;
        text::write_trends(&trends, sink)?;
        let after = shown(&args.after);
        write_plain(sink, &next(&format!("compare with {after} from now on")))
    })?;
    Ok(Outcome::Passed)
}

impl How {
    fn snapshot(&self, kernel: &str, asked: Asked) -> Result<Snapshot, CliError> {
        let notes = self.notes.iter().map(|note| parse_note(note)).collect::<Result<_, _>>()?;
        let request = Request { asked, runs: self.runs, name: self.name.clone(), notes };
        let mut subject = adapter::open(kernel, &self.limits.options())?;
        let bar = output::progress(request.cases().len() as u64, "cases");
        let snapshot = drift::record(subject.as_mut(), &request, |_| {
            // Another run of the same cases.
            if Some(bar.position()) == bar.length() {
                bar.reset();
            }
            bar.inc(1);
        });
        bar.finish_and_clear();
        Ok(snapshot?)
    }

    /// Two files are compared as they are.
    fn check_unused(&self) -> Result<(), CliError> {
        let used = [
            ("--as", self.name.is_some()),
            ("--runs", self.runs.is_some()),
            ("--note", !self.notes.is_empty()),
        ];
        match used.into_iter().find(|(_, used)| *used) {
            None => Ok(()),
            Some((option, _)) => Err(CliError::NotAKernel { option, schemes: SCHEMES }),
        }
    }
}

fn parse_note(note: &str) -> Result<(String, String), DriftError> {
    note.split_once('=')
        .filter(|(name, _)| !name.is_empty())
        .map(|(name, text)| (name.to_owned(), text.to_owned()))
        .ok_or_else(|| DriftError::NoteForm { text: note.to_owned() })
}

fn history_path(given: Option<&Path>, before: &Path) -> PathBuf {
    given.map_or_else(|| before.with_file_name(HISTORY), Path::to_owned)
}

fn next(advice: &str) -> String {
    let strong = anstyle::Style::new().bold();
    format!("{strong}{:11}{strong:#}  {advice}\n", "next")
}

fn shown(path: &Path) -> String {
    quoted(&path.display().to_string())
}

fn write_plain(sink: &mut impl std::io::Write, text: &str) -> std::io::Result<()> {
    sink.write_all(text.as_bytes())
}
