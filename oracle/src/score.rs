//! The score of a key or a sink: what is exact about it, and how close it is enclosed.
//!
//! With `x = scale * dot`, bias and ALiBi term added up to `a`, and `f(t) = cap * tanh(t / cap)`, the
//! score of a key is `x + a`, `f(x) + a` or `f(x + a)` ([`flashproof_spec::score`]); that of a sink is
//! its logit (`FAS:score.bias.add`, `FAS:score.alibi.distance`, `FAS:score.softcap.tanh`,
//! `FAS:score.sink.normalizer`). All of `dot`, `a`, the logit and the cap are exact dyadic numbers. So every score is
//!
//! ```text
//! f(scale * dot + inner / denominator) + outer
//! ```
//!
//! with exact [`Parts`] `dot`, `inner` and `outer`, and `f` the identity where there is no softcap.
//! Nothing is rounded before the first multiplication with an irrational scale, or the first `tanh`.
//!
//! Scores of equal parts are equal. To make more of it, a rational scale is multiplied into `inner`
//! where something is added there, so that scores without a softcap are equal only if
//! their parts are: with an irrational scale, `scale * dot + inner` equals another such number only if
//! both terms do. With a softcap, `tanh` of an algebraic number other than zero is transcendental
//! (Lindemann-Weierstrass; see [`crate::tie`]), and whether scores of different parts can be equal is
//! not decided.

use std::cmp::Ordering;

use flashproof_spec::problem::Problem;
use flashproof_spec::score::{Addends, Softcap, SoftcapOrder};
use rug::float::Round;
use rug::ops::{CompleteRound, DivAssignRound, MulAssignRound};
use rug::{Float, Integer, Rational};

use crate::enclosure::Enclosure;
use crate::exact::{difference, number, product, sum, zero};
use crate::scale::{ExactScale, dyadic};
use crate::special::Saturated;

/// Bits that a bound is computed with beyond those asked for. Roundings on the way are at most twelve,
/// each by at most `2^(1 - precision)` times a number below `2^(top + 1)`, with `2^top` above every part:
/// together below `2^(top + 6 - precision)`. `tanh` makes no earlier error larger, as its slope is at
/// most 1.
const ROUNDING_BITS: u32 = 8;

/// From this `t / cap` on, the slope of the softcap counts as anything from 0 to
/// [`NEGLIGIBLE_SLOPE`]: `1 - tanh^2 y < 4 e^(-2 y) < 2^(2 - 2.88 y)`.
const NEGLIGIBLE_SLOPE_FROM: u32 = 1 << 16;

/// Exponent of an upper bound on slopes that count as negligible.
const NEGLIGIBLE_SLOPE: i32 = -(1 << 16);

/// How the scores of a row come from their parts.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ScoreRule {
    scale: ExactScale,
    /// The unit of dot products is `2^exponent`.
    exponent: i32,
    softcap: Option<Softcap>,
    /// Whether the product of scale and dot product goes into `inner`.
    folds: bool,
    /// Whether scores are all products of one factor with integers on a common grid.
    linear: bool,
}

/// The exact parts of a score.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Parts {
    /// What is multiplied with the scale, in units of the rule's `2^exponent`.
    pub(crate) dot: Integer,
    /// What is added within the softcap, times the denominator.
    pub(crate) inner: Float,
    /// What is added without.
    pub(crate) outer: Float,
}

/// Distances of scores from one of them.
#[derive(Debug)]
pub(crate) struct Gaps<'a> {
    rule: &'a ScoreRule,
    top: &'a Parts,
    bits: u32,
    /// The top score, rounded up, where it is not rational in its parts.
    top_hi: Option<Float>,
}

