//! Truth values by batch member, head, query and key, with broadcast axes.

use serde::{Deserialize, Serialize};

/// A boolean tensor `[batch, head, query, key]`; an axis of extent 1 is broadcast.
///
/// On the wire: `{"shape": [b, h, q, k], "rows": ["0110", ...]}`, one string of `0` and `1` for each
/// row of the last axis, the others row-major.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Wire", into = "Wire")]
pub struct Pattern {
    shape: [usize; 4],
    bits: Vec<bool>,
}

/// Truth values that do not make the pattern that was described.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs)] // each variant's message is its documentation
pub enum PatternError {
    #[error("{found} truth values do not fill shape {shape:?}")]
    Count { found: usize, shape: [usize; 4] },
    #[error("{found} rows do not fill shape {shape:?}: expected {expected}")]
    Rows { found: usize, expected: usize, shape: [usize; 4] },
    #[error("row {row} is {found} long: expected {expected} digits, each 0 or 1")]
    Row { row: usize, found: usize, expected: usize },
    #[error("row {row} holds {found:?}: expected 0 or 1")]
    Digit { row: usize, found: char },
    #[error("shape {0:?} has more truth values than can be addressed")]
    TooLarge([usize; 4]),
}

impl Pattern {
    /// A pattern from its truth values, row-major.
    ///
    /// # Errors
    /// [`PatternError::Count`] when they do not fill the shape.
    pub fn new(shape: [usize; 4], bits: Vec<bool>) -> Result<Self, PatternError> {
        let count = extent(&shape, &shape)?;
        if bits.len() == count {
            Ok(Self { shape, bits })
        } else {
            Err(PatternError::Count { found: bits.len(), shape })
        }
    }

    /// A pattern from a rule, called with `[batch, head, query, key]` in row-major order.
    #[must_use]
    pub fn from_fn(shape: [usize; 4], mut rule: impl FnMut([usize; 4]) -> bool) -> Self {
        let [batch, heads, queries, keys] = shape;
        let mut bits = Vec::new();
        for b in 0..batch {
            for h in 0..heads {
                for q in 0..queries {
                    bits.extend((0..keys).map(|k| rule([b, h, q, k])));
                }
            }
        }
        Self { shape, bits }
    }

    /// The extents.
    #[must_use]
    pub const fn shape(&self) -> [usize; 4] {
        self.shape
    }

    /// The truth values, row-major.
    #[must_use]
    pub fn bits(&self) -> &[bool] {
        &self.bits
    }

    /// The truth value at a place, along broadcast axes that of their only index.
    ///
    /// # Panics
    /// When the place lies outside of an axis that is not broadcast.
    #[must_use]
    pub fn at(&self, place: [usize; 4]) -> bool {
        let [batch, head, query, key] = broadcast_place(self.shape, place);
        let [_, heads, queries, keys] = self.shape;
        assert!(head < heads && query < queries && key < keys, "{place:?} in {:?}", self.shape);
        self.bits[((batch * heads + head) * queries + query) * keys + key]
    }
}

/// The place in a tensor of this shape, whose axes of extent 1 are broadcast, that stands for `place`.
#[must_use]
pub fn broadcast_place(shape: [usize; 4], place: [usize; 4]) -> [usize; 4] {
    std::array::from_fn(|axis| if shape[axis] == 1 { 0 } else { place[axis] })
}

/// The product of some extents of a shape.
fn extent(of: &[usize], shape: &[usize; 4]) -> Result<usize, PatternError> {
    of.iter()
        .try_fold(1_usize, |count, &extent| count.checked_mul(extent))
        .ok_or(PatternError::TooLarge(*shape))
}

/// The form on the wire.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Wire {
    shape: [usize; 4],
    rows: Vec<String>,
}

impl From<Pattern> for Wire {
    fn from(Pattern { shape, bits }: Pattern) -> Self {
        let digits = |row: &[bool]| row.iter().map(|&bit| if bit { '1' } else { '0' }).collect();
        let rows = match shape[3] {
            0 => vec![String::new(); shape[..3].iter().product()],
            keys => bits.chunks(keys).map(digits).collect(),
        };
        Self { shape, rows }
    }
}

impl TryFrom<Wire> for Pattern {
    type Error = PatternError;

    fn try_from(Wire { shape, rows }: Wire) -> Result<Self, PatternError> {
        let expected = extent(&shape[..3], &shape)?;
        if rows.len() != expected {
            return Err(PatternError::Rows { found: rows.len(), expected, shape });
        }
        let mut bits = Vec::new();
        for (row, digits) in rows.iter().enumerate() {
            let found = digits.chars().count();
            if found != shape[3] {
                return Err(PatternError::Row { row, found, expected: shape[3] });
            }
            for digit in digits.chars() {
                match digit {
                    '0' => bits.push(false),
                    '1' => bits.push(true),
                    found => return Err(PatternError::Digit { row, found }),
                }
            }
        }
        Self::new(shape, bits)
    }
}
