//! Loads, stores and atomics.

use super::movement::SPACES;
use crate::error::Reason;
use crate::isa::operand::{Source, Space};
use crate::isa::operation::{Access, Atomic, AtomicOp, Operation};
use crate::isa::types::Scalar;
use crate::parse::statement::Statement;

const TYPES: [Scalar; 14] = [
    Scalar::B8,
    Scalar::U8,
    Scalar::S8,
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
const SCOPES: [(&str, ()); 4] = [("cta", ()), ("cluster", ()), ("gpu", ()), ("sys", ())];
/// Which caches keep what is accessed: without effect on values.
const LOAD_CACHES: [(&str, ()); 5] = [("ca", ()), ("cg", ()), ("cs", ()), ("lu", ()), ("cv", ())];
const STORE_CACHES: [(&str, ()); 4] = [("wb", ()), ("cg", ()), ("cs", ()), ("wt", ())];
const EVICTIONS: [(&str, ()); 6] = [
    ("L1::evict_normal", ()),
    ("L1::evict_unchanged", ()),
    ("L1::evict_first", ()),
    ("L1::evict_last", ()),
    ("L1::no_allocate", ()),
    ("L2::evict_normal", ()),
];
pub(super) const PREFETCHES: [(&str, ()); 3] =
    [("L2::64B", ()), ("L2::128B", ()), ("L2::256B", ())];
const VECTORS: [(&str, usize); 2] = [("v2", 2), ("v4", 4)];
/// The most that one access of a thread moves.
const MOST_BYTES: usize = 16;

pub(super) fn load(s: &mut Statement<'_>) -> Result<Operation, Reason> {
    ordering(s, "acquire")?;
    let space = s.choose(&SPACES).unwrap_or(Space::Generic);
    s.choose(&LOAD_CACHES);
    if space == Space::Global {
        s.take("nc");
    }
    s.choose(&EVICTIONS);
    s.choose(&PREFETCHES);
    let (count, ty) = elements(s)?;
    let (register_bits, destinations) = s.load_destinations(ty, count)?;
    let address = s.address(space)?;
    let sources = Box::default();
    Ok(Operation::Load(Box::new(Access {
        space,
        ty,
        register_bits,
        address,
        destinations,
        sources,
    })))
}

pub(super) fn store(s: &mut Statement<'_>) -> Result<Operation, Reason> {
    ordering(s, "release")?;
    let space = s.choose(&SPACES).unwrap_or(Space::Generic);
    if matches!(space, Space::Param | Space::Const) {
        return s.unsupported("a store to constant memory or parameters");
    }
    s.choose(&STORE_CACHES);
    s.choose(&EVICTIONS);
    let (count, ty) = elements(s)?;
    let address = s.address(space)?;
    let (register_bits, sources) = s.store_sources(ty, count)?;
    let destinations = Box::default();
    Ok(Operation::Store(Box::new(Access {
        space,
        ty,
        register_bits,
        address,
        destinations,
        sources,
    })))
}

/// `.weak`, `.volatile`, or an order and its scope.
fn ordering(s: &mut Statement<'_>, order: &str) -> Result<(), Reason> {
    if s.take("weak") || s.take("volatile") {
        return Ok(());
    }
    if s.take("relaxed") || s.take(order) {
        s.require(&SCOPES, "a scope")?;
    }
    Ok(())
}

/// How many elements of which type.
fn elements(s: &mut Statement<'_>) -> Result<(usize, Scalar), Reason> {
    let count = s.choose(&VECTORS).unwrap_or(1);
    let ty = s.ty(&TYPES)?;
    if count * ty.bytes() > MOST_BYTES {
        return s.unsupported("a vector of more than 16 bytes");
    }
    Ok((count, ty))
}

const OPERATORS: [(&str, AtomicOp); 10] = [
    ("add", AtomicOp::Add),
    ("min", AtomicOp::Min),
    ("max", AtomicOp::Max),
    ("and", AtomicOp::And),
    ("or", AtomicOp::Or),
    ("xor", AtomicOp::Xor),
    ("exch", AtomicOp::Exchange),
    ("cas", AtomicOp::CompareAndSwap),
    ("inc", AtomicOp::Increment),
    ("dec", AtomicOp::Decrement),
];
const ATOMIC_SPACES: [(&str, Space); 3] =
    [("global", Space::Global), ("shared", Space::Shared), ("shared::cta", Space::Shared)];

fn atomic_types(op: AtomicOp) -> &'static [Scalar] {
    const BITS: [Scalar; 2] = [Scalar::B32, Scalar::B64];
    const ORDERED: [Scalar; 4] = [Scalar::U32, Scalar::S32, Scalar::U64, Scalar::S64];
    const SUMS: [Scalar; 5] = [Scalar::U32, Scalar::S32, Scalar::U64, Scalar::F32, Scalar::F64];
    const COUNTERS: [Scalar; 1] = [Scalar::U32];
    match op {
        AtomicOp::Add => &SUMS,
        AtomicOp::Min | AtomicOp::Max => &ORDERED,
        AtomicOp::Increment | AtomicOp::Decrement => &COUNTERS,
        _ => &BITS,
    }
}

