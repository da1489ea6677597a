//! How values change type, and how registers are taken apart and joined.

use super::float::half_of;
use super::registers::LANES;
use super::step::Step;
use crate::isa::operand::{Destination, Source, Space};
use crate::isa::operation::Convert;
use crate::isa::types::{Class, Rounding, Scalar};
use crate::memory::address::{from_generic, to_generic, to_space};
use crate::numerics::rounding::{SINGLE, TF32, to_integral};
use crate::numerics::{half, single};

impl Step<'_> {
    pub(super) fn convert(&mut self, convert: &Convert) {
        let class = Class::of_bits(convert.register_bits);
        let a = self.read_bits(convert.from.class(), convert.s[0]);
        let values: [u64; LANES] = match convert.to {
            Scalar::F16x2 | Scalar::Bf16x2 => {
                let b = self.read_bits(Class::Word, convert.s[1]);
                std::array::from_fn(|lane| packed(convert, a[lane], b[lane]))
            }
            Scalar::Tf32 => a.map(|a| tf32(convert, a)),
            _ => a.map(|a| scalar(convert, a)),
        };
        self.write_bits(class, convert.d, &values);
    }

    pub(super) fn pack(&mut self, class: Class, d: Destination, parts: &[Source], bits: u32) {
        let mut values = [0_u64; LANES];
        for (at, part) in parts.iter().enumerate() {
            let part = self.read_bits(Class::of_bits(bits), *part);
            for (value, part) in values.iter_mut().zip(part) {
                *value |= (part & ((1 << bits) - 1)) << (at as u32 * bits);
            }
        }
        self.write_bits(class, d, &values);
    }

    pub(super) fn unpack(&mut self, class: Class, a: Source, parts: &[Destination], bits: u32) {
        let values = self.read_bits(class, a);
        for (at, part) in parts.iter().enumerate() {
            let part_of = |value: u64| value >> (at as u32 * bits) & ((1 << bits) - 1);
            self.write_bits(Class::of_bits(bits), *part, &values.map(part_of));
        }
    }

    pub(super) fn convert_address(&mut self, from: Space, to: Space, d: Destination, a: Source) {
        self.map1(d, a, |address: u64| match (from, to) {
            (Space::Generic, space) => to_space(space, address),
            (space, _) => to_generic(space, address),
        });
    }

    pub(super) fn is_space(&mut self, space: Space, d: Destination, a: Source) {
        let addresses = self.read::<u64>(a);
        let lies = |address: u64| from_generic(address).0 == space;
        let mask = (0..LANES).fold(0, |mask, at| mask | u32::from(lies(addresses[at])) << at);
        self.write_predicate(d, mask);
    }
}

/// Bits of a value sign-extended to a register of some width, if the type is signed.
pub(super) fn extend(ty: Scalar, bits: u64, register_bits: u32) -> u64 {
    let mask = |bits: u32| if bits >= 64 { u64::MAX } else { (1 << bits) - 1 };
    let value = bits & mask(ty.bits());
    if ty.is_signed() && ty.bits() < 64 && value >> (ty.bits() - 1) & 1 == 1 {
        (value | !mask(ty.bits())) & mask(register_bits)
    } else {
        value
    }
}

/// A number of any type.
enum Number {
    Integer(i128),
    Float(f64),
}

fn decode(ty: Scalar, bits: u64, flush: bool) -> Number {
    match ty {
        Scalar::F32 => {
            let value = f32::from_bits(bits as u32);
            Number::Float(if flush { single::flush(value) } else { value }.into())
        }
        Scalar::F64 => Number::Float(f64::from_bits(bits)),
        Scalar::F16 | Scalar::Bf16 => Number::Float(half::decode(half_of(ty), bits as u16).into()),
        _ => {
            let extended = extend(ty, bits, 64);
            Number::Integer(if ty.is_signed() {
                extended.cast_signed().into()
            } else {
                extended.into()
            })
        }
    }
}

