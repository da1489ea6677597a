//! Memory accounting: what the dense and the online algorithm hold (the chapter, listing 26.4).
//!
//! Counts are of numbers for one head, so that a format's size turns them into bytes. They are
//! exact: `u128` holds every product of two lengths.

use crate::format::Format;

/// Scores that dense attention holds for one head: one for each pair of query and key.
///
/// ```
/// use flashproof_spec::memory::{dense_scores, row_states};
/// assert_eq!(dense_scores(4096, 4096), 16_777_216);
/// assert_eq!(row_states(4096), 4_096);
/// ```
#[must_use]
pub const fn dense_scores(query_len: usize, key_len: usize) -> u128 {
    query_len as u128 * key_len as u128
}

/// Row states `(m, l, n)` that online attention holds for one head: one for each query, however
/// many keys there are (`FAS:fwd.memory.row-state`).
#[must_use]
pub const fn row_states(query_len: usize) -> u128 {
    query_len as u128
}

/// Numbers in the row states of one head: the reference `m`, the normalizer `l` and the
/// `value_dim` entries of the numerator `n`, for each query.
#[must_use]
pub const fn state_numbers(query_len: usize, value_dim: usize) -> u128 {
    row_states(query_len) * (value_dim as u128 + 2)
}

/// Scores that a tiled kernel holds at a time: one tile of `block_query` queries by `block_key`
/// keys, clipped to the lengths.
#[must_use]
pub fn tile_scores(query_len: usize, key_len: usize, block_query: usize, block_key: usize) -> u128 {
    dense_scores(block_query.min(query_len), block_key.min(key_len))
}

/// Bytes that so many numbers of `format` take, `None` past `u128`.
#[must_use]
pub fn bytes(numbers: u128, format: Format) -> Option<u128> {
    numbers.checked_mul(format.bytes() as u128)
}
