//! Faults of masks: other keys take part than those that the rules admit.

use flashproof_oracle::row::RowIndex;
use flashproof_spec::mask::{Alignment, Mask, Rule, Window};

use super::{Fault, Variants, maskings, none, only};
use crate::diagnosis::reading::Reading;
use crate::diagnosis::row::RowModel;

pub(super) const FAULTS: &[Fault] = &[
    Fault {
        name: "causal-top-left",
        clause: "FAS:mask.causal.bottom-right",
        explanation: "the causal mask is aligned top-left where bottom-right is asked for",
        same_variant: true,
        variants: |row| realigned_causal(row, &Rule::CausalBottomRight, &Rule::CausalTopLeft),
    },
    Fault {
        name: "causal-bottom-right",
        clause: "FAS:mask.causal.top-left",
        explanation: "the causal mask is aligned bottom-right where top-left is asked for",
        same_variant: true,
        variants: |row| realigned_causal(row, &Rule::CausalTopLeft, &Rule::CausalBottomRight),
    },
    Fault {
        name: "causal-ignored",
        clause: "FAS:mask.causal.bottom-right",
        explanation: "the causal mask is not applied",
        same_variant: true,
        variants: |row| without_rule(row, |rule| matches!(rule, Rule::CausalBottomRight)),
    },
    Fault {
        name: "causal-ignored",
        clause: "FAS:mask.causal.top-left",
        explanation: "the causal mask is not applied",
        same_variant: true,
        variants: |row| without_rule(row, |rule| matches!(rule, Rule::CausalTopLeft)),
    },
    Fault {
        name: "padding-visible",
        clause: "FAS:mask.length.padding",
        explanation: "keys at or past the key length take part",
        same_variant: true,
        variants: |row| without_rule(row, |rule| matches!(rule, Rule::KeyLengths(_))),
    },
    Fault {
        name: "left-padding-visible",
        clause: "FAS:mask.length.left-padding",
        explanation: "keys before the first one in use take part",
        same_variant: true,
        variants: |row| without_rule(row, |rule| matches!(rule, Rule::KeyStarts(_))),
    },
    Fault {
        name: "query-padding-computed",
        clause: "FAS:mask.length.queries",
        explanation: "queries at or past the query length see keys",
        same_variant: true,
        variants: |row| without_rule(row, |rule| matches!(rule, Rule::QueryLengths(_))),
    },
    Fault {
        name: "window-off-by-one",
        clause: "FAS:mask.window.inclusive",
        explanation: "a bound of the window is off by one",
        same_variant: true,
        variants: window_off_by_one,
    },
    Fault {
        name: "window-alignment",
        clause: "FAS:mask.window.inclusive",
        explanation: "the window is around another position than the query's own",
        same_variant: true,
        variants: |row| {
            realigned(row, |rule| match rule {
                Rule::Window(window) => Some(&mut window.alignment),
                _ => None,
            })
        },
    },
    Fault {
        name: "window-ignored",
        clause: "FAS:mask.window.inclusive",
        explanation: "the window is not applied",
        same_variant: true,
        variants: window_ignored,
    },
    Fault {
        name: "prefix-ignored",
        clause: "FAS:mask.prefix.bidirectional",
        explanation: "the prefix is not seen by queries before it: the mask is causal",
        same_variant: true,
        variants: prefix_ignored,
    },
    Fault {
        name: "prefix-alignment",
        clause: "FAS:mask.prefix.bidirectional",
        explanation: "the causal part after the prefix is aligned otherwise than asked for",
        same_variant: true,
        variants: |row| {
            realigned(row, |rule| match rule {
                Rule::Prefix(prefix) => Some(&mut prefix.alignment),
                _ => None,
            })
        },
    },
    Fault {
        name: "chunk-ignored",
        clause: "FAS:mask.chunk.local",
        explanation: "keys of other chunks take part",
        same_variant: true,
        variants: |row| without_rule(row, |rule| matches!(rule, Rule::Chunked(_))),
    },
    Fault {
        name: "chunk-alignment",
        clause: "FAS:mask.chunk.local",
        explanation: "the query's chunk is that of another position than its own",
        same_variant: true,
        variants: |row| {
            realigned(row, |rule| match rule {
                Rule::Chunked(chunked) => Some(&mut chunked.alignment),
                _ => None,
            })
        },
    },
    Fault {
        name: "dilation-ignored",
        clause: "FAS:mask.dilated.step",
        explanation: "keys between the steps take part",
        same_variant: true,
        variants: |row| without_rule(row, |rule| matches!(rule, Rule::Dilated(_))),
    },
    Fault {
        name: "dilation-alignment",
        clause: "FAS:mask.dilated.step",
        explanation: "steps are counted from another position than the query's own",
        same_variant: true,
        variants: |row| {
            realigned(row, |rule| match rule {
                Rule::Dilated(dilated) => Some(&mut dilated.alignment),
                _ => None,
            })
        },
    },
    Fault {
        name: "document-ignored",
        clause: "FAS:mask.document.same",
        explanation: "keys of other documents take part",
        same_variant: true,
        variants: |row| without_rule(row, |rule| matches!(rule, Rule::Documents(_))),
    },
    Fault {
        name: "mask-head0",
        clause: "FAS:mask.boolean.broadcast",
        explanation: "every head has the mask of head 0",
        same_variant: true,
        variants: |row| of_head_0(row, |rule| matches!(rule, Rule::Boolean(_))),
    },
    Fault {
        name: "mask-head0",
        clause: "FAS:mask.block-sparse.pattern",
        explanation: "every head has the pattern of blocks of head 0",
        same_variant: true,
        variants: |row| of_head_0(row, |rule| matches!(rule, Rule::BlockSparse(_))),
    },
    Fault {
        name: "boolean-ignored",
        clause: "FAS:mask.boolean.broadcast",
        explanation: "the boolean mask is not applied to these rows",
        same_variant: true,
        variants: |row| without_rule(row, |rule| matches!(rule, Rule::Boolean(_))),
    },
    Fault {
        name: "block-sparse-ignored",
        clause: "FAS:mask.block-sparse.pattern",
        explanation: "blocks that the pattern leaves out take part",
        same_variant: true,
        variants: |row| without_rule(row, |rule| matches!(rule, Rule::BlockSparse(_))),
    },
    Fault {
        name: "mask-row-of-group",
        clause: "FAS:head.group.block",
        explanation: "the mask is that of the query's index divided by the heads of its group",
        same_variant: true,
        variants: row_of_group,
    },
    Fault {
        name: "alignment-allocated",
        clause: "FAS:mask.causal.bottom-right",
        explanation: "positions are counted from the lengths allocated, not from those in use",
        same_variant: true,
        variants: aligned_as_allocated,
    },
    Fault {
        name: "mask-wider",
        clause: "FAS:mask.intersection",
        explanation: "one key past the last visible one takes part",
        same_variant: true,
        variants: mask_wider,
    },
];

