//! Two snapshots: what changed between them.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use flashproof_spec::format::Format;

use super::digest::Digest;
use super::error::DriftError;
use super::snapshot::{Answers, Asked, Group, Ratios, Snapshot};
use super::zone::Zone;
use crate::verdict::{Quantity, Verdict};

/// Standard deviations at which a mean, or a change of one, is taken for a bias and not for noise.
///
/// A normal variable exceeds five of them once in 1.7 million; over the thousand or so groups and
/// outputs of a full comparison, a kernel without bias is called biased less than once in a thousand
/// comparisons. [`Mean::deviation`](super::Mean::deviation) is an upper bound, so less often still. A label, not a verdict.
pub const BIAS_DEVIATIONS: f64 = 5.0;

/// What changed between two snapshots.
#[derive(Clone, Debug)]
pub struct Comparison<'s> {
    /// The snapshots.
    pub before: &'s Snapshot,
    /// The later one.
    pub after: &'s Snapshot,
    /// Whether the bits are the same, output by output: every output that was compared.
    pub bits: Vec<BitsOf<'s>>,
    /// Groups whose cases came to other verdicts.
    pub verdicts: Vec<VerdictsOf<'s>>,
    /// Outputs whose statistics are others, that of the largest ratio afterwards first.
    pub headroom: Vec<HeadroomOf<'s>>,
    /// Groups that were not asked the same, or are in one snapshot alone, and why they were not
    /// compared.
    pub apart: Vec<(Format, &'s str, Apart)>,
    /// Formats of which the kernel declares another profile, so that ratios are of other bounds.
    pub profiles: Vec<Format>,
    /// What is another in the environment, by name.
    pub environment: Vec<(&'s str, Option<&'s str>, Option<&'s str>)>,
}

/// An output of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place<'s> {
    /// The format of the inputs.
    pub format: Format,
    /// The group's name.
    pub group: &'s str,
    /// Which output.
    pub quantity: Quantity,
}

/// The bits of one output of a group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BitsOf<'s> {
    /// Which output.
    pub place: Place<'s>,
    /// How they compare.
    pub standing: Bits,
    /// The same by zone; nothing where the kernel declares another profile than before, so that the
    /// zones are not of the same elements.
    pub zones: BTreeMap<Zone, Bits>,
}

/// How the bits of a zone compare.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Bits {
    /// The same in every run.
    Same,
    /// Others from run to run, before or after: whether they changed can not be told.
    Varying,
    /// Others than before, the same in every run.
    Changed,
}

/// The verdicts on a group's cases.
#[derive(Clone, Debug)]
pub struct VerdictsOf<'s> {
    /// The group, before.
    pub before: &'s Group,
    /// The group, after.
    pub after: &'s Group,
    /// Fewer cases pass, or one fails that did not.
    pub worse: bool,
    /// Cases that fail now and did not.
    pub newly_failing: Vec<&'s str>,
}

/// How far the errors of one output are from their bounds.
#[derive(Clone, Debug)]
pub struct HeadroomOf<'s> {
    /// Which output.
    pub place: Place<'s>,
    /// Before.
    pub before: &'s Ratios,
    /// After.
    pub after: &'s Ratios,
}

/// Why a group was not compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Apart {
    /// Its cases, or their inputs, are others.
    Inputs,
    /// It is in the first snapshot alone.
    OnlyBefore,
    /// It is in the second snapshot alone.
    OnlyAfter,
}

/// Whether errors lean to one side.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Lean {
    /// No more than by chance.
    Noise,
    /// More than by chance.
    Bias,
}

