//! Masks against tables written by hand: `data/masks.json`.

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

/// The tables of `data/masks.json`.
fn tables() -> Vec<Table> {
    tables::tables(include_str!("data/masks.json"))
}

/// Checks the tables whose mask satisfies `select`, and that there are as many as expected.
fn assert_tables(count: usize, select: impl Fn(&Mask) -> bool) {
    let selected: Vec<_> = tables().into_iter().filter(|table| select(&table.mask)).collect();
    assert_eq!(selected.len(), count);
    for Table { name, query_len, key_len, mask, visible } in selected {
        for (batch, expected) in visible.iter().enumerate() {
            assert_eq!(&draw(&mask, batch, query_len, key_len), expected, "{name}, member {batch}");
        }
    }
}

fn has_lengths(mask: &Mask) -> bool {
    mask.rules.iter().any(|rule| matches!(rule, Rule::KeyLengths(_)))
}

#[test]
fn without_rules_every_key_is_visible() {
    assert_tables(2, |mask| *mask == Mask::full());
}

#[test]
fn causal_masks_match_the_tables() {
    assert_tables(8, |mask| mask.rules.len() == 1 && !has_lengths(mask));
}

#[test]
fn keys_past_the_length_are_invisible() {
    assert_tables(4, has_lengths);
}

#[test]
fn bottom_right_is_aligned_with_the_keys_in_use() {
    assert_tables(1, |mask| mask.rules.contains(&Rule::CausalBottomRight) && has_lengths(mask));
}

#[test]
fn several_rules_match_the_tables() {
    assert_tables(5, |mask| mask.rules.len() > 1);
}

#[test]
fn causal_alignments_agree_on_squares_only() {
    let [top_left, bottom_right] = [Rule::CausalTopLeft, Rule::CausalBottomRight].map(Mask::only);
    for query_len in 1..=6 {
        for key_len in 1..=6 {
            let agree = draw(&top_left, 0, query_len, key_len)
                == draw(&bottom_right, 0, query_len, key_len);
            assert_eq!(agree, query_len == key_len, "{query_len} on {key_len}");
        }
    }
}

#[test]
fn visible_keys_of_a_problem_are_those_its_mask_admits() {
    for Table { name, query_len, key_len, mask, visible } in tables() {
        let problem = Problem {
            batch: visible.len(),
            query_len,
            key_len,
            mask,
            ..Problem::new(Format::F32, 2, 1, 4)
        };
        problem.validate().expect("the tables pose possible problems");
        for (batch, table) in visible.iter().enumerate() {
            for (query, row) in table.iter().enumerate() {
                let expected: Vec<_> = row.match_indices('1').map(|(key, _)| key).collect();
                for head in 0..2 {
                    let found = problem.visible_keys(batch, head, query);
                    assert_eq!(found, expected, "{name}, member {batch}, query {query}");
                }
            }
        }
    }
}

fn alignment() -> impl Strategy<Value = Alignment> {
    prop_oneof![Just(Alignment::TopLeft), Just(Alignment::BottomRight)]
}

/// Any rule, on so many queries and keys.
fn rule(batch: usize, query_len: usize, key_len: usize) -> impl Strategy<Value = Rule> {
    let lengths = move |len: usize| prop::collection::vec(0..=len, batch);
    let sides = (prop::option::of(0_usize..=7), prop::option::of(0_usize..=7), alignment());
    let window = sides.prop_map(|(left, right, alignment)| Window { left, right, alignment });
    let prefix = (lengths(key_len), alignment());
    let documents = |len| prop::collection::vec(prop::collection::vec(0_u32..3, len), batch);
    let bits = |shape: [usize; 4]| {
        let bits = prop::collection::vec(any::<bool>(), shape.iter().product::<usize>());
        bits.prop_map(move |bits| Pattern::new(shape, bits).expect("as many as the shape"))
    };
    let blocks = [batch, 1, query_len.div_ceil(2), key_len.div_ceil(3)];
    prop_oneof![
        Just(Rule::CausalTopLeft),
        Just(Rule::CausalBottomRight),
        lengths(key_len).prop_map(Rule::KeyLengths),
        lengths(key_len).prop_map(Rule::KeyStarts),
        lengths(query_len).prop_map(Rule::QueryLengths),
        window.prop_map(Rule::Window),
        prefix.prop_map(|(lengths, alignment)| Rule::Prefix(Prefix { lengths, alignment })),
        (1_usize..=4, alignment())
            .prop_map(|(size, alignment)| Rule::Chunked(Chunked { size, alignment })),
        (1_usize..=4, alignment())
            .prop_map(|(step, alignment)| Rule::Dilated(Dilated { step, alignment })),
        (documents(query_len), documents(key_len))
            .prop_map(|(query, key)| Rule::Documents(Documents { query, key })),
        bits([1, 1, query_len, key_len]).prop_map(Rule::Boolean),
        bits(blocks).prop_map(|pattern| {
            Rule::BlockSparse(BlockSparse { query_block: 2, key_block: 3, pattern })
        }),
    ]
}

proptest! {
    #![proptest_config(settings("masks", "tests/proptest-regressions/masks.txt"))]

    /// Rules intersect one by one; the offset of bottom-right depends on the lengths of the whole
    /// mask, which therefore go into each part.
    #[test]
    fn rules_intersect(
        (query_len, key_len, rules, permuted) in (0_usize..=6, 0_usize..=6)
            .prop_flat_map(|(query_len, key_len)| {
                (Just(query_len), Just(key_len), prop::collection::vec(rule(2, query_len, key_len), 0..=4))
            })
            .prop_flat_map(|(query_len, key_len, rules)| {
                let permuted = Just(rules.clone()).prop_shuffle();
                (Just(query_len), Just(key_len), Just(rules), permuted)
            }),
    ) {
        let is_length =
            |rule: &&Rule| matches!(rule, Rule::KeyLengths(_) | Rule::QueryLengths(_));
        let lengths: Vec<_> = rules.iter().filter(is_length).cloned().collect();
        for batch in 0..2 {
            let whole = draw(&Mask { rules: rules.clone() }, batch, query_len, key_len);
            let permuted = draw(&Mask { rules: permuted.clone() }, batch, query_len, key_len);
            prop_assert_eq!(&permuted, &whole);
            let repeated = Mask { rules: [&rules[..], &rules[..]].concat() };
            prop_assert_eq!(&draw(&repeated, batch, query_len, key_len), &whole);

            let parts: Vec<_> = rules.iter()
                .map(|rule| Mask { rules: [&lengths[..], std::slice::from_ref(rule)].concat() })
                .map(|part| draw(&part, batch, query_len, key_len))
                .collect();
            for query in 0..query_len {
                for key in 0..key_len {
                    let seen = |table: &[String]| table[query].as_bytes()[key] == b'1';
                    prop_assert_eq!(seen(&whole), parts.iter().all(|part| seen(part)));
                }
            }
        }
    }

    #[test]
    fn masks_survive_json(rules in prop::collection::vec(rule(3, 4, 5), 0..=4)) {
        let mask = Mask { rules };
        let json = serde_json::to_string(&mask).expect("a mask");
        prop_assert_eq!(serde_json::from_str::<Mask>(&json).expect("the same mask"), mask);
    }
}
