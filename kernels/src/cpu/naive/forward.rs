//! The forward pass: scores, softmax, mean of the values (the chapter, listing 26.2).

use num_traits::{Float, Zero};

use super::Naive;
use crate::cpu::element::Element;
use crate::cpu::forward::{Algorithm, Row};
use crate::cpu::head::Head;
use crate::cpu::row::add_scaled;

impl Algorithm for Naive {
    fn rows<E: Element>(&self, head: &Head<'_, E>) -> Vec<Row<E::Accumulator>> {
        (0..head.query.nrows()).map(|query| row(head, query)).collect()
    }
}

/// `o = sum_i p_i v_i` with `p_i = e^(s_i - m) / l`, `m = max_i s_i`, `l = sum_i e^(s_i - m)`, and
/// LSE `m + ln l`.
///
/// Clauses: `FAS:fwd.softmax.definition`, `FAS:fwd.softmax.empty-row`, `FAS:fwd.lse.definition`.
fn row<E: Element>(head: &Head<'_, E>, query: usize) -> Row<E::Accumulator> {
    let keys = 0..head.visible.end(query);
    if keys.is_empty() {
        return Row::without_keys(head.value.ncols());
    }

    let scores: Vec<_> = keys.clone().map(|key| head.score(query, key)).collect();
    let maximum = scores.iter().copied().fold(E::Accumulator::neg_infinity(), Float::max);
    let mut weights: Vec<_> = scores.into_iter().map(|score| (score - maximum).exp()).collect();
    let normalizer: E::Accumulator = weights.iter().copied().sum();
    for weight in &mut weights {
        *weight /= normalizer;
    }

    let mut output = vec![E::Accumulator::zero(); head.value.ncols()];
    for (key, weight) in keys.zip(weights) {
        add_scaled(&mut output, weight, head.value.row(key));
    }
    Row { output, lse: maximum + normalizer.ln() }
}
