//! The text of a snapshot: TOML, a line for each kind of number, so that a difference of two reads.

use std::collections::BTreeSet;
use std::fmt::{self, Display};

use super::digest::Digest;
use super::figure::{Figure, Span};
use super::snapshot::{Answers, Asked, Elements, Group, Ratios, Snapshot, Values, Worst};
use crate::verdict::Verdict;

/// A string as TOML has it, in one line: as JSON has it, but that TOML wants DEL escaped too.
pub(super) fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string().replace('\u{7f}', "\\u007f")
}

/// A key as TOML has it: without quotes where it needs none.
fn key(name: &str) -> String {
    let is_bare = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    let bare = !name.is_empty() && name.chars().all(is_bare);
    if bare { name.to_owned() } else { quoted(name) }
}

/// Strings as TOML has them, in a list.
pub(super) fn list<T: AsRef<str>>(items: impl IntoIterator<Item = T>) -> String {
    let items: Vec<_> = items.into_iter().map(|item| quoted(item.as_ref())).collect();
    format!("[{}]", items.join(", "))
}

/// A statistic as TOML has it: a float always has a point, an exponent or no digits at all.
pub(super) fn float(figure: Figure) -> String {
    let shown = figure.to_string();
    let is_float = shown.contains(['.', 'e', 'i']);
    if is_float { shown } else { format!("{shown}.0") }
}

fn span<T: Copy + PartialEq>(span: Span<T>, write: impl Fn(T) -> String) -> String {
    if span.min == span.max {
        write(span.max)
    } else {
        format!("[{}, {}]", write(span.min), write(span.max))
    }
}

fn count(counts: Span<u64>) -> String {
    span(counts, |count| count.to_string())
}

fn number(figures: Span<Figure>) -> String {
    span(figures, float)
}

/// An inline table, `{ a = 1, b = 2 }`.
pub(super) fn table<N: Display>(pairs: impl IntoIterator<Item = (N, String)>) -> String {
    let pairs: Vec<_> =
        pairs.into_iter().map(|(name, value)| format!("{name} = {value}")).collect();
    if pairs.is_empty() { "{}".to_owned() } else { format!("{{ {} }}", pairs.join(", ")) }
}

/// A verdict as a key: the word of reports, without blanks.
fn verdict(verdict: Verdict) -> String {
    verdict.name().replace(' ', "-")
}

impl Display for Snapshot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "flashproof-drift-snapshot = {}", self.version)?;
        writeln!(f, "kernel = {}", quoted(&self.kernel))?;
        writeln!(f, "asked = {}", asked(&self.asked))?;
        writeln!(f, "runs = {}", self.runs)?;
        writeln!(f, "deterministic = {}", self.deterministic)?;
        writeln!(f, "\n[environment]")?;
        for (name, value) in &self.environment {
            writeln!(f, "{} = {}", key(name), quoted(value))?;
        }
        writeln!(f, "\n[profiles]")?;
        for (format, digest) in &self.profiles {
            writeln!(f, "{format} = \"{digest}\"")?;
        }
        self.groups.iter().try_for_each(|group| write_group(group, f))
    }
}

/// What was asked, in one line.
pub(super) fn asked(asked: &Asked) -> String {
    let Asked { suite, formats, only, seed } = asked;
    table([
        ("suite", quoted(&suite.to_string())),
        ("formats", list(formats.iter().map(|format| format.name()))),
        ("only", list(only)),
        ("seed", quoted(&seed.to_string())),
    ])
}

fn write_group(group: &Group, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let Group { format, name, cases, inputs, verdicts, failures, of } = group;
    writeln!(f, "\n[[group]]")?;
    writeln!(f, "format = \"{format}\"")?;
    writeln!(f, "name = {}", quoted(name))?;
    writeln!(f, "cases = {cases}")?;
    writeln!(f, "inputs = \"{inputs}\"")?;
    let verdicts = verdicts.iter().map(|(&it, &cases)| (verdict(it), count(cases)));
    writeln!(f, "verdicts = {}", table(verdicts))?;
    if !failures.is_empty() {
        writeln!(f, "\n[group.failures]")?;
        for (case, verdicts) in failures {
            writeln!(f, "{} = {}", key(case), list(verdicts.iter().map(|&it| verdict(it))))?;
        }
    }
    for (quantity, answers) in of {
        writeln!(f, "\n[group.of.{}]", quantity.key())?;
        write_answers(answers, f)?;
    }
    Ok(())
}

fn write_answers(answers: &Answers, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let Answers { bits, zones, elements, values, ratios } = answers;
    let digests = |digests: &BTreeSet<Digest>| list(digests.iter().map(ToString::to_string));
    writeln!(f, "bits = {}", digests(bits))?;
    writeln!(f, "zones = {}", table(zones.iter().map(|(zone, of)| (zone.key(), digests(of)))))?;
    let Elements { compared, wrong, unbounded, unspecified } = *elements;
    let counts = [
        ("compared", compared),
        ("wrong", wrong),
        ("unbounded", unbounded),
        ("unspecified", unspecified),
    ];
    writeln!(f, "elements = {}", table(counts.map(|(name, it)| (name, count(it)))))?;
    let Values { nan, infinite, zero } = *values;
    let counts = [("nan", nan), ("infinite", infinite), ("zero", zero)];
    writeln!(f, "values = {}", table(counts.map(|(name, it)| (name, count(it)))))?;
    let Some(ratios) = ratios else { return Ok(()) };
    let Ratios { worst, sizes, mean } = ratios;
    let Worst { ratio, case, at, zone } = worst;
    let worst = [
        ("ratio", number(*ratio)),
        ("zone", quoted(zone.key())),
        ("case", quoted(case)),
        ("at", quoted(at)),
    ];
    writeln!(f, "ratios.worst = {}", table(worst))?;
    let sizes = [
        ("count", count(sizes.count)),
        ("rms", number(sizes.rms)),
        ("p50", number(sizes.p50)),
        ("p99", number(sizes.p99)),
        ("p999", number(sizes.p999)),
    ];
    writeln!(f, "ratios.sizes = {}", table(sizes))?;
    let mean = [("signed", number(mean.signed)), ("deviation", number(mean.deviation))];
    writeln!(f, "ratios.mean = {}", table(mean))?;
    Ok(())
}
