//! What an instruction reads and writes.

/// A value that an instruction reads; its class is that of the instruction's type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    /// A register: its place in the file of its class.
    Register(u32),
    /// The same bits in every lane.
    Immediate(u64),
    /// A special register of 32 bits.
    Special(Special),
}

/// A register that an instruction writes, by its place in the file of the type's class; `None` where
/// the text has `_`.
pub(crate) type Destination = Option<u32>;

/// A predicate that an instruction reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Condition {
    /// A predicate register, or its negation.
    Register { slot: u32, negated: bool },
    /// The same in every lane.
    Constant(bool),
}

/// Where in memory an instruction reads or writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Address {
    pub(crate) base: Base,
    pub(crate) offset: i64,
}

/// What an address is counted from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Base {
    Word(u32),
    Long(u32),
    /// The start of the state space, or of generic addresses.
    Zero,
}

/// A memory that an address lies in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Space {
    /// Memory of the device, shared by all blocks.
    Global,
    /// Memory of a block.
    Shared,
    /// Memory of a thread.
    Local,
    /// The entry's parameters.
    Param,
    /// Constants of the module.
    Const,
    /// An address whose window says which of the others it is.
    Generic,
}

impl std::fmt::Display for Space {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(match self {
            Self::Global => "global",
            Self::Shared => "shared",
            Self::Local => "local",
            Self::Param => "param",
            Self::Const => "const",
            Self::Generic => "generic",
        })
    }
}

/// A special register of 32 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Special {
    Thread(Axis),
    Threads(Axis),
    Block(Axis),
    Blocks(Axis),
    Lane,
    Warp,
    Warps,
    LaneMask(LaneMask),
    /// A block is a cluster of its own: its rank and every coordinate are zero.
    Zero,
    /// Blocks of a cluster.
    One,
    DynamicShared,
    TotalShared,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Axis {
    X,
    Y,
    Z,
}

/// Lanes with a number in this relation to the lane's own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LaneMask {
    Equal,
    Less,
    LessEqual,
    Greater,
    GreaterEqual,
}

impl Special {
    /// The register of this name; `axis` is what follows the dot.
    pub(crate) fn parse(name: &str, axis: Option<&str>) -> Option<Self> {
        let coordinate = match axis {
            Some("x") => Some(Axis::X),
            Some("y") => Some(Axis::Y),
            Some("z") => Some(Axis::Z),
            _ => None,
        };
        if axis.is_some() {
            let axis = coordinate?;
            return Some(match name {
                "%tid" => Self::Thread(axis),
                "%ntid" => Self::Threads(axis),
                "%ctaid" | "%clusterid" => Self::Block(axis),
                "%nctaid" | "%nclusterid" => Self::Blocks(axis),
                "%cluster_ctaid" => Self::Zero,
                "%cluster_nctaid" => Self::One,
                _ => return None,
            });
        }
        Some(match name {
            "%laneid" => Self::Lane,
            "%warpid" => Self::Warp,
            "%nwarpid" => Self::Warps,
            "%lanemask_eq" => Self::LaneMask(LaneMask::Equal),
            "%lanemask_lt" => Self::LaneMask(LaneMask::Less),
            "%lanemask_le" => Self::LaneMask(LaneMask::LessEqual),
            "%lanemask_gt" => Self::LaneMask(LaneMask::Greater),
            "%lanemask_ge" => Self::LaneMask(LaneMask::GreaterEqual),
            "%cluster_ctarank" => Self::Zero,
            "%cluster_nctarank" => Self::One,
            "%dynamic_smem_size" => Self::DynamicShared,
            "%total_smem_size" => Self::TotalShared,
            _ => return None,
        })
    }
}
