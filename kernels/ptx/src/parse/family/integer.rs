//! Arithmetic of integers and bits.

use crate::error::Reason;
use crate::isa::operand::{Destination, Source};
use crate::isa::operation::{IntegerOp, Operation};
use crate::isa::types::{Int, Scalar};
use crate::parse::statement::Statement;

const ARITHMETIC: [Scalar; 6] =
    [Scalar::U16, Scalar::S16, Scalar::U32, Scalar::S32, Scalar::U64, Scalar::S64];
const SIGNED: [Scalar; 3] = [Scalar::S16, Scalar::S32, Scalar::S64];
const BITS: [Scalar; 3] = [Scalar::B16, Scalar::B32, Scalar::B64];
const LONG_BITS: [Scalar; 2] = [Scalar::B32, Scalar::B64];
const FIELDS: [Scalar; 4] = [Scalar::U32, Scalar::S32, Scalar::U64, Scalar::S64];

const ZERO: Source = Source::Immediate(0);

pub(super) fn parse(s: &mut Statement<'_>) -> Result<Operation, Reason> {
    match s.opcode {
        "add" | "sub" => add(s),
        "mul" | "mad" => multiply(s),
        "div" => binary(s, IntegerOp::Div),
        "rem" => binary(s, IntegerOp::Rem),
        "min" => binary(s, IntegerOp::Min),
        "max" => binary(s, IntegerOp::Max),
        "sad" => ternary(s, IntegerOp::Sad),
        "neg" => unary(s, IntegerOp::Neg, &SIGNED),
        "abs" => unary(s, IntegerOp::Abs, &SIGNED),
        "not" => unary(s, IntegerOp::Not, &BITS),
        "brev" => unary(s, IntegerOp::ReverseBits, &LONG_BITS),
        "and" => bitwise(s, IntegerOp::And),
        "or" => bitwise(s, IntegerOp::Or),
        "xor" => bitwise(s, IntegerOp::Xor),
        "shl" | "shr" => shift(s),
        "popc" => count(s, IntegerOp::CountOnes, &LONG_BITS),
        "clz" => count(s, IntegerOp::CountLeadingZeros, &LONG_BITS),
        "bfind" => {
            let op = if s.take("shiftamt") {
                IntegerOp::FindMostSignificantShift
            } else {
                IntegerOp::FindMostSignificant
            };
            count(s, op, &FIELDS)
        }
        "bfe" => extract(s),
        "bfi" => insert(s),
        "lop3" => logic3(s),
        "prmt" => permute(s),
        _ => funnel(s),
    }
}

fn of(ty: Scalar) -> Result<Int, Reason> {
    ty.integer()
        .or(ty.untyped())
        .ok_or_else(|| Reason::Unsupported("arithmetic of this type".to_owned()))
}

fn operation(
    op: IntegerOp,
    ty: Scalar,
    d: Destination,
    s: [Source; 4],
) -> Result<Operation, Reason> {
    Ok(Operation::Integer { op, ty: of(ty)?, d, s })
}

fn unary(s: &mut Statement<'_>, op: IntegerOp, types: &[Scalar]) -> Result<Operation, Reason> {
    let ty = s.ty(types)?;
    let (d, a) = (s.destination(ty)?, s.source(ty)?);
    operation(op, ty, d, [a, ZERO, ZERO, ZERO])
}

fn binary(s: &mut Statement<'_>, op: IntegerOp) -> Result<Operation, Reason> {
    let ty = s.ty(&ARITHMETIC)?;
    let (d, a, b) = (s.destination(ty)?, s.source(ty)?, s.source(ty)?);
    operation(op, ty, d, [a, b, ZERO, ZERO])
}

fn ternary(s: &mut Statement<'_>, op: IntegerOp) -> Result<Operation, Reason> {
    let ty = s.ty(&ARITHMETIC)?;
    let (d, a, b, c) = (s.destination(ty)?, s.source(ty)?, s.source(ty)?, s.source(ty)?);
    operation(op, ty, d, [a, b, c, ZERO])
}

fn bitwise(s: &mut Statement<'_>, op: IntegerOp) -> Result<Operation, Reason> {
    let ty = s.ty(&BITS)?;
    let (d, a, b) = (s.destination(ty)?, s.source(ty)?, s.source(ty)?);
    operation(op, ty, d, [a, b, ZERO, ZERO])
}

fn add(s: &mut Statement<'_>) -> Result<Operation, Reason> {
    let is_add = s.opcode == "add";
    if s.take("sat") {
        let op = if is_add { IntegerOp::AddSaturating } else { IntegerOp::SubSaturating };
        let ty = s.ty(&[Scalar::S32])?;
        let (d, a, b) = (s.destination(ty)?, s.source(ty)?, s.source(ty)?);
        return operation(op, ty, d, [a, b, ZERO, ZERO]);
    }
    binary(s, if is_add { IntegerOp::Add } else { IntegerOp::Sub })
}

