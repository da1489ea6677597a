//! Which types registers and instructions have.

/// A fundamental, packed or alternate type of PTX.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scalar {
    Pred,
    B8,
    U8,
    S8,
    B16,
    U16,
    S16,
    B32,
    U32,
    S32,
    B64,
    U64,
    S64,
    F16,
    F16x2,
    Bf16,
    Bf16x2,
    F32,
    F64,
    Tf32,
}

/// Which file of registers holds a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Class {
    /// One bit a lane.
    Predicate,
    /// Up to 32 bits a lane, zero-extended.
    Word,
    /// 64 bits a lane.
    Long,
}

impl Class {
    /// The file of registers that are so wide.
    pub(crate) const fn of_bits(bits: u32) -> Self {
        match bits {
            1 => Self::Predicate,
            64 => Self::Long,
            _ => Self::Word,
        }
    }
}

impl Scalar {
    /// The type that a modifier names.
    pub(crate) fn parse(name: &str) -> Option<Self> {
        Some(match name {
            "pred" => Self::Pred,
            "b8" => Self::B8,
            "u8" => Self::U8,
            "s8" => Self::S8,
            "b16" => Self::B16,
            "u16" => Self::U16,
            "s16" => Self::S16,
            "b32" => Self::B32,
            "u32" => Self::U32,
            "s32" => Self::S32,
            "b64" => Self::B64,
            "u64" => Self::U64,
            "s64" => Self::S64,
            "f16" => Self::F16,
            "f16x2" => Self::F16x2,
            "bf16" => Self::Bf16,
            "bf16x2" => Self::Bf16x2,
            "f32" => Self::F32,
            "f64" => Self::F64,
            "tf32" => Self::Tf32,
            _ => return None,
        })
    }

    /// Bits of a value.
    pub(crate) const fn bits(self) -> u32 {
        match self {
            Self::Pred => 1,
            Self::B8 | Self::U8 | Self::S8 => 8,
            Self::B16 | Self::U16 | Self::S16 | Self::F16 | Self::Bf16 => 16,
            Self::B64 | Self::U64 | Self::S64 | Self::F64 => 64,
            _ => 32,
        }
    }

    /// Bytes of a value in memory.
    pub(crate) const fn bytes(self) -> usize {
        self.bits().div_ceil(8) as usize
    }

    pub(crate) const fn class(self) -> Class {
        Class::of_bits(self.bits())
    }

    pub(crate) const fn is_signed(self) -> bool {
        matches!(self, Self::S8 | Self::S16 | Self::S32 | Self::S64)
    }

    /// The integer type of arithmetic, if it is one.
    pub(crate) const fn integer(self) -> Option<Int> {
        Some(match self {
            Self::U16 => Int::U16,
            Self::S16 => Int::S16,
            Self::U32 => Int::U32,
            Self::S32 => Int::S32,
            Self::U64 => Int::U64,
            Self::S64 => Int::S64,
            _ => return None,
        })
    }

    /// The unsigned integer type that carries an untyped value through bit operations.
    pub(crate) const fn untyped(self) -> Option<Int> {
        Some(match self {
            Self::B16 => Int::U16,
            Self::B32 => Int::U32,
            Self::B64 => Int::U64,
            _ => return None,
        })
    }
}

/// An integer type of arithmetic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Int {
    U16,
    S16,
    U32,
    S32,
    U64,
    S64,
}

impl Int {
    /// The type of a product in full, where PTX has one.
    pub(crate) const fn wide(self) -> Option<Scalar> {
        Some(match self {
            Self::U16 => Scalar::U32,
            Self::S16 => Scalar::S32,
            Self::U32 => Scalar::U64,
            Self::S32 => Scalar::S64,
            Self::U64 | Self::S64 => return None,
        })
    }
}

/// A 16-bit floating-point format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Half {
    F16,
    Bf16,
}

/// How a floating-point result is rounded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rounding {
    /// To nearest, ties to even: `.rn`, `.rni`.
    Nearest,
    /// To nearest, ties away from zero: `.rna`.
    NearestAway,
    /// Toward zero: `.rz`, `.rzi`.
    Zero,
    /// Toward minus infinity: `.rm`, `.rmi`.
    Down,
    /// Toward plus infinity: `.rp`, `.rpi`.
    Up,
}
