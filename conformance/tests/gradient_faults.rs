//! Faults of backward passes, end to end: each fails, and is named by the clause that it violates.

mod support;

use flashproof_conformance::adapter::Subject;
use flashproof_conformance::case::{Case, FORMATS};
use flashproof_conformance::inputs::{Family, Scores, Upstream};
use flashproof_conformance::report::CaseReport;
use flashproof_conformance::run::run;
use flashproof_conformance::suite::{DEFAULT_SEED, Direction, Suite, cases};
use flashproof_conformance::verdict::{Quantity, Verdict};
use flashproof_spec::format::Format;
use flashproof_spec::mask::{Mask, Rule};
use flashproof_spec::problem::Problem;
use support::faulty::{Fault, Faulty};

const SEED: u64 = 1;

/// Grouped heads over a causal mask, with rows that see no key.
fn problem(format: Format) -> Problem {
    let mut problem = Problem::new(format, 6, 21, 16);
    (problem.key_heads, problem.key_len, problem.value_dim) = (2, 18, 24);
    problem.mask = Mask::only(Rule::CausalBottomRight);
    problem
}

fn normal(problem: Problem, upstream: Upstream) -> Case {
    Case::new(problem, Family::of(Scores::Normal), None, SEED).with_upstream(upstream)
}

fn judge(subject: &mut dyn Subject, case: Case) -> CaseReport {
    run(subject, Suite::Quick, &[case], |_| ()).unwrap().remove(0)
}

/// The fault fails the case, and its clause is the first that is found to explain it.
fn assert_named(fault: Fault, case: Case, clause: &str) {
    let report = judge(&mut Faulty::new(fault), case);
    assert_eq!(report.verdict, Verdict::Fail, "{fault:?}: {report:#?}");
    let found: Vec<_> = report.diagnosis.iter().map(|finding| finding.clause).collect();
    assert_eq!(found.first(), Some(&clause), "{fault:?} on {}: {found:?}", report.name);
    assert_eq!(report.output.wrong, 0);
}

fn assert_named_in_every_format(fault: Fault, upstream: Upstream, clause: &str) {
    for format in FORMATS {
        assert_named(fault, normal(problem(format), upstream), clause);
    }
}

#[test]
fn without_a_fault_it_passes() {
    for format in FORMATS {
        for upstream in Upstream::ALL {
            let report = judge(&mut Faulty::new(Fault::None), normal(problem(format), upstream));
            assert_eq!(report.verdict, Verdict::Pass, "{report:#?}");
        }
    }
}

#[test]
fn no_delta() {
    assert_named_in_every_format(Fault::NoDelta, Upstream::Output, "FAS:bwd.score.gradient");
}

#[test]
fn dk_unscaled() {
    assert_named_in_every_format(Fault::DkUnscaled, Upstream::Output, "FAS:bwd.key.scale");
}

#[test]
fn dq_zero() {
    assert_named_in_every_format(Fault::DqZero, Upstream::Output, "FAS:bwd.query.gradient");
}

#[test]
fn dlse_ignored() {
    let clause = "FAS:bwd.lse.gradient";
    assert_named_in_every_format(Fault::DlseIgnored, Upstream::OutputAndLse, clause);
}

#[test]
fn mask_shift() {
    assert_named_in_every_format(Fault::MaskShift, Upstream::Output, "FAS:bwd.probability.mask");
}

#[test]
fn delta_stale() {
    assert_named_in_every_format(Fault::DeltaStale, Upstream::Output, "FAS:bwd.delta.rowsum");
}

#[test]
fn padding_that_scores_zero() {
    let clause = "FAS:bwd.probability.mask";
    assert_named_in_every_format(Fault::PadZero, Upstream::Output, clause);
    for case in reported(45, &FORMATS) {
        assert_named(Fault::PadZero, case, clause);
    }
}

/// The quick suite's cases of the backward pass that reproduce a reported fault.
fn reported(bug: u32, formats: &[Format]) -> Vec<Case> {
    let mut cases = cases(Suite::Quick, formats, DEFAULT_SEED);
    cases.retain(|case| case.bug == Some(bug) && Direction::Backward.includes(case));
    assert!(cases.len() >= formats.len());
    cases
}

/// Half a tile of padding under scores near -120: `e^120` is infinite in `f32`, and infinity times a
/// key of zeros is NaN.
#[test]
fn padding_that_overflows() {
    for case in reported(44, &[Format::F32, Format::F16, Format::Bf16]) {
        assert_eq!(judge(&mut Faulty::new(Fault::None), case.clone()).verdict, Verdict::Pass);
        let report = judge(&mut Faulty::new(Fault::PadZero), case);
        let violated: Vec<_> =
            report.violations.iter().map(|it| (it.clause, it.quantity, it.elements)).collect();
        let all = report.query_gradient.expect("a backward pass").elements;
        assert_eq!(violated, [("FAS:bwd.output.written", Quantity::QueryGradient, all)]);
    }
}

/// `dV` of many rows with terms of one sign: the sum outgrows eight bits.
#[test]
fn dv_accumulated_in_bf16() {
    let problem = Problem::new(Format::F16, 2, 130, 16);
    let case = normal(problem, Upstream::Positive);
    assert_named(Fault::DvBf16, case, "FAS:bwd.accumulator.precision");
}

/// Over the suite, not on a case made for it: most cases fail, and most of those name the fault.
#[test]
fn every_fault_fails_most_of_the_suite() {
    for (fault, clause) in [
        (Fault::NoDelta, "FAS:bwd.score.gradient"),
        (Fault::DkUnscaled, "FAS:bwd.key.scale"),
        (Fault::DqZero, "FAS:bwd.query.gradient"),
        (Fault::DlseIgnored, "FAS:bwd.lse.gradient"),
        (Fault::PadZero, "FAS:bwd.probability.mask"),
        (Fault::MaskShift, "FAS:bwd.probability.mask"),
        (Fault::DeltaStale, "FAS:bwd.delta.rowsum"),
        (Fault::DvBf16, "FAS:bwd.accumulator.precision"),
    ] {
        let format = if fault == Fault::DvBf16 { Format::F16 } else { Format::Bf16 };
        let mut cases = cases(Suite::Quick, &[format], DEFAULT_SEED);
        cases.retain(|case| Direction::Backward.includes(case) && case.problem.key_len < 100);
        let reports = run(&mut Faulty::new(fault), Suite::Quick, &cases, |_| ()).unwrap();
        let failing: Vec<_> =
            reports.iter().filter(|report| report.verdict == Verdict::Fail).collect();
        let named = |report: &&&CaseReport| {
            report.diagnosis.first().is_some_and(|finding| finding.clause == clause)
        };
        let named = failing.iter().filter(named).count();
        println!("{fault:?}: {} of {} cases fail, {named} named", failing.len(), reports.len());
        assert!(2 * failing.len() > reports.len(), "{fault:?} fails {} cases", failing.len());
        assert!(2 * named > failing.len(), "{fault:?} is named in {named} of {}", failing.len());
    }
}
