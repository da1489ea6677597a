//! Arithmetic of the 16-bit formats.

use half::{bf16, f16};

use super::Policy;
use super::rounding::{self, BF16, F16, Format};
use super::{approximate, single};
use crate::isa::operation::{FloatMode, FloatOp};
use crate::isa::types::{Half, Rounding};

/// The NaN that arithmetic gives in either format.
pub(crate) const NAN: u16 = 0x7fff;

/// The value of bits in a format.
pub(crate) fn decode(format: Half, bits: u16) -> f32 {
    match format {
        Half::F16 => f16::from_bits(bits).to_f32(),
        Half::Bf16 => f32::from_bits(u32::from(bits) << 16),
    }
}

/// The bits of `x` rounded to a format; NaN is the canonical one.
pub(crate) fn encode(format: Half, x: f64, rounding: Rounding) -> u16 {
    if x.is_nan() {
        return NAN;
    }
    // The rounded value is one of the format's: this conversion is exact.
    match format {
        Half::F16 => f16::from_f64(F16.round(x, rounding)).to_bits(),
        Half::Bf16 => bf16::from_f64(BF16.round(x, rounding)).to_bits(),
    }
}

/// The bits of a binary32 number rounded to nearest.
pub(crate) fn encode_single(format: Half, x: f32) -> u16 {
    if x.is_nan() {
        return NAN;
    }
    match format {
        Half::F16 => f16::from_f32(x).to_bits(),
        Half::Bf16 => bf16::from_f32(x).to_bits(),
    }
}

const fn target(format: Half) -> Format {
    match format {
        Half::F16 => F16,
        Half::Bf16 => BF16,
    }
}

/// A subnormal of the format becomes a zero of its sign.
fn flush(format: Half, x: f64) -> f64 {
    if x != 0.0 && x.abs() < rounding::power(target(format).min_exponent) {
        0.0_f64.copysign(x)
    } else {
        x
    }
}

/// The result of an operator that takes one to three operands.
pub(crate) fn evaluate(
    op: FloatOp,
    format: Half,
    mode: FloatMode,
    policy: Policy,
    s: [u16; 3],
) -> u16 {
    match op {
        FloatOp::Neg if !mode.flush => return s[0] ^ 0x8000,
        FloatOp::Abs if !mode.flush => return s[0] & 0x7fff,
        _ => {}
    }
    let values = s.map(|bits| f64::from(decode(format, bits)));
    let [a, b, c] = if mode.flush { values.map(|x| flush(format, x)) } else { values };
    let exact = match op {
        FloatOp::Add => rounding::add(a, b),
        FloatOp::Sub => rounding::add(a, -b),
        FloatOp::Mul => a * b,
        FloatOp::Fma => rounding::multiply_add(a, b, c),
        FloatOp::Neg => -a,
        FloatOp::Abs => a.abs(),
        FloatOp::Min { nan, xorsign } => {
            f64::from(single::extremum(a as f32, b as f32, nan, xorsign, false))
        }
        FloatOp::Max { nan, xorsign } => {
            f64::from(single::extremum(a as f32, b as f32, nan, xorsign, true))
        }
        _ => approximate::half(op, format, policy.approximation, a),
    };
    let rounded = target(format).round(exact, mode.rounding);
    let rounded = if mode.flush { flush(format, rounded) } else { rounded };
    let rounded = match mode {
        FloatMode { saturate: true, .. } => {
            if rounded > 0.0 {
                rounded.min(1.0)
            } else {
                0.0
            }
        }
        FloatMode { relu: true, .. } if rounded <= 0.0 => 0.0,
        _ => rounded,
    };
    encode(format, rounded, Rounding::Nearest)
}
