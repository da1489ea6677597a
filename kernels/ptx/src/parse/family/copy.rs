//! Asynchronous copies from global to shared memory.

use super::memory::PREFETCHES;
use crate::error::Reason;
use crate::isa::operand::{Source, Space};
use crate::isa::operation::{CopyAsync, Operation};
use crate::isa::types::Scalar;
use crate::parse::statement::Statement;

pub(super) fn parse(s: &mut Statement<'_>) -> Result<Operation, Reason> {
    s.require_modifier("async")?;
    if s.take("commit_group") {
        return Ok(Operation::CommitCopies);
    }
    if s.take("wait_all") {
        return Ok(Operation::WaitCopies(None));
    }
    if s.take("wait_group") {
        let most = s.constant()?;
        let most = u32::try_from(most).map_err(|_| Reason::Number(most.to_string()))?;
        return Ok(Operation::WaitCopies(Some(most)));
    }
    if s.take("mbarrier") {
        return arrive(s);
    }
    if s.has("bulk") {
        return s.unsupported("cp.async.bulk (the tensor memory accelerator)");
    }
    copy(s)
}

fn arrive(s: &mut Statement<'_>) -> Result<Operation, Reason> {
    s.require_modifier("arrive")?;
    let increments = !s.take("noinc");
    let shared = [("shared", Space::Shared), ("shared::cta", Space::Shared)];
    let space = s.choose(&shared).unwrap_or(Space::Generic);
    s.ty(&[Scalar::B64])?;
    let barrier = s.address(space)?;
    Ok(Operation::ArriveAfterCopies { barrier, space, increments })
}

fn copy(s: &mut Statement<'_>) -> Result<Operation, Reason> {
    let only_16 = s.require(&[("ca", false), ("cg", true)], "'.ca' or '.cg'")?;
    s.require(&[("shared", ()), ("shared::cta", ())], "'.shared'")?;
    s.require_modifier("global")?;
    s.choose(&PREFETCHES);
    let (to, from) = (s.address(Space::Shared)?, s.address(Space::Global)?);
    let bytes = s.constant()?;
    let is_legal = if only_16 { bytes == 16 } else { matches!(bytes, 4 | 8 | 16) };
    if !is_legal {
        return s.unsupported("an asynchronous copy of this many bytes");
    }
    let source_bytes =
        if s.has_operand() { s.source(Scalar::U32)? } else { Source::Immediate(bytes) };
    let copy = CopyAsync { to, from, bytes: bytes as u32, source_bytes };
    Ok(Operation::CopyAsync(Box::new(copy)))
}
