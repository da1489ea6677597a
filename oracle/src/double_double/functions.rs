//! Exponential, logarithm, hyperbolic tangent and inverse square root of balls.

use std::sync::LazyLock;

use super::ball::{Ball, power_of_two};

/// The series of `e^s - 1` is summed up to `s^DEGREE / DEGREE!`.
const DEGREE: usize = 10;

/// The series is summed at `|s| <= 2^-REDUCTION`.
const REDUCTION: i32 = 9;

/// What the series leaves out, relative to `s`: `|s|^10 / 11! * e^|s| < 2^-90 * 2^-25 * 1.01`.
const SERIES_REMAINDER: f64 = power_of_two(-114);

/// Doublings of the argument that are done on `e^s - 1`, which keeps its relative accuracy while it
/// is small: up to `|s| <= 1/2`.
const SMALL_DOUBLINGS: i32 = REDUCTION - 1;

/// From this `|x|` down, `e^x` is 1 to within [`TINY_EXPONENT`] times two.
const TINY_EXPONENT: f64 = power_of_two(-800);

/// Gaps from here on give [`VANISHING_WEIGHT`].
pub(super) const VANISHING_GAP: f64 = 600.0;

/// Largest `|x|` that `e^x` is computed for: the radius of a gap that may be smaller than
/// [`VANISHING_GAP`] beyond that. No square on the way to `e^-602 > 2^-869` is a small product.
const LARGEST_EXPONENT: f64 = VANISHING_GAP + 2.0 * EXPONENT_RADIUS;

/// Above `e^-600 = 2^-865.6...`.
pub(super) const VANISHING_WEIGHT: f64 = power_of_two(-865);

/// Largest radius of an exponent for which `e^r - 1 <= 2 r` is used; it holds up to `r = 1`.
const EXPONENT_RADIUS: f64 = 1.0;

/// From this `|y|` on, `tanh y` is 1 in magnitude to within [`SATURATED_RADIUS`].
const SATURATED: f64 = VANISHING_GAP / 2.0;

/// Above `2 e^-600`, twice which bounds `1 - tanh 300`.
const SATURATED_RADIUS: f64 = 2.0 * VANISHING_WEIGHT;

/// Up to this `|y|`, `tanh y` is `y` to within `|y|^3`, less than `2^-105 |y|`.
const NEARLY_LINEAR: f64 = power_of_two(-53);

/// `1 / n!` for `n` from 0 to [`DEGREE`].
static INVERSE_FACTORIALS: LazyLock<[Ball; DEGREE + 1]> = LazyLock::new(|| {
    let mut inverse = [Ball::exact(1.0); DEGREE + 1];
    for n in 1..=DEGREE {
        inverse[n] = inverse[n - 1] / Ball::exact(n as f64);
    }
    inverse
});

/// `e^x` for `|x|` up to [`LARGEST_EXPONENT`]; `None` beyond, or for a radius that says nothing.
///
/// With `s = x / 2^k` small, `e^s - 1` is a short series, and `k` doublings of the argument lead
/// back: `e^2s - 1 = 2 (e^s - 1) + (e^s - 1)^2` as long as `s` is small, `e^2s = (e^s)^2` after that.
pub(super) fn exp(x: Ball) -> Option<Ball> {
    let magnitude = x.value.magnitude_hi();
    if magnitude > LARGEST_EXPONENT || x.radius > EXPONENT_RADIUS {
        return None;
    }
    if magnitude < TINY_EXPONENT {
        let one = Ball::exact(1.0).widened(2.0 * TINY_EXPONENT);
        return Some(one.widened((4.0 * x.radius).next_up()));
    }
    // One doubling more than needed, or two, does no harm and covers the logarithm's error.
    let doublings = (magnitude.log2() as i32 + 2 + REDUCTION).max(0);
    let midpoint = Ball { radius: 0.0, ..x };
    let mut small = series(midpoint.scaled(power_of_two(-doublings)));
    for _ in 0..doublings.min(SMALL_DOUBLINGS) {
        small = small.scaled(2.0) + small * small;
    }
    let mut power = Ball::exact(1.0) + small;
    for _ in SMALL_DOUBLINGS..doublings {
        power = power * power;
    }
    // e^(x + r) - e^x = e^x (e^r - 1), at most 2 r e^x.
    let from_radius = (power.magnitude_hi() * (2.0 * x.radius)).next_up();
    Some(power.widened(from_radius))
}

