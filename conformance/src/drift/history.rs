//! Changes that were accepted: a file that grows by an entry each time, so that many small steps show
//! as the large one that they make.

use std::collections::BTreeMap;
use std::fmt::{self, Display};
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use flashproof_spec::format::Format;
use serde::Deserialize;

use super::compare::Comparison;
use super::digest::Digest;
use super::error::DriftError;
use super::figure::Figure;
use super::read::{self, Kind};
use super::snapshot::Asked;
use super::written::{asked, float, quoted, table};
use crate::verdict::Quantity;

/// Version of the text. It moves when a key is removed or changes its meaning.
pub const HISTORY_VERSION: u32 = 1;

const KIND: Kind =
    Kind { what: "history", key: "flashproof-drift-history", version: HISTORY_VERSION };

/// The accepted changes of some kernels, oldest first.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct History {
    /// [`HISTORY_VERSION`].
    #[serde(rename = "flashproof-drift-history")]
    pub version: u32,
    /// The entries.
    #[serde(default)]
    pub accepted: Vec<Accepted>,
}

/// One accepted change.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Accepted {
    /// When, in UTC: `2026-11-29T20:45:40Z`.
    pub date: String,
    /// The kernel's name.
    pub kernel: String,
    /// Why the change is right.
    pub reason: String,
    /// What it was asked.
    pub asked: Asked,
    /// Of the text of the snapshot before.
    pub before: Digest,
    /// Of the text of the snapshot after.
    pub after: Digest,
    /// The largest ratio, before and after.
    #[serde(default)]
    pub largest: BTreeMap<Format, BTreeMap<Quantity, [Figure; 2]>>,
}

impl Default for History {
    fn default() -> Self {
        Self { version: HISTORY_VERSION, accepted: Vec::new() }
    }
}

impl History {
    /// Reads a history; one that does not exist is empty.
    ///
    /// # Errors
    /// [`DriftError`] names the file, and what is wrong with it.
    pub fn read(path: &Path) -> Result<Self, DriftError> {
        if !path.exists() {
            return Ok(Self::default());
        }
        Self::parse(&read::text(path)?, &path.display().to_string())
    }

    /// Reads a history from its text; `origin` is what errors call it.
    ///
    /// # Errors
    /// [`DriftError`] names the line, and what is wrong with it.
    pub fn parse(text: &str, origin: &str) -> Result<Self, DriftError> {
        read::parse(text, origin, &KIND)
    }

    /// Adds an entry to the end of a history file. What is in the file stays as it is, byte for byte,
    /// and the file is never seen half written.
    ///
    /// # Errors
    /// [`DriftError`] where the file is no history, or can not be written.
    pub fn append(path: &Path, entry: &Accepted) -> Result<(), DriftError> {
        let mut text = if path.exists() { read::text(path)? } else { Self::default().to_string() };
        Self::parse(&text, &path.display().to_string())?;
        if !text.ends_with('\n') {
            text.push('\n');
        }
        text.push_str(&entry.to_string());
        read::write(path, &text)
    }

    /// The entries of a kernel that was asked this, oldest first.
    #[must_use]
    pub fn of<'h>(
        &'h self,
        kernel: &'h str,
        asked: &'h Asked,
    ) -> impl DoubleEndedIterator<Item = &'h Accepted> {
        self.accepted.iter().filter(move |it| it.kernel == kernel && it.asked == *asked)
    }
}

/// The entry that accepts what changed between two snapshots.
///
/// # Errors
/// [`DriftError`] where nothing changed, where a verdict got worse, or without a reason.
pub fn accept(
    comparison: &Comparison<'_>,
    reason: &str,
    when: SystemTime,
) -> Result<Accepted, DriftError> {
    let reason = reason.trim();
    if reason.is_empty() {
        return Err(DriftError::NoReason);
    }
    if let Some(worse) = comparison.verdicts.iter().find(|it| it.worse) {
        let (format, group) = worse.after.key();
        let cases = if worse.newly_failing.is_empty() {
            "cases".to_owned()
        } else {
            worse.newly_failing.join(", ")
        };
        return Err(DriftError::Worse { format, group: group.to_owned(), cases });
    }
    let (before, after) = (comparison.before, comparison.after);
    if before.groups == after.groups {
        return Err(DriftError::NothingToAccept("bits, verdicts and statistics are the same"));
    }
    let mut largest = BTreeMap::<_, BTreeMap<_, _>>::new();
    for ((format, quantity), ratios) in comparison.largest() {
        largest.entry(format).or_default().insert(quantity, ratios.map(Figure::from));
    }
    Ok(Accepted {
        date: date(when),
        kernel: after.kernel.clone(),
        reason: reason.to_owned(),
        asked: after.asked.clone(),
        before: Digest::of_text(&before.to_string()),
        after: Digest::of_text(&after.to_string()),
        largest,
    })
}

impl Display for History {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{} = {}", KIND.key, self.version)?;
        self.accepted.iter().try_for_each(|entry| entry.fmt(f))
    }
}

impl Display for Accepted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "\n[[accepted]]")?;
        writeln!(f, "date = {}", quoted(&self.date))?;
        writeln!(f, "kernel = {}", quoted(&self.kernel))?;
        writeln!(f, "reason = {}", quoted(&self.reason))?;
        writeln!(f, "asked = {}", asked(&self.asked))?;
        writeln!(f, "before = \"{}\"", self.before)?;
        writeln!(f, "after = \"{}\"", self.after)?;
        for (format, of) in &self.largest {
            let ratio = |(quantity, [before, after]): (&Quantity, &[Figure; 2])| {
                (quantity.key(), format!("[{}, {}]", float(*before), float(*after)))
            };
            writeln!(f, "largest.{format} = {}", table(of.iter().map(ratio)))?;
        }
        Ok(())
    }
}

/// A time as `2026-11-29T20:45:40Z`; one before 1970 as the beginning of that year.
fn date(when: SystemTime) -> String {
    const DAY: u64 = 86_400;
    let seconds = when.duration_since(UNIX_EPOCH).map_or(0, |it| it.as_secs());
    let (mut days, of_day) = (seconds / DAY, seconds % DAY);
    let is_leap = |year: u64| {
        year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400))
    };
    let days_in = |year| if is_leap(year) { 366 } else { 365 };
    let mut year = 1970;
    while days >= days_in(year) {
        days -= days_in(year);
        year += 1;
    }
    let february = if is_leap(year) { 29 } else { 28 };
    let mut month = 1;
    for length in [31, february, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31] {
        if days < length {
            break;
        }
        days -= length;
        month += 1;
    }
    let (hour, minute, second) = (of_day / 3600, of_day / 60 % 60, of_day % 60);
    format!("{year}-{month:02}-{:02}T{hour:02}:{minute:02}:{second:02}Z", days + 1)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn dates_are_those_of_the_calendar() {
        for (seconds, text) in [
            (0, "1970-01-01T00:00:00Z"),
            (951_782_400, "2000-02-29T00:00:00Z"),
            (1_709_251_199, "2024-02-29T23:59:59Z"),
            (1_709_251_200, "2024-03-01T00:00:00Z"),
            (4_107_542_400, "2100-03-01T00:00:00Z"),
        ] {
            assert_eq!(date(UNIX_EPOCH + Duration::from_secs(seconds)), text);
        }
    }
}
