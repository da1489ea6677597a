//! Layouts that a problem can be given.

use flashproof_spec::layout::{Layout, Paged, Ragged, Strided, Strides, packed_qkv};
use flashproof_spec::problem::Problem;
use rand::seq::SliceRandom;
use serde::{Deserialize, Serialize};

use super::pattern::generator;

/// How the tensors of a problem lie in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LayoutKind {
    /// `[batch, position, head, entry]`.
    Bshd,
    /// `[batch, head, entry, position]`.
    Transposed,
    /// `[head, batch, position, entry]`.
    HeadFirst,
    /// Query, key and value of a position in one row; for as many queries as keys.
    PackedQkv,
    /// A few elements of no tensor after every row, and before the first.
    Gapped,
    /// One key head, and its values, behind all of them: stride 0.
    SharedHeads,
    /// One member's keys and values behind those of all: stride 0.
    SharedBatch,
    /// Members one after another, without gaps.
    Ragged,
    /// Members in reverse order, with as many rows between them as were allocated and are not used.
    RaggedGaps,
    /// Pages of one key, shuffled.
    Paged1,
    /// Pages of three keys, shuffled.
    Paged3,
    /// Pages of sixteen keys, shuffled.
    Paged16,
    /// Pages of four keys, the first of them the same for all members: a common prefix.
    PagedPrefix,
    /// Heads more than `2^32` elements apart.
    Giant,
}

/// Elements of no tensor after every row.
const GAP: usize = 3;
/// Elements of no tensor before the first and after the last row.
const GUARD: usize = 5;
/// Past what 32 bits count, signed or not, in elements as in bytes.
const GIANT: usize = (1 << 32) + 8;
/// Pages that belong to no member.
const SPARE_PAGES: usize = 2;
/// Keys in a page where members share one.
const PREFIX_PAGE: usize = 4;

impl LayoutKind {
    /// Every kind.
    pub const ALL: [Self; 14] = [
        Self::Bshd,
        Self::Transposed,
        Self::HeadFirst,
        Self::PackedQkv,
        Self::Gapped,
        Self::SharedHeads,
        Self::SharedBatch,
        Self::Ragged,
        Self::RaggedGaps,
        Self::Paged1,
        Self::Paged3,
        Self::Paged16,
        Self::PagedPrefix,
        Self::Giant,
    ];

