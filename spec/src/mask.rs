//! Which keys a query sees: the only definition of visibility outside kernels.
//!
//! A mask is the intersection of rules; a key is visible when every rule admits it. The empty
//! mask is full attention.

use serde::{Deserialize, Serialize};

use crate::pattern::Pattern;

/// Where a score stands: the query row and the key it meets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Site {
    /// Batch member, from 0.
    pub batch: usize,
    /// Query head, from 0.
    pub head: usize,
    /// Query position, from 0.
    pub query: usize,
    /// Key position, from 0.
    pub key: usize,
}

impl Site {
    /// `[batch, head, query, key]`.
    #[must_use]
    pub const fn place(self) -> [usize; 4] {
        [self.batch, self.head, self.query, self.key]
    }
}

/// The key that stands at a query's own position.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Alignment {
    /// Key `query`: the first query stands at the first key.
    TopLeft,
    /// Key `query + (used key length - used query length)`: the last query stands at the last key.
    #[default]
    BottomRight,
}

/// One restriction on visibility.
///
/// `position` is the query's own position, by the rule's [`Alignment`]; it can be negative, or past
/// the last key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Rule {
    /// `key <= query` (`FAS:mask.causal.top-left`).
    CausalTopLeft,
    /// `key <= query + (used key length - used query length)`: the last query sees the last key
    /// (`FAS:mask.causal.bottom-right`).
    CausalBottomRight,
    /// `key < lengths[batch]`; keys at or past it are padding (`FAS:mask.length.padding`).
    KeyLengths(Vec<usize>),
    /// `key >= starts[batch]`; keys before it are padding on the left (`FAS:mask.length.left-padding`).
    KeyStarts(Vec<usize>),
    /// `query < lengths[batch]`; queries at or past it are padding and see no key
    /// (`FAS:mask.length.queries`).
    QueryLengths(Vec<usize>),
    /// `position - left <= key <= position + right`, both bounds inclusive and each where given
    /// (`FAS:mask.window.inclusive`).
    Window(Window),
    /// `key <= position`, or `key < lengths[batch]` (`FAS:mask.prefix.bidirectional`).
    Prefix(Prefix),
    /// `key` and `position` lie in the same chunk of `size` positions (`FAS:mask.chunk.local`).
    Chunked(Chunked),
    /// `position - key` is a multiple of `step` (`FAS:mask.dilated.step`).
    Dilated(Dilated),
    /// The query's and the key's document are the same (`FAS:mask.document.same`).
    Documents(Documents),
    /// The pattern holds at batch member, head, query and key (`FAS:mask.boolean.broadcast`).
    Boolean(Pattern),
    /// The pattern holds at the block of the query and the block of the key
    /// (`FAS:mask.block-sparse.pattern`).
    BlockSparse(BlockSparse),
}

/// A sliding window around the query's own position.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Window {
    /// Keys seen before the own position; `None`: all.
    pub left: Option<usize>,
    /// Keys seen after the own position; `None`: all.
    pub right: Option<usize>,
    /// Where the own position is.
    #[serde(default)]
    pub alignment: Alignment,
}

/// A prefix that every query sees, and causal attention after it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Prefix {
    /// The prefix of each batch member.
    pub lengths: Vec<usize>,
    /// Where the own position is.
    #[serde(default)]
    pub alignment: Alignment,
}

/// Chunks of positions, the first from position 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Chunked {
    /// Positions in a chunk.
    pub size: usize,
    /// Where the own position is.
    #[serde(default)]
    pub alignment: Alignment,
}

/// Every so many keys, counted from the own position.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Dilated {
    /// Distance of consecutive visible keys.
    pub step: usize,
    /// Where the own position is.
    #[serde(default)]
    pub alignment: Alignment,
}

/// The document of each position; the same number is the same document.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Documents {
    /// `[batch][query]`.
    pub query: Vec<Vec<u32>>,
    /// `[batch][key]`.
    pub key: Vec<Vec<u32>>,
}

