//! Correct rounding into a binary format, in every direction.
//!
//! A result is first computed in binary64 *rounded to odd*: where it is inexact, its last bit is set.
//! Rounding such a number again to a format of at most 51 bits gives what rounding the exact result
//! once gives, in every rounding mode (Boldo, Melquiond: Emulation of FMA and correctly rounded sums,
//! IEEE Transactions on Computers 57, 2008).

use crate::isa::types::Rounding;

/// A format to round to.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Format {
    /// Significant bits, the hidden one included.
    pub(crate) precision: i32,
    /// Exponent of the smallest positive normal number.
    pub(crate) min_exponent: i32,
    /// The largest finite number.
    pub(crate) max: f64,
}

pub(crate) const SINGLE: Format =
    Format { precision: 24, min_exponent: -126, max: f32::MAX as f64 };
pub(crate) const F16: Format = Format { precision: 11, min_exponent: -14, max: 65504.0 };
/// The largest finite number is `(2 - 2^-7) 2^127`.
pub(crate) const BF16: Format =
    Format { precision: 8, min_exponent: -126, max: f32::from_bits(0x7f7f_0000) as f64 };
/// The largest finite number is `(2 - 2^-10) 2^127`.
pub(crate) const TF32: Format =
    Format { precision: 11, min_exponent: -126, max: f32::from_bits(0x7f7f_e000) as f64 };

/// `floor(log2 |x|)` of a finite number that is not zero.
pub(crate) fn exponent(x: f64) -> i32 {
    let biased = (x.to_bits() >> 52 & 0x7ff) as i32;
    if biased > 0 {
        biased - 1023
    } else {
        // A subnormal: its leading bit stands so far below the hidden one's place.
        let leading = 63 - (x.to_bits() & ((1 << 52) - 1)).leading_zeros() as i32;
        leading - 1074
    }
}

/// `2^n`, exact; `n` in `[-1022, 1023]`.
pub(crate) fn power(n: i32) -> f64 {
    f64::from_bits(((n + 1023) as u64) << 52)
}

/// `x` as an integer, kept as a float.
pub(crate) fn to_integral(x: f64, rounding: Rounding) -> f64 {
    match rounding {
        Rounding::Nearest => x.round_ties_even(),
        Rounding::NearestAway => x.round(),
        Rounding::Zero => x.trunc(),
        Rounding::Down => x.floor(),
        Rounding::Up => x.ceil(),
    }
}

impl Format {
    /// The format's value that `x` rounds to. Keeps NaN, infinities and the sign of zero.
    pub(crate) fn round(self, x: f64, rounding: Rounding) -> f64 {
        if x == 0.0 || !x.is_finite() {
            return x;
        }
        let least = self.min_exponent - (self.precision - 1);
        let quantum = (exponent(x) - (self.precision - 1)).max(least);
        // Scaling by a power of two is exact: `quantum` lies in [-149, 1000].
        let rounded = to_integral(x * power(-quantum), rounding) * power(quantum);
        if rounded.abs() <= self.max {
            return rounded.copysign(x);
        }
        let stays = match rounding {
            Rounding::Nearest | Rounding::NearestAway => false,
            Rounding::Zero => true,
            Rounding::Down => x > 0.0,
            Rounding::Up => x < 0.0,
        };
        if stays { self.max.copysign(x) } else { f64::INFINITY.copysign(x) }
    }
}

/// `nearest`, the exact result rounded to nearest, rounded to odd instead; `error` has the sign of
/// exact result minus `nearest`.
fn odd(nearest: f64, error: f64) -> f64 {
    if error == 0.0 || error.is_nan() || !nearest.is_finite() || nearest.to_bits() & 1 == 1 {
        return nearest;
    }
    if nearest == 0.0 {
        return f64::from_bits(1).copysign(error);
    }
    let outward = (error > 0.0) == (nearest > 0.0);
    f64::from_bits(if outward { nearest.to_bits() + 1 } else { nearest.to_bits() - 1 })
}

/// `a + b` to odd.
pub(crate) fn add(a: f64, b: f64) -> f64 {
    let sum = a + b;
    // Knuth's two-sum: the error of an addition is a number.
    let b_part = sum - a;
    let error = (a - (sum - b_part)) + (b - b_part);
    odd(sum, error)
}

/// `a b + c` to odd. The product must be exact in binary64: 26 bits a factor, no underflow.
pub(crate) fn multiply_add(a: f64, b: f64, c: f64) -> f64 {
    add(a * b, c)
}

/// `a / b` to odd, for factors of at most 26 bits.
pub(crate) fn divide(a: f64, b: f64) -> f64 {
    let quotient = a / b;
    if quotient == 0.0 || !quotient.is_finite() {
        return quotient;
    }
    let remainder = (-quotient).mul_add(b, a);
    odd(quotient, if b < 0.0 { -remainder } else { remainder })
}

/// `sqrt(x)` to odd.
pub(crate) fn square_root(x: f64) -> f64 {
    let root = x.sqrt();
    odd(root, (-root).mul_add(root, x))
}
