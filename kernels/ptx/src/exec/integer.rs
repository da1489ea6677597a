//! How integers are computed with.

use super::registers::{Integer, LANES, Lane};
use super::step::{Done, Step, lanes_of, raise};
use crate::fault::FaultKind;
use crate::isa::operand::{Destination, Source};
use crate::isa::operation::IntegerOp;
use crate::isa::types::Int;

impl Step<'_> {
    pub(super) fn integer(
        &mut self,
        op: IntegerOp,
        ty: Int,
        d: Destination,
        s: [Source; 4],
    ) -> Done {
        match (op, ty) {
            (IntegerOp::MulWide | IntegerOp::MadWide, _) => self.widening(op, ty, d, s),
            (
                IntegerOp::CountOnes
                | IntegerOp::CountLeadingZeros
                | IntegerOp::FindMostSignificant
                | IntegerOp::FindMostSignificantShift,
                _,
            ) => self.counting(op, ty, d, s[0]),
            (IntegerOp::Div | IntegerOp::Rem, Int::U16) => return self.divide::<u16>(op, d, s),
            (IntegerOp::Div | IntegerOp::Rem, Int::S16) => return self.divide::<i16>(op, d, s),
            (IntegerOp::Div | IntegerOp::Rem, Int::U32) => return self.divide::<u32>(op, d, s),
            (IntegerOp::Div | IntegerOp::Rem, Int::S32) => return self.divide::<i32>(op, d, s),
            (IntegerOp::Div | IntegerOp::Rem, Int::U64) => return self.divide::<u64>(op, d, s),
            (IntegerOp::Div | IntegerOp::Rem, Int::S64) => return self.divide::<i64>(op, d, s),
            (_, Int::U16) => self.integer_of::<u16>(op, d, s),
            (_, Int::S16) => self.integer_of::<i16>(op, d, s),
            (_, Int::U32) => self.integer_of::<u32>(op, d, s),
            (_, Int::S32) => self.integer_of::<i32>(op, d, s),
            (_, Int::U64) => self.integer_of::<u64>(op, d, s),
            (_, Int::S64) => self.integer_of::<i64>(op, d, s),
        }
        Ok(())
    }

    fn integer_of<T: Integer>(&mut self, op: IntegerOp, d: Destination, s: [Source; 4]) {
        let two = (s[0], s[1]);
        let three = (s[0], s[1], s[2]);
        let of = T::from_bits;
        match op {
            IntegerOp::Add => {
                self.map2(d, two, |a: T, b: T| of(a.bits().wrapping_add(b.bits())));
            }
            IntegerOp::Sub => {
                self.map2(d, two, |a: T, b: T| of(a.bits().wrapping_sub(b.bits())));
            }
            IntegerOp::AddSaturating => {
                self.map2(d, two, |a: T, b: T| clamp::<T>(a.wide() + b.wide()));
            }
            IntegerOp::SubSaturating => {
                self.map2(d, two, |a: T, b: T| clamp::<T>(a.wide() - b.wide()));
            }
            IntegerOp::MulLow => {
                self.map2(d, two, |a: T, b: T| of(a.bits().wrapping_mul(b.bits())));
            }
            IntegerOp::MulHigh => self.map2(d, two, high::<T>),
            IntegerOp::MadLow => self.map3(d, three, |a: T, b: T, c: T| {
                of(a.bits().wrapping_mul(b.bits()).wrapping_add(c.bits()))
            }),
            IntegerOp::MadHigh => {
                self.map3(d, three, |a: T, b: T, c: T| {
                    of(high(a, b).bits().wrapping_add(c.bits()))
                });
            }
            IntegerOp::Sad => self.map3(d, three, |a: T, b: T, c: T| {
                of((a.wide() - b.wide()).unsigned_abs() as u64).bits_plus(c)
            }),
            IntegerOp::Neg => self.map1(d, s[0], |a: T| of(a.bits().wrapping_neg())),
            IntegerOp::Abs => self.map1(d, s[0], |a: T| of(a.wide().unsigned_abs() as u64)),
            IntegerOp::Min => self.map2(d, two, |a: T, b: T| a.min(b)),
            IntegerOp::Max => self.map2(d, two, |a: T, b: T| a.max(b)),
            IntegerOp::And => self.map2(d, two, |a: T, b: T| of(a.bits() & b.bits())),
            IntegerOp::Or => self.map2(d, two, |a: T, b: T| of(a.bits() | b.bits())),
            IntegerOp::Xor => self.map2(d, two, |a: T, b: T| of(a.bits() ^ b.bits())),
            IntegerOp::Not => self.map1(d, s[0], |a: T| of(!a.bits())),
            IntegerOp::ReverseBits => {
                self.map1(d, s[0], |a: T| of(a.bits().reverse_bits() >> (64 - T::BITS)));
            }
            IntegerOp::ShiftLeft => {
                self.map2(d, two, |a: T, n: u32| of(if n >= T::BITS { 0 } else { a.bits() << n }));
            }
            // Amounts past the width act as the width.
            IntegerOp::ShiftRight => {
                self.map2(d, two, |a: T, n: u32| of((a.wide() >> n.min(T::BITS)) as u64));
            }
            IntegerOp::ExtractField => self.map3(d, three, extract::<T>),
            IntegerOp::InsertField => self.insert::<T>(d, s),
            IntegerOp::Logic3(table) => {
                self.map3(d, three, |a: u32, b: u32, c: u32| logic3(table, a, b, c));
            }
            IntegerOp::PermuteBytes => self.map3(d, three, permute),
            IntegerOp::FunnelLeft { wrap } => self.map3(d, three, |a: u32, b: u32, n: u32| {
                let n = if wrap { n % 32 } else { n.min(32) };
                ((join(a, b) << n) >> 32) as u32
            }),
            IntegerOp::FunnelRight { wrap } => self.map3(d, three, |a: u32, b: u32, n: u32| {
                let n = if wrap { n % 32 } else { n.min(32) };
                (join(a, b) >> n) as u32
            }),
            // Handled before the type is chosen.
            IntegerOp::Div
            | IntegerOp::Rem
            | IntegerOp::MulWide
            | IntegerOp::MadWide
            | IntegerOp::CountOnes
            | IntegerOp::CountLeadingZeros
            | IntegerOp::FindMostSignificant
            | IntegerOp::FindMostSignificantShift => {}
        }
    }

    /// Division truncates. A zero divisor gives what the PTX ISA calls an unspecified value.
    fn divide<T: Integer>(&mut self, op: IntegerOp, d: Destination, s: [Source; 4]) -> Done {
        let divisors = self.read::<T>(s[1]);
        if let Some(lane) = lanes_of(self.mask).find(|lane| divisors[*lane].bits() == 0) {
            return raise(FaultKind::Unspecified("an integer divided by zero"), lane);
        }
        let is_div = op == IntegerOp::Div;
        self.map2(d, (s[0], s[1]), |a: T, b: T| {
            // Lanes that do not execute may hold a zero.
            let (a, b) = (a.wide(), if b.bits() == 0 { 1 } else { b.wide() });
            T::from_bits(if is_div { a / b } else { a % b } as u64)
        });
        Ok(())
    }

    fn widening(&mut self, op: IntegerOp, ty: Int, d: Destination, s: [Source; 4]) {
        let (two, three) = ((s[0], s[1]), (s[0], s[1], s[2]));
        let adds = op == IntegerOp::MadWide;
        match ty {
            Int::U16 if adds => self.map3(d, three, |a: u16, b: u16, c: u32| {
                (u32::from(a) * u32::from(b)).wrapping_add(c)
            }),
            Int::U16 => self.map2(d, two, |a: u16, b: u16| u32::from(a) * u32::from(b)),
            Int::S16 if adds => self.map3(d, three, |a: i16, b: i16, c: i32| {
                (i32::from(a) * i32::from(b)).wrapping_add(c)
            }),
            Int::S16 => self.map2(d, two, |a: i16, b: i16| i32::from(a) * i32::from(b)),
            Int::S32 if adds => self.map3(d, three, |a: i32, b: i32, c: i64| {
                (i64::from(a) * i64::from(b)).wrapping_add(c)
            }),
            Int::S32 => self.map2(d, two, |a: i32, b: i32| i64::from(a) * i64::from(b)),
            _ if adds => self.map3(d, three, |a: u32, b: u32, c: u64| {
                (u64::from(a) * u64::from(b)).wrapping_add(c)
            }),
            _ => self.map2(d, two, |a: u32, b: u32| u64::from(a) * u64::from(b)),
        }
    }

    fn counting(&mut self, op: IntegerOp, ty: Int, d: Destination, a: Source) {
        match ty {
            Int::U64 => self.map1(d, a, |a: u64| count(op, a, 64)),
            // Of a negative number the most significant bit that is not a sign is looked for.
            Int::S64 => self.map1(d, a, |a: i64| count(op, (a ^ (a >> 63)) as u64, 64)),
            Int::S32 => self.map1(d, a, |a: i32| count(op, ((a ^ (a >> 31)) as u32).into(), 32)),
            _ => self.map1(d, a, |a: u32| count(op, a.into(), 32)),
        }
    }

    fn insert<T: Integer>(&mut self, d: Destination, s: [Source; 4]) {
        let (a, b) = (self.read::<T>(s[0]), self.read::<T>(s[1]));
        let (position, length) = (self.read::<u32>(s[2]), self.read::<u32>(s[3]));
        let values: [T; LANES] = std::array::from_fn(|lane| {
            let (position, length) = (position[lane] & 0xff, length[lane] & 0xff);
            if position >= T::BITS || length == 0 {
                return b[lane];
            }
            let ones = if length >= 64 { u64::MAX } else { (1 << length) - 1 };
            let field = ones << position;
            T::from_bits(b[lane].bits() & !field | (a[lane].bits() << position) & field)
        });
        self.write(d, &values);
    }
}

