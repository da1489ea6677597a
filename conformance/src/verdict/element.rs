//! One element against its exact answer.

use std::fmt;

use flashproof_oracle::row::{Exact, Expected};
use flashproof_spec::bound::Bound;
use serde::{Serialize, Serializer};

use super::convention::Convention;
use super::place::{Location, Quantity};
use super::strict::Strict;
use super::tally::Element;
use crate::adapter::EmptyRow;
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
    /// Plus infinity: the LSE of a row without keys, in a kernel that negates it.
    PlusInfinity,
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
            Self::PlusInfinity => Some("inf"),
            Self::Unspecified => Some("anything"),
        }
    }

    /// The same of the negated number.
    fn negated(self) -> Self {
        match self {
            Self::Number(value) => Self::Number(-value),
            Self::Unchanged(value) => Self::Unchanged(-value),
            Self::InfinityOrNan { negative } => Self::InfinityOrNan { negative: !negative },
            Self::MinusInfinity => Self::PlusInfinity,
            Self::PlusInfinity => Self::MinusInfinity,
            Self::Zero | Self::Nan | Self::NanOrZero | Self::Unspecified => self,
        }
    }

    const fn number(self) -> f64 {
        match self {
            Self::Number(value) | Self::Unchanged(value) => value,
            Self::Zero => 0.0,
            _ => f64::NAN,
        }
    }

    /// The number that it should be, an infinity where it is exactly that; NaN where there is no one
    /// number.
    pub(crate) const fn expected(self) -> f64 {
        match self {
            Self::MinusInfinity => f64::NEG_INFINITY,
            Self::PlusInfinity => f64::INFINITY,
            _ => self.number(),
        }
    }

    /// Whether `got` is what an exact requirement asks for. Not for [`Want::Number`], which takes a
    /// bound.
    pub(crate) fn admits(self, got: f64) -> bool {
        match self {
            Self::Number(_) => false,
            Self::Zero => got == 0.0,
            Self::Nan => got.is_nan(),
            Self::NanOrZero => got.is_nan() || got == 0.0,
            Self::InfinityOrNan { negative } => {
                got.is_nan() || (got.is_infinite() && got.is_sign_negative() == negative)
            }
            Self::MinusInfinity => got == f64::NEG_INFINITY,
            Self::PlusInfinity => got == f64::INFINITY,
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
    /// What the strict gate came to; `None` where it does not concern the element.
    pub strict: Option<Strict>,
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
    /// Clause behind a NaN, an infinity or a zero that is required.
    pub(super) exact_clause: &'static str,
    /// What an output entry of a row without visible keys is.
    pub(super) empty_row: EmptyRow,
    /// Whether the LSE of such a row may be NaN as well.
    pub(super) empty_lse_may_be_nan: bool,
    /// How the element is to be read.
    pub(super) convention: Convention,
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
        let Expected::Exact(exact) = expected else { return self.require(location, got, want) };
        let (standing, measure) = self.measure(got, exact, bound);
        self.compared(location, got, want, standing, measure)
    }

    /// Compares with what is required exactly, or with nothing.
    pub(super) fn require(&self, location: Location, got: f64, want: Want) -> Compared {
        let standing = match want {
            Want::Unspecified => Standing::Unspecified,
            _ if want.admits(got) => Standing::Right,
            _ => Standing::Wrong(self.exact_clause),
        };
        self.compared(location, got, want, standing, None)
    }

    fn compared(
        &self,
        location: Location,
        got: f64,
        want: Want,
        standing: Standing,
        measure: Option<(f64, f64)>,
    ) -> Compared {
        let ratio = match (standing, measure) {
            (_, Some((error, bound))) => ratio(error, bound),
            (Standing::Wrong(_), None) => f64::INFINITY,
            (Standing::Unspecified, None) => f64::NAN,
            (_, None) => 0.0,
        };
        let (error, bound) = measure.unzip();
        let element = Element { location, got, want, error, bound, ratio };
        Compared { quantity: self.quantity, element, standing, strict: None }
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
        let error = self.convention.least_error(got, &exact.enclosure);
        let standing = if error > bound {
            Standing::Wrong(bound_clause(self.quantity))
        } else {
            Standing::Right
        };
        (standing, Some((error, bound)))
    }

    /// What an element should be, as the kernel writes it.
    fn want(&self, expected: &Expected) -> Want {
        let want = match expected {
            Expected::Exact(exact) => {
                return Want::Number(self.convention.written(best_guess(exact)));
            }
            Expected::InfinityOrNan { negative } => Want::InfinityOrNan { negative: *negative },
            Expected::MinusInfinity if self.empty_lse_may_be_nan => {
                Want::InfinityOrNan { negative: true }
            }
            Expected::MinusInfinity => Want::MinusInfinity,
            Expected::EmptyRow => match self.empty_row {
                EmptyRow::Zero => Want::Zero,
                EmptyRow::Nan => Want::Nan,
                // The mean of no values: 0 / 0, or 0 where that is guarded.
                EmptyRow::Mean => Want::NanOrZero,
            },
            Expected::EmptyRowOrNan => match self.empty_row {
                EmptyRow::Zero | EmptyRow::Mean => Want::NanOrZero,
                EmptyRow::Nan => Want::Nan,
            },
            Expected::Nan => Want::Nan,
            Expected::Unspecified => Want::Unspecified,
        };
        if self.convention.is_negated() { want.negated() } else { want }
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
        Quantity::BiasGradient => "FAS:bound.bwd.bias",
        Quantity::SinkGradient => "FAS:bound.bwd.sink",
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
