//! The messages of the worker protocol: what is understood, and what is refused in which words.

#[path = "adapter_support/mod.rs"]
mod adapter_support;

use adapter_support::messages::{some_files, some_hello, some_rules};
use flashproof_conformance::adapter::exec::protocol::{
    Answer, Operation, Outcome, PROTOCOL, Request,
};
use flashproof_conformance::adapter::exec::{Declaration, HelloError, parse_answer};
use flashproof_conformance::adapter::{AnswerError, Choices, EmptyRow, Guarantees, LseBase};
use flashproof_spec::format::Format;
use flashproof_spec::mask::{Mask, Rule};
use flashproof_spec::problem::Problem;
use flashproof_spec::profile::{Accumulation, LogError, Profile, Schedule};
use serde_json::{Value, json};

fn declare(profiles: &Value) -> Result<Declaration, HelloError> {
    let hello = json!({"protocol": PROTOCOL, "name": "test", "profiles": profiles});
    Declaration::parse(&hello.to_string())
}

fn declared(format: Format, profile: &Value) -> Result<Profile, HelloError> {
    let mut declaration = declare(&json!({format.name(): profile}))?;
    Ok(declaration.profiles.remove(&format).expect("the format declared"))
}

#[test]
fn profiles_are_named() {
    for format in [Format::F64, Format::Bf16, Format::E4m3] {
        assert_eq!(declared(format, &json!("standard")), Ok(Profile::standard(format)));
        assert_eq!(declared(format, &json!("dense")), Ok(Profile::dense(format)));
        assert_eq!(declared(format, &json!({"base": "dense"})), Ok(Profile::dense(format)));
    }
}

#[test]
fn each_format_has_a_profile_of_its_own() {
    let declaration = declare(&json!({"f32": "dense", "bf16": "standard"})).expect("a declaration");
    assert_eq!(declaration.name, "test");
    assert_eq!(declaration.choices, Choices::default());
    assert_eq!(declaration.profiles.len(), 2);
    assert_eq!(declaration.profiles[&Format::F32], Profile::dense(Format::F32));
    assert_eq!(declaration.profiles[&Format::Bf16], Profile::standard(Format::Bf16));
}

#[test]
fn fields_replace_those_of_the_base_as_a_whole() {
    let profile = declared(
        Format::F16,
        &json!({
            "base": "standard",
            "schedule": {"blocks": 64},
            "normalizer_depth": 12,
            "value_accumulation": {"tensor-core": {"chunk": 16, "fraction_bits": 25, "output_bits": 23}},
            "log": {"absolute": 0, "ulp": 1.5},
        }),
    );
    let expected = Profile {
        schedule: Schedule::Blocks(64),
        normalizer_depth: Some(12),
        value_accumulation: Accumulation::TensorCore {
            chunk: 16,
            fraction_bits: 25,
            output_bits: 23,
        },
        log: LogError { absolute: 0.0, ulp: 1.5 },
        ..Profile::standard(Format::F16)
    };
    assert_eq!(profile, Ok(expected));
}

#[test]
fn a_profile_in_full_is_taken_as_it_is() {
    let profile = Profile { exp_ulp: 0.1 + 0.2, ..Profile::dense(Format::Bf16) };
    let mut fields = serde_json::to_value(&profile).expect("a JSON object");
    fields["base"] = json!("standard");
    assert_eq!(declared(Format::Bf16, &fields), Ok(profile));
}

#[test]
fn choices_are_named() {
    let hello = json!({
        "protocol": 1, "name": "", "profiles": {"f32": "dense"},
        "choices": {"lse_base": "two", "empty_row": "nan"},
    });
    let declaration = Declaration::parse(&hello.to_string()).expect("a declaration");
    let expected =
        Choices { lse_base: LseBase::Two, empty_row: EmptyRow::Nan, ..Choices::default() };
    assert_eq!(declaration.choices, expected);
}

