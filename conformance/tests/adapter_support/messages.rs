//! Valid messages of the worker protocol.

use flashproof_conformance::adapter::exec::protocol::{Files, Hello, Operation, PROTOCOL};
use flashproof_conformance::adapter::{Choices, Guarantees};
use flashproof_spec::format::Format;
use flashproof_spec::mask::{Alignment, Mask, Rule};
use flashproof_spec::pattern::Pattern;
use flashproof_spec::problem::{Problem, Scale};
use flashproof_spec::profile::Profile;
use flashproof_spec::score::{Alibi, Bias, Dropout, Sink, Slopes, Softcap, SoftcapOrder};
use serde_json::{Value, json};

use super::{masks, placed};

pub fn some_files() -> Files {
    let problem = Problem {
        mask: Mask { rules: vec![Rule::CausalTopLeft, Rule::KeyLengths(vec![3])] },
        scale: Scale::Value(0.1),
        ..Problem::new(Format::Bf16, 2, 3, 4)
    };
    Files {
        id: u64::MAX,
        scale: problem.scale_f64(),
        problem,
        inputs: "a \"b\"\n".into(),
        outputs: "c".into(),
    }
}

/// A problem with every rule and field there is.
pub fn some_problem() -> Value {
    let problem = Problem {
        batch: 2,
        query_len: 3,
        key_len: 20,
        scale: Scale::Value(0.5),
        ..Problem::new(Format::F16, 4, 3, 8)
    };
    let mut rules = vec![Rule::CausalTopLeft, Rule::CausalBottomRight];
    rules.extend(masks::of_every_kind(&problem).into_iter().flat_map(|(_, rules)| rules));
    let shape = [1, 4, 1, 20];
    let problem = Problem {
        mask: Mask { rules },
        softcap: Some(Softcap { cap: 2.0, order: SoftcapOrder::AfterBias }),
        bias: Some(Bias { shape, format: Format::F32 }),
        alibi: Some(Alibi { slopes: Slopes::Given(vec![0.5; 4]), alignment: Alignment::TopLeft }),
        sink: Some(Sink::Logits(Format::F32)),
        dropout: Some(Dropout { scale: 2.0, keep: Pattern::from_fn(shape, |_| true) }),
        ..problem
    };
    serde_json::to_value(problem).expect("JSON")
}

/// One of each rule.
pub fn some_rules() -> Vec<Value> {
    let rules = some_problem()["mask"].as_array().expect("rules").clone();
    let name = |rule: &Value| match rule {
        Value::Object(fields) => fields.keys().next().cloned(),
        rule => rule.as_str().map(str::to_owned),
    };
    let mut named: Vec<_> = rules.into_iter().map(|rule| (name(&rule), rule)).collect();
    named.sort_by(|a, b| a.0.cmp(&b.0));
    named.dedup_by(|a, b| a.0 == b.0);
    named.into_iter().map(|(_, rule)| rule).collect()
}

/// Problems in each layout, as JSON.
pub fn placed_problems() -> Vec<Value> {
    let problems = placed::problems(Format::F32).into_iter();
    problems.map(|(_, problem)| serde_json::to_value(problem).expect("JSON")).collect()
}

pub fn some_hello() -> Value {
    let mut profile = serde_json::to_value(Profile::standard(Format::F16)).expect("JSON");
    profile["base"] = json!("dense");
    let profiles = [("f16".to_owned(), profile), ("f32".to_owned(), json!("dense"))].into();
    let name = "n".to_owned();
    let operations = vec![Operation::Backward, Operation::Forward];
    let choices = Choices::default();
    let guarantees = Guarantees::default();
    let hello = Hello { protocol: PROTOCOL, name, profiles, operations, choices, guarantees };
    serde_json::to_value(hello).expect("JSON")
}
