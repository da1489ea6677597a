//! Which rows and keys of a large problem are judged.

use flashproof_oracle::backward::{BiasRowIndex, KeyIndex};
use flashproof_spec::problem::Problem;
use rand::SeedableRng;
use rand::seq::index;
use rand_chacha::ChaCha8Rng;

/// Pairs of a judged row and a key beyond which rows are sampled. The exact answer of a row costs
/// time in proportion to its keys and their entries; at 64 entries, this many pairs are some ten
/// seconds of one core.
pub const MOST_PAIRS: usize = 1 << 21;

/// `count` of the items, chosen at random without replacement and kept in order.
#[must_use]
pub fn sample<T: Copy>(items: &[T], count: usize, seed: u64) -> Vec<T> {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let mut chosen = index::sample(&mut rng, items.len(), count.min(items.len())).into_vec();
    chosen.sort_unstable();
    chosen.into_iter().map(|at| items[at]).collect()
}

/// The keys whose gradients are judged, ascending: all of them, or those of a sample of key heads.
///
/// The gradient of a single key needs every pair of its head, for each row's normalizer. So whole heads
/// are left out first; of a head that alone exceeds `most_pairs`, keys are.
#[must_use]
pub fn sample_keys(problem: &Problem, most_pairs: usize, seed: u64) -> Vec<KeyIndex> {
    let Problem { batch, key_heads, key_len, .. } = *problem;
    let rows = (problem.query_len * (problem.query_heads / key_heads)).max(1);
    let heads: Vec<_> =
        (0..batch).flat_map(|batch| (0..key_heads).map(move |head| (batch, head))).collect();
    let affordable = (most_pairs / (rows * key_len.max(1))).max(1);
    let keys: Vec<_> = sample(&heads, affordable, seed)
        .into_iter()
        .flat_map(|(batch, key_head)| {
            (0..key_len).map(move |key| KeyIndex { batch, key_head, key })
        })
        .filter(|key| problem.has_key_row(key.batch, key.key))
        .collect();
    // Of several heads, all keys are affordable.
    let most_keys = (most_pairs / rows).max(1);
    if keys.len() > most_keys { sample(&keys, most_keys, seed) } else { keys }
}

/// The rows of the bias whose gradients are judged, ascending: each needs every pair of the rows
/// that share it.
#[must_use]
pub fn sample_bias_rows(
    problem: &Problem,
    every: &[BiasRowIndex],
    most_pairs: usize,
    seed: u64,
) -> Vec<BiasRowIndex> {
    let rows = problem.batch * problem.query_heads * problem.query_len;
    let pairs = (rows * problem.key_len).div_ceil(every.len().max(1));
    sample(every, (most_pairs / pairs.max(1)).max(1), seed)
}

/// The query heads whose sinks are judged by their gradients, ascending: each needs every pair of its
/// head.
#[must_use]
pub fn sample_sinks(
    problem: &Problem,
    every: &[usize],
    most_pairs: usize,
    seed: u64,
) -> Vec<usize> {
    let pairs = problem.batch * problem.query_len * problem.key_len;
    sample(every, (most_pairs / pairs.max(1)).max(1), seed)
}

/// How many rows of `key_len` keys make up `most_pairs`; at least one.
#[must_use]
pub fn most_rows(key_len: usize, most_pairs: usize) -> usize {
    (most_pairs / key_len.max(1)).max(1)
}

#[cfg(test)]
mod tests {
    use flashproof_oracle::row::RowIndex;
    use flashproof_spec::format::Format;

    use super::*;

    fn rows(count: usize) -> Vec<RowIndex> {
        (0..count).map(|query| RowIndex { batch: 0, head: 0, query }).collect()
    }

    #[test]
    fn a_sample_is_ordered_distinct_and_repeatable() {
        let all = rows(1000);
        let some = sample(&all, 100, 7);
        assert_eq!(some.len(), 100);
        assert!(some.is_sorted_by(|a, b| a < b));
        assert_eq!(some, sample(&all, 100, 7));
        assert_ne!(some, sample(&all, 100, 8));
        assert_eq!(sample(&all, 2000, 7), all);
    }

    #[test]
    fn the_sample_keeps_the_work_within_the_limit() {
        assert_eq!(most_rows(0, MOST_PAIRS), MOST_PAIRS);
        assert_eq!(most_rows(MOST_PAIRS + 1, MOST_PAIRS), 1);
        assert!(most_rows(1000, MOST_PAIRS) * 1000 <= MOST_PAIRS);
    }

    #[test]
    fn keys_are_those_of_whole_heads_or_some_of_one() {
        let mut problem = Problem::new(Format::F32, 6, 10, 4);
        (problem.batch, problem.key_heads, problem.key_len) = (2, 3, 8);
        // A key head has 20 rows and so 160 pairs.
        let count = |most_pairs| sample_keys(&problem, most_pairs, 1).len();
        assert_eq!(count(6 * 160), 48);
        assert_eq!(count(6 * 160 - 1), 40);
        assert_eq!(count(160), 8);
        assert_eq!(count(159), 7);
        assert_eq!(count(0), 1);
        let keys = sample_keys(&problem, 320, 1);
        assert!(keys.is_sorted_by(|a, b| a < b));
        assert_eq!(keys, sample_keys(&problem, 320, 1));
    }
}
