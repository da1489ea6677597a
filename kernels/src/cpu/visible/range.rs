//! The bounds of the loop over a query's keys.
//!
//! Everything here is a run of keys around the query's own position, in signed numbers: a position
//! can lie before the first key, and a bound may be taken from it before it is compared with 0.

use std::ops::Range;

use flashproof_spec::mask::Alignment;

use crate::cpu::position::{InUse, signed};

/// The runs of keys that the queries of one batch member are confined to.
#[derive(Clone, Debug)]
pub(super) struct Bounds {
    in_use: InUse,
    /// The first key that is no padding on the left.
    first_key: usize,
    /// Each with the distance from a query's index to its own position.
    bands: Vec<(isize, Band)>,
}

/// A run of keys that moves with a query's own position.
#[derive(Clone, Copy, Debug)]
pub(super) enum Band {
    /// From so many keys before the position to so many after it.
    Window { left: isize, right: isize },
    /// Up to the position, and at least this many keys.
    Prefix(isize),
    /// The chunk of this size that the position lies in.
    Chunk(isize),
}

impl Bounds {
    /// The bounds of lengths alone.
    pub(super) const fn new(in_use: InUse) -> Self {
        Self { in_use, first_key: 0, bands: Vec::new() }
    }

    /// Leaves out the keys before `key`.
    ///
    /// Clause: `FAS:mask.length.left-padding`.
    pub(super) fn start_at(&mut self, key: usize) {
        self.first_key = self.first_key.max(key);
    }

    /// Leaves out the keys outside of a band.
    pub(super) fn add(&mut self, alignment: Alignment, band: Band) {
        self.bands.push((self.in_use.shift(alignment), band));
    }

    /// The keys left to a query; none to one that is padding.
    ///
    /// Clauses: `FAS:mask.length.padding`, `FAS:mask.length.queries`.
    pub(super) fn keys(&self, query: usize) -> Range<usize> {
        if query >= self.in_use.queries {
            return 0..0;
        }
        let mut start = signed(self.first_key);
        let mut end = signed(self.in_use.keys);
        for (shift, band) in &self.bands {
            let run = band.keys(signed(query) + shift);
            start = start.max(run.start);
            end = end.min(run.end);
        }
        // The start is not negative; an end that is leaves nothing, as one before the start does.
        start.unsigned_abs()..end.max(start).unsigned_abs()
    }
}

impl Band {
    /// Every key up to the position: a window without an end to the left.
    ///
    /// Clauses: `FAS:mask.causal.top-left`, `FAS:mask.causal.bottom-right`.
    pub(super) const CAUSAL: Self = Self::Window { left: isize::MAX, right: 0 };

    /// A window with the bounds that are given.
    pub(super) fn window(left: Option<usize>, right: Option<usize>) -> Self {
        let reach = |bound: Option<usize>| bound.map_or(isize::MAX, signed);
        Self::Window { left: reach(left), right: reach(right) }
    }

    /// The keys up to the position, and the first `length` keys whatever the position.
    pub(super) fn prefix(length: usize) -> Self {
        Self::Prefix(signed(length))
    }

    /// Chunks of `size` positions.
    pub(super) fn chunk(size: usize) -> Self {
        Self::Chunk(signed(size))
    }

    /// The run of a query whose own position is `own`. Its ends saturate: further than any key is
    /// far enough.
    ///
    /// Clauses: `FAS:mask.window.inclusive`, `FAS:mask.prefix.bidirectional`,
    /// `FAS:mask.chunk.local`.
    fn keys(self, own: isize) -> Range<isize> {
        match self {
            Self::Window { left, right } => {
                own.saturating_sub(left)..own.saturating_add(right).saturating_add(1)
            }
            Self::Prefix(length) => 0..length.max(own + 1),
            Self::Chunk(size) => {
                // Towards minus infinity, so that positions before the first key have chunks too.
                let start = own.div_euclid(size) * size;
                start..start.saturating_add(size)
            }
        }
    }
}
