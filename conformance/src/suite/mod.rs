//! Suites: the cases that a kernel is put through.

mod feature;
mod grid;
mod masks;
mod modified;
pub mod pairwise;
mod quantized;
mod related;
mod reported;
mod special;

use std::collections::HashSet;
use std::fmt;

use flashproof_spec::format::Format;
use serde::{Deserialize, Serialize};
use wildmatch::WildMatch;

pub use feature::{Feature, with_features};

use crate::case::Case;

/// How thorough a run is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Suite {
    /// Every pair of conditions at small extents, and every reported fault: well under a minute.
    #[default]
    Quick,
    /// The same at more and larger extents: a few minutes.
    Full,
}

impl fmt::Display for Suite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Quick => "quick",
            Self::Full => "full",
        })
    }
}

/// Which passes of a kernel a run puts to the test.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Direction {
    /// Output and LSE.
    Forward,
    /// Gradients, and the output and LSE that they start from.
    Backward,
    /// Both.
    #[default]
    Both,
}

impl Direction {
    /// Whether the case is one of this direction.
    #[must_use]
    pub const fn includes(self, case: &Case) -> bool {
        match self {
            Self::Forward => case.upstream.is_none(),
            Self::Backward => case.upstream.is_some(),
            Self::Both => true,
        }
    }
}

impl fmt::Display for Direction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Forward => "forward",
            Self::Backward => "backward",
            Self::Both => "both",
        })
    }
}

/// The seed of a run that names none.
pub const DEFAULT_SEED: u64 = 1;

/// The suite's cases for the given formats, in the order that they run.
///
/// Names are unique. Combinations that a format cannot hold are left out, so formats differ a
/// little in their cases, those of 8 bits have their own, with descales; and where formats of bias and sinks are a difference in one format and
/// none in another, that has fewer.
#[must_use]
pub fn cases(suite: Suite, formats: &[Format], seed: u64) -> Vec<Case> {
    let arrays = |grids: [modified::Grid; 2]| grids.map(|grid| grid.cases(seed)).concat();
    let everywhere = [
        reported::cases(seed),
        grid::cases(suite, seed),
        grid::gradient_cases(suite, seed),
        arrays(modified::forward(suite)),
        special::forward(seed),
        related::forward(suite, seed),
        arrays(modified::backward(suite)),
        special::backward(seed),
        related::backward(seed),
    ]
    .concat();
    let mut names = HashSet::new();
    formats
        .iter()
        .flat_map(|&format| {
            let cases = everywhere.iter().filter_map(move |case| case.in_format(format));
            cases.chain(quantized::cases(format, seed))
        })
        .filter(|case| names.insert(case.name.clone()))
        .collect()
}

/// Those cases whose name matches one of the patterns, in which `*` stands for any text and `?`
/// for any character; all of them without a pattern.
#[must_use]
pub fn matching(cases: Vec<Case>, patterns: &[String]) -> Vec<Case> {
    if patterns.is_empty() {
        return cases;
    }
    let wanted = |case: &Case| patterns.iter().any(|pattern| is_match(case, pattern));
    cases.into_iter().filter(wanted).collect()
}

/// Whether the case's name matches the pattern.
#[must_use]
pub fn is_match(case: &Case, pattern: &str) -> bool {
    WildMatch::new(pattern).matches(&case.name)
}
