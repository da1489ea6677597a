//! Gradients tile by tile, as kernels compute them.
//!
//! A tile is a block of queries against a block of keys. Its pairs are formed from what the tile
//! itself loads, and what they bring is added to the gradients; sums do not depend on the order, so
//! neither do the gradients (`FAS:bwd.tiled.order`). Kernels differ in which loop is the outer one,
//! because that decides which gradients can stay on chip:
//!
//! | function | outer loop | gradients that travel |
//! |---|---|---|
//! | [`by_key_blocks`] | key blocks | `dQ`, read and written once for each key block |
//! | [`two_passes`] | key blocks, then query blocks | none; every pair is formed twice |

use super::{
    Gradient, GradientOf, HeadOf, KeyValue, Pair, QueryOf, add, add_multiple, combination, delta,
    pair, scaled,
};
use crate::arithmetic::Arithmetic;

/// A division of a head into tiles.
///
/// Blocks are lists of positions, of any sizes and in any order, empty ones included. Gradients of
/// the whole head need every position in exactly one block.
#[derive(Clone, Copy, Debug)]
pub struct Blocks<'b> {
    /// The blocks of queries, in the order in which they are taken.
    pub queries: &'b [Vec<usize>],
    /// The blocks of keys, in the order in which they are taken.
    pub keys: &'b [Vec<usize>],
}

/// A query and its `D`, `None` for a row without visible keys.
type Prepared<'q, A> = (&'q QueryOf<A>, Option<<A as Arithmetic>::Number>);

/// The gradients in one pass, key block by key block (arXiv 2205.14135, algorithm 4; 2307.08691,
/// algorithm 2, whose key blocks run in parallel).
///
/// `D` is formed again in every tile and the scale applied to every pair, as in the former.
///
/// # Panics
/// As [`super::attention_gradient`] does, and when a position lies outside the head.
pub fn by_key_blocks<A: Arithmetic>(a: &A, head: &HeadOf<A>, blocks: Blocks<'_>) -> GradientOf<A> {
    let mut gradient = no_gradient(a, head);
    for keys in blocks.keys {
        for queries in blocks.queries {
            add_tile(a, head, queries, keys, &mut gradient);
        }
    }
    gradient
}

/// Adds what one tile brings to every gradient.
fn add_tile<A: Arithmetic>(
    a: &A,
    head: &HeadOf<A>,
    queries: &[usize],
    keys: &[usize],
    gradient: &mut GradientOf<A>,
) {
    for &r in queries {
        let (query, delta) = prepare(a, &head.queries[r]);
        for &i in keys {
            let key = &head.keys[i];
            let Some(pair) = pair(a, query, delta.as_ref(), i, key) else { continue };
            let scaled = a.mul(&head.scale, &pair.score_gradient);
            add_multiple(a, &mut gradient.query[r], &scaled, &key.key);
            add_multiple(a, &mut gradient.keys[i].key, &scaled, &query.query);
            add_multiple(a, &mut gradient.keys[i].value, &pair.probability, &query.output_gradient);
        }
    }
}

/// The gradients in two passes that share nothing but each row's `D`: key and value gradients by
/// key block, query gradients by query block.
///
/// Each gradient is finished where it was begun, so nothing is added through memory and the result
/// repeats from run to run whatever runs in parallel.
///
/// # Panics
/// As [`super::attention_gradient`] does, and when a position lies outside the head.
pub fn two_passes<A: Arithmetic>(a: &A, head: &HeadOf<A>, blocks: Blocks<'_>) -> GradientOf<A> {
    let rows: Vec<_> = head.queries.iter().map(|query| prepare(a, query)).collect();
    let mut gradient = no_gradient(a, head);
    for &i in blocks.keys.iter().flatten() {
        gradient.keys[i] = key_pass(a, head, &rows, i, blocks.queries);
    }
    for &r in blocks.queries.iter().flatten() {
        gradient.query[r] = query_pass(a, head, &rows[r], blocks.keys);
    }
    gradient
}

/// `dK_i` and `dV_i` of one key: one partial sum for each query block, the scale at the end.
fn key_pass<A: Arithmetic>(
    a: &A,
    head: &HeadOf<A>,
    rows: &[Prepared<'_, A>],
    i: usize,
    blocks: &[Vec<usize>],
) -> KeyValue<A::Number> {
    let key = &head.keys[i];
    let mut key_sum = vec![a.zero(); key.key.len()];
    let mut value_sum = vec![a.zero(); key.value.len()];
    for block in blocks {
        let pairs: Vec<(Pair<A::Number>, &QueryOf<A>)> = block
            .iter()
            .filter_map(|&r| {
                let (query, delta) = &rows[r];
                Some((pair(a, query, delta.as_ref(), i, key)?, *query))
            })
            .collect();
        let keys = pairs.iter().map(|(pair, query)| (&pair.score_gradient, &query.query[..]));
        let values =
            pairs.iter().map(|(pair, query)| (&pair.probability, &query.output_gradient[..]));
        key_sum = add(a, &key_sum, &combination(a, key.key.len(), keys));
        value_sum = add(a, &value_sum, &combination(a, key.value.len(), values));
    }
    KeyValue { key: scaled(a, &head.scale, &key_sum), value: value_sum }
}

/// `dQ_r` of one query: one partial sum for each key block, the scale at the end.
fn query_pass<A: Arithmetic>(
    a: &A,
    head: &HeadOf<A>,
    (query, delta): &Prepared<'_, A>,
    blocks: &[Vec<usize>],
) -> Vec<A::Number> {
    let mut sum = vec![a.zero(); query.query.len()];
    for block in blocks {
        let pairs: Vec<_> = block
            .iter()
            .filter_map(|&i| {
                let key = &head.keys[i];
                Some((pair(a, query, delta.as_ref(), i, key)?.score_gradient, &key.key[..]))
            })
            .collect();
        let terms = pairs.iter().map(|(score_gradient, key)| (score_gradient, *key));
        sum = add(a, &sum, &combination(a, query.query.len(), terms));
    }
    scaled(a, &head.scale, &sum)
}

fn prepare<'q, A: Arithmetic>(a: &A, query: &'q QueryOf<A>) -> Prepared<'q, A> {
    let delta = query.row.as_ref().map(|row| delta(a, &query.output_gradient, &row.output));
    (query, delta)
}

/// Zeros, an entry for each entry of the inputs.
fn no_gradient<A: Arithmetic>(a: &A, head: &HeadOf<A>) -> GradientOf<A> {
    let zeros = |like: &[A::Number]| vec![a.zero(); like.len()];
    let keys = head.keys.iter();
    Gradient {
        query: head.queries.iter().map(|query| zeros(&query.query)).collect(),
        keys: keys.map(|kv| KeyValue { key: zeros(&kv.key), value: zeros(&kv.value) }).collect(),
    }
}
