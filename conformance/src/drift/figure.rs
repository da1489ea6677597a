//! Numbers as a snapshot keeps them: few digits, and what they were in several runs.

use std::fmt;

use serde::Deserialize;

use crate::report::number::show;

/// A statistic in four significant digits: what is beyond is no statement about a kernel, and would
/// make every line of a difference move.
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd, Deserialize)]
#[serde(from = "f64")]
pub struct Figure(f64);

impl From<f64> for Figure {
    /// Rounds. Zero loses its sign; NaN, which no statistic is, becomes infinity.
    fn from(value: f64) -> Self {
        if value == 0.0 {
            Self(0.0)
        } else if value.is_finite() {
            Self(format!("{value:.3e}").parse().unwrap_or(value))
        } else {
            Self(if value == f64::NEG_INFINITY { value } else { f64::INFINITY })
        }
    }
}

impl Figure {
    /// The number.
    #[must_use]
    pub const fn get(self) -> f64 {
        self.0
    }
}

impl fmt::Display for Figure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&show(self.0))
    }
}

/// The least and the most of a number in some runs.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(from = "Written<T>")]
#[serde(bound = "T: Copy + Deserialize<'de>")]
pub struct Span<T> {
    /// The least.
    pub min: T,
    /// The most.
    pub max: T,
}

/// One number, or two where runs differ.
#[derive(Deserialize)]
#[serde(untagged)]
enum Written<T> {
    Same(T),
    Between([T; 2]),
}

impl<T: Copy> From<Written<T>> for Span<T> {
    fn from(written: Written<T>) -> Self {
        match written {
            Written::Same(value) => Self::of(value),
            Written::Between([min, max]) => Self { min, max },
        }
    }
}

impl<T: Copy> Span<T> {
    /// The same in every run.
    pub const fn of(value: T) -> Self {
        Self { min: value, max: value }
    }
}

impl<T: Copy + PartialOrd> Span<T> {
    /// What is between the least and the most of both.
    #[must_use]
    pub fn hull(self, other: Self) -> Self {
        Self {
            min: if other.min < self.min { other.min } else { self.min },
            max: if other.max > self.max { other.max } else { self.max },
        }
    }
}

impl<T: fmt::Display + PartialEq> fmt::Display for Span<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.min == self.max {
            self.max.fmt(f)
        } else {
            write!(f, "{} to {}", self.min, self.max)
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_figure_is_its_own_rounding_and_reads_back(value in any::<f64>()) {
            let figure = Figure::from(value);
            prop_assert_eq!(Figure::from(figure.get()), figure);
            let read: f64 = figure.to_string().parse().unwrap();
            prop_assert_eq!(read.to_bits(), figure.get().to_bits());
        }
    }

    #[test]
    fn figures_have_four_digits() {
        for (value, text) in [(0.123_456, "0.1235"), (-0.0, "0"), (1.234_56e-9, "1.235e-9")] {
            assert_eq!(Figure::from(value).to_string(), text);
        }
        assert_eq!(Figure::from(f64::INFINITY).to_string(), "inf");
    }

    #[test]
    fn a_span_shows_both_ends_where_they_differ() {
        let span = Span::of(3).hull(Span::of(5)).hull(Span::of(4));
        assert_eq!((span.to_string(), Span::of(3).to_string()), ("3 to 5".into(), "3".into()));
    }
}
