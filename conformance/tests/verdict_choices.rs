//! Verdicts under the choices of a kernel: what is declared is taken for what it is, and what is not
//! declared is a fault.

mod support;

use flashproof_conformance::adapter::builtin::Builtin;
use flashproof_conformance::adapter::{
    CausalAlignment, Choices, EmptyRow, Failure, LseBase, LseSign, LseSink, SoftcapChoice, Subject,
    WindowConvention,
};
use flashproof_conformance::case::Case;
use flashproof_conformance::inputs::poison::Poison;
use flashproof_conformance::inputs::{BiasValues, Family, Modifiers, Scores, Upstream};
use flashproof_conformance::report::CaseReport;
use flashproof_conformance::run::run;
use flashproof_conformance::suite::Suite;
use flashproof_conformance::verdict::{Quantity, Verdict};
use flashproof_spec::format::Format;
use flashproof_spec::mask::{Alignment, Mask, Rule, Window};
use flashproof_spec::problem::Problem;
use flashproof_spec::score::{Bias, Sink, Softcap, SoftcapOrder};
use flashproof_spec::tensor::{Inputs, Outputs, Tensor};
use support::backward::TamperedBackward;
use support::simulated::NONE;
use support::{Tampered, map, with_value_at};

const SEED: u64 = 1;

/// The first two of five queries see no key; two query heads on one key head.
fn causal(format: Format) -> Problem {
    let mut problem = Problem::new(format, 2, 5, 16);
    (problem.key_heads, problem.key_len) = (1, 3);
    problem.mask = Mask::only(Rule::CausalBottomRight);
    problem
}

fn sunk(format: Format) -> Problem {
    Problem { sink: Some(Sink::Logits(format)), ..causal(format) }
}

fn normal(problem: Problem) -> Case {
    Case::new(problem, Family::of(Scores::Normal), None, SEED)
}

fn judge(subject: &mut dyn Subject, case: Case) -> CaseReport {
    run(subject, Suite::Quick, &[case], |_| ()).unwrap().remove(0)
}

/// The report on a kernel whose answer is changed, and that declares these choices.
fn declared(
    choices: Choices,
    case: Case,
    tamper: impl Fn(&Problem, &Inputs, Outputs) -> Outputs + Send,
) -> CaseReport {
    let tamper = move |problem: &Problem, inputs: &Inputs, outputs: Outputs| {
        Ok::<_, Failure>(tamper(problem, inputs, outputs))
    };
    judge(&mut Tampered::new("naive", tamper).declaring(choices), case)
}

fn as_it_is(_: &Problem, _: &Inputs, outputs: Outputs) -> Outputs {
    outputs
}

fn clauses(report: &CaseReport) -> Vec<&'static str> {
    report.violations.iter().map(|violation| violation.clause).collect()
}

fn found(report: &CaseReport) -> Option<&'static str> {
    report.diagnosis.first().map(|finding| finding.clause)
}

fn lse(outputs: Outputs, change: impl Fn(&Tensor) -> Tensor) -> Outputs {
    Outputs { lse: outputs.lse.as_ref().map(change), ..outputs }
}

fn output(outputs: Outputs, change: impl Fn(&Tensor) -> Tensor) -> Outputs {
    Outputs { output: change(&outputs.output), ..outputs }
}

#[test]
fn a_negated_lse_is_right_where_it_is_declared() {
    let negated =
        |_: &Problem, _: &Inputs, outputs: Outputs| lse(outputs, |it| map(it, |x: f64| -x));
    let minus = Choices { lse_sign: LseSign::Minus, ..Choices::default() };
    let case = || normal(causal(Format::F32));
    let report = declared(minus, case(), negated);
    assert_eq!(report.verdict, Verdict::Pass, "{report:#?}");
    let report = declared(Choices::default(), case(), negated);
    assert_eq!((report.verdict, found(&report)), (Verdict::Fail, Some("FAS:choice.lse.sign")));
    // Rows without keys have an LSE of plus infinity, and the report says so.
    let report = declared(minus, case(), as_it_is);
    let empty = report.violations.iter().find(|it| it.clause == "FAS:fwd.softmax.empty-row");
    assert_eq!(empty.unwrap().worst.want.to_string(), "inf");
    // In base two as well.
    let both = Choices { lse_base: LseBase::Two, ..minus };
    let report = declared(both, case(), |_, _, outputs| {
        lse(outputs, |it| map(it, |x| -x / std::f64::consts::LN_2))
    });
    assert_eq!(report.verdict, Verdict::Pass, "{report:#?}");
}

/// The LSE over the keys alone.
fn without_sink(problem: &Problem, inputs: &Inputs, outputs: Outputs) -> Outputs {
    let problem = Problem { sink: None, ..problem.clone() };
    let inputs = Inputs { sink: None, ..inputs.clone() };
    Outputs { lse: NONE.forward(&problem, &inputs).lse, ..outputs }
}

