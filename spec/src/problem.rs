//! What is computed: shapes, number format, softmax scale, mask and score modifications.

use serde::{Deserialize, Serialize};

use crate::format::Format;
use crate::layout::{Layout, LayoutError};
use crate::mask::{Mask, Rule, Site};
use crate::pattern::Pattern;
use crate::quantization::{Descale, Quantization};
use crate::score::{Alibi, Bias, Dropout, Sink, Slopes, Softcap};

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
    /// Number format of query, key and value, and of the output where they are not quantized.
    pub format: Format,
    /// What the entries of inputs of 8 bits are multiplied by, and the format of the output.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quantization: Option<Quantization>,
    /// The factor between a dot product and its score.
    #[serde(default)]
    pub scale: Scale,
    /// Which keys a query sees.
    #[serde(default)]
    pub mask: Mask,
    /// A soft bound on scores.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub softcap: Option<Softcap>,
    /// An additive bias: `bias` of the inputs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bias: Option<Bias>,
    /// Linear biases by distance.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub alibi: Option<Alibi>,
    /// A logit without key and value: `sink` of the inputs, or 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sink: Option<Sink>,
    /// Dropout of weights, with the keep mask given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dropout: Option<Dropout>,
    /// Where the elements of the tensors stand in memory.
    #[serde(default, skip_serializing_if = "Layout::is_contiguous")]
    pub layout: Layout,
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
    #[error("{what}: {found} given for a batch of {batch}, expected one each")]
    LengthCount { what: &'static str, found: usize, batch: usize },
    #[error("{what} of batch member {member} is {length}: expected at most {field} = {limit}")]
    LengthRange {
        what: &'static str,
        member: usize,
        length: usize,
        field: &'static str,
        limit: usize,
    },
    #[error("{field} of the mask is 0: expected at least 1")]
    Block { field: &'static str },
    #[error("{what} has shape {found:?}: expected {expected:?}, or 1 on any axis")]
    Broadcast { what: &'static str, found: [usize; 4], expected: [usize; 4] },
    #[error("{what} of batch member {member} are {found}: expected {field} = {expected}")]
    Documents {
        what: &'static str,
        member: usize,
        found: usize,
        field: &'static str,
        expected: usize,
    },
    #[error("the softcap is {0}: expected a positive, finite number")]
    Softcap(f64),
    #[error("{found} ALiBi slopes for {heads} query heads: expected one each")]
    SlopeCount { found: usize, heads: usize },
    #[error("the ALiBi slope of query head {head} is {slope}: expected a finite f32 number")]
    Slope { head: usize, slope: f64 },
    #[error(
        "the dropout scale is {0}: expected a positive f32 number, and a power of two where the format is f64"
    )]
    DropoutScale(f64),
    #[error("quantized inputs of format {0}: expected e4m3 or e5m2")]
    QuantizedFormat(Format),
    #[error("quantized inputs give outputs of format {0}: expected f32, f16 or bf16")]
    QuantizedOutput(Format),
    #[error("the {tensor} has a descale for every 0 positions: expected at least 1")]
    DescaleBlock { tensor: &'static str },
    #[error("a tensor of {0} elements is too large to address")]
    TooLarge(String),
    #[error(transparent)]
    Layout(#[from] LayoutError),
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
            quantization: None,
            scale: Scale::default(),
            mask: Mask::full(),
            softcap: None,
            bias: None,
            alibi: None,
            sink: None,
            dropout: None,
            layout: Layout::Contiguous,
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
        self.mask.rules.iter().try_for_each(|rule| self.validate_rule(rule))?;
        self.validate_scores()?;
        self.validate_quantization()?;
        [self.query_shape(), self.key_shape(), self.value_shape(), self.output_shape()]
            .iter()
            .try_for_each(addressable)?;
        Ok(self.validate_layout()?)
    }

    fn validate_rule(&self, rule: &Rule) -> Result<(), ProblemError> {
        let keys = ("key_len", self.key_len);
        let positive = |field, size| match size {
            0 => Err(ProblemError::Block { field }),
            _ => Ok(()),
        };
        match rule {
            Rule::CausalTopLeft | Rule::CausalBottomRight | Rule::Window(_) => Ok(()),
            Rule::KeyLengths(lengths) => self.validate_lengths("key length", lengths, keys),
            Rule::KeyStarts(starts) => self.validate_lengths("key start", starts, keys),
            Rule::Prefix(prefix) => self.validate_lengths("prefix", &prefix.lengths, keys),
            Rule::QueryLengths(lengths) => {
                self.validate_lengths("query length", lengths, ("query_len", self.query_len))
            }
            Rule::Chunked(chunked) => positive("chunk size", chunked.size),
            Rule::Dilated(dilated) => positive("dilation step", dilated.step),
            Rule::Documents(documents) => {
                let queries = ("query_len", self.query_len);
                self.validate_documents("documents of queries", &documents.query, queries)?;
                self.validate_documents("documents of keys", &documents.key, keys)
            }
            Rule::Boolean(pattern) => self.validate_pattern("the boolean mask", pattern),
            Rule::BlockSparse(blocks) => {
                positive("query_block", blocks.query_block)?;
                positive("key_block", blocks.key_block)?;
                let [batch, heads, queries, keys] = self.score_shape();
                let blocks_of = [
                    batch,
                    heads,
                    queries.div_ceil(blocks.query_block),
                    keys.div_ceil(blocks.key_block),
                ];
                broadcasts("the pattern of blocks", blocks.pattern.shape(), blocks_of)
            }
        }
    }

    fn validate_lengths(
        &self,
        what: &'static str,
        lengths: &[usize],
        (field, limit): (&'static str, usize),
    ) -> Result<(), ProblemError> {
        if lengths.len() != self.batch {
            let (found, batch) = (lengths.len(), self.batch);
            return Err(ProblemError::LengthCount { what, found, batch });
        }
        match lengths.iter().enumerate().find(|(_, length)| **length > limit) {
            None => Ok(()),
            Some((member, &length)) => {
                Err(ProblemError::LengthRange { what, member, length, field, limit })
            }
        }
    }

    fn validate_documents(
        &self,
        what: &'static str,
        documents: &[Vec<u32>],
        (field, expected): (&'static str, usize),
    ) -> Result<(), ProblemError> {
        if documents.len() != self.batch {
            let (found, batch) = (documents.len(), self.batch);
            return Err(ProblemError::LengthCount { what, found, batch });
        }
        match documents.iter().map(Vec::len).enumerate().find(|&(_, found)| found != expected) {
            None => Ok(()),
            Some((member, found)) => {
                Err(ProblemError::Documents { what, member, found, field, expected })
            }
        }
    }

    fn validate_pattern(&self, what: &'static str, pattern: &Pattern) -> Result<(), ProblemError> {
        broadcasts(what, pattern.shape(), self.score_shape())
    }

    fn validate_quantization(&self) -> Result<(), ProblemError> {
        let Some(Quantization { query, key, value, output }) = self.quantization else {
            return Ok(());
        };
        if !matches!(self.format, Format::E4m3 | Format::E5m2) {
            return Err(ProblemError::QuantizedFormat(self.format));
        }
        if !matches!(output, Format::F32 | Format::F16 | Format::Bf16) {
            return Err(ProblemError::QuantizedOutput(output));
        }
        let descales = [("query", query), ("key", key), ("value", value)];
        match descales.into_iter().find(|(_, descale)| *descale == Descale::Block(0)) {
            None => Ok(()),
            Some((tensor, _)) => Err(ProblemError::DescaleBlock { tensor }),
        }
    }

    fn validate_scores(&self) -> Result<(), ProblemError> {
        if let Some(Softcap { cap, .. }) = self.softcap
            && !(cap.is_finite() && cap > 0.0)
        {
            return Err(ProblemError::Softcap(cap));
        }
        if let Some(Bias { shape, .. }) = self.bias {
            broadcasts("the bias", shape, self.score_shape())?;
        }
        if let Some(Alibi { slopes: Slopes::Given(slopes), .. }) = &self.alibi {
            self.validate_slopes(slopes)?;
        }
        match &self.dropout {
            None => Ok(()),
            Some(dropout) => self.validate_dropout(dropout),
        }
    }

    fn validate_slopes(&self, slopes: &[f64]) -> Result<(), ProblemError> {
        if slopes.len() != self.query_heads {
            let (found, heads) = (slopes.len(), self.query_heads);
            return Err(ProblemError::SlopeCount { found, heads });
        }
        let fits = |slope: f64| slope.is_finite() && Format::F32.represents(slope);
        match slopes.iter().enumerate().find(|(_, slope)| !fits(**slope)) {
            None => Ok(()),
            Some((head, &slope)) => Err(ProblemError::Slope { head, slope }),
        }
    }

    /// The scale is such that its product with a value is a number of `f64`.
    fn validate_dropout(&self, dropout: &Dropout) -> Result<(), ProblemError> {
        let Dropout { scale, keep } = dropout;
        let representable = scale.is_finite() && *scale > 0.0 && Format::F32.represents(*scale);
        let is_power_of_two = scale.to_bits().trailing_zeros() >= f64::MANTISSA_DIGITS - 1;
        if !representable || (self.format == Format::F64 && !is_power_of_two) {
            return Err(ProblemError::DropoutScale(*scale));
        }
        self.validate_pattern("the keep mask", keep)
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

    /// Shape of the score matrix, and of what is broadcast to it.
    #[must_use]
    pub const fn score_shape(&self) -> [usize; 4] {
        [self.batch, self.query_heads, self.query_len, self.key_len]
    }

    /// Shape of the sink tensor.
    #[must_use]
    pub const fn sink_shape(&self) -> [usize; 1] {
        [self.query_heads]
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

/// Refuses a shape that is not `expected` with any axes of extent 1.
fn broadcasts(
    what: &'static str,
    found: [usize; 4],
    expected: [usize; 4],
) -> Result<(), ProblemError> {
    if found.iter().zip(&expected).all(|(&found, &expected)| found == expected || found == 1) {
        Ok(())
    } else {
        Err(ProblemError::Broadcast { what, found, expected })
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
