//! The clauses: what is required of an attention kernel, numbered so that it can be cited.
//!
//! # Notation
//!
//! All statements speak of one *row*: one query of one head of one batch member. Vectors are bold
//! only in books; here `q` is the query row (`head_dim` entries), `k_i` and `v_i` are key and value
//! rows, `i` runs over the row's visible keys (those that the [mask](crate::mask) admits) unless
//! another range is given, and `j` over the `value_dim` output entries.
//!
//! | symbol | meaning |
//! |---|---|
//! | `s_i` | score of key `i`: `scale * <q, k_i>`, with softcap, bias and ALiBi where the problem has them |
//! | `m` | the row's reference, usually `max_i s_i` |
//! | `t` | logit of the sink, where the row has one |
//! | `l` | normalizer: `sum_i e^(s_i - m)`, the sink's term included |
//! | `n_j` | numerator: `sum_i e^(s_i - m) v_ij` |
//! | `o_j` | output: `n_j / l` |
//! | `L` | log-sum-exp (LSE): `m + ln l` |
//! | `p_i` | softmax probability: `e^(s_i - L)` |
//! | `z_i` | what dropout multiplies `p_i` by |
//! | `dO_j`, `g` | upstream gradients: the loss differentiated by `o_j` and by `L` |
//! | `dP_i` | gradient by a probability: `sum_j dO_j v_ij` |
//! | `D` | what the row's probability gradients average to: `sum_j dO_j o_j` |
//! | `dS_i` | gradient by a score: `p_i (dP_i - D + g)` |
//! | `dQ_r`, `dK_i`, `dV_i` | gradients by query `r`, key `i` and value `i` |
//! | `o^_j`, `L^` | output and LSE as a kernel computed them |
//! | `u` | unit roundoff of a number format: `2^-precision` |
//!
//! # Identifiers
//!
//! `FAS:<area>.<topic>.<rule>`, or `FAS:<area>.<rule>` where an area needs no topics. An id keeps
//! its meaning for ever: a changed requirement takes a new id and the old clause is
//! [withdrawn](Status::Withdrawn). "The chapter" in references is the textbook chapter whose
//! equations 26.1 (softmax attention of a row) and 26.2 (the online recurrence) and listings 26.1
//! to 26.4 this specification makes executable.

mod bound;
mod choice;
mod cite;
mod contract;
mod device;
mod gradient;
mod io;
mod layout;
mod mask;
mod modified;
mod number;
mod online;
mod oracle;
mod problem;
mod relation;
mod score;
mod softmax;
mod special;

use std::fmt;
use std::sync::LazyLock;

pub use cite::{cite_bibtex, cite_rustdoc, cite_text};

/// Version of the specification, by semantic versioning: a new clause is a new minor version, a
/// withdrawn one a new major version.
pub const SPEC_VERSION: &str = env!("CARGO_PKG_VERSION");

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
    /// The machine-checked theorem that says most of it, as `Module.theorem`, where there is one;
    /// [`crate::proof`] has all of them.
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

/// Every clause, in ascending order of id.
#[must_use]
pub fn clauses() -> &'static [&'static Clause] {
    static SORTED: LazyLock<Vec<&'static Clause>> = LazyLock::new(|| {
        let areas = [
            bound::CLAUSES,
            choice::CLAUSES,
            contract::CLAUSES,
            device::CLAUSES,
            gradient::CLAUSES,
            io::CLAUSES,
            layout::CLAUSES,
            mask::CLAUSES,
            modified::CLAUSES,
            number::CLAUSES,
            online::CLAUSES,
            oracle::CLAUSES,
            problem::CLAUSES,
            relation::CLAUSES,
            score::CLAUSES,
            softmax::CLAUSES,
            special::CLAUSES,
        ];
        let mut sorted: Vec<_> = areas.into_iter().flatten().collect();
        sorted.sort_by_key(|clause| clause.id);
        sorted
    });
    &SORTED
}

/// The clause of that id, prefix `FAS:` included; `None` where there is none.
#[must_use]
pub fn find(id: &str) -> Option<&'static Clause> {
    let clauses = clauses();
    clauses.binary_search_by_key(&id, |clause| clause.id).ok().map(|index| clauses[index])
}
