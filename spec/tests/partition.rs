//! Any partition of the keys into blocks, taken in any order, is the dense row, exactly.

mod support;

use std::num::NonZeroUsize;

use flashproof_spec::arithmetic::ExactModel;
use flashproof_spec::attention::{blocks_row, dense_row, tiled_row};
use proptest::prelude::*;
use support::{ExactKey, divide, keys, number, settings, sizes};

const A: ExactModel = ExactModel;
const VALUE_DIM: usize = 2;

proptest! {
    #![proptest_config(settings("partition", "tests/proptest-regressions/partition.txt"))]

    #[test]
    fn any_partition_in_any_order_is_the_dense_row(
        (keys, permuted) in keys(VALUE_DIM).prop_flat_map(|keys| {
            (Just(keys.clone()), Just(keys).prop_shuffle())
        }),
        sizes in sizes(),
    ) {
        let blocks = divide(&permuted, &sizes);
        prop_assert_eq!(blocks_row(&A, blocks, VALUE_DIM), dense_row(&A, &keys));
    }

    #[test]
    fn every_block_size_is_the_dense_row(keys in keys(VALUE_DIM)) {
        let dense = dense_row(&A, &keys);
        for block in (1..=keys.len() + 1).filter_map(NonZeroUsize::new) {
            prop_assert_eq!(&tiled_row(&A, &keys, block, VALUE_DIM), &dense, "blocks of {}", block);
        }
    }

    #[test]
    fn padding_the_last_tile_changes_nothing(
        keys in keys(VALUE_DIM),
        block in 1_usize..=8,
        padding in prop::collection::vec(prop::collection::vec(number(), VALUE_DIM), 8),
    ) {
        let tail = padding.into_iter().map(|value| ExactKey { score: None, value });
        let padded_len = keys.len().next_multiple_of(block);
        let padded: Vec<_> = keys.iter().cloned().chain(tail).take(padded_len).collect();
        let block = NonZeroUsize::new(block).expect("from 1");
        prop_assert_eq!(tiled_row(&A, &padded, block, VALUE_DIM), dense_row(&A, &keys));
    }
}
