//! What became of a specimen in one format, and by which clauses.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

use super::judgement::Judgement;
use super::survey::Asked;
use crate::report::number;
use crate::verdict::{Quantity, Verdict};

/// What became of a specimen in one format.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Kill {
    /// Cases that it was asked.
    pub asked: usize,
    /// Those where its answer has other bits than the right kernel's.
    pub differing: usize,
    /// Those of them that were judged.
    pub judged: usize,
    /// Those of them that failed, or that it gave no answer to.
    pub killed: usize,
    /// The clauses that the failing answers violate by the verdict, and in how many cases.
    pub by_verdict: BTreeMap<&'static str, usize>,
    /// The clauses of the faults that the diagnosis finds consistent with all that is wrong in a case.
    pub by_diagnosis: BTreeMap<&'static str, usize>,
    /// The clauses that failing cases of reported faults were reported for.
    pub by_report: BTreeMap<&'static str, usize>,
    /// Clauses of the specimen's own that every case puts to the test in which its answer differs, and
    /// most other cases do not; in how many cases that is.
    pub by_cases: BTreeMap<&'static str, usize>,
    /// The failing element of the largest ratio.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub strongest: Option<Strongest>,
}

/// The failing element of the largest ratio.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Strongest {
    /// The case.
    pub case: String,
    /// Which output; absent where there was no answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub quantity: Option<Quantity>,
    /// Error over bound; infinite where the element is required exactly.
    #[serde(serialize_with = "number::serialize")]
    pub ratio: f64,
    /// The command that runs the case alone.
    pub reproduce: String,
}

/// How a clause came to be named of a failing answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Way {
    /// The verdict says that it is violated.
    Verdict,
    /// The diagnosis finds its fault consistent with all that is wrong.
    Diagnosis,
    /// The case that failed reproduces a report of it.
    Report,
    /// Every case where the answer differs puts it to the test, and most others do not.
    Cases,
}

impl Way {
    /// The name, as in tables.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Verdict => "verdict",
            Self::Diagnosis => "diagnosis",
            Self::Report => "report",
            Self::Cases => "cases",
        }
    }
}

impl Kill {
    pub(super) fn new<'j>(asked: &Asked, judged: impl Iterator<Item = &'j Judgement>) -> Self {
        let differing = asked.differing.len();
        let mut kill = Self { asked: asked.cases, differing, ..Self::default() };
        for judgement in judged {
            kill.judged += 1;
            if is_killed(judgement) {
                kill.killed += 1;
                kill.add(judgement);
            }
        }
        if kill.killed > 0 {
            kill.by_cases = asked.confined_to.iter().map(|&clause| (clause, differing)).collect();
        }
        kill
    }

    fn add(&mut self, Judgement { report, pinned, .. }: &Judgement) {
        let violated: BTreeSet<_> = report
            .violations
            .iter()
            .map(|it| it.clause)
            .chain(report.no_answer.as_ref().and_then(|it| it.clause))
            .collect();
        let found: BTreeSet<_> = report.diagnosis.iter().map(|it| it.clause).collect();
        for (counts, clauses) in [
            (&mut self.by_verdict, violated),
            (&mut self.by_diagnosis, found),
            (&mut self.by_report, pinned.iter().copied().collect()),
        ] {
            for clause in clauses {
                *counts.entry(clause).or_default() += 1;
            }
        }
        let worst = report.violations.iter().max_by(|a, b| a.worst.ratio.total_cmp(&b.worst.ratio));
        let ratio = worst.map_or(f64::INFINITY, |it| it.worst.ratio);
        if self.strongest.as_ref().is_none_or(|held| ratio > held.ratio) {
            self.strongest = Some(Strongest {
                case: report.name.clone(),
                quantity: worst.map(|it| it.quantity),
                ratio,
                reproduce: report.reproduce.clone(),
            });
        }
    }

    /// The clauses by the way that they were named.
    #[must_use]
    pub const fn ways(&self) -> [(Way, &BTreeMap<&'static str, usize>); 4] {
        [
            (Way::Verdict, &self.by_verdict),
            (Way::Diagnosis, &self.by_diagnosis),
            (Way::Report, &self.by_report),
            (Way::Cases, &self.by_cases),
        ]
    }
}

/// Whether the answer failed. One without a bound did not, and one that is not offered is none.
pub(super) fn is_killed(judgement: &Judgement) -> bool {
    let verdict = judgement.report.verdict;
    verdict.is_failure() && verdict != Verdict::NoBound
}
