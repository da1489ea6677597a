//! What a run found. `REPORT.md` documents its JSON form.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use flashproof_spec::format::Format;
use flashproof_spec::problem::Problem;
use flashproof_spec::profile::Profile;
use serde::Serialize;

use super::number;
use crate::adapter::Choices;
use crate::diagnosis::Finding;
use crate::fit::Fit;
use crate::statistics::{self, Statistics};
use crate::suite::{Direction, Suite};
use crate::trivial::{Answer, Mark};
use crate::verdict::{Element, Measured, Quantity, StrictMeasured, Verdict, Violation};

/// Version of the JSON form. It moves when a field is removed or changes its meaning.
pub const SCHEMA_VERSION: u32 = 2;

/// What a run found.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// [`SCHEMA_VERSION`].
    pub schema_version: u32,
    /// Version of the program.
    pub flashproof: &'static str,
    /// What was under test.
    pub subject: Subject,
    /// What was run.
    pub run: Run,
    /// The outcome in a few numbers.
    pub summary: Summary,
    /// How else the kernel may have computed where it fails, by format; absent unless that was searched
    /// for and something failed.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub fits: Vec<Fit>,
    /// Every case, in the order that they ran.
    pub cases: Vec<CaseReport>,
}

/// What was under test.
#[derive(Clone, Debug, Serialize)]
pub struct Subject {
    /// The name that reaches it, such as `builtin:tiled`, or the file of outputs.
    pub name: String,
    /// What it says it is.
    pub description: String,
    /// Its declared choices.
    pub choices: Choices,
    /// Its declared profile for each format that it takes.
    pub profiles: BTreeMap<Format, Profile>,
    /// Why it takes no other of the formats asked for.
    pub formats_refused: BTreeMap<Format, String>,
}

/// What was run.
#[derive(Clone, Debug, Serialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum Run {
    /// Cases of a suite.
    Check {
        /// Which suite.
        suite: Suite,
        /// Which passes.
        direction: Direction,
        /// Seed of the inputs.
        seed: u64,
        /// Patterns that chose among the cases; empty where all ran.
        only: Vec<String>,
    },
    /// Tensors from a file.
    Judge {
        /// The file of inputs.
        inputs: String,
        /// Which rows were judged.
        rows: RowsJudged,
        /// Which keys were judged by the gradients of key and value; absent without a backward pass.
        #[serde(skip_serializing_if = "Option::is_none")]
        keys: Option<RowsJudged>,
        /// Which rows of the bias were judged by its gradient; absent without a backward pass or bias.
        #[serde(skip_serializing_if = "Option::is_none")]
        bias_rows: Option<RowsJudged>,
        /// Which sinks were judged by their gradients; absent without a backward pass or logits of
        /// sinks.
        #[serde(skip_serializing_if = "Option::is_none")]
        sinks: Option<RowsJudged>,
    },
}

/// Which rows, keys or sinks of a problem were judged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct RowsJudged {
    /// How many.
    pub judged: usize,
    /// How many the problem has.
    pub of: usize,
    /// Seed of the sample; absent where every row was judged.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sample_seed: Option<u64>,
}

/// What one case came to.
#[derive(Clone, Debug, Serialize)]
pub struct CaseReport {
    /// The case's name.
    pub name: String,
    /// What it came to.
    pub verdict: Verdict,
    /// The numerics policy under which it came to this; absent where the kernel computes in one way.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub policy: Option<String>,
    /// Why there is no answer to judge, where there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub no_answer: Option<NoAnswer>,
    /// What was computed.
    pub problem: Problem,
    /// What the case is for.
    pub why: String,
    /// Public reports of the fault that it reproduces.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub source: Vec<String>,
    /// Clauses that it puts to the test, besides the bounds.
    pub clauses: Vec<&'static str>,
    /// The attention output.
    pub output: Measured,
    /// The LSE; absent where the kernel offers none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lse: Option<Measured>,
    /// `dQ`; absent in a case of the forward pass alone, as are the other gradients.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub query_gradient: Option<Measured>,
    /// `dK`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key_gradient: Option<Measured>,
    /// `dV`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub value_gradient: Option<Measured>,
    /// `dBias`; absent also where the problem has no bias.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bias_gradient: Option<Measured>,
    /// `dSink`; absent also where the problem has no logits of sinks.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sink_gradient: Option<Measured>,
    /// What was violated, in ascending order of clause.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub violations: Vec<Violation>,
    /// Known faults that explain the wrong rows, most specific first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub diagnosis: Vec<Finding>,
    /// Trivial answers that would have passed as the kernel's did, and why; absent where it did not,
    /// and where none were tried.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub not_discriminating: Option<Vec<Mark>>,
    /// The tests by probability; absent where they were not asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub statistics: Option<Statistics>,
    /// The command that runs this case alone.
    pub reproduce: String,
}

