//! What a kernel did wrong, where, and in which thread.

use std::fmt;

use crate::isa::operand::Space;

/// A fault of the kernel that was run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// What is wrong.
    pub kind: FaultKind,
    /// The instruction that did it, and the thread; of a race, the later of the two.
    pub site: Site,
}

/// An instruction as some thread executed it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Site {
    /// Line of the PTX text, from 1.
    pub line: usize,
    /// The statement.
    pub text: String,
    /// Coordinates of the block.
    pub block: [u32; 3],
    /// Coordinates of the thread in the block; where the whole warp did it, or several of its lanes,
    /// the first of the warp.
    pub thread: [u32; 3],
    /// Whether the thread stands for its warp.
    pub whole_warp: bool,
}

/// What an access does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)] // the variants say it
pub enum Access {
    Read,
    Write,
    Atomic,
}

/// Where in which buffer an address lies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// The buffer whose region of addresses it is.
    pub buffer: String,
    /// Bytes from the start of the buffer.
    pub offset: u64,
    /// Bytes of the buffer.
    pub length: usize,
}

/// A thread that waits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Waiting {
    /// Where it waits.
    pub site: Site,
    /// What for.
    pub reason: String,
}

/// What is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum FaultKind {
    /// An access outside the memory it was meant for.
    OutOfBounds {
        /// The memory.
        space: Space,
        /// The first byte.
        address: u64,
        /// How many bytes.
        bytes: usize,
        /// Of global memory, the buffer that the address was counted from.
        place: Option<Place>,
    },
    /// An access at an address that is not a multiple of its size.
    Misaligned {
        /// The memory.
        space: Space,
        /// The address.
        address: u64,
        /// What it must be a multiple of.
        bytes: usize,
        /// Of global memory, the buffer.
        place: Option<Place>,
    },
    /// A read of bytes that nothing has written.
    Uninitialised {
        /// The memory.
        space: Space,
        /// The first such byte, or the granule of shared memory it lies in.
        address: u64,
        /// Of global memory, the buffer.
        place: Option<Place>,
    },
    /// Two accesses to shared memory by different threads that no barrier orders.
    SharedRace {
        /// Where.
        address: u64,
        /// What the later access does.
        access: Access,
        /// What the earlier one did.
        earlier_access: Access,
        /// Who made the earlier one.
        earlier: Site,
    },
    /// Two accesses to global memory by different blocks, which nothing orders.
    GlobalRace {
        /// Where.
        address: u64,
        /// In which buffer.
        place: Option<Place>,
        /// What this access does.
        access: Access,
        /// What the other did.
        other_access: Access,
        /// Line of the other access.
        other_line: usize,
        /// The statement of the other access.
        other_text: String,
        /// The other block; `None` where several have read.
        other_block: Option<[u32; 3]>,
    },
    /// An access to bytes that an asynchronous copy has not been waited for.
    UnfinishedCopy {
        /// Where.
        address: u64,
        /// What the access does.
        access: Access,
        /// The copy.
        copy: Site,
    },
    /// A write to shared memory that an unfinished matrix product still reads.
    OperandOverwritten {
        /// Where.
        address: u64,
        /// The matrix product.
        product: Site,
    },
    /// An asynchronous matrix product that reads what no proxy fence has made visible.
    MissingProxyFence {
        /// Where.
        address: u64,
        /// The write.
        write: Site,
    },
    /// A matrix product that uses registers written since the last `wgmma.fence`, or without any.
    MissingProductFence,
    /// A register that an unfinished matrix product reads or writes.
    RegisterInUse {
        /// Line of the matrix product.
        product_line: usize,
        /// Its statement.
        product_text: String,
        /// Whether this instruction writes the register.
        writes: bool,
    },
    /// An instruction for a whole warp, or for named lanes, that some of them do not execute together.
    Divergent {
        /// Lanes that execute it, one bit each.
        executing: u32,
        /// Lanes that should.
        expected: u32,
    },
    /// A lane that takes part in an exchange whose mask leaves it out, or that the mask disagrees on.
    NotMember {
        /// The mask.
        members: u32,
    },
    /// A shuffle that takes the value of a lane that does not take part.
    ShuffleFromInactive {
        /// The lane.
        source: u32,
    },
    /// A barrier that threads wait at which will never be complete, since threads have ended.
    IncompleteBarrier {
        /// Number of the barrier.
        barrier: u32,
        /// Threads that have arrived.
        arrived: u32,
        /// Threads that it waits for.
        expected: u32,
        /// Threads of the block that have ended.
        ended: u32,
    },
    /// All threads that have not ended wait.
    Deadlock {
        /// Some of them, at most one a warp.
        waiting: Vec<Waiting>,
    },
    /// A barrier with a number past 15, or a number of threads that does not fit.
    BarrierOperand {
        /// Number of the barrier.
        barrier: u32,
        /// Threads that are to take part.
        threads: u32,
    },
    /// A barrier object used as none, or told of more arrivals than it awaits.
    BarrierObject {
        /// Where.
        address: u64,
        /// What is wrong.
        problem: &'static str,
    },
    /// A matrix descriptor that the emulator does not know.
    Descriptor {
        /// The descriptor.
        descriptor: u64,
        /// What is wrong.
        problem: &'static str,
    },
    /// An operation whose result the PTX ISA leaves open, as a division by zero.
    Unspecified(&'static str),
    /// A branch said to be uniform where lanes part.
    DivergentUniformBranch,
    /// `trap`.
    Trap,
    /// More instructions than the options allow.
    InstructionLimit(u64),
}

