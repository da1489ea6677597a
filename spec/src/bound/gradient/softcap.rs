//! The slope of a softcap as a backward kernel recomputes it (`FAS:bwd.softcap.slope`).
//!
//! `ds/dx = f(y) = 1 - tanh^2 y`, where `y` is what `tanh` is taken of: the score before the softcap,
//! over the cap. A kernel has `y^` with `|y^ - y| <= eta`, the score's own error, and takes the slope
//! at `y^`. `f` falls from 1 to 0 with `|y|`, and
//!
//! - `|f'| = 2 |tanh| f <= 4/(3 sqrt 3)`, so `|f(y^) - f(y)| <= 4 eta / (3 sqrt 3)`;
//! - `|f'| <= 2 f`, so `|f(y^) - f(y)| <= f(y) (e^(2 eta) - 1)`: small where the slope is;
//! - `f(y) <= 4 e^(-2|y|)`, so both slopes are below the greater of `f(y)` and
//!   `4 e^(-2(|y| - eta))`: far beyond the cap, `eta` may be large and both are nothing.
//!
//! From there kernels differ: `1 - t t`, rounded twice; `(1 - t)(1 + t)`, three times;
//! `(1 - t) + (1 - t) t`, already multiplied by `dS`; and `t` may be the computed `tanh`, or the
//! capped score divided by the cap again. So `t^ = t (1 + h)`, where `1 + h` collects the error of
//! `tanh`, that of the format that scores are kept in, and the products with the cap (or with `cap
//! log2 e`) and with its reciprocal. `t^2` moves by `t^2 ((1 + h)^2 - 1)`, and rounding it, or a
//! product with `t`, adds at most `2 u |t^|`. All this is an *absolute* error of the slope: where
//! the softcap is saturated, `t` is close to 1 and the slope to 0. What is left are relative
//! roundings, of the differences and products ([`SLOPE_ROUNDINGS`]).

use super::condition::GradientCondition;
use crate::bound::outward::{Lower, Upper};
use crate::bound::{exponential, score, weight};
use crate::problem::Problem;
use crate::profile::Profile;
use crate::score::{Softcap, SoftcapOrder};

/// `1 - t`, `1 + t`, their product, and its product with `dS`.
const SLOPE_ROUNDINGS: usize = 4;

/// `4 / (3 sqrt 3)`, the greatest slope of `1 - tanh^2`, rounded up.
const GREATEST_CURVATURE: f64 = 0.769_800_358_919_502;

/// The slope `c_i` of one key, and how far the kernel's can be off before its relative roundings.
#[derive(Clone, Copy, Debug)]
pub(super) struct Slope {
    pub(super) exact: Upper,
    pub(super) error: Upper,
    /// How many relative roundings slope and product with it take.
    pub(super) roundings: usize,
}

impl Slope {
    /// That of a score without softcap.
    pub(super) const NONE: Self = Self { exact: Upper::ONE, error: Upper::ZERO, roundings: 0 };

    pub(super) fn new(
        problem: &Problem,
        profile: &Profile,
        row: &GradientCondition,
        i: usize,
        softcap: Softcap,
    ) -> Self {
        /// `t^2` moves by twice what `t` does; the square and the product with `t` underflow too.
        const LOST: usize = 4;
        let exact = Upper::new(row.cap_slope_hi[i]);
        let argument = Argument::new(problem, profile, row, i, softcap);
        let tanh = argument.tanh();
        let h = tanh_error(profile);
        let grown = h + Upper::ONE;
        let error = argument.slope_error(exact)
            + tanh * tanh * h * (grown + Upper::ONE)
            + Upper::new(2.0) * weight::unit(profile) * tanh * grown * grown
            + Upper::count(LOST) * lost_tanh(profile);
        Self { exact, error, roundings: SLOPE_ROUNDINGS }
    }
}

/// `h`: what `tanh` can be off by, relatively, as a kernel has it or has it back from the capped
/// score.
fn tanh_error(profile: &Profile) -> Upper {
    /// The cap, `log2 e`, its product with the cap, and that with `tanh`; the reciprocal of the
    /// last but one, and the product with it.
    const ROUNDINGS: usize = 6;
    /// `tanh`, its product with the cap, and that in another base.
    const STORED: usize = 3;
    let u = weight::unit(profile);
    let tanh = Upper::new(2.0 * profile.tanh_ulp) * u;
    tanh.and(u.compound(ROUNDINGS))
        .and(weight::division_error(profile))
        .and(weight::narrowing(profile, profile.score_format).compound(STORED))
}

/// What underflow can lose of `tanh`.
fn lost_tanh(profile: &Profile) -> Upper {
    weight::ulps_underflow(profile, profile.tanh_ulp)
        + weight::division_underflow(profile)
        + weight::narrowing_underflow(profile, profile.score_format)
}

/// What rounding can change of `y`, relatively, besides the errors of what it is made of.
fn argument_rounding(profile: &Profile) -> Upper {
    /// Product with the factor, cap, its reciprocal and the product with that.
    const ROUNDINGS: usize = 4;
    let roundings = profile.scale_roundings as usize + ROUNDINGS;
    weight::unit(profile)
        .compound(roundings)
        .and(weight::division_error(profile))
        .and(weight::narrowing(profile, profile.score_format))
}

/// What the softcap is taken of, over the cap: `y_i`.
struct Argument {
    /// At most `|y_i|`.
    below: f64,
    /// At least `|y_i|`.
    magnitude: Upper,
    /// `eta`.
    error: Upper,
}

impl Argument {
    fn new(
        problem: &Problem,
        profile: &Profile,
        row: &GradientCondition,
        i: usize,
        softcap: Softcap,
    ) -> Self {
        let parts = row.parts(i);
        let addend = match softcap.order {
            SoftcapOrder::BeforeBias => Upper::ZERO,
            SoftcapOrder::AfterBias => parts.addend,
        };
        let error = score::uncapped_error(problem, profile, parts);
        let relative = argument_rounding(profile);
        let lost = weight::division_underflow(profile)
            + weight::underflow(profile)
            + weight::narrowing_underflow(profile, profile.score_format);
        let cap = Lower::new(softcap.cap);
        Self {
            below: row.cap_argument_lo[i],
            magnitude: parts.product / cap + addend / cap,
            // Scaled down before they are added: a bias may be the lowest number of f64.
            error: (error + relative * parts.product + relative * addend + relative * error) / cap
                + lost,
        }
    }

    /// `|tanh y^|` from above.
    fn tanh(&self) -> Upper {
        (self.magnitude + self.error).min(Upper::ONE)
    }

    /// `|f(y^) - f(y)|` from above, where `slope` is `f(y)` from above.
    fn slope_error(&self, slope: Upper) -> Upper {
        let linear = Upper::new(GREATEST_CURVATURE) * self.error;
        let relative = slope * (Upper::new(2.0) * self.error).exp_m1();
        let near = 2.0 * (self.below - self.error.get()).next_down();
        let saturated = (Upper::new(4.0) * exponential::of_minus(near)).min(Upper::ONE).max(slope);
        linear.min(relative).min(saturated)
    }
}
