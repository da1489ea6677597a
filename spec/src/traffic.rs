//! Traffic accounting: what attention moves between global memory and the chip (`FlashAttention`,
//! arXiv 2205.14135, theorem 2).
//!
//! Lengths are those of a square problem, `T` queries and as many keys, of heads of `d` entries of `e`
//! bytes; `M` is the shared memory of a block, in bytes. Counts are exact and of bytes that a program
//! asks for: a cache may serve some of them.

use std::cmp::Ordering;

use crate::format::Format;
use crate::layout::Placed;
use crate::memory;
use crate::problem::Problem;

/// Bytes moved between global memory and the chip.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Bytes read from global memory.
    pub read: u128,
    /// Bytes written to it.
    pub written: u128,
}

impl Traffic {
    /// Bytes read and written.
    #[must_use]
    pub const fn total(self) -> u128 {
        self.read + self.written
    }
}

/// What a forward pass moves that keeps tiles of `query_tile` queries on the chip and streams past each
/// of them, once, the keys and values that some query of the tile sees (`FAS:io.traffic.streamed`).
///
/// A tile whose queries see nothing is not read. Output and LSE are written once, the latter in
/// `lse_format`. Tables of lengths or pages are not counted.
///
/// # Panics
/// When `query_tile` is 0, or the problem is not [valid](Problem::validate).
#[must_use]
pub fn streamed(problem: &Problem, lse_format: Format, query_tile: usize) -> Traffic {
    let Problem { batch, query_heads, query_len, key_len, head_dim, value_dim, format, .. } =
        *problem;
    let (mut queries, mut keys) = (0, 0);
    for member in 0..batch {
        let used = problem.mask.used_queries(member, query_len);
        for head in 0..query_heads {
            for first in (0..used).step_by(query_tile) {
                let past = used.min(first.saturating_add(query_tile));
                let mut seen = vec![false; key_len];
                for query in first..past {
                    for key in problem.visible_keys(member, head, query) {
                        seen[key] = true;
                    }
                }
                let seen = seen.into_iter().filter(|seen| *seen).count();
                if seen > 0 {
                    queries += past - first;
                    keys += seen;
                }
            }
        }
    }
    let entries =
        queries as u128 * head_dim as u128 + keys as u128 * (head_dim + value_dim) as u128;
    Traffic { read: entries * format.bytes() as u128, written: results(problem, lse_format) }
}

/// What a forward pass moves at least that keeps whole scores, and then weights, in global memory
/// (`FlashAttention`, algorithm 0): query, key and value read once, scores written and read, weights
/// written and read, output and LSE written.
///
/// # Panics
/// When the problem is not [valid](Problem::validate).
#[must_use]
pub fn dense(problem: &Problem, lse_format: Format, score_format: Format) -> Traffic {
    let Problem { batch, query_heads, query_len, key_len, format, .. } = *problem;
    let heads = (batch * query_heads) as u128;
    let scores = heads * memory::dense_scores(query_len, key_len) * score_format.bytes() as u128;
    let owned = [Placed::Query, Placed::Key, Placed::Value];
    let inputs: u128 = owned.map(|tensor| bytes_of(problem, tensor, format)).iter().sum();
    Traffic { read: inputs + 2 * scores, written: 2 * scores + results(problem, lse_format) }
}

fn results(problem: &Problem, lse_format: Format) -> u128 {
    bytes_of(problem, Placed::Output, problem.output_format())
        + bytes_of(problem, Placed::Lse, lse_format)
}

fn bytes_of(problem: &Problem, tensor: Placed, format: Format) -> u128 {
    problem.owned(tensor).count() as u128 * format.bytes() as u128
}

/// How a count grows beyond a line: its divided second difference over three lengths, which is the
/// coefficient of `T^2` where the count is a polynomial of degree two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Growth {
    numerator: i128,
    /// Positive.
    denominator: i128,
}

impl Growth {
    /// The growth of a count over lengths `[(T, count); 3]`.
    ///
    /// # Panics
    /// When the lengths do not ascend, or counts times lengths exceed 128 bits.
    #[must_use]
    pub fn of(counts: [(u64, u64); 3]) -> Self {
        let [(t0, c0), (t1, c1), (t2, c2)] =
            counts.map(|(length, count)| (i128::from(length), i128::from(count)));
        assert!(t0 < t1 && t1 < t2, "lengths that ascend");
        Self {
            numerator: (c2 - c1) * (t1 - t0) - (c1 - c0) * (t2 - t1),
            denominator: (t2 - t1) * (t1 - t0) * (t2 - t0),
        }
    }

    /// Whether the count is an affine function of the length (`FAS:io.memory.linear`).
    #[must_use]
    pub const fn is_affine(self) -> bool {
        self.numerator == 0
    }

    /// The count that comes with each unit of `T^2`.
    #[must_use]
    pub fn per_square(self) -> f64 {
        self.numerator as f64 / self.denominator as f64
    }

    /// Compares with a whole number.
    ///
    /// # Panics
    /// When the product exceeds 128 bits.
    #[must_use]
    pub fn compare(self, whole: i128) -> Ordering {
        self.numerator.cmp(&(whole * self.denominator))
    }

    const fn times(self, numerator: i128, denominator: i128) -> Self {
        Self { numerator: self.numerator * numerator, denominator: self.denominator * denominator }
    }
}

/// What a block has to keep its tiles in, and how they are filled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tiling {
    /// Bytes of shared memory of a block.
    pub shared: u64,
    /// Entries of a query, key or value.
    pub head_dim: u64,
    /// Bytes of an entry.
    pub element_bytes: u64,
    /// Whether a query sees no later key: half of all pairs, as far as they grow with `T^2`.
    pub causal: bool,
}

impl Tiling {
    /// The `c` of traffic that is `c P d^2 e^2 / M` and what grows less than `T^2`, where a mask admits
    /// `P` pairs of query and key: `T^2`, or `T^2 / 2` under a causal mask.
    ///
    /// # Panics
    /// When `head_dim` or `element_bytes` is 0, or a product exceeds 128 bits.
    #[must_use]
    pub fn constant(self, traffic: Growth) -> Growth {
        let Self { shared, head_dim, element_bytes, causal } = self;
        let tile_row = i128::from(head_dim) * i128::from(element_bytes);
        assert!(tile_row > 0, "rows of at least a byte");
        traffic.times(i128::from(shared) * if causal { 2 } else { 1 }, tile_row * tile_row)
    }
}

/// The least `c` of a forward pass that keeps a tile of queries in the `M` bytes: `2 d e` bytes of keys
/// and values a query tile and key, of tiles of no more than `M / (d e)` queries.
pub const LEAST_CONSTANT: i128 = 2;

/// The `c` of `FlashAttention`'s algorithm 1, whose tiles are a quarter of `M`: for each of `4 T d e / M`
/// tiles of keys it reads queries and outputs and writes outputs, `3 T d e` bytes.
pub const ALGORITHM_1_CONSTANT: i128 = 12;

/// Whether traffic is `c T^2 d^2 e^2 / M` with `c` from [`LEAST_CONSTANT`] to [`ALGORITHM_1_CONSTANT`]
/// (`FAS:io.traffic.shared-memory`); `constant` is [`Tiling::constant`].
#[must_use]
pub fn is_tiled(constant: Growth) -> bool {
    constant.compare(LEAST_CONSTANT) != Ordering::Less
        && constant.compare(ALGORITHM_1_CONSTANT) != Ordering::Greater
}
