//! The rules of masks against tables written by hand, `data/rules.json`, and against each other.

mod support;
#[path = "support/tables.rs"]
mod tables;

use flashproof_spec::format::Format;
use flashproof_spec::mask::{
    Alignment, BlockSparse, Chunked, Dilated, Documents, Mask, Prefix, Rule, Window,
};
use flashproof_spec::pattern::Pattern;
use flashproof_spec::problem::Problem;
use proptest::prelude::*;
use support::settings;
use tables::{Table, draw};

/// Checks the tables with such a rule, and that there are as many as expected.
fn assert_tables(count: usize, has: impl Fn(&Rule) -> bool) {
    let selected: Vec<_> = tables::tables(include_str!("data/rules.json"))
        .into_iter()
        .filter(|table| table.mask.rules.iter().any(&has))
        .collect();
    assert_eq!(selected.len(), count);
    for Table { name, query_len, key_len, mask, visible } in selected {
        let batch = visible.len();
        let problem =
            Problem { batch, query_len, mask, ..Problem::new(Format::F32, 1, key_len, 1) };
        assert_eq!(problem.validate(), Ok(()), "{name}");
        for (batch, expected) in visible.iter().enumerate() {
            assert_eq!(
                &draw(&problem.mask, batch, query_len, key_len),
                expected,
                "{name}, {batch}"
            );
        }
    }
}

#[test]
fn windows_match_the_tables() {
    assert_tables(10, |rule| matches!(rule, Rule::Window(_)));
}

#[test]
fn prefixes_match_the_tables() {
    assert_tables(3, |rule| matches!(rule, Rule::Prefix(_)));
}

#[test]
fn chunks_match_the_tables() {
    assert_tables(4, |rule| matches!(rule, Rule::Chunked(_)));
}

#[test]
fn dilated_masks_match_the_tables() {
    assert_tables(3, |rule| matches!(rule, Rule::Dilated(_)));
}

#[test]
fn documents_match_the_tables() {
    assert_tables(2, |rule| matches!(rule, Rule::Documents(_)));
}

#[test]
fn boolean_masks_match_the_tables() {
    assert_tables(2, |rule| matches!(rule, Rule::Boolean(_)));
}

#[test]
fn block_sparse_masks_match_the_tables() {
    assert_tables(2, |rule| matches!(rule, Rule::BlockSparse(_)));
}

#[test]
fn padding_on_the_left_matches_the_tables() {
    assert_tables(2, |rule| matches!(rule, Rule::KeyStarts(_)));
}

#[test]
fn padding_queries_match_the_tables() {
    assert_tables(3, |rule| matches!(rule, Rule::QueryLengths(_)));
}

fn alignment() -> impl Strategy<Value = Alignment> {
    prop_oneof![Just(Alignment::TopLeft), Just(Alignment::BottomRight)]
}

/// Lengths of queries and keys, and a rule on them.
fn sizes() -> impl Strategy<Value = (usize, usize)> {
    (0_usize..=7, 0_usize..=7)
}

fn bound() -> impl Strategy<Value = Option<usize>> {
    prop::option::of(0_usize..=8)
}

/// What each of the rules sees, drawn.
fn of(rule: Rule, (query_len, key_len): (usize, usize)) -> Vec<String> {
    draw(&Mask::only(rule), 0, query_len, key_len)
}