#[test]
fn guarantees_are_none_unless_declared() {
    let declared = |guarantees: &str| {
        let hello =
            format!(r#"{{"protocol": 1, "name": "", "profiles": {{"f32": "dense"}}{guarantees}}}"#);
        Declaration::parse(&hello).map(|declaration| declaration.guarantees)
    };
    assert_eq!(declared(""), Ok(Guarantees::default()));
    let deterministic = Guarantees { deterministic: true, batch_invariant: false };
    assert_eq!(declared(r#", "guarantees": {"deterministic": true}"#), Ok(deterministic));
    let error = declared(r#", "guarantees": {"determinism": true}"#).expect_err("a typo");
    assert!(error.to_string().contains("determinism"), "{error}");
}

#[test]
fn operations_are_named() {
    let declared = |operations: Value| {
        let hello = json!({
            "protocol": 1, "name": "", "profiles": {"f32": "dense"}, "operations": operations,
        });
        Declaration::parse(&hello.to_string()).map(|declaration| declaration.operations)
    };
    let both = [Operation::Forward, Operation::Backward].into();
    assert_eq!(declared(json!(["backward", "forward"])), Ok(both));
    assert_eq!(declared(json!(["backward"])), Ok([Operation::Backward].into()));
    assert_eq!(declared(json!(["merge"])), Ok([Operation::Merge].into()));
    assert_eq!(declared(json!([])), Err(HelloError::NoOperations));
    let error = declared(json!(["forward", "sideways"])).expect_err("no operation");
    let text = error.to_string();
    assert!(["sideways", "forward", "backward"].iter().all(|word| text.contains(word)), "{text}");
    assert!(matches!(error, HelloError::NotAHello { .. }), "{text}");
}

#[test]
fn forward_is_the_only_operation_by_default() {
    let declaration = declare(&json!({"f32": "dense"})).expect("a declaration");
    assert_eq!(declaration.operations, [Operation::Forward].into());
}

#[test]
fn an_operation_is_asked_for_by_its_name() {
    for operation in [Operation::Forward, Operation::Backward, Operation::Merge] {
        assert_eq!(serde_json::to_value(operation).expect("JSON"), operation.name());
        let request = Request::new(operation, some_files());
        let request = serde_json::to_value(request).expect("JSON");
        assert_eq!(request["op"], operation.name());
    }
}

#[test]
fn a_field_at_fault_is_named() {
    let format = Format::F32;
    let error = declared(format, &json!({"base": "dense", "exp-ulp": 1})).expect_err("a hyphen");
    let HelloError::UnknownField { field, expected, .. } = &error else { panic!("{error}") };
    assert_eq!(field, "exp-ulp");
    assert!(expected.contains(&"exp_ulp".to_owned()), "{error}");

    for (field, value) in [
        ("exp_ulp", json!("small")),
        ("exp_ulp", json!(-1)),
        ("division_ulp", json!(-0.5)),
        ("scale_roundings", json!(1.5)),
        ("scale_roundings", json!(-1)),
        ("schedule", json!("sometimes")),
        ("schedule", json!({"blocks": 0})),
        // Without blocks to run over.
        ("max_policy", json!("running")),
        ("max_policy", json!("row")),
        ("max_policy", json!("lazy")),
        ("weight_format", json!("f8")),
        ("lse_format", json!("tf32")),
        ("log", json!({"absolute": 0})),
        ("score_accumulation", json!({"ieee": {}})),
        (
            "score_accumulation",
            json!({"tensor-core": {"chunk": 0, "fraction_bits": 1, "output_bits": 1}}),
        ),
        ("flush_to_zero", json!(0)),
    ] {
        let error = declared(format, &json!({"base": "standard", field: value})).expect_err(field);
        let named = matches!(&error, HelloError::FieldValue { field: named, .. } if named == field);
        assert!(named, "{field}: {value}: {error}");
    }
    let error = declared(format, &json!({"base": "standard", "log": {"absolute": -1, "ulp": 1}}));
    let error = error.expect_err("a negative error");
    assert!(
        matches!(&error, HelloError::FieldValue { field, .. } if field == "log.absolute"),
        "{error}"
    );
}

#[test]
fn a_profile_at_fault_is_quoted() {
    for profile in [json!("strict"), json!({"base": "strict"}), json!({"exp_ulp": 1}), json!(1)] {
        let error = declared(Format::F32, &profile).expect_err("no profile");
        let expected = HelloError::Profile { format: Format::F32, found: profile.to_string() };
        assert_eq!(error, expected);
    }
    for name in ["tf32", "f8", "F32", ""] {
        let expected = HelloError::Format { found: name.to_owned() };
        assert_eq!(declare(&json!({name: "dense"})), Err(expected));
    }
    assert_eq!(declare(&json!({})), Err(HelloError::NoFormats));
}

#[test]
fn what_is_no_hello_is_quoted() {
    let refused = |line: &str| Declaration::parse(line).expect_err("no hello");
    assert_eq!(refused("hi"), HelloError::NotJson { found: "hi".to_owned() });
    assert_eq!(refused(r#"{"protocol": "1"}"#), HelloError::Protocol { found: "\"1\"".to_owned() });
    for line in [
        "{}",
        "[]",
        "null",
        r#"{"protocol": 1}"#,
        r#"{"protocol": 1, "name": "n", "profiles": ["f32"]}"#,
        r#"{"protocol": 1, "name": "n", "profiles": {}, "profile": "dense"}"#,
        r#"{"protocol": 1, "name": "n", "profiles": {"f32": "dense"}, "choices": {"lse_base": "ten"}}"#,
        r#"{"protocol": 1, "name": "n", "profiles": {"f32": "dense"}, "choices": {"lse": "two"}}"#,
    ] {
        let error = refused(line);
        assert!(matches!(&error, HelloError::NotAHello { found, .. } if found == line), "{error}");
    }
    let long = "x".repeat(100_000);
    assert!(refused(&long).to_string().len() < 300);
    let red = "\u{1b}[31mred";
    assert_eq!(refused(red), HelloError::NotJson { found: "\u{fffd}[31mred".to_owned() });
}

#[test]
fn answers_are_understood() {
    for (line, outcome) in [
        (r#"{"id": 7, "ok": true}"#, Outcome::Done),
        (r#"{"unsupported": "no", "id": 7}"#, Outcome::Unsupported("no".to_owned())),
        (r#"{"id": 7, "error": "no"}"#, Outcome::Failed("no".to_owned())),
    ] {
        assert_eq!(parse_answer(line, 7), Ok(outcome));
    }
}

#[test]
fn what_is_no_answer_is_quoted() {
    for line in [
        "{}",
        "7",
        r#"{"id": 7}"#,
        r#"{"ok": true}"#,
        r#"{"id": 7, "ok": false}"#,
        r#"{"id": 7, "ok": true, "error": "no"}"#,
        r#"{"id": -7, "ok": true}"#,
        r#"{"id": 7, "ok": true, "time": 3}"#,
        r#"{"id": 7, "error": null}"#,
    ] {
        let error = parse_answer(line, 7).expect_err("no answer");
        let quoted = matches!(&error, AnswerError::NotAnAnswer { found, .. } if found == line);
        assert!(quoted, "{line}: {error}");
    }
    assert_eq!(parse_answer("", 7), Err(AnswerError::NotJson { found: String::new() }));
    let other = r#"{"id": 6, "ok": true}"#;
    assert_eq!(parse_answer(other, 7), Err(AnswerError::WrongId { found: 6, expected: 7 }));
}

fn page() -> String {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/PROTOCOL.md");
    std::fs::read_to_string(path).expect("the protocol's page")
}

/// The JSON of `PROTOCOL.md`, one value a line or a block.
fn documented() -> Vec<Value> {
    let text = page();
    let blocks = text.split("```json\n").skip(1).filter_map(|rest| rest.split("```").next());
    blocks
        .flat_map(|block| serde_json::Deserializer::from_str(block).into_iter())
        .map(|value| value.expect("JSON"))
        .collect()
}

#[test]
fn the_documented_messages_are_understood() {
    let mut messages = documented().into_iter();
    let mut next = || messages.next().expect("another message");
    let hello: Request = serde_json::from_value(next()).expect("a request");
    assert_eq!(hello, Request::Hello { protocol: PROTOCOL });

    let declaration = Declaration::parse(&next().to_string()).expect("a declaration");
    assert_eq!(declaration.profiles[&Format::F32], Profile::dense(Format::F32));
    assert_eq!(declaration.profiles[&Format::Bf16].schedule, Schedule::Blocks(64));

    let both = [Operation::Forward, Operation::Backward].into();
    assert_eq!(declaration.operations, both);

    let Ok(Request::Forward(case)) = serde_json::from_value(next()) else { panic!("no case") };
    assert_eq!(case.problem.validate(), Ok(()));
    assert_eq!(case.scale, case.problem.scale_f64());
    let rules = vec![Rule::CausalBottomRight, Rule::KeyLengths(vec![7, 3])];
    assert_eq!(case.problem.mask, Mask { rules });

    let answers: Vec<Answer> =
        messages.map(|answer| serde_json::from_value(answer).expect("an answer")).collect();
    assert!(answers.iter().all(|answer| answer.id == case.id));
    assert!(matches!(
        answers.iter().map(|answer| &answer.outcome).collect::<Vec<_>>()[..],
        [Outcome::Done, Outcome::Unsupported(_), Outcome::Failed(_)]
    ));
}

#[test]
fn the_documented_fields_are_those_of_a_profile() {
    let text = page();
    let profile = serde_json::to_value(Profile::standard(Format::F32)).expect("a JSON object");
    for field in profile.as_object().expect("an object").keys() {
        assert!(text.contains(&format!("| `{field}` |")), "{field} is not in PROTOCOL.md");
    }
}

/// Options are written with hyphens, as on a command line; what has an option as its value is not.
#[test]
fn fields_are_written_with_underscores() {
    let mut hello = some_hello();
    let profile = hello["profiles"]["f16"].take();
    let files = serde_json::to_value(some_files()).expect("JSON");
    for object in [&hello, &profile, &hello["choices"], &files, &files["problem"]] {
        for field in object.as_object().expect("an object").keys() {
            assert!(!field.contains('-'), "{field}");
        }
    }
    assert_eq!(files["problem"]["mask"][0], "causal-top-left");
}

/// The JSON in code of a table's cells and of running text.
fn documented_snippets() -> Vec<String> {
    page().split('`').skip(1).step_by(2).map(str::to_owned).collect()
}

/// A problem with whatever is written of masks, scores and layouts, dots filled in.
#[test]
fn the_documented_rules_and_fields_are_understood() {
    let pattern = json!({"shape": [1, 1, 1, 1], "rows": ["1"]}).to_string();
    let fill = |snippet: &str| {
        snippet.replace("[...]", "[1]").replace(": pattern", &format!(": {pattern}"))
    };
    let problem = |field: &str, value: &Value| {
        let mut problem = serde_json::to_value(some_files().problem).expect("JSON");
        problem[field] = value.clone();
        serde_json::from_value::<Problem>(problem)
    };
    let snippets = documented_snippets();
    for rule in some_rules() {
        let name = rule.as_str().map_or_else(
            || rule.as_object().expect("an object").keys().next().cloned().expect("a name"),
            str::to_owned,
        );
        let start = if rule.is_string() { format!("\"{name}\"") } else { format!("{{\"{name}\":") };
        let snippet = snippets.iter().find(|snippet| snippet.starts_with(&start)).expect(&name);
        let rule: Value = serde_json::from_str(&fill(snippet)).expect(&name);
        problem("mask", &json!([rule])).expect(&name);
    }
    for field in ["softcap", "bias", "alibi", "sink", "dropout"] {
        let start = format!("\"{field}\": ");
        let found: Vec<_> = snippets.iter().filter_map(|it| it.strip_prefix(&start)).collect();
        assert!(!found.is_empty(), "{field} is not in PROTOCOL.md");
        for snippet in found {
            let value = serde_json::from_str(&fill(snippet)).expect(snippet);
            problem(field, &value).expect(snippet);
        }
    }
    for layout in ["ragged", "paged"] {
        let start = format!("{{\"{layout}\":");
        let snippet = snippets.iter().find(|snippet| snippet.starts_with(&start)).expect(layout);
        let value = serde_json::from_str(snippet).expect(snippet);
        problem("layout", &value).expect(snippet);
    }
    let strides = snippets.iter().find(|snippet| snippet.starts_with("{\"elements\":"));
    let strides: Value = serde_json::from_str(strides.expect("strides")).expect("JSON");
    let strided = json!({"query": strides, "key": strides, "value": strides, "output": strides});
    problem("layout", &json!({"strided": strided})).expect("strides");
}

#[test]
fn the_fields_of_a_declaration_are_documented() {
    let text = page();
    for field in some_hello().as_object().expect("an object").keys() {
        let documented = field == "protocol" || text.contains(&format!("| `{field}` |"));
        assert!(documented, "{field} is not in PROTOCOL.md");
    }
}

#[test]
fn messages_survive_a_round_trip() {
    for operation in [Operation::Forward, Operation::Backward, Operation::Merge] {
        let request = Request::new(operation, some_files());
        let line = serde_json::to_string(&request).expect("JSON");
        assert!(!line.contains('\n'));
        assert_eq!(serde_json::from_str::<Request>(&line).expect("a request"), request);
    }
    for outcome in
        [Outcome::Done, Outcome::Unsupported("why".to_owned()), Outcome::Failed(String::new())]
    {
        let answer = Answer { id: 3, outcome: outcome.clone() };
        assert_eq!(parse_answer(&serde_json::to_string(&answer).expect("JSON"), 3), Ok(outcome));
    }
}
