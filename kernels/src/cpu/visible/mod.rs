//! Which keys a query sees, by the rules of the mask.
//!
//! Most rules admit, for each query, a run of consecutive keys, and runs intersect to a run: those
//! are the bounds of a loop ([`range`]). The others are asked key by key within it ([`site`]). What
//! lies outside of the bounds is never looked at, and what fails the question is skipped before
//! anything of it is loaded: nothing is computed and then discarded.

mod range;
mod site;

use std::ops::Range;

use flashproof_spec::mask::{Alignment, Prefix, Rule, Window};
use flashproof_spec::problem::Problem;

use super::position::InUse;
use range::{Band, Bounds};
use site::SiteTest;

/// What the queries of one head see.
pub(super) struct VisibleKeys<'a> {
    bounds: Bounds,
    tests: Vec<SiteTest<'a>>,
}

impl<'a> VisibleKeys<'a> {
    /// What query head `head` of batch member `batch` sees.
    ///
    /// Clause: `FAS:mask.intersection`.
    pub(super) fn new(problem: &'a Problem, batch: usize, head: usize) -> Self {
        let in_use = InUse::new(problem, batch);
        let mut bounds = Bounds::new(in_use);
        let mut tests = Vec::new();
        // No wildcard: a rule that is new to these kernels must stop the build, not be ignored.
        for rule in &problem.mask.rules {
            match rule {
                Rule::CausalTopLeft => bounds.add(Alignment::TopLeft, Band::CAUSAL),
                Rule::CausalBottomRight => bounds.add(Alignment::BottomRight, Band::CAUSAL),
                // Counted in `in_use`.
                Rule::KeyLengths(_) | Rule::QueryLengths(_) => {}
                Rule::KeyStarts(starts) => bounds.start_at(starts[batch]),
                &Rule::Window(Window { left, right, alignment }) => {
                    bounds.add(alignment, Band::window(left, right));
                }
                Rule::Prefix(Prefix { lengths, alignment }) => {
                    bounds.add(*alignment, Band::prefix(lengths[batch]));
                }
                Rule::Chunked(chunked) => {
                    bounds.add(chunked.alignment, Band::chunk(chunked.size));
                }
                Rule::Dilated(dilated) => {
                    tests.push(SiteTest::dilated(dilated.step, in_use.shift(dilated.alignment)));
                }
                Rule::Documents(documents) => tests.push(SiteTest::documents(documents, batch)),
                Rule::Boolean(pattern) => tests.push(SiteTest::boolean(pattern, batch, head)),
                Rule::BlockSparse(blocks) => {
                    tests.push(SiteTest::block_sparse(blocks, batch, head));
                }
            }
        }
        Self { bounds, tests }
    }

    /// The bounds of the loop over a query's keys: none outside of them is visible.
    pub(super) fn bounds(&self, query: usize) -> Range<usize> {
        self.bounds.keys(query)
    }

    /// Whether a query sees a key that lies within its bounds.
    pub(super) fn admits(&self, query: usize, key: usize) -> bool {
        self.tests.iter().all(|test| test.admits(query, key))
    }

    /// Whether a tile is worth entering: one of its keys lies within the bounds of one of its
    /// queries, and no pattern of blocks rules all of it out.
    ///
    /// Clauses: `FAS:fwd.online.masked-block`, `FAS:mask.block-sparse.pattern`.
    pub(super) fn reaches(&self, queries: &Range<usize>, keys: &Range<usize>) -> bool {
        let within = |query| {
            let seen = self.bounds(query);
            seen.start.max(keys.start) < seen.end.min(keys.end)
        };
        queries.clone().any(within) && self.tests.iter().all(|test| test.reaches(queries, keys))
    }
}

#[cfg(test)]
mod tests {
    use flashproof_spec::format::Format;
    use flashproof_spec::mask::{BlockSparse, Mask};
    use flashproof_spec::pattern::Pattern;

    use super::*;

    fn problem(rule: Rule) -> Problem {
        Problem { mask: Mask::only(rule), ..Problem::new(Format::F32, 1, 8, 1) }
    }

    /// A pattern of one block in three, in tiles of any size: a tile is entered if and only if
    /// something is to be seen in it.
    #[test]
    fn tiles_without_a_block_to_see_are_skipped() {
        let pattern = Pattern::from_fn([1, 1, 3, 4], |[_, _, row, column]| (row + column) % 3 == 0);
        let rule = Rule::BlockSparse(BlockSparse { query_block: 3, key_block: 2, pattern });
        check_every_tile(&problem(rule));
    }

    #[test]
    fn tiles_past_the_bounds_of_every_query_are_skipped() {
        for (left, right) in [(Some(1), Some(0)), (Some(0), Some(2)), (None, Some(0))] {
            let alignment = Alignment::BottomRight;
            check_every_tile(&problem(Rule::Window(Window { left, right, alignment })));
        }
    }

    fn check_every_tile(problem: &Problem) {
        let visible = VisibleKeys::new(problem, 0, 0);
        let sees = |query, key| visible.bounds(query).contains(&key) && visible.admits(query, key);
        let ranges = || (0..8).flat_map(|start| (start + 1..=8).map(move |end| start..end));
        for queries in ranges() {
            for keys in ranges() {
                let any = queries.clone().any(|query| keys.clone().any(|key| sees(query, key)));
                assert_eq!(visible.reaches(&queries, &keys), any, "{queries:?} {keys:?}");
            }
        }
    }
}
