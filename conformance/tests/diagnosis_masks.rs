//! Each fault of a mask is found under its own name first, and not in a right answer.

mod support;

use flashproof_spec::format::Format;
use flashproof_spec::mask::{
    Alignment, BlockSparse, Chunked, Dilated, Documents, Mask, Prefix, Rule, Site, Window,
};
use flashproof_spec::pattern::Pattern;
use flashproof_spec::problem::Problem;
use support::diagnosed::assert_found;
use support::simulated::{Committed, NONE};

/// Fewer queries than keys, in four query heads on two key heads, under these rules.
fn under(rules: Vec<Rule>) -> impl Fn(Format) -> Problem {
    move |format| Problem {
        key_heads: 2,
        query_len: 12,
        key_len: 20,
        mask: Mask { rules: rules.clone() },
        ..Problem::new(format, 4, 20, 16)
    }
}

/// A kernel that sees these keys.
fn seeing(sees: fn(&Problem, Site) -> bool) -> Committed {
    Committed { sees, ..NONE }
}

/// The mask with the rules in place of the problem's.
fn admits(problem: &Problem, rules: Vec<Rule>, site: Site) -> bool {
    Mask { rules }.admits(site, problem.query_len, problem.key_len)
}

/// The rules with each window changed.
fn with_windows(problem: &Problem, change: fn(Window) -> Window) -> Vec<Rule> {
    let change = |rule: &Rule| match rule {
        Rule::Window(window) => Rule::Window(change(*window)),
        rule => rule.clone(),
    };
    problem.mask.rules.iter().map(change).collect()
}

const WINDOW: Window = Window { left: Some(3), right: Some(2), alignment: Alignment::BottomRight };

#[test]
fn a_window_off_by_one_on_either_side() {
    let clause = "FAS:mask.window.inclusive";
    let wider_left: fn(&Problem, Site) -> bool = |problem, site| {
        let wider = |window| Window { left: Some(4), ..window };
        admits(problem, with_windows(problem, wider), site)
    };
    let narrower_left: fn(&Problem, Site) -> bool = |problem, site| {
        let narrower = |window| Window { left: Some(2), ..window };
        admits(problem, with_windows(problem, narrower), site)
    };
    let wider_right: fn(&Problem, Site) -> bool = |problem, site| {
        let wider = |window| Window { right: Some(3), ..window };
        admits(problem, with_windows(problem, wider), site)
    };
    let narrower_right: fn(&Problem, Site) -> bool = |problem, site| {
        let narrower = |window| Window { right: Some(1), ..window };
        admits(problem, with_windows(problem, narrower), site)
    };
    for sees in [wider_left, narrower_left, wider_right, narrower_right] {
        let shape = under(vec![Rule::Window(WINDOW)]);
        assert_found(shape, seeing(sees), "window-off-by-one", clause);
    }
}

#[test]
fn a_window_of_another_alignment() {
    let top_left = seeing(|problem, site| {
        let aligned = |window| Window { alignment: Alignment::TopLeft, ..window };
        admits(problem, with_windows(problem, aligned), site)
    });
    let shape = under(vec![Rule::Window(WINDOW)]);
    assert_found(shape, top_left, "window-alignment", "FAS:mask.window.inclusive");
}

/// Where the right mask leaves no key, and the wrong one does, and the other way round.
#[test]
fn a_window_of_another_alignment_that_sees_nothing() {
    let window = Window { left: Some(1), right: Some(0), alignment: Alignment::TopLeft };
    let bottom_right = seeing(|problem, site| {
        let aligned = |window| Window { alignment: Alignment::BottomRight, ..window };
        admits(problem, with_windows(problem, aligned), site)
    });
    let shape = move |format| Problem { key_len: 5, ..under(vec![Rule::Window(window)])(format) };
    assert_found(shape, bottom_right, "window-alignment", "FAS:mask.window.inclusive");
}

#[test]
fn a_window_without_one_of_its_bounds() {
    let one_sided = seeing(|problem, site| {
        let one_sided = |window| Window { left: None, ..window };
        admits(problem, with_windows(problem, one_sided), site)
    });
    let shape = under(vec![Rule::Window(WINDOW)]);
    assert_found(shape, one_sided, "window-ignored", "FAS:mask.window.inclusive");
}

