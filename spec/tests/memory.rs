//! Memory accounting: the numbers of the chapter's listing 26.4, and what a state really holds.

use flashproof_spec::arithmetic::F64;
use flashproof_spec::format::Format;
use flashproof_spec::memory::{bytes, dense_scores, row_states, state_numbers, tile_scores};
use flashproof_spec::online::{Key, StateOf, absorb, start};

#[test]
fn dense_scores_against_row_states_at_4096() {
    assert_eq!(dense_scores(4096, 4096), 16_777_216);
    assert_eq!(row_states(4096), 4_096);
}

#[test]
fn bytes_at_4096() {
    // 64 MiB of f32 scores, against 1,056 KiB of f32 states for 64 value entries.
    assert_eq!(bytes(dense_scores(4096, 4096), Format::F32), Some(64 << 20));
    assert_eq!(bytes(state_numbers(4096, 64), Format::F32), Some(1056 << 10));
    assert_eq!(bytes(dense_scores(4096, 4096), Format::E4m3), Some(16 << 20));
}

#[test]
fn a_state_is_as_large_after_many_keys_as_after_none() {
    const VALUE_DIM: usize = 3;
    let numbers = |state: &StateOf<F64>| 1 + 1 + state.numerator.len() as u128;
    let empty = start(&F64, VALUE_DIM);
    let full = (0..1000).fold(empty.clone(), |state, i| {
        absorb(&F64, state, &[Key { score: Some(f64::from(i)), value: vec![1.0; VALUE_DIM] }])
    });
    assert_eq!(numbers(&empty), state_numbers(1, VALUE_DIM));
    assert_eq!(numbers(&full), state_numbers(1, VALUE_DIM));
}

#[test]
fn a_tile_is_clipped_to_the_lengths() {
    assert_eq!(tile_scores(4096, 4096, 64, 128), 64 * 128);
    assert_eq!(tile_scores(3, 100, 64, 128), 300);
    assert_eq!(tile_scores(0, 100, 64, 128), 0);
}

#[test]
fn the_largest_lengths_are_counted_exactly() {
    let most = usize::MAX as u128;
    assert_eq!(dense_scores(usize::MAX, usize::MAX), most * most);
    assert_eq!(state_numbers(usize::MAX, usize::MAX), most * (most + 2));
    assert_eq!(bytes(u128::MAX, Format::F64), None);
}
