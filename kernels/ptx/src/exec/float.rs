//! How floating-point numbers and predicates are computed with.

use super::registers::LANES;
use super::step::Step;
use crate::isa::operand::{Condition, Destination, Source};
use crate::isa::operation::{Comparison, FloatMode, FloatOp, LogicOp, Setp};
use crate::isa::types::{Class, Half, Int, Scalar};
use crate::numerics::{half, single};

/// The NaN of arithmetic, from any.
fn canonical(x: f32) -> f32 {
    if x.is_nan() { single::NAN } else { x }
}

impl Step<'_> {
    pub(super) fn single(&mut self, op: FloatOp, mode: FloatMode, d: Destination, s: [Source; 3]) {
        // The common cases, without a decision in each lane.
        if mode == FloatMode::NEAREST {
            let two = (s[0], s[1]);
            match op {
                FloatOp::Add => {
                    return self.map2(d, two, |a: f32, b: f32| canonical(a + b));
                }
                FloatOp::Sub => {
                    return self.map2(d, two, |a: f32, b: f32| canonical(a - b));
                }
                FloatOp::Mul => {
                    return self.map2(d, two, |a: f32, b: f32| canonical(a * b));
                }
                FloatOp::Fma => {
                    let fused = |a: f32, b: f32, c: f32| canonical(a.mul_add(b, c));
                    return self.map3(d, (s[0], s[1], s[2]), fused);
                }
                _ => {}
            }
        }
        let policy = self.context.options.policy;
        self.map3(d, (s[0], s[1], s[2]), |a: f32, b: f32, c: f32| {
            single::evaluate(op, mode, policy, [a, b, c])
        });
    }

    /// Binary64 to nearest. NaN has the payload of the host.
    pub(super) fn double(&mut self, op: FloatOp, d: Destination, s: [Source; 3]) {
        self.map3(d, (s[0], s[1], s[2]), |a: f64, b: f64, c: f64| double(op, a, b, c));
    }

    pub(super) fn halves(
        &mut self,
        op: FloatOp,
        (format, packed): (Half, bool),
        mode: FloatMode,
        d: Destination,
        s: [Source; 3],
    ) {
        let policy = self.context.options.policy;
        self.map3(d, (s[0], s[1], s[2]), |a: u32, b: u32, c: u32| {
            let part = |shift: u32| {
                let s = [a, b, c].map(|value| (value >> shift) as u16);
                u32::from(half::evaluate(op, format, mode, policy, s)) << shift
            };
            if packed { part(0) | part(16) } else { part(0) }
        });
    }

    pub(super) fn setp(&mut self, setp: &Setp) {
        let Setp { comparison, ty, flush, a, b, .. } = *setp;
        let holds = match ty {
            Scalar::F32 if flush => self.compare(a, b, |a: f32, b: f32| {
                ordered(comparison, single::flush(a).into(), single::flush(b).into())
            }),
            Scalar::F32 => {
                self.compare(a, b, |a: f32, b: f32| ordered(comparison, a.into(), b.into()))
            }
            Scalar::F64 => self.compare(a, b, |a: f64, b: f64| ordered(comparison, a, b)),
            Scalar::F16 | Scalar::Bf16 => {
                let format = if ty == Scalar::F16 { Half::F16 } else { Half::Bf16 };
                let value = move |bits: u16| f64::from(half::decode(format, bits));
                self.compare(a, b, |a: u16, b: u16| ordered(comparison, value(a), value(b)))
            }
            _ => match ty.integer().or(ty.untyped()) {
                Some(Int::S16) => self.compare(a, b, |a: i16, b: i16| total(comparison, a, b)),
                Some(Int::U16) => self.compare(a, b, |a: u16, b: u16| total(comparison, a, b)),
                Some(Int::S32) => self.compare(a, b, |a: i32, b: i32| total(comparison, a, b)),
                Some(Int::S64) => self.compare(a, b, |a: i64, b: i64| total(comparison, a, b)),
                Some(Int::U64) => self.compare(a, b, |a: u64, b: u64| total(comparison, a, b)),
                _ => self.compare(a, b, |a: u32, b: u32| total(comparison, a, b)),
            },
        };
        let (p, q) = match setp.combine {
            None => (holds, !holds),
            Some((op, c)) => {
                let c = self.condition(c);
                (logic(op, holds, c), logic(op, !holds, c))
            }
        };
        self.write_predicate(setp.p, p);
        self.write_predicate(setp.q, q);
    }

    fn compare<T: super::registers::Lane>(
        &self,
        a: Source,
        b: Source,
        holds: impl Fn(T, T) -> bool,
    ) -> u32 {
        let (a, b) = (self.read(a), self.read(b));
        (0..LANES).fold(0, |mask, lane| mask | u32::from(holds(a[lane], b[lane])) << lane)
    }

    pub(super) fn select(
        &mut self,
        class: Class,
        d: Destination,
        (a, b): (Source, Source),
        condition: Condition,
    ) {
        let chosen = self.condition(condition);
        if class == Class::Long {
            let (a, b) = (self.read::<u64>(a), self.read::<u64>(b));
            let pick = |lane| if chosen >> lane & 1 == 1 { a[lane] } else { b[lane] };
            let values = std::array::from_fn(pick);
            self.write(d, &values);
        } else {
            let (a, b) = (self.read::<u32>(a), self.read::<u32>(b));
            let pick = |lane| if chosen >> lane & 1 == 1 { a[lane] } else { b[lane] };
            let values = std::array::from_fn(pick);
            self.write(d, &values);
        }
    }

    pub(super) fn logic(&mut self, op: LogicOp, d: Destination, a: Condition, b: Condition) {
        let value = logic(op, self.condition(a), self.condition(b));
        self.write_predicate(d, value);
    }
}