/// `e^s - 1` for `|s| <= 2^-REDUCTION`.
fn series(s: Ball) -> Ball {
    let inverse = &*INVERSE_FACTORIALS;
    let sum = (1..DEGREE).rev().fold(inverse[DEGREE], |sum, n| sum * s + inverse[n]);
    (sum * s).widened((s.magnitude_hi() * SERIES_REMAINDER).next_up())
}

/// The natural logarithm of a positive ball; `None` where the ball is too wide.
///
/// With any `y` near it, `ln x = y + ln(1 + t)` for `t = x e^-y - 1`, and
/// `|ln(1 + t) - (t - t^2 / 2)| <= |t|^3` for `|t| <= 1/2`.
pub(super) fn ln(x: Ball) -> Option<Ball> {
    let guess = Ball::exact(x.value.hi.ln());
    let t = x * exp(-guess)? - Ball::exact(1.0);
    let size = t.magnitude_hi();
    if size > 0.5 {
        return None;
    }
    let cube = ((size * size).next_up() * size).next_up();
    Some((guess + (t - (t * t).scaled(0.5))).widened(cube))
}

/// The hyperbolic tangent, `(e^2y - 1) / (e^2y + 1)`; `None` where the ball is too wide.
///
/// `y - |y|^3 / 3 <= tanh y <= y` for small `y >= 0`, and `1 - 2 e^-2y < tanh y < 1` for all `y >= 0`.
pub(super) fn tanh(y: Ball) -> Option<Ball> {
    let size = y.magnitude_hi();
    if size <= NEARLY_LINEAR {
        let cube = ((size * size).next_up() * size).next_up();
        return Some(y.widened(cube));
    }
    if y.magnitude_lo() >= SATURATED {
        return Some(Ball::exact(y.value.hi.signum()).widened(SATURATED_RADIUS));
    }
    let power = exp(y.scaled(2.0))?;
    let one = Ball::exact(1.0);
    Some((power - one) / (power + one))
}

