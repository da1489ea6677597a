//! Instructions whose result the PTX ISA fixes only up to an error.
//!
//! | instruction | documented error | source |
//! |---|---|---|
//! | `ex2.approx.f32` | 2 ulp of the correctly rounded result | PTX ISA, `ex2` |
//! | `rcp.approx.f32` | 1 ulp | PTX ISA, `rcp` |
//! | `div.full.f32` | 2 ulp | PTX ISA, `div` |
//! | `div.approx.f32` | 2 ulp for `2^-126 <= abs(b) <= 2^126`; beyond, 0 (NaN of an infinite dividend) | PTX ISA, `div` |
//! | `sqrt.approx.f32` | `2^-23` relative | PTX ISA, `sqrt` |
//! | `rsqrt.approx.f32` | `2^-22.9` relative | PTX ISA, `rsqrt` |
//! | `lg2.approx.f32` | `2^-22` absolute on (0.5, 2), else relative | PTX ISA, `lg2` |
//! | `sin`, `cos.approx.f32` | `2^-20.5` absolute on `[-pi, pi]` | PTX ISA, `sin`, `cos` |
//! | `tanh.approx.f32` | `2^-11` relative | PTX ISA, `tanh` |
//! | `ex2.approx.f16`, `.bf16` | `2^-9.9`, `2^-7` relative | PTX ISA, `ex2` |
//! | `tanh.approx.f16`, `.bf16` | `2^-10.987` absolute, `2^-8` relative | PTX ISA, `tanh` |
//!
//! Exact cases (zeros, infinities, NaN, `2^0 = 1`) are exact under every policy.

use super::rounding::{BF16, F16, Format, SINGLE};
use crate::isa::operation::FloatOp;
use crate::isa::types::{Half, Rounding};

/// Which of the results that the documented error admits an instruction gives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Approximation {
    /// The correctly rounded one.
    #[default]
    Accurate,
    /// The greatest one.
    Highest,
    /// The least one.
    Lowest,
}

/// How far a result may lie from the exact one.
#[derive(Clone, Copy)]
enum Error {
    /// So many units in the last place from the correctly rounded result.
    Ulps(u32),
    Relative(f64),
    Absolute(f64),
}

/// `2^-22.9`.
const RSQRT_ERROR: f64 = 1.277_6e-7;
/// `2^-22`.
const LG2_ERROR: f64 = 2.384_185_791_015_625e-7;
/// `2^-20.5`.
const SINE_ERROR: f64 = 6.743_495_761_6e-7;
/// `2^-9.9`.
const EX2_F16_ERROR: f64 = 1.046_653e-3;
/// `2^-10.987`.
const TANH_F16_ERROR: f64 = 4.927_0e-4;

/// The value chosen among those of `format` within `error` of `exact`.
fn choose(exact: f64, error: Error, approximation: Approximation, format: Format) -> f64 {
    let nearest = format.round(exact, Rounding::Nearest);
    let up = match approximation {
        Approximation::Accurate => return nearest,
        Approximation::Highest => true,
        Approximation::Lowest => false,
    };
    if !exact.is_finite() || !nearest.is_finite() {
        return nearest;
    }
    let distance = match error {
        Error::Ulps(count) => return steps(nearest, count, up, format),
        Error::Relative(relative) => exact.abs() * relative,
        Error::Absolute(absolute) => absolute,
    };
    // Rounded inward: the result stays within the error.
    let (far, inward) =
        if up { (exact + distance, Rounding::Down) } else { (exact - distance, Rounding::Up) };
    let chosen = format.round(far, inward);
    // Nothing of the format may lie within the error; the correctly rounded result then stands.
    let outward = if up { chosen < nearest } else { chosen > nearest };
    if outward { nearest } else { chosen }
}

/// `count` values of the format above or below `x`, not past zero, which is the exact limit of the
/// functions here that have a sign.
fn steps(x: f64, count: u32, up: bool, format: Format) -> f64 {
    let mut x = x;
    for _ in 0..count {
        // Far less than half a unit in the last place, even of the smallest number.
        let nudge = x.abs() * (f64::EPSILON * 2.0);
        x = if up {
            format.round(x + nudge, Rounding::Up)
        } else {
            format.round(x - nudge, Rounding::Down)
        };
    }
    x
}

/// The result in binary32 of an operator of this table; operands are flushed already.
pub(crate) fn single(op: FloatOp, approximation: Approximation, a: f32, b: f32) -> f32 {
    let (x, y) = (f64::from(a), f64::from(b));
    let choose = |exact: f64, error: Error| choose(exact, error, approximation, SINGLE) as f32;
    match op {
        // `2^0 = 1`, of subnormal operands too.
        FloatOp::Ex2Approx if a == 0.0 || a.is_subnormal() => 1.0,
        FloatOp::Ex2Approx => choose(x.exp2(), Error::Ulps(2)),
        FloatOp::RcpApprox => choose(1.0 / x, Error::Ulps(1)),
        // Past 2^126 the reciprocal of the divisor is flushed to zero.
        FloatOp::DivApprox if b.is_finite() && y.abs() > super::rounding::power(126) => {
            if a.is_finite() { 0.0_f32.copysign(a) * 1.0_f32.copysign(b) } else { f32::NAN }
        }
        FloatOp::DivApprox | FloatOp::DivFull => choose(x / y, Error::Ulps(2)),
        FloatOp::SqrtApprox => choose(x.sqrt(), Error::Relative(SINGLE_ULP)),
        FloatOp::RsqrtApprox => choose(1.0 / x.sqrt(), Error::Relative(RSQRT_ERROR)),
        FloatOp::Lg2Approx if a == 1.0 => 0.0,
        FloatOp::Lg2Approx => {
            let near_one = a > 0.5 && a < 2.0;
            choose(
                x.log2(),
                if near_one { Error::Absolute(LG2_ERROR) } else { Error::Relative(LG2_ERROR) },
            )
        }
        FloatOp::SinApprox if a == 0.0 => a,
        FloatOp::SinApprox => choose(x.sin(), Error::Absolute(SINE_ERROR)),
        FloatOp::CosApprox => choose(x.cos(), Error::Absolute(SINE_ERROR)),
        _ if a == 0.0 || a.is_infinite() => x.tanh() as f32,
        _ => choose(x.tanh(), Error::Relative(TANH_ERROR)),
    }
}

/// `2^-23`.
const SINGLE_ULP: f64 = f32::EPSILON as f64;
/// `2^-11`.
const TANH_ERROR: f64 = 1.0 / 2048.0;

/// The result in a 16-bit format of `ex2` or `tanh`.
pub(crate) fn half(op: FloatOp, format: Half, approximation: Approximation, x: f64) -> f64 {
    let (target, ex2, tanh) = match format {
        Half::F16 => (F16, Error::Relative(EX2_F16_ERROR), Error::Absolute(TANH_F16_ERROR)),
        Half::Bf16 => (BF16, Error::Relative(1.0 / 128.0), Error::Relative(1.0 / 256.0)),
    };
    match op {
        FloatOp::Ex2Approx if x == 0.0 => 1.0,
        FloatOp::Ex2Approx => choose(x.exp2(), ex2, approximation, target),
        _ if x == 0.0 || x.is_infinite() => x.tanh(),
        _ => choose(x.tanh(), tanh, approximation, target),
    }
}
