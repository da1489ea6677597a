//! Verdicts: each way to be wrong is found, at the clause that says so, where it is.

mod support;

use flashproof_conformance::adapter::{Choices, EmptyRow, Failure, LseBase, Subject};
use flashproof_conformance::case::Case;
use flashproof_conformance::inputs::poison::Poison;
use flashproof_conformance::inputs::{Family, Scores, Upstream, Values};
use flashproof_conformance::report::CaseReport;
use flashproof_conformance::run::run;
use flashproof_conformance::suite::Suite;
use flashproof_conformance::verdict::{Location, Position, Quantity, Verdict};
use flashproof_spec::format::Format;
use flashproof_spec::layout::{Layout, Ragged};
use flashproof_spec::mask::{Mask, Rule};
use flashproof_spec::problem::Problem;
use flashproof_spec::profile::{Accumulation, Profile};
use flashproof_spec::tensor::{Inputs, Outputs, Tensor};
use support::{Tampered, map, with_value_at};

const SEED: u64 = 1;

fn causal() -> Problem {
    let mut problem = Problem::new(Format::Bf16, 2, 5, 16);
    problem.key_len = 3;
    problem.mask = Mask::only(Rule::CausalBottomRight);
    problem
}

fn normal(problem: Problem) -> Case {
    Case::new(problem, Family::of(Scores::Normal), None, SEED)
}

fn judge(subject: &mut dyn Subject, case: Case) -> CaseReport {
    run(subject, Suite::Quick, &[case], |_| ()).unwrap().remove(0)
}

/// The report on a kernel whose answer is changed.
fn tampered(case: Case, tamper: impl Fn(Outputs) -> Outputs + Send) -> CaseReport {
    judge(&mut Tampered::new("naive", move |_, _, outputs| Ok(tamper(outputs))), case)
}

fn clauses(report: &CaseReport) -> Vec<&'static str> {
    report.violations.iter().map(|violation| violation.clause).collect()
}

fn output(outputs: Outputs, change: impl Fn(&Tensor) -> Tensor) -> Outputs {
    Outputs { output: change(&outputs.output), ..outputs }
}

fn lse(outputs: Outputs, change: impl Fn(&Tensor) -> Tensor) -> Outputs {
    Outputs { lse: outputs.lse.as_ref().map(change), ..outputs }
}

#[test]
fn a_right_answer_passes_with_headroom() {
    let report = tampered(normal(causal()), |outputs| outputs);
    assert_eq!((report.verdict, &report.violations[..]), (Verdict::Pass, &[][..]));
    let (output, lse) = (report.output, report.lse.unwrap());
    assert_eq!((output.elements, output.wrong, output.unbounded), (160, 0, 0));
    assert_eq!((lse.elements, lse.wrong, lse.unbounded), (10, 0, 0));
    let worst = output.worst.unwrap();
    assert!(worst.ratio > 0.0 && worst.ratio <= 1.0, "{worst:?}");
    assert_eq!(worst.ratio, worst.error.unwrap() / worst.bound.unwrap());
}

#[test]
fn one_element_off_is_found_where_it_is() {
    let at = [0, 1, 4, 7];
    let report = tampered(normal(causal()), |outputs| {
        output(outputs, |tensor| with_value_at(tensor, &at, 1.5 + tensor.values()[&at[..]]))
    });
    assert_eq!((report.verdict, report.output.wrong), (Verdict::Fail, 1));
    assert_eq!(clauses(&report), ["FAS:bound.fwd.output"]);
    let worst = &report.violations[0].worst;
    assert_eq!(
        worst.location,
        Location { batch: 0, head: 1, position: Position::Query(4), entry: Some(7) }
    );
    assert!(worst.ratio > 1.0);
    assert_eq!(report.output.worst.as_ref(), Some(worst));
}

#[test]
fn an_lse_off_is_found_though_the_output_is_right() {
    let report = tampered(normal(causal()), |outputs| lse(outputs, |it| map(it, |x| x + 0.01)));
    assert_eq!(clauses(&report), ["FAS:bound.fwd.lse"]);
    assert_eq!(report.violations[0].quantity, Quantity::Lse);
    // Two of five rows see no key, in either head: minus infinity stays what it is.
    assert_eq!(report.violations[0].elements, 6);
}

