//! The messages of the worker protocol: what is understood, and what is refused in which words.

#[path = "adapter_support/property.rs"]
mod property;

use flashproof_conformance::adapter::exec::protocol::{
    Answer, Forward, Hello, Outcome, PROTOCOL, Request,
};
use flashproof_conformance::adapter::exec::{Declaration, HelloError, parse_answer};
use flashproof_conformance::adapter::{AnswerError, Choices, EmptyRow, LseBase};
use flashproof_spec::format::Format;
use flashproof_spec::mask::{Mask, Rule};
use flashproof_spec::problem::{Problem, Scale};
use flashproof_spec::profile::{Accumulation, LogError, Profile, Schedule};
use property::settings;
use proptest::prelude::*;
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
    assert_eq!(declaration.choices, Choices { lse_base: LseBase::Two, empty_row: EmptyRow::Nan });
}

#[test]
fn a_field_at_fault_is_named() {
    let format = Format::F32;
    let error = declared(format, &json!({"base": "dense", "exp_ulp": 1})).expect_err("a hyphen");
    let HelloError::UnknownField { field, expected, .. } = &error else { panic!("{error}") };
    assert_eq!(field, "exp_ulp");
    assert!(expected.contains(&"exp_ulp".to_owned()), "{error}");

    for (field, value) in [
        ("exp_ulp", json!("small")),
        ("exp_ulp", json!(-1)),
        ("division_ulp", json!(-0.5)),
        ("scale_roundings", json!(1.5)),
        ("scale_roundings", json!(-1)),
        ("schedule", json!("sometimes")),
        ("schedule", json!({"blocks": 0})),
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

/// The JSON of `PROTOCOL.md`, one value a line or a block.
fn documented() -> Vec<Value> {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/PROTOCOL.md");
    let text = std::fs::read_to_string(path).expect("the protocol's page");
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
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/PROTOCOL.md");
    let text = std::fs::read_to_string(path).expect("the protocol's page");
    let profile = serde_json::to_value(Profile::standard(Format::F32)).expect("a JSON object");
    for field in profile.as_object().expect("an object").keys() {
        assert!(text.contains(&format!("| `{field}` |")), "{field} is not in PROTOCOL.md");
    }
}

#[test]
fn messages_survive_a_round_trip() {
    let problem = Problem {
        mask: Mask { rules: vec![Rule::CausalTopLeft, Rule::KeyLengths(vec![3])] },
        scale: Scale::Value(0.1),
        ..Problem::new(Format::Bf16, 2, 3, 4)
    };
    let request = Request::Forward(Forward {
        id: u64::MAX,
        scale: problem.scale_f64(),
        problem,
        inputs: "a \"b\"\n".into(),
        outputs: "c".into(),
    });
    let line = serde_json::to_string(&request).expect("JSON");
    assert!(!line.contains('\n'));
    assert_eq!(serde_json::from_str::<Request>(&line).expect("a request"), request);
    for outcome in
        [Outcome::Done, Outcome::Unsupported("why".to_owned()), Outcome::Failed(String::new())]
    {
        let answer = Answer { id: 3, outcome: outcome.clone() };
        assert_eq!(parse_answer(&serde_json::to_string(&answer).expect("JSON"), 3), Ok(outcome));
    }
}

/// JSON of the words that the messages are made of.
fn value() -> impl Strategy<Value = Value> {
    const WORDS: [&str; 39] = [
        "id",
        "ok",
        "error",
        "unsupported",
        "protocol",
        "name",
        "profiles",
        "choices",
        "base",
        "standard",
        "dense",
        "schedule",
        "blocks",
        "exp_ulp",
        "log",
        "absolute",
        "ulp",
        "f32",
        "bf16",
        "lse_base",
        "two",
        "mask",
        "key-lengths",
        "causal-top-left",
        "scale",
        "value",
        "batch",
        "query_heads",
        "key_heads",
        "query_len",
        "key_len",
        "head_dim",
        "value_dim",
        "format",
        "score_accumulation",
        "ieee",
        "tensor-core",
        "chunk",
        "depth",
    ];
    let word = prop::sample::select(WORDS.as_slice());
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        prop::sample::select(vec![0, 1, 7, u64::MAX]).prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        word.clone().prop_map(Value::from),
        any::<String>().prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 64, 8, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..8).prop_map(Value::from),
            prop::collection::btree_map(word.clone().prop_map(str::to_owned), inner, 0..8)
                .prop_map(|fields| Value::Object(fields.into_iter().collect())),
        ]
    })
}

