//! Faults of forward passes over the suite: most cases that they concern fail, most of those name the
//! fault, and without a fault every case passes.

mod support;

use flashproof_conformance::adapter::builtin::Builtin;
use flashproof_conformance::adapter::{Backward, Choices, Failure, Subject};
use flashproof_conformance::case::Case;
use flashproof_conformance::report::CaseReport;
use flashproof_conformance::run::run;
use flashproof_conformance::suite::{DEFAULT_SEED, Direction, Suite, cases};
use flashproof_conformance::verdict::Verdict;
use flashproof_spec::format::Format;
use flashproof_spec::mask::{Mask, Rule, Site, Window};
use flashproof_spec::problem::Problem;
use flashproof_spec::profile::Profile;
use flashproof_spec::tensor::{Cotangents, Inputs, Outputs};
use support::simulated::{Committed, NONE, Parts};

/// A forward pass with a fault.
struct Simulated(Committed);

impl Subject for Simulated {
    fn name(&self) -> &'static str {
        "simulated"
    }

    fn description(&self) -> &'static str {
        "a forward pass with a fault"
    }

    fn profile(&mut self, format: Format) -> Result<Profile, Failure> {
        Ok(Profile::standard(format))
    }

    fn choices(&self) -> Choices {
        Choices::default()
    }

    fn forward(&mut self, problem: &Problem, inputs: &Inputs) -> Result<Outputs, Failure> {
        Ok(self.0.forward(problem, inputs))
    }

    fn backward(
        &mut self,
        problem: &Problem,
        inputs: &Inputs,
        cotangents: &Cotangents,
    ) -> Result<Backward, Failure> {
        Builtin::open("naive").expect("a built-in kernel").backward(problem, inputs, cotangents)
    }
}

/// Some of the forward cases of finite numbers, without poison, that a fault concerns.
fn sampled(concerns: fn(&Problem) -> bool, every: usize) -> Vec<Case> {
    let mut cases = cases(Suite::Quick, &[Format::Bf16], DEFAULT_SEED);
    cases.retain(|case| {
        let is_small = case.problem.key_len < 140 && case.problem.query_len < 140;
        let is_forward = !Direction::Backward.includes(case) && case.poison.is_none();
        let is_special = case.clauses().iter().any(|clause| clause.contains(":fwd.special."));
        is_forward && !is_special && is_small && concerns(&case.problem)
    });
    cases.into_iter().step_by(every).collect()
}

#[test]
fn without_a_fault_everything_passes() {
    let cases = sampled(|_| true, 4);
    let reports = run(&mut Simulated(NONE), Suite::Quick, &cases, |_| ()).unwrap();
    for report in &reports {
        assert_eq!(report.violations, [], "{report:#?}");
        // Some data leaves a profile no bound, and what is not declared is not asked.
        let other = [Verdict::NoBound, Verdict::Unsupported].contains(&report.verdict);
        assert!(report.verdict == Verdict::Pass || other, "{report:#?}");
    }
    let passed = reports.iter().filter(|report| report.verdict == Verdict::Pass).count();
    assert!(4 * passed > 3 * reports.len(), "{passed} of {} pass", reports.len());
}

fn has(problem: &Problem, rule: fn(&Rule) -> bool) -> bool {
    problem.mask.rules.iter().any(rule)
}

fn seeing(sees: fn(&Problem, Site) -> bool) -> Committed {
    Committed { sees, ..NONE }
}

#[test]
fn every_fault_fails_most_of_what_it_concerns() {
    let wider = |problem: &Problem, site: Site| {
        let wider = |rule: &Rule| match rule {
            Rule::Window(window) => {
                Rule::Window(Window { left: window.left.map(|left| left + 1), ..*window })
            }
            rule => rule.clone(),
        };
        let rules = problem.mask.rules.iter().map(wider).collect();
        Mask { rules }.admits(site, problem.query_len, problem.key_len)
    };
    let is_window: fn(&Problem) -> bool =
        |it| has(it, |rule| matches!(rule, Rule::Window(window) if window.left.is_some()));
    let is_bias: fn(&Problem) -> bool = |it| it.bias.is_some();
    let with_heads: fn(&Problem) -> bool = |it| it.bias.is_some_and(|bias| bias.shape[1] > 1);
    let of_head_0: fn(&Problem, Site) -> Site = |_, site| Site { head: 0, ..site };
    for (fault, clause, concerns) in [
        (seeing(wider), "FAS:mask.window.inclusive", is_window),
        (
            Committed { score: |it| Parts { bias: 0.0, ..it }.score(), ..NONE },
            "FAS:score.bias.add",
            is_bias,
        ),
        (Committed { bias_site: of_head_0, ..NONE }, "FAS:score.bias.broadcast", with_heads),
        (Committed { alibi: |_, _| 0.0, ..NONE }, "FAS:score.alibi.distance", |it| {
            it.alibi.is_some()
        }),
        (
            Committed { score: |it| Parts { softcap: None, ..it }.score(), ..NONE },
            "FAS:score.softcap.tanh",
            |it| it.softcap.is_some_and(|softcap| softcap.cap < 10.0),
        ),
        (Committed { sinks: |_| Vec::new(), ..NONE }, "FAS:score.sink.normalizer", |it| {
            it.sink.is_some()
        }),
        (
            Committed { sinks: |it| it.into_iter().cycle().take(2).collect(), ..NONE },
            "FAS:score.sink.once",
            |it| it.sink.is_some(),
        ),
        (Committed { kept: |_, _| (1.0, true), ..NONE }, "FAS:score.dropout.keep", |it| {
            it.dropout.is_some()
        }),
    ] {
        let cases = sampled(concerns, 4);
        let reports = run(&mut Simulated(fault), Suite::Quick, &cases, |_| ()).unwrap();
        let failing: Vec<_> =
            reports.iter().filter(|report| report.verdict == Verdict::Fail).collect();
        let is_named = |report: &&&CaseReport| {
            report.diagnosis.first().is_some_and(|finding| finding.clause == clause)
        };
        let named = failing.iter().filter(is_named).count();
        println!("{clause}: {} of {} cases fail, {named} named", failing.len(), reports.len());
        for report in failing.iter().filter(|report| !is_named(report)) {
            let found: Vec<_> = report.diagnosis.iter().map(|finding| finding.fault).collect();
            println!("  not named in {}: {found:?}", report.name);
        }
        assert!(2 * failing.len() > reports.len(), "{clause} fails {} cases", failing.len());
        assert!(2 * named > failing.len(), "{clause} is named in {named} of {}", failing.len());
    }
}
