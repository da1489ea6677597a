//! The report as text, for people.
//!
//! Text is styled throughout; whoever owns the stream strips the styles where it is no terminal.

use std::io::{self, Write};

use anstyle::{AnsiColor, Style};
use flashproof_spec::clause;

use super::model::{
    CaseReport, Extreme, ExtremeElement, Outcome, Report, Run, StrictExtreme, Summary, Suspect,
    TrivialAnswer, Unsupported,
};
use super::number::{show, show_rough};
use crate::diagnosis::Finding;
use crate::fit::{Fit, Found};
use crate::statistics::Untested;
use crate::suite::Direction;
use crate::verdict::{Quantity, Tally, Verdict, Violation, Want};

/// Failing cases that are shown in full.
const SHOWN: usize = 5;
/// Faults that are shown of those that would explain a case, or a run.
const SUSPECTS: usize = 3;

pub(crate) const GOOD: Style = AnsiColor::Green.on_default().bold();
pub(crate) const BAD: Style = AnsiColor::Red.on_default().bold();
const DOUBTFUL: Style = AnsiColor::Yellow.on_default().bold();
pub(crate) const CLAUSE: Style = AnsiColor::Cyan.on_default();
pub(crate) const STRONG: Style = Style::new().bold();

/// Writes failing cases, then the summary.
///
/// # Errors
/// Those of the sink.
pub fn write(report: &Report, sink: &mut impl Write) -> io::Result<()> {
    let failing: Vec<_> = report.cases.iter().filter(|it| it.verdict.is_failure()).collect();
    for case in failing.iter().take(SHOWN) {
        write_failure(case, sink)?;
        writeln!(sink)?;
    }
    if failing.len() > SHOWN {
        let more = failing.len() - SHOWN;
        writeln!(sink, "and {more} more that did not pass; --json lists every one\n")?;
    }
    write_summary(report, sink)?;
    report.fits.iter().try_for_each(|fit| write_fit(fit, sink))
}

/// Writes all there is to know of one failing case.
///
/// # Errors
/// Those of the sink.
pub fn write_failure(case: &CaseReport, sink: &mut impl Write) -> io::Result<()> {
    let style = style_of(case.verdict);
    let verdict = case.verdict.name();
    writeln!(sink, "{style}{verdict}{style:#}  {STRONG}{}{STRONG:#}", case.name)?;
    if let Some(no_answer) = &case.no_answer {
        writeln!(sink, "  {}", no_answer.reason)?;
        if let Some(clause) = no_answer.clause {
            write_clause(clause, "  ", sink)?;
        }
    }
    if let Some(policy) = &case.policy {
        writeln!(sink, "  under the numerics policy {policy}")?;
    }
    for violation in &case.violations {
        let measured = case.of(violation.quantity);
        write_violation(violation, measured.map(|it| it.elements), sink)?;
    }
    if case.verdict == Verdict::NoBound {
        let measured = Quantity::ALL.into_iter().filter_map(|quantity| case.of(quantity));
        let none = measured.map(|it| it.unbounded).sum();
        writeln!(sink, "  the declared profile admits any error in {}", count("element", none))?;
    }
    for finding in case.diagnosis.iter().take(SUSPECTS) {
        write_finding(finding, sink)?;
    }
    if case.source.is_empty() {
        writeln!(sink, "  why        {}", case.why)?;
    } else {
        writeln!(sink, "  reported   {}: {}", case.source.join(", "), case.why)?;
    }
    writeln!(sink, "  reproduce  {}", case.reproduce)
}

pub(crate) fn write_clause(id: &str, indent: &str, sink: &mut impl Write) -> io::Result<()> {
    let title = clause::find(id).map_or("", |clause| clause.title);
    writeln!(sink, "{indent}{CLAUSE}{id}{CLAUSE:#}  {title}")
}

/// What an answer violates, each with its worst element.
pub(crate) fn write_violations(tally: &Tally, sink: &mut impl Write) -> io::Result<()> {
    tally.violations.iter().try_for_each(|violation| {
        write_violation(violation, Some(tally.of(violation.quantity).elements), sink)
    })
}

/// A fault that would explain an answer.
pub(crate) fn write_finding(finding: &Finding, sink: &mut impl Write) -> io::Result<()> {
    let Finding { fault, clause, explanation } = finding;
    writeln!(sink, "  {STRONG}looks like{STRONG:#} {fault}: {explanation}")?;
    write_clause(clause, "             ", sink)
}

