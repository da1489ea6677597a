//! Masks that are read as others.

use flashproof_spec::mask::{
    Alignment, BlockSparse, Chunked, Dilated, Documents, Prefix, Rule, Window,
};
use flashproof_spec::pattern::Pattern;
use flashproof_spec::problem::Problem;
use flashproof_spec::tensor::Inputs;

use crate::cpu::position::{InUse, signed};

/// Each rule replaced by what `read` makes of it; `None` leaves it out.
fn reread(problem: &mut Problem, mut read: impl FnMut(&Problem, &Rule) -> Option<Rule>) {
    let before = problem.clone();
    problem.mask.rules = before.mask.rules.iter().filter_map(|rule| read(&before, rule)).collect();
}

/// The rule that admits what `sees` says of the distance of a batch member's query index to its own
/// position, and of query and key.
fn positions(problem: &Problem, alignment: Alignment, sees: impl Fn(isize, isize) -> bool) -> Rule {
    let shape = [problem.batch, 1, problem.query_len, problem.key_len];
    let pattern = Pattern::from_fn(shape, |[batch, _, query, key]| {
        let shift = InUse::new(problem, batch).shift(alignment);
        sees(signed(query) + shift, signed(key))
    });
    Rule::Boolean(pattern)
}

/// The first query at the first key, where the last should be at the last.
pub(in crate::cpu::mutant) fn causal_top_left(problem: &mut Problem, _: &mut Inputs) {
    reread(problem, |_, rule| match rule {
        Rule::CausalBottomRight => Some(Rule::CausalTopLeft),
        rule => Some(rule.clone()),
    });
}

/// A query does not see the key at its own position.
pub(in crate::cpu::mutant) fn causal_strict(problem: &mut Problem, _: &mut Inputs) {
    reread(problem, |problem, rule| match rule {
        Rule::CausalTopLeft => Some(positions(problem, Alignment::TopLeft, |own, key| key < own)),
        Rule::CausalBottomRight => {
            Some(positions(problem, Alignment::BottomRight, |own, key| key < own))
        }
        rule => Some(rule.clone()),
    });
}

/// One key more to the left.
pub(in crate::cpu::mutant) fn window_plus_one(problem: &mut Problem, _: &mut Inputs) {
    reread(problem, |_, rule| match rule {
        Rule::Window(window) => {
            let left = window.left.map(|left| left.saturating_add(1));
            Some(Rule::Window(Window { left, ..*window }))
        }
        rule => Some(rule.clone()),
    });
}

/// No end of the window on the right.
pub(in crate::cpu::mutant) fn window_right_open(problem: &mut Problem, _: &mut Inputs) {
    reread(problem, |_, rule| match rule {
        Rule::Window(window) => Some(Rule::Window(Window { right: None, ..*window })),
        rule => Some(rule.clone()),
    });
}

/// Windows aligned at the first key.
pub(in crate::cpu::mutant) fn window_top_left(problem: &mut Problem, _: &mut Inputs) {
    reread(problem, |_, rule| match rule {
        Rule::Window(window) => {
            Some(Rule::Window(Window { alignment: Alignment::TopLeft, ..*window }))
        }
        rule => Some(rule.clone()),
    });
}

/// One key more in the prefix.
pub(in crate::cpu::mutant) fn prefix_plus_one(problem: &mut Problem, _: &mut Inputs) {
    reread(problem, |problem, rule| match rule {
        Rule::Prefix(Prefix { lengths, alignment }) => {
            let longer = lengths.iter().map(|length| problem.key_len.min(length + 1));
            Some(Rule::Prefix(Prefix { lengths: longer.collect(), alignment: *alignment }))
        }
        rule => Some(rule.clone()),
    });
}

/// The first position of a chunk counted to the chunk before it.
pub(in crate::cpu::mutant) fn chunk_boundary(problem: &mut Problem, _: &mut Inputs) {
    reread(problem, |problem, rule| match rule {
        Rule::Chunked(Chunked { size, alignment }) => {
            let size = signed(*size);
            Some(positions(problem, *alignment, |own, key| {
                (own - 1).div_euclid(size) == key.div_euclid(size)
            }))
        }
        rule => Some(rule.clone()),
    });
}

