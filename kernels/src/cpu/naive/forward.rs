//! The forward pass: scores, softmax, mean of the values (the chapter, listing 26.2).

use num_traits::{Float, Zero};

use super::Naive;
use crate::cpu::element::Element;
use crate::cpu::forward::Algorithm;
use crate::cpu::head::Head;
use crate::cpu::merge::Row;
use crate::cpu::row::add_scaled;

impl Algorithm for Naive {
    fn rows<E: Element>(&self, head: &Head<'_, E>) -> Vec<Row<E::Accumulator>> {
        (0..head.query.nrows()).map(|query| row(head, query)).collect()
    }
}

/// `o = sum_i z_i p_i v_i` with `p_i = e^(s_i - m) / l`, `m = max_i s_i`, `l = sum_i e^(s_i - m)`,
/// and LSE `m + ln l`. A sink is one more score in `m` and the last term of `l`; dropout's `z_i`
/// changes neither.
///
/// Clauses: `FAS:fwd.softmax.definition`, `FAS:fwd.softmax.empty-row`, `FAS:fwd.lse.definition`,
/// `FAS:score.sink.normalizer`, `FAS:score.dropout.keep`.
fn row<E: Element>(head: &Head<'_, E>, query: usize) -> Row<E::Accumulator> {
    let keys: Vec<_> = head.keys(query, 0..head.key.nrows()).collect();
    let scores = keys.iter().map(|&key| head.score(query, key).value);
    let logits: Vec<_> = scores.chain(head.sink).collect();
    if logits.is_empty() {
        return Row::without_keys(head.value.ncols());
    }

    let maximum = logits.iter().copied().fold(E::Accumulator::neg_infinity(), Float::max);
    let exponentials: Vec<_> = logits.into_iter().map(|logit| (logit - maximum).exp()).collect();
    let normalizer: E::Accumulator = exponentials.iter().copied().sum();

    let mut output = vec![E::Accumulator::zero(); head.value.ncols()];
    for (key, exponential) in keys.into_iter().zip(exponentials) {
        let weight = head.dropout.factor(query, key) * (exponential / normalizer);
        add_scaled(&mut output, weight, head.value.row(key));
    }
    Row { output, lse: maximum + normalizer.ln() }
}
