//! The number formats of attention kernels, and correct rounding into them.
//!
//! A finite value of a format is `k * 2^q` with an integer `|k| < 2^precision` and a quantum
//! exponent `q >= min_quantum`. Rounding is to nearest, ties to even, everywhere
//! (`FAS:num.format.rounding`).

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// A binary floating-point format.
///
/// `e4m3` is the finite-only OCP format (no infinity, maximum 448); `tf32` has the exponent range
/// of `f32` and 11 significant bits. Sources: IEEE 754-2019; OCP 8-bit Floating Point
/// Specification 1.0; PTX ISA, "Alternate floating-point data formats".
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[allow(missing_docs)] // the variants are the formats' own names
pub enum Format {
    F64,
    F32,
    Tf32,
    F16,
    Bf16,
    E4m3,
    E5m2,
}

/// The name given is no number format that this crate knows.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown number format '{0}': expected one of f64, f32, tf32, f16, bf16, e4m3, e5m2")]
pub struct UnknownFormat(pub String);

impl Format {
    /// Every format, widest first.
    pub const ALL: [Self; 7] =
        [Self::F64, Self::F32, Self::Tf32, Self::F16, Self::Bf16, Self::E4m3, Self::E5m2];

    /// The format's name, as in problem files and on the command line.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::F64 => "f64",
            Self::F32 => "f32",
            Self::Tf32 => "tf32",
            Self::F16 => "f16",
            Self::Bf16 => "bf16",
            Self::E4m3 => "e4m3",
            Self::E5m2 => "e5m2",
        }
    }

    /// Significant bits, the hidden one included.
    #[must_use]
    pub const fn precision(self) -> u32 {
        match self {
            Self::F64 => 53,
            Self::F32 => 24,
            Self::Tf32 | Self::F16 => 11,
            Self::Bf16 => 8,
            Self::E4m3 => 4,
            Self::E5m2 => 3,
        }
    }

    /// Bytes that one value takes in memory; a `tf32` is stored as an `f32`.
    #[must_use]
    pub const fn bytes(self) -> usize {
        match self {
            Self::F64 => 8,
            Self::F32 | Self::Tf32 => 4,
            Self::F16 | Self::Bf16 => 2,
            Self::E4m3 | Self::E5m2 => 1,
        }
    }

    /// Exponent of the smallest positive normal number.
    #[must_use]
    pub const fn min_exponent(self) -> i32 {
        match self {
            Self::F64 => -1022,
            Self::F32 | Self::Tf32 | Self::Bf16 => -126,
            Self::F16 | Self::E5m2 => -14,
            Self::E4m3 => -6,
        }
    }

    /// Exponent of the smallest positive number: every finite value is a multiple of
    /// `2^min_quantum`.
    #[must_use]
    pub const fn min_quantum(self) -> i32 {
        self.min_exponent() - (self.precision() as i32 - 1)
    }

    /// The largest finite value.
    #[must_use]
    pub fn max_finite(self) -> f64 {
        match self {
            Self::F64 => f64::MAX,
            Self::F32 => f64::from(f32::MAX),
            Self::Tf32 => (2.0 - exp2i(-10)) * exp2i(127),
            Self::F16 => 65504.0,
            Self::Bf16 => (2.0 - exp2i(-7)) * exp2i(127),
            Self::E4m3 => 448.0,
            Self::E5m2 => 57344.0,
        }
    }

    /// Unit roundoff `u = 2^-precision`: rounding a value in the normal range changes it by a
    /// relative error of at most `u`.
    #[must_use]
    pub fn unit_roundoff(self) -> f64 {
        exp2i(-(self.precision() as i32))
    }

    /// The smallest positive (subnormal) value.
    #[must_use]
    pub fn smallest_subnormal(self) -> f64 {
        exp2i(self.min_quantum())
    }

    /// The smallest positive normal value.
    #[must_use]
    pub fn smallest_normal(self) -> f64 {
        exp2i(self.min_exponent())
    }

    /// Whether the format has infinities (`e4m3` has none).
    #[must_use]
    pub const fn has_infinity(self) -> bool {
        !matches!(self, Self::E4m3)
    }

    /// The format's value nearest to `x`, ties to even (`FAS:num.format.rounding`).
    ///
    /// Where that would lie past the largest finite value: infinity of the same sign, or NaN where
    /// the format has no infinity. Half a unit past the largest value is past it, except in `e4m3`,
    /// whose largest value 448 is even: 464 becomes 448. Keeps NaN, infinities (NaN for `e4m3`) and
    /// the sign of zero.
    #[must_use]
    pub fn round(self, x: f64) -> f64 {
        if self == Self::F64 || x == 0.0 || x.is_nan() {
            return x;
        }
        let overflow =
            if self.has_infinity() { f64::INFINITY.copysign(x) } else { f64::NAN.copysign(x) };
        if x.is_infinite() {
            return overflow;
        }
        let quantum = (exponent(x) - (self.precision() as i32 - 1)).max(self.min_quantum());
        // `x` is below 2^(precision + quantum), so the quotient is below 2^53 and the scaling
        // exact, or the quotient is below one half and becomes zero either way.
        let rounded = scale(scale(x, -quantum).round_ties_even(), quantum);
        if rounded.abs() > self.max_finite() { overflow } else { rounded.copysign(x) }
    }

    /// The closed interval of the numbers that round to `value`, a finite value of this format. Its ends
    /// lie halfway to the neighbours, and may round to those. In `f64`, where nothing lies between, the
    /// neighbours themselves.
    #[must_use]
    pub fn preimage(self, value: f64) -> (f64, f64) {
        if self == Self::F64 {
            return (value.next_down(), value.next_up());
        }
        let magnitude = value.abs();
        let quantum = (exponent(magnitude) - (self.precision() as i32 - 1)).max(self.min_quantum());
        // All exact: these take two bits more than the format has.
        let half = exp2i(quantum) / 2.0;
        let closer = is_power_of_two(magnitude) && quantum > self.min_quantum();
        let below = magnitude - if closer { half / 2.0 } else { half };
        let above = magnitude + half;
        if value < 0.0 { (-above, -below) } else { (below, above) }
    }

    /// Whether `x` is a value of this format. NaN is one; infinity where the format has it.
    #[must_use]
    pub fn represents(self, x: f64) -> bool {
        x.is_nan() || self.round(x) == x
    }
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Format {
    type Err = UnknownFormat;

    fn from_str(name: &str) -> Result<Self, UnknownFormat> {
        Self::ALL
            .into_iter()
            .find(|format| format.name() == name)
            .ok_or_else(|| UnknownFormat(name.to_owned()))
    }
}

/// Floor of the binary logarithm of a normal `|x|`; -1023, which is below the range of every other
/// format, for a subnormal one.
fn exponent(x: f64) -> i32 {
    ((x.to_bits() >> 52) & 0x7ff) as i32 - 1023
}

/// Whether a normal `x` is a power of two.
fn is_power_of_two(x: f64) -> bool {
    x.to_bits().trailing_zeros() >= f64::MANTISSA_DIGITS - 1
}

/// `2^n` for `n` in the range of `f64`, subnormals included.
fn exp2i(n: i32) -> f64 {
    scale(1.0, n)
}

/// `x * 2^n`, in two steps so that `2^n` itself need not be representable.
fn scale(x: f64, n: i32) -> f64 {
    let power = |k: i32| f64::from_bits(((k + 1023) as u64) << 52);
    let first = n.clamp(-1022, 1023);
    let rest = (n - first).clamp(-1022, 1023);
    x * power(first) * power(rest)
}
