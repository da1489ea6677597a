//! Conversions between types.

use crate::error::Reason;
use crate::isa::operand::Source;
use crate::isa::operation::{Convert, FloatMode, Operation};
use crate::isa::types::{Class, Rounding, Scalar};
use crate::parse::statement::Statement;

const ROUNDINGS: [(&str, (Rounding, bool)); 9] = [
    ("rn", (Rounding::Nearest, false)),
    ("rna", (Rounding::NearestAway, false)),
    ("rz", (Rounding::Zero, false)),
    ("rm", (Rounding::Down, false)),
    ("rp", (Rounding::Up, false)),
    ("rni", (Rounding::Nearest, true)),
    ("rzi", (Rounding::Zero, true)),
    ("rmi", (Rounding::Down, true)),
    ("rpi", (Rounding::Up, true)),
];

const INTEGERS: [Scalar; 8] = [
    Scalar::U8,
    Scalar::S8,
    Scalar::U16,
    Scalar::S16,
    Scalar::U32,
    Scalar::S32,
    Scalar::U64,
    Scalar::S64,
];
const FLOATS: [Scalar; 4] = [Scalar::F16, Scalar::Bf16, Scalar::F32, Scalar::F64];

/// Significant bits; how much of a value a conversion can keep.
fn precision(ty: Scalar) -> u32 {
    match ty {
        Scalar::F64 => 53,
        Scalar::F32 => 24,
        Scalar::F16 => 11,
        _ => 8,
    }
}

pub(super) fn parse(s: &mut Statement<'_>) -> Result<Operation, Reason> {
    let rounding = s.choose(&ROUNDINGS);
    let relu = s.take("relu");
    let flush = s.take("ftz");
    let saturate = s.take("sat");
    let mode = FloatMode { rounding: Rounding::Nearest, flush, saturate, relu };
    if s.has("f16x2") || s.has("bf16x2") {
        return packed(s, rounding, mode);
    }
    if s.has("tf32") {
        return tf32(s, rounding, mode);
    }
    let types = [&INTEGERS[..], &FLOATS].concat();
    let to = s.ty(&types)?;
    let from = s.ty(&types)?;
    check(s, to, from, rounding, mode)?;
    let (rounding, integral) = rounding.unwrap_or((Rounding::Nearest, false));
    // Registers may be wider than the types: a part of them is converted.
    let (register_bits, d) = s.load_destinations(to, 1)?;
    let (source_bits, a) = s.store_sources(from, 1)?;
    if Class::of_bits(source_bits) != from.class() || Class::of_bits(register_bits) != to.class() {
        return s.unsupported("a conversion of part of a 64-bit register");
    }
    let (d, s) = (d[0], [a[0], Source::Immediate(0)]);
    Ok(Operation::Convert(Box::new(Convert {
        to,
        from,
        rounding,
        integral,
        mode,
        register_bits,
        d,
        s,
    })))
}

/// Refuses roundings where there is nothing to round, and their absence where there is.
fn check(
    s: &Statement<'_>,
    to: Scalar,
    from: Scalar,
    rounding: Option<(Rounding, bool)>,
    mode: FloatMode,
) -> Result<(), Reason> {
    let (to_float, from_float) = (FLOATS.contains(&to), FLOATS.contains(&from));
    let narrows = from_float && to_float && precision(to) < precision(from);
    let same = to == from;
    let is_legal = match rounding {
        Some((Rounding::NearestAway, _)) => false,
        Some((_, true)) => from_float && (!to_float || same),
        Some((_, false)) => narrows || (to_float && !from_float),
        None if to_float && from_float => !narrows,
        None => !to_float && !from_float,
    };
    // bf16 holds what f16 does not, and the other way round.
    let is_between_halves = from_float && to_float && from.bits() == 16 && to.bits() == 16 && !same;
    let has_f64 = to == Scalar::F64 || from == Scalar::F64;
    let to_half = matches!(to, Scalar::F16 | Scalar::Bf16);
    let single = to == Scalar::F32 || from == Scalar::F32;
    if !is_legal || is_between_halves {
        return s.unsupported("this rounding of this conversion");
    }
    if mode.relu && !(to_half && from == Scalar::F32) {
        return s.unsupported("'.relu' of this conversion");
    }
    if mode.flush && !single {
        return s.unsupported("'.ftz' of this conversion");
    }
    let directed = matches!(rounding, Some((Rounding::Down | Rounding::Up, false)));
    if directed && (to_half || has_f64) && from_float {
        return s.unsupported("directed rounding of this conversion");
    }
    let wide_integer = matches!(from, Scalar::U64 | Scalar::S64);
    if rounding.is_some_and(|(rounding, _)| rounding != Rounding::Nearest)
        && to == Scalar::F64
        && wide_integer
    {
        return s.unsupported("directed rounding to f64");
    }
    Ok(())
}

/// Two numbers into the halves of a register; the first operand into the upper one.
fn packed(
    s: &mut Statement<'_>,
    rounding: Option<(Rounding, bool)>,
    mode: FloatMode,
) -> Result<Operation, Reason> {
    let to = s.ty(&[Scalar::F16x2, Scalar::Bf16x2])?;
    let from = s.ty(&[Scalar::F32])?;
    let Some((rounding @ (Rounding::Nearest | Rounding::Zero), false)) = rounding else {
        return s.unsupported("this rounding of a packed conversion");
    };
    if mode.flush || mode.saturate {
        return s.unsupported("'.ftz' or '.sat' of a packed conversion");
    }
    let d = s.destination(to)?;
    let sources = [s.source(from)?, s.source(from)?];
    let convert =
        Convert { to, from, rounding, integral: false, mode, register_bits: 32, d, s: sources };
    Ok(Operation::Convert(Box::new(convert)))
}

fn tf32(
    s: &mut Statement<'_>,
    rounding: Option<(Rounding, bool)>,
    mode: FloatMode,
) -> Result<Operation, Reason> {
    let (to, from) = (s.ty(&[Scalar::Tf32])?, s.ty(&[Scalar::F32])?);
    let rounding = match rounding {
        Some((rounding, false)) if !matches!(rounding, Rounding::Down | Rounding::Up) => rounding,
        _ => return s.unsupported("this rounding to tf32"),
    };
    if mode.flush || mode.saturate || (mode.relu && rounding == Rounding::NearestAway) {
        return s.unsupported("this modifier of a conversion to tf32");
    }
    let (d, a) = (s.destination(to)?, s.source(from)?);
    let s = [a, Source::Immediate(0)];
    let convert = Convert { to, from, rounding, integral: false, mode, register_bits: 32, d, s };
    Ok(Operation::Convert(Box::new(convert)))
}