impl ScoreRule {
    /// The rule of a problem's rows with dot products in units of `2^exponent`.
    pub(crate) fn new(problem: &Problem, exponent: i32) -> Self {
        let scale = ExactScale::of(problem);
        let adds = problem.bias.is_some() || problem.alibi.is_some();
        let within = match problem.softcap.map(|softcap| softcap.order) {
            None => adds || problem.sink.is_some(),
            Some(SoftcapOrder::AfterBias) => adds,
            Some(SoftcapOrder::BeforeBias) => false,
        };
        let folds = within && scale.is_rational();
        let linear = problem.softcap.is_none() && (folds || !within);
        Self { scale, exponent, softcap: problem.softcap, folds, linear }
    }

    /// Whether every score is one factor times an integer, the same factor for all
    /// ([`ScoreRule::linear_factor`]).
    pub(crate) const fn is_linear(&self) -> bool {
        self.linear
    }

    /// Whether scores are linear and nothing is added to their dot products.
    pub(crate) const fn is_plain(&self) -> bool {
        self.linear && !self.folds
    }

    /// Whether scores are algebraic numbers, equal only if their parts are.
    pub(crate) const fn is_algebraic(&self) -> bool {
        self.softcap.is_none()
    }

    /// The factor between `dot` and the score where the rule is plain, or between `inner` and the
    /// score where it is otherwise linear.
    pub(crate) const fn linear_factor(&self) -> ExactScale {
        match (self.folds, self.scale) {
            (false, scale) | (true, scale @ ExactScale::Reciprocal(_)) => scale,
            (true, _) => ExactScale::Value(1.0),
        }
    }

    /// The parts of a key's score. Its addends are finite.
    pub(crate) fn key(&self, dot: Integer, addends: Addends) -> Parts {
        let addend = sum(&number(addends.bias), &number(addends.alibi));
        if self.caps_before_bias() {
            return Parts { dot: self.scaled_dot(dot), inner: zero(), outer: addend };
        }
        if !self.folds {
            return Parts { dot: self.scaled_dot(dot), inner: addend, outer: zero() };
        }
        let dot = dyadic(&dot, self.exponent);
        let inner = match self.scale {
            ExactScale::Value(scale) => sum(&product(&dot, &number(scale)), &addend),
            ExactScale::Reciprocal(_) | ExactScale::InverseSqrt(_) => {
                sum(&dot, &product(&addend, &self.denominator()))
            }
        };
        Parts { dot: Integer::new(), inner, outer: zero() }
    }

    /// The parts of the score of a key whose argument of the softcap is infinite: the cap, with its sign,
    /// and what is added after it.
    pub(crate) fn saturated(&self, saturated: Saturated, addends: Addends) -> Parts {
        let cap = self.softcap.map_or(0.0, |softcap| softcap.cap);
        let cap = number(if saturated.negative { -cap } else { cap });
        let outer = if self.caps_before_bias() {
            sum(&cap, &sum(&number(addends.bias), &number(addends.alibi)))
        } else {
            cap
        };
        Parts { dot: Integer::new(), inner: zero(), outer }
    }

    /// The parts of a sink's score, a finite logit.
    pub(crate) fn sink(&self, logit: f64) -> Parts {
        let logit = number(logit);
        if self.folds && self.softcap.is_none() {
            let inner = product(&logit, &self.denominator());
            return Parts { dot: Integer::new(), inner, outer: zero() };
        }
        if self.softcap.is_none() {
            return Parts { dot: Integer::new(), inner: logit, outer: zero() };
        }
        Parts { dot: Integer::new(), inner: zero(), outer: logit }
    }

    /// The score, where it is known to be rational.
    pub(crate) fn rational(&self, parts: &Parts) -> Option<Rational> {
        let rational = |x: &Float| Rational::try_from(x).ok();
        let dot = Rational::from(&parts.dot) << self.exponent;
        let inner = self.scale.rational_product(dot)?
            + rational(&parts.inner)? / rational(&self.denominator())?;
        if self.softcap.is_some() && inner != 0 {
            return None;
        }
        Some(inner + rational(&parts.outer)?)
    }

