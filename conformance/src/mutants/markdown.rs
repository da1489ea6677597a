//! The kill matrix as Markdown.

use std::io::{self, Write};

use flashproof_spec::format::Format;

use super::matrix::{Count, Matrix, Row, RuleCell};
use super::words::{accepted, command, described, extent, fraction, kill, misses, ratio, sight};

/// Writes the matrix.
///
/// # Errors
/// Those of the sink.
pub fn write(matrix: &Matrix, sink: &mut (impl Write + ?Sized)) -> io::Result<()> {
    write_head(matrix, sink)?;
    write_rules(matrix, sink)?;
    write_kills(matrix, sink)?;
    let title = "Which rules catch which fault, on the rules' own inputs";
    write_sights(matrix, title, of_own, sink)?;
    let title = "The same on the cases of ours that the fault fails";
    write_sights(matrix, title, of_ours, sink)
}

fn write_head(matrix: &Matrix, sink: &mut (impl Write + ?Sized)) -> io::Result<()> {
    let (faults, controls) = (matrix.faults().count(), matrix.controls().count());
    let killed = matrix.faults().filter(|row| row.is_killed()).count();
    let named = matrix.faults().filter(|row| !row.described_by().is_empty()).count();
    let flagged = matrix.controls().filter(|row| row.is_killed()).count();
    writeln!(sink, "# Faults, and who catches them\n")?;
    writeln!(
        sink,
        "{killed} of {faults} faults are killed by the suite, {named} of them by a clause that \
         describes the fault; {flagged} of {controls} controls are flagged.\n"
    )?;
    writeln!(
        sink,
        "A fault is one exact change to a right kernel, whose precision profile it goes on \
         declaring; a control is right in another way. Made by `{}`. {}\n",
        command(matrix),
        extent(matrix)
    )
}

fn write_rules(matrix: &Matrix, sink: &mut (impl Write + ?Sized)) -> io::Result<()> {
    writeln!(sink, "## What the rules of others miss\n")?;
    writeln!(
        sink,
        "Each rule is applied to more than its project tests: every problem of a common list (masks, \
         grouped heads, biases, softcap, sinks, dropout, layouts), with inputs drawn as the project \
         draws them, and the cases of ours. It *catches* a fault when it rejects an answer that differs \
         from the right kernel's where it accepts that one, and *misses* it when it rejects none, \
         though the bounds prove wrong what it looks at. Else there is nothing wrong where it looks: \
         in the formats, inputs, outputs and gradients that the project compares. Then come the \
         answers to cases of ours that are proven wrong where the rule looks, and how many of them it \
         accepts; the last column says how often it rejects the right kernel.\n"
    )?;
    writeln!(
        sink,
        "| rule | requires | own inputs | misses, own inputs | misses, our cases | accepts wrong answers, our cases | rejects the right kernel |"
    )?;
    writeln!(sink, "|---|---|---|--:|--:|--:|--:|")?;
    for (index, rule) in matrix.rules.iter().enumerate() {
        let [own, ours] = [of_own, of_ours].map(|of: fn(&RuleCell) -> Count| {
            let sights = matrix.sights(index, of);
            format!("{} ({} not to be seen)", misses(sights), sights.unseen)
        });
        let wrong = accepted(matrix.wrong_answers(index));
        let inputs = if rule.states_inputs { "" } else { " (assumed)" };
        let (on_own, on_ours) = (fraction(rule.right_on_own), fraction(rule.right_on_ours));
        writeln!(
            sink,
            "| {} | {} | {}{inputs} | {own} | {ours} | {wrong} | {on_own} own, {on_ours} ours |",
            rule.name,
            escaped(rule.requires),
            rule.inputs
        )?;
    }
    writeln!(sink)
}

fn write_kills(matrix: &Matrix, sink: &mut (impl Write + ?Sized)) -> io::Result<()> {
    writeln!(sink, "## What kills each fault\n")?;
    writeln!(
        sink,
        "Cases failed of those judged, in each format; *same bits*: no answer differs. A describing \
         clause is named by the *verdict*, by the *diagnosis* (the fault is consistent with all that is \
         wrong in a case), by the *report* that the failing case reproduces, or by the *cases*: all where an \
         answer differs put it to the test, and most others do not. The last column is the \
         largest error over bound, or *exact* where an element is required exactly.\n"
    )?;
    let formats: Vec<Format> = matrix.formats.keys().copied().collect();
    let columns = cells(formats.iter());
    writeln!(sink, "| fault | what it does | pass |{columns} by the clause | error/bound |")?;
    writeln!(sink, "|---|---|---|{}---|---|", "---|".repeat(formats.len()))?;
    for row in matrix.faults() {
        write_kill(row, &formats, sink)?;
    }
    writeln!(sink, "\n| control | what it does | pass |{columns}")?;
    writeln!(sink, "|---|---|---|{}", "---|".repeat(formats.len()))?;
    for row in matrix.controls() {
        write!(sink, "| `{}` | {} | {} |", row.name, escaped(&row.summary), row.pass)?;
        for format in &formats {
            write!(sink, " {} |", kill(row.kills.get(format)))?;
        }
        writeln!(sink)?;
    }
    writeln!(sink)
}

fn write_kill(row: &Row, formats: &[Format], sink: &mut (impl Write + ?Sized)) -> io::Result<()> {
    write!(sink, "| `{}` | {} | {} |", row.name, escaped(&row.summary), row.pass)?;
    for format in formats {
        write!(sink, " {} |", kill(row.kills.get(format)))?;
    }
    let clauses: Vec<_> =
        described(row).iter().map(|(clause, ways)| format!("`{clause}` ({ways})")).collect();
    writeln!(sink, " {} | {} |", clauses.join("<br>"), ratio(row.strongest()))
}

fn write_sights(
    matrix: &Matrix,
    title: &str,
    of: fn(&RuleCell) -> Count,
    sink: &mut (impl Write + ?Sized),
) -> io::Result<()> {
    writeln!(sink, "## {title}\n")?;
    writeln!(
        sink,
        "✓ caught, ✗ missed, · nothing wrong where it looks; answers rejected of those looked at.\n"
    )?;
    let names = cells(matrix.rules.iter().map(|rule| rule.name));
    writeln!(sink, "| fault | bounds |{names}")?;
    writeln!(sink, "|---|---|{}", "---|".repeat(matrix.rules.len()))?;
    for row in matrix.faults() {
        let bounds = if row.is_killed() { "✓" } else { "✗" };
        write!(sink, "| `{}` | {bounds} |", row.name)?;
        for cell in &row.rules {
            let (sign, fraction) = sight(of(cell));
            write!(sink, " {sign} {fraction} |")?;
        }
        writeln!(sink)?;
    }
    write!(sink, "| **missed** | {} |", matrix.faults().filter(|row| !row.is_killed()).count())?;
    for rule in 0..matrix.rules.len() {
        write!(sink, " {} |", misses(matrix.sights(rule, of)))?;
    }
    writeln!(sink, "\n")
}

const fn of_own(cell: &RuleCell) -> Count {
    cell.own
}

const fn of_ours(cell: &RuleCell) -> Count {
    cell.ours
}

/// The rest of a row of these cells.
fn cells(contents: impl Iterator<Item = impl ToString>) -> String {
    let cells: Vec<_> = contents.map(|content| content.to_string()).collect();
    format!(" {} |", cells.join(" | "))
}

/// Bars would end a cell.
fn escaped(text: &str) -> String {
    text.replace('|', "\\|")
}
