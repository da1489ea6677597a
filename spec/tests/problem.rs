//! Problems: shapes, heads, scale, and which problems cannot be posed.

use flashproof_spec::format::Format;
use flashproof_spec::mask::{Mask, Rule};
use flashproof_spec::problem::{Problem, ProblemError, Scale};
use rug::Rational;

/// Every extent its own, so that none can stand in for another.
fn distinct() -> Problem {
    Problem {
        batch: 2,
        query_heads: 6,
        key_heads: 3,
        query_len: 5,
        key_len: 7,
        head_dim: 11,
        value_dim: 13,
        ..Problem::new(Format::Bf16, 1, 1, 1)
    }
}

#[test]
fn shapes_follow_the_extents() {
    let problem = distinct();
    assert_eq!(problem.validate(), Ok(()));
    assert_eq!(problem.query_shape(), [2, 6, 5, 11]);
    assert_eq!(problem.key_shape(), [2, 3, 7, 11]);
    assert_eq!(problem.value_shape(), [2, 3, 7, 13]);
    assert_eq!(problem.output_shape(), [2, 6, 5, 13]);
    assert_eq!(problem.lse_shape(), [2, 6, 5]);
}

#[test]
fn no_queries_and_no_keys_are_possible() {
    for (query_len, key_len) in [(0, 3), (3, 0), (0, 0)] {
        let problem = Problem { query_len, key_len, ..distinct() };
        assert_eq!(problem.validate(), Ok(()), "{query_len} on {key_len}");
    }
}

#[test]
fn impossible_problems_are_refused_by_name() {
    let cases = [
        (Problem { batch: 0, ..distinct() }, "batch is 0: expected at least 1"),
        (Problem { query_heads: 0, ..distinct() }, "query_heads is 0: expected at least 1"),
        (Problem { key_heads: 0, ..distinct() }, "key_heads is 0: expected at least 1"),
        (Problem { head_dim: 0, ..distinct() }, "head_dim is 0: expected at least 1"),
        (Problem { value_dim: 0, ..distinct() }, "value_dim is 0: expected at least 1"),
        (
            Problem { key_heads: 4, ..distinct() },
            "query_heads is 6, not a multiple of key_heads = 4",
        ),
        (
            Problem { scale: Scale::Value(f64::INFINITY), ..distinct() },
            "the softmax scale is inf: expected a finite number",
        ),
        (
            Problem { mask: Mask::only(Rule::KeyLengths(vec![7])), ..distinct() },
            "the mask gives 1 key lengths for a batch of 2: expected one each",
        ),
        (
            Problem { mask: Mask::only(Rule::KeyLengths(vec![7, 8])), ..distinct() },
            "key length 8 of batch member 1 exceeds key_len = 7",
        ),
        (
            Problem { query_len: usize::MAX, ..distinct() },
            "a tensor of 2 x 6 x 18446744073709551615 x 11 elements is too large to address",
        ),
    ];
    for (problem, message) in cases {
        let error = problem.validate().expect_err(message);
        assert_eq!(error.to_string(), message);
    }
}

#[test]
fn a_tensor_with_no_elements_cannot_hide_one_too_large() {
    let problem = Problem { query_len: 0, key_len: usize::MAX / 2, ..distinct() };
    assert!(matches!(problem.validate(), Err(ProblemError::TooLarge(_))));
}

#[test]
fn query_heads_share_key_heads_in_runs() {
    let key_heads = |query_heads, key_heads| -> Vec<usize> {
        let problem = Problem { query_heads, key_heads, ..distinct() };
        (0..query_heads).map(|head| problem.key_head_of(head)).collect()
    };
    assert_eq!(key_heads(6, 2), [0, 0, 0, 1, 1, 1]);
    assert_eq!(key_heads(6, 3), [0, 0, 1, 1, 2, 2]);
    assert_eq!(key_heads(4, 4), [0, 1, 2, 3]);
    assert_eq!(key_heads(4, 1), [0, 0, 0, 0]);
}

#[test]
fn the_scale_is_the_problems() {
    let scale = |head_dim| Problem { head_dim, ..distinct() }.scale_f64();
    assert_eq!(scale(64), 0.125);
    assert_eq!(scale(256), 0.0625);
    assert_eq!(scale(1), 1.0);
    for head_dim in [2, 40, 72, 112] {
        // No binary64 number is 1/sqrt(head_dim); two roundings stay within two units of it.
        let square = |x: f64| Rational::from_f64(x).expect("finite").square();
        let found = scale(head_dim);
        assert!(square(found.next_down().next_down()) * head_dim < 1, "{head_dim}");
        assert!(square(found.next_up().next_up()) * head_dim > 1, "{head_dim}");
    }
    let given = Problem { scale: Scale::Value(-0.3), ..distinct() };
    assert_eq!(given.scale_f64(), -0.3);
}

#[test]
fn problems_survive_json_and_defaults_may_be_left_out() {
    let problem = Problem {
        scale: Scale::Value(0.1),
        mask: Mask { rules: vec![Rule::CausalBottomRight, Rule::KeyLengths(vec![7, 0])] },
        ..distinct()
    };
    let json = serde_json::to_string(&problem).expect("a problem");
    assert_eq!(serde_json::from_str::<Problem>(&json).expect("the same"), problem);

    let minimal = r#"{"batch": 1, "query_heads": 1, "key_heads": 1, "query_len": 4, "key_len": 4,
        "head_dim": 8, "value_dim": 8, "format": "f16"}"#;
    let parsed: Problem = serde_json::from_str(minimal).expect("defaults fill the rest");
    assert_eq!(parsed, Problem::new(Format::F16, 1, 4, 8));
}

#[test]
fn unknown_fields_and_formats_are_refused_by_name() {
    let json = serde_json::to_string(&distinct()).expect("a problem");
    let misspelt = json.replace("\"head_dim\"", "\"head_dims\"");
    let error = serde_json::from_str::<Problem>(&misspelt).expect_err("an unknown field");
    assert!(error.to_string().contains("head_dims"), "{error}");
    let unknown = json.replace("\"bf16\"", "\"fp4\"");
    let error = serde_json::from_str::<Problem>(&unknown).expect_err("an unknown format");
    assert!(error.to_string().contains("fp4"), "{error}");
}
