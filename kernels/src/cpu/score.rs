//! From the product of a query and a key to their score, and how steeply.

use flashproof_spec::problem::Problem;
use flashproof_spec::score::{Softcap, SoftcapOrder};

use super::alibi::HeadAlibi;
use super::broadcast::Plane;
use super::element::Accumulator;

/// A score `s` and its derivatives.
#[derive(Clone, Copy, Debug)]
pub(super) struct Score<A> {
    /// `s`.
    pub(super) value: A,
    /// `ds/dx`, with `x` the scaled product: 1 without softcap.
    pub(super) slope: A,
    /// `ds/db`, with `b` the bias: 1 unless the softcap bounds the bias too.
    pub(super) bias_slope: A,
}

/// How one head's products become scores.
pub(super) struct ScoreRule<'a, A> {
    scale: A,
    softcap: Option<(A, SoftcapOrder)>,
    /// The head's bias, where the problem has one.
    pub(super) bias: Option<HeadBias<'a, A>>,
    alibi: Option<HeadAlibi<A>>,
}

/// One head's part of the bias.
#[derive(Clone, Copy)]
pub(super) struct HeadBias<'a, A> {
    entries: &'a [A],
    plane: Plane,
}

impl<'a, A: Accumulator> HeadBias<'a, A> {
    /// `entries` is the whole bias, row-major, of this shape.
    pub(super) fn new(entries: &'a [A], shape: [usize; 4], batch: usize, head: usize) -> Self {
        Self { entries, plane: Plane::new(shape, batch, head) }
    }

    /// The bias of a query and a key.
    ///
    /// Clause: `FAS:score.bias.broadcast`.
    pub(super) fn at(&self, query: usize, key: usize) -> A {
        self.entries[self.place(query, key)]
    }

    /// Where that entry stands in the whole bias.
    pub(super) const fn place(&self, query: usize, key: usize) -> usize {
        self.plane.place(query, key)
    }
}

impl<'a, A: Accumulator> ScoreRule<'a, A> {
    /// The rule of query head `head` of batch member `batch`.
    pub(super) fn new(
        problem: &Problem,
        scale: A,
        bias: Option<HeadBias<'a, A>>,
        batch: usize,
        head: usize,
    ) -> Self {
        let softcap = problem.softcap.map(|Softcap { cap, order }| (A::nearest(cap), order));
        Self { scale, softcap, bias, alibi: HeadAlibi::new(problem, batch, head) }
    }

    /// The score of a query and a key whose dot product is `dot`.
    ///
    /// Every operation is rounded to the accumulator: the scaled product; its quotient by the cap,
    /// `tanh` and the product with the cap; each addend.
    ///
    /// Clauses: `FAS:fwd.score.scale`, `FAS:score.scale.sign`, `FAS:score.softcap.tanh`,
    /// `FAS:score.softcap.before-mask`, `FAS:bwd.softcap.slope`.
    pub(super) fn score(&self, dot: A, query: usize, key: usize) -> Score<A> {
        let product = self.scale * dot;
        let one = A::one();
        match self.softcap {
            None => {
                let value = self.with_addends(product, query, key);
                Score { value, slope: one, bias_slope: one }
            }
            Some((cap, SoftcapOrder::BeforeBias)) => {
                let tanh = (product / cap).tanh();
                let value = self.with_addends(cap * tanh, query, key);
                Score { value, slope: one - tanh * tanh, bias_slope: one }
            }
            Some((cap, SoftcapOrder::AfterBias)) => {
                let tanh = (self.with_addends(product, query, key) / cap).tanh();
                let slope = one - tanh * tanh;
                Score { value: cap * tanh, slope, bias_slope: slope }
            }
        }
    }

    /// `(x + b) + a`, with the bias and the ALiBi term where there are any.
    ///
    /// Clause: `FAS:score.bias.add`.
    fn with_addends(&self, x: A, query: usize, key: usize) -> A {
        let biased = self.bias.map_or(x, |bias| x + bias.at(query, key));
        self.alibi.map_or(biased, |alibi| biased + alibi.at(query, key))
    }
}
