//! Verdicts on gradients: each way to be wrong is found, at the clause that says so, where it is.

mod support;

use std::f64::consts::LN_2;

use flashproof_conformance::adapter::{Backward, Choices, Failure, LseBase, Subject};
use flashproof_conformance::case::Case;
use flashproof_conformance::inputs::poison::Poison;
use flashproof_conformance::inputs::{Family, Scores, Upstream, Values};
use flashproof_conformance::report::CaseReport;
use flashproof_conformance::run::run;
use flashproof_conformance::suite::Suite;
use flashproof_conformance::verdict::{Location, Measured, Position, Quantity, Verdict};
use flashproof_spec::format::Format;
use flashproof_spec::mask::{Mask, Rule};
use flashproof_spec::problem::Problem;
use flashproof_spec::profile::{Accumulation, Profile};
use flashproof_spec::score::{Bias, Sink};
use flashproof_spec::tensor::{Gradients, Outputs, Tensor};
use support::backward::TamperedBackward;
use support::{map, with_value_at};

const SEED: u64 = 1;

/// Two query heads on one key head; the first two of five queries see no key, and no query sees the
/// last of four keys.
fn problem(format: Format) -> Problem {
    let mut problem = Problem::new(format, 2, 5, 16);
    (problem.key_heads, problem.key_len) = (1, 4);
    problem.mask = Mask { rules: vec![Rule::CausalBottomRight, Rule::KeyLengths(vec![3])] };
    problem
}

fn normal(problem: Problem) -> Case {
    Case::new(problem, Family::of(Scores::Normal), None, SEED).with_upstream(Upstream::OutputAndLse)
}

fn judge(subject: &mut dyn Subject, case: Case) -> CaseReport {
    run(subject, Suite::Quick, &[case], |_| ()).unwrap().remove(0)
}

/// The report on a kernel whose gradients are changed.
fn tampered(case: Case, tamper: impl Fn(Gradients) -> Gradients + Send) -> CaseReport {
    let tamper = move |backward: Backward| {
        Ok(Backward { gradients: tamper(backward.gradients), ..backward })
    };
    judge(&mut TamperedBackward::new("naive", tamper), case)
}

fn clauses(report: &CaseReport) -> Vec<&'static str> {
    report.violations.iter().map(|violation| violation.clause).collect()
}

const GRADIENTS: [Quantity; 3] =
    [Quantity::QueryGradient, Quantity::KeyGradient, Quantity::ValueGradient];

/// The gradients with one of them changed.
fn change(gradients: Gradients, of: Quantity, change: impl Fn(&Tensor) -> Tensor) -> Gradients {
    match of {
        Quantity::QueryGradient => Gradients { query: change(&gradients.query), ..gradients },
        Quantity::KeyGradient => Gradients { key: change(&gradients.key), ..gradients },
        _ => Gradients { value: change(&gradients.value), ..gradients },
    }
}

fn measured(report: &CaseReport, of: Quantity) -> &Measured {
    report.of(of).expect("a backward pass")
}

#[test]
fn right_gradients_pass_with_headroom() {
    let report = tampered(normal(problem(Format::Bf16)), |gradients| gradients);
    assert_eq!((report.verdict, &report.violations[..]), (Verdict::Pass, &[][..]));
    for (quantity, elements) in GRADIENTS.into_iter().zip([160, 64, 64]) {
        let found = measured(&report, quantity);
        assert_eq!(
            (found.elements, found.wrong, found.unbounded, found.not_compared),
            (elements, 0, 0, 0)
        );
        let worst = found.worst.as_ref().unwrap();
        assert!(worst.ratio > 0.0 && worst.ratio <= 1.0, "{worst:?}");
        assert_eq!(worst.ratio, worst.error.unwrap() / worst.bound.unwrap());
    }
    // The forward pass that they start from is judged as well.
    assert_eq!((report.output.elements, report.lse.unwrap().elements), (160, 10));
}

#[test]
fn a_forward_case_has_no_gradients() {
    let case = Case::new(problem(Format::F32), Family::of(Scores::Normal), None, SEED);
    let report = tampered(case, |_| panic!("a backward pass"));
    assert_eq!(report.verdict, Verdict::Pass);
    assert!(GRADIENTS.into_iter().all(|quantity| report.of(quantity).is_none()));
}