impl CaseReport {
    /// What was measured of one output; `None` where the kernel was not asked for it or did not give
    /// it.
    #[must_use]
    pub const fn of(&self, quantity: Quantity) -> Option<&Measured> {
        match quantity {
            Quantity::Output => Some(&self.output),
            Quantity::Lse => self.lse.as_ref(),
            Quantity::QueryGradient => self.query_gradient.as_ref(),
            Quantity::KeyGradient => self.key_gradient.as_ref(),
            Quantity::ValueGradient => self.value_gradient.as_ref(),
            Quantity::BiasGradient => self.bias_gradient.as_ref(),
            Quantity::SinkGradient => self.sink_gradient.as_ref(),
        }
    }
}

/// Why a case has no answer to judge.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct NoAnswer {
    /// What happened.
    pub reason: String,
    /// The clause that this violates, where it is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub clause: Option<&'static str>,
}

/// The outcome of a run in a few numbers.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Summary {
    /// Cases by verdict; those that are absent are 0.
    pub verdicts: BTreeMap<Verdict, usize>,
    /// Why cases are unsupported, the reason of most cases first.
    pub unsupported: Vec<Unsupported>,
    /// The attention output over all cases.
    pub output: Extreme,
    /// The LSE over all cases that have one.
    pub lse: Extreme,
    /// `dQ` over all cases of the backward pass.
    pub query_gradient: Extreme,
    /// `dK` over all cases of the backward pass.
    pub key_gradient: Extreme,
    /// `dV` over all cases of the backward pass.
    pub value_gradient: Extreme,
    /// `dBias` over all cases of the backward pass that have a bias.
    pub bias_gradient: Extreme,
    /// `dSink` over all cases of the backward pass that have logits of sinks.
    pub sink_gradient: Extreme,
    /// Answered cases without an LSE.
    pub lse_not_offered: usize,
    /// Faults that explain the wrong rows of a case, those of most cases first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub suspects: Vec<Suspect>,
    /// Cases in which trivial answers were tried, and would have passed; only those that were tried.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub trivial_answers: Vec<TrivialAnswer>,
    /// Cases in which some trivial answer would have passed.
    #[serde(skip_serializing_if = "number::is_zero")]
    pub not_discriminating: usize,
    /// The tests by probability; absent where they were not asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub statistics: Option<statistics::Summary>,
}

/// A trivial answer over all cases in which it was tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct TrivialAnswer {
    /// The answer.
    pub answer: Answer,
    /// Cases in which it was tried: those that the kernel passed.
    pub cases: usize,
    /// Those in which it would have passed.
    pub passing: usize,
}

/// A reason why cases are unsupported.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Unsupported {
    /// What the kernel said.
    pub reason: String,
    /// How many cases it said it of.
    pub cases: usize,
}

/// A fault that would explain some of the failing cases.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Suspect {
    /// The fault's name.
    pub fault: &'static str,
    /// The clause that a kernel with this fault violates.
    pub clause: &'static str,
    /// How many cases it explains.
    pub cases: usize,
}

/// One output over all cases.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Extreme {
    /// Elements compared.
    pub elements: usize,
    /// Elements proven wrong.
    pub wrong: usize,
    /// Elements for which no bound exists.
    pub unbounded: usize,
    /// Elements of which the specification does not say what they should be.
    #[serde(skip_serializing_if = "number::is_zero")]
    pub not_compared: usize,
    /// The element of the largest ratio, and its case.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub worst: Option<ExtremeElement>,
    /// The strict gate; absent where it concerns no element.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub strict: Option<StrictExtreme>,
}

/// One output over all cases at the strict gate.
#[derive(Clone, Debug, Default, Serialize)]
pub struct StrictExtreme {
    /// Elements put to it.
    pub elements: usize,
    /// Elements that it proves wrong.
    pub wrong: usize,
    /// Elements within their hard bound to which it does not apply.
    pub not_applied: usize,
    /// The element of the largest strict ratio, and its case.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub worst: Option<ExtremeElement>,
}

/// The worst element of a run.
#[derive(Clone, Debug, Serialize)]
pub struct ExtremeElement {
    /// The case's name.
    pub case: String,
    /// `1 - ratio`: what is left of the bound; negative where it is exceeded.
    #[serde(serialize_with = "number::serialize")]
    pub headroom: f64,
    /// The element.
    #[serde(flatten)]
    pub element: Element,
}

/// What a run as a whole comes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Something passed, and all else is unsupported.
    Passed,
    /// Some case is neither a pass nor unsupported.
    Failed,
    /// Nothing failed, but nothing passed either.
    NothingChecked,
}

impl Report {
    /// A report on the given cases, with their summary.
    #[must_use]
    pub fn new(subject: Subject, run: Run, cases: Vec<CaseReport>) -> Self {
        let mut summary = Summary::default();
        for case in &cases {
            summary.add(case);
        }
        // A stable sort: among equals, the order in which they were found.
        summary.unsupported.sort_by_key(|unsupported| Reverse(unsupported.cases));
        summary.suspects.sort_by_key(|suspect| Reverse(suspect.cases));
        let flashproof = env!("CARGO_PKG_VERSION");
        let schema_version = SCHEMA_VERSION;
        Self { schema_version, flashproof, subject, run, summary, fits: Vec::new(), cases }
    }
}

