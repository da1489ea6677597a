//! The masks that the suite's arrays combine with other conditions.

use flashproof_spec::mask::{Alignment, BlockSparse, Chunked, Dilated, Mask, Prefix, Rule, Window};
use flashproof_spec::problem::Problem;

use crate::inputs::pattern;

/// A mask for any problem.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MaskKind {
    Full,
    TopLeft,
    BottomRight,
    Lengths,
    LengthsTopLeft,
    LengthsBottomRight,
    /// A causal window, as most models have it.
    WindowCausal,
    WindowBoth,
    WindowLeftTopLeft,
    WindowRight,
    WindowOwnPosition,
    WindowWholeTopLeft,
    LengthsWindow,
    LeftPadding,
    LeftPaddingBottomRight,
    PaddingBothSides,
    QueryLengths,
    QueryLengthsBottomRight,
    Prefix,
    PrefixTopLeft,
    ChunkedTopLeft,
    ChunkedBottomRight,
    Dilated,
    DilatedWindowTopLeft,
    Documents,
    DocumentsTopLeft,
    DocumentsSingle,
    /// A boolean mask that depends on these axes of `[batch, head, query, key]`.
    Boolean([bool; 4]),
    BooleanDeadRow,
    BooleanTopLeft,
    BlockSparse,
    BlockSparseByHeadBottomRight,
}

/// Boolean masks of every kind of broadcast that frameworks pass.
const EACH: [bool; 4] = [true; 4];
const SHARED_BATCH: [bool; 4] = [false, true, true, true];
const SHARED_BATCH_AND_HEADS: [bool; 4] = [false, false, true, true];
const SHARED_HEADS_AND_QUERIES: [bool; 4] = [true, false, false, true];

/// Truth values of a boolean mask that hold: as many as do not, so that to ignore the mask, or to
/// negate it, is as wrong as can be.
const SEEN: f64 = 0.5;
/// Blocks of a block-sparse mask that are seen.
const BLOCKS_SEEN: f64 = 0.6;

impl MaskKind {
    /// Those without rules for blocks of positions, documents and patterns.
    pub(super) const PLAIN: [Self; 6] = [
        Self::BottomRight,
        Self::Full,
        Self::TopLeft,
        Self::Lengths,
        Self::LengthsTopLeft,
        Self::LengthsBottomRight,
    ];

    /// One of every kind and combination.
    pub(super) const EVERY: [Self; 32] = [
        Self::WindowCausal,
        Self::BottomRight,
        Self::Full,
        Self::LengthsBottomRight,
        Self::WindowBoth,
        Self::WindowLeftTopLeft,
        Self::WindowRight,
        Self::WindowOwnPosition,
        Self::WindowWholeTopLeft,
        Self::LengthsWindow,
        Self::LeftPadding,
        Self::LeftPaddingBottomRight,
        Self::PaddingBothSides,
        Self::QueryLengths,
        Self::QueryLengthsBottomRight,
        Self::Prefix,
        Self::PrefixTopLeft,
        Self::ChunkedTopLeft,
        Self::ChunkedBottomRight,
        Self::Dilated,
        Self::DilatedWindowTopLeft,
        Self::Documents,
        Self::DocumentsTopLeft,
        Self::DocumentsSingle,
        Self::Boolean(EACH),
        Self::Boolean(SHARED_BATCH),
        Self::Boolean(SHARED_BATCH_AND_HEADS),
        Self::Boolean(SHARED_HEADS_AND_QUERIES),
        Self::BooleanDeadRow,
        Self::BooleanTopLeft,
        Self::BlockSparse,
        Self::BlockSparseByHeadBottomRight,
    ];

    /// Those that say which positions are in use, and a few besides.
    pub(super) const OF_LENGTHS: [Self; 7] = [
        Self::QueryLengthsBottomRight,
        Self::LengthsBottomRight,
        Self::Lengths,
        Self::QueryLengths,
        Self::BottomRight,
        Self::WindowCausal,
        Self::Boolean(SHARED_BATCH_AND_HEADS),
    ];