#[test]
fn one_element_off_is_found_where_it_is() {
    for (quantity, clause, at, position) in [
        (Quantity::QueryGradient, "FAS:bound.bwd.query", [0, 1, 4, 7], Position::Query(4)),
        (Quantity::KeyGradient, "FAS:bound.bwd.key", [0, 0, 2, 7], Position::Key(2)),
        (Quantity::ValueGradient, "FAS:bound.bwd.value", [0, 0, 0, 15], Position::Key(0)),
    ] {
        let report = tampered(normal(problem(Format::Bf16)), |gradients| {
            change(gradients, quantity, |it| with_value_at(it, &at, it.values()[&at[..]] + 1.5))
        });
        assert_eq!((report.verdict, &clauses(&report)[..]), (Verdict::Fail, &[clause][..]));
        assert_eq!(measured(&report, quantity).wrong, 1);
        let violation = &report.violations[0];
        let [batch, head, _, entry] = at;
        let place = Location { batch, head, position, entry: Some(entry) };
        assert_eq!((violation.quantity, violation.worst.location), (quantity, place));
        assert!(violation.worst.ratio > 1.0);
    }
}

#[test]
fn what_is_no_number_was_not_written_or_is_out_of_bounds() {
    for (quantity, bound) in GRADIENTS.into_iter().zip([
        "FAS:bound.bwd.query",
        "FAS:bound.bwd.key",
        "FAS:bound.bwd.value",
    ]) {
        let at = if quantity == Quantity::QueryGradient { [0, 0, 4, 0] } else { [0, 0, 1, 0] };
        for (value, clause) in [
            (f64::NAN, "FAS:bwd.output.written"),
            (f64::INFINITY, bound),
            (f64::NEG_INFINITY, bound),
        ] {
            let report = tampered(normal(problem(Format::F32)), |gradients| {
                change(gradients, quantity, |it| with_value_at(it, &at, value))
            });
            assert_eq!(clauses(&report), [clause], "{quantity} {value}");
            assert_eq!(report.violations[0].worst.ratio, f64::INFINITY);
        }
    }
}

#[test]
fn a_query_without_keys_has_a_gradient_of_exactly_zero() {
    for (wrong, expected) in [
        (1e-30, vec!["FAS:bwd.empty-row.zero"]),
        (f64::NAN, vec!["FAS:bwd.empty-row.zero"]),
        (f64::INFINITY, vec!["FAS:bwd.empty-row.zero"]),
        (-0.0, vec![]),
    ] {
        let report = tampered(normal(problem(Format::F32)), |gradients| {
            change(gradients, Quantity::QueryGradient, |it| with_value_at(it, &[0, 0, 1, 3], wrong))
        });
        assert_eq!(clauses(&report), expected, "{wrong}");
    }
}

#[test]
fn a_key_that_no_query_sees_has_gradients_of_exactly_zero() {
    for quantity in [Quantity::KeyGradient, Quantity::ValueGradient] {
        for (wrong, expected) in [
            (1e-30, vec!["FAS:bwd.probability.mask"]),
            (f64::NAN, vec!["FAS:bwd.output.written"]),
            (-0.0, vec![]),
        ] {
            let report = tampered(normal(problem(Format::F32)), |gradients| {
                change(gradients, quantity, |it| with_value_at(it, &[0, 0, 3, 3], wrong))
            });
            assert_eq!(clauses(&report), expected, "{quantity} {wrong}");
        }
    }
}

/// The single key's weight is 1 whatever its score, so no input but the value has a gradient.
#[test]
fn one_query_on_one_key_has_no_query_gradient() {
    let case = || {
        let family = Family::of(Scores::Tripled);
        Case::new(Problem::new(Format::F32, 1, 1, 16), family, None, SEED)
            .with_upstream(Upstream::Output)
    };
    assert_eq!(tampered(case(), |gradients| gradients).verdict, Verdict::Pass);
    let report = tampered(case(), |gradients| {
        change(gradients, Quantity::QueryGradient, |it| map(it, |_| f64::NAN))
    });
    assert_eq!(clauses(&report), ["FAS:bwd.output.written"]);
    let worst = &report.violations[0].worst;
    assert_eq!(worst.want.to_string(), "0");
}

