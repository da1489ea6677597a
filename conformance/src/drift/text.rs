//! Snapshots and comparisons as text, for people.
//!
//! Text is styled throughout; whoever owns the stream strips the styles where it is no terminal.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::io::{self, Write};

use anstyle::{AnsiColor, Style};
use flashproof_spec::format::Format;

use super::compare::{
    Apart, BIAS_DEVIATIONS, Bits, Comparison, HeadroomOf, Lean, Place, VerdictsOf,
};
use super::figure::{Figure, Span};
use super::snapshot::{Group, Snapshot};
use super::trend::{Trend, is_large};
use super::zone::Zone;
use crate::report::number::show_rough;
use crate::verdict::{Quantity, Verdict};

/// Lines of a list that are shown.
const SHOWN: usize = 8;
/// Elements of the largest ratio whose place is shown.
const PLACES: usize = 3;

const GOOD: Style = AnsiColor::Green.on_default().bold();
const BAD: Style = AnsiColor::Red.on_default().bold();
const DOUBTFUL: Style = AnsiColor::Yellow.on_default().bold();
const STRONG: Style = Style::new().bold();

/// Writes what a snapshot holds, in a few lines.
///
/// # Errors
/// Those of the sink.
pub fn write_snapshot(snapshot: &Snapshot, sink: &mut impl Write) -> io::Result<()> {
    write_subject(snapshot, sink)?;
    write_heading("verdicts", &verdicts(snapshot.groups.iter()), sink)?;
    let mut largest = BTreeMap::<(Format, Quantity), (f64, &str)>::new();
    for group in &snapshot.groups {
        for (&quantity, answers) in &group.of {
            if let Some(ratio) = answers.largest() {
                let held = largest.entry((group.format, quantity)).or_insert((ratio, &group.name));
                if ratio > held.0 {
                    *held = (ratio, &group.name);
                }
            }
        }
    }
    let mut largest: Vec<_> = largest.into_iter().collect();
    largest.sort_by(|a, b| b.1.0.total_cmp(&a.1.0));
    write_heading("headroom", "1 less the largest ratio of error to bound, worst first", sink)?;
    let lines = largest.iter().map(|((format, quantity), (ratio, group))| {
        let headroom = left_of(*ratio);
        format!("{format:5} {quantity:7} {headroom:>9}   in {group}")
    });
    write_list(lines, sink)
}

/// Writes what changed between two snapshots, the trend of the headroom over accepted changes, and what
/// to do next.
///
/// # Errors
/// Those of the sink.
pub fn write_comparison(
    comparison: &Comparison<'_>,
    trends: &[Trend],
    sink: &mut impl Write,
) -> io::Result<()> {
    write_subject(comparison.after, sink)?;
    write_apart(comparison, sink)?;
    write_bits(comparison, sink)?;
    write_verdicts(comparison, sink)?;
    write_headroom(comparison, sink)?;
    if comparison.bits_changed() {
        write_where(comparison, sink)?;
    }
    write_kind(comparison, sink)?;
    write_environment(comparison, sink)?;
    write_trends(trends, sink)
}

fn write_subject(snapshot: &Snapshot, sink: &mut impl Write) -> io::Result<()> {
    let cases: u64 = snapshot.groups.iter().map(|group| group.cases).sum();
    write!(sink, "{STRONG}{}{STRONG:#}", snapshot.kernel)?;
    write!(sink, ", suite {}", snapshot.asked.suite)?;
    if !snapshot.asked.only.is_empty() {
        write!(sink, ", cases {}", snapshot.asked.only.join(" "))?;
    }
    write!(sink, ", seed {}: {}", snapshot.asked.seed, count("case", cases))?;
    match (snapshot.runs, snapshot.deterministic) {
        (1, true) => writeln!(sink),
        (runs, true) => writeln!(sink, ", {}", count("run", u64::from(runs))),
        (runs, false) => {
            let runs = count("run", u64::from(runs));
            writeln!(sink, ", {runs} of a kernel that does not promise to repeat its bits")
        }
    }
}

fn write_heading(name: &str, text: &str, sink: &mut impl Write) -> io::Result<()> {
    writeln!(sink, "{STRONG}{name:11}{STRONG:#}  {text}")
}