/// Every so many keys counted from the first, not from the query's own position.
pub(in crate::cpu::mutant) fn dilated_from_first(problem: &mut Problem, _: &mut Inputs) {
    reread(problem, |problem, rule| match rule {
        Rule::Dilated(Dilated { step, alignment }) => {
            let step = signed(*step);
            Some(positions(problem, *alignment, |_, key| key.rem_euclid(step) == 0))
        }
        rule => Some(rule.clone()),
    });
}

/// The document of the first key of a tile taken for that of all of its keys.
pub(in crate::cpu::mutant) fn document_of_first(problem: &mut Problem, _: &mut Inputs) {
    /// Keys of a tile.
    const TILE: usize = 64;
    reread(problem, |_, rule| match rule {
        Rule::Documents(Documents { query, key }) => {
            let of_first = |keys: &Vec<u32>| {
                keys.chunks(TILE)
                    .flat_map(|tile| std::iter::repeat_n(tile[0], tile.len()))
                    .collect()
            };
            let key = key.iter().map(of_first).collect();
            Some(Rule::Documents(Documents { query: query.clone(), key }))
        }
        rule => Some(rule.clone()),
    });
}

/// Keys before the start of a sequence that is padded on the left are seen.
pub(in crate::cpu::mutant) fn left_padding_seen(problem: &mut Problem, _: &mut Inputs) {
    reread(problem, |_, rule| match rule {
        Rule::KeyStarts(_) => None,
        rule => Some(rule.clone()),
    });
}

/// The key length of the first batch member taken for that of all.
pub(in crate::cpu::mutant) fn length_of_first(problem: &mut Problem, _: &mut Inputs) {
    reread(problem, |_, rule| match rule {
        Rule::KeyLengths(lengths) => Some(Rule::KeyLengths(vec![lengths[0]; lengths.len()])),
        rule => Some(rule.clone()),
    });
}

/// A pattern of blocks read by key block and query block.
pub(in crate::cpu::mutant) fn blocks_transposed(problem: &mut Problem, _: &mut Inputs) {
    reread(problem, |_, rule| match rule {
        Rule::BlockSparse(BlockSparse { query_block, key_block, pattern }) => {
            let [_, _, rows, columns] = pattern.shape();
            let transposed = Pattern::from_fn(pattern.shape(), |[batch, head, row, column]| {
                // Row-major memory of `[row, column]` read as `[column, row]`.
                let flat = (column * rows + row) % (rows * columns).max(1);
                pattern.at([batch, head, flat / columns, flat % columns])
            });
            Some(Rule::BlockSparse(BlockSparse {
                query_block: *query_block,
                key_block: *key_block,
                pattern: transposed,
            }))
        }
        rule => Some(rule.clone()),
    });
}

/// A mask for all heads applied to the first alone.
pub(in crate::cpu::mutant) fn boolean_on_first_head(problem: &mut Problem, _: &mut Inputs) {
    reread(problem, |problem, rule| match rule {
        Rule::Boolean(pattern) if pattern.shape()[1] == 1 => {
            let [batch, _, queries, keys] = pattern.shape();
            let shape = [batch, problem.query_heads, queries, keys];
            let of_first = |place: [usize; 4]| place[1] > 0 || pattern.at(place);
            Some(Rule::Boolean(Pattern::from_fn(shape, of_first)))
        }
        rule => Some(rule.clone()),
    });
}

/// The mask of the first head taken for that of all.
pub(in crate::cpu::mutant) fn boolean_of_first_head(problem: &mut Problem, _: &mut Inputs) {
    reread(problem, |_, rule| match rule {
        Rule::Boolean(pattern) => {
            let of_first = |[batch, _, query, key]: [usize; 4]| pattern.at([batch, 0, query, key]);
            Some(Rule::Boolean(Pattern::from_fn(pattern.shape(), of_first)))
        }
        rule => Some(rule.clone()),
    });
}
