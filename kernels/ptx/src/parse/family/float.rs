//! Arithmetic of floating-point numbers.

use crate::error::Reason;
use crate::isa::operand::Source;
use crate::isa::operation::{FloatMode, FloatOp, Operation};
use crate::isa::types::{Half, Rounding, Scalar};
use crate::parse::statement::Statement;

const ROUNDINGS: [(&str, Rounding); 4] = [
    ("rn", Rounding::Nearest),
    ("rz", Rounding::Zero),
    ("rm", Rounding::Down),
    ("rp", Rounding::Up),
];

const WIDE: [Scalar; 2] = [Scalar::F32, Scalar::F64];
const HALVES: [Scalar; 4] = [Scalar::F16, Scalar::F16x2, Scalar::Bf16, Scalar::Bf16x2];
const ALL: [Scalar; 6] =
    [Scalar::F32, Scalar::F64, Scalar::F16, Scalar::F16x2, Scalar::Bf16, Scalar::Bf16x2];
const SINGLE_AND_HALVES: [Scalar; 5] =
    [Scalar::F32, Scalar::F16, Scalar::F16x2, Scalar::Bf16, Scalar::Bf16x2];

pub(super) fn parse(s: &mut Statement<'_>) -> Result<Operation, Reason> {
    match s.opcode {
        "add" => rounded(s, FloatOp::Add, 2),
        "sub" => rounded(s, FloatOp::Sub, 2),
        "mul" => rounded(s, FloatOp::Mul, 2),
        "fma" => rounded(s, FloatOp::Fma, 3),
        "mad" => mad(s),
        "div" => divide(s),
        "rcp" => root(s, FloatOp::Rcp, FloatOp::RcpApprox),
        "sqrt" => root(s, FloatOp::Sqrt, FloatOp::SqrtApprox),
        "rsqrt" => approximate(s, FloatOp::RsqrtApprox, &[Scalar::F32]),
        "ex2" => approximate(s, FloatOp::Ex2Approx, &SINGLE_AND_HALVES),
        "lg2" => approximate(s, FloatOp::Lg2Approx, &[Scalar::F32]),
        "sin" => approximate(s, FloatOp::SinApprox, &[Scalar::F32]),
        "cos" => approximate(s, FloatOp::CosApprox, &[Scalar::F32]),
        "tanh" => approximate(s, FloatOp::TanhApprox, &SINGLE_AND_HALVES),
        "neg" => sign(s, FloatOp::Neg),
        "abs" => sign(s, FloatOp::Abs),
        "copysign" => {
            let ty = s.ty(&WIDE)?;
            finish(s, FloatOp::CopySign, FloatMode::NEAREST, ty, 2)
        }
        _ => extremum(s),
    }
}

/// Reads the operands and makes the operation of the type's format.
fn finish(
    s: &mut Statement<'_>,
    op: FloatOp,
    mode: FloatMode,
    ty: Scalar,
    operands: usize,
) -> Result<Operation, Reason> {
    let d = s.destination(ty)?;
    let mut sources = [Source::Immediate(0); 3];
    for source in &mut sources[..operands] {
        *source = s.source(ty)?;
    }
    Ok(match ty {
        Scalar::F32 => Operation::Single { op, mode, d, s: sources },
        Scalar::F64 if mode == FloatMode::NEAREST => Operation::Double { op, d, s: sources },
        Scalar::F64 => return s.unsupported("directed rounding in f64"),
        Scalar::F16 | Scalar::F16x2 => {
            let packed = ty == Scalar::F16x2;
            Operation::Halves { op, format: Half::F16, packed, mode, d, s: sources }
        }
        _ => {
            let packed = ty == Scalar::Bf16x2;
            Operation::Halves { op, format: Half::Bf16, packed, mode, d, s: sources }
        }
    })
}

/// `op{.rnd}{.ftz}{.sat}.type`; `fma` must name a rounding. Halves round to nearest only.
fn rounded(s: &mut Statement<'_>, op: FloatOp, operands: usize) -> Result<Operation, Reason> {
    let rounding = s.choose(&ROUNDINGS);
    if op == FloatOp::Fma && rounding.is_none() {
        return Err(s.bad_modifier("a rounding"));
    }
    let rounding = rounding.unwrap_or(Rounding::Nearest);
    let flush = s.take("ftz");
    let saturate = s.take("sat");
    let relu = op == FloatOp::Fma && !saturate && s.take("relu");
    let mode = FloatMode { rounding, flush, saturate, relu };
    let is_bf16 = s.has("bf16") || s.has("bf16x2");
    let types: &[Scalar] = match mode {
        _ if rounding != Rounding::Nearest => &WIDE,
        _ if relu => &HALVES,
        _ if (flush || saturate) && is_bf16 => &[],
        _ if flush || saturate => &SINGLE_AND_HALVES,
        _ => &ALL,
    };
    let ty = s.ty(types)?;
    finish(s, op, mode, ty, operands)
}

