//! Tilings that must agree to the last bit.

use std::num::NonZeroUsize;

use flashproof_kernels::cpu::{Naive, Split, Tiled};
use flashproof_spec::problem::Problem;
use flashproof_spec::tensor::{Inputs, Tensor};
use ndarray::{Array1, Axis};
use proptest::prelude::*;
use rand::seq::SliceRandom;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

use crate::support::problems::{modified_problems, problems, products_of_one_entry};
use crate::support::{FORMATS, bits, lse, run, uniform};

/// The block sizes that every claim here is about.
fn sizes() -> impl Strategy<Value = NonZeroUsize> {
    (1..=257_usize).prop_map(|size| NonZeroUsize::new(size).expect("at least 1"))
}

/// Sizes that cut the small problems into several blocks.
fn small_sizes() -> impl Strategy<Value = NonZeroUsize> {
    (1..=10_usize).prop_map(|size| NonZeroUsize::new(size).expect("at least 1"))
}

proptest! {
    /// Query blocks only decide the order of the work.
    #[test]
    fn query_blocks_change_no_bit(
        problem in modified_problems(),
        seed: u64,
        block_queries in prop_oneof![small_sizes(), sizes()],
        block_keys in prop_oneof![small_sizes(), sizes()],
    ) {
        let inputs = uniform(&problem, seed);
        let one = run(&Tiled::new(NonZeroUsize::MIN, block_keys), &problem, &inputs);
        let many = run(&Tiled::new(block_queries, block_keys), &problem, &inputs);
        prop_assert_eq!(bits(&one), bits(&many));
    }

    /// A block that holds every key makes the same maximum and the same sum of weights; a sink
    /// would enter it first, and last into the naive one.
    #[test]
    fn one_block_of_all_keys_gives_the_naive_lse(
        problem in modified_problems().prop_map(|problem| Problem { sink: None, ..problem }),
        seed: u64,
        block_queries in small_sizes(),
        block_keys in 9..=257_usize,
    ) {
        let block_keys = NonZeroUsize::new(block_keys).expect("at least 1");
        let inputs = uniform(&problem, seed);
        let naive = run(&Naive, &problem, &inputs);
        let tiled = run(&Tiled::new(block_queries, block_keys), &problem, &inputs);
        prop_assert_eq!(lse(&naive), lse(&tiled));
    }

    /// A maximum that never moves is never rescaled by, and keys are taken in order: the first key
    /// has the largest score of each query, and every sum runs through the same numbers.
    #[test]
    fn key_blocks_change_no_bit_while_the_maximum_stays(
        problem in problems(),
        seed: u64,
        block_keys in prop_oneof![small_sizes(), sizes()],
    ) {
        let inputs = falling(&problem, seed);
        let ones = run(&Tiled::new(NonZeroUsize::MIN, NonZeroUsize::MIN), &problem, &inputs);
        let many = run(&Tiled::new(NonZeroUsize::MIN, block_keys), &problem, &inputs);
        prop_assert_eq!(bits(&ones), bits(&many));
    }

    /// Where one key takes all, weights and rescaling factors are 0 and 1 and nothing is rounded:
    /// every tiling gives the naive answer, under every mask, however the maximum moves.
    #[test]
    fn every_tiling_is_naive_where_one_key_takes_all(
        problem in products_of_one_entry(),
        seed: u64,
        block_queries in prop_oneof![small_sizes(), sizes()],
        block_keys in prop_oneof![small_sizes(), sizes()],
    ) {
        let inputs = ranked(&problem, seed);
        let naive = run(&Naive, &problem, &inputs);
        let tiled = run(&Tiled::new(block_queries, block_keys), &problem, &inputs);
        prop_assert_eq!(bits(&naive), bits(&tiled));
    }

    /// And so does every number of splits: a part without the winner weighs nothing.
    #[test]
    fn every_split_is_naive_where_one_key_takes_all(
        problem in products_of_one_entry(),
        seed: u64,
        splits in prop_oneof![small_sizes(), sizes()],
    ) {
        let inputs = ranked(&problem, seed);
        let naive = run(&Naive, &problem, &inputs);
        prop_assert_eq!(bits(&naive), bits(&run(&Split::new(splits), &problem, &inputs)));
    }

    /// A single part is the tiled kernel's row, merged with nothing.
    #[test]
    fn a_single_split_is_the_tiled_kernel(
        problem in modified_problems().prop_map(|problem| Problem { sink: None, ..problem }),
        seed: u64,
    ) {
        let inputs = uniform(&problem, seed);
        let tiled = run(&Tiled::default(), &problem, &inputs);
        let split = run(&Split::new(NonZeroUsize::MIN), &problem, &inputs);
        prop_assert_eq!(bits(&tiled), bits(&split));
    }
}

/// No size overflows the end of a block.
#[test]
fn the_largest_blocks_take_all() {
    let problem = Problem { query_len: 3, ..Problem::new(FORMATS[1], 1, 5, 2) };
    let inputs = uniform(&problem, 0);
    let whole = Tiled::new(NonZeroUsize::MAX, NonZeroUsize::MAX);
    assert_eq!(
        bits(&run(&whole, &problem, &inputs)),
        bits(&run(&Tiled::default(), &problem, &inputs))
    );
}

/// Queries not negative, and keys that fall entry by entry: so do scores, and rounded ones with
/// them, for rounding keeps order.
fn falling(problem: &Problem, seed: u64) -> Inputs {
    let inputs = uniform(problem, seed);
    let query = inputs.query.values().mapv(f64::abs);
    let mut key = inputs.key.values().clone();
    for mut lane in key.lanes_mut(Axis(2)) {
        let mut entries = lane.to_vec();
        entries.sort_by(|a, b| b.total_cmp(a));
        lane.assign(&Array1::from(entries));
    }
    Inputs {
        query: Tensor::rounded(problem.format, &query),
        key: Tensor::rounded(problem.format, &key),
        ..inputs
    }
}

/// Scores that are distinct multiples of 1024, in an order drawn for each head; queries of both
/// signs, so that one query's largest score is another's smallest.
fn ranked(problem: &Problem, seed: u64) -> Inputs {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let inputs = uniform(problem, seed);
    let query = inputs.query.values().mapv(|q| 32_f64.copysign(q));
    let mut key = inputs.key.values().clone();
    for mut lane in key.lanes_mut(Axis(2)) {
        let offset = rng.random_range(0..=problem.key_len) as f64;
        let mut ranks: Vec<f64> =
            (0..problem.key_len).map(|rank| 32.0 * (rank as f64 - offset)).collect();
        ranks.shuffle(&mut rng);
        lane.assign(&Array1::from(ranks));
    }
    Inputs {
        query: Tensor::exact(problem.format, query).expect("powers of two"),
        key: Tensor::exact(problem.format, key).expect("multiples of 32 with few bits"),
        ..inputs
    }
}
