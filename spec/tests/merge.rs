//! The states of a row form a commutative monoid, exactly.

mod support;

use flashproof_spec::arithmetic::ExactModel;
use flashproof_spec::online::{absorb, merge, start};
use proptest::prelude::*;
use support::{ExactState, divide, keys, settings, sizes, state, state_of};

const A: ExactModel = ExactModel;
const VALUE_DIM: usize = 2;

proptest! {
    #![proptest_config(settings("merge", "tests/proptest-regressions/merge.txt"))]

    #[test]
    fn merge_is_commutative(x in state(VALUE_DIM), y in state(VALUE_DIM)) {
        prop_assert_eq!(merge(&A, x.clone(), y.clone()), merge(&A, y, x));
    }

    #[test]
    fn merge_is_associative(x in state(VALUE_DIM), y in state(VALUE_DIM), z in state(VALUE_DIM)) {
        let left = merge(&A, merge(&A, x.clone(), y.clone()), z.clone());
        let right = merge(&A, x, merge(&A, y, z));
        prop_assert_eq!(left, right);
    }

    #[test]
    fn start_is_the_identity_of_merge(x in state(VALUE_DIM)) {
        let identity = start(&A, VALUE_DIM);
        prop_assert_eq!(&merge(&A, identity.clone(), x.clone()), &x);
        prop_assert_eq!(&merge(&A, x.clone(), identity), &x);
    }

    #[test]
    fn absorbing_a_block_merges_its_state(seen in keys(VALUE_DIM), block in keys(VALUE_DIM)) {
        let absorbed = absorb(&A, state_of(&seen, VALUE_DIM), &block);
        let merged = merge(&A, state_of(&seen, VALUE_DIM), state_of(&block, VALUE_DIM));
        prop_assert_eq!(absorbed, merged);
    }

    #[test]
    fn any_tree_of_merges_gives_one_state(
        keys in keys(VALUE_DIM),
        sizes in sizes(),
        picks in prop::collection::vec(any::<prop::sample::Index>(), 2 * 9),
    ) {
        let blocks = divide(&keys, &sizes);
        let leaves = blocks.into_iter().map(|block| state_of(block, VALUE_DIM)).collect();
        prop_assert_eq!(merge_tree(leaves, &picks), state_of(&keys, VALUE_DIM));
    }
}

/// Merges the states two at a time, `picks` saying which, until one is left.
fn merge_tree(mut states: Vec<ExactState>, picks: &[prop::sample::Index]) -> ExactState {
    for pair in picks.chunks_exact(2) {
        if states.len() == 1 {
            break;
        }
        let left = states.swap_remove(pair[0].index(states.len()));
        let right = states.swap_remove(pair[1].index(states.len()));
        states.push(merge(&A, left, right));
    }
    assert_eq!(states.len(), 1, "two picks for each merge");
    states.remove(0)
}