#[test]
fn nan_where_a_number_belongs_was_not_written_or_not_finite() {
    let at = [0, 0, 4, 0];
    for (value, clause) in [
        (f64::NAN, "FAS:fwd.output.written"),
        (f64::INFINITY, "FAS:fwd.output.finite"),
        (f64::NEG_INFINITY, "FAS:fwd.output.finite"),
    ] {
        let report = tampered(normal(causal()), |outputs| {
            output(outputs, |tensor| with_value_at(tensor, &at, value))
        });
        assert_eq!((report.verdict, &clauses(&report)[..]), (Verdict::Fail, &[clause][..]));
        assert_eq!(report.violations[0].worst.ratio, f64::INFINITY);
    }
}

#[test]
fn a_row_without_keys_is_exact() {
    for wrong in [f64::MIN_POSITIVE, 1.0, f64::NAN, f64::INFINITY] {
        let report = tampered(normal(causal()), |outputs| {
            output(outputs, |tensor| with_value_at(tensor, &[0, 0, 0, 3], wrong))
        });
        // The smallest f64 is zero in bf16.
        let expected =
            if wrong == f64::MIN_POSITIVE { vec![] } else { vec!["FAS:fwd.softmax.empty-row"] };
        assert_eq!(clauses(&report), expected, "{wrong}");
    }
    for wrong in [0.0, -1e30, f64::NAN, f64::INFINITY] {
        let report = tampered(normal(causal()), |outputs| {
            lse(outputs, |tensor| with_value_at(tensor, &[0, 0, 0], wrong))
        });
        assert_eq!(clauses(&report), ["FAS:fwd.softmax.empty-row"], "{wrong}");
    }
    let negative_zero = tampered(normal(causal()), |outputs| {
        output(outputs, |tensor| with_value_at(tensor, &[0, 0, 0, 3], -0.0))
    });
    assert_eq!(negative_zero.verdict, Verdict::Pass);
}

#[test]
fn a_declared_nan_row_is_nan_and_nothing_else() {
    let choices = Choices { empty_row: EmptyRow::Nan, ..Choices::default() };
    let zero = |_: &Problem, _: &Inputs, outputs: Outputs| Ok::<_, Failure>(outputs);
    let report = judge(&mut Tampered::new("naive", zero).declaring(choices), normal(causal()));
    assert_eq!(clauses(&report), ["FAS:fwd.softmax.empty-row"]);
    let nan = |_: &Problem, _: &Inputs, outputs: Outputs| {
        Ok::<_, Failure>(output(outputs, |tensor| {
            let mut values = tensor.values().clone();
            values.slice_mut(ndarray::s![.., .., 0..2, ..]).fill(f64::NAN);
            Tensor::rounded(tensor.format(), &values)
        }))
    };
    let report = judge(&mut Tampered::new("naive", nan).declaring(choices), normal(causal()));
    assert_eq!(report.verdict, Verdict::Pass);
}

#[test]
fn an_lse_is_compared_in_its_declared_base() {
    let to_two = |outputs| lse(outputs, |it| map(it, |x| x / std::f64::consts::LN_2));
    let undeclared = tampered(normal(causal()), to_two);
    assert_eq!(undeclared.verdict, Verdict::Fail);
    assert_eq!(clauses(&undeclared), ["FAS:bound.fwd.lse"]);
    assert_eq!(undeclared.diagnosis[0].clause, "FAS:choice.lse.base");
    let choices = Choices { lse_base: LseBase::Two, ..Choices::default() };
    let mut subject =
        Tampered::new("naive", |_, _, outputs| Ok(to_two(outputs))).declaring(choices);
    assert_eq!(judge(&mut subject, normal(causal())).verdict, Verdict::Pass);
    let mut natural = Tampered::new("naive", |_, _, outputs| Ok(outputs)).declaring(choices);
    let report = judge(&mut natural, normal(causal()));
    assert_eq!((report.verdict, report.output.wrong), (Verdict::Fail, 0));
}

#[test]
fn an_lse_that_is_not_offered_is_counted_and_not_passed_off() {
    let report = tampered(normal(causal()), |outputs| Outputs { lse: None, ..outputs });
    assert_eq!((report.verdict, report.lse), (Verdict::Pass, None));
}

