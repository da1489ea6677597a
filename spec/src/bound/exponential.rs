//! Exponentials from above, of arguments far below zero too.

use crate::bound::outward::{Lower, Upper};

/// `e^(-y)`, for `y` at least `below`.
///
/// `e^y - 1 >= y + y^2/2`, tight to `y^2/6` of itself where the argument has been halved often
/// enough; `e^2y - 1 = z (z + 2)` with `z = e^y - 1` undoes that. Never less than some subnormal
/// number: beyond the range of `f64` there is no larger divisor.
pub(super) fn of_minus(below: f64) -> Upper {
    /// `y^2/6 < 2^-54` there.
    const TIGHT: f64 = 1.0 / (1 << 26) as f64;
    let mut y = below.clamp(0.0, f64::MAX);
    let mut halvings = 0;
    while y > TIGHT {
        // Exact: the least `y` here is far above the subnormal numbers.
        y /= 2.0;
        halvings += 1;
    }
    let y = Lower::new(y);
    let small = y + y * y * Lower::new(0.5);
    let growth = (0..halvings).fold(small, |z, _| z * (z + Lower::new(2.0)));
    (growth + Lower::new(1.0)).reciprocal()
}

/// `e^(log + more)` for a logarithm of at most `log`, minus infinity included.
pub(super) fn of_sum(log: f64, more: Upper) -> Upper {
    if log == f64::NEG_INFINITY {
        return Upper::ZERO;
    }
    let exponent = (log + more.get()).next_up();
    if exponent <= 0.0 {
        of_minus(-exponent)
    } else {
        // Infinite for NaN, which bounds nothing.
        Upper::new(exponent).exp_m1() + Upper::ONE
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use rug::Float;

    /// Far beyond `f64`: rounding at this precision can not flip a comparison below.
    const BITS: u32 = 300;

    fn exact(x: f64) -> Float {
        Float::with_val(BITS, x)
    }

    proptest! {
        /// The inequality costs `2^-54` for each unit of `y`; the doublings up to `z = 1` three
        /// roundings of `2^-53` each, and the ten or so beyond it double what there is.
        #[test]
        fn falls_from_above(y in prop_oneof![0.0..1e-9, 1e-9..1.0, 1.0..700.0_f64]) {
            let truth = exact(y).exp().recip();
            let bound = exact(of_minus(y).get());
            prop_assert!(bound >= truth, "{bound} is below {truth}");
            let slack = y.max(1.0) * 2f64.powi(-42);
            prop_assert!(bound <= truth * (1.0 + exact(slack)), "{bound} is far above");
        }

        #[test]
        fn sums_from_above(log in -800.0..1.0_f64, more in 0.0..900.0_f64) {
            let truth = (exact(log) + more).exp();
            prop_assert!(exact(of_sum(log, Upper::new(more)).get()) >= truth);
        }
    }

    #[test]
    fn beyond_the_range_of_f64_there_is_next_to_nothing() {
        for log in [-1e4, -1e300, f64::MIN] {
            let bound = of_sum(log, Upper::new(-log / 2.0)).get();
            assert!(bound > 0.0 && bound < f64::MIN_POSITIVE, "{bound}");
        }
        assert_eq!(of_sum(f64::NEG_INFINITY, Upper::INFINITE), Upper::ZERO);
        assert_eq!(of_sum(0.0, Upper::INFINITE), Upper::INFINITE);
        assert_eq!(of_sum(f64::NAN, Upper::ZERO), Upper::INFINITE);
    }
}
