//! Which operations there are.

use super::matrix::{MatrixAccess, Mma, Wgmma};
use super::operand::{Address, Condition, Destination, Source, Space};
use super::types::{Class, Half, Int, Rounding, Scalar};

/// What an instruction does.
#[derive(Clone, Debug)]
pub(crate) enum Operation {
    /// Integer and bit arithmetic. Sources past an operator's own are immediate zeros.
    Integer {
        op: IntegerOp,
        ty: Int,
        d: Destination,
        s: [Source; 4],
    },
    /// Arithmetic in binary32.
    Single {
        op: FloatOp,
        mode: FloatMode,
        d: Destination,
        s: [Source; 3],
    },
    /// Arithmetic in binary64, rounded to nearest.
    Double {
        op: FloatOp,
        d: Destination,
        s: [Source; 3],
    },
    /// Arithmetic in a 16-bit format, in one or two halves of a register.
    Halves {
        op: FloatOp,
        format: Half,
        packed: bool,
        mode: FloatMode,
        d: Destination,
        s: [Source; 3],
    },
    Setp(Box<Setp>),
    /// `d = condition ? a : b`.
    Select {
        class: Class,
        d: Destination,
        a: Source,
        b: Source,
        condition: Condition,
    },
    Predicate {
        op: LogicOp,
        d: Destination,
        a: Condition,
        b: Condition,
    },
    Convert(Box<Convert>),
    Move {
        class: Class,
        d: Destination,
        a: Source,
    },
    /// Joins parts of `bits` bits, lowest first.
    Pack {
        class: Class,
        d: Destination,
        parts: Box<[Source]>,
        bits: u32,
    },
    /// Takes a value apart into parts of `bits` bits, lowest first.
    Unpack {
        class: Class,
        a: Source,
        parts: Box<[Destination]>,
        bits: u32,
    },
    /// An address of `from` as one of `to`.
    ConvertAddress {
        from: Space,
        to: Space,
        class: Class,
        d: Destination,
        a: Source,
    },
    /// Whether a generic address lies in a space.
    IsSpace {
        space: Space,
        d: Destination,
        a: Source,
    },
    Load(Box<Access>),
    Store(Box<Access>),
    Atomic(Box<Atomic>),
    CopyAsync(Box<CopyAsync>),
    /// Closes a group of asynchronous copies of the thread.
    CommitCopies,
    /// Waits until at most so many of the thread's groups are unfinished; `None` waits for every
    /// copy, committed or not.
    WaitCopies(Option<u32>),
    /// The copies made so far arrive at a barrier object once done.
    ArriveAfterCopies {
        barrier: Address,
        space: Space,
        increments: bool,
    },
    LoadMatrix(Box<MatrixAccess>),
    StoreMatrix(Box<MatrixAccess>),
    Mma(Box<Mma>),
    Wgmma(Box<Wgmma>),
    WgmmaFence,
    CommitWgmma,
    WaitWgmma(u32),
    Shuffle {
        mode: ShuffleMode,
        d: Destination,
        p: Destination,
        a: Source,
        lane: Source,
        clamp: Source,
        members: Source,
    },
    Vote {
        mode: VoteMode,
        d: Destination,
        a: Condition,
        members: Source,
    },
    Match {
        all: bool,
        class: Class,
        d: Destination,
        p: Destination,
        a: Source,
        members: Source,
    },
    Reduce {
        op: AtomicOp,
        ty: Int,
        d: Destination,
        a: Source,
        members: Source,
    },
    Elect {
        d: Destination,
        p: Destination,
        members: Source,
    },
    ActiveMask {
        d: Destination,
    },
    Barrier(Box<Barrier>),
    WarpSync {
        members: Source,
    },
    MemoryBarrier(MemoryBarrierOp, Box<MemoryBarrierOperands>),
    /// Makes what the thread knows to be written visible to asynchronous readers of shared memory.
    ProxyFence,
    /// Orders memory between threads; has no effect of its own where memory is coherent.
    Fence,
    Branch {
        target: u32,
        uniform: bool,
    },
    Exit,
    Trap,
    /// A hint without effect on results.
    Hint,
}

/// An operator of integers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum IntegerOp {
    Add,
    AddSaturating,
    Sub,
    SubSaturating,
    MulLow,
    MulHigh,
    MulWide,
    MadLow,
    MadHigh,
    MadWide,
    Div,
    Rem,
    Sad,
    Neg,
    Abs,
    Min,
    Max,
    And,
    Or,
    Xor,
    Not,
    ShiftLeft,
    ShiftRight,
    CountOnes,
    CountLeadingZeros,
    ReverseBits,
    FindMostSignificant,
    FindMostSignificantShift,
    ExtractField,
    InsertField,
    /// Any function of three bits, by its table.
    Logic3(u8),
    /// Four bytes of eight, by selectors.
    PermuteBytes,
    FunnelLeft {
        wrap: bool,
    },
    FunnelRight {
        wrap: bool,
    },
}