/// Order, scope and space of an atomic, each at most once. The grammar has them in this order; Triton
/// writes them in the other and is understood by the assembler.
fn qualifiers(s: &mut Statement<'_>) -> Space {
    let (mut order, mut scope, mut space) = (None, None, None);
    loop {
        if order.is_none() {
            order = s.choose(&[("relaxed", ()), ("acquire", ()), ("release", ()), ("acq_rel", ())]);
            if order.is_some() {
                continue;
            }
        }
        if scope.is_none() {
            scope = s.choose(&SCOPES);
            if scope.is_some() {
                continue;
            }
        }
        if space.is_none() {
            space = s.choose(&ATOMIC_SPACES);
            if space.is_some() {
                continue;
            }
        }
        return space.unwrap_or(Space::Generic);
    }
}

fn atomic(s: &mut Statement<'_>, returns: bool) -> Result<Operation, Reason> {
    let space = qualifiers(s);
    let op = s.require(&OPERATORS, "an operator")?;
    let no_flush = op == AtomicOp::Add && s.take("noftz");
    // Vectors of sums in global memory alone (sm_90).
    let is_vector_sum = op == AtomicOp::Add && space == Space::Global && !no_flush;
    let before = if is_vector_sum { s.choose(&VECTORS) } else { None };
    let types: &[Scalar] = match (before, no_flush) {
        (Some(_), _) => &[Scalar::F32],
        (None, true) => &[Scalar::F16, Scalar::F16x2, Scalar::Bf16, Scalar::Bf16x2],
        (None, false) => atomic_types(op),
    };
    let ty = s.ty(types)?;
    let count = before.unwrap_or(1);
    let destinations = if returns { s.load_destinations(ty, count)?.1 } else { Box::default() };
    let address = s.address(space)?;
    let compare = if op == AtomicOp::CompareAndSwap { s.source(ty)? } else { Source::Immediate(0) };
    let (bits, values) = s.store_sources(ty, count)?;
    if bits != ty.bits() {
        return s.unsupported("a register wider than the atomic's type");
    }
    Ok(Operation::Atomic(Box::new(Atomic {
        op,
        ty,
        space,
        address,
        destinations,
        values,
        compare,
    })))
}

pub(super) fn atom(s: &mut Statement<'_>) -> Result<Operation, Reason> {
    atomic(s, true)
}

pub(super) fn red(s: &mut Statement<'_>) -> Result<Operation, Reason> {
    if s.has("exch") || s.has("cas") {
        return s.unsupported("'red' of an exchange");
    }
    atomic(s, false)
}

pub(super) fn prefetch(s: &mut Statement<'_>) -> Result<Operation, Reason> {
    let space = s.choose(&SPACES).unwrap_or(Space::Generic);
    s.require(&[("L1", ()), ("L2", ())], "a cache")?;
    s.address(space)?;
    Ok(Operation::Hint)
}
