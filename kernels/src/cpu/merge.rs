//! Finished rows, and how rows that were finished over parts of the keys become one.

use super::element::Accumulator;
use super::row::add_scaled;

/// A finished row, or a finished part of one: what attention over some keys gives.
#[derive(Clone, Debug, PartialEq)]
pub struct Row<A> {
    /// `o = sum_i p_i v_i`, `value_dim` entries.
    pub output: Vec<A>,
    /// `L = ln sum_i e^(s_i)`, minus infinity where there is no key.
    pub lse: A,
}

impl<A: Accumulator> Row<A> {
    /// The answer where no key is visible: an empty sum of values, and the logarithm of an empty
    /// sum of weights.
    ///
    /// Clause: `FAS:fwd.softmax.empty-row`.
    #[must_use]
    pub fn without_keys(value_dim: usize) -> Self {
        Self { output: vec![A::zero(); value_dim], lse: A::neg_infinity() }
    }

    /// The part that a sink is: one term of the normalizer, and no value.
    ///
    /// Clause: `FAS:score.sink.normalizer`.
    #[must_use]
    pub fn of_sink(value_dim: usize, logit: A) -> Self {
        Self { output: vec![A::zero(); value_dim], lse: logit }
    }
}

/// The row whose disjoint parts, each finished by itself, are `parts`: `value_dim` entries.
///
/// ```text
/// m = max_k L_k    w_k = e^(L_k - m)    L = m + ln sum_k w_k    o = sum_k w_k o_k / sum_k w_k
/// ```
///
/// Each operation is rounded to the accumulator, sums in the order of the parts. A part without keys
/// has an LSE of minus infinity and no weight, and its output is not read; where all parts are such,
/// or there is none, so is the row.
///
/// As `merge_state` and `merge_states` of `FlashInfer` do, and the second kernel of split-KV decoding
/// (FlashAttention-2, arXiv 2307.08691, section 3.1).
///
/// Clauses: `FAS:fwd.merge.partials`, `FAS:fwd.split.merge`.
///
/// # Panics
/// When a part with keys has not `value_dim` entries.
#[must_use]
pub fn merge_partials<A: Accumulator>(value_dim: usize, parts: &[Row<A>]) -> Row<A> {
    let has_keys = |part: &&Row<A>| part.lse != A::neg_infinity();
    if !parts.iter().any(|part| has_keys(&part)) {
        return Row::without_keys(value_dim);
    }
    // `max` passes over NaN; the weight of a NaN LSE is NaN under any maximum.
    let maximum = parts.iter().map(|part| part.lse).fold(A::neg_infinity(), A::max);
    let mut normalizer = A::zero();
    let mut output = vec![A::zero(); value_dim];
    for part in parts.iter().filter(has_keys) {
        assert_eq!(part.output.len(), value_dim, "entries of a part");
        let weight = (part.lse - maximum).exp();
        normalizer += weight;
        add_scaled(&mut output, weight, &part.output);
    }
    for sum in &mut output {
        *sum /= normalizer;
    }
    Row { output, lse: maximum + normalizer.ln() }
}
