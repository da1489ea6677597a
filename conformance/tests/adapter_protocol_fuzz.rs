//! Whatever a worker writes is understood or refused, and no input makes a reader panic.

#[path = "adapter_support/mod.rs"]
mod adapter_support;

use adapter_support::messages::{placed_problems, some_hello, some_problem};
use adapter_support::property::settings;
use flashproof_conformance::adapter::exec::protocol::{PROTOCOL, Request};
use flashproof_conformance::adapter::exec::{Declaration, parse_answer};
use flashproof_conformance::adapter::{CausalAlignment, Choices, SoftcapChoice, WindowConvention};
use flashproof_spec::layout::Placed;
use flashproof_spec::problem::Problem;
use proptest::prelude::*;
use serde_json::{Value, json};

/// JSON of the words that the messages are made of.
fn value() -> impl Strategy<Value = Value> {
    const WORDS: [&str; 78] = [
        "id",
        "ok",
        "error",
        "unsupported",
        "protocol",
        "name",
        "profiles",
        "choices",
        "operations",
        "forward",
        "backward",
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
        "merge",
        "key-starts",
        "query-lengths",
        "window",
        "left",
        "right",
        "alignment",
        "top-left",
        "prefix",
        "lengths",
        "chunked",
        "size",
        "dilated",
        "step",
        "documents",
        "boolean",
        "block-sparse",
        "pattern",
        "shape",
        "rows",
        "softcap",
        "cap",
        "bias",
        "alibi",
        "slopes",
        "given",
        "sink",
        "logits",
        "dropout",
        "keep",
        "layout",
        "strided",
        "strides",
        "ragged",
        "paged",
        "block_table",
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

/// A problem from JSON is refused, or can be posed: then all that is asked of it can be told.
fn pose(problem: Value) -> bool {
    let Ok(problem) = serde_json::from_value::<Problem>(problem) else { return false };
    if problem.validate().is_err() {
        return false;
    }
    let lengths = problem.query_len.max(problem.key_len).max(problem.head_dim);
    let small = problem.batch.max(problem.query_heads).max(lengths).max(problem.value_dim);
    if small < 64 {
        let last =
            (problem.batch - 1, problem.query_heads - 1, problem.query_len.saturating_sub(1));
        let seen = problem.visible_keys(last.0, last.1, last.2);
        assert!(seen.len() <= problem.key_len);
    }
    assert!(problem.scale_f64().is_finite());
    if small < 64 {
        for placed in Placed::ALL {
            let len = problem.buffer_len(placed);
            assert!(problem.owned(placed).all(|(_, offset)| offset < len), "{placed:?}");
        }
        let choices = Choices {
            causal: CausalAlignment::TopLeft,
            window: WindowConvention::Count,
            softcap: SoftcapChoice::AfterBias,
            ..Choices::default()
        };
        assert_eq!(choices.read(&problem).validate(), Ok(()));
    }
    true
}

/// A request for a forward pass with every rule and field.
fn some_request() -> Value {
    json!({
        "op": "forward", "id": 7, "scale": 0.5, "problem": some_problem(), "inputs": "a",
        "outputs": "b",
    })
}

#[test]
fn the_undisturbed_messages_are_understood() {
    assert!(pose(some_problem()));
    assert!(placed_problems().into_iter().all(pose));
    assert!(serde_json::from_value::<Request>(some_request()).is_ok());
    assert!(Declaration::parse(&some_hello().to_string()).is_ok());
}

proptest! {
    #![proptest_config(settings("adapter_protocol_fuzz", "tests/proptest-regressions/adapter_protocol_fuzz.txt"))]

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
            prop_assert!(!declaration.profiles.is_empty() && !declaration.operations.is_empty());
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
    fn disturbed_layouts_are_posed_or_refused(
        value in prop::sample::select(placed_problems()).prop_flat_map(disturbed),
    ) {
        pose(value);
    }

    #[test]
    fn disturbed_requests_are_understood_or_refused(value in disturbed(some_request())) {
        if let Ok(Request::Forward(case)) = serde_json::from_value::<Request>(value.clone()) {
            prop_assert_eq!(&value["op"], "forward");
            pose(value["problem"].clone());
            prop_assert_eq!(value["id"].as_u64(), Some(case.id));
        }
    }

    #[test]
    fn any_json_is_a_problem_or_is_refused(value in value()) {
        pose(value);
    }
}