    /// The name, as in a case's name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Bshd => "bshd",
            Self::Transposed => "transposed",
            Self::HeadFirst => "head-first",
            Self::PackedQkv => "packed-qkv",
            Self::Gapped => "gapped",
            Self::SharedHeads => "shared-heads",
            Self::SharedBatch => "shared-batch",
            Self::Ragged => "ragged",
            Self::RaggedGaps => "ragged-gaps",
            Self::Paged1 => "paged1",
            Self::Paged3 => "paged3",
            Self::Paged16 => "paged16",
            Self::PagedPrefix => "paged-prefix",
            Self::Giant => "giant",
        }
    }

    /// What the layout is for and which fault it exposes.
    #[must_use]
    pub const fn purpose(self) -> &'static str {
        match self {
            Self::Bshd | Self::Transposed | Self::HeadFirst => {
                "Axes in another order: a kernel that takes strides for granted reads the wrong elements."
            }
            Self::PackedQkv => "Query, key and value interleaved in one buffer.",
            Self::Gapped => "Rows with gaps: what lies between them is neither read nor written.",
            Self::SharedHeads | Self::SharedBatch => "An axis of stride 0: elements are shared.",
            Self::Ragged => "Members of different lengths one after another.",
            Self::RaggedGaps => {
                "Members of different lengths in another order, with unused rows between them."
            }
            Self::Paged1 | Self::Paged3 | Self::Paged16 => {
                "Keys and values in shuffled pages, the last one part full."
            }
            Self::PagedPrefix => "Members that share the page of a common prefix.",
            Self::Giant => "Offsets past 2^32: one of 32 bits wraps.",
        }
    }

    /// The layout for a problem, whose mask says which positions are in use; `None` where the
    /// problem can not have it.
    #[must_use]
    pub fn of(self, problem: &Problem) -> Option<Layout> {
        Some(match self {
            Self::Bshd => Layout::Strided(Strided::bshd(problem)),
            Self::Transposed => Layout::Strided(Strided::transposed(problem)),
            Self::HeadFirst => Layout::Strided(Strided::dense(problem, [1, 0, 2, 3])),
            Self::PackedQkv => Layout::Strided(packed_qkv(problem)?),
            Self::Gapped => Layout::Strided(each(problem, gapped)),
            Self::SharedHeads => Layout::Strided(shared(problem, HEAD)),
            Self::SharedBatch => Layout::Strided(shared(problem, BATCH)),
            Self::Giant => Layout::Strided(each(problem, giant)),
            Self::Ragged => Layout::Ragged(ragged(problem, Rows::Used)),
            Self::RaggedGaps => Layout::Ragged(ragged(problem, Rows::Allocated)),
            Self::Paged1 => Layout::Paged(paged(problem, 1)),
            Self::Paged3 => Layout::Paged(paged(problem, 3)),
            Self::Paged16 => Layout::Paged(paged(problem, 16)),
            Self::PagedPrefix => Layout::Paged(with_common_prefix(problem)?),
        })
    }

    /// The kind that the problem's layout is of; `None` where it is contiguous or of no kind here.
    #[must_use]
    pub fn recognise(problem: &Problem) -> Option<Self> {
        let is = |kind: &Self| kind.of(problem).as_ref() == Some(&problem.layout);
        Self::ALL.into_iter().find(|kind| !problem.layout.is_contiguous() && is(kind))
    }

    /// Whether elements share their places.
    #[must_use]
    pub const fn shares(self) -> bool {
        matches!(self, Self::SharedHeads | Self::SharedBatch | Self::PagedPrefix)
    }

    /// Whether positions past the lengths have no storage.
    #[must_use]
    pub const fn is_ragged(self) -> bool {
        matches!(self, Self::Ragged | Self::RaggedGaps)
    }
}

/// The axes of `[batch, head, position, entry]`.
const BATCH: usize = 0;
const HEAD: usize = 1;
const POSITION: usize = 2;
const CONTIGUOUS: [usize; 4] = [0, 1, 2, 3];

/// Each tensor with the strides of its shape.
fn each(problem: &Problem, strides: fn([usize; 4]) -> Strides) -> Strided {
    Strided {
        query: strides(problem.query_shape()),
        key: strides(problem.key_shape()),
        value: strides(problem.value_shape()),
        output: strides(problem.output_shape()),
    }
}

fn gapped(shape: [usize; 4]) -> Strides {
    let [batch, heads, positions, entries] = shape;
    let padded = [batch, heads, positions, entries + GAP];
    let dense = Strides::dense(padded, CONTIGUOUS);
    dense.spread(shape, POSITION, dense.strides[POSITION]).guarded(GUARD)
}

fn giant(shape: [usize; 4]) -> Strides {
    let dense = Strides::dense(shape, CONTIGUOUS);
    dense.spread(shape, HEAD, GIANT).spread(shape, BATCH, shape[HEAD] * GIANT)
}

/// Keys and values that share the elements of one axis.
fn shared(problem: &Problem, axis: usize) -> Strided {
    let dense = Strided::dense(problem, CONTIGUOUS);
    Strided {
        key: dense.key.spread(problem.key_shape(), axis, 0),
        value: dense.value.spread(problem.value_shape(), axis, 0),
        ..dense
    }
}

/// Which rows a member of a ragged batch takes.
#[derive(Clone, Copy)]
enum Rows {
    /// Those in use.
    Used,
    /// All that its extents have, the last member first.
    Allocated,
}

fn ragged(problem: &Problem, rows: Rows) -> Ragged {
    let used = |member| problem.used_lengths(member);
    let (query_starts, query_rows) =
        starts(problem.batch, rows, problem.query_len, |member| used(member).queries);
    let (key_starts, key_rows) =
        starts(problem.batch, rows, problem.key_len, |member| used(member).keys);
    Ragged { query_starts, query_rows, key_starts, key_rows }
}

