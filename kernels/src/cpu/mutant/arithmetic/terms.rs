//! What a query meets in one block of keys: scores, of keys that it sees and of others where a fault
//! lets it.

use std::ops::Range;

use flashproof_spec::format::Format;
use flashproof_spec::problem::Problem;
use flashproof_spec::score::{Slopes, standard_slopes};
use ndarray::s;
use num_traits::{Float, Zero};

use super::exponential::rounded;
use super::forward::ForwardFault;
use crate::cpu::element::{Accumulator, Element};
use crate::cpu::head::Head;
use crate::cpu::mutant::{Tiles, blocks};
use crate::cpu::position::InUse;
use crate::cpu::row::dot;

/// A head as its queries see it, with perhaps a fault.
pub(super) struct Sight<'s, 'h, E: Element> {
    pub(super) fault: Option<ForwardFault>,
    pub(super) tiles: Tiles,
    pub(super) problem: &'s Problem,
    pub(super) query_head: usize,
    pub(super) in_use: InUse,
    pub(super) head: &'s Head<'h, E>,
}

/// One score of a row, of a key or of a position past the last.
pub(super) struct Term<A> {
    pub(super) key: Option<usize>,
    pub(super) score: A,
}

impl<E: Element> Sight<'_, '_, E> {
    pub(super) fn has(&self, fault: ForwardFault) -> bool {
        self.fault == Some(fault)
    }

    /// The blocks of keys that a block of queries enters, in order.
    pub(super) fn key_blocks(&self, queries: &Range<usize>) -> Vec<Range<usize>> {
        let key_len = self.head.key.nrows();
        let mut entered = blocks(0..key_len, self.tiles.keys);
        match self.fault {
            // They look at keys that no query of the block need see.
            Some(ForwardFault::ReadPastLength | ForwardFault::SoftcapAfterMask) => {}
            _ => entered.retain(|keys| self.head.visible.reaches(queries, keys)),
        }
        match self.fault {
            Some(ForwardFault::CausalLoopShort) => {
                let ends = queries.clone().map(|query| self.head.visible.bounds(query).end);
                let end = ends.max().unwrap_or(0);
                if end < self.in_use.keys {
                    entered.retain(|keys| keys.end <= end);
                }
            }
            Some(ForwardFault::DropTailBlock) => {
                entered.retain(|keys| keys.start == 0 || keys.len() == self.tiles.keys.get());
            }
            Some(ForwardFault::KeysReversed) => entered.reverse(),
            _ => {}
        }
        entered
    }

    /// The scores of a query in a block of keys.
    pub(super) fn terms(&self, query: usize, block: Range<usize>) -> Vec<Term<E::Accumulator>> {
        let mut keys: Vec<usize> = self.head.keys(query, block.clone()).collect();
        match self.fault {
            Some(ForwardFault::DropKey) if query + 1 == self.head.query.nrows() => {
                let first = self.head.keys(query, 0..self.head.key.nrows()).next();
                keys.retain(|&key| Some(key) != first);
            }
            Some(ForwardFault::ReadPastLength) => keys.extend(self.next_key(query, &block)),
            Some(ForwardFault::KeysReversed) => keys.reverse(),
            _ => {}
        }
        let of_key = |key| Term { key: Some(key), score: self.score(query, key) };
        let mut terms: Vec<_> = keys.iter().map(|&key| of_key(key)).collect();
        match self.fault {
            Some(ForwardFault::TailScoreZero) => {
                let past = self.tiles.keys.get().saturating_sub(block.len()).min(MOST_PADDING);
                let padding = || Term { key: None, score: E::Accumulator::zero() };
                terms.extend(std::iter::repeat_with(padding).take(past));
            }
            Some(ForwardFault::SoftcapAfterMask) => {
                let hidden = block.filter(|key| !keys.contains(key));
                let capped = hidden.map(|key| (key, self.hidden_score(query, key)));
                let counts = |&(_, score): &(usize, E::Accumulator)| score.is_finite();
                terms.extend(
                    capped.filter(counts).map(|(key, score)| Term { key: Some(key), score }),
                );
            }
            _ => {}
        }
        terms
    }

    /// The product of a query and a key.
    fn product(&self, query: usize, key: usize) -> E::Accumulator {
        let (query, key) = (self.head.query.row(query), self.head.key.row(key));
        match self.fault {
            Some(ForwardFault::ProductF16) => {
                let products = query.iter().zip(key).map(|(q, k)| q.load() * k.load());
                products.fold(E::Accumulator::zero(), |sum, product| {
                    rounded(Format::F16, sum + product)
                })
            }
            Some(ForwardFault::First64Entries) if query.len() > ENTRIES => {
                dot(query.slice(s![..ENTRIES]), key.slice(s![..ENTRIES]))
            }
            _ => dot(query, key),
        }
    }

    /// What `AlibiShifted` adds to every distance of a row, times the slope.
    pub(super) fn shift(&self) -> E::Accumulator {
        let Some(alibi) =
            self.problem.alibi.as_ref().filter(|_| self.has(ForwardFault::AlibiShifted))
        else {
            return E::Accumulator::zero();
        };
        E::Accumulator::nearest(match &alibi.slopes {
            Slopes::Standard => standard_slopes(self.problem.query_heads)[self.query_head],
            Slopes::Given(slopes) => slopes[self.query_head],
        })
    }

    fn score(&self, query: usize, key: usize) -> E::Accumulator {
        let score = self.head.score_rule.score(self.product(query, key), query, key).value;
        if self.has(ForwardFault::AlibiShifted) { score - self.shift() } else { score }
    }

    /// The score of a key whose product was made minus infinity.
    fn hidden_score(&self, query: usize, key: usize) -> E::Accumulator {
        if self.problem.softcap.is_none() || self.head.scale == E::Accumulator::zero() {
            return E::Accumulator::neg_infinity();
        }
        let product = E::Accumulator::neg_infinity() * self.head.scale.signum();
        self.head.score_rule.score(product, query, key).value
    }

    /// The key after the last in use, to a query that could see it.
    fn next_key(&self, query: usize, block: &Range<usize>) -> Option<usize> {
        let next = self.in_use.keys;
        let is_last = self.head.visible.bounds(query).end == next;
        let exists = next < self.head.key.nrows() && block.contains(&next);
        (query < self.in_use.queries && is_last && exists).then_some(next)
    }
}

/// Entries of a query that one step of a matrix unit takes.
const ENTRIES: usize = 64;

/// Positions past the last key that are counted, however large the tile.
const MOST_PADDING: usize = 1 << 16;