    /// The score, in an interval narrower than `2^-bits`. One of more bits is contained in it.
    pub(crate) fn enclose(&self, parts: &Parts, bits: u32) -> Enclosure {
        Enclosure::new(self.bound(parts, bits, Round::Down), self.bound(parts, bits, Round::Up))
    }

    /// The slope of the softcap at this score, `1 - tanh^2 (t / cap)`, to a relative `2^-bits` where it is
    /// not negligible; 1 without a softcap. One of more bits is contained in it.
    pub(crate) fn slope(&self, parts: &Parts, bits: u32) -> Enclosure {
        let one = Enclosure::point(Float::with_val(rug::float::prec_min(), 1));
        let Some(Softcap { cap, .. }) = self.softcap else { return one };
        // An error of y makes a relative one of at most twice its size in the slope, and y is an argument
        // within 2^-bits over a cap of at least 2^(exponent - 1).
        let exponent = number(cap).get_exp().unwrap_or_default();
        let precision = self.precision(parts, bits + 2 + (1 - exponent).max(0) as u32);
        let at = |round| self.quotient(parts, cap, precision, round);
        let (lo, hi) = (at(Round::Down), at(Round::Up));
        let (near, far) = if lo >= 0 {
            (lo, hi)
        } else if hi <= 0 {
            (-hi, -lo)
        } else {
            let far = hi.max(&-lo);
            (Float::new(precision), far)
        };
        Enclosure::new(
            sech_squared(&far, precision, Round::Down),
            sech_squared(&near, precision, Round::Up),
        )
    }

    /// A lower bound on the magnitude of what the softcap takes `tanh` of, `t / cap`; 0 without a softcap,
    /// and at a score that is not known by its argument.
    pub(crate) fn cap_argument_lo(&self, parts: &Parts) -> f64 {
        let Some(Softcap { cap, .. }) = self.softcap else { return 0.0 };
        let precision = self.precision(parts, u64::BITS);
        let (lo, hi) = (
            self.quotient(parts, cap, precision, Round::Down),
            self.quotient(parts, cap, precision, Round::Up),
        );
        let least = if lo > 0 { lo } else { -hi };
        least.to_f64_round(Round::Down).max(0.0)
    }

    /// Distances from this score, each to be within `2^-bits`.
    pub(crate) fn gaps_from<'a>(&'a self, top: &'a Parts, bits: u32) -> Gaps<'a> {
        let top_hi = self.softcap.map(|_| self.bound(top, bits + 2, Round::Up));
        Gaps { rule: self, top, bits, top_hi }
    }

    /// A bound on the score, on this side, closer than `2^-bits`. One of more bits is no farther.
    pub(crate) fn bound(&self, parts: &Parts, bits: u32, round: Round) -> Float {
        let precision = self.precision(parts, bits);
        let mut score = match self.softcap {
            None => self.argument(parts, precision, round),
            Some(Softcap { cap, .. }) => {
                let mut score = self.quotient(parts, cap, precision, round);
                score.tanh_round(round);
                score.mul_assign_round(cap, round);
                score
            }
        };
        if !parts.outer.is_zero() {
            score = Float::with_val_round(precision, &score + &parts.outer, round).0;
        }
        score
    }

    /// A bound on `t = scale * dot + inner / denominator`.
    fn argument(&self, parts: &Parts, precision: u32, round: Round) -> Float {
        let reverse = match round {
            Round::Up => Round::Down,
            _ => Round::Up,
        };
        let factor = if parts.dot < 0 { reverse } else { round };
        let mut scaled = self.scale.rounded(precision, factor);
        scaled.mul_assign_round(&parts.dot, round);
        scaled <<= self.exponent;
        if parts.inner.is_zero() {
            return scaled;
        }
        let inner = (&parts.inner / &self.denominator()).complete_round(precision, round).0;
        Float::with_val_round(precision, &scaled + &inner, round).0
    }

