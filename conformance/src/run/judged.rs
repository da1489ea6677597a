//! From a tally to a verdict and a report.

use std::borrow::Cow;
use std::f64::consts::LN_2;

use flashproof_spec::format::Format;
use flashproof_spec::problem::Problem;
use flashproof_spec::tensor::{Gradients, Outputs, Tensor};
use ndarray::Axis;

use super::Tests;
use crate::adapter::{Choices, Failure, LseBase, LseSign, LseSink};
use crate::case::Case;
use crate::diagnosis::gradient::{GradientEvidence, diagnose_gradients};
use crate::diagnosis::{self, Evidence, Finding};
use crate::report::{CaseReport, NoAnswer};
use crate::statistics::Statistics;
use crate::suite::Suite;
use crate::trivial::Mark;
use crate::verdict::{Answer, GradientAnswer, Measured, Quantity, Tally, Verdict};

/// A verdict and what it rests on.
#[derive(Clone, Debug)]
pub struct Judged {
    /// The verdict.
    pub verdict: Verdict,
    /// Why there is no answer, where there is none.
    pub no_answer: Option<NoAnswer>,
    /// The elements compared.
    pub tally: Tally,
    /// Whether the kernel gave an LSE.
    pub has_lse: bool,
    /// Which gradients the kernel was asked for and gave.
    pub gradients: Vec<Quantity>,
    /// Faults that explain the wrong rows, and then the wrong gradients.
    pub findings: Vec<Finding>,
    /// Trivial answers that would have passed too, where they were tried.
    pub not_discriminating: Option<Vec<Mark>>,
    /// The tests by probability, where they were asked for.
    pub statistics: Option<Statistics>,
}

impl Judged {
    /// The verdict on a kernel that gave no answer; `None` where that is not the kernel's fault.
    #[must_use]
    pub fn without_answer(failure: &Failure) -> Option<Self> {
        let clause = match failure {
            Failure::InputChanged(_) => Some("FAS:fwd.input.unchanged"),
            Failure::Ownership(_) => Some("FAS:layout.ownership"),
            Failure::Device(fault) => Some(fault.clause),
            _ => None,
        };
        Some(Self {
            verdict: Verdict::of_failure(failure)?,
            no_answer: Some(NoAnswer { reason: failure.to_string(), clause }),
            tally: Tally::default(),
            has_lse: false,
            gradients: Vec::new(),
            findings: Vec::new(),
            not_discriminating: None,
            statistics: None,
        })
    }

    /// The verdict on a tally of the answer's rows, with a diagnosis where it fails.
    #[must_use]
    pub fn of_tally(tally: Tally, answer: &Answer<'_>) -> Self {
        let findings = if tally.failing.is_empty() { Vec::new() } else { findings(&tally, answer) };
        Self { findings, ..Self::undiagnosed(tally, answer) }
    }

    /// The same without a diagnosis: for rows that are compared with something else than their exact
    /// answer, and that may be longer than one would model fault by fault.
    #[must_use]
    pub(super) fn undiagnosed(tally: Tally, answer: &Answer<'_>) -> Self {
        Self {
            verdict: verdict(&tally),
            no_answer: None,
            has_lse: answer.outputs.lse.is_some(),
            gradients: Vec::new(),
            findings: Vec::new(),
            not_discriminating: None,
            statistics: None,
            tally,
        }
    }

    /// The same with the comparison of a poisoned run added.
    #[must_use]
    pub(super) fn with_poisoned(self, poisoned: Tally) -> Self {
        let tally = self.tally.merged(poisoned);
        Self { verdict: verdict(&tally), tally, ..self }
    }

    /// The same with the tally of a backward pass added, and a diagnosis where that fails.
    #[must_use]
    pub fn with_gradients(mut self, gradients: Tally, answer: &GradientAnswer<'_>) -> Self {
        self.findings.extend(gradient_findings(&gradients, answer));
        let tally = self.tally.merged(gradients);
        let Gradients { query: _, key: _, value: _, bias, sink } = answer.gradients;
        let of_all = [Quantity::QueryGradient, Quantity::KeyGradient, Quantity::ValueGradient];
        let of_bias = bias.as_ref().map(|_| Quantity::BiasGradient);
        let of_sink = sink.as_ref().map(|_| Quantity::SinkGradient);
        let gradients = of_all.into_iter().chain(of_bias).chain(of_sink).collect();
        Self { verdict: verdict(&tally), tally, gradients, ..self }
    }

    /// The same with the comparison of gradients of two runs added.
    #[must_use]
    pub(super) fn with_repeated_gradients(self, gradients: Tally) -> Self {
        let given = |&quantity: &Quantity| gradients.of(quantity).elements > 0;
        let of = Quantity::ALL.into_iter().filter(given).collect();
        let tally = self.tally.merged(gradients);
        Self { verdict: verdict(&tally), tally, gradients: of, ..self }
    }

    /// The same with tests by probability added; what they reject fails.
    #[must_use]
    pub(super) fn with_statistics(mut self, statistics: Statistics) -> Self {
        if let Statistics::Tested(tested) = &statistics {
            let rejected = tested.violations();
            if !rejected.is_empty() {
                self.verdict = Verdict::Fail;
            }
            self.tally.violations.extend(rejected);
            self.tally.violations.sort_by_key(|it| (it.clause, it.quantity));
        }
        Self { statistics: Some(statistics), ..self }
    }

