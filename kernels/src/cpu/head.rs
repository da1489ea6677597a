//! What a query head reads of the inputs, and its scores.

use std::ops::Range;

use flashproof_spec::problem::Problem;
use flashproof_spec::quantization::Descales;
use flashproof_spec::score::Sink;
use flashproof_spec::tensor::Inputs;
use ndarray::{Array4, ArrayView2, s};
use num_traits::{Float, Zero};

use super::convert::{addends, elements};
use super::descale::HeadDescale;
use super::dropout::HeadDropout;
use super::element::Element;
use super::row::dot;
use super::score::{HeadBias, Score, ScoreRule};
use super::visible::VisibleKeys;

/// What the queries of one head read.
pub(super) struct Head<'a, E: Element> {
    /// `[query_len, head_dim]`.
    pub(super) query: ArrayView2<'a, E>,
    /// `[key_len, head_dim]`, padding included.
    pub(super) key: ArrayView2<'a, E>,
    /// `[key_len, value_dim]`, padding included.
    pub(super) value: ArrayView2<'a, E>,
    /// The softmax scale, rounded to the accumulator.
    pub(super) scale: E::Accumulator,
    /// Which keys the mask lets each query see.
    pub(super) visible: VisibleKeys<'a>,
    /// How products become scores.
    pub(super) score_rule: ScoreRule<'a, E::Accumulator>,
    /// The logit of the sink, where there is one and it has weight.
    pub(super) sink: Option<E::Accumulator>,
    /// Which weights meet the values.
    pub(super) dropout: HeadDropout<'a, E::Accumulator>,
    /// What entries are multiplied by, where the problem is quantized.
    pub(super) descale: Option<HeadDescale<E::Accumulator>>,
}

impl<E: Element> Head<'_, E> {
    /// The keys of a block that `query` sees, ascending: those that the mask admits and whose bias
    /// is not minus infinity. The bias of a masked key is not looked at, and of a key that is not
    /// visible nothing is.
    ///
    /// Clauses: `FAS:score.bias.minus-infinity`, `FAS:fwd.special.invisible`.
    pub(super) fn keys(&self, query: usize, block: Range<usize>) -> impl Iterator<Item = usize> {
        let bounds = self.visible.bounds(query);
        let within = block.start.max(bounds.start)..block.end.min(bounds.end);
        within.filter(move |&key| self.visible.admits(query, key) && self.is_shown(query, key))
    }

    /// Whether `query` sees any key at all.
    pub(super) fn sees_any(&self, query: usize) -> bool {
        self.keys(query, 0..self.key.nrows()).next().is_some()
    }

    /// The score of a visible key: of `<query, key>`, each product and each addition rounded to the
    /// accumulator, by the [`ScoreRule`]. The largest score (or the LSE, in a backward pass) is
    /// subtracted from that rounded number, never from a fused product, so that the difference at
    /// the largest score is exactly zero.
    pub(super) fn score(&self, query: usize, key: usize) -> Score<E::Accumulator> {
        let dot = dot(self.query.row(query), self.key.row(key));
        self.score_rule.score(dot, query, key)
    }

    fn is_shown(&self, query: usize, key: usize) -> bool {
        let hidden = E::Accumulator::neg_infinity();
        self.score_rule.bias.is_none_or(|bias| bias.at(query, key) != hidden)
    }
}

/// The inputs of a problem as elements, to be read head by head.
pub(super) struct Heads<'a, E: Element> {
    problem: &'a Problem,
    scale: E::Accumulator,
    query: Array4<E>,
    key: Array4<E>,
    value: Array4<E>,
    /// The whole bias, row-major; empty where the problem has none.
    bias: Vec<E::Accumulator>,
    /// The logit of each query head's sink; empty where the problem gives none.
    sink: Vec<E::Accumulator>,
    descale: Option<Descales>,
}

impl<'a, E: Element> Heads<'a, E> {
    /// Reads all of `inputs`, which must have the problem's shapes.
    pub(super) fn new(problem: &'a Problem, inputs: &Inputs, scale: E::Accumulator) -> Self {
        let [query, key, value] =
            [&inputs.query, &inputs.key, &inputs.value].map(|tensor| elements(&tensor.view4()));
        let bias = inputs.bias.as_ref().map(addends).unwrap_or_default();
        let sink = inputs.sink.as_ref().map(addends).unwrap_or_default();
        let descale = inputs.descale.clone();
        Self { problem, scale, query, key, value, bias, sink, descale }
    }

    /// Query head `query_head` of batch member `batch`, with the key head that it reads:
    /// consecutive query heads share one.
    ///
    /// Clause: `FAS:head.group.block`.
    pub(super) fn head(&self, batch: usize, query_head: usize) -> Head<'_, E> {
        let key_head = query_head / group_size(self.problem);
        let bias =
            self.problem.bias.map(|bias| HeadBias::new(&self.bias, bias.shape, batch, query_head));
        Head {
            query: self.query.slice(s![batch, query_head, .., ..]),
            key: self.key.slice(s![batch, key_head, .., ..]),
            value: self.value.slice(s![batch, key_head, .., ..]),
            scale: self.scale,
            visible: VisibleKeys::new(self.problem, batch, query_head),
            score_rule: ScoreRule::new(self.problem, self.scale, bias, batch, query_head),
            sink: self.sink(query_head),
            dropout: HeadDropout::new(self.problem, batch, query_head),
            descale: HeadDescale::new(self.problem, self.descale.as_ref(), batch, query_head),
        }
    }

    /// A logit of minus infinity has no weight in any row, as if there were no sink.
    ///
    /// Clause: `FAS:score.sink.normalizer`.
    fn sink(&self, query_head: usize) -> Option<E::Accumulator> {
        let logit = match self.problem.sink? {
            Sink::Zero => E::Accumulator::zero(),
            Sink::Logits(_) => self.sink[query_head],
        };
        (logit != E::Accumulator::neg_infinity()).then_some(logit)
    }
}

/// The query heads that read key head `key_head`.
///
/// Clause: `FAS:head.group.block`.
pub(super) fn query_heads(problem: &Problem, key_head: usize) -> Range<usize> {
    let size = group_size(problem);
    key_head * size..(key_head + 1) * size
}

fn group_size(problem: &Problem) -> usize {
    problem.query_heads / problem.key_heads
}
