//! What the tables say in words: common to text, Markdown and HTML.

use std::collections::BTreeSet;

use flashproof_spec::format::Format;

use super::kill::{Kill, Strongest, Way};
use super::matrix::{CasesRun, Count, Matrix, Row, Sight, Sights};
use super::plan::Extent;

/// The command that makes the same matrix.
pub(super) fn command(matrix: &Matrix) -> String {
    let mut command = format!("flashproof mutants --seed {}", matrix.seed);
    if matrix.extent == Extent::ALL {
        command.push_str(" --all");
    }
    if matrix.formats.len() < crate::case::FORMATS.len() {
        let formats: Vec<_> = matrix.formats.keys().map(Format::to_string).collect();
        command.push_str(" --format ");
        command.push_str(&formats.join(","));
    }
    command
}

/// What was run, and what was left out.
pub(super) fn extent(matrix: &Matrix) -> String {
    let runs: Vec<_> = matrix
        .formats
        .iter()
        .map(|(format, CasesRun { run, of })| format!("{run} of {of} in {format}"))
        .collect();
    let Extent { one_in, judged, controls_judged, judged_own, .. } = matrix.extent;
    let cases = format!("Cases of the {} suite run: {}", matrix.suite, runs.join(", "));
    if matrix.extent == Extent::ALL {
        return format!(
            "{cases}, each for the specimens whose pass it is of, and judged wherever an answer's bits differ from the right kernel's."
        );
    }
    format!(
        "{cases}: those of reported faults, relations, formulas and merges, and one in {one_in} of the others, all but the reported only where small. \
         Where an answer's bits differ from the right kernel's, at most {judged} cases are judged of a \
         fault in a format, and {controls_judged} of a control; and on the inputs of a rule that rejects \
         none of a fault's answers, at most {judged_own} in a format."
    )
}

/// What became of a specimen in a format: cases killed of those judged.
pub(super) fn kill(kill: Option<&Kill>) -> String {
    match kill {
        None | Some(Kill { asked: 0, .. }) => String::new(),
        Some(Kill { differing: 0, .. }) => "same bits".to_owned(),
        Some(Kill { killed, judged, .. }) => format!("{killed}/{judged}"),
    }
}

/// The describing clauses that killed a fault, and the ways that they did.
pub(super) fn described(row: &Row) -> Vec<(&'static str, String)> {
    let ways =
        |ways: &BTreeSet<Way>| ways.iter().map(|way| way.name()).collect::<Vec<_>>().join(", ");
    row.described_by().iter().map(|(clause, by)| (*clause, ways(by))).collect()
}

/// How far the strongest failing element is past its bound, as a power of ten.
pub(super) fn ratio(strongest: Option<&Strongest>) -> String {
    match strongest {
        None => String::new(),
        Some(Strongest { quantity: None, .. }) => "no answer".to_owned(),
        Some(it) if it.ratio.is_infinite() => "exact".to_owned(),
        Some(it) => format!("10^{}", it.ratio.log10().floor()),
    }
}

/// Answers rejected of those looked at; nothing where there are none.
pub(super) fn fraction(Count { looked, rejected, .. }: Count) -> String {
    if looked == 0 { String::new() } else { format!("{rejected}/{looked}") }
}

/// Wrong answers accepted of those looked at.
pub(super) fn accepted(Count { looked, missed, .. }: Count) -> String {
    format!("{missed} of {looked}")
}

/// A sign, to be told apart without colour, and the fraction where something that is wrong is looked at.
pub(super) fn sight(count: Count) -> (&'static str, String) {
    match count.sight() {
        Sight::Caught => ("✓", fraction(count)),
        Sight::Missed => ("✗", fraction(count)),
        Sight::Unseen => ("·", String::new()),
    }
}

/// "23 of 48", of those that the rule looks at.
pub(super) fn misses(Sights { caught, missed, .. }: Sights) -> String {
    format!("{missed} of {}", caught + missed)
}