/// The row under other rules, where that shows other keys.
fn masked<'r>(row: &'r RowModel<'_>, rules: Vec<(&'static str, Vec<Rule>)>) -> Variants<'r> {
    let read = |rules| Reading::with(row, |problem| problem.mask = Mask { rules });
    maskings(row, rules.into_iter().map(|(detail, rules)| (detail, read(rules))).collect())
}

/// The rules, each one exchanged for what it is taken for; `None` where none is.
fn exchanged(row: &RowModel<'_>, taken_for: impl Fn(&Rule) -> Option<Rule>) -> Option<Vec<Rule>> {
    let rules = &row.problem.mask.rules;
    let changed = rules.iter().any(|rule| taken_for(rule).is_some());
    let exchange = |rule: &Rule| taken_for(rule).unwrap_or_else(|| rule.clone());
    changed.then(|| rules.iter().map(exchange).collect())
}

fn realigned_causal<'r>(row: &'r RowModel<'_>, asked: &Rule, used: &Rule) -> Variants<'r> {
    let rules = exchanged(row, |rule| (rule == asked).then(|| used.clone()));
    rules.map_or_else(none, |rules| masked(row, vec![("", rules)]))
}

fn without_rule<'r>(row: &'r RowModel<'_>, dropped: fn(&Rule) -> bool) -> Variants<'r> {
    let rules = &row.problem.mask.rules;
    if !rules.iter().any(dropped) {
        return none();
    }
    masked(row, vec![("", rules.iter().filter(|rule| !dropped(rule)).cloned().collect())])
}

/// The row with a rule aligned the other way.
fn realigned<'r>(
    row: &'r RowModel<'_>,
    alignment: fn(&mut Rule) -> Option<&mut Alignment>,
) -> Variants<'r> {
    let other = |rule: &Rule| {
        let mut rule = rule.clone();
        let alignment = alignment(&mut rule)?;
        *alignment = opposite(*alignment);
        Some(rule)
    };
    exchanged(row, other).map_or_else(none, |rules| masked(row, vec![("", rules)]))
}

