//! Which keys a query sees and which queries see a key: the loop bounds of the kernels here.

use flashproof_spec::mask::Rule;
use flashproof_spec::problem::Problem;

/// The loop bounds of one batch member.
///
/// Every rule that these kernels know admits a prefix of the keys, and an intersection of prefixes
/// is the shortest of them. So one number a query says all, and a loop that stops there touches
/// neither masked keys nor padding: nothing is computed and then discarded.
#[derive(Clone, Copy, Debug)]
pub(super) struct VisibleKeys {
    query_len: usize,
    used_keys: usize,
    causal_top_left: bool,
    causal_bottom_right: bool,
}

impl VisibleKeys {
    /// The bounds of batch member `batch`.
    pub(super) fn new(problem: &Problem, batch: usize) -> Self {
        let mut visible = Self {
            query_len: problem.query_len,
            used_keys: problem.key_len,
            causal_top_left: false,
            causal_bottom_right: false,
        };
        // No wildcard: a rule that is new to these kernels must stop the build, not be ignored.
        for rule in &problem.mask.rules {
            match rule {
                Rule::CausalTopLeft => visible.causal_top_left = true,
                Rule::CausalBottomRight => visible.causal_bottom_right = true,
                Rule::KeyLengths(lengths) => {
                    visible.used_keys = visible.used_keys.min(lengths[batch]);
                }
            }
        }
        visible
    }

    /// One past the last key that `query` sees, 0 where it sees none; never decreases from one
    /// query to the next.
    ///
    /// Clauses: `FAS:mask.length.padding`, `FAS:mask.causal.top-left`,
    /// `FAS:mask.causal.bottom-right`.
    pub(super) fn end(&self, query: usize) -> usize {
        let mut end = self.used_keys;
        if self.causal_top_left {
            end = end.min(query + 1);
        }
        if self.causal_bottom_right {
            // The last query sees the last key in use. With fewer keys than queries the first
            // queries see none: the difference is taken last, so that it can not go below zero.
            end = end.min((query + 1 + self.used_keys).saturating_sub(self.query_len));
        }
        end
    }
    /// The first query that sees `key`, `query_len` where none does. Every later query sees it too,
    /// because `end` never decreases.
    ///
    /// Clauses: as for `end`.
    pub(super) fn first_query(&self, key: usize) -> usize {
        if key >= self.used_keys {
            return self.query_len;
        }
        let mut first = 0;
        if self.causal_top_left {
            first = first.max(key);
        }
        if self.causal_bottom_right {
            // As far from the last query as the key is from the last key in use; the first query
            // where that leads to before it, and so the difference is again taken last.
            first = first.max((self.query_len + key).saturating_sub(self.used_keys));
        }
        first.min(self.query_len)
    }
}