/// A pattern of blocks of queries by keys, the last ones shorter where a block does not divide the
/// length.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BlockSparse {
    /// Queries in a block.
    pub query_block: usize,
    /// Keys in a block.
    pub key_block: usize,
    /// `[batch, head, query block, key block]`; an axis of extent 1 is broadcast.
    pub pattern: Pattern,
}

/// An intersection of [`Rule`]s.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Mask {
    /// The rules, in any order.
    pub rules: Vec<Rule>,
}

impl Mask {
    /// Every query sees every key (`FAS:mask.full`).
    #[must_use]
    pub const fn full() -> Self {
        Self { rules: Vec::new() }
    }

    /// A mask of one rule.
    #[must_use]
    pub fn only(rule: Rule) -> Self {
        Self { rules: vec![rule] }
    }

    /// The keys of `batch` that are in use: all `key_len`, or fewer where a length rule says so.
    #[must_use]
    pub fn used_keys(&self, batch: usize, key_len: usize) -> usize {
        let lengths = self.rules.iter().filter_map(|rule| match rule {
            Rule::KeyLengths(lengths) => lengths.get(batch).copied(),
            _ => None,
        });
        lengths.fold(key_len, usize::min)
    }

    /// The queries of `batch` that are in use: all `query_len`, or fewer where a length rule says so.
    #[must_use]
    pub fn used_queries(&self, batch: usize, query_len: usize) -> usize {
        let lengths = self.rules.iter().filter_map(|rule| match rule {
            Rule::QueryLengths(lengths) => lengths.get(batch).copied(),
            _ => None,
        });
        lengths.fold(query_len, usize::min)
    }

    /// Whether the query of `site` sees its key, among `query_len` queries and `key_len` keys.
    #[must_use]
    pub fn admits(&self, site: Site, query_len: usize, key_len: usize) -> bool {
        let lengths = Lengths {
            queries: self.used_queries(site.batch, query_len),
            keys: self.used_keys(site.batch, key_len),
        };
        self.rules.iter().all(|rule| rule.admits(site, lengths))
    }
}

/// Queries and keys of one batch member that are in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lengths {
    /// Queries in use.
    pub queries: usize,
    /// Keys in use.
    pub keys: usize,
}

impl Alignment {
    /// The query's own position among the keys.
    #[must_use]
    pub const fn position(self, query: usize, lengths: Lengths) -> i128 {
        match self {
            Self::TopLeft => query as i128,
            Self::BottomRight => query as i128 + lengths.keys as i128 - lengths.queries as i128,
        }
    }
}

impl Rule {
    fn admits(&self, site: Site, lengths: Lengths) -> bool {
        let Site { batch, head, query, key } = site;
        let at = |alignment: Alignment| alignment.position(query, lengths);
        let own = key as i128;
        match self {
            Self::CausalTopLeft => own <= at(Alignment::TopLeft),
            Self::CausalBottomRight => own <= at(Alignment::BottomRight),
            Self::KeyLengths(_) => key < lengths.keys,
            Self::KeyStarts(starts) => key >= starts[batch],
            Self::QueryLengths(_) => query < lengths.queries,
            Self::Window(Window { left, right, alignment }) => {
                let before = at(*alignment) - own;
                left.is_none_or(|left| before <= left as i128)
                    && right.is_none_or(|right| -before <= right as i128)
            }
            Self::Prefix(Prefix { lengths, alignment }) => {
                own <= at(*alignment) || key < lengths[batch]
            }
            Self::Chunked(Chunked { size, alignment }) => {
                let chunk = |position: i128| position.div_euclid(*size as i128);
                chunk(at(*alignment)) == chunk(own)
            }
            Self::Dilated(Dilated { step, alignment }) => {
                (at(*alignment) - own).rem_euclid(*step as i128) == 0
            }
            Self::Documents(Documents { query: queries, key: keys }) => {
                queries[batch][query] == keys[batch][key]
            }
            Self::Boolean(pattern) => pattern.at(site.place()),
            Self::BlockSparse(BlockSparse { query_block, key_block, pattern }) => {
                pattern.at([batch, head, query / query_block, key / key_block])
            }
        }
    }
}