    /// The report on a case.
    #[must_use]
    pub fn report(self, about: About) -> CaseReport {
        let of_backward = |quantity| {
            let given = self.gradients.contains(&quantity);
            given.then(|| self.tally.of(quantity).clone())
        };
        let About { name, policy, problem, why, source, clauses, reproduce } = about;
        CaseReport {
            name,
            verdict: self.verdict,
            policy,
            no_answer: self.no_answer,
            problem,
            why,
            source,
            clauses,
            query_gradient: of_backward(Quantity::QueryGradient),
            key_gradient: of_backward(Quantity::KeyGradient),
            value_gradient: of_backward(Quantity::ValueGradient),
            bias_gradient: of_backward(Quantity::BiasGradient),
            sink_gradient: of_backward(Quantity::SinkGradient),
            output: self.tally.output,
            lse: self.has_lse.then_some(self.tally.lse),
            violations: self.tally.violations,
            diagnosis: self.findings,
            not_discriminating: self.not_discriminating,
            statistics: self.statistics,
            reproduce,
        }
    }
}

/// What a report says of a case whatever it comes to.
#[derive(Clone, Debug)]
pub struct About {
    /// The case's name.
    pub name: String,
    /// The way in which the kernel computed, where it has several.
    pub policy: Option<String>,
    /// What was computed.
    pub problem: Problem,
    /// What the case is for.
    pub why: String,
    /// Public reports of the fault that it reproduces.
    pub source: Vec<String>,
    /// Clauses that it puts to the test, besides the bounds.
    pub clauses: Vec<&'static str>,
    /// The command that runs it alone.
    pub reproduce: String,
}

impl About {
    /// A case of a suite, put to `subject`.
    #[must_use]
    pub fn case(case: &Case, suite: Suite, subject: &str, tests: Tests) -> Self {
        Self {
            name: case.name.clone(),
            policy: None,
            problem: case.problem.clone(),
            why: case.why.clone(),
            source: case.source.clone(),
            clauses: case.clauses(),
            reproduce: reproduce(subject, suite, case, tests),
        }
    }
}

/// The command that runs one case of a suite alone.
fn reproduce(subject: &str, suite: Suite, case: &Case, tests: Tests) -> String {
    let tests = if tests.statistical { " --statistical" } else { "" };
    let suite = if suite == Suite::default() { String::new() } else { format!(" --suite {suite}") };
    let (subject, case, seed) = (quoted(subject), &case.name, case.seed);
    format!("flashproof check {subject} --case {case}{suite} --seed {seed}{tests}")
}

/// The word as a shell reads it back.
#[must_use]
pub fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "_-+=:,./@%".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

fn verdict(tally: &Tally) -> Verdict {
    let some = |count: fn(&Measured) -> usize| {
        Quantity::ALL.into_iter().any(|quantity| count(tally.of(quantity)) > 0)
    };
    if some(|measured| measured.wrong) {
        Verdict::Fail
    } else if some(|measured| measured.unbounded) {
        Verdict::NoBound
    } else {
        Verdict::Pass
    }
}

fn findings(tally: &Tally, answer: &Answer<'_>) -> Vec<Finding> {
    // No fault is modelled of inputs that do not stand for themselves.
    if answer.problem.quantization.is_some() {
        return Vec::new();
    }
    diagnosis::diagnose(&Evidence {
        problem: answer.problem,
        profile: answer.profile,
        inputs: answer.inputs,
        outputs: &as_specified(answer),
        failing: &tally.failing,
    })
}

fn gradient_findings(tally: &Tally, answer: &GradientAnswer<'_>) -> Vec<Finding> {
    if tally.failing_gradients.is_empty() {
        return Vec::new();
    }
    diagnose_gradients(&GradientEvidence {
        problem: answer.forward.problem,
        profile: answer.forward.profile,
        inputs: answer.forward.inputs,
        outputs: &as_specified(&answer.forward),
        cotangents: answer.cotangents,
        gradients: answer.gradients,
        failing: &tally.failing_gradients,
    })
}

/// The outputs with the LSE in nats, of positive sign and with any sink in it.
fn as_specified<'a>(answer: &Answer<'a>) -> Cow<'a, Outputs> {
    let Choices { lse_base, lse_sign, lse_sink, .. } = answer.choices;
    let sinks = lse_sink == LseSink::Excluded && answer.problem.sink.is_some();
    if lse_base == LseBase::Natural && lse_sign == LseSign::Plus && !sinks {
        return Cow::Borrowed(answer.outputs);
    }
    let unit = match lse_base {
        LseBase::Natural => 1.0,
        LseBase::Two => LN_2,
    };
    let factor = if lse_sign == LseSign::Minus { -unit } else { unit };
    let nats = |lse: &Tensor| {
        let mut values = lse.view3().mapv(|value| value * factor);
        for (head, mut rows) in values.axis_iter_mut(Axis(1)).enumerate() {
            let sink = answer.inputs.sink_at(answer.problem, head).filter(|_| sinks);
            rows.mapv_inplace(|lse| sink.map_or(lse, |logit| log_sum(lse, logit)));
        }
        Tensor::rounded(Format::F64, &values.into_dyn())
    };
    let lse = answer.outputs.lse.as_ref().map(nats);
    Cow::Owned(Outputs { output: answer.outputs.output.clone(), lse })
}

/// `ln(e^a + e^b)`.
fn log_sum(a: f64, b: f64) -> f64 {
    let (low, high) = (a.min(b), a.max(b));
    if low == f64::NEG_INFINITY { high } else { high + (low - high).exp().ln_1p() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_quoted_for_the_shell() {
        assert_eq!(quoted("builtin:tiled"), "builtin:tiled");
        assert_eq!(quoted("exec:python3 worker.py"), "'exec:python3 worker.py'");
        assert_eq!(quoted("it's"), r"'it'\''s'");
        assert_eq!(quoted(""), "''");
    }
}
