//! Where one head's entries stand in a tensor that is shared along some of its axes.

use flashproof_spec::pattern::Pattern;

/// The entries of one head in a row-major tensor `[batch, head, query, key]`.
///
/// An axis of extent 1 is shared by all that it stands for: its step is 0.
#[derive(Clone, Copy, Debug)]
pub(super) struct Plane {
    first: usize,
    query_step: usize,
    key_step: usize,
}

impl Plane {
    /// The plane of batch member `batch` and head `head` in a tensor of this shape.
    pub(super) fn new(shape: [usize; 4], batch: usize, head: usize) -> Self {
        let [_, heads, queries, keys] = shape;
        let row_major = [heads * queries * keys, queries * keys, keys, 1];
        let step = |axis: usize| if shape[axis] == 1 { 0 } else { row_major[axis] };
        Self { first: batch * step(0) + head * step(1), query_step: step(2), key_step: step(3) }
    }

    /// The place of an entry in the flat, row-major list.
    pub(super) const fn place(self, query: usize, key: usize) -> usize {
        self.first + query * self.query_step + key * self.key_step
    }
}

/// One head's part of a pattern.
#[derive(Clone, Copy, Debug)]
pub(super) struct HeadPattern<'a> {
    bits: &'a [bool],
    plane: Plane,
}

impl<'a> HeadPattern<'a> {
    pub(super) fn new(pattern: &'a Pattern, batch: usize, head: usize) -> Self {
        Self { bits: pattern.bits(), plane: Plane::new(pattern.shape(), batch, head) }
    }

    /// Clause: `FAS:mask.boolean.broadcast`.
    pub(super) fn at(&self, query: usize, key: usize) -> bool {
        self.bits[self.plane.place(query, key)]
    }
}
