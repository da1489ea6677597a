//! The reference that weights are taken against leaves no trace in the row, exactly.

mod support;

use flashproof_spec::arithmetic::{Arithmetic, ExactModel};
use flashproof_spec::attention::{dense_row, dense_row_at};
use flashproof_spec::online::{Row, absorb, absorb_at, finish, rescale, start};
use proptest::prelude::*;
use support::{ExactKey, divide, keys, reference, settings, sizes, state, state_of};

const A: ExactModel = ExactModel;
const VALUE_DIM: usize = 2;

proptest! {
    #![proptest_config(settings("reference", "tests/proptest-regressions/reference.txt"))]

    #[test]
    fn any_reference_gives_the_same_row(keys in keys(VALUE_DIM), reference in reference()) {
        prop_assert_eq!(dense_row_at(&A, &keys, &reference), dense_row(&A, &keys));
    }

    #[test]
    fn conditional_rescaling_gives_the_same_row(
        keys in keys(VALUE_DIM),
        sizes in sizes(),
        references in prop::collection::vec(prop::option::of(reference()), 9),
    ) {
        let mut state = start(&A, VALUE_DIM);
        for (block, reference) in divide(&keys, &sizes).into_iter().zip(references) {
            // A lagging reference keeps the old one; the first block has none to keep.
            state = match reference.or(state.reference.clone()) {
                Some(reference) => absorb_at(&A, state, block, &reference),
                None => absorb(&A, state, block),
            };
        }
        prop_assert_eq!(finish(&A, &state), dense_row(&A, &keys));
    }

    #[test]
    fn a_rescaled_state_is_the_same_row(x in state(VALUE_DIM), reference in reference()) {
        let rescaled = rescale(&A, x.clone(), &reference);
        prop_assert_eq!(finish(&A, &rescaled), finish(&A, &x));
        let back = match &x.reference {
            Some(old) => rescale(&A, rescaled, old),
            None => rescaled,
        };
        prop_assert_eq!(back, x);
    }

    #[test]
    fn a_rescaled_state_absorbs_the_same(
        seen in keys(VALUE_DIM),
        block in keys(VALUE_DIM),
        reference in reference(),
    ) {
        let rescaled = rescale(&A, state_of(&seen, VALUE_DIM), &reference);
        let all = [seen, block.clone()].concat();
        prop_assert_eq!(finish(&A, &absorb(&A, rescaled, &block)), dense_row(&A, &all));
    }

    #[test]
    fn a_constant_on_every_score_moves_the_lse_alone(
        keys in keys(VALUE_DIM),
        constant in reference(),
    ) {
        let moved: Vec<_> = keys.iter().map(|ExactKey { score, value }| ExactKey {
            score: score.as_ref().map(|score| A.shift(score, &constant)),
            value: value.clone(),
        }).collect();
        let expected = dense_row(&A, &keys)
            .map(|Row { output, lse }| Row { output, lse: A.shift(&lse, &constant) });
        prop_assert_eq!(dense_row(&A, &moved), expected);
    }
}
