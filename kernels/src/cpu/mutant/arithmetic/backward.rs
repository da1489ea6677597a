//! The backward pass: blocks of keys, and for each of them the blocks of queries that see it.

use std::ops::Range;

use flashproof_spec::format::Format;
use ndarray::{Array2, s};

use super::Arithmetic;
use super::bias::BiasSums;
use super::exponential::{next_up, rounded};
use crate::cpu::backward::{GroupGradients, Upstream};
use crate::cpu::element::{Accumulator, Element};
use crate::cpu::mutant::blocks;
use crate::cpu::row::add_scaled;
use crate::cpu::score::Score;

/// The step that is changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::cpu::mutant) enum BackwardFault {
    /// `dS = P dP`.
    NoDelta,
    /// `dK` is not scaled.
    KeyUnscaled,
    /// `dQ` is scaled twice.
    QueryScaledTwice,
    /// Each query head of a group overwrites `dK` and `dV`.
    GroupOverwrite,
    /// Each block of keys overwrites `dQ`.
    QueryOverwrite,
    /// `dK` and `dV` are summed over every `key_heads`-th query head.
    WrongGroup,
    /// Positions past the last key have a score of 0, and a weight from it.
    PadZero,
    /// The key after the last that a query sees has a weight.
    MaskWider,
    /// Every key in use has a weight.
    Unmasked,
    /// `dS = z P (dP - D)`.
    DropoutPostWeight,
    /// The slope of the softcap is left out.
    NoSlope,
    /// The slope of the softcap is that at the score, not at the product.
    SlopeOfScore,
    /// The gradient of the bias holds one of the terms that it sums.
    BiasNoReduce,
    /// The gradient of the sinks holds the last batch member's part.
    SinkOfLastMember,
    /// `dV` is carried in bf16 between blocks of queries.
    ValueBf16,
    /// `dK` is.
    KeyBf16,
    /// The last query brings nothing to `dK` and `dV`.
    DropQuery,
    /// Every second backward pass takes the blocks of keys last to first.
    QueryOrder,
    /// Control: blocks of keys, and of queries, last to first.
    Reversed,
    /// Control: the exponential is the number after the one that the library gives.
    ExpOneUlp,
}

/// The gradients of one key head and of the query heads that are summed into it.
pub(super) fn gradients<E: Element>(
    arithmetic: &Arithmetic<BackwardFault>,
    reversed: bool,
    keys_in_use: usize,
    group: &[Upstream<'_, E>],
    bias: &mut BiasSums<E::Accumulator>,
) -> GroupGradients<E::Accumulator> {
    let mut sums = GroupGradients::zero(group);
    let in_order = |mut blocks: Vec<Range<usize>>, reversed: bool| {
        if reversed {
            blocks.reverse();
        }
        blocks
    };
    let last_first = arithmetic.has(&BackwardFault::Reversed);
    let key_blocks = blocks(0..group[0].head.key.nrows(), arithmetic.tiles.keys);
    for keys in in_order(key_blocks, reversed || last_first) {
        let mut block = KeyBlock::new(arithmetic, keys_in_use, keys, &sums);
        for (upstream, query_gradient) in group.iter().zip(&mut sums.query) {
            if arithmetic.has(&BackwardFault::GroupOverwrite) {
                block.clear();
            }
            let query_blocks = blocks(0..upstream.head.query.nrows(), arithmetic.tiles.queries);
            for queries in in_order(query_blocks, last_first) {
                if block.is_entered(upstream, &queries) {
                    block.absorb(upstream, queries, query_gradient, bias);
                }
            }
        }
        block.write(group[0].head.dropout.scale, &mut sums);
    }
    scaled(arithmetic, group[0].head.scale, sums)
}

/// The softmax scale, once on each finished sum of `dQ` and `dK`.
fn scaled<A: Accumulator>(
    arithmetic: &Arithmetic<BackwardFault>,
    scale: A,
    mut sums: GroupGradients<A>,
) -> GroupGradients<A> {
    for query in &mut sums.query {
        query.mapv_inplace(|sum| scale * sum);
        if arithmetic.has(&BackwardFault::QueryScaledTwice) {
            query.mapv_inplace(|sum| scale * sum);
        }
    }
    if !arithmetic.has(&BackwardFault::KeyUnscaled) {
        sums.key.mapv_inplace(|sum| scale * sum);
    }
    sums
}

/// What a block of keys keeps between blocks of queries.
struct KeyBlock<'a, A> {
    arithmetic: &'a Arithmetic<BackwardFault>,
    keys_in_use: usize,
    keys: Range<usize>,
    key_gradient: Array2<A>,
    value_gradient: Array2<A>,
}

impl<'a, A: Accumulator> KeyBlock<'a, A> {
    fn new(
        arithmetic: &'a Arithmetic<BackwardFault>,
        keys_in_use: usize,
        keys: Range<usize>,
        sums: &GroupGradients<A>,
    ) -> Self {
        let zeros = |of: &Array2<A>| Array2::zeros((keys.len(), of.ncols()));
        let (key_gradient, value_gradient) = (zeros(&sums.key), zeros(&sums.value));
        Self { arithmetic, keys_in_use, keys, key_gradient, value_gradient }
    }

    fn has(&self, fault: BackwardFault) -> bool {
        self.arithmetic.has(&fault)
    }

    fn clear(&mut self) {
        self.key_gradient.fill(A::zero());
        self.value_gradient.fill(A::zero());
    }