#[test]
fn special_values_that_are_lost_are_found() {
    let problem = || Problem::new(Format::F32, 1, 3, 4);
    let finite = |x: f64| if x.is_finite() { x } else { 0.0 };
    for (family, clause) in [
        (Family::of(Scores::NanQuery), "FAS:fwd.special.nan"),
        (Family::of(Scores::NanKey), "FAS:fwd.special.nan"),
        (Family { scores: Scores::Normal, values: Values::Nan }, "FAS:fwd.special.nan"),
        (Family { scores: Scores::Normal, values: Values::Infinity }, "FAS:fwd.special.infinity"),
    ] {
        let case = || Case::new(problem(), family, None, SEED);
        assert_eq!(tampered(case(), |outputs| outputs).verdict, Verdict::Pass, "{family}");
        let report = tampered(case(), |outputs| {
            lse(output(outputs, |it| map(it, finite)), |it| map(it, finite))
        });
        assert_eq!(clauses(&report).first(), Some(&clause), "{family}");
    }
}

#[test]
fn nan_in_one_column_must_not_spread() {
    let family = Family { scores: Scores::Normal, values: Values::Nan };
    let case = Case::new(Problem::new(Format::F32, 1, 3, 4), family, None, SEED);
    let report = tampered(case, |outputs| output(outputs, |it| map(it, |_| f64::NAN)));
    assert_eq!(clauses(&report), ["FAS:fwd.output.written"]);
    assert_eq!(report.output.wrong, 9);
}

#[test]
fn poison_that_shows_is_found() {
    let mut problem = causal();
    problem.mask.rules.push(Rule::KeyLengths(vec![2]));
    for poison in Poison::ALL {
        let case = || Case::new(problem.clone(), Family::of(Scores::Normal), Some(poison), SEED);
        assert_eq!(tampered(case(), |outputs| outputs).verdict, Verdict::Pass, "{poison:?}");
        // A kernel that multiplies every value by a weight, zero where the key is invisible.
        let mut leaky = Tampered::new("naive", |_, inputs: &Inputs, outputs| {
            let leak = 0.0 * inputs.value.values().sum();
            Ok(output(outputs, |tensor| map(tensor, |x| x + leak)))
        });
        let report = judge(&mut leaky, case());
        assert_eq!(clauses(&report), ["FAS:fwd.special.invisible"], "{poison:?}");
        // One that hides what it should not have seen.
        let report = tampered(case(), |outputs| {
            output(outputs, |it| map(it, |x| if x.is_nan() { 0.0 } else { x }))
        });
        let lost = if poison == Poison::PartlySeen { vec!["FAS:fwd.special.nan"] } else { vec![] };
        assert_eq!(clauses(&report), lost, "{poison:?}");
    }
}

#[test]
fn poison_is_found_by_the_last_bit() {
    let mut problem = Problem::new(Format::F32, 1, 3, 4);
    problem.mask = Mask::only(Rule::KeyLengths(vec![2]));
    let case = Case::new(problem, Family::of(Scores::Normal), Some(Poison::Unseen), SEED);
    let mut influenced = Tampered::new("naive", |_, inputs: &Inputs, outputs| {
        let poisoned = inputs.value.values().iter().any(|value| value.is_nan());
        let nudge = |x: f64| f64::from((x as f32).next_up());
        Ok(if poisoned { output(outputs, |tensor| map(tensor, nudge)) } else { outputs })
    });
    let report = judge(&mut influenced, case);
    assert_eq!(clauses(&report), ["FAS:fwd.special.invisible"]);
    assert_eq!(report.output.wrong, 12);
}

#[test]
fn a_case_without_an_answer_has_the_verdict_of_what_happened() {
    let failures = [
        (Failure::Unsupported("float 8".to_owned()), Verdict::Unsupported),
        (Failure::Crashed("signal 11".to_owned()), Verdict::Crashed),
        (Failure::Reported("out of memory".to_owned()), Verdict::Crashed),
        (Failure::TimedOut { seconds: 1.0 }, Verdict::TimedOut),
        (Failure::InputChanged("query".to_owned()), Verdict::Fail),
    ];
    for (failure, verdict) in failures {
        let mut subject = Tampered::new("naive", |_, _, _| Err(failure.clone()));
        let cases = [normal(causal()), normal(Problem::new(Format::F32, 1, 1, 1))];
        let reports = run(&mut subject, Suite::Quick, &cases, |_| ()).unwrap();
        // One failed case does not end the run.
        assert_eq!(reports.len(), 2);
        for report in reports {
            assert_eq!(report.verdict, verdict);
            let no_answer = report.no_answer.unwrap();
            assert_eq!(no_answer.reason, failure.to_string());
            let changed = verdict == Verdict::Fail;
            assert_eq!(no_answer.clause, changed.then_some("FAS:fwd.input.unchanged"));
        }
    }
}