/// Compares two snapshots of one kernel.
///
/// # Errors
/// [`DriftError`] where they are of different kernels, or of different questions, or have nothing in
/// common.
pub fn compare<'s>(
    before: &'s Snapshot,
    after: &'s Snapshot,
) -> Result<Comparison<'s>, DriftError> {
    if before.kernel != after.kernel {
        let (before, after) = (before.kernel.clone(), after.kernel.clone());
        return Err(DriftError::Kernels { before, after });
    }
    check_asked(&before.asked, &after.asked)?;
    let mut comparison = Comparison {
        before,
        after,
        bits: Vec::new(),
        verdicts: Vec::new(),
        headroom: Vec::new(),
        apart: Vec::new(),
        profiles: changed_keys(&before.profiles, &after.profiles).into_iter().copied().collect(),
        environment: changed_keys(&before.environment, &after.environment)
            .into_iter()
            .map(|name| {
                let of =
                    |snapshot: &'s Snapshot| snapshot.environment.get(name).map(String::as_str);
                (name.as_str(), of(before), of(after))
            })
            .collect(),
    };
    comparison.add_groups();
    if comparison.apart.len() == comparison.keys().len() {
        return Err(DriftError::NothingInCommon);
    }
    // A stable sort: among equals, the order of formats and groups.
    comparison
        .headroom
        .sort_by(|a, b| b.after.worst.ratio.max.get().total_cmp(&a.after.worst.ratio.max.get()));
    comparison.verdicts.sort_by_key(|it| Reverse(it.worse));
    Ok(comparison)
}

fn check_asked(before: &Asked, after: &Asked) -> Result<(), DriftError> {
    let Asked { suite, formats, only, seed } = before;
    let list = |formats: &BTreeSet<Format>| {
        formats.iter().map(|format| format.name()).collect::<Vec<_>>().join(",")
    };
    let cases = |only: &[String]| if only.is_empty() { "all".to_owned() } else { only.join(" ") };
    let parts = [
        ("suite", suite.to_string(), after.suite.to_string()),
        ("formats", list(formats), list(&after.formats)),
        ("cases", cases(only), cases(&after.only)),
        ("seed", seed.to_string(), after.seed.to_string()),
    ];
    match parts.into_iter().find(|(_, before, after)| before != after) {
        None => Ok(()),
        Some((what, before, after)) => Err(DriftError::Asked { what, before, after }),
    }
}

/// The keys whose values differ, ascending.
fn changed_keys<'m, K: Ord, V: PartialEq>(
    before: &'m BTreeMap<K, V>,
    after: &'m BTreeMap<K, V>,
) -> BTreeSet<&'m K> {
    let keys = before.keys().chain(after.keys());
    keys.filter(|key| before.get(*key) != after.get(*key)).collect()
}

impl<'s> Comparison<'s> {
    fn keys(&self) -> BTreeSet<(Format, &'s str)> {
        self.before.groups.iter().chain(&self.after.groups).map(Group::key).collect()
    }

    fn add_groups(&mut self) {
        for (format, name) in self.keys() {
            match (self.before.group(format, name), self.after.group(format, name)) {
                (Some(before), Some(after)) => self.add_group(before, after),
                (Some(_), None) => self.apart.push((format, name, Apart::OnlyBefore)),
                (None, _) => self.apart.push((format, name, Apart::OnlyAfter)),
            }
        }
    }

    fn add_group(&mut self, before: &'s Group, after: &'s Group) {
        let (format, group) = after.key();
        if (before.cases, before.inputs) != (after.cases, after.inputs) {
            self.apart.push((format, group, Apart::Inputs));
            return;
        }
        self.verdicts.extend(verdicts_of(before, after));
        for quantity in Quantity::ALL {
            let place = Place { format, group, quantity };
            let answers = (before.of.get(&quantity), after.of.get(&quantity));
            if let (None, None) = answers {
                continue;
            }
            let same_zones = !self.profiles.contains(&format);
            self.bits.push(BitsOf::new(place, answers, same_zones));
            let ratios = |it: Option<&'s Answers>| it.and_then(|it| it.ratios.as_ref());
            if let (Some(before), Some(after)) = (ratios(answers.0), ratios(answers.1))
                && before != after
            {
                self.headroom.push(HeadroomOf { place, before, after });
            }
        }
    }

    /// Whether some bits are others than before.
    #[must_use]
    pub fn bits_changed(&self) -> bool {
        self.bits.iter().any(|it| it.standing == Bits::Changed)
    }

    /// Whether some group's verdicts got worse.
    #[must_use]
    pub fn verdicts_worse(&self) -> bool {
        self.verdicts.iter().any(|it| it.worse)
    }

