//! Infinities and NaN: the executable clauses, in binary64, answer as the tables of
//! `FAS:fwd.special.*` say, for every partition of the keys.

mod support;

use std::num::NonZeroUsize;

use flashproof_spec::arithmetic::F64;
use flashproof_spec::attention::{blocks_row, dense_row, tiled_row};
use flashproof_spec::online::{Key, Row};
use proptest::prelude::*;
use support::{divide, settings, sizes};

const INFINITY: f64 = f64::INFINITY;

/// A key with one value entry.
fn key(score: f64, value: f64) -> Key<f64, f64> {
    Key { score: Some(score), value: vec![value] }
}

/// Keys whose scores are finite or from `special`.
fn keys(special: &'static [f64]) -> impl Strategy<Value = Vec<Key<f64, f64>>> {
    let score = prop_oneof![3 => -30.0..30.0, 1 => prop::sample::select(special)];
    prop::collection::vec((score, -9.0..9.0).prop_map(|(s, v)| key(s, v)), 0..=12)
}

/// A score that is finite or `-inf`, a value entry that may be special, and a finite one.
fn column_key() -> impl Strategy<Value = (f64, f64, f64)> {
    let value = prop_oneof![
        8 => -9.0..9.0,
        1 => prop::sample::select(&[f64::NAN, INFINITY, -INFINITY][..]),
    ];
    (prop_oneof![4 => -300.0..300.0, 1 => Just(-INFINITY)], value, -9.0..9.0)
}

/// The row of the keys as one block, and divided into several.
fn rows(keys: &[Key<f64, f64>], sizes: &[usize]) -> [Row<f64, f64>; 2] {
    let dense = dense_row(&F64, keys);
    let blocks = blocks_row(&F64, divide(keys, sizes), keys[0].value.len());
    [dense, blocks].map(|row| row.expect("a visible key"))
}

/// The keys with one more at some place.
fn with(
    mut keys: Vec<Key<f64, f64>>,
    place: prop::sample::Index,
    more: Key<f64, f64>,
) -> Vec<Key<f64, f64>> {
    keys.insert(place.index(keys.len() + 1), more);
    keys
}

proptest! {
    #![proptest_config(settings("special_values", "tests/proptest-regressions/special_values.txt"))]

    #[test]
    fn a_nan_score_poisons_the_row(
        keys in keys(&[INFINITY, -INFINITY, f64::NAN]),
        place in any::<prop::sample::Index>(),
        sizes in sizes(),
    ) {
        for row in rows(&with(keys, place, key(f64::NAN, 1.0)), &sizes) {
            prop_assert!(row.output[0].is_nan() && row.lse.is_nan(), "{row:?}");
        }
    }

    #[test]
    fn an_infinite_score_poisons_the_row(
        keys in keys(&[INFINITY, -INFINITY]),
        place in any::<prop::sample::Index>(),
        sizes in sizes(),
    ) {
        for row in rows(&with(keys, place, key(INFINITY, 1.0)), &sizes) {
            prop_assert!(row.output[0].is_nan(), "{row:?}");
            prop_assert!(row.lse.is_nan() || row.lse == INFINITY, "{row:?}");
        }
    }

    #[test]
    fn scores_all_minus_infinity_are_never_a_finite_answer(
        values in prop::collection::vec(-9.0..9.0, 1..=12),
        sizes in sizes(),
    ) {
        let keys: Vec<_> = values.into_iter().map(|value| key(-INFINITY, value)).collect();
        for row in rows(&keys, &sizes) {
            prop_assert!(row.output[0].is_nan() || row.output[0] == 0.0, "{row:?}");
            prop_assert!(row.lse.is_nan() || row.lse == -INFINITY, "{row:?}");
        }
    }

    #[test]
    fn a_score_of_minus_infinity_has_no_weight(
        keys in keys(&[-INFINITY]),
        place in any::<prop::sample::Index>(),
        score in -30.0..30.0,
    ) {
        let keys = with(keys, place, key(score, 1.0));
        let finite: Vec<_> =
            keys.iter().filter(|key| key.score != Some(-INFINITY)).cloned().collect();
        let block = NonZeroUsize::MIN;
        prop_assert_eq!(dense_row(&F64, &keys), dense_row(&F64, &finite));
        prop_assert_eq!(tiled_row(&F64, &keys, block, 1), tiled_row(&F64, &finite, block, 1));
    }

    /// Equal finite scores and integer values make every operation exact, so any partition can be
    /// compared with `==`.
    #[test]
    fn minus_infinity_has_no_weight_in_any_partition(
        keys in prop::collection::vec((any::<bool>(), -9_i32..=9), 1..=12),
        place in any::<prop::sample::Index>(),
        sizes in sizes(),
    ) {
        let keys = keys.into_iter()
            .map(|(dead, value)| key(if dead { -INFINITY } else { 5.0 }, f64::from(value)))
            .collect();
        let keys = with(keys, place, key(5.0, 1.0));
        let [dense, blocks] = rows(&keys, &sizes);
        prop_assert_eq!(dense, blocks);
    }

    #[test]
    fn special_values_stay_in_their_column(
        keys in prop::collection::vec(column_key(), 0..=8),
        place in any::<prop::sample::Index>(),
        finite in (-300.0..300.0, -9.0..9.0, -9.0..9.0),
        sizes in sizes(),
    ) {
        let mut keys = keys;
        keys.insert(place.index(keys.len() + 1), finite);
        let row_keys = |special: bool| -> Vec<Key<f64, f64>> {
            keys.iter().map(|&(score, value, finite)| Key {
                score: Some(score),
                value: vec![if special { value } else { 0.0 }, finite],
            }).collect()
        };
        let plain = rows(&row_keys(false), &sizes);
        for (row, plain) in rows(&row_keys(true), &sizes).into_iter().zip(plain) {
            prop_assert_eq!(row.lse, plain.lse);
            prop_assert_eq!(row.output[1], plain.output[1]);
            let column: Vec<_> = keys.iter().map(|&(score, value, _)| (score, value)).collect();
            prop_assert!(admits(&column, row.output[0]), "{:?} in {:?}", row, column);
        }
    }
}

/// Whether the table of the clauses admits `entry` for a column of `(score, value)` pairs, at least
/// one score finite and none NaN or `+inf`.
fn admits(column: &[(f64, f64)], entry: f64) -> bool {
    let nan = column
        .iter()
        .any(|&(score, value)| value.is_nan() || (value.is_infinite() && score == -INFINITY));
    let holds = |infinity: f64| column.iter().any(|&(_, value)| value == infinity);
    match (nan, holds(INFINITY), holds(-INFINITY)) {
        (true, ..) | (_, true, true) => entry.is_nan(),
        (_, true, false) => entry.is_nan() || entry == INFINITY,
        (_, false, true) => entry.is_nan() || entry == -INFINITY,
        (false, false, false) => entry.is_finite(),
    }
}
