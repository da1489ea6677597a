//! A case put to a kernel in each way that the kernel computes.

use std::cmp::Ordering;
use std::collections::BTreeMap;

use flashproof_spec::format::Format;
use flashproof_spec::profile::Profile;

use super::answered::{Answered, drawn};
use super::judged::Judged;
use super::watch::Watch;
use super::{RunError, Tests};
use crate::adapter::{Failure, Subject};
use crate::case::Case;
use crate::verdict::{Quantity, Verdict};

/// What the kernel said when it was asked for a profile before, by the number of the policy.
pub(super) type Profiles = BTreeMap<(usize, Format), Result<Profile, Failure>>;

/// A case and what the kernel made of it in each way that it computes; at least one.
pub(super) struct Asked<'c> {
    first: Way<'c>,
    others: Vec<Way<'c>>,
}

/// One way.
struct Way<'c> {
    /// The name of the policy, where the kernel computes in several ways.
    policy: Option<String>,
    /// The name that reaches the kernel so.
    subject: String,
    answered: Answered<'c>,
}

/// What a case came to.
pub(super) struct Outcome<'c> {
    pub(super) judged: Judged,
    pub(super) policy: Option<String>,
    pub(super) subject: String,
    pub(super) answered: Answered<'c>,
}

impl<'c> Asked<'c> {
    /// Draws the case's inputs and puts them to the kernel in each way.
    pub(super) fn ask(
        subject: &mut dyn Subject,
        case: &'c Case,
        profiles: &mut Profiles,
    ) -> Result<Self, RunError> {
        let format = case.problem.format;
        let policies = subject.policies();
        let inputs = drawn(case)?;
        let mut ask = |policy: usize| {
            let name = subject.begin(policy, case.input_seed());
            let profile = profiles.entry((policy, format));
            let profile = profile.or_insert_with(|| subject.profile(format)).clone();
            let answered = Answered::put(subject, case, profile, inputs.clone())?;
            let policy = policies.get(policy).filter(|_| policies.len() > 1).cloned();
            Ok::<_, RunError>(Way { policy, subject: name, answered })
        };
        let first = ask(0)?;
        // What a kernel offers does not depend on how its device computes.
        let count = if first.answered.is_unsupported() { 1 } else { policies.len() };
        let others = (1..count).map(ask).collect::<Result<_, _>>()?;
        Ok(Self { first, others })
    }

    /// The worst verdict; of equal ones, that of the largest error. The trivial answers and the tests by
    /// probability are put beside the first answer, and the first is what is watched.
    pub(super) fn judge(
        &self,
        tests: Tests,
        watch: &impl Watch,
    ) -> Result<(usize, Judged), RunError> {
        let Self { first, others } = self;
        let judged = first.answered.judge(tests, watch)?;
        let beside = (judged.not_discriminating.clone(), judged.statistics.clone());
        let mut worst = (0, judged);
        for (at, other) in others.iter().enumerate() {
            if other.answered.is_same_as(&first.answered) {
                continue;
            }
            let judged = other.answered.verdict()?;
            if compare(&judged, &worst.1) == Ordering::Greater {
                worst = (at + 1, judged);
            }
        }
        if worst.0 > 0 {
            worst.1.statistics = beside.1;
            worst.1.not_discriminating =
                if worst.1.verdict == Verdict::Fail { None } else { beside.0 };
        }
        Ok(worst)
    }

    /// The way of that number, with what came of it.
    pub(super) fn into_outcome(self, (at, judged): (usize, Judged)) -> Outcome<'c> {
        let other = self.others.into_iter().nth(at.wrapping_sub(1));
        let Way { policy, subject, answered } = other.unwrap_or(self.first);
        Outcome { judged, policy, subject, answered }
    }
}

/// Which of two is worse.
fn compare(a: &Judged, b: &Judged) -> Ordering {
    const MILDEST_FIRST: [Verdict; 7] = [
        Verdict::Pass,
        Verdict::Unsupported,
        Verdict::NoBound,
        Verdict::Malformed,
        Verdict::TimedOut,
        Verdict::Crashed,
        Verdict::Fail,
    ];
    let rank = |judged: &Judged| MILDEST_FIRST.iter().position(|it| *it == judged.verdict);
    let ratio = |judged: &Judged| {
        let worst = |quantity| judged.tally.of(quantity).worst.as_ref().map(|it| it.ratio);
        Quantity::ALL.into_iter().filter_map(worst).fold(0.0, f64::max)
    };
    rank(a).cmp(&rank(b)).then(ratio(a).total_cmp(&ratio(b)))
}
