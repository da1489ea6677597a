//! Valid messages of the worker protocol.

use flashproof_conformance::adapter::Choices;
use flashproof_conformance::adapter::exec::protocol::{Files, Hello, Operation, PROTOCOL};
use flashproof_spec::format::Format;
use flashproof_spec::mask::{Mask, Rule};
use flashproof_spec::problem::{Problem, Scale};
use flashproof_spec::profile::Profile;
use serde_json::{Value, json};

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

pub fn some_problem() -> Value {
    let rules = vec![Rule::CausalBottomRight, Rule::KeyLengths(vec![2, 3])];
    let problem = Problem {
        batch: 2,
        mask: Mask { rules },
        scale: Scale::Value(0.5),
        ..Problem::new(Format::F16, 4, 3, 8)
    };
    serde_json::to_value(problem).expect("JSON")
}

pub fn some_hello() -> Value {
    let mut profile = serde_json::to_value(Profile::standard(Format::F16)).expect("JSON");
    profile["base"] = json!("dense");
    let profiles = [("f16".to_owned(), profile), ("f32".to_owned(), json!("dense"))].into();
    let name = "n".to_owned();
    let operations = vec![Operation::Backward, Operation::Forward];
    let choices = Choices::default();
    let hello = Hello { protocol: PROTOCOL, name, profiles, operations, choices };
    serde_json::to_value(hello).expect("JSON")
}
