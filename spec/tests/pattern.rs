//! Patterns: broadcasting, their form on the wire, and what is refused.

mod support;

use flashproof_spec::pattern::{Pattern, broadcast_place};
use proptest::prelude::*;
use support::settings;

fn shapes() -> impl Strategy<Value = [usize; 4]> {
    [0_usize..=3, 0_usize..=3, 0_usize..=3, 0_usize..=4]
}

proptest! {
    #![proptest_config(settings("pattern", "tests/proptest-regressions/pattern.txt"))]

    #[test]
    fn patterns_survive_json(shape in shapes(), seed in any::<u64>()) {
        let mut state = seed;
        let pattern = Pattern::from_fn(shape, |_| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            state >> 63 == 1
        });
        prop_assert_eq!(pattern.bits().len(), shape.iter().product::<usize>());
        let json = serde_json::to_string(&pattern).expect("a pattern");
        prop_assert_eq!(serde_json::from_str::<Pattern>(&json).expect("the same"), pattern);
    }

    /// Whatever a file says, parsing gives a pattern of the shape that it states, or an error.
    #[test]
    fn any_wire_form_is_a_pattern_or_refused(
        shape in shapes(), rows in prop::collection::vec("[01x ]{0,5}", 0..12),
    ) {
        let json = serde_json::json!({ "shape": shape, "rows": rows }).to_string();
        if let Ok(pattern) = serde_json::from_str::<Pattern>(&json) {
            prop_assert_eq!(pattern.shape(), shape);
            let digits: String = rows.concat();
            let bits: String = pattern.bits().iter().map(|&bit| if bit { '1' } else { '0' }).collect();
            prop_assert_eq!(bits, digits);
        } else {
            let expected: usize = shape[..3].iter().product();
            let fits = |row: &String| row.len() == shape[3] && !row.contains(['x', ' ']);
            prop_assert!(rows.len() != expected || !rows.iter().all(fits));
        }
    }
}

#[test]
fn axes_of_extent_one_are_broadcast() {
    let pattern = Pattern::from_fn([1, 2, 1, 3], |[_, head, _, key]| (head + key) % 2 == 0);
    for (batch, query) in [(0, 0), (4, 9)] {
        for head in 0..2 {
            for key in 0..3 {
                assert_eq!(pattern.at([batch, head, query, key]), (head + key) % 2 == 0);
            }
        }
    }
    assert_eq!(broadcast_place([1, 2, 1, 3], [4, 1, 9, 2]), [0, 1, 0, 2]);
}

#[test]
fn wrong_patterns_are_refused_by_name() {
    for (json, message) in [
        (
            r#"{"shape": [1, 1, 2, 2], "rows": ["01"]}"#,
            "1 rows do not fill shape [1, 1, 2, 2]: expected 2",
        ),
        (
            r#"{"shape": [1, 1, 1, 2], "rows": ["011"]}"#,
            "row 0 is 3 long: expected 2 digits, each 0 or 1",
        ),
        (r#"{"shape": [1, 1, 1, 2], "rows": ["0t"]}"#, "row 0 holds 't': expected 0 or 1"),
        (
            r#"{"shape": [4294967296, 4294967296, 4294967296, 2], "rows": []}"#,
            "shape [4294967296, 4294967296, 4294967296, 2] has more truth values than can be addressed",
        ),
    ] {
        let error = serde_json::from_str::<Pattern>(json).expect_err(message);
        assert!(error.to_string().starts_with(message), "{error}");
    }
    let error = Pattern::new([1, 1, 2, 2], vec![true]).expect_err("too few");
    assert_eq!(error.to_string(), "1 truth values do not fill shape [1, 1, 2, 2]");
}
