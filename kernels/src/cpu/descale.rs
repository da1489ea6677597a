//! What the entries of one head's inputs of 8 bits are multiplied by.

use flashproof_spec::problem::Problem;
use flashproof_spec::quantization::{Descale, Descales, Quantization};
use flashproof_spec::tensor::Tensor;

use super::element::Accumulator;

/// The descales that the queries of one head and the key head that they read have.
pub(super) struct HeadDescale<A> {
    query: Shared<A>,
    key: Shared<A>,
    value: Shared<A>,
}

/// Descales that positions share.
struct Shared<A> {
    by: Descale,
    descales: Vec<A>,
}

impl<A: Accumulator> HeadDescale<A> {
    pub(super) fn new(
        problem: &Problem,
        descales: Option<&Descales>,
        batch: usize,
        query_head: usize,
    ) -> Option<Self> {
        let Quantization { query, key, value, .. } = problem.quantization?;
        let Descales { query: of_query, key: of_key, value: of_value } = descales?;
        let key_head = query_head / (problem.query_heads / problem.key_heads);
        Some(Self {
            query: Shared::new(query, of_query, batch, query_head),
            key: Shared::new(key, of_key, batch, key_head),
            value: Shared::new(value, of_value, batch, key_head),
        })
    }

    /// What the dot product of the entries of a query and a key is multiplied by, rounded once.
    ///
    /// Clauses: `FAS:num.descale.head`, `FAS:num.descale.block`.
    pub(super) fn of_product(&self, query: usize, key: usize) -> A {
        self.query.at(query) * self.key.at(key)
    }

    /// Which part of the sum over keys a key belongs to, where parts have descales of their own: a
    /// value's descale comes between the weights and what is summed over parts.
    pub(super) fn part(&self, key: usize) -> usize {
        self.value.by.of(key)
    }

    /// What that part is multiplied by; `None` where all keys have one descale.
    pub(super) fn of_part(&self, part: usize) -> Option<A> {
        match self.value.by {
            Descale::Head => None,
            Descale::Block(_) => Some(self.value.descales[part]),
        }
    }

    /// What the finished sum is multiplied by; `None` where its parts were.
    pub(super) fn of_sum(&self) -> Option<A> {
        match self.value.by {
            Descale::Head => Some(self.value.descales[0]),
            Descale::Block(_) => None,
        }
    }
}

impl<A: Accumulator> Shared<A> {
    fn new(by: Descale, descales: &Tensor, batch: usize, head: usize) -> Self {
        let descales = descales.view3();
        let count = descales.dim().2;
        let at = |block| A::nearest(descales[[batch, head, block]]);
        Self { by, descales: (0..count).map(at).collect() }
    }

    fn at(&self, position: usize) -> A {
        self.descales[self.by.of(position)]
    }
}
