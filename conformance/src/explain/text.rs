//! An explanation as text, for people.
//!
//! Text is styled throughout; whoever owns the stream strips the styles where it is no terminal.

mod table;
mod tensor;

use std::io::{self, Write};
use std::path::Path;

use flashproof_spec::problem::Problem;

use super::alike::{Alike, Likeness};
use super::shrink::{Part, Stopped};
use super::write::name_of;
use super::{Along, Example, Explanation, Trace};
use crate::adapter::{Choices, EmptyRow, LseBase, LseSign, LseSink};
use crate::diagnosis::Finding;
use crate::report::text::{
    CLAUSE, GOOD, STRONG, write_clause, write_failure, write_finding, write_violations,
};
use crate::run::quoted;
use crate::verdict::{Quantity, Verdict};

/// Writes the case, the smallest input that still fails, its state block by block, and how to see it
/// again; `file` is where the input was written.
///
/// # Errors
/// Those of the sink.
pub fn write(
    explanation: &Explanation,
    file: Option<&Path>,
    sink: &mut impl Write,
) -> io::Result<()> {
    let report = &explanation.report;
    match report.verdict {
        Verdict::Pass => {
            writeln!(sink, "{GOOD}pass{GOOD:#}  {STRONG}{}{STRONG:#}", report.name)?;
            writeln!(sink, "  every element is within its bound: there is nothing to explain")?;
        }
        _ => write_failure(report, sink)?,
    }
    if !explanation.remarks.is_empty() {
        writeln!(sink)?;
    }
    for remark in &explanation.remarks {
        writeln!(sink, "  {remark}")?;
    }
    if let Some(example) = &explanation.example {
        write_example(example, sink)?;
        if let Some(trace) = &example.trace {
            write_trace(trace, example, sink)?;
        }
        write_causes(explanation, example, sink)?;
        write_alike(example, sink)?;
    }
    writeln!(sink)?;
    write_commands(explanation, file, sink)
}

fn write_example(example: &Example, sink: &mut impl Write) -> io::Result<()> {
    let shrunk = &example.shrunk;
    let problem = &shrunk.instance.problem;
    if shrunk.kept == 0 {
        writeln!(sink, "\n{STRONG}failing input{STRONG:#}, as the case has it")?;
    } else {
        writeln!(
            sink,
            "\n{STRONG}smallest input that still fails{STRONG:#}, after {} questions, {} of which \
             made it smaller",
            shrunk.questions, shrunk.kept
        )?;
        writeln!(sink, "  from     {}", extents(&example.from))?;
    }
    match shrunk.stopped {
        None => {}
        Some(_) if shrunk.questions == 0 => {}
        Some(Stopped::Questions) => {
            writeln!(sink, "  stopped by the limit on questions: a smaller one may exist")?;
        }
        Some(Stopped::Time) => {
            writeln!(sink, "  stopped by the limit on time: a smaller one may exist")?;
        }
    }
    let lead = if shrunk.kept == 0 { "extents" } else { "to" };
    writeln!(sink, "  {lead:8} {}", extents(problem))?;
    for (name, text) in modifications(problem)? {
        writeln!(sink, "  {name:8} {text}")?;
    }
    let given = shrunk.examined.given.as_ref();
    for part in Part::ALL {
        let poisoned = given.map(|given| &given.inputs);
        let tensor = match (part, poisoned) {
            (Part::Query, Some(inputs)) => Some(&inputs.query),
            (Part::Key, Some(inputs)) => Some(&inputs.key),
            (Part::Value, Some(inputs)) => Some(&inputs.value),
            _ => part.of(&shrunk.instance),
        };
        if let Some(tensor) = tensor {
            tensor::write(part.name(), tensor, sink)?;
        }
    }
    for quantity in Quantity::ALL {
        if let Some(tensor) = given.and_then(|given| given.tensor(quantity)) {
            tensor::write(name_of(quantity), tensor, sink)?;
        }
    }
    write_violations(&shrunk.examined.judged.tally, sink)
}

/// The extents of a problem in words.
fn extents(problem: &Problem) -> String {
    let Problem {
        batch,
        query_heads,
        key_heads,
        query_len,
        key_len,
        head_dim,
        value_dim,
        format,
        ..
    } = problem;
    let heads = if query_heads == key_heads {
        format!("heads {query_heads}")
    } else {
        format!("query heads {query_heads}, key heads {key_heads}")
    };
    format!(
        "{format}, batch {batch}, {heads}, queries {query_len}, keys {key_len}, head dim {head_dim}, \
         value dim {value_dim}"
    )
}

/// What the problem has beside its extents, each as JSON.
fn modifications(problem: &Problem) -> io::Result<Vec<(String, String)>> {
    let json = serde_json::to_value(problem)?;
    let extents = [
        "batch",
        "query_heads",
        "key_heads",
        "query_len",
        "key_len",
        "head_dim",
        "value_dim",
        "format",
    ];
    let rest = json.as_object().into_iter().flatten().filter(|(name, value)| {
        let is_empty = value.as_array().is_some_and(Vec::is_empty);
        !extents.contains(&&name[..]) && !is_empty && *value != "inverse-sqrt-head-dim"
    });
    Ok(rest.map(|(name, value)| (name.clone(), value.to_string())).collect())
}