#[test]
fn an_lse_without_the_sink_is_right_where_it_is_declared() {
    let excluded = Choices { lse_sink: LseSink::Excluded, ..Choices::default() };
    let case = || normal(sunk(Format::F32));
    let report = declared(excluded, case(), without_sink);
    assert_eq!(report.verdict, Verdict::Pass, "{report:#?}");
    assert_eq!(report.lse.as_ref().map(|lse| lse.unbounded), Some(0));
    assert_eq!(declared(Choices::default(), case(), as_it_is).verdict, Verdict::Pass);
    let shown = Problem { mask: Mask::full(), ..sunk(Format::F32) };
    for (choices, report) in [
        ("included", declared(Choices::default(), normal(shown.clone()), without_sink)),
        ("excluded", declared(excluded, normal(shown), as_it_is)),
    ] {
        assert_eq!(report.verdict, Verdict::Fail, "{choices}");
        assert_eq!(found(&report), Some("FAS:choice.lse.sink"), "{choices}");
    }
}

#[test]
fn gradients_are_judged_whatever_the_lse_counts() {
    let case = || normal(sunk(Format::F32)).with_upstream(Upstream::OutputAndLse);
    let inputs = case().inputs().unwrap();
    let problem = sunk(Format::F32);
    for choices in [
        Choices { lse_sink: LseSink::Excluded, ..Choices::default() },
        Choices { lse_sign: LseSign::Minus, ..Choices::default() },
    ] {
        let excluded = choices.lse_sink == LseSink::Excluded;
        let (problem, inputs) = (problem.clone(), inputs.clone());
        let tamper = move |mut backward: flashproof_conformance::adapter::Backward| {
            backward.outputs = if excluded {
                without_sink(&problem, &inputs, backward.outputs)
            } else {
                lse(backward.outputs, |it| map(it, |x: f64| -x))
            };
            Ok(backward)
        };
        let report = judge(&mut TamperedBackward::new("naive", tamper).declaring(choices), case());
        assert_eq!(report.verdict, Verdict::Pass, "{report:#?}");
        for quantity in [Quantity::QueryGradient, Quantity::SinkGradient] {
            assert_eq!(report.of(quantity).unwrap().unbounded, 0, "{quantity}");
        }
    }
}

#[test]
fn a_row_with_a_sink_and_no_keys_is_zero_and_the_logit() {
    let case = || normal(sunk(Format::F32));
    let report = declared(Choices::default(), case(), as_it_is);
    assert_eq!(report.verdict, Verdict::Pass, "{report:#?}");
    assert_eq!((report.lse.unwrap().unbounded, report.output.unbounded), (0, 0));
    let report = declared(Choices::default(), case(), |_, _, outputs| {
        lse(outputs, |it| with_value_at(it, &[0, 0, 0], it.values()[[0, 0, 0]] + 1e-3))
    });
    assert_eq!(clauses(&report), ["FAS:bound.fwd.lse"]);
    let report = declared(Choices::default(), case(), |_, _, outputs| {
        output(outputs, |it| with_value_at(it, &[0, 0, 0, 3], 1e-30))
    });
    assert_eq!(clauses(&report), ["FAS:fwd.softmax.empty-row"]);
}

/// The rows without keys as the mean of the values of the keys in use.
fn mean(problem: &Problem, inputs: &Inputs, outputs: Outputs) -> Outputs {
    let values = inputs.value.view4();
    let mut output = outputs.output.view4().to_owned();
    for ((batch, head, query, entry), place) in output.indexed_iter_mut() {
        if inputs.visible_keys(problem, batch, head, query).is_empty() {
            let used = problem.mask.used_keys(batch, problem.key_len);
            let of_head = problem.key_head_of(head);
            *place = (0..used).map(|key| values[[batch, of_head, key, entry]]).sum::<f64>()
                / used as f64;
        }
    }
    let output = Tensor::rounded(outputs.output.format(), &output.into_dyn());
    // The LSE of equal scores is any number.
    let any = |it: Tensor| map(&it, |x| if x == f64::NEG_INFINITY { 17.0 } else { x });
    Outputs { output, lse: outputs.lse.map(any) }
}

#[test]
fn a_declared_mean_is_judged_by_its_bound() {
    let choices = Choices { empty_row: EmptyRow::Mean, ..Choices::default() };
    for format in [Format::F32, Format::Bf16] {
        let mut problem = causal(format);
        problem.mask.rules.push(Rule::KeyLengths(vec![2]));
        let case = || normal(problem.clone());
        let report = declared(choices, case(), mean);
        assert_eq!(report.verdict, Verdict::Pass, "{report:#?}");
        // Three of five rows see no key, in either head: their LSE is not compared.
        assert_eq!(report.lse.map(|lse| (lse.elements, lse.not_compared)), Some((4, 6)));
        assert_eq!(clauses(&declared(choices, case(), as_it_is)), ["FAS:bound.fwd.output"]);
        let report = declared(Choices::default(), case(), mean);
        assert_eq!(clauses(&report), ["FAS:fwd.softmax.empty-row"; 2]);
        assert_eq!(found(&report), Some("FAS:fwd.softmax.empty-row"));
    }
}