fn zero(gradients: Gradients, of: Quantity) -> Gradients {
    change(gradients, of, |it| map(it, |_| 0.0))
}

#[test]
fn a_gradient_of_zeros_fails_alone() {
    for format in [Format::F64, Format::F32, Format::F16, Format::Bf16] {
        for quantity in GRADIENTS {
            let report = tampered(normal(problem(format)), |gradients| zero(gradients, quantity));
            assert_eq!(report.verdict, Verdict::Fail, "{format} {quantity}");
            for other in GRADIENTS.into_iter().filter(|other| *other != quantity) {
                assert_eq!(measured(&report, other).wrong, 0, "{format} {quantity} {other}");
            }
        }
    }
}

/// The outputs of a backward pass with another LSE.
fn with_lse(backward: Backward, lse: impl Fn(&Tensor) -> Option<Tensor>) -> Backward {
    let Outputs { output, lse: given } = backward.outputs;
    Backward { outputs: Outputs { output, lse: given.as_ref().and_then(lse) }, ..backward }
}

#[test]
fn an_lse_in_base_two_is_taken_for_what_it_is() {
    let choices = Choices { lse_base: LseBase::Two, ..Choices::default() };
    let to_two = |backward| Ok::<_, Failure>(with_lse(backward, |it| Some(map(it, |x| x / LN_2))));
    let mut subject = TamperedBackward::new("naive", to_two).declaring(choices);
    let report = judge(&mut subject, normal(problem(Format::F32)));
    assert_eq!(report.verdict, Verdict::Pass, "{report:#?}");
    for quantity in GRADIENTS {
        assert_eq!(measured(&report, quantity).unbounded, 0);
        let wrong = |backward: Backward| {
            let gradients = zero(backward.gradients, quantity);
            to_two(Backward { outputs: backward.outputs, gradients })
        };
        let mut subject = TamperedBackward::new("naive", wrong).declaring(choices);
        assert_eq!(judge(&mut subject, normal(problem(Format::F32))).verdict, Verdict::Fail);
    }
    // Taken as natural, the LSE is wrong by far, and the bounds on gradients with it.
    let natural = |backward| Ok::<_, Failure>(backward);
    let mut subject = TamperedBackward::new("naive", natural).declaring(choices);
    let report = judge(&mut subject, normal(problem(Format::F32)));
    assert_eq!(clauses(&report), ["FAS:bound.fwd.lse"]);
}

#[test]
fn without_an_lse_gradients_are_held_to_its_forward_bound() {
    let kept = |backward| Ok::<_, Failure>(with_lse(backward, |_| None));
    let report = judge(&mut TamperedBackward::new("naive", kept), normal(problem(Format::F32)));
    assert_eq!((report.verdict, report.lse.is_some()), (Verdict::Pass, false));
    for quantity in GRADIENTS {
        assert_eq!(measured(&report, quantity).unbounded, 0);
        let wrong = |backward: Backward| {
            let gradients = zero(backward.gradients, quantity);
            kept(Backward { outputs: backward.outputs, gradients })
        };
        let mut subject = TamperedBackward::new("naive", wrong);
        assert_eq!(judge(&mut subject, normal(problem(Format::F32))).verdict, Verdict::Fail);
    }
}

#[test]
fn a_profile_that_admits_any_error_is_never_a_pass() {
    // Each product is truncated to one bit: errors as large as the sum.
    let accumulation = Accumulation::TensorCore { chunk: 1, fraction_bits: 1, output_bits: 1 };
    let profile = Profile { value_accumulation: accumulation, ..Profile::standard(Format::Bf16) };
    let right = |backward: Backward| Ok::<_, Failure>(backward);
    let mut subject = TamperedBackward::new("naive", right).computing(profile);
    let report = judge(&mut subject, normal(problem(Format::Bf16)));
    assert_eq!(report.verdict, Verdict::NoBound);
    assert!(GRADIENTS.into_iter().all(|quantity| measured(&report, quantity).unbounded > 0));
}