fn scalar(convert: &Convert, bits: u64) -> u64 {
    let Convert { to, from, rounding, integral, mode, register_bits, .. } = *convert;
    let flush = mode.flush && from == Scalar::F32;
    match (decode(from, bits, flush), to) {
        (number, Scalar::F32 | Scalar::F64 | Scalar::F16 | Scalar::Bf16) => {
            let value = match number {
                Number::Integer(value) => return from_integer(convert, value),
                Number::Float(value) if integral => to_integral(value, rounding),
                Number::Float(value) => value,
            };
            let rounding = if integral { Rounding::Nearest } else { rounding };
            encode(convert, value, rounding)
        }
        (Number::Float(value), _) => {
            extend(to, to_integer(to, from, value, rounding), register_bits)
        }
        (Number::Integer(value), _) if mode.saturate => {
            let (least, most) = range(to);
            extend(to, value.clamp(least, most) as u64, register_bits)
        }
        (Number::Integer(value), _) => extend(to, value as u64, register_bits),
    }
}

fn range(ty: Scalar) -> (i128, i128) {
    if ty.is_signed() {
        let most = (1_i128 << (ty.bits() - 1)) - 1;
        (-most - 1, most)
    } else {
        (0, (1_i128 << ty.bits()) - 1)
    }
}

/// Values outside the range give its ends. NaN gives 0, or the number with the highest bit alone where
/// the type or the float has 64 bits (PTX ISA, `cvt`).
fn to_integer(to: Scalar, from: Scalar, value: f64, rounding: Rounding) -> u64 {
    if value.is_nan() {
        let is_wide = from == Scalar::F64 || to.bits() == 64;
        return if is_wide { 1 << (to.bits() - 1) } else { 0 };
    }
    let (least, most) = range(to);
    // The cast saturates.
    (to_integral(value, rounding) as i128).clamp(least, most) as u64
}

fn encode(convert: &Convert, value: f64, rounding: Rounding) -> u64 {
    let mode = convert.mode;
    let value = if mode.saturate {
        if value > 0.0 { value.min(1.0) } else { 0.0 }
    } else if mode.relu && value <= 0.0 {
        0.0
    } else {
        value
    };
    match convert.to {
        Scalar::F64 => value.to_bits(),
        Scalar::F32 => {
            let rounded = SINGLE.round(value, rounding) as f32;
            let rounded = if mode.flush { single::flush(rounded) } else { rounded };
            u64::from(if rounded.is_nan() { single::NAN } else { rounded }.to_bits())
        }
        to => u64::from(half::encode(half_of(to), value, rounding)),
    }
}

/// An integer rounded once to a float.
fn from_integer(convert: &Convert, value: i128) -> u64 {
    let rounding = convert.rounding;
    if convert.to == Scalar::F64 {
        // To nearest, as `check` has made sure, or exact.
        return encode(convert, value as f64, Rounding::Nearest);
    }
    // An integer of up to 64 bits as binary64, rounded to odd, so that rounding again is exact.
    let mut wide = value as f64;
    let back = wide as i128;
    if back != value && wide.to_bits() & 1 == 0 {
        let outward = (value > back) == (value > 0);
        wide = f64::from_bits(if outward { wide.to_bits() + 1 } else { wide.to_bits() - 1 });
    }
    encode(convert, wide, rounding)
}

fn packed(convert: &Convert, upper: u64, lower: u64) -> u64 {
    let format = half_of(convert.to);
    let part = |bits: u64| {
        let value = f32::from_bits(bits as u32);
        let value = if convert.mode.relu && value <= 0.0 { 0.0 } else { value };
        let encoded = if convert.rounding == Rounding::Nearest {
            half::encode_single(format, value)
        } else {
            half::encode(format, value.into(), convert.rounding)
        };
        u64::from(encoded)
    };
    part(upper) << 16 | part(lower)
}

/// Rounds to 11 significant bits; the lowest 13 bits of the register become zero.
fn tf32(convert: &Convert, bits: u64) -> u64 {
    let value = f32::from_bits(bits as u32);
    if value.is_nan() {
        return u64::from(single::NAN.to_bits());
    }
    let value = if convert.mode.relu && value <= 0.0 { 0.0 } else { value };
    u64::from((TF32.round(value.into(), convert.rounding) as f32).to_bits())
}
