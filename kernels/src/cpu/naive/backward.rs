//! The backward pass: the derivative of the forward pass, one query row after another.

use num_traits::Float;

use super::Naive;
use crate::cpu::backward::{Algorithm, GroupGradients, Upstream};
use crate::cpu::element::Element;
use crate::cpu::row::add_scaled;

impl Algorithm for Naive {
    fn gradients<E: Element>(&self, group: &[Upstream<'_, E>]) -> GroupGradients<E::Accumulator> {
        let mut sums = GroupGradients::zero(group);
        for (index, upstream) in group.iter().enumerate() {
            for query in 0..upstream.head.query.nrows() {
                add_row(upstream, index, query, &mut sums);
            }
        }
        sums.scaled(group[0].head.scale)
    }
}

/// What one query of the group's head `index` brings: with `p_i = e^(s_i - L)` and
/// `dS_i = p_i (dP_i - (D - g))`,
///
/// ```text
/// dV_i += p_i dO    dQ += dS_i k_i    dK_i += dS_i q
/// ```
///
/// over the keys that it sees; nothing where it sees none.
///
/// Clauses: `FAS:bwd.probability.recompute`, `FAS:bwd.probability.mask`, `FAS:bwd.score.gradient`,
/// `FAS:bwd.value.gradient`, `FAS:bwd.query.gradient`, `FAS:bwd.empty-row.zero`.
fn add_row<E: Element>(
    upstream: &Upstream<'_, E>,
    index: usize,
    query: usize,
    sums: &mut GroupGradients<E::Accumulator>,
) {
    let head = &upstream.head;
    for key in 0..head.visible.end(query) {
        let probability = (head.score(query, key) - upstream.lse[query]).exp();
        let difference = upstream.probability_gradient(query, key) - upstream.delta[query];
        let score_gradient = probability * difference;
        add_scaled(sums.value.row_mut(key), probability, upstream.output_gradient.row(query));
        add_scaled(sums.query[index].row_mut(query), score_gradient, head.key.row(key));
        add_scaled(sums.key.row_mut(key), score_gradient, head.query.row(query));
    }
}