#[derive(Clone, Copy, PartialEq)]
enum Half {
    Low,
    High,
    Wide,
}

fn multiply(s: &mut Statement<'_>) -> Result<Operation, Reason> {
    let half = s.require(
        &[("lo", Half::Low), ("hi", Half::High), ("wide", Half::Wide)],
        "'.lo', '.hi' or '.wide'",
    )?;
    let is_mad = s.opcode == "mad";
    let ty = s.ty(&ARITHMETIC)?;
    let result = if half == Half::Wide { of(ty)?.wide() } else { Some(ty) };
    let result = result.ok_or_else(|| s.bad_modifier("a type"))?;
    let (d, a, b) = (s.destination(result)?, s.source(ty)?, s.source(ty)?);
    let c = if is_mad { s.source(result)? } else { ZERO };
    let op = match (half, is_mad) {
        (Half::Low, false) => IntegerOp::MulLow,
        (Half::High, false) => IntegerOp::MulHigh,
        (Half::Wide, false) => IntegerOp::MulWide,
        (Half::Low, true) => IntegerOp::MadLow,
        (Half::High, true) => IntegerOp::MadHigh,
        (Half::Wide, true) => IntegerOp::MadWide,
    };
    operation(op, ty, d, [a, b, c, ZERO])
}

fn shift(s: &mut Statement<'_>) -> Result<Operation, Reason> {
    let (op, types) = if s.opcode == "shl" {
        (IntegerOp::ShiftLeft, BITS.to_vec())
    } else {
        (IntegerOp::ShiftRight, [BITS.as_slice(), &ARITHMETIC].concat())
    };
    let ty = s.ty(&types)?;
    let (d, a, b) = (s.destination(ty)?, s.source(ty)?, s.source(Scalar::U32)?);
    operation(op, ty, d, [a, b, ZERO, ZERO])
}

/// The result is 32 bits wide whatever the type.
fn count(s: &mut Statement<'_>, op: IntegerOp, types: &[Scalar]) -> Result<Operation, Reason> {
    let ty = s.ty(types)?;
    let (d, a) = (s.destination(Scalar::U32)?, s.source(ty)?);
    operation(op, ty, d, [a, ZERO, ZERO, ZERO])
}

fn extract(s: &mut Statement<'_>) -> Result<Operation, Reason> {
    let ty = s.ty(&FIELDS)?;
    let (d, a) = (s.destination(ty)?, s.source(ty)?);
    let (position, length) = (s.source(Scalar::U32)?, s.source(Scalar::U32)?);
    operation(IntegerOp::ExtractField, ty, d, [a, position, length, ZERO])
}

fn insert(s: &mut Statement<'_>) -> Result<Operation, Reason> {
    let ty = s.ty(&LONG_BITS)?;
    let (d, a, b) = (s.destination(ty)?, s.source(ty)?, s.source(ty)?);
    let (position, length) = (s.source(Scalar::U32)?, s.source(Scalar::U32)?);
    operation(IntegerOp::InsertField, ty, d, [a, b, position, length])
}

fn logic3(s: &mut Statement<'_>) -> Result<Operation, Reason> {
    let ty = s.ty(&[Scalar::B32])?;
    let (d, a, b, c) = (s.destination(ty)?, s.source(ty)?, s.source(ty)?, s.source(ty)?);
    let table = s.constant()?;
    let table = u8::try_from(table).map_err(|_| Reason::Number(table.to_string()))?;
    operation(IntegerOp::Logic3(table), ty, d, [a, b, c, ZERO])
}

fn permute(s: &mut Statement<'_>) -> Result<Operation, Reason> {
    let ty = s.ty(&[Scalar::B32])?;
    let (d, a, b, c) = (s.destination(ty)?, s.source(ty)?, s.source(ty)?, s.source(ty)?);
    operation(IntegerOp::PermuteBytes, ty, d, [a, b, c, ZERO])
}

fn funnel(s: &mut Statement<'_>) -> Result<Operation, Reason> {
    let left = s.require(&[("l", true), ("r", false)], "'.l' or '.r'")?;
    let wrap = s.require(&[("wrap", true), ("clamp", false)], "'.wrap' or '.clamp'")?;
    let op = if left { IntegerOp::FunnelLeft { wrap } } else { IntegerOp::FunnelRight { wrap } };
    let ty = s.ty(&[Scalar::B32])?;
    let (d, a, b, c) = (s.destination(ty)?, s.source(ty)?, s.source(ty)?, s.source(ty)?);
    operation(op, ty, d, [a, b, c, ZERO])
}
