//! Which other precision contract a failing kernel would keep.
//!
//! A kernel fails because it breaks the [`Profile`] that it declares. That can be a fault, or a contract
//! that says too much: an exponential that is worse than declared, a sum that is carried in fewer bits.
//! The search tries departures from the declared profile on the answers that the kernel has given,
//! which are kept and judged again, never recomputed, and tells the least one under which none of them
//! fails. What it finds is a diagnosis: the verdicts stay as they are.
//!
//! Every departure only widens bounds (`a_looser_profile_never_tightens` in the specification's tests), so
//! cases that pass need not be judged again.
//!
//! | file | what it answers |
//! |---|---|
//! | `departure.rs` | what a kernel may do otherwise than it declares |
//! | `ladder.rs` | which departures are tried, and which of them counts as less |
//! | `search.rs` | the least that leaves no failure |

mod departure;
mod ladder;
mod search;

use flashproof_oracle::error::OracleError;
use flashproof_spec::format::Format;
use flashproof_spec::profile::Profile;
use serde::Serialize;

use crate::verdict::Verdict;

pub use departure::{Departure, Gradient};

/// A failing case whose answer was kept, so that it can be judged again.
pub trait Kept: Sync {
    /// The case's name.
    fn case(&self) -> &str;

    /// How much there is to judge: cases of less are tried first.
    fn size(&self) -> usize;

    /// The verdict on the same answer under another profile.
    ///
    /// # Errors
    /// [`OracleError`] when case and answer do not belong together.
    fn verdict_under(&self, profile: &Profile) -> Result<Verdict, OracleError>;
}

/// What was found for the failing cases of one format.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Fit {
    /// The format of the cases.
    pub format: Format,
    /// How many of them failed.
    pub failing: usize,
    /// What would explain them all.
    #[serde(flatten)]
    pub found: Found,
}

/// What explains the failing cases.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "found", rename_all = "kebab-case")]
pub enum Found {
    /// These departures from the declared profile, together, and no less.
    PassesIf {
        /// One, or two.
        departures: Vec<Departure>,
        /// Failing cases that the wider profile bounds nothing in: they do not pass either.
        unbounded: usize,
    },
    /// None of the departures that were tried, alone or in pairs: a fault, not a precision.
    Nothing {
        /// A case that fails whatever is departed from; absent where different ones do.
        #[serde(skip_serializing_if = "Option::is_none")]
        case: Option<String>,
    },
}

/// The least departure from `declared` under which none of `failing`, cases of one format, fails.
///
/// # Errors
/// [`OracleError`] when a case and its answer do not belong together.
pub fn fit<K: Kept>(format: Format, declared: &Profile, failing: &[K]) -> Result<Fit, OracleError> {
    let found = search::least(declared, failing)?;
    Ok(Fit { format, failing: failing.len(), found })
}