    /// A bound on `t / cap`.
    fn quotient(&self, parts: &Parts, cap: f64, precision: u32, round: Round) -> Float {
        let mut argument = self.argument(parts, precision, round);
        argument.div_assign_round(cap, round);
        argument
    }

    /// The precision at which a bound is as close as `2^-bits`; never below that of `f64`, in which
    /// factors are exact.
    fn precision(&self, parts: &Parts, bits: u32) -> u32 {
        (bits + ROUNDING_BITS + self.top(parts)).max(u64::BITS)
    }

    /// A number with every term of the score below `2^top` in magnitude.
    fn top(&self, parts: &Parts) -> u32 {
        let of = |x: &Float| x.get_exp().unwrap_or(0);
        let dot = match parts.dot.significant_bits() {
            0 => 0,
            bits => bits as i32 + self.exponent + of(&self.scale.magnitude_hi(u64::BITS)),
        };
        dot.max(of(&parts.inner)).max(of(&parts.outer)).max(0) as u32
    }

    fn caps_before_bias(&self) -> bool {
        self.softcap.is_some_and(|softcap| softcap.order == SoftcapOrder::BeforeBias)
    }

    /// What `inner` is divided by.
    fn denominator(&self) -> Float {
        match (self.folds, self.scale) {
            (true, ExactScale::Reciprocal(root)) => Float::with_val(u64::BITS, root),
            _ => Float::with_val(rug::float::prec_min(), 1),
        }
    }

    /// The dot product, or zero where the scale makes all of them one.
    fn scaled_dot(&self, dot: Integer) -> Integer {
        if self.scale.sign().is_eq() { Integer::new() } else { dot }
    }
}

impl Parts {
    /// Some total order, in which only equal parts are equal.
    pub(crate) fn arbitrary_order(&self, other: &Self) -> Ordering {
        let by = |a: &Float, b: &Float| a.partial_cmp(b).unwrap_or(Ordering::Equal);
        let by_dot = self.dot.cmp(&other.dot);
        by_dot.then(by(&self.inner, &other.inner)).then(by(&self.outer, &other.outer))
    }
}

impl Gaps<'_> {
    /// How far a score lies below, rounded up to less than `2^-bits` above the distance. Zero, exactly,
    /// for the same parts; negative for a larger score. One of more bits is no larger.
    pub(crate) fn hi(&self, parts: &Parts) -> Float {
        let same_argument = self.top.dot == parts.dot && self.top.inner == parts.inner;
        match &self.top_hi {
            Some(top_hi) if !same_argument => {
                let lo = self.rule.bound(parts, self.bits + 2, Round::Down);
                let precision = top_hi.prec().max(lo.prec());
                (top_hi - &lo).complete_round(precision, Round::Up).0
            }
            _ => self.difference_hi(parts),
        }
    }

    /// The same from the difference of the parts, which is exact.
    fn difference_hi(&self, parts: &Parts) -> Float {
        let plain = ScoreRule { softcap: None, ..*self.rule };
        let apart = Parts {
            dot: Integer::from(&self.top.dot - &parts.dot),
            inner: difference(&self.top.inner, &parts.inner),
            outer: difference(&self.top.outer, &parts.outer),
        };
        plain.bound(&apart, self.bits, Round::Up)
    }
}

/// `1 / cosh^2 y` for `y >= 0`, rounded to one side.
fn sech_squared(y: &Float, precision: u32, round: Round) -> Float {
    if *y >= NEGLIGIBLE_SLOPE_FROM {
        return match round {
            Round::Up => Float::with_val(precision, 1) << NEGLIGIBLE_SLOPE,
            _ => Float::new(precision),
        };
    }
    let mut sech = Float::with_val_round(precision, y.sech_ref(), round).0;
    sech.square_round(round);
    sech
}

#[cfg(test)]
mod tests;