/// A violation; `of` is how many elements of the output were compared.
fn write_violation(
    violation: &Violation,
    of: Option<usize>,
    sink: &mut impl Write,
) -> io::Result<()> {
    let Violation { clause, quantity, elements, worst } = violation;
    let of = of.unwrap_or(*elements);
    write_clause(clause, "  ", sink)?;
    writeln!(sink, "    {elements} of {of} {quantity} elements, the worst at {}", worst.location)?;
    let (got, want) = (show(worst.got), worst.want);
    if let (Some(error), Some(bound)) = (worst.error, worst.bound) {
        let (error, bound) = (show_rough(error), show_rough(bound));
        let ratio = show_rough(worst.ratio);
        return writeln!(
            sink,
            "    got {got}, want {want}: error {error}, bound {bound}, ratio {ratio}"
        );
    }
    let how = match want {
        Want::Number(_) => "",
        Want::Unchanged(_) => ", bit for bit",
        _ => ", exactly",
    };
    writeln!(sink, "    got {got}, want {want}{how}")
}

/// Writes the outcome in a few lines.
///
/// # Errors
/// Those of the sink.
pub fn write_summary(report: &Report, sink: &mut impl Write) -> io::Result<()> {
    let summary = &report.summary;
    write!(sink, "{STRONG}{}{STRONG:#}", report.subject.name)?;
    write_run(&report.run, sink)?;
    for (n, verdict) in Verdict::ALL.into_iter().filter(|it| summary.count(*it) > 0).enumerate() {
        let (style, count) = (style_of(verdict), summary.count(verdict));
        let lead = if n == 0 { "  " } else { ", " };
        write!(sink, "{lead}{style}{count} {}{style:#}", verdict.name())?;
    }
    writeln!(sink)?;
    for quantity in Quantity::ALL {
        write_extreme(quantity, summary.of(quantity), sink)?;
    }
    let failed = summary.count(Verdict::Fail);
    for suspect in summary.suspects.iter().take(SUSPECTS) {
        let Suspect { fault, clause, cases } = suspect;
        writeln!(
            sink,
            "  looks like {STRONG}{fault}{STRONG:#} in {cases} of {failed} failing cases"
        )?;
        write_clause(clause, "          ", sink)?;
    }
    write_trivial(summary, sink)?;
    write_statistics(summary, sink)?;
    if summary.lse_not_offered > 0 {
        let cases = count("case", summary.lse_not_offered);
        writeln!(sink, "  LSE     not offered in {cases}: the sharpest check was not made")?;
    }
    for (format, reason) in &report.subject.formats_refused {
        writeln!(sink, "  {format} was not run: {reason}")?;
    }
    write_unsupported(summary, sink)?;
    if summary.outcome() == Outcome::NothingChecked {
        writeln!(sink, "  {BAD}nothing was checked{BAD:#}")?;
    }
    Ok(())
}

/// How many of the cases that passed some trivial answer would have passed too.
fn write_trivial(summary: &Summary, sink: &mut impl Write) -> io::Result<()> {
    if summary.not_discriminating == 0 {
        return Ok(());
    }
    let cases = count("case", summary.not_discriminating);
    write!(sink, "  {cases} would let a trivial answer pass")?;
    if let Some(most) = summary.trivial_answers.iter().max_by_key(|it| it.passing) {
        write!(sink, ", most often {} ({} of {})", most.answer, most.passing, most.cases)?;
    }
    writeln!(sink, "; --json says which and why")?;
    let told_by_none = |it: &&TrivialAnswer| it.passing == it.cases;
    let answers = summary.trivial_answers.iter().filter(told_by_none);
    let answers: Vec<_> = answers.map(|it| it.answer.to_string()).collect();
    if answers.is_empty() {
        return Ok(());
    }
    let answers = answers.join(", ");
    writeln!(
        sink,
        "  {DOUBTFUL}no case that passed tells {answers} from a right answer{DOUBTFUL:#}"
    )
}

/// What the tests by probability came to, and where they were not made.
fn write_statistics(summary: &Summary, sink: &mut impl Write) -> io::Result<()> {
    let Some(statistics) = &summary.statistics else { return Ok(()) };
    let cases = count("case", statistics.cases);
    writeln!(sink, "  statistical tests in {cases}, each wrong with a probability below 1e-9:")?;
    for (what, tested, rejected, ratio) in [
        ("element", statistics.elements, statistics.rejected, statistics.worst_ratio),
        ("mean", statistics.means, statistics.means_rejected, statistics.worst_mean_ratio),
    ] {
        let (tested, ratio) = (count(what, tested), show_rough(ratio));
        writeln!(sink, "    {tested}, {rejected} rejected, worst ratio {ratio}")?;
    }
    for Untested { reason, cases } in &statistics.not_applicable {
        writeln!(sink, "    {cases:5} not applicable: {reason}")?;
    }
    Ok(())
}