impl fmt::Display for Site {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ([bx, by, bz], [x, y, z]) = (self.block, self.thread);
        let who = if self.whole_warp { "warp of thread" } else { "thread" };
        write!(
            f,
            "line {} `{}`, block ({bx}, {by}, {bz}), {who} ({x}, {y}, {z})",
            self.line, self.text
        )
    }
}

impl fmt::Display for Access {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::Atomic => "atomic",
        })
    }
}

/// What follows an address: the buffer it is counted from.
struct In<'a>(&'a Option<Place>);

impl fmt::Display for In<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            None => Ok(()),
            Some(Place { buffer, offset, length }) => {
                write!(f, ", byte {offset} from the start of '{buffer}' ({length} bytes)")
            }
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}; {}", self.kind, self.site)
    }
}

impl fmt::Display for FaultKind {
    #[allow(clippy::too_many_lines)] // one sentence a fault
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OutOfBounds { space, address, bytes, place } => {
                write!(
                    f,
                    "access of {bytes} bytes out of bounds of {space} memory at {address:#x}{}",
                    In(place)
                )
            }
            Self::Misaligned { space, address, bytes, place } => {
                write!(
                    f,
                    "misaligned access to {space} memory at {address:#x}, not a multiple of {bytes}{}",
                    In(place)
                )
            }
            Self::Uninitialised { space, address, place } => {
                write!(f, "read of uninitialised {space} memory at {address:#x}{}", In(place))
            }
            Self::SharedRace { address, access, earlier_access, earlier } => write!(
                f,
                "race in shared memory at {address:#x}: {access} after {earlier_access} at {earlier}, with nothing to order them"
            ),
            Self::GlobalRace {
                address,
                place,
                access,
                other_access,
                other_line,
                other_text,
                other_block,
            } => {
                write!(
                    f,
                    "race between blocks at {address:#x}{}: {access} and {other_access} at line {other_line} `{other_text}` by ",
                    In(place)
                )?;
                match other_block {
                    Some([x, y, z]) => write!(f, "block ({x}, {y}, {z})"),
                    None => f.write_str("several blocks"),
                }
            }
            Self::UnfinishedCopy { address, access, copy } => {
                write!(
                    f,
                    "{access} of shared memory at {address:#x} before the wait for the asynchronous copy at {copy}"
                )
            }
            Self::OperandOverwritten { address, product } => {
                write!(
                    f,
                    "write to shared memory at {address:#x} before the wait for the matrix product that reads it at {product}"
                )
            }
            Self::MissingProxyFence { address, write } => {
                write!(
                    f,
                    "asynchronous read of shared memory at {address:#x} with no proxy fence after the write at {write}"
                )
            }
            Self::MissingProductFence => {
                f.write_str("matrix product of registers written since the last wgmma.fence")
            }
            Self::RegisterInUse { product_line, product_text, writes } => write!(
                f,
                "{} of a register of the unfinished matrix product at line {product_line} `{product_text}`",
                if *writes { "write" } else { "read" }
            ),
            Self::Divergent { executing, expected } => {
                write!(
                    f,
                    "lanes {executing:#010x} execute together what lanes {expected:#010x} must"
                )
            }
            Self::NotMember { members } => {
                write!(f, "lane not in its own mask, or masks that differ: {members:#010x}")
            }
            Self::ShuffleFromInactive { source } => {
                write!(f, "shuffle from lane {source}, which does not take part")
            }
            Self::IncompleteBarrier { barrier, arrived, expected, ended } => write!(
                f,
                "barrier {barrier} waits for {expected} threads, {arrived} have arrived, and {ended} of the block have ended"
            ),
            Self::Deadlock { waiting } => {
                f.write_str("deadlock: ")?;
                for (at, Waiting { site, reason }) in waiting.iter().enumerate() {
                    let comma = if at > 0 { "; " } else { "" };
                    write!(f, "{comma}{site} waits for {reason}")?;
                }
                Ok(())
            }
            Self::BarrierOperand { barrier, threads } => {
                write!(
                    f,
                    "barrier {barrier} for {threads} threads: there are barriers 0 to 15, for multiples of 32 threads of the block"
                )
            }
            Self::BarrierObject { address, problem } => {
                write!(f, "barrier object at {address:#x}: {problem}")
            }
            Self::Descriptor { descriptor, problem } => {
                write!(f, "matrix descriptor {descriptor:#018x}: {problem}")
            }
            Self::Unspecified(what) => write!(f, "unspecified result: {what}"),
            Self::DivergentUniformBranch => {
                f.write_str("lanes part at a branch said to be uniform")
            }
            Self::Trap => f.write_str("trap"),
            Self::InstructionLimit(limit) => {
                write!(f, "more than {limit} instructions of one warp")
            }
        }
    }
}

impl std::error::Error for Fault {}
