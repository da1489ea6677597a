//! The strides of the layouts that have a name.

use super::{Strided, Strides};
use crate::problem::Problem;

impl Strides {
    /// Dense strides of a shape `[batch, head, position, entry]` whose axes lie in `order`, the
    /// slowest first: `[0, 1, 2, 3]` is contiguous.
    ///
    /// # Panics
    /// When `order` is not a permutation of the four axes.
    #[must_use]
    pub fn dense(shape: [usize; 4], order: [usize; 4]) -> Self {
        let mut strides = [None; 4];
        let mut elements = 1_usize;
        for axis in order.into_iter().rev() {
            strides[axis] = Some(elements);
            elements = elements.saturating_mul(shape[axis]);
        }
        let strides = strides.map(|stride| stride.expect("each axis once"));
        Self { elements, offset: 0, strides }
    }

    /// Another stride along an axis, in a buffer as long as that takes; 0 makes the axis share its
    /// elements.
    #[must_use]
    pub fn spread(mut self, shape: [usize; 4], axis: usize, stride: usize) -> Self {
        self.strides[axis] = stride;
        let needed = match self.last(shape) {
            _ if shape.contains(&0) => self.offset,
            last => last.map_or(usize::MAX, |last| last.saturating_add(1)),
        };
        Self { elements: needed, ..self }
    }

    /// As many elements that belong to no tensor before the first and after the last.
    #[must_use]
    pub const fn guarded(self, elements: usize) -> Self {
        Self {
            elements: self.elements.saturating_add(elements.saturating_mul(2)),
            offset: self.offset.saturating_add(elements),
            ..self
        }
    }
}

impl Strided {
    /// Every tensor dense, with its axes in `order`, the slowest first: `[0, 2, 1, 3]` is
    /// `[batch, position, head, entry]`, and `[0, 1, 3, 2]` has entries before positions.
    ///
    /// # Panics
    /// When `order` is not a permutation of the four axes.
    #[must_use]
    pub fn dense(problem: &Problem, order: [usize; 4]) -> Self {
        let [query, key, value, output] = [
            problem.query_shape(),
            problem.key_shape(),
            problem.value_shape(),
            problem.output_shape(),
        ]
        .map(|shape| Strides::dense(shape, order));
        Self { query, key, value, output }
    }

    /// `[batch, position, head, entry]`.
    #[must_use]
    pub fn bshd(problem: &Problem) -> Self {
        Self::dense(problem, [0, 2, 1, 3])
    }

    /// `[batch, head, entry, position]`.
    #[must_use]
    pub fn transposed(problem: &Problem) -> Self {
        Self::dense(problem, [0, 1, 3, 2])
    }
}

/// Query, key and value of a position in one row, `[batch, position, 3, head, entry]` where they have
/// the same shape; the output is `[batch, position, head, entry]`. `None` where there are not as
/// many queries as keys.
///
/// Each of the three is given a buffer of its own, as long as the packed one and poison where the other
/// two stand.
#[must_use]
pub fn packed_qkv(problem: &Problem) -> Option<Strided> {
    if problem.query_len != problem.key_len {
        return None;
    }
    let shapes = [problem.query_shape(), problem.key_shape(), problem.value_shape()];
    let parts = shapes.map(|[_, heads, _, entries]| heads.saturating_mul(entries));
    let row = parts.iter().fold(0_usize, |row, &part| row.saturating_add(part));
    let member = row.saturating_mul(problem.key_len);
    let mut offset = 0;
    let [query, key, value] = [0, 1, 2].map(|part| {
        let strides = Strides {
            elements: member.saturating_mul(problem.batch),
            offset,
            strides: [member, shapes[part][3], row, 1],
        };
        offset += parts[part];
        strides
    });
    Some(Strided { query, key, value, output: Strided::bshd(problem).output })
}
