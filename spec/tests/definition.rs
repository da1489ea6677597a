//! The dense row is attention as defined, checked against formulas that share no code with it.

mod support;

use flashproof_spec::arithmetic::{ExactModel, Logarithm};
use flashproof_spec::attention::dense_row;
use flashproof_spec::online::{Row, absorb, start};
use proptest::prelude::*;
use rug::{Complete, Rational};
use support::{ExactKey, key, keys, settings};

const A: ExactModel = ExactModel;
const VALUE_DIM: usize = 2;

/// `sum_i 2^(s_i)` over the visible keys, and the same with each term times `v_ij`: no reference.
fn mass_and_moment(keys: &[ExactKey], j: usize) -> (Rational, Rational) {
    let mut mass = Rational::new();
    let mut moment = Rational::new();
    for ExactKey { score, value } in keys {
        if let Some(score) = score {
            mass += score.exponential();
            moment += (score.exponential() * &value[j]).complete();
        }
    }
    (mass, moment)
}

proptest! {
    #![proptest_config(settings("definition", "tests/proptest-regressions/definition.txt"))]

    #[test]
    fn dense_row_is_the_weighted_mean(keys in keys(VALUE_DIM)) {
        let visible = keys.iter().any(|key| key.score.is_some());
        let row = dense_row(&A, &keys);
        prop_assert_eq!(row.is_some(), visible);
        for (j, entry) in row.iter().flat_map(|row| row.output.iter().enumerate()) {
            let (mass, moment) = mass_and_moment(&keys, j);
            prop_assert_eq!(entry, &(moment / mass));
        }
    }

    #[test]
    fn lse_is_the_logarithm_of_the_mass(keys in keys(VALUE_DIM)) {
        let (mass, _) = mass_and_moment(&keys, 0);
        prop_assert_eq!(dense_row(&A, &keys).map(|row| row.lse), Logarithm::of(mass).ok());
    }

    #[test]
    fn every_visible_key_counts_once(
        keys in keys(VALUE_DIM),
        place in any::<prop::sample::Index>(),
        more in key(VALUE_DIM),
    ) {
        let mut longer = keys.clone();
        longer.insert(place.index(keys.len() + 1), more.clone());
        let weight = more.score.map_or_else(Rational::new, |s| s.exponential().clone());
        let mass = |keys: &[ExactKey]| {
            dense_row(&A, keys).map_or_else(Rational::new, |row| row.lse.exponential().clone())
        };
        prop_assert_eq!(mass(&longer), mass(&keys) + weight);
    }

    #[test]
    fn output_lies_between_the_values(keys in keys(VALUE_DIM)) {
        let Some(Row { output, lse }) = dense_row(&A, &keys) else { return Ok(()) };
        for (j, entry) in output.iter().enumerate() {
            let column = || keys.iter().filter(|k| k.score.is_some()).map(|k| &k.value[j]);
            prop_assert!(column().min() <= Some(entry) && Some(entry) <= column().max());
        }
        prop_assert!(keys.iter().all(|key| key.score <= Some(lse.clone())));
    }

    #[test]
    fn normalizer_against_the_maximum_is_at_least_one(keys in keys(VALUE_DIM)) {
        let state = absorb(&A, start(&A, VALUE_DIM), &keys);
        let visible = keys.iter().filter(|key| key.score.is_some()).count();
        if visible > 0 {
            prop_assert!(state.normalizer >= 1 && state.normalizer <= visible);
        } else {
            prop_assert_eq!(state, start(&A, VALUE_DIM));
        }
    }
}