/// A rule that is not applied, beside one that is.
#[test]
fn rules_that_are_ignored() {
    let pattern = |head_counts: bool| {
        Pattern::from_fn([1, 4, 12, 20], move |[_, head, query, key]| {
            (query + 2 * key + if head_counts { head } else { 0 }) % 3 > 0
        })
    };
    let blocks = Pattern::from_fn([1, 1, 3, 4], |[_, _, query, key]| (query + key) % 2 == 0);
    let document = |len: usize| (0..len).map(|i| (i / 5) as u32).collect::<Vec<_>>();
    let top_left = Alignment::TopLeft;
    for (rule, name, clause) in [
        (Rule::KeyStarts(vec![4]), "left-padding-visible", "FAS:mask.length.left-padding"),
        (Rule::QueryLengths(vec![7]), "query-padding-computed", "FAS:mask.length.queries"),
        (
            Rule::Chunked(Chunked { size: 5, alignment: top_left }),
            "chunk-ignored",
            "FAS:mask.chunk.local",
        ),
        (
            Rule::Dilated(Dilated { step: 3, alignment: top_left }),
            "dilation-ignored",
            "FAS:mask.dilated.step",
        ),
        (
            Rule::Documents(Documents { query: vec![document(12)], key: vec![document(20)] }),
            "document-ignored",
            "FAS:mask.document.same",
        ),
        (Rule::Boolean(pattern(true)), "boolean-ignored", "FAS:mask.boolean.broadcast"),
        (
            Rule::BlockSparse(BlockSparse { query_block: 4, key_block: 5, pattern: blocks }),
            "block-sparse-ignored",
            "FAS:mask.block-sparse.pattern",
        ),
    ] {
        let others = seeing(|problem, site| {
            let first = |rule: &&Rule| matches!(rule, Rule::KeyLengths(_));
            admits(problem, problem.mask.rules.iter().filter(first).cloned().collect(), site)
        });
        let shape = under(vec![rule, Rule::KeyLengths(vec![19])]);
        assert_found(shape, others, name, clause);
    }
}

/// A prefix that only queries past it see is a causal mask.
#[test]
fn a_prefix_that_is_ignored() {
    let causal =
        seeing(|problem, site| site.key + problem.query_len <= site.query + problem.key_len);
    let prefix = Prefix { lengths: vec![14], alignment: Alignment::BottomRight };
    let shape = under(vec![Rule::Prefix(prefix)]);
    assert_found(shape, causal, "prefix-ignored", "FAS:mask.prefix.bidirectional");
}

#[test]
fn the_mask_of_head_0_for_every_head() {
    let of_head_0 = seeing(|problem, site| problem.sees(Site { head: 0, ..site }));
    let pattern =
        Pattern::from_fn([1, 4, 12, 20], |[_, head, query, key]| (head + query + 2 * key) % 3 > 0);
    let clause = "FAS:mask.boolean.broadcast";
    assert_found(under(vec![Rule::Boolean(pattern)]), of_head_0, "mask-head0", clause);
    let pattern =
        Pattern::from_fn([1, 4, 3, 4], |[_, head, query, key]| (head + query + key) % 2 == 0);
    let blocks = BlockSparse { query_block: 4, key_block: 5, pattern };
    let clause = "FAS:mask.block-sparse.pattern";
    assert_found(under(vec![Rule::BlockSparse(blocks)]), of_head_0, "mask-head0", clause);
}

#[test]
fn a_mask_applied_to_head_0_alone() {
    let on_head_0 = seeing(|problem, site| site.head > 0 || problem.sees(site));
    let pattern = Pattern::from_fn([1, 1, 12, 20], |[_, _, query, key]| (query + key) % 3 > 0);
    let shape = under(vec![Rule::Boolean(pattern)]);
    assert_found(shape, on_head_0, "boolean-ignored", "FAS:mask.boolean.broadcast");
}

/// flash-attention PR#2528: rows of packed heads divided by the group once too often.
#[test]
fn a_mask_row_divided_by_the_group() {
    let divided = seeing(|problem, site| {
        let group = problem.query_heads / problem.key_heads;
        problem.sees(Site { query: site.query / group, ..site })
    });
    let shape = under(vec![Rule::CausalBottomRight]);
    assert_found(shape, divided, "mask-row-of-group", "FAS:head.group.block");
}

#[test]
fn positions_counted_from_allocated_lengths() {
    let allocated = seeing(|problem, site| {
        site.key < 15 && site.key + problem.query_len <= site.query + problem.key_len
    });
    let shape = under(vec![Rule::CausalBottomRight, Rule::KeyLengths(vec![15])]);
    assert_found(shape, allocated, "alignment-allocated", "FAS:mask.causal.bottom-right");
}

/// Under a bias, dropout and a sink the mask is still what is found.
#[test]
fn a_fault_of_a_mask_is_found_beside_modified_scores() {
    use flashproof_spec::score::{Bias, Dropout, Sink, Softcap, SoftcapOrder};
    let shape = |format| Problem {
        bias: Some(Bias { shape: [1, 4, 12, 20], format }),
        sink: Some(Sink::Logits(format)),
        softcap: Some(Softcap { cap: 1.5, order: SoftcapOrder::BeforeBias }),
        dropout: Some(Dropout {
            scale: 2.0,
            keep: Pattern::from_fn([1, 1, 12, 20], |[_, _, query, key]| (query + key) % 3 > 0),
        }),
        ..under(vec![Rule::Window(WINDOW)])(format)
    };
    let wider = seeing(|problem, site| {
        let wider = |window| Window { left: Some(4), ..window };
        admits(problem, with_windows(problem, wider), site)
    });
    assert_found(shape, wider, "window-off-by-one", "FAS:mask.window.inclusive");
}
