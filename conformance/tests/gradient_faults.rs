//! Faults of backward passes, end to end: each fails, and is named by the clause that it violates.

mod support;

use flashproof_conformance::adapter::Subject;
use flashproof_conformance::adapter::builtin::Builtin;
use flashproof_conformance::case::{Case, FORMATS};
use flashproof_conformance::inputs::{Family, Scores, Upstream};
use flashproof_conformance::report::CaseReport;
use flashproof_conformance::run::run;
use flashproof_conformance::suite::{DEFAULT_SEED, Direction, Suite, cases};
use flashproof_conformance::verdict::{Quantity, Verdict};
use flashproof_spec::format::Format;
use flashproof_spec::mask::{Alignment, Mask, Rule};
use flashproof_spec::pattern::Pattern;
use flashproof_spec::problem::Problem;
use flashproof_spec::score::{Alibi, Bias, Dropout, Sink, Slopes, Softcap, SoftcapOrder};
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

/// As [`assert_named`], of a built-in mutant.
fn assert_mutant_named(name: &str, clause: &str) {
    for format in FORMATS {
        let mut mutant = Builtin::open(&format!("mutant:{name}")).expect("a mutant");
        let report = judge(&mut mutant, normal(problem(format), Upstream::Output));
        let found = report.diagnosis.first().map(|finding| finding.clause);
        assert_eq!(found, Some(clause), "{name}: {report:#?}");
    }
}

#[test]
fn delta_of_the_gradient() {
    assert_mutant_named("delta-do-do", "FAS:bwd.delta.rowsum");
}