/// Writes the first lines, and how many more there are.
fn write_list<T: Display>(
    lines: impl ExactSizeIterator<Item = T>,
    sink: &mut impl Write,
) -> io::Result<()> {
    let more = lines.len().saturating_sub(SHOWN);
    for line in lines.take(SHOWN) {
        writeln!(sink, "  {line}")?;
    }
    if more > 0 {
        writeln!(sink, "  and {more} more")?;
    }
    Ok(())
}

fn write_apart(comparison: &Comparison<'_>, sink: &mut impl Write) -> io::Result<()> {
    let apart = &comparison.apart;
    if apart.is_empty() {
        return Ok(());
    }
    let groups = count("group", apart.len() as u64);
    let text = format!("{DOUBTFUL}{groups} not compared{DOUBTFUL:#}, and in nothing below");
    write_heading("apart", &text, sink)?;
    let lines = apart.iter().map(|(format, group, why)| {
        let why = match why {
            Apart::Inputs => "its cases or their inputs are others",
            Apart::OnlyBefore => "it is in the first snapshot alone",
            Apart::OnlyAfter => "it is in the second snapshot alone",
        };
        format!("{format:5} {group:22} {why}")
    });
    write_list(lines, sink)
}

fn write_bits(comparison: &Comparison<'_>, sink: &mut impl Write) -> io::Result<()> {
    let standings = || comparison.bits.iter().map(|it| (it.place, it.standing));
    let number = |wanted| standings().filter(|(_, it)| *it == wanted).count();
    let (all, changed, varying) =
        (comparison.bits.len(), number(Bits::Changed), number(Bits::Varying));
    let text = if changed > 0 {
        format!(
            "{DOUBTFUL}changed{DOUBTFUL:#} in {changed} of {all} outputs, counted by group of cases"
        )
    } else if varying > 0 {
        format!(
            "{DOUBTFUL}not comparable{DOUBTFUL:#} in {varying} of {all} outputs, counted by group of cases"
        )
    } else {
        format!("{GOOD}the same{GOOD:#} in all {all} outputs, counted by group of cases")
    };
    write_heading("bits", &text, sink)?;
    if varying > 0 {
        writeln!(sink, "  {varying} differ from run to run, and say nothing of a change")?;
    }
    if changed == 0 {
        return Ok(());
    }
    let tally =
        standings().map(|(place, it)| ((place.format, place.quantity), it == Bits::Changed));
    write_tally(tally, sink)
}

/// Writes, line by line of the first part of a key, how many of each second part are so.
fn write_tally<L: Ord + Copy + Display>(
    items: impl Iterator<Item = ((L, Quantity), bool)>,
    sink: &mut impl Write,
) -> io::Result<()> {
    let mut counts = BTreeMap::<L, BTreeMap<Quantity, [usize; 2]>>::new();
    for ((line, quantity), so) in items {
        let counts = counts.entry(line).or_default().entry(quantity).or_default();
        *counts = [counts[0] + usize::from(so), counts[1] + 1];
    }
    for (line, counts) in counts {
        let counts: Vec<_> = counts
            .into_iter()
            .map(|(quantity, [so, all])| format!("{quantity} {so} of {all}"))
            .collect();
        writeln!(sink, "  {line:11} {}", counts.join(", "))?;
    }
    Ok(())
}

fn write_verdicts(comparison: &Comparison<'_>, sink: &mut impl Write) -> io::Result<()> {
    let compared = || {
        let places = comparison.after.groups.iter();
        places.filter(|group| {
            let (format, name) = group.key();
            !comparison.apart.iter().any(|(f, n, _)| (*f, *n) == (format, name))
        })
    };
    if comparison.verdicts.is_empty() {
        let text = format!("{GOOD}the same{GOOD:#}: {}", verdicts(compared()));
        return write_heading("verdicts", &text, sink);
    }
    let text = if comparison.verdicts_worse() {
        format!("{BAD}worse{BAD:#}: {} now", verdicts(compared()))
    } else {
        format!("{GOOD}changed, none for the worse{GOOD:#}: {} now", verdicts(compared()))
    };
    write_heading("verdicts", &text, sink)?;
    let lines = comparison.verdicts.iter().map(|it| {
        let VerdictsOf { before, after, newly_failing, .. } = it;
        let (format, group) = after.key();
        let (before, after) = (verdicts([*before]), verdicts([*after]));
        let cases: Vec<_> = newly_failing
            .iter()
            .take(PLACES)
            .map(|case| format!("\n        no longer passes: {case}"))
            .collect();
        format!("{format:5} {group:22} {before} -> {after}{}", cases.concat())
    });
    write_list(lines, sink)
}

