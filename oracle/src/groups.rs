//! The keys of a row in order of falling score, those of equal score together.
//!
//! Dot products are exact, so equality and order of scores are too: scores are dot products times
//! one factor. A factor of zero makes all scores equal, a negative one reverses the order.

use std::cmp::Ordering;
use std::ops::Range;

use rug::Integer;

/// Groups of keys of equal score, the largest score first.
#[derive(Debug)]
pub(crate) struct Groups {
    /// Indices into the list of dot products, group after group.
    order: Vec<usize>,
    /// Where each group begins in `order`, and the end.
    starts: Vec<usize>,
    /// Each group's distance from the first one, as a difference of dot products.
    gaps: Vec<Integer>,
}

impl Groups {
    /// Groups the keys with these dot products, at least one; `sign` is the scale's.
    pub(crate) fn new(dots: &[Integer], sign: Ordering) -> Self {
        let falling = |&a: &usize, &b: &usize| match sign {
            Ordering::Greater => dots[b].cmp(&dots[a]),
            Ordering::Less => dots[a].cmp(&dots[b]),
            Ordering::Equal => Ordering::Equal,
        };
        let mut order: Vec<usize> = (0..dots.len()).collect();
        order.sort_by(falling);
        let mut starts = vec![0];
        starts.extend((1..order.len()).filter(|&i| falling(&order[i - 1], &order[i]).is_ne()));
        let gap = |&start: &usize| Integer::from(&dots[order[start]] - &dots[order[0]]).abs();
        let gaps = starts.iter().map(gap).collect();
        starts.push(order.len());
        Self { order, starts, gaps }
    }

    /// How many different scores there are.
    pub(crate) fn len(&self) -> usize {
        self.gaps.len()
    }

    /// The keys of a group, as indices into the list of dot products.
    pub(crate) fn members(&self, group: usize) -> &[usize] {
        let Range { start, end } = self.starts[group]..self.starts[group + 1];
        &self.order[start..end]
    }

    /// The distance of each group's dot product from the first group's.
    pub(crate) fn gaps(&self) -> &[Integer] {
        &self.gaps
    }

    /// Every index into the list of dot products, with its group.
    pub(crate) fn keys(&self) -> impl Iterator<Item = (usize, usize)> + '_ {
        (0..self.len()).flat_map(|group| self.members(group).iter().map(move |&key| (key, group)))
    }
}