pub(super) const fn opposite(alignment: Alignment) -> Alignment {
    match alignment {
        Alignment::TopLeft => Alignment::BottomRight,
        Alignment::BottomRight => Alignment::TopLeft,
    }
}

/// What a window is taken for, in words and as a function; `None`: for what it is.
type OtherWindow = (&'static str, fn(Window) -> Option<Window>);

/// The row under other windows.
fn other_windows<'r>(row: &'r RowModel<'_>, others: &[OtherWindow]) -> Variants<'r> {
    let other = |&(detail, other): &OtherWindow| {
        let rules = exchanged(row, |rule| match rule {
            Rule::Window(window) => other(*window).map(Rule::Window),
            _ => None,
        });
        rules.map(|rules| (detail, rules))
    };
    masked(row, others.iter().filter_map(other).collect())
}

fn window_off_by_one<'r>(row: &'r RowModel<'_>) -> Variants<'r> {
    other_windows(
        row,
        &[
            ("one key more on the left", |it| {
                Some(Window { left: Some(it.left?.checked_add(1)?), ..it })
            }),
            ("one key less on the left", |it| {
                Some(Window { left: Some(it.left?.checked_sub(1)?), ..it })
            }),
            ("one key more on the right", |it| {
                Some(Window { right: Some(it.right?.checked_add(1)?), ..it })
            }),
            ("one key less on the right", |it| {
                Some(Window { right: Some(it.right?.checked_sub(1)?), ..it })
            }),
        ],
    )
}

fn window_ignored<'r>(row: &'r RowModel<'_>) -> Variants<'r> {
    other_windows(
        row,
        &[
            ("neither bound", |it| Some(Window { left: None, right: None, ..it })),
            ("not its left bound", |it| Some(Window { left: it.left.and(None), ..it })),
            ("not its right bound", |it| Some(Window { right: it.right.and(None), ..it })),
        ],
    )
}

fn prefix_ignored<'r>(row: &'r RowModel<'_>) -> Variants<'r> {
    let causal = |rule: &Rule| match rule {
        Rule::Prefix(prefix) => {
            let alignment = prefix.alignment;
            Some(Rule::Window(Window { left: None, right: Some(0), alignment }))
        }
        _ => None,
    };
    exchanged(row, causal).map_or_else(none, |rules| masked(row, vec![("", rules)]))
}

fn of_head_0<'r>(row: &'r RowModel<'_>, concerned: fn(&Rule) -> bool) -> Variants<'r> {
    if !row.problem.mask.rules.iter().any(concerned) {
        return none();
    }
    let mask_row = RowIndex { head: 0, ..row.index };
    maskings(row, vec![("", Reading { mask_row, ..row.reading() })])
}

/// Packed query rows hold the heads of a group beside each other; a mask that divides an index which
/// is none of those rows is too small by the group.
fn row_of_group<'r>(row: &'r RowModel<'_>) -> Variants<'r> {
    let group = row.problem.query_heads / row.problem.key_heads;
    let mask_row = RowIndex { query: row.index.query / group, ..row.index };
    maskings(row, vec![("", Reading { mask_row, ..row.reading() })])
}

fn aligned_as_allocated<'r>(row: &'r RowModel<'_>) -> Variants<'r> {
    let is_length = |rule: &&Rule| matches!(rule, Rule::KeyLengths(_) | Rule::QueryLengths(_));
    let rules = &row.problem.mask.rules;
    let (lengths, others): (Vec<_>, Vec<_>) = rules.iter().partition(is_length);
    let seen_by = |rules: Vec<&Rule>| {
        let rules = rules.into_iter().cloned().collect();
        Reading::with(row, |problem| problem.mask = Mask { rules }).visible()
    };
    let (in_use, mut keys) = (seen_by(lengths), seen_by(others));
    keys.retain(|key| in_use.binary_search(key).is_ok());
    if keys == row.visible() {
        return none();
    }
    let reading = row.reading();
    let terms = keys.into_iter().map(|key| reading.term(key)).collect();
    only(reading.prediction_of(terms))
}

fn mask_wider<'r>(row: &'r RowModel<'_>) -> Variants<'r> {
    let reading = row.reading();
    let mut terms = reading.terms();
    let next = row.visible().last().map_or(0, |last| last + 1);
    if next >= row.problem.key_len {
        return none();
    }
    let term = reading.term(next);
    if term.score.value == f64::NEG_INFINITY {
        return none();
    }
    terms.push(term);
    only(reading.prediction_of(terms))
}