#[test]
fn lse_in_another_base() {
    assert_mutant_named("lse-read-base2", "FAS:bwd.probability.recompute");
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

/// Bias shared by heads, softcap, sinks and dropout, on grouped heads.
fn modified(format: Format) -> Problem {
    let keep = Pattern::from_fn([1, 6, 21, 18], |[_, head, query, key]| {
        (head + 2 * query + 3 * key) % 5 > 1
    });
    Problem {
        bias: Some(Bias { shape: [1, 1, 21, 18], format }),
        softcap: Some(Softcap { cap: 2.0, order: SoftcapOrder::BeforeBias }),
        alibi: Some(Alibi { slopes: Slopes::Standard, alignment: Alignment::BottomRight }),
        sink: Some(Sink::Logits(format)),
        dropout: Some(Dropout { scale: 2.0, keep }),
        ..problem(format)
    }
}

#[test]
fn without_a_fault_modified_scores_pass() {
    for format in FORMATS {
        for order in [SoftcapOrder::BeforeBias, SoftcapOrder::AfterBias] {
            let softcap = Some(Softcap { cap: 2.0, order });
            let case = normal(Problem { softcap, ..modified(format) }, Upstream::OutputAndLse);
            let report = judge(&mut Faulty::new(Fault::None), case);
            assert_eq!(report.verdict, Verdict::Pass, "{report:#?}");
            for quantity in [Quantity::BiasGradient, Quantity::SinkGradient] {
                let measured = report.of(quantity).expect("a backward pass");
                assert!(measured.elements > 0 && measured.unbounded == 0, "{measured:?}");
            }
        }
    }
}

#[test]
fn faults_of_modified_scores_are_named() {
    for (fault, clause) in [
        (Fault::DbiasOverwrite, "FAS:bwd.bias.reduce"),
        (Fault::DbiasZero, "FAS:bwd.bias.gradient"),
        (Fault::DsinkZero, "FAS:bwd.sink.gradient"),
        (Fault::DsinkSign, "FAS:bwd.sink.gradient"),
        (Fault::NoSlope, "FAS:bwd.softcap.slope"),
        (Fault::DropoutOnWeights, "FAS:bwd.dropout.keep"),
        (Fault::DropoutIgnored, "FAS:bwd.dropout.keep"),
        // Those of every problem are found beside the modifications.
        (Fault::NoDelta, "FAS:bwd.score.gradient"),
        (Fault::DlseIgnored, "FAS:bwd.lse.gradient"),
        (Fault::DkUnscaled, "FAS:bwd.key.scale"),
        (Fault::Overwrite, "FAS:bwd.head.group-sum"),
    ] {
        for format in FORMATS {
            assert_named(fault, normal(modified(format), Upstream::OutputAndLse), clause);
        }
    }
}

#[test]
fn a_group_that_is_overwritten() {
    let clause = "FAS:bwd.head.group-sum";
    assert_named_in_every_format(Fault::Overwrite, Upstream::Output, clause);
}

/// On a sample of the suite.
#[test]
fn without_a_fault_the_suite_passes() {
    let mut cases = cases(Suite::Quick, &[Format::Bf16], DEFAULT_SEED);
    cases.retain(|case| Direction::Backward.includes(case) && case.problem.key_len < 100);
    let cases: Vec<_> = cases.into_iter().step_by(8).collect();
    for report in run(&mut Faulty::new(Fault::None), Suite::Quick, &cases, |_| ()).unwrap() {
        assert_eq!(report.violations, [], "{report:#?}");
    }
}

/// Over the suite, not on a case made for it: most cases fail, and most of those name the fault.
#[test]
fn every_fault_fails_most_of_the_suite() {
    /// A sample of the suite, so that this takes seconds.
    const EVERY: usize = 8;
    let any: fn(&Problem) -> bool = |_| true;
    for (fault, clause, concerns) in [
        (Fault::NoDelta, "FAS:bwd.score.gradient", any),
        (Fault::DkUnscaled, "FAS:bwd.key.scale", any),
        (Fault::DqZero, "FAS:bwd.query.gradient", any),
        (Fault::DlseIgnored, "FAS:bwd.lse.gradient", any),
        (Fault::PadZero, "FAS:bwd.probability.mask", any),
        (Fault::MaskShift, "FAS:bwd.probability.mask", any),
        (Fault::DeltaStale, "FAS:bwd.delta.rowsum", any),
        (Fault::DvBf16, "FAS:bwd.accumulator.precision", any),
        (Fault::Overwrite, "FAS:bwd.head.group-sum", |it| it.key_heads < it.query_heads),
        (Fault::DbiasZero, "FAS:bwd.bias.gradient", |it| it.bias.is_some()),
        (Fault::DsinkZero, "FAS:bwd.sink.gradient", |it| matches!(it.sink, Some(Sink::Logits(_)))),
        (Fault::NoSlope, "FAS:bwd.softcap.slope", |it| it.softcap.is_some()),
        (Fault::DropoutOnWeights, "FAS:bwd.dropout.keep", |it| it.dropout.is_some()),
    ] {
        let format = if fault == Fault::DvBf16 { Format::F16 } else { Format::Bf16 };
        let mut cases = cases(Suite::Quick, &[format], DEFAULT_SEED);
        cases.retain(|case| {
            let is_small = case.problem.key_len < 100;
            Direction::Backward.includes(case) && is_small && concerns(&case.problem)
        });
        let cases: Vec<_> = cases.into_iter().step_by(EVERY).collect();
        let reports = run(&mut Faulty::new(fault), Suite::Quick, &cases, |_| ()).unwrap();
        let failing: Vec<_> =
            reports.iter().filter(|report| report.verdict == Verdict::Fail).collect();
        let is_named = |report: &&&CaseReport| {
            report.diagnosis.first().is_some_and(|finding| finding.clause == clause)
        };
        let named = failing.iter().filter(is_named).count();
        println!("{fault:?}: {} of {} cases fail, {named} named", failing.len(), reports.len());
        for report in failing.iter().filter(|report| !is_named(report)) {
            let found: Vec<_> = report.diagnosis.iter().map(|finding| finding.fault).collect();
            println!("  not named in {}: {found:?}", report.name);
        }
        assert!(2 * failing.len() > reports.len(), "{fault:?} fails {} cases", failing.len());
        assert!(2 * named > failing.len(), "{fault:?} is named in {named} of {}", failing.len());
    }
}