    fn is_entered<E: Element<Accumulator = A>>(
        &self,
        upstream: &Upstream<'_, E>,
        queries: &Range<usize>,
    ) -> bool {
        // They look at keys that no query of the block need see.
        self.has(BackwardFault::MaskWider)
            || self.has(BackwardFault::Unmasked)
            || upstream.head.visible.reaches(queries, &self.keys)
    }

    /// Takes the queries of one block.
    fn absorb<E: Element<Accumulator = A>>(
        &mut self,
        upstream: &Upstream<'_, E>,
        queries: Range<usize>,
        query_gradient: &mut Array2<A>,
        bias: &mut BiasSums<A>,
    ) {
        let mut order: Vec<usize> = queries.collect();
        if self.has(BackwardFault::Reversed) {
            order.reverse();
        }
        for query in order {
            if self.has(BackwardFault::QueryOverwrite) {
                query_gradient.row_mut(query).fill(A::zero());
            }
            for key in self.seen(upstream, query) {
                self.take(upstream, query, key, query_gradient, bias);
            }
            if self.has(BackwardFault::PadZero) {
                self.take_padding(upstream, query, query_gradient);
            }
        }
        let carried = |sum| rounded(Format::Bf16, sum);
        if self.has(BackwardFault::ValueBf16) {
            self.value_gradient.mapv_inplace(carried);
        }
        if self.has(BackwardFault::KeyBf16) {
            self.key_gradient.mapv_inplace(carried);
        }
    }

    /// The keys of this block that a query gives a weight.
    fn seen<E: Element<Accumulator = A>>(
        &self,
        upstream: &Upstream<'_, E>,
        query: usize,
    ) -> Vec<usize> {
        let head = &upstream.head;
        let mut keys: Vec<usize> = head.keys(query, self.keys.clone()).collect();
        if self.has(BackwardFault::MaskWider) && head.sees_any(query) {
            let next = head.visible.bounds(query).end;
            if next < self.keys_in_use && self.keys.contains(&next) {
                keys.push(next);
            }
        }
        if self.has(BackwardFault::Unmasked) && head.sees_any(query) {
            keys = self.keys.clone().filter(|&key| key < self.keys_in_use).collect();
        }
        keys
    }

    /// Takes a query and a key.
    fn take<E: Element<Accumulator = A>>(
        &mut self,
        upstream: &Upstream<'_, E>,
        query: usize,
        key: usize,
        query_gradient: &mut Array2<A>,
        bias: &mut BiasSums<A>,
    ) {
        let head = &upstream.head;
        let row = key - self.keys.start;
        let score = head.score(query, key);
        let probability = self.exp(score.value - upstream.lse[query]);
        let kept = head.dropout.keeps(query, key);
        let dropped = self.has(BackwardFault::DropQuery) && query + 1 == head.query.nrows();
        let mut weight_gradient = A::zero();
        if kept {
            weight_gradient = head.dropout.scale * upstream.weight_gradient(query, key);
            if !dropped {
                let d_o = upstream.output_gradient.row(query);
                let weight = E::store(probability).load();
                add_scaled(self.value_gradient.row_mut(row), weight, d_o);
            }
        }
        let delta = upstream.delta[query];
        let score_gradient = if self.has(BackwardFault::NoDelta) {
            probability * weight_gradient
        } else if self.has(BackwardFault::DropoutPostWeight) {
            let factor = head.dropout.factor(query, key);
            factor * probability * (upstream.weight_gradient(query, key) - delta)
        } else {
            probability * (weight_gradient - delta)
        };
        let product_gradient = E::store(score_gradient * self.slope(upstream, query, key, &score));
        let product_gradient = product_gradient.load();
        add_scaled(query_gradient.row_mut(query), product_gradient, head.key.row(key));
        if !dropped {
            add_scaled(self.key_gradient.row_mut(row), product_gradient, head.query.row(query));
        }
        bias.add(head, query, key, score_gradient * score.bias_slope);
    }

    /// The slope of the softcap.
    fn slope<E: Element<Accumulator = A>>(
        &self,
        upstream: &Upstream<'_, E>,
        query: usize,
        key: usize,
        score: &Score<A>,
    ) -> A {
        let one = A::one();
        if self.has(BackwardFault::NoSlope) {
            one
        } else if self.has(BackwardFault::SlopeOfScore) && score.slope != one {
            // The rule's own slope at the score, where it should be that at the product.
            let product = score.value / upstream.head.scale;
            upstream.head.score_rule.score(product, query, key).slope
        } else {
            score.slope
        }
    }

    fn exp(&self, x: A) -> A {
        if self.has(BackwardFault::ExpOneUlp) { next_up(x.exp()) } else { x.exp() }
    }

    /// Takes a query and the positions past the last key, whose keys and values are zero: nothing, unless
    /// their weight is infinite.
    fn take_padding<E: Element<Accumulator = A>>(
        &self,
        upstream: &Upstream<'_, E>,
        query: usize,
        query_gradient: &mut Array2<A>,
    ) {
        let is_short = self.keys.len() < self.arithmetic.tiles.keys.get();
        if is_short && upstream.head.sees_any(query) {
            let probability = (-upstream.lse[query]).exp();
            let product_gradient = E::store(probability * -upstream.delta[query]).load();
            query_gradient.row_mut(query).mapv_inplace(|sum| sum + product_gradient * A::zero());
        }
    }

    /// Puts the finished sums in their place.
    fn write(self, kept: A, sums: &mut GroupGradients<A>) {
        let rows = s![self.keys, ..];
        sums.key.slice_mut(rows).assign(&self.key_gradient);
        sums.value.slice_mut(rows).assign(&self.value_gradient.mapv(|sum| kept * sum));
    }
}
