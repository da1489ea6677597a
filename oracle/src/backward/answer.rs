//! The exact gradients: of a query row, a key and its value, a row of the bias, and a sink.

use rug::Float;

use crate::enclosure::Enclosure;
use crate::row::{Exact, RowIndex};

/// Which key, with its value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct KeyIndex {
    /// Batch member, from 0.
    pub batch: usize,
    /// Key head, from 0.
    pub key_head: usize,
    /// Key position, from 0.
    pub key: usize,
}

/// The right answer for one entry of a gradient.
#[derive(Clone, Debug, PartialEq)]
pub enum ExpectedGradient {
    /// A real number.
    Exact(Exact),
    /// The oracle does not say: a query row that the entry depends on meets an infinity or NaN, in
    /// its query, in a key or value that it sees or in what is added to their score, in its sink, or in its
    /// upstream gradients. A bias of minus infinity hides its key, and a sink of minus infinity is none.
    Unspecified,
}

impl ExpectedGradient {
    /// Exactly zero: a sum without terms.
    pub(crate) fn zero() -> Self {
        let enclosure = Enclosure::point(Float::new(rug::float::prec_min()));
        Self::Exact(Exact { enclosure, rounded: Some(0.0) })
    }

    /// The real number, where the answer is one.
    #[must_use]
    pub const fn exact(&self) -> Option<&Exact> {
        match self {
            Self::Exact(exact) => Some(exact),
            Self::Unspecified => None,
        }
    }

    /// A bound, rounded up to `f64`, on the entry's magnitude; infinite where it is unspecified.
    #[must_use]
    pub fn magnitude_hi(&self) -> f64 {
        self.exact().map_or(f64::INFINITY, |exact| exact.enclosure.magnitude_hi())
    }
}

/// What a kernel should give as the gradient of one query.
#[derive(Clone, Debug, PartialEq)]
pub struct QueryGradientRow {
    /// Which query row.
    pub index: RowIndex,
    /// `dQ_j`, one entry a head dimension.
    pub query: Vec<ExpectedGradient>,
    /// Upper bounds on `|sum_i p_i c_i k_ij|`, with `c` the slope of the softcap, one a head dimension;
    /// infinite where the gradient is unspecified.
    pub mean_key_hi: Vec<f64>,
}

/// What a kernel should give as the gradients of one key and its value.
#[derive(Clone, Debug, PartialEq)]
pub struct KeyGradientRow {
    /// Which key.
    pub index: KeyIndex,
    /// `dK_ij`, one entry a head dimension.
    pub key: Vec<ExpectedGradient>,
    /// `dV_ij`, one entry a value dimension.
    pub value: Vec<ExpectedGradient>,
    /// The query rows that see the key, of every query head that reads it, ascending: the terms of
    /// both sums.
    pub contributors: Vec<RowIndex>,
}

/// Gradients of a key and its value, enclosed at one working precision.
#[derive(Clone, Debug, PartialEq)]
pub struct KeyGradientEnclosures {
    /// `dK_ij`, one entry a head dimension.
    pub key: Vec<Enclosure>,
    /// `dV_ij`, one entry a value dimension.
    pub value: Vec<Enclosure>,
}

/// Which row of the bias, in the bias's own shape: an index is 0 along an axis that is broadcast.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct BiasRowIndex {
    /// Along the first axis, from 0.
    pub batch: usize,
    /// Along the second axis, from 0.
    pub head: usize,
    /// Along the third axis, from 0.
    pub query: usize,
}

/// What a kernel should give as the gradient of one row of the bias (`FAS:bwd.bias.gradient`,
/// `FAS:bwd.bias.reduce`).
#[derive(Clone, Debug, PartialEq)]
pub struct BiasGradientRow {
    /// Which row of the bias.
    pub index: BiasRowIndex,
    /// One entry for each index along the bias's last axis: one for each key, or a single one where that
    /// axis is broadcast, which then sums over all keys.
    pub bias: Vec<ExpectedGradient>,
    /// The query rows that the row of the bias is added to and that see a key, ascending. Such a row
    /// is a term of entry `k` where it sees key `k`; of a single entry, with each key that it sees.
    pub contributors: Vec<RowIndex>,
}

/// What a kernel should give as the gradient of the logit of one query head's sink
/// (`FAS:bwd.sink.gradient`).
#[derive(Clone, Debug, PartialEq)]
pub struct SinkGradient {
    /// Which query head.
    pub head: usize,
    /// The sum over batch and queries of `p (g - D)`, with `p` the weight of the sink.
    pub sink: ExpectedGradient,
    /// The query rows of the head that see a key, ascending.
    pub contributors: Vec<RowIndex>,
    /// The other query rows, ascending, but for those that a ragged layout does not store. The sink has
    /// all of their weight, and each is a term of exactly `g`.
    pub without_keys: Vec<RowIndex>,
}