#[test]
fn elements_behind_a_nan_are_not_compared_and_others_are() {
    let family = Family { scores: Scores::Normal, values: Values::Nan };
    let case =
        || Case::new(problem(Format::F32), family, None, SEED).with_upstream(Upstream::Output);
    let report = tampered(case(), |gradients| gradients);
    assert_eq!(report.verdict, Verdict::Pass);
    // Three of five queries see key 0, in either head, and with them all keys but the last.
    let counts = |report: &CaseReport, of| {
        let measured = measured(report, of);
        (measured.elements, measured.not_compared)
    };
    assert_eq!(counts(&report, Quantity::QueryGradient), (2 * 2 * 16, 2 * 3 * 16));
    assert_eq!(counts(&report, Quantity::KeyGradient), (16, 3 * 16));
    let report = tampered(case(), |gradients| {
        change(gradients, Quantity::QueryGradient, |it| map(it, |_| 1.0))
    });
    assert_eq!(clauses(&report), ["FAS:bwd.empty-row.zero"]);
}

#[test]
fn poison_that_no_query_sees_must_not_show_in_gradients() {
    for poison in Poison::ALL {
        let case = || {
            Case::new(problem(Format::F32), Family::of(Scores::Normal), Some(poison), SEED)
                .with_upstream(Upstream::Output)
        };
        let report = tampered(case(), |gradients| gradients);
        assert_eq!(report.verdict, Verdict::Pass, "{poison:?}: {report:#?}");
        assert!(measured(&report, Quantity::QueryGradient).elements > 0);
    }
    let case =
        Case::new(problem(Format::F32), Family::of(Scores::Normal), Some(Poison::Unseen), SEED)
            .with_upstream(Upstream::Output);
    let leaky = tampered(case, |gradients| {
        change(gradients, Quantity::QueryGradient, |it| map(it, |_| f64::NAN))
    });
    assert_eq!(clauses(&leaky), ["FAS:bwd.empty-row.zero", "FAS:bwd.output.written"]);
    assert_eq!(measured(&leaky, Quantity::QueryGradient).not_compared, 0);
}

#[test]
fn a_kernel_without_a_backward_pass_is_unsupported() {
    let reason = "no backward pass";
    let none = |_: Backward| Err(Failure::Unsupported(reason.to_owned()));
    let report = judge(&mut TamperedBackward::new("naive", none), normal(problem(Format::F32)));
    assert_eq!(report.verdict, Verdict::Unsupported);
    assert!(report.no_answer.unwrap().reason.contains(reason));
}

/// A forward pass that is wrong is reported as that, and widens the bounds of its gradients.
#[test]
fn a_wrong_forward_pass_is_not_blamed_on_the_gradients() {
    let off = |backward| Ok::<_, Failure>(with_lse(backward, |it| Some(map(it, |x| x + 1.0))));
    let report = judge(&mut TamperedBackward::new("naive", off), normal(problem(Format::F32)));
    assert_eq!(clauses(&report), ["FAS:bound.fwd.lse"]);
}

/// A bias shared by heads and batch members, and logits of sinks; the first two queries see no key.
fn modified(format: Format) -> Problem {
    let bias = Some(Bias { shape: [1, 1, 5, 4], format: Format::F32 });
    Problem { batch: 2, bias, sink: Some(Sink::Logits(Format::F32)), ..lengths_of_two(format) }
}

fn lengths_of_two(format: Format) -> Problem {
    let mut problem = problem(format);
    problem.mask = Mask { rules: vec![Rule::CausalBottomRight, Rule::KeyLengths(vec![3, 3])] };
    problem
}

/// The gradients with that of bias or sinks changed.
fn change_modifier(gradients: Gradients, of: Quantity, f: impl Fn(&Tensor) -> Tensor) -> Gradients {
    match of {
        Quantity::BiasGradient => Gradients { bias: gradients.bias.as_ref().map(f), ..gradients },
        _ => Gradients { sink: gradients.sink.as_ref().map(f), ..gradients },
    }
}

const MODIFIERS: [Quantity; 2] = [Quantity::BiasGradient, Quantity::SinkGradient];

