//! The exponential, and roundings to fewer bits than the accumulator has.

use flashproof_spec::format::Format;

use crate::cpu::element::Accumulator;

/// `x` rounded to `format`, as an accumulator.
pub(super) fn rounded<A: Accumulator>(format: Format, x: A) -> A {
    A::nearest(format.round(x.to_exact()))
}

/// `x` rounded to so many significant bits, ties away from zero.
pub(super) fn to_bits<A: Accumulator>(bits: u32, x: A) -> A {
    let dropped = f64::MANTISSA_DIGITS - bits;
    chopped(bits, x, 1 << (dropped - 1))
}

/// `x` cut off after so many significant bits.
pub(super) fn cut_to_bits<A: Accumulator>(bits: u32, x: A) -> A {
    chopped(bits, x, 0)
}

fn chopped<A: Accumulator>(bits: u32, x: A, added: u64) -> A {
    let x = x.to_exact();
    if !x.is_normal() {
        return A::nearest(x);
    }
    let kept = u64::MAX << (f64::MANTISSA_DIGITS - bits);
    A::nearest(f64::from_bits((x.to_bits() + added) & kept))
}

/// The number after `x` in the accumulator's format; zero, infinity and NaN as they are.
pub(super) fn next_up<A: Accumulator>(x: A) -> A {
    let exact = x.to_exact();
    if exact == 0.0 || !exact.is_finite() {
        return x;
    }
    match A::FORMAT {
        Format::F64 => A::from_exact(exact.next_up()),
        _ => A::from_exact(f64::from((exact as f32).next_up())),
    }
}
