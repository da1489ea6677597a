//! What is asked of a query and a key where the visible keys are no run.

use std::ops::Range;

use flashproof_spec::mask::{BlockSparse, Documents};
use flashproof_spec::pattern::Pattern;

use crate::cpu::broadcast::HeadPattern;
use crate::cpu::position::signed;

/// One rule, for one head.
pub(super) enum SiteTest<'a> {
    /// Key and own position are as far past a multiple of `step` as each other.
    Dilated { step: isize, shift: isize },
    /// The documents of queries and of keys.
    Documents { query: &'a [u32], key: &'a [u32] },
    /// A truth value for each site.
    Boolean(HeadPattern<'a>),
    /// A truth value for each block.
    BlockSparse { query_block: usize, key_block: usize, pattern: HeadPattern<'a> },
}

impl<'a> SiteTest<'a> {
    /// Every `step`th key, counted from the own position, `shift` past the query's index.
    pub(super) fn dilated(step: usize, shift: isize) -> Self {
        Self::Dilated { step: signed(step), shift }
    }

    /// The documents of batch member `batch`.
    pub(super) fn documents(documents: &'a Documents, batch: usize) -> Self {
        Self::Documents { query: &documents.query[batch], key: &documents.key[batch] }
    }

    /// The pattern as batch member `batch` and head `head` have it.
    pub(super) fn boolean(pattern: &'a Pattern, batch: usize, head: usize) -> Self {
        Self::Boolean(HeadPattern::new(pattern, batch, head))
    }

    /// As [`SiteTest::boolean`], of blocks.
    pub(super) fn block_sparse(blocks: &'a BlockSparse, batch: usize, head: usize) -> Self {
        let &BlockSparse { query_block, key_block, ref pattern } = blocks;
        let pattern = HeadPattern::new(pattern, batch, head);
        Self::BlockSparse { query_block, key_block, pattern }
    }

    /// Whether the rule lets a query see a key.
    ///
    /// Clauses: `FAS:mask.dilated.step`, `FAS:mask.document.same`, `FAS:mask.boolean.broadcast`,
    /// `FAS:mask.block-sparse.pattern`.
    pub(super) fn admits(&self, query: usize, key: usize) -> bool {
        match self {
            Self::Dilated { step, shift } => {
                (signed(query) + shift).rem_euclid(*step) == signed(key).rem_euclid(*step)
            }
            Self::Documents { query: queries, key: keys } => queries[query] == keys[key],
            Self::Boolean(pattern) => pattern.at(query, key),
            Self::BlockSparse { query_block, key_block, pattern } => {
                pattern.at(query / query_block, key / key_block)
            }
        }
    }

    /// Whether the rule lets any of these queries see any of these keys, as far as that can be told
    /// without asking for each. There is at least one of both.
    pub(super) fn reaches(&self, queries: &Range<usize>, keys: &Range<usize>) -> bool {
        match self {
            Self::Dilated { .. } | Self::Documents { .. } | Self::Boolean(_) => true,
            Self::BlockSparse { query_block, key_block, pattern } => {
                let rows = blocks_of(queries, *query_block);
                rows.into_iter().any(|row| {
                    blocks_of(keys, *key_block).into_iter().any(|column| pattern.at(row, column))
                })
            }
        }
    }
}

/// The blocks that hold some of `positions`, of which there is at least one.
fn blocks_of(positions: &Range<usize>, size: usize) -> Range<usize> {
    positions.start / size..(positions.end - 1) / size + 1
}