/// Addition on integers of one type, wrapping.
trait Plus: Integer {
    fn bits_plus(self, other: Self) -> Self {
        Self::from_bits(self.bits().wrapping_add(other.bits()))
    }
}

impl<T: Integer> Plus for T {}

fn high<T: Integer>(a: T, b: T) -> T {
    // The product of two 64-bit numbers fits 128 bits, as a signed one where they are signed.
    let product =
        if T::SIGNED { a.wide() * b.wide() } else { (a.wide() as u128 * b.wide() as u128) as i128 };
    T::from_bits((product >> T::BITS) as u64)
}

fn clamp<T: Integer>(value: i128) -> T {
    let most = (1_i128 << (T::BITS - 1)) - 1;
    T::from_bits(value.clamp(-most - 1, most) as u64)
}

/// `bfe`: bits past the top are the sign, or zero (PTX ISA, `bfe`).
fn extract<T: Integer>(a: T, position: u32, length: u32) -> T {
    let (position, length) = (position & 0xff, length & 0xff);
    if length == 0 {
        return T::from_bits(0);
    }
    let top = T::BITS - 1;
    let sign_at = (position + length - 1).min(top);
    let sign = T::SIGNED && a.bits() >> sign_at & 1 == 1;
    let shifted = if position > top { 0 } else { a.bits() >> position };
    // Bits of the operand that the field covers.
    let covered = length.min(T::BITS.saturating_sub(position));
    let ones = if covered >= 64 { u64::MAX } else { (1 << covered) - 1 };
    T::from_bits(if sign { shifted & ones | !ones } else { shifted & ones })
}

