//! How a kernel is launched, and what is looked for while it runs.

use crate::fault::Fault;
use crate::memory::Pointer;
use crate::numerics::Policy;

/// A launch of an entry.
#[derive(Clone, Debug, PartialEq)]
pub struct Launch {
    /// Blocks along x, y and z.
    pub grid: [u32; 3],
    /// Threads of a block along x, y and z; at most 1024 together.
    pub block: [u32; 3],
    /// Bytes of dynamic shared memory of a block.
    pub dynamic_shared: usize,
    /// One argument a parameter.
    pub arguments: Vec<Argument>,
}

/// The value of a parameter.
#[derive(Clone, Debug, PartialEq)]
#[allow(missing_docs)] // the variants are types
pub enum Argument {
    Pointer(Pointer),
    U32(u32),
    I32(i32),
    U64(u64),
    I64(i64),
    F32(f32),
    F64(f64),
    /// A parameter of any other type, as it stands in memory.
    Bytes(Vec<u8>),
}

impl Argument {
    pub(crate) fn bytes(&self) -> Vec<u8> {
        match self {
            Self::Pointer(pointer) => pointer.address().to_le_bytes().to_vec(),
            Self::U32(value) => value.to_le_bytes().to_vec(),
            Self::I32(value) => value.to_le_bytes().to_vec(),
            Self::U64(value) => value.to_le_bytes().to_vec(),
            Self::I64(value) => value.to_le_bytes().to_vec(),
            Self::F32(value) => value.to_le_bytes().to_vec(),
            Self::F64(value) => value.to_le_bytes().to_vec(),
            Self::Bytes(bytes) => bytes.clone(),
        }
    }
}

/// How a launch is run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// Results that the PTX ISA leaves open.
    pub policy: Policy,
    /// Blocks, warps and diverged lanes take turns in an order drawn from this seed; in the order of
    /// their numbers, each until it waits, where there is none.
    ///
    /// A kernel without global atomics, or one whose results do not depend on their order, gives the
    /// same results under every seed, or it races.
    pub seed: Option<u64>,
    /// What is looked for beyond bounds, alignment and barriers, which always are.
    pub checks: Checks,
    /// The most instructions that one warp may execute.
    pub instruction_limit: u64,
}

/// What is looked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Checks {
    /// Races in shared memory.
    pub shared_races: bool,
    /// Races between blocks in global memory; accesses of one block are not compared with each other.
    /// A kernel whose blocks pass data through flags in global memory needs this off.
    pub global_races: bool,
    /// Reads of shared, local and global memory that nothing has written.
    pub uninitialised: bool,
}

impl Default for Checks {
    fn default() -> Self {
        Self { shared_races: true, global_races: true, uninitialised: true }
    }
}

impl Default for Options {
    fn default() -> Self {
        Self {
            policy: Policy::default(),
            seed: None,
            checks: Checks::default(),
            instruction_limit: 1 << 32,
        }
    }
}

/// Why a launch did not run to its end.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum RunError {
    /// The launch does not fit the entry.
    #[error(transparent)]
    Launch(#[from] LaunchError),
    /// The kernel is at fault.
    #[error(transparent)]
    Fault(#[from] Box<Fault>),
}

/// A launch that does not fit the entry.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LaunchError {
    /// No entry of this name.
    #[error("the module has no entry '{0}'")]
    NoEntry(String),
    /// More or fewer arguments than parameters.
    #[error("{found} arguments for {expected} parameters")]
    ArgumentCount {
        /// Parameters of the entry.
        expected: usize,
        /// Arguments given.
        found: usize,
    },
    /// An argument of another size than its parameter.
    #[error("argument {position} for '{name}': {found} bytes, expected {expected}")]
    ArgumentSize {
        /// Which argument, from 0.
        position: usize,
        /// The parameter.
        name: String,
        /// Bytes of the parameter.
        expected: usize,
        /// Bytes of the argument.
        found: usize,
    },
    /// No threads, or too many, or others than the entry requires.
    #[error("{found:?} threads a block, expected {expected}")]
    Threads {
        /// Threads asked for.
        found: [u32; 3],
        /// What would do.
        expected: String,
    },
    /// A grid without blocks, or with more than [`MOST_BLOCKS`].
    #[error("a grid of {0:?} blocks")]
    Grid([u32; 3]),
    /// More shared memory than a block can have.
    #[error("{0} bytes of shared memory, at most {MOST_SHARED}")]
    Shared(usize),
}

/// The most shared memory of a block: 227 KiB on `sm_90`, the most of any device.
pub const MOST_SHARED: usize = 227 << 10;
/// The most blocks of a launch: far more than can be emulated in reasonable time.
pub const MOST_BLOCKS: u32 = 1 << 24;
