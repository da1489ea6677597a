//! Masks of every rule, each with a name.

use flashproof_spec::mask::{
    Alignment, BlockSparse, Chunked, Dilated, Documents, Prefix, Rule, Window,
};
use flashproof_spec::pattern::Pattern;
use flashproof_spec::problem::Problem;

/// A rule's name, and the rule in an alignment.
type Aligned = (&'static str, fn(Alignment) -> Rule);

/// Masks for a problem of two batch members, four query heads and more than a few keys.
pub fn of_every_kind(problem: &Problem) -> Vec<(&'static str, Vec<Rule>)> {
    let [_, heads, queries, keys] = problem.score_shape();
    let lengths = vec![keys, keys - 3];
    let used = || Rule::KeyLengths(lengths.clone());
    let both = |rule: fn(Alignment) -> Rule| [Alignment::TopLeft, Alignment::BottomRight].map(rule);
    let documents =
        |len: usize| (0..2).map(move |b| (0..len).map(move |p| (p / (3 + b)) as u32).collect());
    let pattern = Pattern::from_fn([2, 1, queries, keys], |[b, _, q, k]| (b + q + 2 * k) % 3 > 0);
    let heads_differ = Pattern::from_fn([1, heads, 1, keys], |[_, h, _, k]| (h + k) % 4 > 0);
    let blocks =
        Pattern::from_fn([1, heads, queries.div_ceil(2), keys.div_ceil(3)], |[_, h, q, k]| {
            (h + q + k) % 3 > 0
        });
    let mut masks = vec![
        ("key starts", vec![used(), Rule::KeyStarts(vec![2, 5]), Rule::CausalBottomRight]),
        ("query lengths", vec![used(), Rule::QueryLengths(vec![3, 0]), Rule::CausalBottomRight]),
        (
            "documents",
            vec![Rule::Documents(Documents {
                query: documents(queries).collect(),
                key: documents(keys).collect(),
            })],
        ),
        ("boolean", vec![used(), Rule::Boolean(pattern)]),
        ("boolean by head", vec![Rule::Boolean(heads_differ), Rule::CausalBottomRight]),
        (
            "blocks",
            vec![Rule::BlockSparse(BlockSparse { query_block: 2, key_block: 3, pattern: blocks })],
        ),
    ];
    let aligned: [Aligned; 6] = [
        ("window", |alignment| window(Some(2), Some(1), alignment)),
        ("window to the left", |alignment| window(Some(0), None, alignment)),
        ("window to the right", |alignment| window(None, Some(0), alignment)),
        ("prefix", |alignment| Rule::Prefix(Prefix { lengths: vec![3, 9], alignment })),
        ("chunks", |alignment| Rule::Chunked(Chunked { size: 4, alignment })),
        ("dilated", |alignment| Rule::Dilated(Dilated { step: 3, alignment })),
    ];
    for (name, rule) in aligned {
        masks.extend(both(rule).map(|rule| (name, vec![rule.clone(), used()])));
        masks.extend(both(rule).map(|rule| (name, vec![rule])));
    }
    masks
}

fn window(left: Option<usize>, right: Option<usize>, alignment: Alignment) -> Rule {
    Rule::Window(Window { left, right, alignment })
}
