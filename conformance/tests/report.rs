//! Reports: the JSON form is the documented one, and the text says what a person needs.

use std::collections::BTreeMap;

use flashproof_conformance::adapter::Choices;
use flashproof_conformance::diagnosis::Finding;
use flashproof_conformance::report::model::{RowsJudged, Run, Subject};
use flashproof_conformance::report::{CaseReport, NoAnswer, Outcome, Report, json, text};
use flashproof_conformance::statistics::{NotApplicable, Sample, Statistics, Tested};
use flashproof_conformance::suite::{Direction, Suite};
use flashproof_conformance::trivial::{Answer, Mark, Reason};
use flashproof_conformance::verdict::{
    Element, Location, Measured, Position, Quantity, StrictMeasured, Verdict, Violation, Want,
};
use flashproof_spec::format::Format;
use flashproof_spec::mask::{Mask, Rule};
use flashproof_spec::problem::{Problem, Scale};
use flashproof_spec::profile::Profile;
use serde_json::Value;

fn subject() -> Subject {
    Subject {
        name: "exec:python3 worker.py".to_owned(),
        description: "an example".to_owned(),
        choices: Choices::default(),
        profiles: BTreeMap::from([(Format::Bf16, Profile::standard(Format::Bf16))]),
        formats_refused: BTreeMap::from([(Format::F64, "unsupported: f64".to_owned())]),
    }
}

fn check() -> Run {
    let only = vec!["bf16/*".to_owned()];
    Run::Check { suite: Suite::Quick, direction: Direction::Both, seed: 7, only }
}

/// An element that was compared with a bound.
fn measured(entry: Option<usize>, ratio: f64) -> Element {
    Element {
        location: Location { batch: 0, head: 1, position: Position::Query(3), entry },
        got: 0.5,
        want: Want::Number(0.25),
        error: Some(ratio * 0.125),
        bound: Some(0.125),
        ratio,
    }
}

/// An element that is required exactly and is another.
fn required(want: Want) -> Element {
    let location = Location { batch: 0, head: 0, position: Position::Query(0), entry: Some(2) };
    Element { location, got: f64::NAN, want, error: None, bound: None, ratio: f64::INFINITY }
}

fn case(name: &str, verdict: Verdict) -> CaseReport {
    let mut problem = Problem::new(Format::Bf16, 2, 5, 64);
    problem.scale = Scale::Value(0.5);
    problem.mask = Mask { rules: vec![Rule::CausalBottomRight, Rule::KeyLengths(vec![4])] };
    CaseReport {
        name: name.to_owned(),
        verdict,
        policy: None,
        no_answer: None,
        problem,
        why: "Normal scores: what most testers draw.".to_owned(),
        source: Vec::new(),
        clauses: vec!["FAS:fwd.score.scale"],
        output: Measured {
            elements: 640,
            wrong: 0,
            unbounded: 0,
            not_compared: 0,
            worst: Some(measured(Some(17), 0.5)),
            strict: at_the_strict_gate(),
        },
        lse: Some(Measured {
            elements: 10,
            wrong: 0,
            unbounded: 0,
            not_compared: 0,
            worst: Some(measured(None, 0.25)),
            strict: StrictMeasured::default(),
        }),
        query_gradient: None,
        key_gradient: None,
        value_gradient: None,
        bias_gradient: None,
        sink_gradient: None,
        violations: Vec::new(),
        diagnosis: Vec::new(),
        not_discriminating: None,
        statistics: None,
        reproduce: format!("flashproof check 'exec:python3 worker.py' --case {name} --seed 7"),
    }
}

/// Most elements of an output, put to the strict gate.
fn at_the_strict_gate() -> StrictMeasured {
    let worst = Some(measured(Some(5), 0.875));
    StrictMeasured { elements: 600, wrong: 0, not_applied: 40, worst }
}