#[test]
fn gradients_of_bias_and_sinks_pass_with_headroom() {
    for format in [Format::F64, Format::F32, Format::F16, Format::Bf16] {
        let report = tampered(normal(modified(format)), |gradients| gradients);
        assert_eq!((report.verdict, &report.violations[..]), (Verdict::Pass, &[][..]));
        for (quantity, elements) in MODIFIERS.into_iter().zip([20, 2]) {
            let found = measured(&report, quantity);
            assert_eq!(
                (found.elements, found.wrong, found.unbounded, found.not_compared),
                (elements, 0, 0, 0)
            );
            let worst = found.worst.as_ref().unwrap();
            assert!(worst.ratio > 0.0 && worst.ratio <= 1.0, "{worst:?}");
        }
    }
}

#[test]
fn a_problem_without_bias_and_sinks_has_no_gradients_of_them() {
    let report = tampered(normal(problem(Format::F32)), |gradients| gradients);
    assert!(MODIFIERS.into_iter().all(|quantity| report.of(quantity).is_none()));
    // A sink of zero is no input.
    let of_zero = Problem { sink: Some(Sink::Zero), ..problem(Format::F32) };
    let report = tampered(normal(of_zero), |gradients| gradients);
    assert_eq!(report.verdict, Verdict::Pass, "{report:#?}");
    assert!(report.of(Quantity::SinkGradient).is_none());
}

#[test]
fn one_element_of_dbias_or_dsink_off_is_found_where_it_is() {
    let pair = Position::Pair { query: 3, key: 1 };
    for (quantity, clause, at, head, position) in [
        (Quantity::BiasGradient, "FAS:bound.bwd.bias", &[0, 0, 3, 1][..], 0, pair),
        (Quantity::SinkGradient, "FAS:bound.bwd.sink", &[1], 1, Position::Head),
    ] {
        for (off, clause) in
            [(1.5, clause), (f64::NAN, "FAS:bwd.output.written"), (f64::INFINITY, clause)]
        {
            let report = tampered(normal(modified(Format::F32)), |gradients| {
                change_modifier(gradients, quantity, |it| {
                    with_value_at(it, at, it.values()[at] + off)
                })
            });
            assert_eq!((report.verdict, &clauses(&report)[..]), (Verdict::Fail, &[clause][..]));
            let violation = &report.violations[0];
            let place = Location { batch: 0, head, position, entry: None };
            assert_eq!((violation.quantity, violation.worst.location), (quantity, place));
            assert_eq!(measured(&report, quantity).wrong, 1);
        }
    }
}

/// Where the mask hides every site that shares an entry, and where a query sees no key.
#[test]
fn an_entry_of_the_bias_without_terms_has_a_gradient_of_exactly_zero() {
    for at in [[0, 0, 1, 0], [0, 0, 4, 3]] {
        for (wrong, expected) in [
            (1e-30, vec!["FAS:bwd.bias.gradient"]),
            (f64::NAN, vec!["FAS:bwd.output.written"]),
            (-0.0, vec![]),
        ] {
            let report = tampered(normal(modified(Format::F32)), |gradients| {
                change_modifier(gradients, Quantity::BiasGradient, |it| {
                    with_value_at(it, &at, wrong)
                })
            });
            assert_eq!(clauses(&report), expected, "{at:?} {wrong}");
        }
    }
}

#[test]
fn a_gradient_of_the_bias_is_judged_whatever_it_is_broadcast_over() {
    for shape in [[2, 2, 5, 4], [1, 2, 1, 4], [2, 1, 5, 1], [1, 1, 1, 1]] {
        let bias = Some(Bias { shape, format: Format::F32 });
        let problem = Problem { bias, ..modified(Format::Bf16) };
        let report = tampered(normal(problem.clone()), |gradients| gradients);
        assert_eq!(report.verdict, Verdict::Pass, "{shape:?}: {report:#?}");
        let found = measured(&report, Quantity::BiasGradient);
        assert_eq!((found.elements, found.unbounded), (shape.iter().product(), 0));
        let report = tampered(normal(problem), |gradients| {
            change_modifier(gradients, Quantity::BiasGradient, |it| map(it, |_| 0.0))
        });
        assert_eq!(clauses(&report), ["FAS:bound.bwd.bias"], "{shape:?}");
    }
}
