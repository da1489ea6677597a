//! Attention of one row: dense by definition, tiled, and split over keys.
//!
//! All three are the same function of the row's keys (`FAS:fwd.tiled.partition`,
//! `FAS:fwd.split.merge`); they differ in what they hold at a time and, in rounding arithmetic, in
//! their errors. `None` is the answer for a row without visible keys (`FAS:fwd.softmax.empty-row`).

use std::num::NonZeroUsize;

use crate::arithmetic::{Arithmetic, greater};
use crate::online::{Key, KeyOf, Row, RowOf, absorb, finish, start};

/// Attention as it is defined (`FAS:fwd.softmax.definition`; the chapter, equation 26.1 and listing
/// 26.2): every weight at once, against the greatest score.
///
/// ```text
/// m = max_i s_i    o_j = sum_i e^(s_i - m) v_ij / sum_i e^(s_i - m)
/// ```
///
/// # Panics
/// When the value rows of two visible keys differ in length.
pub fn dense_row<A: Arithmetic>(a: &A, keys: &[KeyOf<A>]) -> Option<RowOf<A>> {
    let reference = keys.iter().fold(None, |m, key| greater(m.as_ref(), key.score.as_ref()))?;
    dense_row_at(a, keys, &reference)
}

/// Attention against any reference in place of the greatest score (`FAS:fwd.softmax.shift`).
///
/// # Panics
/// When the value rows of two visible keys differ in length.
pub fn dense_row_at<A: Arithmetic>(
    a: &A,
    keys: &[KeyOf<A>],
    reference: &A::Score,
) -> Option<RowOf<A>> {
    let visible: Vec<(A::Number, &[A::Number])> = keys
        .iter()
        .filter_map(|Key { score, value }| Some((a.weight(score.as_ref()?, reference), &value[..])))
        .collect();
    let value_dim = visible.first()?.1.len();
    assert!(visible.iter().all(|(_, value)| value.len() == value_dim), "ragged value rows");
    let normalizer = a.sum(visible.iter().map(|(weight, _)| weight.clone()));
    let entry = |j: usize| a.sum(visible.iter().map(|(weight, value)| a.mul(weight, &value[j])));
    Some(Row {
        output: (0..value_dim).map(|j| a.div(&entry(j), &normalizer)).collect(),
        lse: a.lse(reference, &normalizer),
    })
}

/// A sink as a row meets it: a key that has a score and no value (`FAS:score.sink.normalizer`).
///
/// Absorbed once, anywhere among the keys, it adds its weight to the normalizer and to the LSE, and
/// nothing to the numerator. A row that sees nothing else has output 0 and the logit as its LSE.
pub fn sink<A: Arithmetic>(a: &A, logit: A::Score, value_dim: usize) -> KeyOf<A> {
    Key { score: Some(logit), value: vec![a.zero(); value_dim] }
}

/// A key under dropout: its weight in the numerator is multiplied by `factor`, that in the
/// normalizer is not (`FAS:score.dropout.keep`).
pub fn dropout<A: Arithmetic>(a: &A, key: KeyOf<A>, factor: &A::Number) -> KeyOf<A> {
    Key { score: key.score, value: key.value.iter().map(|v| a.mul(factor, v)).collect() }
}

/// Attention from consecutive blocks of `block` keys, the last one shorter where `block` does not
/// divide their number (`FAS:fwd.tiled.tail`; the chapter, listing 26.3).
///
/// # Panics
/// When the value row of a visible key has not `value_dim` entries.
pub fn tiled_row<A: Arithmetic>(
    a: &A,
    keys: &[KeyOf<A>],
    block: NonZeroUsize,
    value_dim: usize,
) -> Option<RowOf<A>> {
    blocks_row(a, keys.chunks(block.get()), value_dim)
}

/// Attention from blocks of any sizes in any order, absorbed one after another
/// (`FAS:fwd.tiled.partition`).
///
/// # Panics
/// When the value row of a visible key has not `value_dim` entries.
pub fn blocks_row<'k, A: Arithmetic>(
    a: &A,
    blocks: impl IntoIterator<Item = &'k [KeyOf<A>]>,
    value_dim: usize,
) -> Option<RowOf<A>>
where
    A::Score: 'k,
    A::Number: 'k,
{
    let state =
        blocks.into_iter().fold(start(a, value_dim), |state, block| absorb(a, state, block));
    finish(a, &state)
}

/// Attention from splits of the keys that were finished independently of each other, as split-KV
/// decoding does (`FAS:fwd.split.merge`).
///
/// ```text
/// L = ln sum_k e^(L_k)    o = sum_k e^(L_k - L) o_k
/// ```
///
/// A finished split weighs as much as one key whose score is its LSE and whose value is its output;
/// a split without visible keys (`None`) as an invisible one. So the merge is attention once more,
/// over the splits.
///
/// # Panics
/// When two splits differ in the length of their output.
pub fn merge_splits<A: Arithmetic>(
    a: &A,
    splits: impl IntoIterator<Item = Option<RowOf<A>>>,
) -> Option<RowOf<A>> {
    let keys: Vec<KeyOf<A>> = splits
        .into_iter()
        .flatten()
        .map(|Row { output, lse }| Key { score: Some(lse), value: output })
        .collect();
    dense_row(a, &keys)
}
