//! The backward pass: the derivative of the forward pass, one query row after another.

use num_traits::Float;

use super::Naive;
use crate::cpu::backward::{Algorithm, GroupGradients, Upstream};
use crate::cpu::bias_gradient::BiasGradient;
use crate::cpu::element::Element;
use crate::cpu::row::add_scaled;

impl Algorithm for Naive {
    fn gradients<E: Element>(
        &self,
        group: &[Upstream<'_, E>],
        bias: &mut BiasGradient<E::Accumulator>,
    ) -> GroupGradients<E::Accumulator> {
        let mut sums = GroupGradients::zero(group);
        for (index, upstream) in group.iter().enumerate() {
            for query in 0..upstream.head.query.nrows() {
                add_row(upstream, index, query, &mut sums, bias);
            }
        }
        sums.scaled(group[0].head.scale)
    }
}

/// What one query of the group's head `index` brings: with `p_i = e^(s_i - L)`, dropout's `z_i`,
/// `dS_i = p_i (z_i dP_i - (D - g))`, and `dX_i = dS_i ds/dx` where a softcap bends the score,
///
/// ```text
/// dV_i += z_i p_i dO    dQ += dX_i k_i    dK_i += dX_i q    dB_i += dS_i ds/db
/// ```
///
/// over the keys that it sees; nothing where it sees none.
///
/// Clauses: `FAS:bwd.probability.recompute`, `FAS:bwd.probability.mask`, `FAS:bwd.score.gradient`,
/// `FAS:bwd.softcap.slope`, `FAS:bwd.dropout.keep`, `FAS:bwd.value.gradient`,
/// `FAS:bwd.query.gradient`, `FAS:bwd.bias.gradient`, `FAS:bwd.empty-row.zero`.
fn add_row<E: Element>(
    upstream: &Upstream<'_, E>,
    index: usize,
    query: usize,
    sums: &mut GroupGradients<E::Accumulator>,
    bias: &mut BiasGradient<E::Accumulator>,
) {
    let head = &upstream.head;
    for key in head.keys(query, 0..head.key.nrows()) {
        let score = head.score(query, key);
        let kept = head.dropout.factor(query, key);
        let probability = (score.value - upstream.lse[query]).exp();
        let weight_gradient = kept * upstream.weight_gradient(query, key);
        let score_gradient = probability * (weight_gradient - upstream.delta[query]);
        let product_gradient = score_gradient * score.slope;
        let d_o = upstream.output_gradient.row(query);
        add_scaled(sums.value.row_mut(key), kept * probability, d_o);
        add_scaled(sums.query[index].row_mut(query), product_gradient, head.key.row(key));
        add_scaled(sums.key.row_mut(key), product_gradient, head.query.row(query));
        bias.add(head, query, key, score_gradient * score.bias_slope);
    }
}
