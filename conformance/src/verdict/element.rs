//! One element against its exact answer.

use std::f64::consts::LN_2;
use std::fmt;

use flashproof_oracle::enclosure::Enclosure;
use flashproof_oracle::row::{Exact, Expected};
use flashproof_spec::bound::Bound;
use serde::{Serialize, Serializer};

use super::place::{Location, Quantity};
use super::tally::Element;
use crate::adapter::{EmptyRow, LseBase};
use crate::report::number;

/// What an element should be.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Want {
    /// About this number.
    Number(f64),
    /// Zero of either sign.
    Zero,
    /// NaN.
    Nan,
    /// NaN, or zero of either sign.
    NanOrZero,
    /// The infinity of this sign, or NaN.
    InfinityOrNan {
        /// Whether the infinity is negative.
        negative: bool,
    },
    /// Minus infinity.
    MinusInfinity,
    /// Anything: the specification does not say.
    Unspecified,
    /// Bit for bit this, as in the run whose invisible data was not poisoned.
    Unchanged(f64),
}

impl Want {
    /// The words for a value that is no single number.
    const fn words(self) -> Option<&'static str> {
        match self {
            Self::Number(_) | Self::Zero | Self::Unchanged(_) => None,
            Self::Nan => Some("NaN"),
            Self::NanOrZero => Some("NaN or 0"),
            Self::InfinityOrNan { negative: false } => Some("inf or NaN"),
            Self::InfinityOrNan { negative: true } => Some("-inf or NaN"),
            Self::MinusInfinity => Some("-inf"),
            Self::Unspecified => Some("anything"),
        }
    }

    const fn number(self) -> f64 {
        match self {
            Self::Number(value) | Self::Unchanged(value) => value,
            Self::Zero => 0.0,
            _ => f64::NAN,
        }
    }

    /// Whether `got` is what an exact requirement asks for. Not for [`Want::Number`], which takes a
    /// bound.
    pub(super) fn admits(self, got: f64) -> bool {
        match self {
            Self::Number(_) => false,
            Self::Zero => got == 0.0,
            Self::Nan => got.is_nan(),
            Self::NanOrZero => got.is_nan() || got == 0.0,
            Self::InfinityOrNan { negative } => {
                got.is_nan() || (got.is_infinite() && got.is_sign_negative() == negative)
            }
            Self::MinusInfinity => got == f64::NEG_INFINITY,
            Self::Unspecified => true,
            Self::Unchanged(clean) => {
                got.to_bits() == clean.to_bits() || (got.is_nan() && clean.is_nan())
            }
        }
    }
}

impl fmt::Display for Want {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.words() {
            Some(words) => f.pad(words),
            None => f.pad(&number::show(self.number())),
        }
    }
}

impl Serialize for Want {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.words() {
            Some(words) => serializer.serialize_str(words),
            None => number::serialize(&self.number(), serializer),
        }
    }
}

/// One element, compared.
#[derive(Clone, Debug, PartialEq)]
pub struct Compared {
    /// Which output it belongs to.
    pub quantity: Quantity,
    /// Where it stands, what it is and what it should be.
    pub element: Element,
    /// What the comparison came to.
    pub standing: Standing,
}

/// What a comparison came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// Within its bound, or exactly what is required.
    Right,
    /// Proven wrong, at this clause.
    Wrong(&'static str),
    /// No bound exists here, so nothing is proven.
    Unbounded,
    /// Not compared: the specification does not say what it should be.
    Unspecified,
}

/// What the comparison of an element depends on besides its value.
#[derive(Clone, Copy)]
pub(super) struct Judge {
    pub(super) quantity: Quantity,
    /// Clause behind a NaN or an infinity that is required.
    pub(super) special_clause: &'static str,
    /// Whether the row sees no key at all.
    pub(super) empty: bool,
    pub(super) empty_row: EmptyRow,
    /// Base of the element, where it is an LSE.
    pub(super) base: LseBase,
}

