//! Matrix products and the loads and stores of their operands.

use super::movement::SPACES;
use crate::error::Reason;
use crate::isa::matrix::{Factor, MatrixAccess, Mma, Wgmma, WgmmaA};
use crate::isa::operand::Space;
use crate::isa::operation::Operation;
use crate::isa::types::Scalar;
use crate::parse::statement::{Raw, Statement};

const FACTORS: [(&str, Factor); 3] =
    [("f16", Factor::F16), ("bf16", Factor::Bf16), ("tf32", Factor::Tf32)];

fn synchronous(s: &mut Statement<'_>) -> Result<(), Reason> {
    s.require_modifier("sync")?;
    s.require_modifier("aligned")
}

/// `ldmatrix` and `stmatrix` of 8 by 8 matrices.
pub(super) fn access(s: &mut Statement<'_>) -> Result<Operation, Reason> {
    synchronous(s)?;
    s.require_modifier("m8n8")?;
    let count = s.require(&[("x1", 1), ("x2", 2), ("x4", 4)], "a number of matrices")?;
    let transposed = s.take("trans");
    let space = s.choose(&SPACES).unwrap_or(Space::Generic);
    if !matches!(space, Space::Shared | Space::Generic) {
        return Err(s.bad_modifier("'.shared'"));
    }
    s.ty(&[Scalar::B16])?;
    if s.opcode == "ldmatrix" {
        let (destinations, sources) = (s.word_destinations(count)?, Box::default());
        let address = s.address(space)?;
        let access = MatrixAccess { transposed, space, address, destinations, sources };
        return Ok(Operation::LoadMatrix(Box::new(access)));
    }
    let address = s.address(space)?;
    let (destinations, sources) = (Box::default(), s.word_sources(count)?);
    let access = MatrixAccess { transposed, space, address, destinations, sources };
    Ok(Operation::StoreMatrix(Box::new(access)))
}

pub(super) fn mma(s: &mut Statement<'_>) -> Result<Operation, Reason> {
    synchronous(s)?;
    let k = s.require(&[("m16n8k4", 4), ("m16n8k8", 8), ("m16n8k16", 16)], "a known shape")?;
    s.require_modifier("row")?;
    s.require_modifier("col")?;
    s.require_modifier("f32")?;
    let factor = s.require(&FACTORS, "a format of factors")?;
    let second = s.require(&FACTORS, "a format of factors")?;
    s.require_modifier("f32")?;
    let is_legal = match factor {
        Factor::F16 | Factor::Bf16 => matches!(k, 8 | 16),
        Factor::Tf32 => matches!(k, 4 | 8),
    };
    if factor != second || !is_legal {
        return s.unsupported("this shape with these formats");
    }
    // A holds 16 x k elements and B k x 8, spread over 32 lanes.
    let per_lane = k / 2 / factor.per_register();
    let d = fixed(&s.word_destinations(4)?, None);
    let (a, b) = (s.word_sources(per_lane)?, s.word_sources(per_lane / 2)?);
    let c = s.word_sources(4)?;
    let c = [c[0], c[1], c[2], c[3]];
    Ok(Operation::Mma(Box::new(Mma { factor, k, d, a, b, c })))
}

fn fixed<T: Copy>(values: &[T], fill: T) -> [T; 4] {
    let mut all = [fill; 4];
    all.copy_from_slice(values);
    all
}

pub(super) fn wgmma(s: &mut Statement<'_>) -> Result<Operation, Reason> {
    if s.take("fence") {
        synchronous(s)?;
        return Ok(Operation::WgmmaFence);
    }
    if s.take("commit_group") {
        synchronous(s)?;
        return Ok(Operation::CommitWgmma);
    }
    if s.take("wait_group") {
        synchronous(s)?;
        let most = s.constant()?;
        let most = u32::try_from(most).map_err(|_| Reason::Number(most.to_string()))?;
        return Ok(Operation::WaitWgmma(most));
    }
    s.require_modifier("mma_async")?;
    synchronous(s)?;
    product(s)
}

/// Columns of a product `m64nNk16`: a multiple of 8 up to 256.
fn columns(shape: &str) -> Option<usize> {
    let n = shape.strip_prefix("m64n")?.strip_suffix("k16")?;
    let n = n.parse::<usize>().ok()?;
    (n > 0 && n <= 256 && n.is_multiple_of(8)).then_some(n)
}

fn product(s: &mut Statement<'_>) -> Result<Operation, Reason> {
    let n = s.read_modifier("a known shape", columns)?;
    s.require_modifier("f32")?;
    let factor = s.require(&FACTORS[..2], "a format of factors")?;
    let second = s.require(&FACTORS[..2], "a format of factors")?;
    if factor != second {
        return s.unsupported("factors of two formats");
    }
    // 64 x n sums over 128 lanes.
    let d = s.word_destinations(n / 2)?;
    let d = d.iter().copied().collect::<Option<Box<[u32]>>>();
    let d = d.ok_or_else(|| s.expected("registers", &Raw::Sink))?;
    let a = match s.peek_operand() {
        Some(Raw::Vector(_)) => WgmmaA::Registers({
            let a = s.word_sources(4)?;
            [a[0], a[1], a[2], a[3]]
        }),
        _ => WgmmaA::Shared(s.source(Scalar::B64)?),
    };
    let b = s.source(Scalar::B64)?;
    let accumulate = s.condition()?;
    let negate = negates(s)? != negates(s)?;
    let transpose_a = matches!(a, WgmmaA::Shared(_)) && transposes(s)?;
    let transpose_b = transposes(s)?;
    Ok(Operation::Wgmma(Box::new(Wgmma {
        factor,
        n,
        d,
        a,
        b,
        accumulate,
        negate,
        transpose_a,
        transpose_b,
    })))
}

/// A scale of 1 or -1.
fn negates(s: &mut Statement<'_>) -> Result<bool, Reason> {
    match s.constant()?.cast_signed() {
        1 => Ok(false),
        -1 => Ok(true),
        other => Err(Reason::Number(other.to_string())),
    }
}

fn transposes(s: &mut Statement<'_>) -> Result<bool, Reason> {
    match s.constant()? {
        0 => Ok(false),
        1 => Ok(true),
        other => Err(Reason::Number(other.to_string())),
    }
}