/// The first row of each member, and the rows of all.
fn starts(
    batch: usize,
    rows: Rows,
    allocated: usize,
    used: impl Fn(usize) -> usize,
) -> (Vec<usize>, usize) {
    match rows {
        Rows::Allocated => {
            ((0..batch).rev().map(|before| before * allocated).collect(), batch * allocated)
        }
        Rows::Used => {
            let mut next = 0;
            let starts = (0..batch).map(|member| {
                let start = next;
                next += used(member);
                start
            });
            (starts.collect(), next)
        }
    }
}

/// Pages as many as the keys in use need, and a few that are nobody's, in an order drawn from the
/// extents.
fn paged(problem: &Problem, page_size: usize) -> Paged {
    let needed = |member| problem.used_lengths(member).keys.div_ceil(page_size);
    let counts: Vec<_> = (0..problem.batch).map(needed).collect();
    let pages = counts.iter().sum::<usize>() + SPARE_PAGES;
    let mut order: Vec<_> = (0..pages).collect();
    order.shuffle(&mut generator(&format!("pages {page_size} {counts:?}")));
    let mut order = order.into_iter();
    let block_table = counts.iter().map(|&count| order.by_ref().take(count).collect()).collect();
    Paged { page_size, pages, block_table }
}

/// The first page of all members is that of the first one which has any.
fn with_common_prefix(problem: &Problem) -> Option<Paged> {
    let mut paged = paged(problem, PREFIX_PAGE);
    let prefix = *paged.block_table.iter().find_map(|pages| pages.first())?;
    for page in paged.block_table.iter_mut().filter_map(|pages| pages.first_mut()) {
        *page = prefix;
    }
    Some(paged)
}

#[cfg(test)]
mod tests {
    use flashproof_spec::format::Format;
    use flashproof_spec::mask::{Mask, Rule};

    use super::*;

    fn problem() -> Problem {
        let mut problem = Problem::new(Format::F32, 4, 9, 8);
        (problem.batch, problem.key_heads, problem.value_dim) = (3, 2, 5);
        let rules = vec![Rule::KeyLengths(vec![5, 9, 0]), Rule::QueryLengths(vec![4, 0, 9])];
        problem.mask = Mask { rules };
        problem
    }

    #[test]
    fn every_kind_is_a_valid_layout_and_is_recognised() {
        let problem = problem();
        for kind in LayoutKind::ALL {
            let laid_out = Problem { layout: kind.of(&problem).unwrap(), ..problem.clone() };
            assert_eq!(laid_out.validate(), Ok(()), "{kind:?}");
            assert_eq!(LayoutKind::recognise(&laid_out), Some(kind));
        }
        assert_eq!(LayoutKind::recognise(&problem), None);
    }

    #[test]
    fn pages_are_in_no_order_and_only_prefixes_are_shared() {
        let Some(Layout::Paged(paged)) = LayoutKind::Paged3.of(&problem()) else {
            panic!("no pages")
        };
        let pages = paged.block_table.concat();
        assert!(!pages.is_sorted(), "{pages:?}");
        let distinct: std::collections::HashSet<_> = pages.iter().collect();
        assert_eq!((pages.len(), distinct.len(), paged.pages), (5, 5, 7));
        let Some(Layout::Paged(paged)) = LayoutKind::PagedPrefix.of(&problem()) else {
            panic!("no pages")
        };
        let [first, second, third] = &paged.block_table[..] else { panic!("three members") };
        assert_eq!((first[0], third.len()), (second[0], 0));
        assert!(!second[1..].contains(&first[1]));
    }

    #[test]
    fn packing_takes_as_many_queries_as_keys() {
        let longer = Problem { key_len: 10, mask: Mask::full(), ..problem() };
        assert_eq!(LayoutKind::PackedQkv.of(&longer), None);
    }
}
