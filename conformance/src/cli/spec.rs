//! `flashproof spec`: the clauses.

use std::io::{self, Write};

use flashproof_conformance::report::Outcome;
use flashproof_kernels::mutant::{Kind, mutants};
use flashproof_spec::clause::{Clause, cite_bibtex, cite_rustdoc, cite_text, clauses, find};
use flashproof_spec::proof;

use super::error::{CliError, near};
use super::output;

/// List the clauses of the specification, or show or cite one
#[derive(clap::Args)]
pub struct Args {
    /// A clause's id, such as FAS:fwd.online.rescale
    clause: Option<String>,

    /// Cite the clause
    #[arg(long, value_enum, value_name = "FORM", requires = "clause")]
    cite: Option<Citation>,
}

#[derive(Clone, Copy, clap::ValueEnum)]
enum Citation {
    /// A BibTeX entry
    Bibtex,
    /// One line of text
    Text,
    /// A line of documentation for the function that carries the clause out
    Rustdoc,
}

/// The specification has the version of the program that it comes with.
const VERSION: &str = env!("CARGO_PKG_VERSION");

pub fn run(args: &Args) -> Result<Outcome, CliError> {
    match &args.clause {
        None => output::print(list)?,
        Some(id) => {
            let clause = find(id).ok_or_else(|| CliError::NoClause {
                id: id.clone(),
                near: near(id, clauses().iter().map(|clause| clause.id)),
            })?;
            output::print(|sink| match args.cite {
                None => show(clause, sink),
                Some(Citation::Bibtex) => write!(sink, "{}", cite_bibtex(clause, VERSION)),
                Some(Citation::Text) => writeln!(sink, "{}", cite_text(clause, VERSION)),
                Some(Citation::Rustdoc) => writeln!(sink, "{}", cite_rustdoc(clause, VERSION)),
            })?;
        }
    }
    Ok(Outcome::Passed)
}

fn list(sink: &mut Vec<u8>) -> io::Result<()> {
    for clause in clauses() {
        writeln!(sink, "{:30}  {}", clause.id, clause.title)?;
    }
    Ok(())
}

fn show(clause: &Clause, sink: &mut Vec<u8>) -> io::Result<()> {
    let bold = anstyle::Style::new().bold();
    writeln!(sink, "{bold}{}  {}{bold:#}", clause.id, clause.title)?;
    writeln!(sink, "{}\n\n{}", clause.status, clause.statement)?;
    let one = |text: &'static str| if text.is_empty() { vec![] } else { vec![text] };
    let executable: Vec<_> =
        one(clause.executable).into_iter().map(|path| format!("flashproof_spec::{path}")).collect();
    for (heading, lines) in [
        ("Equation", one(clause.equation)),
        ("Rationale", one(clause.rationale)),
        ("References", clause.references.to_vec()),
        ("Executable form", executable.iter().map(String::as_str).collect()),
        ("Checked by", clause.checked_by.to_vec()),
    ] {
        if !lines.is_empty() {
            writeln!(sink, "\n{bold}{heading}{bold:#}")?;
        }
        for line in lines {
            writeln!(sink, "  {line}")?;
        }
    }
    show_proofs(clause, sink)?;
    show_mutants(clause, sink)
}

/// The kernels that are wrong on purpose in what the clause requires, and how to see one caught.
fn show_mutants(clause: &Clause, sink: &mut Vec<u8>) -> io::Result<()> {
    let bold = anstyle::Style::new().bold();
    let violating: Vec<_> = mutants()
        .iter()
        .filter(|mutant| mutant.kind == Kind::Fault && mutant.clauses.contains(&clause.id))
        .collect();
    let Some(first) = violating.first() else { return Ok(()) };
    writeln!(sink, "\n{bold}Mutants that violate it{bold:#} (builtin:mutant:NAME)")?;
    for mutant in &violating {
        writeln!(sink, "  {}  {}", mutant.name, mutant.summary)?;
    }
    writeln!(sink, "  see one caught: flashproof mutants --mutant {}", first.name)
}

/// The theorems behind a clause, each with what it states and may rest on.
fn show_proofs(clause: &Clause, sink: &mut Vec<u8>) -> io::Result<()> {
    let bold = anstyle::Style::new().bold();
    for (index, claim) in proof::of_clause(clause.id).enumerate() {
        if index == 0 {
            writeln!(sink, "\n{bold}Proved in Coq{bold:#} (spec/proofs/MODULE.v)")?;
        }
        for line in claim.statement().lines() {
            writeln!(sink, "  {line}")?;
        }
        writeln!(sink, "    resting on {}", claim.allowed_axioms().join(", "))?;
    }
    Ok(())
}
