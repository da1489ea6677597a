//! The kill matrix as text, for people.

use std::io::{self, Write};

use anstyle::{AnsiColor, Style};

use super::matrix::{Matrix, Row, RuleCell, Sight};
use super::words::{accepted, command, described, extent, fraction, kill, misses};
use crate::report::number::show_rough;

const GOOD: Style = AnsiColor::Green.on_default().bold();
const BAD: Style = AnsiColor::Red.on_default().bold();
const CLAUSE: Style = AnsiColor::Cyan.on_default();
const STRONG: Style = Style::new().bold();

/// Writes each specimen in a line or two, then the rules, then the summary.
///
/// # Errors
/// Those of the sink.
pub fn write(matrix: &Matrix, sink: &mut (impl Write + ?Sized)) -> io::Result<()> {
    for row in matrix.faults() {
        let (style, verdict) = if row.is_killed() { (GOOD, "killed") } else { (BAD, "survives") };
        writeln!(sink, "{style}{verdict:9}{style:#}{STRONG}{}{STRONG:#}{}", row.name, kills(row))?;
        for (clause, ways) in described(row) {
            writeln!(sink, "         {CLAUSE}{clause}{CLAUSE:#}  by {ways}")?;
        }
        if row.is_killed() && row.described_by().is_empty() {
            writeln!(sink, "         by no clause that describes it")?;
        }
        if let Some(strongest) = row.strongest() {
            let ratio = show_rough(strongest.ratio);
            writeln!(sink, "         error/bound {ratio}: {}", strongest.reproduce)?;
        }
        writeln!(sink, "         missed by {}", missed_by(matrix, row))?;
    }
    for row in matrix.controls() {
        let (style, verdict) = if row.is_killed() { (BAD, "flagged") } else { (GOOD, "passes") };
        writeln!(
            sink,
            "{style}{verdict:9}{style:#}{STRONG}{}{STRONG:#} (control){}",
            row.name,
            kills(row)
        )?;
        if let Some(strongest) = row.strongest() {
            writeln!(sink, "         {}", strongest.reproduce)?;
        }
    }
    write_rules(matrix, sink)?;
    write_summary(matrix, sink)
}

/// Cases killed of those judged, by format.
fn kills(row: &Row) -> String {
    let of = |(format, it): (&_, &_)| format!("  {format} {}", kill(Some(it)));
    row.kills.iter().map(of).collect()
}

/// The rules that look at the fault on their own inputs and accept it.
fn missed_by(matrix: &Matrix, row: &Row) -> String {
    let missed = |cell: &RuleCell| cell.own.sight() == Sight::Missed;
    let names: Vec<_> = matrix
        .rules
        .iter()
        .zip(&row.rules)
        .filter(|(_, cell)| missed(cell))
        .map(|(rule, _)| rule.name)
        .collect();
    if names.is_empty() { "no rule that looks".to_owned() } else { names.join(", ") }
}

fn write_rules(matrix: &Matrix, sink: &mut (impl Write + ?Sized)) -> io::Result<()> {
    writeln!(
        sink,
        "\n{STRONG}{:20}{:>13}{:>14}{:>24}   rejects the right kernel{STRONG:#}",
        "rule", "misses, own", "misses, ours", "accepts wrong answers"
    )?;
    for (index, rule) in matrix.rules.iter().enumerate() {
        let own = misses(matrix.sights(index, |cell| cell.own));
        let ours = misses(matrix.sights(index, |cell| cell.ours));
        let right = (fraction(rule.right_on_own), fraction(rule.right_on_ours));
        let wrong = accepted(matrix.wrong_answers(index));
        writeln!(
            sink,
            "{:20}{own:>13}{ours:>14}{wrong:>24}   {} own, {} ours",
            rule.name, right.0, right.1
        )?;
    }
    writeln!(sink)
}

fn write_summary(matrix: &Matrix, sink: &mut (impl Write + ?Sized)) -> io::Result<()> {
    let (faults, controls) = (matrix.faults().count(), matrix.controls().count());
    let killed = matrix.faults().filter(|row| row.is_killed()).count();
    let named = matrix.faults().filter(|row| !row.described_by().is_empty()).count();
    let flagged = matrix.controls().filter(|row| row.is_killed()).count();
    let of_faults = if killed == faults { GOOD } else { BAD };
    let of_controls = if flagged == 0 { GOOD } else { BAD };
    writeln!(
        sink,
        "{of_faults}{killed} of {faults} faults killed{of_faults:#}, {named} by a clause that describes \
         the fault; {of_controls}{flagged} of {controls} controls flagged{of_controls:#}"
    )?;
    writeln!(sink, "{}\n{}", extent(matrix), command(matrix))
}
