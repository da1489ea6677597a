//! Which rows of a large problem are judged.

use flashproof_oracle::row::RowIndex;
use rand::SeedableRng;
use rand::seq::index;
use rand_chacha::ChaCha8Rng;

/// Pairs of a judged row and a key beyond which rows are sampled. The exact answer of a row costs
/// time in proportion to its keys and their entries; at 64 entries, this many pairs are some ten
/// seconds of one core.
pub const MOST_PAIRS: usize = 1 << 21;

/// `count` of the rows, chosen at random without replacement and kept in order.
#[must_use]
pub fn sample(rows: &[RowIndex], count: usize, seed: u64) -> Vec<RowIndex> {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let mut chosen = index::sample(&mut rng, rows.len(), count.min(rows.len())).into_vec();
    chosen.sort_unstable();
    chosen.into_iter().map(|at| rows[at]).collect()
}

/// How many rows of `key_len` keys make up `most_pairs`; at least one.
#[must_use]
pub fn most_rows(key_len: usize, most_pairs: usize) -> usize {
    (most_pairs / key_len.max(1)).max(1)
}

#[cfg(test)]
mod tests {
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
}
