//! Any tiles in any order give the dense gradients, exactly.

#[path = "support/heads.rs"]
mod heads;
mod support;

use flashproof_spec::arithmetic::ExactModel;
use flashproof_spec::gradient::tiled::{Blocks, by_key_blocks, two_passes};
use flashproof_spec::gradient::{KeyValue, attention_gradient};
use heads::{ExactHead, HEAD_DIM, VALUE_DIM, blocks, heads};
use proptest::prelude::*;
use rug::Rational;
use support::settings;

const A: ExactModel = ExactModel;

/// A head, and its queries and keys in blocks.
fn tiled_heads() -> impl Strategy<Value = (ExactHead, Vec<Vec<usize>>, Vec<Vec<usize>>)> {
    heads(6, 9).prop_flat_map(|head| {
        let (queries, keys) = (blocks(head.queries.len()), blocks(head.keys.len()));
        (Just(head), queries, keys)
    })
}

/// The head with no query seeing any key of `block`, as far as scores go; its rows are kept.
fn without_block(mut head: ExactHead, block: &[usize]) -> ExactHead {
    for query in &mut head.queries {
        for &i in block {
            query.scores[i] = None;
        }
    }
    head
}

proptest! {
    #![proptest_config(settings("gradient_tiles", "tests/proptest-regressions/gradient_tiles.txt"))]

    #[test]
    fn key_blocks_in_any_order_give_the_dense_gradients(
        (head, queries, keys) in tiled_heads(),
    ) {
        let blocks = Blocks { queries: &queries, keys: &keys };
        prop_assert_eq!(by_key_blocks(&A, &head, blocks), attention_gradient(&A, &head));
    }

    #[test]
    fn two_passes_in_any_order_give_the_dense_gradients(
        (head, queries, keys) in tiled_heads(),
    ) {
        let blocks = Blocks { queries: &queries, keys: &keys };
        prop_assert_eq!(two_passes(&A, &head, blocks), attention_gradient(&A, &head));
    }

    /// A block that no query sees brings nothing, first, last or between others.
    #[test]
    fn fully_masked_blocks_bring_nothing((head, queries, keys) in tiled_heads()) {
        let dead = keys[0].clone();
        let head = without_block(head, &dead);
        let live: Vec<_> = keys[1..].to_vec();
        let all = Blocks { queries: &queries, keys: &keys };
        let rest = Blocks { queries: &queries, keys: &live };
        for tiled in [by_key_blocks, two_passes] {
            prop_assert_eq!(tiled(&A, &head, all), tiled(&A, &head, rest));
        }
    }

    /// Positions between the last key and the end of the last tile.
    #[test]
    fn padding_the_last_tile_changes_nothing(
        head in heads(3, 7),
        block in 1_usize..=8,
        padding in prop::collection::vec(-9_i32..=9, HEAD_DIM + VALUE_DIM),
    ) {
        let len = head.keys.len();
        let padded_len = len.next_multiple_of(block);
        let entries: Vec<_> = padding.into_iter().map(Rational::from).collect();
        let (key, value) = entries.split_at(HEAD_DIM);
        let padding = KeyValue { key: key.to_vec(), value: value.to_vec() };
        let mut padded = head.clone();
        padded.keys.resize(padded_len, padding);
        for query in &mut padded.queries {
            query.scores.resize(padded_len, None);
        }
        let positions: Vec<_> = (0..padded_len).collect();
        let keys: Vec<_> = positions.chunks(block).map(<[usize]>::to_vec).collect();
        let queries = [(0..head.queries.len()).collect()];
        let blocks = Blocks { queries: &queries, keys: &keys };
        let expected = attention_gradient(&A, &head);
        for tiled in [by_key_blocks, two_passes] {
            let mut found = tiled(&A, &padded, blocks);
            let tail = found.keys.split_off(len);
            prop_assert_eq!(&found, &expected);
            prop_assert!(tail.iter().flat_map(|kv| kv.key.iter().chain(&kv.value)).all(Rational::is_zero));
        }
    }
}
