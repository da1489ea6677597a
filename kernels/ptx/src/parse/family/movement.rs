//! Moves between registers, and conversions of addresses.

use crate::error::Reason;
use crate::isa::operand::{Condition, Source, Space};
use crate::isa::operation::{LogicOp, Operation};
use crate::isa::types::Scalar;
use crate::parse::statement::{Raw, Statement};

const TYPES: [Scalar; 11] = [
    Scalar::B16,
    Scalar::U16,
    Scalar::S16,
    Scalar::B32,
    Scalar::U32,
    Scalar::S32,
    Scalar::B64,
    Scalar::U64,
    Scalar::S64,
    Scalar::F32,
    Scalar::F64,
];

pub(super) const SPACES: [(&str, Space); 7] = [
    ("global", Space::Global),
    ("shared", Space::Shared),
    ("shared::cta", Space::Shared),
    ("local", Space::Local),
    ("const", Space::Const),
    ("param", Space::Param),
    ("param::entry", Space::Param),
];

pub(super) fn mov(s: &mut Statement<'_>) -> Result<Operation, Reason> {
    if s.take("pred") {
        let d = s.destination(Scalar::Pred)?;
        let (a, b) = (s.condition()?, Condition::Constant(false));
        return Ok(Operation::Predicate { op: LogicOp::First, d, a, b });
    }
    let ty = s.ty(&TYPES)?;
    if let Some(Raw::Vector(parts)) = s.peek_operand().cloned() {
        s.next_operand()?;
        let (part, bits) = part(s, ty, parts.len())?;
        let parts = s.vector_destinations(&parts, part)?;
        let a = s.source(ty)?;
        return Ok(Operation::Unpack { class: ty.class(), a, parts, bits });
    }
    let d = s.destination(ty)?;
    match s.peek_operand().cloned() {
        Some(Raw::Vector(parts)) => {
            s.next_operand()?;
            let (part, bits) = part(s, ty, parts.len())?;
            let parts = s.vector_sources(&parts, part)?;
            Ok(Operation::Pack { class: ty.class(), d, parts, bits })
        }
        Some(Raw::Variable { offset, .. }) if ty.bits() >= 32 => {
            s.next_operand()?;
            Ok(Operation::Move { class: ty.class(), d, a: Source::Immediate(offset) })
        }
        _ => {
            let a = s.source(ty)?;
            Ok(Operation::Move { class: ty.class(), d, a })
        }
    }
}

/// Type and width of each of `count` parts of an untyped value.
fn part(s: &Statement<'_>, ty: Scalar, count: usize) -> Result<(Scalar, u32), Reason> {
    let part = match (ty, count) {
        (Scalar::B32, 2) | (Scalar::B64, 4) => Scalar::B16,
        (Scalar::B64, 2) => Scalar::B32,
        _ => return s.unsupported("a vector of this many parts of this type"),
    };
    Ok((part, part.bits()))
}

pub(super) fn cvta(s: &mut Statement<'_>) -> Result<Operation, Reason> {
    let to_space = s.take("to");
    let space = s.require(&SPACES, "a state space")?;
    let ty = s.ty(&[Scalar::U32, Scalar::U64])?;
    if ty == Scalar::U32 {
        return s.unsupported("a generic address of 32 bits");
    }
    let d = s.destination(ty)?;
    let a = match s.peek_operand() {
        Some(Raw::Variable { space: found, offset }) if *found == space => {
            let address = Source::Immediate(*offset);
            s.next_operand()?;
            address
        }
        _ => s.source(ty)?,
    };
    let (from, to) = if to_space { (Space::Generic, space) } else { (space, Space::Generic) };
    Ok(Operation::ConvertAddress { from, to, class: ty.class(), d, a })
}

pub(super) fn isspacep(s: &mut Statement<'_>) -> Result<Operation, Reason> {
    let space = s.require(&SPACES, "a state space")?;
    let (d, a) = (s.destination(Scalar::Pred)?, s.source(Scalar::U64)?);
    Ok(Operation::IsSpace { space, d, a })
}