/// What else the kernel may have done, in one line or two.
fn write_fit(fit: &Fit, sink: &mut impl Write) -> io::Result<()> {
    let Fit { format, failing, found } = fit;
    let cases = count("failing case", *failing);
    match found {
        Found::PassesIf { departures, unbounded } => {
            let all: Vec<_> = departures.iter().map(ToString::to_string).collect();
            writeln!(
                sink,
                "  fit     {format}, {cases}: {STRONG}passes if {}{STRONG:#}",
                all.join(", and ")
            )?;
            match unbounded {
                0 => Ok(()),
                left => writeln!(sink, "          {left} of them without a bound then"),
            }
        }
        Found::Nothing { case } => {
            writeln!(
                sink,
                "  fit     {format}, {cases}: no narrower format, coarser exponential or other order of \
                 sums, alone or two together, explains them: {STRONG}a fault, not a precision{STRONG:#}"
            )?;
            case.as_ref().map_or(Ok(()), |case| {
                writeln!(sink, "          whatever is assumed, {case} fails")
            })
        }
    }
}

/// How many cases the kernel does not offer, and why.
fn write_unsupported(summary: &Summary, sink: &mut impl Write) -> io::Result<()> {
    let cases = summary.count(Verdict::Unsupported);
    if cases == 0 {
        return Ok(());
    }
    writeln!(sink, "  {} unsupported, and not counted as passed:", count("case", cases))?;
    for Unsupported { reason, cases } in &summary.unsupported {
        writeln!(sink, "    {cases:5} {reason}")?;
    }
    Ok(())
}

fn write_run(run: &Run, sink: &mut impl Write) -> io::Result<()> {
    match run {
        Run::Check { suite, direction, seed, only } => {
            write!(sink, ", suite {suite}")?;
            if *direction != Direction::Both {
                write!(sink, ", {direction} alone")?;
            }
            if !only.is_empty() {
                write!(sink, ", cases {}", only.join(" "))?;
            }
            writeln!(sink, ", seed {seed}")
        }
        Run::Judge { inputs, rows, keys, bias_rows, sinks } => {
            write!(sink, " on {inputs}, {} of {} rows", rows.judged, rows.of)?;
            for (what, judged) in
                [("keys", keys), ("rows of the bias", bias_rows), ("sinks", sinks)]
            {
                if let Some(judged) = judged {
                    write!(sink, ", {} of {} {what}", judged.judged, judged.of)?;
                }
            }
            let others = [keys, bias_rows, sinks].into_iter().flatten();
            match [rows].into_iter().chain(others).find_map(|judged| judged.sample_seed) {
                None => writeln!(sink),
                Some(seed) => writeln!(sink, ", sampled with seed {seed}"),
            }
        }
    }
}

fn write_extreme(quantity: Quantity, extreme: &Extreme, sink: &mut impl Write) -> io::Result<()> {
    if extreme.elements + extreme.not_compared == 0 {
        return Ok(());
    }
    write!(sink, "  {quantity:7} {}", count("element", extreme.elements))?;
    for (count, what) in [
        (extreme.wrong, "wrong"),
        (extreme.unbounded, "without a bound"),
        (extreme.not_compared, "unspecified and not compared"),
    ] {
        if count > 0 {
            write!(sink, ", {count} {what}")?;
        }
    }
    write_worst(extreme.worst.as_ref(), sink)?;
    extreme.strict.as_ref().map_or(Ok(()), |strict| write_strict(strict, sink))
}

fn write_worst(worst: Option<&ExtremeElement>, sink: &mut impl Write) -> io::Result<()> {
    let Some(worst) = worst else { return writeln!(sink) };
    let (ratio, headroom) = (show_rough(worst.element.ratio), show_rough(worst.headroom));
    writeln!(sink, ", worst ratio {ratio} (headroom {headroom})")?;
    writeln!(sink, "          in {}, {}", worst.case, worst.element.location)
}

/// What the strict gate made of the elements that are within their hard bound.
fn write_strict(strict: &StrictExtreme, sink: &mut impl Write) -> io::Result<()> {
    let StrictExtreme { elements, wrong, not_applied, worst } = strict;
    if *elements == 0 {
        let none = count("element", *not_applied);
        return writeln!(sink, "          strict gate: not applied to {none}");
    }
    write!(sink, "          strict gate: {}", count("element", *elements))?;
    for (count, what) in [(*wrong, "wrong"), (*not_applied, "more not put to it")] {
        if count > 0 {
            write!(sink, ", {count} {what}")?;
        }
    }
    write_worst(worst.as_ref(), sink)
}

/// A number of things, in the plural where it is not one.
fn count(thing: &str, number: usize) -> String {
    if number == 1 { format!("1 {thing}") } else { format!("{number} {thing}s") }
}

const fn style_of(verdict: Verdict) -> Style {
    match verdict {
        Verdict::Pass => GOOD,
        Verdict::NoBound | Verdict::Unsupported => DOUBTFUL,
        _ => BAD,
    }
}