fn failing() -> CaseReport {
    let violation =
        |clause, quantity, elements, worst| Violation { clause, quantity, elements, worst };
    CaseReport {
        statistics: Some(Statistics::NotApplicable(NotApplicable::NoAnswer)),
        source: vec!["flash-attention#282".to_owned()],
        output: Measured {
            elements: 640,
            wrong: 130,
            unbounded: 0,
            not_compared: 0,
            worst: Some(required(Want::Zero)),
            strict: StrictMeasured::default(),
        },
        violations: vec![
            violation("FAS:bound.fwd.lse", Quantity::Lse, 2, measured(None, 3.0)),
            violation("FAS:bound.fwd.output", Quantity::Output, 2, measured(Some(17), 2.0)),
            violation("FAS:fwd.softmax.empty-row", Quantity::Output, 128, required(Want::Zero)),
        ],
        diagnosis: vec![Finding {
            fault: "causal-top-left",
            clause: "FAS:mask.causal.bottom-right",
            explanation: "the causal mask is aligned top-left where bottom-right is asked for"
                .to_owned(),
        }],
        ..case("bf16/failing", Verdict::Fail)
    }
}

/// An element at a key that was compared with a bound.
fn measured_at_key(ratio: f64) -> Element {
    let location = Location { batch: 0, head: 1, position: Position::Key(2), entry: Some(9) };
    Element { location, ..measured(None, ratio) }
}

fn pair() -> Location {
    let position = Position::Pair { query: 3, key: 1 };
    Location { batch: 0, head: 1, position, entry: None }
}

fn sink() -> Location {
    Location { batch: 0, head: 1, position: Position::Head, entry: None }
}

fn backward() -> CaseReport {
    let measured_of = |wrong, worst| Measured {
        elements: 640,
        wrong,
        unbounded: 0,
        not_compared: 64,
        worst: Some(worst),
        strict: StrictMeasured { not_applied: 640 - wrong, ..StrictMeasured::default() },
    };
    let worst = measured_at_key(4.0);
    let of_bias = Element { location: pair(), ..measured(None, 3.0) };
    let of_sink = Element { location: sink(), ..measured(None, 0.125) };
    CaseReport {
        query_gradient: Some(measured_of(0, measured(Some(3), 0.75))),
        key_gradient: Some(measured_of(5, worst.clone())),
        value_gradient: Some(measured_of(0, measured_at_key(0.5))),
        bias_gradient: Some(measured_of(1, of_bias.clone())),
        sink_gradient: Some(measured_of(0, of_sink)),
        violations: vec![
            Violation {
                clause: "FAS:bound.bwd.bias",
                quantity: Quantity::BiasGradient,
                elements: 1,
                worst: of_bias,
            },
            Violation {
                clause: "FAS:bound.bwd.key",
                quantity: Quantity::KeyGradient,
                elements: 5,
                worst,
            },
        ],
        ..case("bf16/backward/gradient", Verdict::Fail)
    }
}

fn without_answer(verdict: Verdict, reason: &str) -> CaseReport {
    CaseReport {
        no_answer: Some(NoAnswer {
            reason: reason.to_owned(),
            clause: (verdict == Verdict::Fail).then_some("FAS:fwd.input.unchanged"),
        }),
        output: Measured::default(),
        lse: None,
        ..case(&format!("bf16/{}", verdict.name().replace(' ', "-")), verdict)
    }
}

fn unbounded() -> CaseReport {
    let output = Measured { elements: 640, unbounded: 640, ..Measured::default() };
    CaseReport { output, lse: None, ..case("bf16/unbounded", Verdict::NoBound) }
}