impl Report {
    /// The same with what was found of how else the kernel may have computed.
    #[must_use]
    pub fn with_fits(self, fits: Vec<Fit>) -> Self {
        Self { fits, ..self }
    }
}

impl Summary {
    fn add(&mut self, case: &CaseReport) {
        *self.verdicts.entry(case.verdict).or_default() += 1;
        if case.verdict == Verdict::Unsupported
            && let Some(NoAnswer { reason, .. }) = &case.no_answer
        {
            self.refuse(reason);
        }
        for quantity in Quantity::ALL {
            if let Some(measured) = case.of(quantity) {
                self.of_mut(quantity).add(&case.name, measured);
            }
        }
        if case.lse.is_none() && case.output.elements > 0 {
            self.lse_not_offered += 1;
        }
        for finding in &case.diagnosis {
            self.suspect(finding);
        }
        if let Some(marks) = &case.not_discriminating {
            self.try_trivial(case, marks);
        }
        if let Some(statistics) = &case.statistics {
            self.statistics.get_or_insert_default().add(statistics);
        }
    }

    fn try_trivial(&mut self, case: &CaseReport, marks: &[Mark]) {
        self.not_discriminating += usize::from(!marks.is_empty());
        for answer in Answer::concerning(case.query_gradient.is_some(), case.problem.format) {
            let at = self.trivial_answers.binary_search_by_key(&answer, |it| it.answer);
            let at = at.unwrap_or_else(|at| {
                self.trivial_answers.insert(at, TrivialAnswer { answer, cases: 0, passing: 0 });
                at
            });
            let tried = &mut self.trivial_answers[at];
            tried.cases += 1;
            tried.passing += usize::from(marks.iter().any(|mark| mark.answer == answer));
        }
    }

    fn refuse(&mut self, reason: &str) {
        match self.unsupported.iter_mut().find(|it| it.reason == reason) {
            Some(unsupported) => unsupported.cases += 1,
            None => self.unsupported.push(Unsupported { reason: reason.to_owned(), cases: 1 }),
        }
    }

    /// One output over all cases.
    #[must_use]
    pub const fn of(&self, quantity: Quantity) -> &Extreme {
        match quantity {
            Quantity::Output => &self.output,
            Quantity::Lse => &self.lse,
            Quantity::QueryGradient => &self.query_gradient,
            Quantity::KeyGradient => &self.key_gradient,
            Quantity::ValueGradient => &self.value_gradient,
            Quantity::BiasGradient => &self.bias_gradient,
            Quantity::SinkGradient => &self.sink_gradient,
        }
    }

    const fn of_mut(&mut self, quantity: Quantity) -> &mut Extreme {
        match quantity {
            Quantity::Output => &mut self.output,
            Quantity::Lse => &mut self.lse,
            Quantity::QueryGradient => &mut self.query_gradient,
            Quantity::KeyGradient => &mut self.key_gradient,
            Quantity::ValueGradient => &mut self.value_gradient,
            Quantity::BiasGradient => &mut self.bias_gradient,
            Quantity::SinkGradient => &mut self.sink_gradient,
        }
    }

    fn suspect(&mut self, finding: &Finding) {
        let Finding { fault, clause, .. } = *finding;
        let same = |it: &&mut Suspect| (it.fault, it.clause) == (fault, clause);
        match self.suspects.iter_mut().find(same) {
            Some(suspect) => suspect.cases += 1,
            None => self.suspects.push(Suspect { fault, clause, cases: 1 }),
        }
    }

    /// How many cases came to the verdict.
    #[must_use]
    pub fn count(&self, verdict: Verdict) -> usize {
        self.verdicts.get(&verdict).copied().unwrap_or(0)
    }

    /// What the run comes to.
    #[must_use]
    pub fn outcome(&self) -> Outcome {
        if self.verdicts.keys().any(|verdict| verdict.is_failure()) {
            Outcome::Failed
        } else if self.count(Verdict::Pass) > 0 {
            Outcome::Passed
        } else {
            Outcome::NothingChecked
        }
    }
}

impl Extreme {
    fn add(&mut self, case: &str, measured: &Measured) {
        self.elements += measured.elements;
        self.wrong += measured.wrong;
        self.unbounded += measured.unbounded;
        self.not_compared += measured.not_compared;
        hold_worst(&mut self.worst, case, measured.worst.as_ref());
        let StrictMeasured { elements, wrong, not_applied, worst } = &measured.strict;
        if !measured.strict.is_empty() {
            let strict = self.strict.get_or_insert_default();
            strict.elements += elements;
            strict.wrong += wrong;
            strict.not_applied += not_applied;
            hold_worst(&mut strict.worst, case, worst.as_ref());
        }
    }
}

/// Keeps the element of the larger ratio; among equals, the one held.
fn hold_worst(held: &mut Option<ExtremeElement>, case: &str, element: Option<&Element>) {
    if let Some(element) = element
        && held.as_ref().is_none_or(|held| element.ratio > held.element.ratio)
    {
        *held = Some(ExtremeElement {
            case: case.to_owned(),
            headroom: 1.0 - element.ratio,
            element: element.clone(),
        });
    }
}