fn logic3(table: u8, a: u32, b: u32, c: u32) -> u32 {
    (0..8_u32)
        .filter(|row| table >> row & 1 == 1)
        .map(|row| {
            let pick = |value: u32, bit: u32| if row >> bit & 1 == 1 { value } else { !value };
            pick(a, 2) & pick(b, 1) & pick(c, 0)
        })
        .fold(0, |all, one| all | one)
}

/// Bit 3 of a selector asks for the sign of its byte in every bit.
fn permute(a: u32, b: u32, selectors: u32) -> u32 {
    let bytes = join(a, b).to_le_bytes();
    let result = std::array::from_fn(|at| {
        let selector = selectors >> (4 * at) & 0xf;
        let byte = bytes[(selector & 7) as usize];
        if selector & 8 == 0 {
            byte
        } else if byte & 0x80 != 0 {
            0xff
        } else {
            0
        }
    });
    u32::from_le_bytes(result)
}

/// `b` above `a`.
fn join(a: u32, b: u32) -> u64 {
    u64::from(b) << 32 | u64::from(a)
}

fn count(op: IntegerOp, a: u64, width: u32) -> u32 {
    let leading = a.leading_zeros() - (64 - width);
    match op {
        IntegerOp::CountOnes => a.count_ones(),
        IntegerOp::CountLeadingZeros => leading,
        _ if a == 0 => u32::MAX,
        IntegerOp::FindMostSignificant => width - 1 - leading,
        _ => leading,
    }
}

/// The least or greatest of two values, or any other operator of atomics on integers.
pub(super) fn combine<T: Integer + Lane>(
    op: crate::isa::operation::AtomicOp,
    old: T,
    value: T,
) -> T {
    use crate::isa::operation::AtomicOp as Op;
    let (a, b) = (old.bits(), value.bits());
    match op {
        Op::Add => T::from_bits(a.wrapping_add(b)),
        Op::Min => old.min(value),
        Op::Max => old.max(value),
        Op::And => T::from_bits(a & b),
        Op::Or => T::from_bits(a | b),
        Op::Xor => T::from_bits(a ^ b),
        Op::Exchange | Op::CompareAndSwap => value,
        Op::Increment => T::from_bits(if a >= b { 0 } else { a + 1 }),
        Op::Decrement => T::from_bits(if a == 0 || a > b { b } else { a - 1 }),
    }
}
