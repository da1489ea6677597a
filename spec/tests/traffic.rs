//! Traffic accounting: closed forms of square problems, and the constants of tilings.

use std::cmp::Ordering;

use flashproof_spec::format::Format;
use flashproof_spec::mask::{Mask, Rule};
use flashproof_spec::memory::{bytes, dense_scores, state_numbers};
use flashproof_spec::problem::Problem;
use flashproof_spec::traffic::{
    ALGORITHM_1_CONSTANT, Growth, LEAST_CONSTANT, Tiling, Traffic, dense, is_tiled, streamed,
};

const LENGTHS: [u64; 3] = [256, 512, 1024];

fn square(length: u64, head_dim: usize) -> Problem {
    Problem::new(Format::Bf16, 1, length as usize, head_dim)
}

fn with(problem: Problem, rules: Vec<Rule>) -> Problem {
    Problem { mask: Mask { rules }, ..problem }
}

fn growth(count: impl Fn(u64) -> u128) -> Growth {
    Growth::of(LENGTHS.map(|length| (length, u64::try_from(count(length)).expect("64 bits"))))
}

#[test]
fn a_square_problem_streams_keys_once_a_tile() {
    for (length, tile) in [(256, 64), (300, 64), (1, 64), (65, 64), (128, 1), (100, usize::MAX)] {
        let (t, d, e) = (u128::from(length), 64, 2);
        let tiles = u128::from(length).div_ceil(tile as u128);
        let found = streamed(&square(length, 64), Format::F32, tile);
        let expected =
            Traffic { read: t * d * e + tiles * t * 2 * d * e, written: t * d * e + 4 * t };
        assert_eq!(found, expected, "{length} in tiles of {tile}");
    }
}

#[test]
fn heads_and_members_add_up_and_shared_keys_are_read_for_each_head() {
    let one = streamed(&square(100, 32), Format::F32, 64);
    let many = Problem { batch: 3, query_heads: 4, key_heads: 2, ..square(100, 32) };
    let found = streamed(&many, Format::F32, 64);
    assert_eq!((found.read, found.written), (12 * one.read, 12 * one.written));
}

#[test]
fn a_causal_mask_hides_tiles() {
    // Tile i of n sees the keys up to its own last query.
    let causal = with(square(256, 64), vec![Rule::CausalTopLeft]);
    let rows = 256 + (64 + 128 + 192 + 256) * 2;
    assert_eq!(streamed(&causal, Format::F32, 64).read, rows * 64 * 2);
    // The last of 250 queries ends the last tile.
    let ragged = with(square(250, 64), vec![Rule::CausalTopLeft]);
    let rows = 250 + (64 + 128 + 192 + 250) * 2;
    assert_eq!(streamed(&ragged, Format::F32, 64).read, rows * 64 * 2);
}

#[test]
fn what_no_query_of_a_tile_sees_is_not_read() {
    let rules = vec![
        Rule::QueryLengths(vec![70]),
        Rule::KeyLengths(vec![90]),
        Rule::KeyStarts(vec![20]),
        Rule::CausalTopLeft,
    ];
    let problem = with(square(256, 64), rules);
    // Queries 0 to 63 see keys 20 to 63, queries 64 to 69 keys 20 to 69; tiles of 16 queries of which
    // the first sees nothing are not read at all.
    assert_eq!(streamed(&problem, Format::F32, 64).read, (70 + (44 + 50) * 2) * 64 * 2);
    let keys = 12 + 28 + 44 + 50;
    assert_eq!(streamed(&problem, Format::F32, 16).read, (54 + keys * 2) * 64 * 2);
    // Output and LSE are written whole.
    assert_eq!(streamed(&problem, Format::F32, 64).written, 256 * (64 * 2 + 4));
}

#[test]
fn what_is_kept_of_rows_is_affine_and_of_pairs_is_not() {
    let states = growth(|t| bytes(state_numbers(t as usize, 64), Format::F32).expect("few"));
    assert!(states.is_affine());
    let scores = growth(|t| bytes(dense_scores(t as usize, t as usize), Format::F32).expect("few"));
    assert!(!scores.is_affine());
    assert_eq!(scores.compare(4), Ordering::Equal, "four bytes a pair");
    assert!(growth(|_| 7).is_affine());
    // A step at one length is seen, too.
    assert!(!growth(|t| u128::from(t) + u128::from(t > 512)).is_affine());
}

#[test]
fn the_constant_is_two_tiles_of_queries() {
    for (head_dim, format, tile, causal) in [
        (64, Format::Bf16, 64, false),
        (64, Format::Bf16, 64, true),
        (128, Format::F32, 32, false),
        (32, Format::F16, 128, true),
    ] {
        let rules = if causal { vec![Rule::CausalTopLeft] } else { vec![] };
        let moved = growth(|t| {
            let problem = Problem { format, ..with(square(t, head_dim), rules.clone()) };
            streamed(&problem, Format::F32, tile).total()
        });
        // Shared memory of just one tile of queries, and of three.
        let row = head_dim as u64 * format.bytes() as u64;
        for times in [1, 3] {
            let shared = times * tile as u64 * row;
            let (head_dim, element_bytes) = (head_dim as u64, format.bytes() as u64);
            let tiling = Tiling { shared, head_dim, element_bytes, causal };
            let constant = tiling.constant(moved);
            assert_eq!(constant.compare(2 * i128::from(times)), Ordering::Equal, "{constant:?}");
            assert!(is_tiled(constant));
        }
    }
    assert_eq!(LEAST_CONSTANT, 2);
}

/// Algorithm 1 of `FlashAttention`, its row statistics aside: keys in the outer loop.
fn algorithm_1(length: u128, head_dim: u128, shared_entries: u128) -> u128 {
    let tiles = length.div_ceil(shared_entries / (4 * head_dim));
    2 * length * head_dim + tiles * 3 * length * head_dim
}

#[test]
fn algorithm_1_has_the_greatest_constant() {
    let (head_dim, shared_entries) = (64, 16_384);
    let moved = growth(|t| 2 * algorithm_1(t.into(), head_dim, shared_entries));
    let shared = 2 * shared_entries as u64;
    let tiling = Tiling { shared, head_dim: 64, element_bytes: 2, causal: false };
    let constant = tiling.constant(moved);
    assert_eq!(constant.compare(ALGORITHM_1_CONSTANT), Ordering::Equal);
    assert!(is_tiled(constant));
    // A byte more of shared memory that brings nothing, or a little less of traffic than 2.
    assert!(!is_tiled(Tiling { shared: shared + 1, ..tiling }.constant(moved)));
    assert!(!is_tiled(Tiling { shared: shared / 6 - 1, ..tiling }.constant(moved)));
}

#[test]
fn dense_attention_moves_four_scores_a_pair() {
    let moved = growth(|t| dense(&square(t, 64), Format::F32, Format::F32).total());
    assert_eq!(moved.compare(16), Ordering::Equal);
    let one = dense(&square(1, 64), Format::F32, Format::F32);
    assert_eq!(one, Traffic { read: 3 * 128 + 8, written: 8 + 128 + 4 });
}
