//! The forward pass: the loops of the tiled kernel over blocks, with tensor cores in them.

use super::operands::Operands;
use super::sums::Sums;
use super::{BLOCK, Matrix, WEIGHT_SCALE};
use crate::cpu::element::Element;
use crate::cpu::forward::Algorithm;
use crate::cpu::head::Head;
use crate::cpu::merge::Row;
use crate::cpu::tiled::{State, blocks};

impl Algorithm for Matrix {
    fn rows<E: Element>(&self, head: &Head<'_, E>) -> Vec<Row<E::Accumulator>> {
        rows(head, Sums::new(self.accumulation(E::FORMAT)), WEIGHT_SCALE)
    }
}

/// Every row of a head, its products summed this way, weights beside values of 8 bits multiplied by
/// a power of two.
///
/// Clauses: `FAS:fwd.tiled.partition`, `FAS:fwd.tiled.tail`.
pub(in crate::cpu) fn rows<E: Element>(
    head: &Head<'_, E>,
    sums: Sums,
    weight_scale: f64,
) -> Vec<Row<E::Accumulator>> {
    let operands = Operands::new(head, sums, weight_scale);
    let mut rows = Vec::with_capacity(head.query.nrows());
    for queries in blocks(0..head.query.nrows(), BLOCK) {
        let mut states = vec![State::with_sink(head); queries.len()];
        for keys in blocks(0..head.key.nrows(), BLOCK) {
            if head.visible.reaches(&queries, &keys) {
                for (query, state) in queries.clone().zip(&mut states) {
                    operands.absorb(state, query, keys.clone());
                }
            }
        }
        rows.extend(states.into_iter().map(|state| operands.finish(state)));
    }
    rows
}