/// `12 pass, 1 fail`, of all groups together.
fn verdicts<'g>(groups: impl IntoIterator<Item = &'g Group>) -> String {
    let mut sums = BTreeMap::<Verdict, Span<u64>>::new();
    for group in groups {
        for (&verdict, count) in &group.verdicts {
            let sum = sums.entry(verdict).or_insert(Span::of(0));
            *sum = Span { min: sum.min + count.min, max: sum.max + count.max };
        }
    }
    let shown = |verdict: Verdict| Some(format!("{} {}", sums.get(&verdict)?, verdict.name()));
    Verdict::ALL.into_iter().filter_map(shown).collect::<Vec<_>>().join(", ")
}

fn write_headroom(comparison: &Comparison<'_>, sink: &mut impl Write) -> io::Result<()> {
    for format in &comparison.profiles {
        let text = format!(
            "{DOUBTFUL}{format}: the kernel declares another, with other bounds{DOUBTFUL:#}"
        );
        write_heading("profile", &text, sink)?;
    }
    let all = &comparison.headroom;
    let moved: Vec<_> = all.iter().filter(|it| it.moved_headroom()).collect();
    let rest = match all.len() - moved.len() {
        0 => String::new(),
        rest => format!("; in {} only errors within it", count("other", rest as u64)),
    };
    if moved.is_empty() {
        return write_heading("headroom", &format!("{GOOD}the same{GOOD:#}{rest}"), sink);
    }
    let outputs = count("output", moved.len() as u64);
    write_heading("headroom", &format!("moved in {outputs}, worst first{rest}"), sink)?;
    let width = moved.iter().take(SHOWN).map(|it| it.place.group.len()).max().unwrap_or(0);
    let lines = moved.iter().map(|it| {
        let Place { format, group, quantity } = it.place;
        let before = headroom(it.before.worst.ratio);
        let after = headroom(it.after.worst.ratio);
        format!("{format:5} {quantity:7} {group:width$}  {before:>9} -> {after}{}", remark(it))
    });
    write_list(lines, sink)
}

/// `1 - ratio`, the least first where runs differ.
fn headroom(ratio: Span<Figure>) -> String {
    let of = |ratio: Figure| left_of(ratio.get());
    if ratio.min == ratio.max {
        of(ratio.max)
    } else {
        format!("{} to {}", of(ratio.max), of(ratio.min))
    }
}

/// `1 - ratio` to as many places as the figures of a snapshot have.
fn left_of(ratio: f64) -> String {
    format!("{:.4}", 1.0 - ratio)
}

fn remark(it: &HeadroomOf<'_>) -> String {
    let (before, after) = (it.before.worst.ratio.max.get(), it.after.worst.ratio.max.get());
    if is_large(before, after) {
        format!("  {BAD}half of it or more is gone{BAD:#}")
    } else if it.before.worst.ratio.min != it.before.worst.ratio.max && it.is_outside() {
        format!("  {DOUBTFUL}outside the range of the runs before{DOUBTFUL:#}")
    } else {
        String::new()
    }
}

fn write_where(comparison: &Comparison<'_>, sink: &mut impl Write) -> io::Result<()> {
    write_heading("where", "changed bits, by place among key blocks", sink)?;
    let zones = comparison.bits.iter().flat_map(|it| {
        it.zones.iter().map(|(&zone, &bits)| ((zone, it.place.quantity), bits == Bits::Changed))
    });
    write_tally::<Zone>(zones, sink)?;
    if comparison.bits.iter().all(|it| it.zones.is_empty()) {
        writeln!(sink, "  not told: the kernel declares other blocks, or none")?;
    }
    for it in comparison.headroom.iter().filter(|it| it.moved_headroom()).take(PLACES) {
        let (worst, quantity) = (&it.after.worst, it.place.quantity);
        let headroom = headroom(worst.ratio);
        writeln!(sink, "  headroom {headroom} at {quantity}, {} ({})", worst.at, worst.zone)?;
        writeln!(sink, "    of {}", worst.case)?;
    }
    Ok(())
}

