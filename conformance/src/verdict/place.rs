//! Which output an element belongs to, and where it stands.

use std::fmt;

use flashproof_oracle::backward::KeyIndex;
use flashproof_oracle::row::RowIndex;
use serde::Serialize;

use crate::diagnosis::gradient::GradientOf;

/// Which of the kernel's outputs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Quantity {
    /// The attention output.
    Output,
    /// The LSE.
    Lse,
    /// `dQ`.
    QueryGradient,
    /// `dK`.
    KeyGradient,
    /// `dV`.
    ValueGradient,
}

impl Quantity {
    /// Every output of a forward and a backward pass.
    pub const ALL: [Self; 5] =
        [Self::Output, Self::Lse, Self::QueryGradient, Self::KeyGradient, Self::ValueGradient];

    /// Which gradient it is, where it is one.
    #[must_use]
    pub const fn gradient(self) -> Option<GradientOf> {
        match self {
            Self::Output | Self::Lse => None,
            Self::QueryGradient => Some(GradientOf::Query),
            Self::KeyGradient => Some(GradientOf::Key),
            Self::ValueGradient => Some(GradientOf::Value),
        }
    }
}

impl fmt::Display for Quantity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Output => "output",
            Self::Lse => "LSE",
            Self::QueryGradient => "dQ",
            Self::KeyGradient => "dK",
            Self::ValueGradient => "dV",
        })
    }
}

/// Where an element stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Location {
    /// Batch member, from 0.
    pub batch: usize,
    /// Query head, from 0, or the key head of an element at a key.
    pub head: usize,
    /// The query or the key.
    #[serde(flatten)]
    pub position: Position,
    /// Entry, from 0; absent for an LSE.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub entry: Option<usize>,
}

/// A place along a head, from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Position {
    /// Of a query: for output, LSE and `dQ`.
    Query(usize),
    /// Of a key: for `dK` and `dV`.
    Key(usize),
}

impl Position {
    pub(super) const fn index(self) -> usize {
        match self {
            Self::Query(index) | Self::Key(index) => index,
        }
    }
}

impl Location {
    pub(super) const fn of_row(row: RowIndex, entry: Option<usize>) -> Self {
        let RowIndex { batch, head, query } = row;
        Self { batch, head, position: Position::Query(query), entry }
    }

    pub(super) const fn of_key(key: KeyIndex, entry: usize) -> Self {
        let KeyIndex { batch, key_head, key } = key;
        Self { batch, head: key_head, position: Position::Key(key), entry: Some(entry) }
    }

    /// The place in a tensor: batch member, head, position and, where there is one, entry.
    pub(crate) fn indices(self) -> Vec<usize> {
        [self.batch, self.head, self.position.index()].into_iter().chain(self.entry).collect()
    }
}

impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { batch, head, .. } = self;
        match self.position {
            Position::Query(query) => write!(f, "batch {batch}, head {head}, query {query}")?,
            Position::Key(key) => write!(f, "batch {batch}, key head {head}, key {key}")?,
        }
        self.entry.map_or(Ok(()), |entry| write!(f, ", entry {entry}"))
    }
}