proptest! {
    #![proptest_config(settings("rules", "tests/proptest-regressions/rules.txt"))]

    #[test]
    fn a_causal_mask_is_a_window_open_to_the_left(sizes in sizes()) {
        for (causal, alignment) in [
            (Rule::CausalTopLeft, Alignment::TopLeft),
            (Rule::CausalBottomRight, Alignment::BottomRight),
        ] {
            let window = Window { left: None, right: Some(0), alignment };
            prop_assert_eq!(of(causal, sizes), of(Rule::Window(window), sizes));
        }
    }

    #[test]
    fn a_two_sided_window_is_the_intersection_of_its_sides(
        sizes in sizes(), left in bound(), right in bound(), alignment in alignment(),
    ) {
        let side = |left, right| Rule::Window(Window { left, right, alignment });
        let both = Mask { rules: vec![side(left, None), side(None, right)] };
        prop_assert_eq!(draw(&both, 0, sizes.0, sizes.1), of(side(left, right), sizes));
    }

    #[test]
    fn a_wider_window_sees_what_a_narrower_one_sees(
        sizes in sizes(), left in 0_usize..=8, right in 0_usize..=8, alignment in alignment(),
    ) {
        let window = |left, right| {
            of(Rule::Window(Window { left: Some(left), right: Some(right), alignment }), sizes)
        };
        let (narrow, wide) = (window(left, right).concat(), window(left + 1, right + 1).concat());
        prop_assert!(narrow.chars().zip(wide.chars()).all(|(n, w)| n <= w));
        // Each query at a position of the keys sees its own.
        let own = window(0, 0).concat();
        prop_assert!(own.chars().zip(narrow.chars()).all(|(own, n)| own <= n));
    }

    #[test]
    fn a_prefix_is_the_union_of_causal_and_length(
        (query_len, key_len) in sizes(), length in 0_usize..=7, top_left in any::<bool>(),
    ) {
        let length = length.min(key_len);
        let (alignment, causal) = if top_left {
            (Alignment::TopLeft, Rule::CausalTopLeft)
        } else {
            (Alignment::BottomRight, Rule::CausalBottomRight)
        };
        let prefix = of(Rule::Prefix(Prefix { lengths: vec![length], alignment }), (query_len, key_len));
        let causal = of(causal, (query_len, key_len));
        for (prefix, causal) in prefix.iter().zip(&causal) {
            for (key, (p, c)) in prefix.chars().zip(causal.chars()).enumerate() {
                prop_assert_eq!(p == '1', c == '1' || key < length);
            }
        }
    }

    #[test]
    fn chunks_are_documents_of_consecutive_positions(sizes in sizes(), size in 1_usize..=5) {
        let chunks = |len: usize| vec![(0..len).map(|at| (at / size) as u32).collect()];
        let documents = Documents { query: chunks(sizes.0), key: chunks(sizes.1) };
        let chunked = Chunked { size, alignment: Alignment::TopLeft };
        prop_assert_eq!(of(Rule::Chunked(chunked), sizes), of(Rule::Documents(documents), sizes));
    }

    #[test]
    fn dilated_keys_stand_whole_steps_apart(
        sizes in sizes(), step in 1_usize..=4, alignment in alignment(),
    ) {
        for row in of(Rule::Dilated(Dilated { step, alignment }), sizes) {
            let seen: Vec<usize> = row.match_indices('1').map(|(key, _)| key).collect();
            prop_assert!(seen.windows(2).all(|pair| pair[1] - pair[0] == step));
            prop_assert!(sizes.1 < step || !seen.is_empty());
        }
    }

    #[test]
    fn blocks_of_one_are_a_boolean_mask(
        (query_len, key_len) in sizes(), bits in prop::collection::vec(any::<bool>(), 49),
    ) {
        let pattern = Pattern::from_fn([1, 1, query_len, key_len], |[_, _, q, k]| bits[7 * q + k]);
        let blocks = BlockSparse { query_block: 1, key_block: 1, pattern: pattern.clone() };
        let (sparse, boolean) = (Rule::BlockSparse(blocks), Rule::Boolean(pattern));
        prop_assert_eq!(of(sparse, (query_len, key_len)), of(boolean, (query_len, key_len)));
    }

    #[test]
    fn starts_and_lengths_leave_a_range(key_len in 0_usize..=7, start in 0_usize..=7, end in 0_usize..=7) {
        let (start, end) = (start.min(key_len), end.min(key_len));
        let mask = Mask { rules: vec![Rule::KeyStarts(vec![start]), Rule::KeyLengths(vec![end])] };
        let row = &draw(&mask, 0, 1, key_len)[0];
        for (key, seen) in row.chars().enumerate() {
            prop_assert_eq!(seen == '1', (start..end).contains(&key));
        }
    }
}