fn write_trace(trace: &Trace, example: &Example, sink: &mut impl Write) -> io::Result<()> {
    let Trace { quantity, location, along, probe, levels, rows: _ } = trace;
    writeln!(
        sink,
        "\n{STRONG}{quantity} at {location}{STRONG:#}, {} by {}",
        along.name(),
        along.name()
    )?;
    let first = match along {
        Along::Keys => "exact state after each block of keys, and",
        Along::Values | Along::Rows => "exact sum up to each block, and",
    };
    writeln!(sink, "  {first} {}", probe.explanation())?;
    for (depth, level) in levels.iter().enumerate() {
        if depth > 0 {
            writeln!(sink, "  within the block where they part")?;
        }
        let format = match quantity {
            Quantity::Lse => example.profile.lse_format,
            _ => example.shrunk.instance.problem.format,
        };
        table::write(level, trace, format, sink)?;
    }
    match trace.parting() {
        Some((range, clause)) => {
            let many = if range.len() == 1 { "" } else { "s" };
            let place = format!("{}{many} {}", along.name(), trace.positions(&range));
            writeln!(sink, "  {STRONG}they part at {place}{STRONG:#}")?;
            clause.map_or(Ok(()), |clause| write_clause(clause, "    ", sink))
        }
        None => writeln!(
            sink,
            "  no prefix is wrong by itself: the fault needs what the whole input has"
        ),
    }
}

/// The faults that explain the smallest input: of them, those that explain the case, since a small
/// input leaves room for others.
fn write_causes(
    explanation: &Explanation,
    example: &Example,
    sink: &mut impl Write,
) -> io::Result<()> {
    let here = &example.shrunk.examined.judged.findings;
    let of_case =
        |it: &&Finding| explanation.report.diagnosis.iter().any(|of| of.fault == it.fault);
    let mut findings: Vec<&Finding> = here.iter().filter(of_case).collect();
    if findings.is_empty() {
        findings = here.iter().collect();
    }
    if !findings.is_empty() {
        writeln!(sink)?;
    }
    findings.into_iter().take(FINDINGS).try_for_each(|finding| write_finding(finding, sink))
}

/// The mutants that give the same answer: where some do so to the case's own input too, those alone.
fn write_alike(example: &Example, sink: &mut impl Write) -> io::Result<()> {
    let on_the_case = |it: &&Alike| it.on_the_case.is_some();
    let any = example.alike.iter().any(|it| on_the_case(&it));
    let shown: Vec<&Alike> = example.alike.iter().filter(|it| on_the_case(it) || !any).collect();
    for alike in shown.iter().take(MUTANTS) {
        let how = match (alike.here, alike.on_the_case) {
            (Likeness::Bits, Some(Likeness::Bits)) => {
                "the same bits, on the case's own input as well"
            }
            (_, Some(_)) => "the same within the bounds, on the case's own input as well",
            (Likeness::Bits, None) => "the same bits, but not on the case's own input",
            (Likeness::Bounds, None) => {
                "the same within the bounds, but not on the case's own input"
            }
        };
        writeln!(
            sink,
            "  {STRONG}answers as{STRONG:#} mutant {}: {}",
            alike.mutant, alike.summary
        )?;
        writeln!(sink, "             {how}")?;
        alike.clauses.iter().try_for_each(|clause| write_clause(clause, "             ", sink))?;
    }
    match shown.len().saturating_sub(MUTANTS) {
        0 => Ok(()),
        more => writeln!(sink, "             and {more} more; --json lists them"),
    }
}

/// Mutants that are shown of those that give the same answer.
const MUTANTS: usize = 3;

/// Faults that are shown of those that would explain the input.
const FINDINGS: usize = 3;

fn write_commands(
    explanation: &Explanation,
    file: Option<&Path>,
    sink: &mut impl Write,
) -> io::Result<()> {
    writeln!(sink, "  reproduce  {CLAUSE}{}{CLAUSE:#}", explanation.reproduce)?;
    let (Some(file), Some(example)) = (file, &explanation.example) else { return Ok(()) };
    for command in commands(explanation, example, file) {
        writeln!(sink, "             {CLAUSE}{command}{CLAUSE:#}")?;
    }
    Ok(())
}

/// The commands that judge the written file.
#[must_use]
pub fn commands(explanation: &Explanation, example: &Example, file: &Path) -> Vec<String> {
    let path = quoted(&file.display().to_string());
    let mut commands = Vec::new();
    let given = example.shrunk.examined.given.as_ref();
    if given.is_some() {
        let flags = contract(explanation.choices);
        commands.push(format!("flashproof judge {path} {path}{flags}"));
    }
    if given.is_none_or(|given| given.read == example.shrunk.instance.problem) {
        let kernel = quoted(&explanation.kernel);
        commands.push(format!("flashproof judge {path} --kernel {kernel}"));
    }
    commands
}

/// The options that tell `judge` a kernel's choices, where they are not the usual ones.
fn contract(choices: Choices) -> String {
    let Choices { lse_base, lse_sign, lse_sink, empty_row, masked_row, .. } = choices;
    let of_row = |row: EmptyRow| match row {
        EmptyRow::Zero => None,
        EmptyRow::Nan => Some("nan"),
        EmptyRow::Mean => Some("mean"),
    };
    [
        ("lse-base", (lse_base == LseBase::Two).then_some("two")),
        ("lse-sign", (lse_sign == LseSign::Minus).then_some("minus")),
        ("lse-sink", (lse_sink == LseSink::Excluded).then_some("excluded")),
        ("empty-row", of_row(empty_row)),
        ("masked-row", of_row(masked_row)),
    ]
    .into_iter()
    .filter_map(|(option, value)| Some(format!(" --{option} {}", value?)))
    .collect()
}
