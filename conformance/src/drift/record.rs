//! Putting a kernel through a suite and keeping what its answers were like.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use flashproof_spec::format::Format;

use super::digest::{Bits, Digest};
use super::environment::environment;
use super::error::DriftError;
use super::figure::Span;
use super::group;
use super::measure::{Gathered, Held, Measure};
use super::snapshot::{Asked, Group, SNAPSHOT_VERSION, Snapshot};
use super::zone::Zones;
use crate::adapter::{Failure, Subject};
use crate::case::Case;
use crate::inputs::Misfit;
use crate::report::CaseReport;
use crate::run::{self, AnswerTensor, RunError, Shown, Watch};
use crate::suite;
use crate::verdict::{Compared, Quantity, Verdict};

/// Runs of a kernel that does not promise the same bits for the same inputs, where nobody says how
/// many: the least that can show two agree and one not.
pub const RUNS: u32 = 3;

/// What to record.
#[derive(Clone, Debug)]
pub struct Request {
    /// What to ask.
    pub asked: Asked,
    /// How often; by default once, or [`RUNS`] times where the kernel does not promise the same bits.
    pub runs: Option<u32>,
    /// The name to record the kernel under; by default its own.
    pub name: Option<String>,
    /// What the program can not find out of the environment, by name.
    pub notes: Vec<(String, String)>,
}

impl Request {
    /// The cases to ask.
    #[must_use]
    pub fn cases(&self) -> Vec<Case> {
        let Asked { suite, formats, only, seed } = &self.asked;
        let formats: Vec<_> = formats.iter().copied().collect();
        suite::matching(suite::cases(*suite, &formats, *seed), only)
    }
}

/// Records a kernel's answers; `progress` is told of each case of each run.
///
/// # Errors
/// [`DriftError`] where there is nothing to record, or the run fails for a reason that is not the
/// kernel's.
pub fn record(
    subject: &mut dyn Subject,
    request: &Request,
    mut progress: impl FnMut(&CaseReport),
) -> Result<Snapshot, DriftError> {
    let cases = request.cases();
    if cases.is_empty() {
        return Err(DriftError::NoCases);
    }
    let deterministic = subject.guarantees().deterministic;
    let runs = request.runs.unwrap_or(if deterministic { 1 } else { RUNS });
    if runs == 0 {
        return Err(DriftError::NoRuns);
    }
    let mut snapshot = Snapshot {
        version: SNAPSHOT_VERSION,
        kernel: request.name.clone().unwrap_or_else(|| subject.name().to_owned()),
        asked: request.asked.clone(),
        runs: 0,
        deterministic,
        environment: noted(environment(subject.name(), subject.description()), &request.notes)?,
        profiles: profiles(subject, request)?,
        groups: Vec::new(),
    };
    for _ in 0..runs {
        let groups = run_once(subject, request, &cases, &mut progress)?;
        snapshot = snapshot.clone().hull(Snapshot { runs: 1, groups, ..snapshot });
    }
    Ok(snapshot)
}

fn noted(
    mut environment: BTreeMap<String, String>,
    notes: &[(String, String)],
) -> Result<BTreeMap<String, String>, DriftError> {
    for (name, text) in notes {
        if environment.insert(name.clone(), text.clone()).is_some() {
            return Err(DriftError::Note { name: name.clone() });
        }
    }
    Ok(environment)
}

/// Of the profile of each format that the kernel takes.
fn profiles(
    subject: &mut dyn Subject,
    request: &Request,
) -> Result<BTreeMap<Format, Digest>, DriftError> {
    let mut profiles = BTreeMap::new();
    for &format in &request.asked.formats {
        match subject.profile(format) {
            Ok(profile) => {
                let text = serde_json::to_string(&profile).unwrap_or_default();
                profiles.insert(format, Digest::of_text(&text));
            }
            Err(Failure::Unsupported(_)) => {}
            Err(failure) => return Err(DriftError::Profile { format, failure }),
        }
    }
    Ok(profiles)
}

fn run_once(
    subject: &mut dyn Subject,
    request: &Request,
    cases: &[Case],
    progress: &mut impl FnMut(&CaseReport),
) -> Result<Vec<Group>, DriftError> {
    let watcher = Watcher::default();
    let mut groups = Groups::new(cases)?;
    let mut next = cases.iter();
    run::run_watched(
        subject,
        request.asked.suite,
        cases,
        run::Tests::default(),
        &watcher,
        |report| {
            if let Some(case) = next.next() {
                groups.add(case, report, watcher.take(case));
            }
            progress(report);
        },
    )?;
    Ok(groups.finish())
}

/// Keeps what is shown of cases until they are judged.
#[derive(Default)]
struct Watcher(Mutex<BTreeMap<String, Seen>>);

