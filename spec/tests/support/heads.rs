//! Heads of the exact model with what their forward pass stored.
#![allow(dead_code)] // each test program uses a part of it

use flashproof_spec::arithmetic::{ExactModel, Logarithm};
use flashproof_spec::attention::dense_row;
use flashproof_spec::gradient::{Head, HeadOf, KeyValue, Query, QueryOf};
use flashproof_spec::online::{Key, RowOf};
use proptest::prelude::*;
use rug::Rational;

use crate::support::{divide, sizes};

/// A head of the exact model.
pub type ExactHead = HeadOf<ExactModel>;

/// A finished row of the exact model.
pub type ExactRow = RowOf<ExactModel>;

/// Entries of a query and of a key; not those of a value.
pub const HEAD_DIM: usize = 2;

/// Entries of a value and of an output.
pub const VALUE_DIM: usize = 3;

/// Numbers in thirds and halves, zero among them.
fn number() -> impl Strategy<Value = Rational> {
    (-9_i32..=9, 1_i32..=3).prop_map(Rational::from)
}

fn numbers(entries: usize) -> impl Strategy<Value = Vec<Rational>> {
    prop::collection::vec(number(), entries)
}

/// Even integers: half-integer scales leave their scores integers.
fn even() -> impl Strategy<Value = Vec<Rational>> {
    prop::collection::vec((-3_i32..=3).prop_map(|k| Rational::from(2 * k)), HEAD_DIM)
}

/// Integers.
fn whole() -> impl Strategy<Value = Vec<Rational>> {
    prop::collection::vec((-3_i32..=3).prop_map(Rational::from), HEAD_DIM)
}

/// Scales: halves, negative ones and zero among them.
fn scale() -> impl Strategy<Value = Rational> {
    (-3_i32..=5).prop_map(|twice| Rational::from((twice, 2)))
}

/// Which of `keys` keys a query sees: some, or none.
fn visible(keys: usize) -> impl Strategy<Value = Vec<bool>> {
    prop_oneof![
        4 => prop::collection::vec(prop::bool::weighted(0.7), keys),
        1 => Just(vec![false; keys]),
    ]
}

/// `scale * <query, key>`, which is an integer.
pub fn score(scale: &Rational, query: &[Rational], key: &[Rational]) -> Logarithm {
    let mut dot = Rational::new();
    for (q, k) in query.iter().zip(key) {
        dot += Rational::from(q * k);
    }
    dot *= scale;
    let (numerator, denominator) = dot.into_numer_denom();
    assert_eq!(denominator, 1, "an integer score");
    Logarithm::from(numerator.to_i16().expect("a small score"))
}

/// The same query with the scores of the keys it sees, and its row.
fn stored(mut query: QueryOf<ExactModel>, keys: &[KeyValue<Rational>]) -> QueryOf<ExactModel> {
    let row_keys: Vec<_> = query
        .scores
        .iter()
        .zip(keys)
        .map(|(score, key)| Key { score: score.clone(), value: key.value.clone() })
        .collect();
    query.row = dense_row(&ExactModel, &row_keys);
    query
}

/// Heads of up to `queries` queries and `keys` keys, none of either included. Scores are
/// `scale * <q, k_i>`, and rows those of the dense forward pass.
pub fn heads(queries: usize, keys: usize) -> impl Strategy<Value = ExactHead> {
    (0..=queries, 0..=keys).prop_flat_map(|(queries, keys)| sized_heads(queries, keys))
}

/// Heads of exactly `queries` queries and `keys` keys.
pub fn sized_heads(queries: usize, keys: usize) -> impl Strategy<Value = ExactHead> {
    let query = (even(), visible(keys), numbers(VALUE_DIM), number());
    let key = (whole(), numbers(VALUE_DIM)).prop_map(|(key, value)| KeyValue { key, value });
    (scale(), prop::collection::vec(query, queries), prop::collection::vec(key, keys)).prop_map(
        |(scale, queries, keys)| {
            let queries = queries
                .into_iter()
                .map(|(query, visible, output_gradient, lse_gradient)| {
                    let scores = visible
                        .iter()
                        .zip(&keys)
                        .map(|(&sees, kv)| sees.then(|| score(&scale, &query, &kv.key)))
                        .collect();
                    let query = Query { query, scores, row: None, output_gradient, lse_gradient };
                    stored(query, &keys)
                })
                .collect();
            Head { scale, queries, keys }
        },
    )
}

/// Positions in any order, in blocks of any sizes.
pub fn blocks(positions: usize) -> impl Strategy<Value = Vec<Vec<usize>>> {
    let order = Just((0..positions).collect::<Vec<_>>()).prop_shuffle();
    (order, sizes()).prop_map(|(order, sizes)| {
        divide(&order, &sizes).into_iter().map(<[usize]>::to_vec).collect()
    })
}
