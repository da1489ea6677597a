//! The clauses: what is required of an attention kernel, numbered so that it can be cited.

use std::fmt;

/// One numbered statement of the specification.
#[derive(Clone, Copy, Debug)]
pub struct Clause {
    /// `FAS:<area>.<topic>.<rule>`; never reused for another meaning.
    pub id: &'static str,
    /// Whether a kernel must, may choose, or need no longer.
    pub status: Status,
    /// A few words.
    pub title: &'static str,
    /// The requirement, in one or a few sentences.
    pub statement: &'static str,
    /// The requirement as a formula, in plain text; empty where there is none.
    pub equation: &'static str,
    /// Why it is required, or what goes wrong without it.
    pub rationale: &'static str,
    /// Books, papers and public reports that it rests on.
    pub references: &'static [&'static str],
    /// The function of this crate that executes it, as a path; empty where there is none.
    pub executable: &'static str,
    /// Tests that check it, as `path/from/root.rs::function`.
    pub checked_by: &'static [&'static str],
    /// Machine-checked theorem, where there is one.
    pub proof: Option<&'static str>,
}

/// The force of a clause.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// Every kernel must satisfy it.
    Normative,
    /// Honest kernels differ: each declares one of the named options.
    Choice {
        /// The options' names.
        options: &'static [&'static str],
    },
    /// No longer in force.
    Withdrawn {
        /// Id of the clause that took its place.
        superseded_by: &'static str,
    },
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Normative => f.write_str("normative"),
            Self::Choice { options } => write!(f, "choice: {}", options.join(" | ")),
            Self::Withdrawn { superseded_by } => write!(f, "withdrawn -> {superseded_by}"),
        }
    }
}
