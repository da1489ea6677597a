//! The forward pass: each split of the keys by itself, and the merge.

use super::Split;
use crate::cpu::element::Element;
use crate::cpu::forward::Algorithm;
use crate::cpu::head::Head;
use crate::cpu::merge::{Row, merge_partials};

impl Algorithm for Split {
    fn rows<E: Element>(&self, head: &Head<'_, E>) -> Vec<Row<E::Accumulator>> {
        let (queries, value_dim) = (head.query.nrows(), head.value.ncols());
        let mut parts = vec![Vec::new(); queries];
        for keys in self.splits(head.key.nrows()) {
            for (parts, part) in parts.iter_mut().zip(self.tiled.parts(head, keys)) {
                parts.push(part);
            }
        }
        let finished = parts.into_iter().map(|mut parts| {
            parts.extend(head.sink.map(|logit| Row::of_sink(value_dim, logit)));
            merge_partials(value_dim, &parts)
        });
        finished.collect()
    }
}
