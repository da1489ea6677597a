//! Patterns that belong to a problem: boolean masks, keep masks of dropout, documents.
//!
//! They are drawn from seeds that are hashes of words, not of the run: the same name is the same
//! problem in every run, whatever the seed of the inputs.

use flashproof_spec::mask::Documents;
use flashproof_spec::pattern::Pattern;
use rand::RngExt;
use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_chacha::ChaCha8Rng;
use sha2::{Digest, Sha256};

/// The generator of what a word names.
pub(super) fn generator(word: &str) -> ChaCha8Rng {
    ChaCha8Rng::from_seed(Sha256::digest(word).into())
}

/// A pattern in which `share` of the truth values hold, to the nearest one, at places drawn from the
/// word and the shape.
///
/// The count is set rather than left to chance, and at least one holds: masks drawn bit by bit
/// from bytes have been all true in testers without anyone noticing (onnx, node tests of Attention).
#[must_use]
pub fn balanced(word: &str, shape: [usize; 4], share: f64) -> Pattern {
    let count: usize = shape.iter().product();
    let held = ((share * count as f64).round() as usize).max(1);
    let mut bits: Vec<_> = (0..count).map(|place| place < held).collect();
    bits.shuffle(&mut generator(&format!("{word} {shape:?}")));
    let mut bits = bits.into_iter();
    Pattern::from_fn(shape, |_| bits.next().unwrap_or(false))
}

/// The pattern with nothing in its last row, unless that is its only one.
#[must_use]
pub fn with_last_row_empty(pattern: &Pattern) -> Pattern {
    let [batch, heads, queries, _] = pattern.shape();
    let last = [batch, heads, queries].map(|extent| extent.saturating_sub(1));
    let only = last == [0; 3];
    Pattern::from_fn(pattern.shape(), |place| (only || place[..3] != last[..]) && pattern.at(place))
}

/// Documents in a batch member at most.
const MOST_DOCUMENTS: usize = 4;

/// Documents of uneven lengths, one after another, cut at about the same shares of queries and keys:
/// the first one is of one position in every other batch member.
#[must_use]
pub fn documents(batch: usize, query_len: usize, key_len: usize) -> Documents {
    let mut rng = generator(&format!("documents {batch} {query_len} {key_len}"));
    let mut documents = Documents { query: Vec::new(), key: Vec::new() };
    for member in 0..batch {
        let mut shares: Vec<f64> = (1..MOST_DOCUMENTS).map(|_| rng.random()).collect();
        if member.is_multiple_of(2) {
            shares[0] = 0.0;
        }
        let ids = |len: usize| {
            let cuts = shares.iter().map(|share| ((share * len as f64) as usize).max(1));
            let cuts: Vec<_> = cuts.collect();
            (0..len).map(|at| cuts.iter().filter(|&&cut| cut <= at).count() as u32).collect()
        };
        documents.query.push(ids(query_len));
        documents.key.push(ids(key_len));
    }
    documents
}

/// Documents of one position each.
#[must_use]
pub fn single_documents(batch: usize, query_len: usize, key_len: usize) -> Documents {
    let each = |len: usize| vec![(0..len as u32).collect(); batch];
    Documents { query: each(query_len), key: each(key_len) }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn held(pattern: &Pattern) -> usize {
        pattern.bits().iter().filter(|&&bit| bit).count()
    }

    proptest! {
        #[test]
        fn shares_are_kept_to_the_nearest_place(
            shape in [1..3_usize, 1..4_usize, 1..9_usize, 1..9_usize],
            share in 0.0..=1.0_f64,
        ) {
            let pattern = balanced("test", shape, share);
            let count = pattern.bits().len() as f64;
            prop_assert!(held(&pattern) as f64 <= (share * count + 0.5).max(1.0));
            prop_assert!(held(&pattern) as f64 >= share * count - 0.5);
            prop_assert_eq!(balanced("test", shape, share), pattern);
        }

        #[test]
        fn documents_are_runs_of_positions(
            batch in 1..4_usize, query_len in 0..40_usize, key_len in 0..40_usize,
        ) {
            let Documents { query, key } = documents(batch, query_len, key_len);
            prop_assert_eq!((query.len(), key.len()), (batch, batch));
            for (members, len) in [(query, query_len), (key, key_len)] {
                for ids in members {
                    prop_assert_eq!(ids.len(), len);
                    prop_assert!(ids.is_sorted());
                    prop_assert!(ids.iter().all(|&id| (id as usize) < MOST_DOCUMENTS));
                }
            }
        }
    }

    #[test]
    fn words_and_shapes_draw_different_places() {
        let shape = [1, 2, 8, 8];
        assert_ne!(balanced("mask", shape, 0.5), balanced("keep", shape, 0.5));
        let row = |pattern: &Pattern| pattern.bits()[..8].to_vec();
        let wider = balanced("mask", [1, 2, 8, 9], 0.5);
        assert_ne!(row(&balanced("mask", shape, 0.5)), row(&wider));
    }

    #[test]
    fn the_last_row_is_emptied_unless_it_is_the_only_one() {
        let emptied = with_last_row_empty(&Pattern::from_fn([1, 2, 2, 3], |_| true));
        assert_eq!(held(&emptied), 9);
        assert!((0..3).all(|key| !emptied.at([0, 1, 1, key])));
        let row = Pattern::from_fn([1, 1, 1, 3], |_| true);
        assert_eq!(with_last_row_empty(&row), row);
    }
}
