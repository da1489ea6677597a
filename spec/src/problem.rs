//! What is computed: shapes, number format, softmax scale and mask.

use serde::{Deserialize, Serialize};

use crate::format::Format;
use crate::mask::{Mask, Rule, Site};

/// An attention problem.
///
/// Tensors are `[batch, head, position, dimension]`: query `[batch, query_heads, query_len,
/// head_dim]`, key `[batch, key_heads, key_len, head_dim]`, value `[batch, key_heads, key_len,
/// value_dim]`, output `[batch, query_heads, query_len, value_dim]`, LSE `[batch, query_heads,
/// query_len]`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Problem {
    /// Batch members.
    pub batch: usize,
    /// Query heads.
    pub query_heads: usize,
    /// Key and value heads; divides `query_heads` (`FAS:head.group.block`).
    pub key_heads: usize,
    /// Queries in a batch member.
    pub query_len: usize,
    /// Keys in a batch member, padding included.
    pub key_len: usize,
    /// Entries of a query and of a key.
    pub head_dim: usize,
    /// Entries of a value and of an output.
    pub value_dim: usize,
    /// Number format of query, key, value and output.
    pub format: Format,
    /// The factor between a dot product and its score.
    #[serde(default)]
    pub scale: Scale,
    /// Which keys a query sees.
    #[serde(default)]
    pub mask: Mask,
}

/// The softmax scale: `score = scale * <query, key>` (`FAS:fwd.score.scale`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Scale {
    /// Exactly `1/sqrt(head_dim)`, irrational unless `head_dim` is a square.
    #[default]
    InverseSqrtHeadDim,
    /// Exactly this number.
    Value(f64),
}

/// A problem that no kernel could be asked to solve.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[allow(missing_docs)] // each variant's message is its documentation
pub enum ProblemError {
    #[error("{field} is 0: expected at least 1")]
    Zero { field: &'static str },
    #[error("query_heads is {query_heads}, not a multiple of key_heads = {key_heads}")]
    Heads { query_heads: usize, key_heads: usize },
    #[error("the softmax scale is {0}: expected a finite number")]
    Scale(f64),
    #[error("the mask gives {found} key lengths for a batch of {batch}: expected one each")]
    LengthCount { found: usize, batch: usize },
    #[error("key length {length} of batch member {member} exceeds key_len = {key_len}")]
    LengthRange { member: usize, length: usize, key_len: usize },
    #[error("a tensor of {0} elements is too large to address")]
    TooLarge(String),
}

impl Problem {
    /// Multi-head self-attention with value entries as many as head entries, full mask and the
    /// usual scale.
    #[must_use]
    pub fn new(format: Format, heads: usize, len: usize, head_dim: usize) -> Self {
        Self {
            batch: 1,
            query_heads: heads,
            key_heads: heads,
            query_len: len,
            key_len: len,
            head_dim,
            value_dim: head_dim,
            format,
            scale: Scale::default(),
            mask: Mask::full(),
        }
    }

    /// Checks that the problem can be posed.
    ///
    /// # Errors
    /// Names the first field that makes it impossible. No queries and no keys are possible; no
    /// heads or entries are not.
    pub fn validate(&self) -> Result<(), ProblemError> {
        for (field, extent) in [
            ("batch", self.batch),
            ("query_heads", self.query_heads),
            ("key_heads", self.key_heads),
            ("head_dim", self.head_dim),
            ("value_dim", self.value_dim),
        ] {
            if extent == 0 {
                return Err(ProblemError::Zero { field });
            }
        }
        if !self.query_heads.is_multiple_of(self.key_heads) {
            let (query_heads, key_heads) = (self.query_heads, self.key_heads);
            return Err(ProblemError::Heads { query_heads, key_heads });
        }
        if let Scale::Value(scale) = self.scale
            && !scale.is_finite()
        {
            return Err(ProblemError::Scale(scale));
        }
        for rule in &self.mask.rules {
            if let Rule::KeyLengths(lengths) = rule {
                self.validate_lengths(lengths)?;
            }
        }
        [self.query_shape(), self.key_shape(), self.value_shape(), self.output_shape()]
            .iter()
            .try_for_each(addressable)
    }

    fn validate_lengths(&self, lengths: &[usize]) -> Result<(), ProblemError> {
        if lengths.len() != self.batch {
            return Err(ProblemError::LengthCount { found: lengths.len(), batch: self.batch });
        }
        match lengths.iter().enumerate().find(|(_, length)| **length > self.key_len) {
            None => Ok(()),
            Some((member, &length)) => {
                Err(ProblemError::LengthRange { member, length, key_len: self.key_len })
            }
        }
    }

    /// Shape of the query tensor.
    #[must_use]
    pub const fn query_shape(&self) -> [usize; 4] {
        [self.batch, self.query_heads, self.query_len, self.head_dim]
    }

    /// Shape of the key tensor.
    #[must_use]
    pub const fn key_shape(&self) -> [usize; 4] {
        [self.batch, self.key_heads, self.key_len, self.head_dim]
    }

    /// Shape of the value tensor.
    #[must_use]
    pub const fn value_shape(&self) -> [usize; 4] {
        [self.batch, self.key_heads, self.key_len, self.value_dim]
    }

    /// Shape of the output tensor.
    #[must_use]
    pub const fn output_shape(&self) -> [usize; 4] {
        [self.batch, self.query_heads, self.query_len, self.value_dim]
    }

    /// Shape of the LSE tensor.
    #[must_use]
    pub const fn lse_shape(&self) -> [usize; 3] {
        [self.batch, self.query_heads, self.query_len]
    }

    /// The key head that a query head reads: consecutive query heads share one
    /// (`FAS:head.group.block`).
    #[must_use]
    pub const fn key_head_of(&self, query_head: usize) -> usize {
        query_head / (self.query_heads / self.key_heads)
    }

    /// Whether the query of `site` sees its key.
    #[must_use]
    pub fn sees(&self, site: Site) -> bool {
        self.mask.admits(site, self.query_len, self.key_len)
    }

    /// The keys that one query row sees, ascending.
    #[must_use]
    pub fn visible_keys(&self, batch: usize, head: usize, query: usize) -> Vec<usize> {
        (0..self.key_len).filter(|&key| self.sees(Site { batch, head, query, key })).collect()
    }

    /// The softmax scale in `f64`: exact where it is given as a number, else within two roundings.
    #[must_use]
    pub fn scale_f64(&self) -> f64 {
        match self.scale {
            Scale::InverseSqrtHeadDim => 1.0 / (self.head_dim as f64).sqrt(),
            Scale::Value(scale) => scale,
        }
    }
}

/// Refuses a shape whose elements, at 8 bytes each, could not be indexed by `isize`.
fn addressable(shape: &[usize; 4]) -> Result<(), ProblemError> {
    shape
        .iter()
        .try_fold(8_usize, |bytes, &extent| bytes.checked_mul(extent.max(1)))
        .filter(|&bytes| isize::try_from(bytes).is_ok())
        .map(|_| ())
        .ok_or_else(|| ProblemError::TooLarge(shape.map(|extent| extent.to_string()).join(" x ")))
}
