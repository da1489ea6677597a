//! Invisible keys, blocks of them, and rows of them.

mod support;

use std::num::NonZeroUsize;

use flashproof_spec::arithmetic::{ExactModel, F64};
use flashproof_spec::attention::{dense_row, merge_splits, tiled_row};
use flashproof_spec::online::{Key, absorb, absorb_at, finish, merge, start};
use proptest::prelude::*;
use support::{ExactKey, keys, number, reference, settings, state};

const A: ExactModel = ExactModel;
const VALUE_DIM: usize = 2;

/// Keys that the row does not see.
fn masked_block() -> impl Strategy<Value = Vec<ExactKey>> {
    let key = prop::collection::vec(number(), VALUE_DIM)
        .prop_map(|value| ExactKey { score: None, value });
    prop::collection::vec(key, 0..=5)
}

proptest! {
    #![proptest_config(settings("masked_keys", "tests/proptest-regressions/masked_keys.txt"))]

    #[test]
    fn fully_masked_blocks_change_nothing(
        x in state(VALUE_DIM),
        block in masked_block(),
        reference in reference(),
    ) {
        prop_assert_eq!(&absorb(&A, x.clone(), &block), &x);
        prop_assert_eq!(&absorb_at(&A, x.clone(), &block, &reference), &x);
    }

    #[test]
    fn invisible_keys_have_no_influence(
        keys in prop::collection::vec((prop::option::of(-30.0..30.0), -9.0..9.0), 0..=20),
        poison in prop::sample::select(vec![f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 1e300]),
        block in 1_usize..=8,
    ) {
        let row = |hidden: f64| -> Vec<Key<f64, f64>> {
            keys.iter().map(|&(score, value)| Key {
                score,
                value: vec![if score.is_some() { value } else { hidden }],
            }).collect()
        };
        let block = NonZeroUsize::new(block).expect("from 1");
        prop_assert_eq!(
            tiled_row(&F64, &row(poison), block, 1),
            tiled_row(&F64, &row(0.0), block, 1)
        );
        prop_assert_eq!(dense_row(&F64, &row(poison)), dense_row(&F64, &row(0.0)));
    }

    #[test]
    fn removing_invisible_keys_leaves_the_row(keys in keys(VALUE_DIM)) {
        let visible: Vec<_> = keys.iter().filter(|key| key.score.is_some()).cloned().collect();
        prop_assert_eq!(dense_row(&A, &keys), dense_row(&A, &visible));
    }

    #[test]
    fn a_row_without_visible_keys_has_no_answer(block in masked_block()) {
        let state = absorb(&A, start(&A, VALUE_DIM), &block);
        prop_assert_eq!(finish(&A, &state), None);
        prop_assert_eq!(finish(&A, &merge(&A, state.clone(), state)), None);
        prop_assert_eq!(dense_row(&A, &block), None);
        prop_assert_eq!(merge_splits(&A, [dense_row(&A, &block), None]), None);
    }
}
