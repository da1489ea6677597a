//! Which output an element belongs to, and where it stands.

use std::fmt;

use flashproof_oracle::backward::{BiasRowIndex, KeyIndex};
use flashproof_oracle::row::RowIndex;
use serde::ser::SerializeMap;
use serde::{Deserialize, Serialize, Serializer};

use crate::diagnosis::gradient::GradientOf;

/// Which of the kernel's outputs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
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
    /// `dBias`.
    BiasGradient,
    /// `dSink`.
    SinkGradient,
}

impl Quantity {
    /// Every output of a forward and a backward pass.
    pub const ALL: [Self; 7] = [
        Self::Output,
        Self::Lse,
        Self::QueryGradient,
        Self::KeyGradient,
        Self::ValueGradient,
        Self::BiasGradient,
        Self::SinkGradient,
    ];

    /// The name in files.
    #[must_use]
    pub const fn key(self) -> &'static str {
        match self {
            Self::Output => "output",
            Self::Lse => "lse",
            Self::QueryGradient => "query-gradient",
            Self::KeyGradient => "key-gradient",
            Self::ValueGradient => "value-gradient",
            Self::BiasGradient => "bias-gradient",
            Self::SinkGradient => "sink-gradient",
        }
    }

    /// Which gradient it is, where it is one.
    #[must_use]
    pub const fn gradient(self) -> Option<GradientOf> {
        match self {
            Self::Output | Self::Lse => None,
            Self::QueryGradient => Some(GradientOf::Query),
            Self::KeyGradient => Some(GradientOf::Key),
            Self::ValueGradient => Some(GradientOf::Value),
            Self::BiasGradient => Some(GradientOf::Bias),
            Self::SinkGradient => Some(GradientOf::Sink),
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
            Self::BiasGradient => "dBias",
            Self::SinkGradient => "dSink",
        })
    }
}

/// Where an element stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Location {
    /// Batch member, from 0; of `dBias`, that of the bias, and 0 for `dSink`, which has none.
    pub batch: usize,
    /// Query head, from 0, or the key head of an element at a key; of `dBias`, that of the bias.
    pub head: usize,
    /// The query or the key.
    pub position: Position,
    /// Entry, from 0; absent for an LSE, `dBias` and `dSink`.
    pub entry: Option<usize>,
}

/// A place along a head, from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Position {
    /// Of a query: for output, LSE and `dQ`.
    Query(usize),
    /// Of a key: for `dK` and `dV`.
    Key(usize),
    /// Of a query and a key, in the bias's own shape: for `dBias`.
    Pair {
        /// The query.
        query: usize,
        /// The key.
        key: usize,
    },
    /// None: for `dSink`.
    Head,
}

impl Location {
    /// The element at these indices of an output.
    ///
    /// # Panics
    /// When there are not as many indices as the output has axes.
    pub(crate) fn of_element(quantity: Quantity, indices: &[usize]) -> Self {
        match (quantity, indices) {
            (Quantity::Lse, &[batch, head, query]) => {
                Self { batch, head, position: Position::Query(query), entry: None }
            }
            (Quantity::Output | Quantity::QueryGradient, &[batch, head, query, entry]) => {
                Self { batch, head, position: Position::Query(query), entry: Some(entry) }
            }
            (Quantity::KeyGradient | Quantity::ValueGradient, &[batch, head, key, entry]) => {
                Self { batch, head, position: Position::Key(key), entry: Some(entry) }
            }
            (Quantity::BiasGradient, &[batch, head, query, key]) => {
                Self { batch, head, position: Position::Pair { query, key }, entry: None }
            }
            (Quantity::SinkGradient, &[head]) => Self::of_sink(head),
            _ => panic!("{} indices of {quantity}", indices.len()),
        }
    }

    pub(crate) const fn of_row(row: RowIndex, entry: Option<usize>) -> Self {
        let RowIndex { batch, head, query } = row;
        Self { batch, head, position: Position::Query(query), entry }
    }

    pub(super) const fn of_key(key: KeyIndex, entry: usize) -> Self {
        let KeyIndex { batch, key_head, key } = key;
        Self { batch, head: key_head, position: Position::Key(key), entry: Some(entry) }
    }

    pub(super) const fn of_bias(row: BiasRowIndex, key: usize) -> Self {
        let BiasRowIndex { batch, head, query } = row;
        Self { batch, head, position: Position::Pair { query, key }, entry: None }
    }

    pub(super) const fn of_sink(head: usize) -> Self {
        Self { batch: 0, head, position: Position::Head, entry: None }
    }

    /// The place in a tensor: batch member, head, position and, where there is one, entry.
    pub(crate) fn indices(self) -> Vec<usize> {
        let Self { batch, head, .. } = self;
        let mut indices = match self.position {
            Position::Query(index) | Position::Key(index) => vec![batch, head, index],
            Position::Pair { query, key } => vec![batch, head, query, key],
            Position::Head => vec![head],
        };
        indices.extend(self.entry);
        indices
    }
}

impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { batch, head, .. } = self;
        match self.position {
            Position::Query(query) => write!(f, "batch {batch}, head {head}, query {query}")?,
            Position::Key(key) => write!(f, "batch {batch}, key head {head}, key {key}")?,
            Position::Pair { query, key } => {
                write!(f, "batch {batch}, head {head}, query {query}, key {key} of the bias")?;
            }
            Position::Head => write!(f, "head {head}")?,
        }
        self.entry.map_or(Ok(()), |entry| write!(f, ", entry {entry}"))
    }
}

/// The indices that there are, by name.
impl Serialize for Location {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let (batch, query, key) = match self.position {
            Position::Query(query) => (Some(self.batch), Some(query), None),
            Position::Key(key) => (Some(self.batch), None, Some(key)),
            Position::Pair { query, key } => (Some(self.batch), Some(query), Some(key)),
            Position::Head => (None, None, None),
        };
        let named = [
            ("batch", batch),
            ("head", Some(self.head)),
            ("query", query),
            ("key", key),
            ("entry", self.entry),
        ];
        let mut map = serializer.serialize_map(None)?;
        for (name, index) in named {
            if let Some(index) = index {
                map.serialize_entry(name, &index)?;
            }
        }
        map.end()
    }
}