/// A report with every field and every verdict.
fn report() -> Report {
    let mark = Mark { answer: Answer::MeanOfVisible, reason: Reason::OneKey, largest_ratio: 0.0 };
    let cases = vec![
        CaseReport {
            not_discriminating: Some(vec![mark]),
            statistics: Some(Statistics::Tested(Box::new(Tested {
                output: Sample::default(),
                lse: Some(Sample::default()),
            }))),
            ..case("bf16/passing", Verdict::Pass)
        },
        failing(),
        backward(),
        without_answer(Verdict::Crashed, "crashed: signal 11"),
        without_answer(Verdict::TimedOut, "timed out after 60 s"),
        without_answer(Verdict::Malformed, "malformed answer: 'output' has shape [1]"),
        without_answer(Verdict::Unsupported, "unsupported: key lengths"),
        without_answer(Verdict::Unsupported, "unsupported: dropout"),
        without_answer(Verdict::Unsupported, "unsupported: dropout"),
        without_answer(Verdict::Fail, "the kernel wrote to its input 'query'"),
        unbounded(),
    ];
    with_fixed_version(Report::new(subject(), check(), cases))
}

fn with_fixed_version(report: Report) -> Report {
    Report { flashproof: "0.0.0", ..report }
}

fn judge_report() -> Report {
    let rows = RowsJudged { judged: 10, of: 5000, sample_seed: Some(7) };
    let all = RowsJudged { judged: 4, of: 4, sample_seed: None };
    let run = Run::Judge {
        inputs: "dump.safetensors".to_owned(),
        rows,
        keys: Some(rows),
        bias_rows: Some(rows),
        sinks: Some(all),
    };
    with_fixed_version(Report::new(subject(), run, vec![case("dump.safetensors:q", Verdict::Pass)]))
}

fn as_json(report: &Report) -> String {
    let mut bytes = Vec::new();
    json::write(report, &mut bytes).unwrap();
    String::from_utf8(bytes).unwrap()
}

fn as_text(report: &Report) -> String {
    let mut bytes = Vec::new();
    text::write(report, &mut bytes).unwrap();
    anstream::adapter::strip_str(&String::from_utf8(bytes).unwrap()).to_string()
}

#[test]
fn the_json_form_is_stable() {
    insta::assert_snapshot!(as_json(&report()));
    insta::assert_snapshot!(as_json(&judge_report()));
}

#[test]
fn the_text_form_is_stable() {
    insta::assert_snapshot!(as_text(&report()));
    insta::assert_snapshot!(as_text(&judge_report()));
}

/// Field names of all objects, except of maps whose keys are data and of what other pages document.
fn fields(value: &Value, found: &mut Vec<String>) {
    const OPAQUE: [&str; 3] = ["profiles", "formats_refused", "verdicts"];
    match value {
        Value::Array(items) => items.iter().for_each(|item| fields(item, found)),
        Value::Object(entries) => {
            for (name, value) in entries {
                found.push(name.clone());
                if !OPAQUE.contains(&name.as_str()) && name != "mask" && name != "scale" {
                    fields(value, found);
                }
            }
        }
        _ => {}
    }
}

#[test]
fn every_field_is_documented() {
    let documentation = include_str!("../REPORT.md");
    let mut found = Vec::new();
    for report in [report(), judge_report()] {
        fields(&serde_json::from_str(&as_json(&report)).unwrap(), &mut found);
    }
    assert!(found.len() > 100);
    for field in found {
        assert!(documentation.contains(&format!("`{field}`")), "REPORT.md lacks `{field}`");
    }
}

#[test]
fn every_verdict_is_documented_as_it_is_written() {
    let documentation = include_str!("../REPORT.md");
    for verdict in Verdict::ALL {
        let written = serde_json::to_string(&verdict).unwrap().replace('"', "`");
        assert!(documentation.contains(&written), "REPORT.md lacks {written}");
    }
}