    /// The largest ratio of each format and output, before and after, over the groups that were
    /// compared.
    #[must_use]
    pub fn largest(&self) -> BTreeMap<(Format, Quantity), [f64; 2]> {
        let mut largest = BTreeMap::<_, [f64; 2]>::new();
        for Place { format, group, quantity } in self.bits.iter().map(|it| it.place) {
            let ratios = [self.before, self.after].map(|snapshot| {
                let answers = snapshot.group(format, group).and_then(|it| it.of.get(&quantity));
                answers.and_then(Answers::largest)
            });
            if let [Some(before), Some(after)] = ratios {
                let held = largest.entry((format, quantity)).or_default();
                *held = [held[0].max(before), held[1].max(after)];
            }
        }
        largest
    }
}

fn verdicts_of<'s>(before: &'s Group, after: &'s Group) -> Option<VerdictsOf<'s>> {
    if before.verdicts == after.verdicts && before.failures == after.failures {
        return None;
    }
    let newly_failing: Vec<_> = after
        .failures
        .keys()
        .filter(|case| !before.failures.contains_key(*case))
        .map(String::as_str)
        .collect();
    let passing = |group: &Group| group.count(Verdict::Pass).min;
    let worse = passing(after) < passing(before) || !newly_failing.is_empty();
    Some(VerdictsOf { before, after, worse, newly_failing })
}

fn standing(before: &BTreeSet<Digest>, after: &BTreeSet<Digest>) -> Bits {
    if before.len() != 1 || after.len() != 1 {
        Bits::Varying
    } else if before == after {
        Bits::Same
    } else {
        Bits::Changed
    }
}

impl<'s> BitsOf<'s> {
    fn new(
        place: Place<'s>,
        (before, after): (Option<&Answers>, Option<&Answers>),
        same_zones: bool,
    ) -> Self {
        let (Some(before), Some(after)) = (before, after) else {
            return Self { place, standing: Bits::Changed, zones: BTreeMap::new() };
        };
        let both =
            before.zones.iter().filter_map(|(zone, of)| Some((zone, of, after.zones.get(zone)?)));
        let zones =
            both.filter(|_| same_zones).map(|(&zone, a, b)| (zone, standing(a, b))).collect();
        Self { place, standing: standing(&before.bits, &after.bits), zones }
    }
}

impl Ratios {
    /// How many deviations the mean is from zero; of several runs, the most of the mean over the most
    /// of its deviation.
    #[must_use]
    pub fn deviations(&self) -> f64 {
        over(self.signed_mean(), self.mean.deviation.max.get())
    }

    /// The mean of the run where it is furthest from zero.
    #[must_use]
    pub fn signed_mean(&self) -> f64 {
        let (min, max) = (self.mean.signed.min.get(), self.mean.signed.max.get());
        if min.abs() > max.abs() { min } else { max }
    }

    /// Whether the errors lean to one side.
    #[must_use]
    pub fn lean(&self) -> Lean {
        lean(self.deviations())
    }
}

impl HeadroomOf<'_> {
    /// How many deviations the mean moved. The deviation of a difference of two numbers, however they
    /// depend on each other, is at most the sum of theirs.
    #[must_use]
    pub fn moved(&self) -> f64 {
        let Self { before, after, .. } = self;
        let deviation = before.mean.deviation.max.get() + after.mean.deviation.max.get();
        over(after.signed_mean() - before.signed_mean(), deviation)
    }

    /// Whether the largest ratio is another, and not only the distribution of those below it.
    #[must_use]
    pub fn moved_headroom(&self) -> bool {
        self.before.worst.ratio != self.after.worst.ratio
    }

    /// Whether no run after has a largest ratio between those of the runs before.
    #[must_use]
    pub fn is_outside(&self) -> bool {
        let (before, after) = (self.before.worst.ratio, self.after.worst.ratio);
        after.min > before.max || after.max < before.min
    }

    /// Whether the change leans to one side.
    #[must_use]
    pub fn kind(&self) -> Lean {
        lean(self.moved())
    }
}

fn over(mean: f64, deviation: f64) -> f64 {
    if mean == 0.0 { 0.0 } else { mean / deviation }
}

fn lean(deviations: f64) -> Lean {
    if deviations.abs() > BIAS_DEVIATIONS { Lean::Bias } else { Lean::Noise }
}