/// On `sm_20` and later, `mad` of floating-point numbers is `fma`.
fn mad(s: &mut Statement<'_>) -> Result<Operation, Reason> {
    let rounding = s.require(&ROUNDINGS, "a rounding")?;
    let flush = s.take("ftz");
    let saturate = s.take("sat");
    let mode = FloatMode { rounding, flush, saturate, relu: false };
    let ty = s.ty(if flush || saturate { &WIDE[..1] } else { &WIDE })?;
    finish(s, FloatOp::Fma, mode, ty, 3)
}

fn divide(s: &mut Statement<'_>) -> Result<Operation, Reason> {
    if let Some(op) = s.choose(&[("approx", FloatOp::DivApprox), ("full", FloatOp::DivFull)]) {
        let mode = FloatMode { flush: s.take("ftz"), ..FloatMode::NEAREST };
        let ty = s.ty(&[Scalar::F32])?;
        return finish(s, op, mode, ty, 2);
    }
    let rounding = s.require(&ROUNDINGS, "a rounding")?;
    let mode = FloatMode { rounding, flush: s.take("ftz"), ..FloatMode::NEAREST };
    let ty = s.ty(if mode.flush { &WIDE[..1] } else { &WIDE })?;
    finish(s, FloatOp::Div, mode, ty, 2)
}

fn root(s: &mut Statement<'_>, exact: FloatOp, approximate: FloatOp) -> Result<Operation, Reason> {
    if s.take("approx") {
        let mode = FloatMode { flush: s.take("ftz"), ..FloatMode::NEAREST };
        let ty = s.ty(&[Scalar::F32])?;
        return finish(s, approximate, mode, ty, 1);
    }
    let rounding = s.require(&ROUNDINGS, "a rounding")?;
    let mode = FloatMode { rounding, flush: s.take("ftz"), ..FloatMode::NEAREST };
    let ty = s.ty(if mode.flush { &WIDE[..1] } else { &WIDE })?;
    finish(s, exact, mode, ty, 1)
}

/// `op.approx{.ftz}.type`: of the 16-bit formats, `ex2` flushes in bf16 and only there.
fn approximate(s: &mut Statement<'_>, op: FloatOp, types: &[Scalar]) -> Result<Operation, Reason> {
    s.require_modifier("approx")?;
    let mode = FloatMode { flush: s.take("ftz"), ..FloatMode::NEAREST };
    let ty = s.ty(types)?;
    let is_bf16 = matches!(ty, Scalar::Bf16 | Scalar::Bf16x2);
    let flushes = mode.flush;
    let fits = match op {
        FloatOp::Ex2Approx if ty != Scalar::F32 => flushes == is_bf16,
        FloatOp::TanhApprox => !flushes,
        _ => true,
    };
    if !fits {
        return s.unsupported("this flushing of subnormals");
    }
    finish(s, op, mode, ty, 1)
}

fn sign(s: &mut Statement<'_>, op: FloatOp) -> Result<Operation, Reason> {
    let mode = FloatMode { flush: s.take("ftz"), ..FloatMode::NEAREST };
    let ty = s.ty(if mode.flush { &[Scalar::F32, Scalar::F16, Scalar::F16x2] } else { &ALL })?;
    finish(s, op, mode, ty, 1)
}

fn extremum(s: &mut Statement<'_>) -> Result<Operation, Reason> {
    let flush = s.take("ftz");
    let nan = s.take("NaN");
    let xorsign = s.take("xorsign");
    if xorsign {
        s.require_modifier("abs")?;
    }
    let mode = FloatMode { flush, ..FloatMode::NEAREST };
    let types: &[Scalar] = match (flush, nan || xorsign) {
        (true, _) => &[Scalar::F32, Scalar::F16, Scalar::F16x2],
        (false, true) => &SINGLE_AND_HALVES,
        (false, false) => &ALL,
    };
    let ty = s.ty(types)?;
    let op = if s.opcode == "min" {
        FloatOp::Min { nan, xorsign }
    } else {
        FloatOp::Max { nan, xorsign }
    };
    finish(s, op, mode, ty, 2)
}