/// An operator of floating-point numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FloatOp {
    Add,
    Sub,
    Mul,
    Fma,
    Div,
    DivApprox,
    DivFull,
    Rcp,
    RcpApprox,
    Sqrt,
    SqrtApprox,
    RsqrtApprox,
    Ex2Approx,
    Lg2Approx,
    SinApprox,
    CosApprox,
    TanhApprox,
    Neg,
    Abs,
    /// The lesser; `nan` gives NaN where an operand is one, else the other operand.
    Min {
        nan: bool,
        xorsign: bool,
    },
    Max {
        nan: bool,
        xorsign: bool,
    },
    CopySign,
}

/// Modifiers of floating-point arithmetic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FloatMode {
    pub(crate) rounding: Rounding,
    /// Subnormal operands and results become zeros of their sign.
    pub(crate) flush: bool,
    /// The result is clamped to `[0, 1]`, NaN to 0.
    pub(crate) saturate: bool,
    /// A negative result becomes 0.
    pub(crate) relu: bool,
}

impl FloatMode {
    pub(crate) const NEAREST: Self =
        Self { rounding: Rounding::Nearest, flush: false, saturate: false, relu: false };
}

/// How two numbers compare.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Comparison {
    Equal,
    NotEqual,
    Less,
    LessEqual,
    Greater,
    GreaterEqual,
    /// Holds where an operand is NaN, or the ordered comparison holds.
    EqualOrNan,
    NotEqualOrNan,
    LessOrNan,
    LessEqualOrNan,
    GreaterOrNan,
    GreaterEqualOrNan,
    BothNumbers,
    AnyNan,
}

/// `p = (a ? b) op c`, `q = !(a ? b) op c`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Setp {
    pub(crate) comparison: Comparison,
    pub(crate) ty: Scalar,
    pub(crate) flush: bool,
    pub(crate) p: Destination,
    pub(crate) q: Destination,
    pub(crate) a: Source,
    pub(crate) b: Source,
    pub(crate) combine: Option<(LogicOp, Condition)>,
}

/// An operator of predicates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LogicOp {
    /// The first operand.
    First,
    Not,
    And,
    Or,
    Xor,
}

/// A conversion between types.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Convert {
    pub(crate) to: Scalar,
    pub(crate) from: Scalar,
    pub(crate) rounding: Rounding,
    /// Rounds to an integer in the format itself.
    pub(crate) integral: bool,
    pub(crate) mode: FloatMode,
    /// Width of the register written, which may be wider than the type.
    pub(crate) register_bits: u32,
    pub(crate) d: Destination,
    /// The second is the lower half of a packed result.
    pub(crate) s: [Source; 2],
}

/// A load or a store of one to four elements side by side.
#[derive(Clone, Debug)]
pub(crate) struct Access {
    pub(crate) space: Space,
    pub(crate) ty: Scalar,
    /// Width of the registers, which may be wider than the type.
    pub(crate) register_bits: u32,
    pub(crate) address: Address,
    /// Registers that a load writes.
    pub(crate) destinations: Box<[Destination]>,
    /// Values that a store writes.
    pub(crate) sources: Box<[Source]>,
}

/// An operator of atomic instructions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AtomicOp {
    Add,
    Min,
    Max,
    And,
    Or,
    Xor,
    Exchange,
    CompareAndSwap,
    Increment,
    Decrement,
}

/// `atom` or `red`.
#[derive(Clone, Debug)]
pub(crate) struct Atomic {
    pub(crate) op: AtomicOp,
    pub(crate) ty: Scalar,
    pub(crate) space: Space,
    pub(crate) address: Address,
    /// Empty for `red`.
    pub(crate) destinations: Box<[Destination]>,
    pub(crate) values: Box<[Source]>,
    pub(crate) compare: Source,
}

/// `cp.async` from global to shared memory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CopyAsync {
    pub(crate) to: Address,
    pub(crate) from: Address,
    pub(crate) bytes: u32,
    /// Bytes read from global memory; the rest is zero.
    pub(crate) source_bytes: Source,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ShuffleMode {
    Up,
    Down,
    Butterfly,
    Index,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum VoteMode {
    All,
    Any,
    Uniform,
    Ballot,
}

/// `bar` and `barrier` of a block.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Barrier {
    pub(crate) kind: BarrierKind,
    /// All threads of a warp execute it together.
    pub(crate) aligned: bool,
    pub(crate) number: Source,
    /// Threads that take part; all of the block where `None`.
    pub(crate) threads: Option<Source>,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum BarrierKind {
    Sync,
    Arrive,
    Reduce { op: BarrierReduction, d: Destination, a: Condition },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BarrierReduction {
    Count,
    All,
    Any,
}

/// An operation on a barrier object in shared memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MemoryBarrierOp {
    Initialise,
    Invalidate,
    Arrive,
    ArriveExpect,
    Expect,
    Complete,
    Test,
    TestParity,
    Try,
    TryParity,
}

/// What an operation on a barrier object takes; the rest is an immediate zero.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MemoryBarrierOperands {
    pub(crate) space: Space,
    pub(crate) address: Address,
    pub(crate) d: Destination,
    /// A count, a number of bytes, a state or a parity.
    pub(crate) value: Source,
}
