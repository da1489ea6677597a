//! What must hold between two answers of one kernel, whatever the exact answer is.
//!
//! A relation takes a problem and its inputs to one or more *others*, whose rows are rows of the
//! first, moved in a known way. So an error is found that both a kernel and a reference could share,
//! such as in the reading of a mask, and in sequences longer than one cares to compute exactly.
//!
//! Two answers that are each within their bounds of the same exact number lie within the sum of the
//! two bounds of each other. Only the bounds' conditions come from the oracle, its answers do not.

mod compare;
mod transform;

use flashproof_spec::problem::Problem;
use flashproof_spec::tensor::Inputs;
use serde::{Deserialize, Serialize};

pub use compare::{Pair, RowPair, compare, compare_gradients, sampled};
pub use transform::{FAMILY, Other, Rows, others, shows, suited};

use crate::adapter::Guarantees;

/// A relation between answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Relation {
    /// Keys permuted together with their values: nothing changes.
    KeyPermutation,
    /// The other batch members drawn anew: a member does not change.
    BatchIndependence,
    /// The other key heads, and the query heads that read them, drawn anew: a head does not change.
    HeadIndependence,
    /// The causal mask as a window: nothing changes.
    CausalWindow,
    /// A constant added to every score: the LSE moves by it.
    ScoreShift,
    /// A constant added to every value: outputs move by it.
    ValueShift,
    /// Each batch member by itself: nothing changes.
    BatchSplit,
    /// Each of two documents by itself: nothing changes.
    DocumentConcat,
    /// The same once more: not a bit changes, in a kernel that says so.
    Repeat,
    /// A member of the batch by itself: not a bit changes, in a kernel that says so.
    BatchInvariant,
}

impl Relation {
    /// Every relation.
    pub const ALL: [Self; 10] = [
        Self::KeyPermutation,
        Self::BatchIndependence,
        Self::HeadIndependence,
        Self::CausalWindow,
        Self::ScoreShift,
        Self::ValueShift,
        Self::BatchSplit,
        Self::DocumentConcat,
        Self::Repeat,
        Self::BatchInvariant,
    ];

    /// The name, as in a case's name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::KeyPermutation => "key-permutation",
            Self::BatchIndependence => "batch-independence",
            Self::HeadIndependence => "head-independence",
            Self::CausalWindow => "causal-window",
            Self::ScoreShift => "score-shift",
            Self::ValueShift => "value-shift",
            Self::BatchSplit => "batch-split",
            Self::DocumentConcat => "document-concat",
            Self::Repeat => "repeat",
            Self::BatchInvariant => "batch-invariant",
        }
    }

    /// The clause that states it.
    #[must_use]
    pub const fn clause(self) -> &'static str {
        match self {
            Self::KeyPermutation => "FAS:meta.key-permutation",
            Self::BatchIndependence => "FAS:meta.batch-independence",
            Self::HeadIndependence => "FAS:meta.head-independence",
            Self::CausalWindow => "FAS:meta.causal-window",
            Self::ScoreShift => "FAS:meta.score-shift",
            Self::ValueShift => "FAS:meta.value-shift",
            Self::BatchSplit => "FAS:meta.batch-split",
            Self::DocumentConcat => "FAS:meta.document-concat",
            Self::Repeat => "FAS:repeat.deterministic",
            Self::BatchInvariant => "FAS:repeat.batch-invariant",
        }
    }

    /// What it is for, in a sentence.
    #[must_use]
    pub const fn purpose(self) -> &'static str {
        match self {
            Self::KeyPermutation => {
                "Permuted keys: exposes keys that are dropped or counted twice by their place."
            }
            Self::BatchIndependence => {
                "Other members drawn anew: exposes what leaks between batch members."
            }
            Self::HeadIndependence => "Other heads drawn anew: exposes what leaks between heads.",
            Self::CausalWindow => {
                "The causal mask as a window: exposes loop bounds that differ between the two."
            }
            Self::ScoreShift => {
                "All scores far below zero: exposes running maxima that do not start at -inf."
            }
            Self::ValueShift => "All values moved alike: exposes weights that do not sum to one.",
            Self::BatchSplit => "Members one by one: exposes offsets that depend on the batch.",
            Self::DocumentConcat => {
                "Documents one by one: exposes block skipping at their boundaries."
            }
            Self::Repeat => "The same again: exposes sums in the order of arrival.",
            Self::BatchInvariant => {
                "A member by itself: exposes additions whose order depends on the batch."
            }
        }
    }

    /// Whether the kernel promises the relation to the bit; `None`: it need not hold, since the
    /// kernel does not promise what the relation checks.
    #[must_use]
    pub const fn is_exact(self, guarantees: Guarantees) -> Option<bool> {
        match self {
            Self::Repeat if guarantees.deterministic => Some(true),
            Self::BatchInvariant if guarantees.batch_invariant => Some(true),
            Self::Repeat | Self::BatchInvariant => None,
            Self::BatchIndependence | Self::BatchSplit => Some(guarantees.batch_invariant),
            _ => Some(false),
        }
    }

    /// What a kernel would have to promise, in words for a report.
    #[must_use]
    pub const fn promise(self) -> &'static str {
        match self {
            Self::Repeat => "determinism",
            _ => "batch invariance",
        }
    }
}

/// A problem with its inputs.
#[derive(Clone, Debug, PartialEq)]
pub struct Posed {
    /// What is computed.
    pub problem: Problem,
    /// From what.
    pub inputs: Inputs,
}
