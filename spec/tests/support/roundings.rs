//! Roundings that are chosen, for kernels that compute in 160 bits.
//!
//! Such a kernel asks what each operation loses: up to the unit roundoff of the operation's format
//! in either direction, which is more freedom than any machine has.
#![allow(dead_code)] // each test program uses a part of it

use flashproof_spec::format::Format;
use flashproof_spec::profile::Profile;
use rug::Float;

/// Bits that the kernel computes in: its own roundings are no part of any comparison.
pub const BITS: u32 = 160;

pub fn big(x: f64) -> Float {
    Float::with_val(BITS, x)
}

/// `moved`, a result for `exact`; infinity where it is past the largest number of the format, but not
/// where the exact one rounds to that.
fn overflowing(exact: &Float, moved: Float, format: Format) -> Float {
    let largest = big(format.max_finite());
    if Float::with_val(BITS, moved.abs_ref()) <= largest {
        return moved;
    }
    let half_ulp = Float::with_val(BITS, &largest * format.unit_roundoff()) / 2_u32;
    let fits = Float::with_val(BITS, exact.abs_ref()) < Float::with_val(BITS, &largest + &half_ulp);
    let magnitude = if fits { largest } else { big(f64::INFINITY) };
    if moved.is_sign_negative() { -magnitude } else { magnitude }
}

/// `x` in units of its last place in the format, rounded to an integer.
fn on_grid(x: Float, format: Format, rounding: fn(Float) -> Float) -> Float {
    let Some(exponent) = x.get_exp() else { return x };
    let quantum = (exponent - format.precision() as i32).max(format.min_quantum());
    let rounded = rounding(x >> quantum) << quantum;
    if Float::with_val(BITS, rounded.abs_ref()) <= format.max_finite() {
        return rounded;
    }
    big(if rounded.is_sign_negative() { f64::NEG_INFINITY } else { f64::INFINITY })
}

/// What each rounding does, in the order in which the kernel comes to them.
pub struct Roundings<'p> {
    /// Between -1 and 1: the share of the largest error. 0 past the end.
    plan: &'p [f64],
    taken: usize,
    keeping: Keeping,
}

/// How weights and results are rounded to their formats.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keeping {
    /// As chosen.
    Chosen,
    /// To nearest.
    Nearest,
    /// Weights towards zero, results to nearest.
    TruncatedWeights,
}

impl<'p> Roundings<'p> {
    pub fn new(plan: &'p [f64]) -> Self {
        Self { plan, taken: 0, keeping: Keeping::Chosen }
    }

    /// Chosen roundings, but for those of weights and results to their formats.
    pub fn keeping(plan: &'p [f64], keeping: Keeping) -> Self {
        Self { keeping, ..Self::new(plan) }
    }

    /// How many roundings there were.
    pub fn taken(&self) -> usize {
        self.taken
    }

    /// Passes over roundings that a kernel does not come to, so that the plan stays in step.
    pub fn pass(&mut self, count: usize) {
        self.taken += count;
    }

    /// The share of the next rounding.
    fn next(&mut self) -> f64 {
        self.taken += 1;
        self.plan.get(self.taken - 1).copied().unwrap_or(0.0)
    }

    /// `x` as a result in `format`: off by `u/(1 + u)` of it, or by half the smallest subnormal
    /// (`FAS:num.format.rounding`). Zero and infinity are themselves; past the largest
    /// number lies infinity.
    pub fn round(&mut self, x: Float, format: Format) -> Float {
        let share = self.next();
        if !x.is_finite() {
            return x;
        }
        let u = big(format.unit_roundoff());
        let lost = if Float::with_val(BITS, x.abs_ref()) < format.smallest_normal() {
            if x.is_zero() { big(0.0) } else { big(format.smallest_subnormal()) / 2_u32 }
        } else {
            x.clone() * &u / (u.clone() + 1)
        };
        let moved = Float::with_val(BITS, &x + lost * share);
        overflowing(&x, moved, format)
    }

    /// `x` rounded to a format narrower than the arithmetic's; otherwise `x`, which it is already.
    pub fn narrow(&mut self, x: Float, format: Format, profile: &Profile) -> Float {
        if format == profile.arithmetic { x } else { self.round(x, format) }
    }

    /// A weight in its format.
    pub fn weight(&mut self, x: Float, profile: &Profile) -> Float {
        let format = profile.weight_format;
        match self.keeping {
            _ if format == profile.arithmetic => x,
            Keeping::Chosen => self.round(x, format),
            Keeping::Nearest => on_grid(x, format, Float::round_even),
            Keeping::TruncatedWeights => on_grid(x, format, Float::trunc),
        }
    }

    /// A result as it is stored.
    pub fn stored(&mut self, x: Float, format: Format, profile: &Profile) -> Float {
        match self.keeping {
            _ if format == profile.arithmetic => x,
            Keeping::Chosen => self.round(x, format),
            Keeping::Nearest | Keeping::TruncatedWeights => on_grid(x, format, Float::round_even),
        }
    }

    /// `e^x`, off by so many ulps, one of which is at most twice the unit roundoff.
    pub fn exp(&mut self, x: Float, profile: &Profile) -> Float {
        let share = self.next() * profile.exp_ulp * 2.0 * profile.arithmetic.unit_roundoff();
        x.exp() * (big(share) + 1)
    }

    /// `x` off by so many units in the last place, one of which is at most twice the unit roundoff
    /// and below the normal range the smallest subnormal. It keeps its sign.
    pub fn ulps(&mut self, x: Float, ulp: f64, profile: &Profile) -> Float {
        let share = self.next();
        if !x.is_finite() {
            return x;
        }
        let format = profile.arithmetic;
        let magnitude = Float::with_val(BITS, x.abs_ref());
        let subnormal = magnitude < format.smallest_normal();
        let lost = if !subnormal {
            magnitude.clone() * (ulp * 2.0 * format.unit_roundoff())
        } else if profile.flush_to_zero {
            magnitude.clone()
        } else {
            big(ulp * format.smallest_subnormal())
        };
        let moved = (magnitude + lost * share).max(&big(0.0));
        let moved = if x.is_sign_negative() { -moved } else { moved };
        overflowing(&x, moved, format)
    }

    /// `x` off by at most `largest`.
    pub fn shift(&mut self, x: Float, largest: &Float) -> Float {
        let share = self.next();
        x + Float::with_val(BITS, largest * share)
    }
}
