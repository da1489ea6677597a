//! Which keys a query sees: the only definition of visibility outside kernels.
//!
//! A mask is the intersection of rules; a key is visible when every rule admits it. The empty
//! mask is full attention.

use serde::{Deserialize, Serialize};

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

/// One restriction on visibility.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Rule {
    /// `key <= query` (`FAS:mask.causal.top-left`).
    CausalTopLeft,
    /// `key <= query + (used key length - query length)`: the last query sees the last key
    /// (`FAS:mask.causal.bottom-right`).
    CausalBottomRight,
    /// `key < lengths[batch]`; keys at or past it are padding (`FAS:mask.length.padding`).
    KeyLengths(Vec<usize>),
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
        self.rules
            .iter()
            .filter_map(|rule| match rule {
                Rule::KeyLengths(lengths) => lengths.get(batch).copied(),
                Rule::CausalTopLeft | Rule::CausalBottomRight => None,
            })
            .fold(key_len, usize::min)
    }

    /// Whether the query of `site` sees its key, among `query_len` queries and `key_len` keys.
    #[must_use]
    pub fn admits(&self, site: Site, query_len: usize, key_len: usize) -> bool {
        let used = self.used_keys(site.batch, key_len);
        self.rules.iter().all(|rule| match rule {
            Rule::CausalTopLeft => site.key <= site.query,
            // key <= query + used - query_len, without leaving the natural numbers
            Rule::CausalBottomRight => site.key + query_len <= site.query + used,
            Rule::KeyLengths(_) => site.key < used,
        })
    }
}
