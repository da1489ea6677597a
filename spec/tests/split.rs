//! Splits of the keys that were finished by themselves merge by their LSE, exactly.

mod support;

use flashproof_spec::arithmetic::ExactModel;
use flashproof_spec::attention::{blocks_row, dense_row, merge_splits};
use flashproof_spec::online::RowOf;
use proptest::prelude::*;
use support::{ExactKey, divide, keys, settings, sizes};

const A: ExactModel = ExactModel;
const VALUE_DIM: usize = 2;

/// Finishes every split by itself, block by block.
fn finish_splits(splits: &[&[ExactKey]], blocks: &[usize]) -> Vec<Option<RowOf<ExactModel>>> {
    splits.iter().map(|split| blocks_row(&A, divide(split, blocks), VALUE_DIM)).collect()
}

proptest! {
    #![proptest_config(settings("split", "tests/proptest-regressions/split.txt"))]

    #[test]
    fn merged_splits_are_the_whole_row(
        (keys, permuted) in keys(VALUE_DIM).prop_flat_map(|keys| {
            (Just(keys.clone()), Just(keys).prop_shuffle())
        }),
        splits in sizes(),
        blocks in sizes(),
    ) {
        let splits = finish_splits(&divide(&permuted, &splits), &blocks);
        prop_assert_eq!(merge_splits(&A, splits), dense_row(&A, &keys));
    }

    #[test]
    fn merges_of_merges_are_the_whole_row(
        keys in keys(VALUE_DIM),
        splits in sizes(),
        groups in sizes(),
    ) {
        let splits = finish_splits(&divide(&keys, &splits), &[]);
        let groups = divide(&splits, &groups);
        let merged: Vec<_> =
            groups.into_iter().map(|group| merge_splits(&A, group.iter().cloned())).collect();
        prop_assert_eq!(merge_splits(&A, merged), dense_row(&A, &keys));
    }

    #[test]
    fn empty_splits_alone_are_an_empty_row(splits in 0_usize..=5) {
        prop_assert_eq!(merge_splits(&A, vec![None; splits]), None);
    }
}