impl Judge {
    pub(super) fn compare(
        &self,
        location: Location,
        got: f64,
        expected: &Expected,
        bound: Bound,
    ) -> Compared {
        let want = self.want(expected);
        let (standing, measure) = match expected {
            Expected::Exact(exact) => self.measure(got, exact, bound),
            _ if want.admits(got) => (Standing::Right, None),
            _ if self.empty => (Standing::Wrong("FAS:fwd.softmax.empty-row"), None),
            _ => (Standing::Wrong(self.special_clause), None),
        };
        let ratio = match (standing, measure) {
            (_, Some((error, bound))) => ratio(error, bound),
            (Standing::Wrong(_), None) => f64::INFINITY,
            (_, None) => 0.0,
        };
        let (error, bound) = measure.unzip();
        let element = Element { location, got, want, error, bound, ratio };
        Compared { quantity: self.quantity, element, standing }
    }

    /// The standing of an element that should be about a number, with its error and bound where it
    /// has both.
    fn measure(&self, got: f64, exact: &Exact, bound: Bound) -> (Standing, Option<(f64, f64)>) {
        let Bound::Within(bound) = bound else {
            return (Standing::Unbounded, None);
        };
        if got.is_nan() {
            return (Standing::Wrong("FAS:fwd.output.written"), None);
        }
        if got.is_infinite() {
            return (Standing::Wrong("FAS:fwd.output.finite"), None);
        }
        let error = match self.base {
            LseBase::Natural => exact.enclosure.error_of(got).0,
            LseBase::Two => error_in_nats(got, &exact.enclosure),
        };
        let standing = if error > bound {
            Standing::Wrong(bound_clause(self.quantity))
        } else {
            Standing::Right
        };
        (standing, Some((error, bound)))
    }

    fn want(&self, expected: &Expected) -> Want {
        match expected {
            Expected::Exact(exact) => Want::Number(self.in_base(best_guess(exact))),
            Expected::InfinityOrNan { negative } => Want::InfinityOrNan { negative: *negative },
            Expected::MinusInfinity => Want::MinusInfinity,
            Expected::EmptyRow if self.empty_row == EmptyRow::Zero => Want::Zero,
            Expected::EmptyRowOrNan if self.empty_row == EmptyRow::Zero => Want::NanOrZero,
            Expected::Nan | Expected::EmptyRow | Expected::EmptyRowOrNan => Want::Nan,
        }
    }

    fn in_base(&self, nats: f64) -> f64 {
        match self.base {
            LseBase::Natural => nats,
            LseBase::Two => nats / LN_2,
        }
    }
}

/// The clause that states the bound on an output.
pub(super) const fn bound_clause(quantity: Quantity) -> &'static str {
    match quantity {
        Quantity::Output => "FAS:bound.fwd.output",
        Quantity::Lse => "FAS:bound.fwd.lse",
        Quantity::QueryGradient => "FAS:bound.bwd.query",
        Quantity::KeyGradient => "FAS:bound.bwd.key",
        Quantity::ValueGradient => "FAS:bound.bwd.value",
    }
}

/// The error over the bound; infinite where the bound is zero and the error is not.
pub(super) fn ratio(error: f64, bound: f64) -> f64 {
    if error == 0.0 { 0.0 } else { error / bound }
}

/// The correctly rounded answer, or, where no precision decided it, the lower end of its enclosure.
pub(super) fn best_guess(exact: &Exact) -> f64 {
    exact.rounded.unwrap_or_else(|| exact.enclosure.to_f64().0)
}

/// The most error, in nats, of an LSE given in base two.
pub(super) fn most_error_in_nats(got: f64, enclosure: &Enclosure) -> f64 {
    let (below, above) = in_nats(got);
    enclosure.error_of(below).1.max(enclosure.error_of(above).1)
}

/// Bounds on an LSE in nats that is given in base two.
fn in_nats(got: f64) -> (f64, f64) {
    // `LN_2` and the product each err by half an ulp of theirs, together below two ulps of the
    // product; the third is for the second order.
    let nats = got * LN_2;
    (nats.next_down().next_down().next_down(), nats.next_up().next_up().next_up())
}

/// The least error, in nats, of an LSE given in base two.
fn error_in_nats(got: f64, enclosure: &Enclosure) -> f64 {
    let (below, above) = in_nats(got);
    let at_an_end = enclosure.error_of(below).0.max(enclosure.error_of(above).0);
    // |x - end| - |x - got| is at most the interval's width.
    (at_an_end - (above - below).next_up()).next_down().max(0.0)
}
