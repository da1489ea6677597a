//! The forward pass: query blocks, and for each of them key blocks with online softmax.
//!
//! Scores exist for one query and one key block at a time. What a query keeps between blocks is
//! its [`State`]: maximum, normalizer and numerator.

use std::ops::Range;

use super::state::State;
use super::{Tiled, blocks};
use crate::cpu::element::Element;
use crate::cpu::forward::Algorithm;
use crate::cpu::head::Head;
use crate::cpu::merge::Row;

impl Algorithm for Tiled {
    fn rows<E: Element>(&self, head: &Head<'_, E>) -> Vec<Row<E::Accumulator>> {
        self.attend(head, 0..head.key.nrows(), &State::with_sink(head))
    }
}

impl Tiled {
    /// The rows as far as `keys` go, without the sink: parts to be merged with others.
    pub(in crate::cpu) fn parts<E: Element>(
        &self,
        head: &Head<'_, E>,
        keys: Range<usize>,
    ) -> Vec<Row<E::Accumulator>> {
        self.attend(head, keys, &State::new(head.value.ncols()))
    }

    /// Query blocks, each query from the state `initial` on, and for each block the key blocks in
    /// which there is something to see.
    ///
    /// Clauses: `FAS:fwd.tiled.partition`, `FAS:fwd.tiled.tail`.
    fn attend<E: Element>(
        &self,
        head: &Head<'_, E>,
        keys: Range<usize>,
        initial: &State<E>,
    ) -> Vec<Row<E::Accumulator>> {
        let mut rows = Vec::with_capacity(head.query.nrows());
        for queries in blocks(0..head.query.nrows(), self.block_queries) {
            let mut states = vec![initial.clone(); queries.len()];
            for keys in blocks(keys.clone(), self.block_keys) {
                if head.visible.reaches(&queries, &keys) {
                    for (query, state) in queries.clone().zip(&mut states) {
                        state.absorb(head, query, keys.clone());
                    }
                }
            }
            rows.extend(states.into_iter().map(|state| state.finish(head)));
        }
        rows
    }
}