const fn logic(op: LogicOp, a: u32, b: u32) -> u32 {
    match op {
        LogicOp::First => a,
        LogicOp::Not => !a,
        LogicOp::And => a & b,
        LogicOp::Or => a | b,
        LogicOp::Xor => a ^ b,
    }
}

fn double(op: FloatOp, a: f64, b: f64, c: f64) -> f64 {
    match op {
        FloatOp::Add => a + b,
        FloatOp::Sub => a - b,
        FloatOp::Mul => a * b,
        FloatOp::Fma => a.mul_add(b, c),
        FloatOp::Div => a / b,
        FloatOp::Rcp => 1.0 / a,
        FloatOp::Sqrt => a.sqrt(),
        FloatOp::Neg => -a,
        FloatOp::Abs => a.abs(),
        FloatOp::CopySign => b.copysign(a),
        FloatOp::Min { .. } => extremum(a, b, false),
        FloatOp::Max { .. } => extremum(a, b, true),
        // No other operator is read in this format.
        _ => f64::NAN,
    }
}

/// One NaN gives the other operand; `+0` is greater than `-0`.
fn extremum(a: f64, b: f64, greater: bool) -> f64 {
    if a.is_nan() {
        b
    } else if b.is_nan() {
        a
    } else if a == b {
        if a.is_sign_negative() == greater { b } else { a }
    } else if (a > b) == greater {
        a
    } else {
        b
    }
}

fn total<T: Ord + Copy>(comparison: Comparison, a: T, b: T) -> bool {
    match comparison {
        Comparison::Equal => a == b,
        Comparison::NotEqual => a != b,
        Comparison::Less => a < b,
        Comparison::LessEqual => a <= b,
        Comparison::Greater => a > b,
        _ => a >= b,
    }
}

/// Ordered comparisons do not hold where an operand is NaN, not even `.ne`.
fn ordered(comparison: Comparison, a: f64, b: f64) -> bool {
    let nan = a.is_nan() || b.is_nan();
    match comparison {
        Comparison::Equal => a == b,
        Comparison::NotEqual => !nan && a != b,
        Comparison::Less => a < b,
        Comparison::LessEqual => a <= b,
        Comparison::Greater => a > b,
        Comparison::GreaterEqual => a >= b,
        Comparison::EqualOrNan => nan || a == b,
        Comparison::NotEqualOrNan => a != b,
        Comparison::LessOrNan => nan || a < b,
        Comparison::LessEqualOrNan => nan || a <= b,
        Comparison::GreaterOrNan => nan || a > b,
        Comparison::GreaterEqualOrNan => nan || a >= b,
        Comparison::BothNumbers => !nan,
        Comparison::AnyNan => nan,
    }
}

/// The format of a 16-bit type.
pub(super) const fn half_of(ty: Scalar) -> Half {
    match ty {
        Scalar::F16 | Scalar::F16x2 => Half::F16,
        _ => Half::Bf16,
    }
}