/// What was shown of one case.
struct Seen {
    zones: Zones,
    held: BTreeMap<Quantity, Held>,
    measures: BTreeMap<Quantity, Measure>,
}

impl Watcher {
    /// A panic elsewhere leaves at most one row out of a record that nobody will then read.
    fn seen(&self) -> MutexGuard<'_, BTreeMap<String, Seen>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take(&self, case: &Case) -> Option<Seen> {
        self.seen().remove(&case.name)
    }
}

impl Watch for Watcher {
    fn see(&self, case: &Case, shown: Shown<'_>) {
        match shown {
            Shown::Answers { problem, profile, tensors } => {
                let mut held = BTreeMap::<Quantity, Held>::new();
                for given in &tensors {
                    let AnswerTensor { quantity, problem, .. } = *given;
                    held.entry(quantity).or_default().add(given, &Zones::new(problem, profile));
                }
                let zones = Zones::new(problem, profile);
                let seen = Seen { zones, held, measures: BTreeMap::new() };
                self.seen().insert(case.name.clone(), seen);
            }
            Shown::Elements(row) => {
                let mut seen = self.seen();
                let Some(seen) = seen.get_mut(&case.name) else { return };
                for quantity in Quantity::ALL {
                    let of_quantity = |it: &&Compared| it.quantity == quantity;
                    if row.iter().any(|it| of_quantity(&it)) {
                        let measure = seen.measures.entry(quantity).or_default();
                        measure.add_row(row.iter().filter(of_quantity));
                    }
                }
            }
        }
    }
}

/// The groups of one run.
struct Groups(BTreeMap<(Format, String), Gathering>);

#[derive(Default)]
struct Gathering {
    cases: u64,
    inputs: Bits,
    verdicts: BTreeMap<Verdict, Span<u64>>,
    failures: BTreeMap<String, Verdict>,
    of: BTreeMap<Quantity, Gathered>,
}

impl Groups {
    /// The groups of these cases, with nothing in them but what is asked.
    fn new(cases: &[Case]) -> Result<Self, RunError> {
        let mut groups = BTreeMap::<_, Gathering>::new();
        for case in cases {
            let gathering = groups.entry((case.problem.format, group::of(case))).or_default();
            gathering.cases += 1;
            gathering
                .add_inputs(case)
                .map_err(|source| RunError::Inputs { case: case.name.clone(), source })?;
        }
        Ok(Self(groups))
    }

    fn add(&mut self, case: &Case, report: &CaseReport, seen: Option<Seen>) {
        if let Some(gathering) = self.0.get_mut(&(case.problem.format, group::of(case))) {
            gathering.add(report, seen);
        }
    }

    fn finish(self) -> Vec<Group> {
        let groups = self.0.into_iter();
        groups.map(|((format, name), gathering)| gathering.finish(format, name)).collect()
    }
}

impl Gathering {
    /// Also of the cases that the kernel does not answer: what was asked does not depend on it.
    fn add_inputs(&mut self, case: &Case) -> Result<(), Misfit> {
        let inputs = case.inputs()?;
        let cotangents = case.cotangents(Format::F64);
        self.inputs.text(&case.name);
        let given = [&inputs.query, &inputs.key, &inputs.value].into_iter();
        let given = given.chain(&inputs.bias).chain(&inputs.sink);
        let upstream = cotangents.iter().flat_map(|it| [Some(&it.output), it.lse.as_ref()]);
        for tensor in given.chain(upstream.flatten()) {
            self.inputs.tensor(tensor);
        }
        Ok(())
    }

    fn add(&mut self, report: &CaseReport, seen: Option<Seen>) {
        let CaseReport { name, verdict, .. } = report;
        let held = self.verdicts.entry(*verdict).or_insert(Span::of(0));
        *held = Span::of(held.max + 1);
        if verdict.is_failure() {
            self.failures.insert(name.clone(), *verdict);
        }
        let Some(seen) = seen else { return };
        for quantity in Quantity::ALL {
            if let Some(measured) = report.of(quantity)
                && measured.elements + measured.not_compared > 0
            {
                self.of.entry(quantity).or_default().add_counts(measured);
            }
        }
        for (quantity, held) in seen.held {
            self.of.entry(quantity).or_default().add_bits(name, held);
        }
        for (quantity, measure) in seen.measures {
            let of = self.of.entry(quantity).or_default();
            of.add_measure(name, &seen.zones, quantity, measure);
        }
    }

    fn finish(self, format: Format, name: String) -> Group {
        let failures = self.failures.into_iter();
        Group {
            format,
            name,
            cases: self.cases,
            inputs: self.inputs.digest(),
            verdicts: self.verdicts,
            failures: failures.map(|(case, verdict)| (case, [verdict].into())).collect(),
            of: self.of.into_iter().map(|(quantity, it)| (quantity, it.answers())).collect(),
        }
    }
}