    /// The mask for a problem of these extents.
    pub(super) fn mask(self, problem: &Problem) -> Mask {
        let &Problem { batch, query_len, key_len, .. } = problem;
        let lengths = || Rule::KeyLengths(lengths(batch, key_len));
        // Two members out of step: the one with all its keys is not the one with all its queries.
        let queries = || Rule::QueryLengths(self::lengths(batch + 1, query_len)[1..].to_vec());
        let starts = || Rule::KeyStarts(starts(batch, key_len));
        let prefix = |alignment| {
            let lengths = self::starts(batch, key_len);
            Rule::Prefix(Prefix { lengths, alignment })
        };
        let rules = match self {
            Self::Full => vec![],
            Self::TopLeft => vec![Rule::CausalTopLeft],
            Self::BottomRight => vec![Rule::CausalBottomRight],
            Self::Lengths => vec![lengths()],
            Self::LengthsTopLeft => vec![lengths(), Rule::CausalTopLeft],
            Self::LengthsBottomRight => vec![lengths(), Rule::CausalBottomRight],
            Self::WindowCausal => vec![window(Some(4), Some(0), Alignment::BottomRight)],
            Self::WindowBoth => vec![window(Some(3), Some(2), Alignment::BottomRight)],
            Self::WindowLeftTopLeft => vec![window(Some(2), None, Alignment::TopLeft)],
            Self::WindowRight => vec![window(None, Some(1), Alignment::BottomRight)],
            Self::WindowOwnPosition => vec![window(Some(0), Some(0), Alignment::BottomRight)],
            Self::WindowWholeTopLeft => vec![window(Some(1000), Some(1000), Alignment::TopLeft)],
            Self::LengthsWindow => {
                vec![lengths(), window(Some(5), Some(0), Alignment::BottomRight)]
            }
            Self::LeftPadding => vec![starts()],
            Self::LeftPaddingBottomRight => vec![starts(), Rule::CausalBottomRight],
            Self::PaddingBothSides => vec![starts(), lengths()],
            Self::QueryLengths => vec![queries(), lengths()],
            Self::QueryLengthsBottomRight => {
                vec![queries(), lengths(), Rule::CausalBottomRight]
            }
            Self::Prefix => vec![prefix(Alignment::BottomRight)],
            Self::PrefixTopLeft => vec![prefix(Alignment::TopLeft)],
            Self::ChunkedTopLeft => vec![chunked(5, Alignment::TopLeft)],
            Self::ChunkedBottomRight => {
                vec![chunked(8, Alignment::BottomRight), Rule::CausalBottomRight]
            }
            Self::Dilated => vec![dilated(2, Alignment::BottomRight)],
            Self::DilatedWindowTopLeft => {
                vec![dilated(3, Alignment::TopLeft), window(Some(9), Some(9), Alignment::TopLeft)]
            }
            Self::Documents => vec![documents(problem)],
            Self::DocumentsTopLeft => vec![documents(problem), Rule::CausalTopLeft],
            Self::DocumentsSingle => {
                let single = pattern::single_documents(batch, query_len, key_len);
                vec![Rule::Documents(single)]
            }
            Self::Boolean(axes) => vec![boolean(problem, axes)],
            Self::BooleanDeadRow => {
                let shape = shape(problem, SHARED_BATCH);
                let mask = pattern::balanced("dead row", shape, SEEN);
                vec![Rule::Boolean(pattern::with_last_row_empty(&mask))]
            }
            Self::BooleanTopLeft => vec![boolean(problem, EACH), Rule::CausalTopLeft],
            Self::BlockSparse => vec![block_sparse(problem, [4, 8], 1)],
            Self::BlockSparseByHeadBottomRight => {
                vec![block_sparse(problem, [3, 5], problem.query_heads), Rule::CausalBottomRight]
            }
        };
        Mask { rules }
    }
}

const fn window(left: Option<usize>, right: Option<usize>, alignment: Alignment) -> Rule {
    Rule::Window(Window { left, right, alignment })
}

const fn chunked(size: usize, alignment: Alignment) -> Rule {
    Rule::Chunked(Chunked { size, alignment })
}

const fn dilated(step: usize, alignment: Alignment) -> Rule {
    Rule::Dilated(Dilated { step, alignment })
}

fn documents(&Problem { batch, query_len, key_len, .. }: &Problem) -> Rule {
    Rule::Documents(pattern::documents(batch, query_len, key_len))
}

fn boolean(problem: &Problem, axes: [bool; 4]) -> Rule {
    Rule::Boolean(pattern::balanced("boolean", shape(problem, axes), SEEN))
}

/// The shape of scores with the axes that do not count reduced to one.
pub(super) fn shape(problem: &Problem, axes: [bool; 4]) -> [usize; 4] {
    let extents = problem.score_shape();
    std::array::from_fn(|axis| if axes[axis] { extents[axis] } else { 1 })
}

fn block_sparse(problem: &Problem, [query_block, key_block]: [usize; 2], heads: usize) -> Rule {
    let blocks =
        [1, heads, problem.query_len.div_ceil(query_block), problem.key_len.div_ceil(key_block)];
    let pattern = pattern::balanced("blocks", blocks, BLOCKS_SEEN);
    Rule::BlockSparse(BlockSparse { query_block, key_block, pattern })
}

/// Two thirds of the keys, then all of them, then none.
fn lengths(batch: usize, len: usize) -> Vec<usize> {
    (0..batch).map(|member| [len - len / 3, len, 0][member % 3]).collect()
}

/// A quarter of the keys, then none of them, then all.
fn starts(batch: usize, len: usize) -> Vec<usize> {
    (0..batch).map(|member| [len.div_ceil(4), 0, len][member % 3]).collect()
}
