//! What a case compares an answer with, where that is not the exact answer.

use flashproof_spec::problem::{Problem, Scale};
use serde::Deserialize;

use crate::closed::ClosedForm;
use crate::relation::{self, Relation};

/// A check beside the comparison with the exact answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Check {
    /// The answer is compared with the kernel's own answers to related problems.
    Related(Relation),
    /// The answer is compared with a formula.
    Closed(ClosedForm),
    /// The kernel merges so many given partials; the result is compared with the exact merge. The
    /// keys of the problem are the partials.
    Merge(usize),
}

impl Check {
    /// The name, as in a case's name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Related(relation) => relation.name(),
            Self::Closed(form) => form.name(),
            Self::Merge(_) => "merge",
        }
    }

    /// The clause that it puts to the test.
    #[must_use]
    pub const fn clause(self) -> &'static str {
        match self {
            Self::Related(relation) => relation.clause(),
            Self::Closed(form) => form.clause(),
            Self::Merge(_) => "FAS:fwd.merge.partials",
        }
    }

    /// What it is for, in a sentence.
    #[must_use]
    pub const fn purpose(self) -> &'static str {
        match self {
            Self::Related(relation) => relation.purpose(),
            Self::Closed(form) => form.purpose(),
            Self::Merge(_) => {
                "Partials to merge, empty ones among them: exposes -inf minus -inf, and LSEs taken in \
                    the wrong base."
            }
        }
    }

    /// The problem with what the check needs.
    #[must_use]
    pub(super) fn fitted(self, problem: Problem) -> Problem {
        match self {
            Self::Related(relation) => relation::shows(relation, problem),
            Self::Closed(_) => Problem { scale: Scale::Value(1.0), ..problem },
            Self::Merge(partials) => Problem { key_len: partials, ..problem },
        }
    }
}