/// Rows of minus infinity in the bias; the mask hides no key.
fn masked() -> Case {
    let bias = Some(Bias { shape: [1, 2, 5, 3], format: Format::F32 });
    let problem = Problem { bias, mask: Mask::full(), ..causal(Format::F32) };
    normal(problem)
        .with_modifiers(Modifiers { bias: BiasValues::MinusInfinityRows, ..Modifiers::default() })
}

#[test]
fn a_row_of_minus_infinity_is_what_is_declared() {
    let nan = |_: &Problem, _: &Inputs, outputs: Outputs| {
        let lses = outputs.lse.as_ref().unwrap().view3().to_owned();
        let mut values = outputs.output.view4().to_owned();
        for ((batch, head, query, _), place) in values.indexed_iter_mut() {
            if lses[[batch, head, query]] == f64::NEG_INFINITY {
                *place = f64::NAN;
            }
        }
        let output = Tensor::rounded(outputs.output.format(), &values.into_dyn());
        let lse = |it: &Tensor| map(it, |x| if x == f64::NEG_INFINITY { f64::NAN } else { x });
        Outputs { output, lse: outputs.lse.as_ref().map(lse) }
    };
    let declaring = |masked_row| Choices { masked_row, ..Choices::default() };
    let masked_row = "FAS:choice.masked-row.output";
    assert_eq!(declared(Choices::default(), masked(), as_it_is).verdict, Verdict::Pass);
    let report = declared(declaring(EmptyRow::Nan), masked(), nan);
    assert_eq!(report.verdict, Verdict::Pass, "{report:#?}");
    let report = declared(declaring(EmptyRow::Mean), masked(), mean);
    assert_eq!(report.verdict, Verdict::Pass, "{report:#?}");
    let report = declared(Choices::default(), masked(), nan);
    assert_eq!(clauses(&report), [masked_row; 2]);
    assert_eq!(found(&report), Some(masked_row));
    // It is not the choice for rows that the mask empties, nor the other way round.
    let empty_row = Choices { empty_row: EmptyRow::Nan, ..Choices::default() };
    assert_eq!(clauses(&declared(empty_row, masked(), nan)), [masked_row; 2]);
    let hidden = normal(causal(Format::F32));
    let report = declared(declaring(EmptyRow::Nan), hidden, nan);
    assert_eq!(clauses(&report), ["FAS:fwd.softmax.empty-row"; 2]);
}

/// A kernel that answers the problem as these choices read it.
fn reading(choices: Choices) -> impl Fn(&Problem, &Inputs, Outputs) -> Outputs + Send {
    move |problem, inputs, _| {
        let mut kernel = Builtin::open("naive").unwrap();
        kernel.forward(&choices.read(problem), inputs).unwrap()
    }
}

#[test]
fn a_kernel_is_judged_by_the_problem_as_it_reads_it() {
    let window = Window { left: Some(2), right: Some(1), alignment: Alignment::BottomRight };
    let windowed = Problem { mask: Mask::only(Rule::Window(window)), ..causal(Format::F32) };
    let capped = Problem {
        mask: Mask::full(),
        softcap: Some(Softcap { cap: 1.0, order: SoftcapOrder::BeforeBias }),
        bias: Some(Bias { shape: [1, 1, 5, 3], format: Format::F32 }),
        ..causal(Format::F32)
    };
    let default = Choices::default();
    for (choices, problem) in [
        (Choices { causal: CausalAlignment::TopLeft, ..default }, causal(Format::F32)),
        (Choices { window: WindowConvention::Count, ..default }, windowed),
        (Choices { softcap: SoftcapChoice::AfterBias, ..default }, capped),
    ] {
        let case = || normal(problem.clone());
        let report = declared(choices, case(), reading(choices));
        assert_eq!(report.verdict, Verdict::Pass, "{choices:?}: {report:#?}");
        // The report tells what was asked.
        assert_eq!(report.problem, problem);
        assert_eq!(declared(default, case(), reading(choices)).verdict, Verdict::Fail);
        assert_eq!(declared(choices, case(), as_it_is).verdict, Verdict::Fail);
        // What is poisoned is hidden in the problem as it is read.
        let poisoned =
            Case::new(problem.clone(), Family::of(Scores::Normal), Some(Poison::Unseen), SEED);
        let report = declared(choices, poisoned, reading(choices));
        assert_eq!(report.verdict, Verdict::Pass, "{choices:?}: {report:#?}");
    }
}
