//! What a kernel's answers were like: the model. `DRIFT.md` documents its text.

use std::collections::{BTreeMap, BTreeSet};

use flashproof_spec::format::Format;
use serde::Deserialize;

use super::digest::Digest;
use super::figure::{Figure, Span};
use super::zone::Zone;
use crate::suite::Suite;
use crate::verdict::{Quantity, Verdict};

/// Version of the text. It moves when a key is removed or changes its meaning.
pub const SNAPSHOT_VERSION: u32 = 1;

/// A kernel's answers to a suite, in numbers.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Snapshot {
    /// [`SNAPSHOT_VERSION`].
    #[serde(rename = "flashproof-drift-snapshot")]
    pub version: u32,
    /// The kernel's name.
    pub kernel: String,
    /// What was asked.
    pub asked: Asked,
    /// How often all of it was asked.
    pub runs: u32,
    /// Whether the kernel promises the same bits for the same inputs.
    pub deterministic: bool,
    /// What it ran on and was made with, by name.
    pub environment: BTreeMap<String, String>,
    /// Of the precision profile that the kernel declares for each format.
    pub profiles: BTreeMap<Format, Digest>,
    /// In ascending order of format and name.
    #[serde(rename = "group", default)]
    pub groups: Vec<Group>,
}

/// What a kernel was asked.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Asked {
    /// Which suite.
    pub suite: Suite,
    /// In which formats.
    pub formats: BTreeSet<Format>,
    /// Patterns that chose among the cases; empty where all were asked.
    pub only: Vec<String>,
    /// Seed of the inputs.
    #[serde(with = "seed")]
    pub seed: u64,
}

/// Cases of one format that are told of together.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Group {
    /// The format of the inputs.
    pub format: Format,
    /// The pass and what the cases are about, such as `forward/causal`.
    pub name: String,
    /// How many cases.
    pub cases: u64,
    /// Of their names and inputs.
    pub inputs: Digest,
    /// How many cases came to each verdict; those that are absent are 0.
    pub verdicts: BTreeMap<Verdict, Span<u64>>,
    /// The cases that were asked and did not pass, with what they came to in some run.
    #[serde(default)]
    pub failures: BTreeMap<String, BTreeSet<Verdict>>,
    /// What the answers were like.
    #[serde(default)]
    pub of: BTreeMap<Quantity, Answers>,
}

/// One of the kernel's outputs over the cases of a group.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Answers {
    /// Of the bits of every element; several where runs differ.
    pub bits: BTreeSet<Digest>,
    /// Of the bits of the elements of each zone.
    pub zones: BTreeMap<Zone, BTreeSet<Digest>>,
    /// How the elements compare.
    pub elements: Elements,
    /// What values there are among them.
    pub values: Values,
    /// Of the elements that have a ratio, where there are any.
    pub ratios: Option<Ratios>,
}

/// How many elements compare how.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Elements {
    /// Compared with the exact answer, or with what else the case compares with.
    pub compared: Span<u64>,
    /// Proven wrong.
    pub wrong: Span<u64>,
    /// Without a bound.
    pub unbounded: Span<u64>,
    /// Not compared: the specification does not say what they should be.
    pub unspecified: Span<u64>,
}

/// How many elements have which special value.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Values {
    /// NaN.
    pub nan: Span<u64>,
    /// Infinite, of either sign.
    pub infinite: Span<u64>,
    /// Zero, of either sign.
    pub zero: Span<u64>,
}

/// The errors of elements that are compared with their exact answer, over their bounds.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Ratios {
    /// The largest, in any run.
    pub worst: Worst,
    /// How large they are.
    pub sizes: Sizes,
    /// To which side they lean.
    pub mean: Mean,
}

/// How large ratios are.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Sizes {
    /// How many there are.
    pub count: Span<u64>,
    /// The root mean square.
    pub rms: Span<Figure>,
    /// The median.
    pub p50: Span<Figure>,
    /// What 99 of 100 do not exceed.
    pub p99: Span<Figure>,
    /// What 999 of 1000 do not exceed.
    pub p999: Span<Figure>,
}

/// To which side ratios lean.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Mean {
    /// The mean of the signed ratios: positive where the kernel's numbers are above the exact ones. An
    /// element that is its exact answer correctly rounded counts as zero.
    pub signed: Span<Figure>,
    /// The most that the mean would deviate by chance, as a standard deviation.
    pub deviation: Span<Figure>,
}

