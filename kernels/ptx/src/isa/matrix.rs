//! What instructions on matrices take.

use super::operand::{Address, Condition, Destination, Source, Space};

/// `ldmatrix` or `stmatrix`: 8 by 8 matrices of 16-bit elements.
#[derive(Clone, Debug)]
pub(crate) struct MatrixAccess {
    pub(crate) transposed: bool,
    pub(crate) space: Space,
    pub(crate) address: Address,
    pub(crate) destinations: Box<[Destination]>,
    pub(crate) sources: Box<[Source]>,
}

/// Format of the factors of a matrix product.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Factor {
    F16,
    Bf16,
    Tf32,
}

impl Factor {
    /// Elements of a row of a factor that one 32-bit register holds.
    pub(crate) const fn per_register(self) -> usize {
        match self {
            Self::F16 | Self::Bf16 => 2,
            Self::Tf32 => 1,
        }
    }
}

/// `mma.sync` of shape m16n8kK with binary32 sums.
#[derive(Clone, Debug)]
pub(crate) struct Mma {
    pub(crate) factor: Factor,
    pub(crate) k: usize,
    pub(crate) d: [Destination; 4],
    pub(crate) a: Box<[Source]>,
    pub(crate) b: Box<[Source]>,
    pub(crate) c: [Source; 4],
}

/// `wgmma.mma_async` of shape m64nNk16 with binary32 sums.
#[derive(Clone, Debug)]
pub(crate) struct Wgmma {
    pub(crate) factor: Factor,
    pub(crate) n: usize,
    pub(crate) d: Box<[u32]>,
    pub(crate) a: WgmmaA,
    /// Descriptor of the second factor.
    pub(crate) b: Source,
    /// Whether the product is added to `d`.
    pub(crate) accumulate: Condition,
    /// Whether one of the factors is negated, not both.
    pub(crate) negate: bool,
    pub(crate) transpose_a: bool,
    pub(crate) transpose_b: bool,
}

/// Where the first factor of `wgmma` stands.
#[derive(Clone, Copy, Debug)]
pub(crate) enum WgmmaA {
    Registers([Source; 4]),
    /// Descriptor of a matrix in shared memory.
    Shared(Source),
}