/// `1 / sqrt(n)` for a positive integer `n` below `2^53`.
///
/// With any `y` near it, `1 / sqrt(n) = y / sqrt(1 - t)` for `t = 1 - n y^2`, and
/// `|1 / sqrt(1 - t) - (1 + t / 2)| <= t^2` for `|t| <= 1/4`.
pub(super) fn inverse_sqrt(n: f64) -> Ball {
    let guess = Ball::exact(1.0 / n.sqrt());
    let t = Ball::exact(1.0) - Ball::exact(n) * guess * guess;
    let size = t.magnitude_hi();
    let correction = (Ball::exact(1.0) + t.scaled(0.5)).widened((size * size).next_up());
    guess * correction
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::enclosure::Enclosure;
    use proptest::prelude::*;
    use rug::Float;
    use rug::float::Round;

    /// Bits of the reference values.
    const PRECISION: u32 = 1200;

    fn point(x: f64) -> Enclosure {
        Enclosure::point(Float::with_val(53, x))
    }

    /// Relative width of an enclosure in bits.
    fn bits(ball: Ball) -> f64 {
        -(ball.radius / ball.value.hi.abs()).log2()
    }

    proptest! {
        #[test]
        fn exponentials_are_contained_and_close(x in -600.0..1.0_f64, shift in 0..300_i32) {
            let x = x * f64::from(-shift).exp2();
            let ball = exp(Ball::exact(x)).unwrap();
            prop_assert!(ball.enclosure().contains(&point(x).exp(PRECISION)));
            // Each of 10 squarings beyond the series doubles an error of some 16 units of u^2.
            prop_assert!(bits(ball) > 106.0 - 4.0 - 10.0 - 4.0, "{} bits", bits(ball));
        }

        #[test]
        fn a_radius_is_carried_through(x in -600.0..0.0_f64, radius in 0.0..1.0_f64, at in -1.0..1.0_f64) {
            let radius = radius * radius.powi(20);
            let ball = exp(Ball::exact(x).widened(radius)).unwrap();
            let inside = point(x).add(&point(at * radius), PRECISION);
            prop_assert!(ball.enclosure().contains(&inside.exp(PRECISION)));
        }

        #[test]
        fn logarithms_are_contained_and_close(x in 1.0..1e7_f64) {
            let ball = ln(Ball::exact(x)).unwrap();
            prop_assert!(ball.enclosure().contains(&point(x).ln(PRECISION)));
            prop_assert!(ball.radius <= power_of_two(-90));
        }

        #[test]
        fn hyperbolic_tangents_are_contained_and_close(y in -400.0..400.0_f64, shift in 0..300_i32) {
            let y = y * f64::from(-shift).exp2();
            let ball = tanh(Ball::exact(y)).unwrap();
            let tanh = |round| Float::with_val_round(PRECISION, Float::with_val(53, y).tanh_ref(), round).0;
            let exact = Enclosure::new(tanh(Round::Down), tanh(Round::Up));
            prop_assert!(ball.enclosure().contains(&exact));
            prop_assert!(ball.radius <= power_of_two(-80));
        }

        #[test]
        fn inverse_square_roots_are_contained_and_close(n in 1_u32..1 << 20) {
            let ball = inverse_sqrt(f64::from(n));
            let reference = point(1.0).div(&point(f64::from(n)).sqrt(PRECISION), PRECISION);
            prop_assert!(ball.enclosure().intersects(&reference));
            prop_assert!(bits(ball) > 96.0);
        }
    }

    #[test]
    fn the_vanishing_weight_is_above_its_exponential() {
        let weight = point(-VANISHING_GAP).exp(PRECISION);
        assert!(*weight.hi() < VANISHING_WEIGHT);
        assert!(exp(Ball::exact(-VANISHING_GAP - 1.0).widened(0.5)).is_some());
    }

    #[test]
    fn a_tangent_of_a_wide_ball_is_contained_or_declined() {
        for (y, radius) in [(0.0, 0.25), (2.0, 0.25), (-3.0, 0.25), (500.0, 100.0), (-1e300, 1e299)]
        {
            let ball = tanh(Ball::exact(y).widened(radius)).expect("a tangent");
            for end in [y - radius, y, y + radius] {
                let value = Float::with_val(PRECISION, Float::with_val(53, end).tanh_ref());
                assert_contains(ball, &value);
            }
        }
        assert!(tanh(Ball::exact(1.0).widened(2.0)).is_none());
    }

    fn assert_contains(ball: Ball, value: &Float) {
        let enclosure = ball.enclosure();
        assert!(enclosure.lo() <= value && value <= enclosure.hi(), "{ball:?} misses {value}");
    }

    #[test]
    fn the_series_remainder_is_bounded() {
        let s = point(power_of_two(-REDUCTION));
        let mut remainder = s.exp(PRECISION);
        for _ in 0..DEGREE {
            remainder = remainder.mul(&s, PRECISION);
        }
        for n in 2..=DEGREE + 1 {
            remainder = remainder.div(&point(n as f64), PRECISION);
        }
        assert!(*remainder.hi() < SERIES_REMAINDER);
    }

    #[test]
    fn arguments_out_of_reach_are_declined() {
        assert!(exp(Ball::exact(-LARGEST_EXPONENT)).is_none());
        assert!(exp(Ball::exact(-1.0).widened(2.0)).is_none());
        assert!(exp(Ball::exact(f64::INFINITY)).is_none());
        assert_eq!(exp(Ball::exact(0.0)).unwrap().value.hi, 1.0);
    }
}