#[test]
fn a_profile_that_admits_any_error_is_never_a_pass() {
    // Each product is truncated to one bit: errors as large as the sum.
    let accumulation = Accumulation::TensorCore { chunk: 1, fraction_bits: 1, output_bits: 1 };
    let profile = Profile { value_accumulation: accumulation, ..Profile::standard(Format::Bf16) };
    let right = |_: &Problem, _: &Inputs, outputs: Outputs| Ok::<_, Failure>(outputs);
    let mut subject = Tampered::new("naive", right).computing(profile.clone());
    let report = judge(&mut subject, normal(causal()));
    assert_eq!((report.verdict, report.output.wrong), (Verdict::NoBound, 0));
    // Three of five rows see keys.
    assert_eq!(report.output.unbounded, 2 * 3 * 16);
    // What needs no bound is still judged.
    let dirty = |_: &Problem, _: &Inputs, outputs: Outputs| {
        Ok::<_, Failure>(output(outputs, |tensor| with_value_at(tensor, &[0, 0, 0, 3], 1.0)))
    };
    let mut subject = Tampered::new("naive", dirty).computing(profile);
    let report = judge(&mut subject, normal(causal()));
    assert_eq!(clauses(&report), ["FAS:fwd.softmax.empty-row"]);
    assert_eq!(report.verdict, Verdict::Fail);
}

#[test]
fn a_kernel_that_declares_flushing_is_not_asked_for_subnormals() {
    let right = |_: &Problem, _: &Inputs, outputs: Outputs| Ok::<_, Failure>(outputs);
    for (format, flush_to_zero, verdict) in [
        (Format::Bf16, true, Verdict::Unsupported),
        (Format::Bf16, false, Verdict::Pass),
        // Subnormal in f16, normal in the f32 that it is computed in.
        (Format::F16, true, Verdict::Pass),
    ] {
        let profile = Profile { flush_to_zero, ..Profile::standard(format) };
        let mut subject = Tampered::new("naive", right).computing(profile);
        let problem = Problem::new(format, 1, 3, 4);
        let case = Case::new(problem, Family::of(Scores::Subnormal), None, SEED);
        assert_eq!(judge(&mut subject, case).verdict, verdict, "{format} {flush_to_zero}");
    }
}

#[test]
fn a_fault_that_is_not_the_kernels_ends_the_run_with_an_error() {
    let mut subject =
        Tampered::new("naive", |_, _, _| Err(Failure::Environment("disk full".to_owned())));
    let error = run(&mut subject, Suite::Quick, &[normal(causal())], |_| ()).unwrap_err();
    assert!(error.to_string().contains("disk full"), "{error}");
}

/// Batch members of three and five queries, on two and three keys, one after another.
fn ragged() -> Problem {
    let mut problem = causal();
    (problem.batch, problem.mask) =
        (2, Mask { rules: vec![Rule::QueryLengths(vec![3, 5]), Rule::KeyLengths(vec![2, 3])] });
    problem.layout = Layout::Ragged(Ragged {
        query_starts: vec![0, 3],
        query_rows: 8,
        key_starts: vec![0, 2],
        key_rows: 5,
    });
    problem
}

#[test]
fn rows_without_storage_are_not_judged() {
    let report = tampered(normal(ragged()), |outputs| outputs);
    assert_eq!(report.verdict, Verdict::Pass, "{report:#?}");
    assert_eq!((report.output.elements, report.lse.unwrap().elements), (2 * 8 * 16, 2 * 8));
    let past = tampered(normal(ragged()), |outputs| {
        output(outputs, |tensor| with_value_at(tensor, &[0, 1, 3, 0], f64::NAN))
    });
    assert_eq!(past.verdict, Verdict::Pass, "{past:#?}");
    let within = tampered(normal(ragged()), |outputs| {
        output(outputs, |tensor| with_value_at(tensor, &[0, 1, 2, 0], f64::NAN))
    });
    assert_eq!(clauses(&within), ["FAS:fwd.output.written"]);
    let backward = normal(ragged()).with_upstream(Upstream::Output);
    let report = tampered(backward, |outputs| outputs);
    assert_eq!(report.verdict, Verdict::Pass, "{report:#?}");
    let counts = [report.query_gradient, report.key_gradient, report.value_gradient]
        .map(|it| it.expect("a backward pass").elements);
    assert_eq!(counts, [2 * 8 * 16, 2 * 5 * 16, 2 * 5 * 16]);
}