#[test]
fn reasons_of_unsupported_cases_are_counted_and_sorted_by_count() {
    let report = report();
    let counted: Vec<_> =
        report.summary.unsupported.iter().map(|it| (it.reason.as_str(), it.cases)).collect();
    assert_eq!(counted, [("unsupported: dropout", 2), ("unsupported: key lengths", 1)]);
    let text = as_text(&report);
    let lines: Vec<_> = text.lines().skip_while(|line| !line.contains("not counted")).collect();
    assert!(lines[0].contains("3 cases unsupported"), "{text}");
    assert!(lines[1].contains("2 unsupported: dropout"), "{text}");
    assert!(lines[2].contains("1 unsupported: key lengths"), "{text}");
}

#[test]
fn a_place_is_the_indices_that_there_are() {
    let json = |location: Location| serde_json::to_value(location).unwrap();
    let row = Location { batch: 1, head: 2, position: Position::Query(3), entry: Some(4) };
    assert_eq!(json(row), serde_json::json!({"batch": 1, "head": 2, "query": 3, "entry": 4}));
    assert_eq!(json(pair()), serde_json::json!({"batch": 0, "head": 1, "query": 3, "key": 1}));
    assert_eq!(json(sink()), serde_json::json!({"head": 1}));
    assert_eq!(sink().to_string(), "head 1");
    assert_eq!(pair().to_string(), "batch 0, head 1, query 3, key 1 of the bias");
}

#[test]
fn a_run_passes_only_where_something_did() {
    let outcome = |cases| Report::new(subject(), check(), cases).summary.outcome();
    let passing = || case("bf16/passing", Verdict::Pass);
    let unsupported = || without_answer(Verdict::Unsupported, "unsupported: all");
    assert_eq!(outcome(vec![]), Outcome::NothingChecked);
    assert_eq!(outcome(vec![unsupported()]), Outcome::NothingChecked);
    assert_eq!(outcome(vec![passing(), unsupported()]), Outcome::Passed);
    for verdict in Verdict::ALL.into_iter().filter(|it| it.is_failure()) {
        let other = without_answer(verdict, "it happened");
        assert_eq!(outcome(vec![passing(), other]), Outcome::Failed, "{verdict:?}");
    }
}

#[test]
fn a_long_list_of_failures_is_cut_and_says_so() {
    let many: Vec<_> = (0..20).map(|_| failing()).collect();
    let text = as_text(&Report::new(subject(), check(), many));
    assert_eq!(text.matches("reproduce  flashproof check").count(), 5);
    assert!(text.contains("and 15 more that did not pass"), "{text}");
}

#[test]
fn every_reason_of_a_mark_is_documented_as_it_is_written() {
    let documentation = include_str!("../REPORT.md");
    for reason in Reason::ALL {
        let written = serde_json::to_string(&reason).unwrap().replace('"', "`");
        assert!(documentation.contains(&written), "REPORT.md lacks {written}");
    }
}

#[test]
fn every_reason_without_statistics_is_documented_as_it_is_written() {
    let documentation = include_str!("../REPORT.md");
    for reason in NotApplicable::ALL {
        let written = serde_json::to_string(&reason).unwrap().replace('"', "`");
        assert!(documentation.contains(&written), "REPORT.md lacks {written}");
    }
}

#[test]
fn an_answer_that_every_case_lets_pass_is_told() {
    let mark = |answer| Mark { answer, reason: Reason::WithinBound, largest_ratio: 0.5 };
    let passing = |marks| CaseReport {
        not_discriminating: Some(marks),
        ..case("bf16/passing", Verdict::Pass)
    };
    let cases = vec![
        passing(vec![mark(Answer::Zeros), mark(Answer::Noise)]),
        passing(vec![mark(Answer::Zeros)]),
        case("bf16/not-tried", Verdict::Fail),
    ];
    let report = Report::new(subject(), check(), cases);
    assert_eq!(report.summary.not_discriminating, 2);
    let text = as_text(&report);
    assert!(text.contains("most often zeros (2 of 2)"), "{text}");
    let told: Vec<_> =
        text.lines().filter(|line| line.contains("no case that passed tells")).collect();
    assert_eq!(told, ["  no case that passed tells zeros from a right answer"]);
}
