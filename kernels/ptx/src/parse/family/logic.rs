//! Comparisons, selections and predicates.

use crate::error::Reason;
use crate::isa::operand::Condition;
use crate::isa::operation::{Comparison, LogicOp, Operation, Setp};
use crate::isa::types::Scalar;
use crate::parse::statement::Statement;

const INTEGER_COMPARISONS: [(&str, Comparison); 6] = [
    ("eq", Comparison::Equal),
    ("ne", Comparison::NotEqual),
    ("lt", Comparison::Less),
    ("le", Comparison::LessEqual),
    ("gt", Comparison::Greater),
    ("ge", Comparison::GreaterEqual),
];
/// Other names of comparisons of unsigned integers.
const UNSIGNED_COMPARISONS: [(&str, Comparison); 4] = [
    ("lo", Comparison::Less),
    ("ls", Comparison::LessEqual),
    ("hi", Comparison::Greater),
    ("hs", Comparison::GreaterEqual),
];
const UNORDERED_COMPARISONS: [(&str, Comparison); 8] = [
    ("equ", Comparison::EqualOrNan),
    ("neu", Comparison::NotEqualOrNan),
    ("ltu", Comparison::LessOrNan),
    ("leu", Comparison::LessEqualOrNan),
    ("gtu", Comparison::GreaterOrNan),
    ("geu", Comparison::GreaterEqualOrNan),
    ("num", Comparison::BothNumbers),
    ("nan", Comparison::AnyNan),
];
const COMBINATIONS: [(&str, LogicOp); 3] =
    [("and", LogicOp::And), ("or", LogicOp::Or), ("xor", LogicOp::Xor)];

const BITS: [Scalar; 3] = [Scalar::B16, Scalar::B32, Scalar::B64];
const UNSIGNED: [Scalar; 3] = [Scalar::U16, Scalar::U32, Scalar::U64];
const SIGNED: [Scalar; 3] = [Scalar::S16, Scalar::S32, Scalar::S64];
const FLOATS: [Scalar; 4] = [Scalar::F32, Scalar::F64, Scalar::F16, Scalar::Bf16];

pub(super) fn setp(s: &mut Statement<'_>) -> Result<Operation, Reason> {
    let common = s.choose(&INTEGER_COMPARISONS);
    let unsigned = if common.is_none() { s.choose(&UNSIGNED_COMPARISONS) } else { None };
    let comparison = match common.or(unsigned) {
        Some(comparison) => comparison,
        None => s.require(&UNORDERED_COMPARISONS, "a comparison")?,
    };
    let combination = s.choose(&COMBINATIONS);
    let flush = s.take("ftz");
    let types = match comparison {
        _ if unsigned.is_some() => UNSIGNED.to_vec(),
        _ if flush => vec![Scalar::F32],
        Comparison::Equal | Comparison::NotEqual => {
            [&BITS[..], &UNSIGNED, &SIGNED, &FLOATS].concat()
        }
        Comparison::Less
        | Comparison::LessEqual
        | Comparison::Greater
        | Comparison::GreaterEqual => [&UNSIGNED[..], &SIGNED, &FLOATS].concat(),
        _ => FLOATS.to_vec(),
    };
    let ty = s.ty(&types)?;
    let (p, q) = s.destination_pair(Scalar::Pred)?;
    let (a, b) = (s.source(ty)?, s.source(ty)?);
    let combine = match combination {
        Some(op) => Some((op, s.condition()?)),
        None => None,
    };
    Ok(Operation::Setp(Box::new(Setp { comparison, ty, flush, p, q, a, b, combine })))
}

pub(super) fn selp(s: &mut Statement<'_>) -> Result<Operation, Reason> {
    let wide = [Scalar::F32, Scalar::F64];
    let ty = s.ty(&[&BITS[..], &UNSIGNED, &SIGNED, &wide].concat())?;
    let (d, a, b) = (s.destination(ty)?, s.source(ty)?, s.source(ty)?);
    let condition = s.condition()?;
    Ok(Operation::Select { class: ty.class(), d, a, b, condition })
}

pub(super) fn predicate(s: &mut Statement<'_>) -> Result<Operation, Reason> {
    let ty = s.ty(&[Scalar::Pred])?;
    let (op, is_binary) = match s.opcode {
        "and" => (LogicOp::And, true),
        "or" => (LogicOp::Or, true),
        "xor" => (LogicOp::Xor, true),
        _ => (LogicOp::Not, false),
    };
    let (d, a) = (s.destination(ty)?, s.condition()?);
    let b = if is_binary { s.condition()? } else { Condition::Constant(false) };
    Ok(Operation::Predicate { op, d, a, b })
}
