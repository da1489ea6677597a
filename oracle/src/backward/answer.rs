//! The exact gradients of one query row, and of one key and its value.

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
    /// its query, in a key or value that it sees, or in its upstream gradients.
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
    /// Upper bounds on `|sum_i p_i k_ij|`, one a head dimension; infinite where the gradient is
    /// unspecified.
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
