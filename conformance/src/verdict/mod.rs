//! Verdicts: whether a kernel's outputs are those of the problem, element by element.
//!
//! An element fails when it is *proven* wrong: when the smallest error that the exact answer's
//! enclosure leaves possible exceeds the bound, or when a value that the specification fixes exactly
//! (an empty row, a NaN that must stay one) is another. Nothing is compared with `==` against a
//! reference that could itself be NaN: what may be NaN is decided from the inputs alone.

mod convention;
mod element;
mod empty;
mod gradient;
mod place;
mod poisoned;
mod rows;
mod strict;
mod substitute;
mod tally;

use serde::{Deserialize, Serialize};

use crate::adapter::Failure;

pub(crate) use convention::Convention;
pub use element::{Compared, Standing, Want};
pub use gradient::{GradientAnswer, GradientPlaces, judge_gradients};
pub use place::{Location, Position, Quantity};
pub use poisoned::judge_poisoned;
pub use rows::{Answer, judge_rows};
pub use strict::{Strict, StrictMeasured};
pub use tally::{Element, Measured, Tally, Violation};

/// What a case, or a run, comes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// Every element is within its bound or exactly what is required.
    Pass,
    /// An element is proven wrong, or the kernel changed its inputs or did what no kernel may do.
    Fail,
    /// The kernel does not offer what the case asks for. Never a pass.
    Unsupported,
    /// The kernel ended, panicked or reported an error instead of an answer.
    Crashed,
    /// No answer within the time limit.
    TimedOut,
    /// The answer is not one to the case: wrong shape, wrong format, missing or extra outputs.
    Malformed,
    /// The declared profile admits any error on this data, and nothing is proven wrong.
    NoBound,
}

impl Verdict {
    /// Every verdict, in the order of reports.
    pub const ALL: [Self; 7] = [
        Self::Pass,
        Self::Fail,
        Self::Crashed,
        Self::TimedOut,
        Self::Malformed,
        Self::NoBound,
        Self::Unsupported,
    ];

    /// The name, as in reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Pass => "pass",
            Self::Fail => "fail",
            Self::Unsupported => "unsupported",
            Self::Crashed => "crashed",
            Self::TimedOut => "timed out",
            Self::Malformed => "malformed",
            Self::NoBound => "no bound",
        }
    }

    /// Whether the kernel was asked and did not pass.
    #[must_use]
    pub const fn is_failure(self) -> bool {
        !matches!(self, Self::Pass | Self::Unsupported)
    }

    /// The verdict on a case without an answer; `None` where the fault is not the kernel's.
    #[must_use]
    pub const fn of_failure(failure: &Failure) -> Option<Self> {
        match failure {
            Failure::Unsupported(_) => Some(Self::Unsupported),
            Failure::Crashed(_) | Failure::Reported(_) => Some(Self::Crashed),
            Failure::TimedOut { .. } => Some(Self::TimedOut),
            Failure::Malformed(_) => Some(Self::Malformed),
            Failure::InputChanged(_) | Failure::Ownership(_) | Failure::Device(_) => {
                Some(Self::Fail)
            }
            Failure::Environment(_) => None,
        }
    }
}
