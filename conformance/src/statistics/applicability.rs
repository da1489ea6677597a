//! Where roundings are as good as independent.

use std::collections::HashSet;
use std::fmt;

use flashproof_spec::bound;
use flashproof_spec::problem::Problem;
use flashproof_spec::profile::Profile;
use flashproof_spec::tensor::Inputs;
use ndarray::{ArrayView1, Axis};
use serde::Serialize;

use crate::case::Case;
use crate::inputs::{Family, Scores, Values};

/// Why a case is not tested.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum NotApplicable {
    /// Queries, keys or values are not drawn independently of each other: ties, constants, ramps.
    Structured,
    /// Two keys of a head are equal, and so is every rounding that they undergo.
    EqualKeys,
    /// Data is shared or laid out such that rows repeat.
    Layout,
    /// The case is about something else: poison, gradients, other answers or a formula.
    OtherPurpose,
    /// No answer that could be tested: none was given, or it is wrong at the worst-case bound.
    NoAnswer,
    /// The declared profile truncates.
    Truncation,
    /// The declared profile flushes to zero.
    FlushToZero,
    /// Scores or weights are modified, or parts are merged.
    Modified,
}

impl NotApplicable {
    /// Every reason.
    pub const ALL: [Self; 8] = [
        Self::Structured,
        Self::EqualKeys,
        Self::Layout,
        Self::OtherPurpose,
        Self::NoAnswer,
        Self::Truncation,
        Self::FlushToZero,
        Self::Modified,
    ];

    /// The reason in a few words.
    #[must_use]
    pub const fn words(self) -> &'static str {
        match self {
            Self::Structured => "inputs that are not drawn independently",
            Self::EqualKeys => "equal keys",
            Self::Layout => "a layout",
            Self::OtherPurpose => "poison, gradients, relations, formulas or merges",
            Self::NoAnswer => "no answer, or one that fails",
            Self::Truncation => bound::NotApplicable::Truncation.words(),
            Self::FlushToZero => bound::NotApplicable::FlushToZero.words(),
            Self::Modified => bound::NotApplicable::Modified.words(),
        }
    }
}

impl fmt::Display for NotApplicable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.words())
    }
}

impl From<bound::NotApplicable> for NotApplicable {
    fn from(reason: bound::NotApplicable) -> Self {
        match reason {
            bound::NotApplicable::Truncation => Self::Truncation,
            bound::NotApplicable::FlushToZero => Self::FlushToZero,
            bound::NotApplicable::Modified => Self::Modified,
        }
    }
}

/// Why a case that a kernel of this profile answers is not tested; `None` where it is.
#[must_use]
pub fn not_applicable(case: &Case, inputs: &Inputs, profile: &Profile) -> Option<NotApplicable> {
    let problem = &case.problem;
    if case.upstream.is_some() || case.check.is_some() || case.poison.is_some() {
        return Some(NotApplicable::OtherPurpose);
    }
    if !is_independent(case.family) {
        return Some(NotApplicable::Structured);
    }
    if !problem.layout.is_contiguous() {
        return Some(NotApplicable::Layout);
    }
    if let Some(reason) = bound::not_applicable(problem, profile) {
        return Some(reason.into());
    }
    has_equal_keys(problem, inputs).then_some(NotApplicable::EqualKeys)
}

/// Whether entries of query, key and value are drawn independently, none of them a constant.
const fn is_independent(family: Family) -> bool {
    let scores = matches!(family.scores, Scores::Normal | Scores::Large | Scores::Tripled);
    scores && matches!(family.values, Values::Normal | Values::Positive)
}

/// In narrow formats and few dimensions, keys that are drawn independently may still be the same.
fn has_equal_keys(problem: &Problem, inputs: &Inputs) -> bool {
    let keys = inputs.key.view4();
    keys.axis_iter(Axis(0)).any(|member| {
        member.axis_iter(Axis(0)).any(|head| {
            let bits = |key: ArrayView1<'_, f64>| {
                key.iter().map(|entry| entry.to_bits()).collect::<Vec<_>>()
            };
            let distinct: HashSet<_> = head.rows().into_iter().map(bits).collect();
            distinct.len() < problem.key_len
        })
    })
}
