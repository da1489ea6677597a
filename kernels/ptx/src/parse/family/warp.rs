//! Exchanges between the lanes of a warp.

use crate::error::Reason;
use crate::isa::operation::{AtomicOp, Operation, ShuffleMode, VoteMode};
use crate::isa::types::Scalar;
use crate::parse::statement::Statement;

pub(super) fn shuffle(s: &mut Statement<'_>) -> Result<Operation, Reason> {
    s.require_modifier("sync")?;
    let modes = [
        ("up", ShuffleMode::Up),
        ("down", ShuffleMode::Down),
        ("bfly", ShuffleMode::Butterfly),
        ("idx", ShuffleMode::Index),
    ];
    let mode = s.require(&modes, "a direction")?;
    let ty = s.ty(&[Scalar::B32])?;
    let (d, p) = s.destination_pair(ty)?;
    let (a, lane) = (s.source(ty)?, s.source(ty)?);
    let (clamp, members) = (s.source(ty)?, s.source(ty)?);
    Ok(Operation::Shuffle { mode, d, p, a, lane, clamp, members })
}

pub(super) fn vote(s: &mut Statement<'_>) -> Result<Operation, Reason> {
    s.require_modifier("sync")?;
    let modes = [
        ("all", VoteMode::All),
        ("any", VoteMode::Any),
        ("uni", VoteMode::Uniform),
        ("ballot", VoteMode::Ballot),
    ];
    let mode = s.require(&modes, "a vote")?;
    let result = if mode == VoteMode::Ballot { Scalar::B32 } else { Scalar::Pred };
    s.ty(&[result])?;
    let (d, a) = (s.destination(result)?, s.condition()?);
    let members = s.source(Scalar::B32)?;
    Ok(Operation::Vote { mode, d, a, members })
}

pub(super) fn matching(s: &mut Statement<'_>) -> Result<Operation, Reason> {
    let all = s.require(&[("any", false), ("all", true)], "'.any' or '.all'")?;
    s.require_modifier("sync")?;
    let ty = s.ty(&[Scalar::B32, Scalar::B64])?;
    let (d, p) =
        if all { s.destination_pair(Scalar::B32)? } else { (s.destination(Scalar::B32)?, None) };
    let (a, members) = (s.source(ty)?, s.source(Scalar::B32)?);
    Ok(Operation::Match { all, class: ty.class(), d, p, a, members })
}

pub(super) fn reduce(s: &mut Statement<'_>) -> Result<Operation, Reason> {
    s.require_modifier("sync")?;
    let operators = [
        ("add", AtomicOp::Add),
        ("min", AtomicOp::Min),
        ("max", AtomicOp::Max),
        ("and", AtomicOp::And),
        ("or", AtomicOp::Or),
        ("xor", AtomicOp::Xor),
    ];
    let op = s.require(&operators, "an operator")?;
    let is_arithmetic = matches!(op, AtomicOp::Add | AtomicOp::Min | AtomicOp::Max);
    let ty = s.ty(if is_arithmetic { &[Scalar::U32, Scalar::S32] } else { &[Scalar::B32] })?;
    let int = ty.integer().or(ty.untyped()).ok_or_else(|| s.bad_modifier("a type"))?;
    let (d, a) = (s.destination(ty)?, s.source(ty)?);
    let members = s.source(Scalar::B32)?;
    Ok(Operation::Reduce { op, ty: int, d, a, members })
}

pub(super) fn elect(s: &mut Statement<'_>) -> Result<Operation, Reason> {
    s.require_modifier("sync")?;
    let (d, p) = s.destination_pair(Scalar::B32)?;
    let members = s.source(Scalar::B32)?;
    Ok(Operation::Elect { d, p, members })
}

pub(super) fn active_mask(s: &mut Statement<'_>) -> Result<Operation, Reason> {
    s.ty(&[Scalar::B32])?;
    let d = s.destination(Scalar::B32)?;
    Ok(Operation::ActiveMask { d })
}
