//! Which operation an instruction is, by families of opcodes.

mod barrier;
mod control;
mod convert;
mod copy;
mod float;
mod integer;
mod logic;
mod matrix;
mod memory;
mod movement;
mod warp;

use super::statement::Statement;
use crate::error::Reason;
use crate::isa::operation::Operation;
use crate::isa::types::Scalar;

/// Refuses instructions of PTX that the emulator does not run, whatever follows them.
pub(crate) fn supported(opcode: &str) -> Result<(), Reason> {
    let what = match opcode {
        "tcgen05" => "'tcgen05' (the tensor memory of sm_100)",
        "call" => "'call' (functions)",
        "tex" | "tld4" | "txq" | "suld" | "sust" | "sured" | "suq" => "a texture or a surface",
        "wmma" => "'wmma' (only 'mma' and 'wgmma')",
        "brx" => "'brx' (branches by index)",
        _ => return Ok(()),
    };
    Err(Reason::Unsupported(what.to_owned()))
}

/// The operation of a statement. The target of a branch is left for the caller to fill in.
pub(crate) fn operation(s: &mut Statement<'_>) -> Result<Operation, Reason> {
    let is_float = s.last_type().is_some_and(|ty| {
        matches!(
            ty,
            Scalar::F16 | Scalar::F16x2 | Scalar::Bf16 | Scalar::Bf16x2 | Scalar::F32 | Scalar::F64
        )
    });
    match s.opcode {
        "add" | "sub" | "mul" | "mad" | "div" | "min" | "max" | "neg" | "abs" if is_float => {
            float::parse(s)
        }
        "fma" | "rcp" | "sqrt" | "rsqrt" | "ex2" | "lg2" | "sin" | "cos" | "tanh" | "copysign" => {
            float::parse(s)
        }
        "and" | "or" | "xor" | "not" if s.last_type() == Some(Scalar::Pred) => logic::predicate(s),
        "add" | "sub" | "mul" | "mad" | "div" | "rem" | "sad" | "min" | "max" | "neg" | "abs"
        | "and" | "or" | "xor" | "not" | "shl" | "shr" | "popc" | "clz" | "brev" | "bfind"
        | "bfe" | "bfi" | "lop3" | "prmt" | "shf" => integer::parse(s),
        "setp" => logic::setp(s),
        "selp" => logic::selp(s),
        "cvt" => convert::parse(s),
        "mov" => movement::mov(s),
        "cvta" => movement::cvta(s),
        "isspacep" => movement::isspacep(s),
        "ld" => memory::load(s),
        "st" => memory::store(s),
        "atom" => memory::atom(s),
        "red" => memory::red(s),
        "prefetch" => memory::prefetch(s),
        "cp" => copy::parse(s),
        "ldmatrix" | "stmatrix" => matrix::access(s),
        "mma" => matrix::mma(s),
        "wgmma" => matrix::wgmma(s),
        "shfl" => warp::shuffle(s),
        "vote" => warp::vote(s),
        "match" => warp::matching(s),
        "redux" => warp::reduce(s),
        "elect" => warp::elect(s),
        "activemask" => warp::active_mask(s),
        "bar" | "barrier" => barrier::block(s),
        "mbarrier" => barrier::memory(s),
        "membar" | "fence" => barrier::fence(s),
        "bra" | "ret" | "exit" | "trap" | "nanosleep" | "setmaxnreg" | "griddepcontrol" => {
            control::parse(s)
        }
        opcode => Err(Reason::Instruction(opcode.to_owned())),
    }
}
