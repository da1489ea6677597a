//! Problems: shapes, heads, scale, and which problems cannot be posed.

use flashproof_spec::format::Format;
use flashproof_spec::mask::{
    Alignment, BlockSparse, Chunked, Dilated, Documents, Mask, Prefix, Rule,
};
use flashproof_spec::pattern::Pattern;
use flashproof_spec::problem::{Problem, ProblemError, Scale};
use flashproof_spec::score::{Alibi, Bias, Dropout, Sink, Slopes, Softcap, SoftcapOrder};
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

fn masked(rule: Rule) -> Problem {
    Problem { mask: Mask::only(rule), ..distinct() }
}

fn pattern(shape: [usize; 4]) -> Pattern {
    Pattern::from_fn(shape, |_| true)
}

fn capped(cap: f64) -> Softcap {
    Softcap { cap, order: SoftcapOrder::BeforeBias }
}

fn sloped(slopes: Vec<f64>) -> Problem {
    let alibi = Alibi { slopes: Slopes::Given(slopes), alignment: Alignment::TopLeft };
    Problem { alibi: Some(alibi), ..distinct() }
}

fn dropped(scale: f64) -> Dropout {
    Dropout { scale, keep: pattern([1, 1, 5, 7]) }
}

fn assert_refused(cases: &[(Problem, &str)]) {
    for (problem, message) in cases {
        let error = problem.validate().expect_err(message);
        assert_eq!(error.to_string(), *message);
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
            "key length: 1 given for a batch of 2, expected one each",
        ),
        (
            Problem { mask: Mask::only(Rule::KeyLengths(vec![7, 8])), ..distinct() },
            "key length of batch member 1 is 8: expected at most key_len = 7",
        ),
        (
            Problem { query_len: usize::MAX, ..distinct() },
            "a tensor of 2 x 6 x 18446744073709551615 x 11 elements is too large to address",
        ),
    ];
    assert_refused(&cases);
}

#[test]
fn impossible_masks_are_refused_by_name() {
    assert_refused(&[
        (
            masked(Rule::QueryLengths(vec![5, 6])),
            "query length of batch member 1 is 6: expected at most query_len = 5",
        ),
        (
            masked(Rule::KeyStarts(vec![8, 0])),
            "key start of batch member 0 is 8: expected at most key_len = 7",
        ),
        (
            masked(Rule::Prefix(Prefix { lengths: vec![1], alignment: Alignment::TopLeft })),
            "prefix: 1 given for a batch of 2, expected one each",
        ),
        (
            masked(Rule::Chunked(Chunked { size: 0, alignment: Alignment::TopLeft })),
            "chunk size of the mask is 0: expected at least 1",
        ),
        (
            masked(Rule::Dilated(Dilated { step: 0, alignment: Alignment::TopLeft })),
            "dilation step of the mask is 0: expected at least 1",
        ),
        (
            masked(Rule::Documents(Documents {
                query: vec![vec![0; 5]; 2],
                key: vec![vec![0; 7]],
            })),
            "documents of keys: 1 given for a batch of 2, expected one each",
        ),
        (
            masked(Rule::Documents(Documents {
                query: vec![vec![0; 5], vec![0; 4]],
                key: vec![vec![0; 7]; 2],
            })),
            "documents of queries of batch member 1 are 4: expected query_len = 5",
        ),
        (
            masked(Rule::Boolean(pattern([2, 3, 5, 7]))),
            "the boolean mask has shape [2, 3, 5, 7]: expected [2, 6, 5, 7], or 1 on any axis",
        ),
        (
            masked(Rule::BlockSparse(BlockSparse {
                query_block: 2,
                key_block: 2,
                pattern: pattern([1, 1, 2, 4]),
            })),
            "the pattern of blocks has shape [1, 1, 2, 4]: expected [2, 6, 3, 4], or 1 on any axis",
        ),
        (
            masked(Rule::BlockSparse(BlockSparse {
                query_block: 2,
                key_block: 0,
                pattern: pattern([1, 1, 3, 4]),
            })),
            "key_block of the mask is 0: expected at least 1",
        ),
    ]);
}

#[test]
fn impossible_score_modifications_are_refused_by_name() {
    assert_refused(&[
        (
            Problem { softcap: Some(capped(0.0)), ..distinct() },
            "the softcap is 0: expected a positive, finite number",
        ),
        (
            Problem { softcap: Some(capped(f64::NAN)), ..distinct() },
            "the softcap is NaN: expected a positive, finite number",
        ),
        (
            Problem { bias: Some(Bias { shape: [1, 2, 5, 7], format: Format::F32 }), ..distinct() },
            "the bias has shape [1, 2, 5, 7]: expected [2, 6, 5, 7], or 1 on any axis",
        ),
        (sloped(vec![1.0; 5]), "5 ALiBi slopes for 6 query heads: expected one each"),
        (
            sloped(vec![1.0, 1.0, 0.1, 1.0, 1.0, 1.0]),
            "the ALiBi slope of query head 2 is 0.1: expected a finite f32 number",
        ),
        (
            Problem { dropout: Some(dropped(-2.0)), ..distinct() },
            "the dropout scale is -2: expected a positive f32 number, and a power of two where \
                the format is f64",
        ),
        (
            Problem { format: Format::F64, dropout: Some(dropped(1.25)), ..distinct() },
            "the dropout scale is 1.25: expected a positive f32 number, and a power of two where \
                the format is f64",
        ),
        (
            Problem {
                dropout: Some(Dropout { keep: pattern([2, 6, 5, 6]), ..dropped(2.0) }),
                ..distinct()
            },
            "the keep mask has shape [2, 6, 5, 6]: expected [2, 6, 5, 7], or 1 on any axis",
        ),
    ]);
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
        softcap: Some(capped(30.0)),
        bias: Some(Bias { shape: [1, 6, 1, 7], format: Format::F32 }),
        alibi: sloped(vec![0.5; 6]).alibi,
        sink: Some(Sink::Logits(Format::Bf16)),
        dropout: Some(dropped(1.25)),
        ..distinct()
    };
    assert_eq!(problem.validate(), Ok(()));
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