/// The element of the largest ratio.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Worst {
    /// Its ratio, of the worst element of each run.
    pub ratio: Span<Figure>,
    /// Its case.
    pub case: String,
    /// Its place in the output.
    pub at: String,
    /// Its place among key blocks.
    pub zone: Zone,
}

/// A seed, as text: TOML has no integers of 64 bits without a sign.
mod seed {
    use serde::{Deserialize, Deserializer, de::Error};

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<u64, D::Error> {
        let text = String::deserialize(from)?;
        text.parse().map_err(|_| {
            D::Error::custom(format!("'{text}' is no seed: expected a whole number in quotes"))
        })
    }
}

impl Snapshot {
    /// The group of that format and name.
    #[must_use]
    pub fn group(&self, format: Format, name: &str) -> Option<&Group> {
        self.groups.iter().find(|group| (group.format, &*group.name) == (format, name))
    }

    /// The same kernel's answers to the same in this and in other runs.
    #[must_use]
    pub fn hull(mut self, other: Self) -> Self {
        self.runs += other.runs;
        for group in other.groups {
            match self.groups.iter_mut().find(|it| it.key() == group.key()) {
                Some(held) => held.widen(group),
                None => self.groups.push(group),
            }
        }
        self.groups.sort_by(|a, b| a.key().cmp(&b.key()));
        self
    }
}

impl Group {
    /// What it is sorted by.
    pub(super) fn key(&self) -> (Format, &str) {
        (self.format, &self.name)
    }

    /// The number of cases that came to the verdict.
    #[must_use]
    pub fn count(&self, verdict: Verdict) -> Span<u64> {
        self.verdicts.get(&verdict).copied().unwrap_or(Span::of(0))
    }

    fn widen(&mut self, other: Self) {
        for verdict in Verdict::ALL {
            let count = self.count(verdict).hull(other.count(verdict));
            if count.max > 0 {
                self.verdicts.insert(verdict, count);
            }
        }
        for (case, verdicts) in other.failures {
            self.failures.entry(case).or_default().extend(verdicts);
        }
        for (quantity, answers) in other.of {
            match self.of.remove(&quantity) {
                Some(held) => self.of.insert(quantity, held.hull(answers)),
                None => self.of.insert(quantity, answers),
            };
        }
    }
}

impl Answers {
    fn hull(mut self, other: Self) -> Self {
        self.bits.extend(other.bits);
        for (zone, digests) in other.zones {
            self.zones.entry(zone).or_default().extend(digests);
        }
        let (a, b) = (self.elements, other.elements);
        let elements = Elements {
            compared: a.compared.hull(b.compared),
            wrong: a.wrong.hull(b.wrong),
            unbounded: a.unbounded.hull(b.unbounded),
            unspecified: a.unspecified.hull(b.unspecified),
        };
        let (a, b) = (self.values, other.values);
        let values = Values {
            nan: a.nan.hull(b.nan),
            infinite: a.infinite.hull(b.infinite),
            zero: a.zero.hull(b.zero),
        };
        let ratios = match (self.ratios.take(), other.ratios) {
            (Some(a), Some(b)) => Some(a.hull(b)),
            (a, b) => a.or(b),
        };
        Self { elements, values, ratios, ..self }
    }

    /// The largest ratio in any run; `None` where no element has one.
    #[must_use]
    pub fn largest(&self) -> Option<f64> {
        self.ratios.as_ref().map(|ratios| ratios.worst.ratio.max.get())
    }
}

impl Ratios {
    fn hull(self, other: Self) -> Self {
        let ratio = self.worst.ratio.hull(other.worst.ratio);
        let worse = other.worst.ratio.max > self.worst.ratio.max;
        let worst = if worse { other.worst } else { self.worst };
        let (a, b) = (self.sizes, other.sizes);
        let sizes = Sizes {
            count: a.count.hull(b.count),
            rms: a.rms.hull(b.rms),
            p50: a.p50.hull(b.p50),
            p99: a.p99.hull(b.p99),
            p999: a.p999.hull(b.p999),
        };
        let (a, b) = (self.mean, other.mean);
        let mean =
            Mean { signed: a.signed.hull(b.signed), deviation: a.deviation.hull(b.deviation) };
        Self { worst: Worst { ratio, ..worst }, sizes, mean }
    }
}
