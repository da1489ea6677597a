//! Barriers of blocks and warps, barrier objects in shared memory, and fences.

use crate::error::Reason;
use crate::isa::operand::{Source, Space};
use crate::isa::operation::{
    Barrier, BarrierKind, BarrierReduction, MemoryBarrierOp, MemoryBarrierOperands, Operation,
};
use crate::isa::types::Scalar;
use crate::parse::statement::Statement;

#[derive(Clone, Copy, PartialEq)]
enum Kind {
    Sync,
    Arrive,
    Reduce,
}

/// `bar` is `barrier.aligned`.
pub(super) fn block(s: &mut Statement<'_>) -> Result<Operation, Reason> {
    if s.opcode == "bar" && s.take("warp") {
        s.require_modifier("sync")?;
        let members = s.source(Scalar::B32)?;
        return Ok(Operation::WarpSync { members });
    }
    if s.take("cluster") {
        return s.unsupported("a barrier of a cluster");
    }
    s.take("cta");
    let kinds = [("sync", Kind::Sync), ("arrive", Kind::Arrive), ("red", Kind::Reduce)];
    let kind = s.require(&kinds, "'.sync', '.arrive' or '.red'")?;
    let reductions = [
        ("popc", BarrierReduction::Count),
        ("and", BarrierReduction::All),
        ("or", BarrierReduction::Any),
    ];
    let reduction = match kind {
        Kind::Reduce => Some(s.require(&reductions, "a reduction")?),
        _ => None,
    };
    let aligned = s.opcode == "bar" || s.take("aligned");
    let d = match reduction {
        Some(BarrierReduction::Count) => {
            s.ty(&[Scalar::U32])?;
            s.destination(Scalar::U32)?
        }
        Some(_) => {
            s.ty(&[Scalar::Pred])?;
            s.destination(Scalar::Pred)?
        }
        None => None,
    };
    let number = s.source(Scalar::U32)?;
    // Of a reduction's operands the last is the predicate.
    let has_threads = match kind {
        Kind::Reduce => s.operands_left() > 1,
        _ => s.has_operand(),
    };
    let threads = if has_threads { Some(s.source(Scalar::U32)?) } else { None };
    let kind = match (kind, reduction) {
        (Kind::Arrive, _) if threads.is_none() => return Err(Reason::OperandCount(1)),
        (Kind::Arrive, _) => BarrierKind::Arrive,
        (_, Some(op)) => BarrierKind::Reduce { op, d, a: s.condition()? },
        _ => BarrierKind::Sync,
    };
    Ok(Operation::Barrier(Box::new(Barrier { kind, aligned, number, threads })))
}

pub(super) fn memory(s: &mut Statement<'_>) -> Result<Operation, Reason> {
    use MemoryBarrierOp as Op;
    let ops = [
        ("init", Op::Initialise),
        ("inval", Op::Invalidate),
        ("arrive", Op::Arrive),
        ("expect_tx", Op::Expect),
        ("complete_tx", Op::Complete),
        ("test_wait", Op::Test),
        ("try_wait", Op::Try),
    ];
    let op = s.require(&ops, "an operation")?;
    let op = match op {
        Op::Arrive if s.take("expect_tx") => Op::ArriveExpect,
        Op::Test if s.take("parity") => Op::TestParity,
        Op::Try if s.take("parity") => Op::TryParity,
        other => other,
    };
    if matches!(op, Op::Arrive | Op::ArriveExpect | Op::Expect | Op::Complete) {
        s.choose(&[("release", ()), ("relaxed", ())]);
    } else if !matches!(op, Op::Initialise | Op::Invalidate) {
        s.choose(&[("acquire", ()), ("relaxed", ())]);
    }
    s.take("cta");
    let shared = [("shared", Space::Shared), ("shared::cta", Space::Shared)];
    let space = s.choose(&shared).unwrap_or(Space::Generic);
    s.ty(&[Scalar::B64])?;
    let d = match op {
        Op::Arrive | Op::ArriveExpect => s.destination(Scalar::B64)?,
        Op::Test | Op::TestParity | Op::Try | Op::TryParity => s.destination(Scalar::Pred)?,
        _ => None,
    };
    let address = s.address(space)?;
    let value = match op {
        Op::Invalidate => Source::Immediate(0),
        Op::Arrive if !s.has_operand() => Source::Immediate(1),
        Op::Test | Op::Try => s.source(Scalar::B64)?,
        _ => s.source(Scalar::U32)?,
    };
    // How long to wait at most is a hint.
    if matches!(op, Op::Try | Op::TryParity) && s.has_operand() {
        s.source(Scalar::U32)?;
    }
    let operands = MemoryBarrierOperands { space, address, d, value };
    Ok(Operation::MemoryBarrier(op, Box::new(operands)))
}

const SCOPES: [(&str, ()); 4] = [("cta", ()), ("cluster", ()), ("gpu", ()), ("sys", ())];

pub(super) fn fence(s: &mut Statement<'_>) -> Result<Operation, Reason> {
    if s.opcode == "membar" {
        s.require(&[("cta", ()), ("gl", ()), ("sys", ())], "a scope")?;
        return Ok(Operation::Fence);
    }
    if s.take("proxy") {
        s.require_modifier("async")?;
        let spaces = [("shared::cta", true), ("shared::cluster", true), ("global", false)];
        let is_shared = s.choose(&spaces).unwrap_or(true);
        return Ok(if is_shared { Operation::ProxyFence } else { Operation::Fence });
    }
    if s.take("mbarrier_init") {
        s.require_modifier("release")?;
        s.require_modifier("cluster")?;
        return Ok(Operation::Fence);
    }
    s.choose(&[("sc", ()), ("acq_rel", ()), ("acquire", ()), ("release", ())]);
    s.require(&SCOPES, "a scope")?;
    Ok(Operation::Fence)
}
