//! The backward pass: key blocks, and for each of them the query blocks that see it
//! (FlashAttention-2, arXiv 2307.08691, algorithm 2).
//!
//! A key block keeps its `dK` and `dV` until every query of every head that reads it has been met.
//! `dQ` is kept for the whole length in the accumulator, and each key block adds to it in turn. So
//! every sum runs through its terms in one order whatever the tile: query heads and queries for a
//! key, keys for a query. A kernel that runs key blocks in parallel and adds to `dQ` atomically
//! fixes no order; for repeatable bits it must make the blocks take turns.

use std::ops::Range;

use ndarray::{Array2, s};

use super::{Tiled, blocks};
use crate::cpu::backward::{Algorithm, GroupGradients, Upstream};
use crate::cpu::bias_gradient::BiasGradient;
use crate::cpu::element::{Accumulator, Element};
use crate::cpu::row::add_scaled;

impl Algorithm for Tiled {
    /// Clauses: `FAS:bwd.tiled.order`, `FAS:bwd.head.group-sum`, `FAS:bwd.accumulator.precision`.
    fn gradients<E: Element>(
        &self,
        group: &[Upstream<'_, E>],
        bias: &mut BiasGradient<E::Accumulator>,
    ) -> GroupGradients<E::Accumulator> {
        let mut sums = GroupGradients::zero(group);
        for keys in blocks(0..group[0].head.key.nrows(), self.block_keys) {
            let mut block = KeyBlock::new(keys, &sums);
            for (upstream, query_gradient) in group.iter().zip(&mut sums.query) {
                for queries in blocks(0..upstream.head.query.nrows(), self.block_queries) {
                    if upstream.head.visible.reaches(&queries, &block.keys) {
                        block.absorb(upstream, queries, query_gradient, bias);
                    }
                }
            }
            block.write(group[0].head.dropout.scale, &mut sums);
        }
        sums.scaled(group[0].head.scale)
    }
}

/// What a key block keeps between query blocks.
struct KeyBlock<A> {
    keys: Range<usize>,
    /// `dK / scale`, a row for each of `keys`.
    key_gradient: Array2<A>,
    /// `dV`, a row for each of `keys`.
    value_gradient: Array2<A>,
}

impl<A: Accumulator> KeyBlock<A> {
    /// The empty sums of a block; `sums` has the extents of its rows.
    fn new(keys: Range<usize>, sums: &GroupGradients<A>) -> Self {
        let zeros = |of: &Array2<A>| Array2::zeros((keys.len(), of.ncols()));
        Self { key_gradient: zeros(&sums.key), value_gradient: zeros(&sums.value), keys }
    }

    /// Takes the queries of one block, each with the keys of this block that it sees: no weight is
    /// formed of any other, for `e^(s - L)` of a padded score of 0 overflows where `L` is low.
    ///
    /// `P` and `dX`, which is `dS` where no softcap bends the score, are rounded to storage before
    /// the three products, as operands of a matrix unit are; `dS` is formed from the `P` before it
    /// is rounded. What dropout leaves out meets neither values nor the gradient of the output.
    ///
    /// Clauses: `FAS:bwd.probability.recompute`, `FAS:bwd.probability.mask`,
    /// `FAS:bwd.score.gradient`, `FAS:bwd.softcap.slope`, `FAS:bwd.dropout.keep`,
    /// `FAS:bwd.value.gradient`, `FAS:bwd.query.gradient`, `FAS:bwd.bias.gradient`,
    /// `FAS:bwd.empty-row.zero`.
    fn absorb<E: Element<Accumulator = A>>(
        &mut self,
        upstream: &Upstream<'_, E>,
        queries: Range<usize>,
        query_gradient: &mut Array2<A>,
        bias: &mut BiasGradient<A>,
    ) {
        let head = &upstream.head;
        for query in queries {
            for key in head.keys(query, self.keys.clone()) {
                let row = key - self.keys.start;
                let score = head.score(query, key);
                let probability = (score.value - upstream.lse[query]).exp();
                let mut weight_gradient = A::zero();
                if head.dropout.keeps(query, key) {
                    weight_gradient = head.dropout.scale * upstream.weight_gradient(query, key);
                    let d_o = upstream.output_gradient.row(query);
                    let weight = E::store(probability).load();
                    add_scaled(self.value_gradient.row_mut(row), weight, d_o);
                }
                let score_gradient = probability * (weight_gradient - upstream.delta[query]);
                let product_gradient = E::store(score_gradient * score.slope).load();
                add_scaled(query_gradient.row_mut(query), product_gradient, head.key.row(key));
                add_scaled(self.key_gradient.row_mut(row), product_gradient, head.query.row(query));
                bias.add(head, query, key, score_gradient * score.bias_slope);
            }
        }
    }

    /// Puts the finished sums in their place: a block is written once. What dropout multiplies kept
    /// weights by is a factor of all of `dV`, applied here.
    fn write(self, kept: A, sums: &mut GroupGradients<A>) {
        let rows = s![self.keys, ..];
        sums.key.slice_mut(rows).assign(&self.key_gradient);
        sums.value.slice_mut(rows).assign(&self.value_gradient.mapv(|sum| kept * sum));
    }
}