/// A valid object with some fields replaced by anything, at any depth.
fn disturbed(valid: Value) -> impl Strategy<Value = Value> {
    let replaced = prop::collection::vec((any::<prop::sample::Index>(), value()), 0..3);
    replaced.prop_map(move |changes| {
        let mut changed = valid.clone();
        for (at, replacement) in changes {
            let mut pointers = Vec::new();
            pointers_into(&changed, "", &mut pointers);
            let pointer = &pointers[at.index(pointers.len())];
            *changed.pointer_mut(pointer).expect("a place that was just found") = replacement;
        }
        changed
    })
}

/// JSON pointers to every value within.
fn pointers_into(value: &Value, path: &str, pointers: &mut Vec<String>) {
    pointers.push(path.to_owned());
    let escape = |key: &str| key.replace('~', "~0").replace('/', "~1");
    match value {
        Value::Object(fields) => {
            for (key, inner) in fields {
                pointers_into(inner, &format!("{path}/{}", escape(key)), pointers);
            }
        }
        Value::Array(items) => {
            for (i, inner) in items.iter().enumerate() {
                pointers_into(inner, &format!("{path}/{i}"), pointers);
            }
        }
        _ => {}
    }
}

fn some_problem() -> Value {
    let rules = vec![Rule::CausalBottomRight, Rule::KeyLengths(vec![2, 3])];
    let problem = Problem {
        batch: 2,
        mask: Mask { rules },
        scale: Scale::Value(0.5),
        ..Problem::new(Format::F16, 4, 3, 8)
    };
    serde_json::to_value(problem).expect("JSON")
}

fn some_hello() -> Value {
    let mut profile = serde_json::to_value(Profile::standard(Format::F16)).expect("JSON");
    profile["base"] = json!("dense");
    let profiles = [("f16".to_owned(), profile), ("f32".to_owned(), json!("dense"))].into();
    let name = "n".to_owned();
    let hello = Hello { protocol: PROTOCOL, name, profiles, choices: Choices::default() };
    serde_json::to_value(hello).expect("JSON")
}

/// A problem from JSON is refused, or can be posed: then all that is asked of it can be told.
fn pose(problem: Value) -> bool {
    let Ok(problem) = serde_json::from_value::<Problem>(problem) else { return false };
    if problem.validate().is_err() {
        return false;
    }
    let small = problem.batch.max(problem.query_heads).max(problem.query_len).max(problem.key_len);
    if small < 64 {
        let last =
            (problem.batch - 1, problem.query_heads - 1, problem.query_len.saturating_sub(1));
        let seen = problem.visible_keys(last.0, last.1, last.2);
        assert!(seen.len() <= problem.key_len);
    }
    assert!(problem.scale_f64().is_finite());
    true
}

#[test]
fn the_undisturbed_messages_are_understood() {
    assert!(pose(some_problem()));
    assert!(Declaration::parse(&some_hello().to_string()).is_ok());
}

proptest! {
    #![proptest_config(settings("adapter_protocol", "tests/proptest-regressions/adapter_protocol.txt"))]

    #[test]
    fn lines_of_anything_are_refused(line in any::<String>(), id in any::<u64>()) {
        prop_assert!(parse_answer(&line, id).is_err());
        prop_assert!(Declaration::parse(&line).is_err());
    }

    #[test]
    fn any_json_is_an_answer_or_is_refused(value in value(), id in 0_u64..2) {
        let line = value.to_string();
        let answered = parse_answer(&line, id).is_ok();
        prop_assert!(!answered || value["id"] == id);
        let declared = Declaration::parse(&line).is_ok();
        prop_assert!(!declared || value["protocol"] == PROTOCOL);
    }

    #[test]
    fn disturbed_answers_are_understood_or_refused(
        value in disturbed(json!({"id": 7, "unsupported": "why"})),
    ) {
        let understood = parse_answer(&value.to_string(), 7).is_ok();
        prop_assert!(!understood || value["id"] == 7);
    }

    #[test]
    fn disturbed_hellos_are_understood_or_refused(value in disturbed(some_hello())) {
        if let Ok(declaration) = Declaration::parse(&value.to_string()) {
            prop_assert!(!declaration.profiles.is_empty());
            for profile in declaration.profiles.values() {
                prop_assert!(profile.exp_ulp >= 0.0 && profile.division_ulp >= 0.0);
            }
        }
    }

    #[test]
    fn disturbed_problems_are_posed_or_refused(value in disturbed(some_problem())) {
        pose(value);
    }

    #[test]
    fn any_json_is_a_problem_or_is_refused(value in value()) {
        pose(value);
    }
}
