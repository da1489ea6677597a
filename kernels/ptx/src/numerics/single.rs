//! Arithmetic of binary32 with every rounding, `.ftz` and `.sat`.

use super::Policy;
use super::approximate;
use super::rounding::{self, SINGLE};
use crate::isa::operation::{FloatMode, FloatOp};
use crate::isa::types::Rounding;

/// The NaN that arithmetic gives (PTX ISA, "Floating Point Instructions").
pub(crate) const NAN: f32 = f32::from_bits(0x7fff_ffff);

/// A subnormal number becomes a zero of its sign.
pub(crate) fn flush(x: f32) -> f32 {
    if x.is_subnormal() { 0.0_f32.copysign(x) } else { x }
}

/// What `mode` makes of a result: NaN is the canonical one, then `.ftz`, then `.sat` or `.relu`.
fn finish(x: f32, mode: FloatMode) -> f32 {
    let x = if x.is_nan() { NAN } else { x };
    let x = if mode.flush { flush(x) } else { x };
    if mode.saturate {
        // NaN becomes +0, and so does -0.
        return if x > 0.0 { x.min(1.0) } else { 0.0 };
    }
    if mode.relu && x <= 0.0 { 0.0 } else { x }
}

/// The result of an operator that takes one to three operands.
pub(crate) fn evaluate(op: FloatOp, mode: FloatMode, policy: Policy, s: [f32; 3]) -> f32 {
    let [a, b, c] = if mode.flush { s.map(flush) } else { s };
    let nearest = mode.rounding == Rounding::Nearest;
    let round = |x: f64| SINGLE.round(x, mode.rounding) as f32;
    let value = match op {
        FloatOp::Add if nearest => a + b,
        FloatOp::Add => signed_zero(round(rounding::add(a.into(), b.into())), a, b, mode),
        FloatOp::Sub if nearest => a - b,
        FloatOp::Sub => signed_zero(round(rounding::add(a.into(), (-b).into())), a, -b, mode),
        FloatOp::Mul if nearest => a * b,
        FloatOp::Mul => round(f64::from(a) * f64::from(b)),
        FloatOp::Fma if nearest => a.mul_add(b, c),
        FloatOp::Fma => fused(a, b, c, mode),
        FloatOp::Div if nearest => a / b,
        FloatOp::Div => round(rounding::divide(a.into(), b.into())),
        FloatOp::Rcp if nearest => 1.0 / a,
        FloatOp::Rcp => round(rounding::divide(1.0, a.into())),
        FloatOp::Sqrt if nearest => a.sqrt(),
        FloatOp::Sqrt => round(rounding::square_root(a.into())),
        FloatOp::Neg => return -a,
        FloatOp::Abs => return a.abs(),
        FloatOp::CopySign => return b.copysign(a),
        FloatOp::Min { nan, xorsign } => extremum(a, b, nan, xorsign, false),
        FloatOp::Max { nan, xorsign } => extremum(a, b, nan, xorsign, true),
        FloatOp::DivApprox
        | FloatOp::DivFull
        | FloatOp::RcpApprox
        | FloatOp::SqrtApprox
        | FloatOp::RsqrtApprox
        | FloatOp::Ex2Approx
        | FloatOp::Lg2Approx
        | FloatOp::SinApprox
        | FloatOp::CosApprox
        | FloatOp::TanhApprox => approximate::single(op, policy.approximation, a, b),
    };
    finish(value, mode)
}

/// An exact sum of zero from operands that are not both zeros of one sign is -0 when rounding down
/// and +0 otherwise (IEEE 754-2019, 6.3).
fn signed_zero(sum: f32, a: f32, b: f32, mode: FloatMode) -> f32 {
    let cancels =
        sum == 0.0 && a == -b && (a != 0.0 || a.is_sign_negative() != b.is_sign_negative());
    match mode.rounding {
        Rounding::Down if cancels => -0.0,
        _ if cancels => 0.0,
        _ => sum,
    }
}

fn fused(a: f32, b: f32, c: f32, mode: FloatMode) -> f32 {
    let product = f64::from(a) * f64::from(b);
    let c_wide = f64::from(c);
    let sum = SINGLE.round(rounding::add(product, c_wide), mode.rounding) as f32;
    let opposite = product.is_sign_negative() != c_wide.is_sign_negative();
    if product.is_finite() && product == -c_wide && (product != 0.0 || opposite) {
        return if mode.rounding == Rounding::Down { -0.0 } else { 0.0 };
    }
    sum
}

/// The lesser or greater. `+0` is greater than `-0`. One NaN gives the other operand, or NaN with
/// `.NaN`; `.xorsign.abs` compares magnitudes and gives the product of the signs.
pub(crate) fn extremum(a: f32, b: f32, nan: bool, xorsign: bool, greater: bool) -> f32 {
    if a.is_nan() && b.is_nan() || nan && (a.is_nan() || b.is_nan()) {
        return NAN;
    }
    let sign = a.is_sign_negative() != b.is_sign_negative();
    let (a, b) = if xorsign { (a.abs(), b.abs()) } else { (a, b) };
    let chosen = if a.is_nan() {
        b
    } else if b.is_nan() {
        a
    } else if a == b {
        // Zeros of two signs, or equal bits.
        if a.is_sign_negative() == greater { b } else { a }
    } else if (a > b) == greater {
        a
    } else {
        b
    };
    if !xorsign {
        chosen
    } else if sign {
        -chosen.abs()
    } else {
        chosen.abs()
    }
}