fn write_kind(comparison: &Comparison<'_>, sink: &mut impl Write) -> io::Result<()> {
    let all = &comparison.headroom;
    if all.is_empty() {
        return Ok(());
    }
    let mut biased: Vec<_> = all.iter().filter(|it| it.kind() == Lean::Bias).collect();
    biased.sort_by(|a, b| b.moved().abs().total_cmp(&a.moved().abs()));
    let text = if biased.is_empty() {
        format!(
            "{GOOD}noise{GOOD:#}: no mean error moved by more than {BIAS_DEVIATIONS} deviations"
        )
    } else {
        let of = count("output", all.len() as u64);
        format!("{DOUBTFUL}bias{DOUBTFUL:#}: the mean error moved in {} of {of}", biased.len())
    };
    write_heading("kind", &text, sink)?;
    let lines = biased.iter().map(|it| {
        let Place { format, group, quantity } = it.place;
        let (before, after) = (it.before.signed_mean(), it.after.signed_mean());
        let (before, after) = (signed(before), signed(after));
        let moved = show_rough(it.moved().abs());
        format!("{format:5} {quantity:7} {group:22} mean {before} -> {after} of the bound, {moved} deviations")
    });
    write_list(lines, sink)?;
    let leaning =
        |of: fn(&HeadroomOf<'_>) -> Lean| all.iter().filter(|it| of(it) == Lean::Bias).count();
    let (before, after) = (leaning(|it| it.before.lean()), leaning(|it| it.after.lean()));
    if before + after > 0 {
        writeln!(
            sink,
            "  of those that moved, errors lean to one side in {before} before, {after} after"
        )?;
    }
    Ok(())
}

fn signed(value: f64) -> String {
    let sign = if value < 0.0 { "" } else { "+" };
    format!("{sign}{}", show_rough(value))
}

fn write_environment(comparison: &Comparison<'_>, sink: &mut impl Write) -> io::Result<()> {
    let changed = &comparison.environment;
    if changed.is_empty() {
        return write_heading("environment", &format!("{GOOD}the same{GOOD:#}"), sink);
    }
    write_heading("environment", &format!("{DOUBTFUL}another{DOUBTFUL:#}"), sink)?;
    let width = changed.iter().map(|(name, ..)| name.len()).max().unwrap_or(0);
    for (name, before, after) in changed {
        let shown = |value: Option<&str>| value.map_or("(unknown)".to_owned(), str::to_owned);
        writeln!(sink, "  {name:width$}  {} -> {}", shown(*before), shown(*after))?;
    }
    Ok(())
}

/// Writes the trend of the headroom over accepted changes; nothing where there are none.
///
/// # Errors
/// Those of the sink.
pub fn write_trends(trends: &[Trend], sink: &mut impl Write) -> io::Result<()> {
    let Some(longest) = trends.iter().map(|it| it.accepted.len()).max() else { return Ok(()) };
    let text = format!(
        "headroom over {}: at first, when last accepted, now",
        count("accepted change", longest as u64)
    );
    write_heading("trend", &text, sink)?;
    let mut moved: Vec<_> = trends.iter().filter(|it| it.moved()).collect();
    moved.sort_by(|a, b| b.creeps().cmp(&a.creeps()).then(b.shrunk().total_cmp(&a.shrunk())));
    let lines = moved.iter().map(|trend| {
        let Trend { format, quantity, first, accepted, now } = trend;
        let last = accepted.last().unwrap_or(first);
        let [first, last, now] = [first, last, now].map(|ratio| left_of(*ratio));
        let creeps = if trend.creeps() {
            format!("  {BAD}half of it or more is gone, in steps that each took less{BAD:#}")
        } else {
            String::new()
        };
        format!("{format:5} {quantity:7} {first:>9} {last:>9} {now:>9}{creeps}")
    });
    write_list(lines, sink)?;
    match trends.len() - moved.len() {
        0 => Ok(()),
        still => writeln!(sink, "  {} did not move", count("output", still as u64)),
    }
}

/// A number of things, in the plural where it is not one.
fn count(thing: &str, number: u64) -> String {
    if number == 1 { format!("1 {thing}") } else { format!("{number} {thing}s") }
}
