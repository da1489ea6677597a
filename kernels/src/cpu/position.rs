//! Where a query stands among the keys.

use flashproof_spec::mask::{Alignment, Rule};
use flashproof_spec::problem::Problem;

/// How many queries and keys of one batch member are in use: the rest is padding at the end.
#[derive(Clone, Copy, Debug)]
pub(super) struct InUse {
    pub(super) queries: usize,
    pub(super) keys: usize,
}

impl InUse {
    /// What the length rules leave of batch member `batch`: the shortest counts.
    ///
    /// Clauses: `FAS:mask.length.padding`, `FAS:mask.length.queries`.
    pub(super) fn new(problem: &Problem, batch: usize) -> Self {
        let mut in_use = Self { queries: problem.query_len, keys: problem.key_len };
        for rule in &problem.mask.rules {
            if let Rule::KeyLengths(lengths) = rule {
                in_use.keys = in_use.keys.min(lengths[batch]);
            }
            if let Rule::QueryLengths(lengths) = rule {
                in_use.queries = in_use.queries.min(lengths[batch]);
            }
        }
        in_use
    }

    /// How far a query's own position among the keys lies past its index: nothing where the first
    /// query stands at the first key; where the last one in use stands at the last key in use, as
    /// much as there are more keys than queries, which is negative where there are fewer.
    pub(super) fn shift(self, alignment: Alignment) -> isize {
        match alignment {
            Alignment::TopLeft => 0,
            Alignment::BottomRight => signed(self.keys) - signed(self.queries),
        }
    }
}

/// The same number with a sign. Lengths of tensors are far below the limit; a distance past it
/// reaches as far as one at it, which is past every key.
pub(super) fn signed(n: usize) -> isize {
    isize::try_from(n).unwrap_or(isize::MAX)
}
