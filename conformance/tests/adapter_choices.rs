//! A problem as a kernel reads it that declares how.

use flashproof_conformance::adapter::{
    CausalAlignment, Choices, EmptyRow, LseBase, LseSign, LseSink, SoftcapChoice, WindowConvention,
};
use flashproof_spec::format::Format;
use flashproof_spec::mask::{Alignment, Mask, Rule, Window};
use flashproof_spec::problem::Problem;
use flashproof_spec::score::{Softcap, SoftcapOrder};
use serde_json::json;

/// Fewer queries than keys, so that alignments differ.
fn problem(rules: Vec<Rule>) -> Problem {
    let lengths = Rule::KeyLengths(vec![9, 6]);
    let rules = rules.into_iter().chain([lengths]).collect();
    Problem {
        batch: 2,
        query_len: 5,
        key_len: 9,
        mask: Mask { rules },
        softcap: Some(Softcap { cap: 3.0, order: SoftcapOrder::BeforeBias }),
        ..Problem::new(Format::F32, 2, 1, 4)
    }
}

fn window(left: Option<usize>, right: Option<usize>, alignment: Alignment) -> Rule {
    Rule::Window(Window { left, right, alignment })
}

/// Every choice, read in no other way than it is written.
#[test]
fn by_default_a_problem_is_read_as_it_is_written() {
    let rules = vec![
        Rule::CausalTopLeft,
        Rule::CausalBottomRight,
        window(Some(0), Some(2), Alignment::TopLeft),
    ];
    let problem = problem(rules);
    assert_eq!(Choices::default().read(&problem), problem);
    // what is about outputs changes no problem
    let choices = Choices {
        lse_base: LseBase::Two,
        lse_sign: LseSign::Minus,
        lse_sink: LseSink::Excluded,
        empty_row: EmptyRow::Mean,
        masked_row: EmptyRow::Nan,
        ..Choices::default()
    };
    assert_eq!(choices.read(&problem), problem);
}

#[test]
fn a_causal_mask_is_aligned_as_declared() {
    let both = problem(vec![Rule::CausalTopLeft, Rule::CausalBottomRight]);
    for (causal, rule) in [
        (CausalAlignment::TopLeft, Rule::CausalTopLeft),
        (CausalAlignment::BottomRight, Rule::CausalBottomRight),
    ] {
        let choices = Choices { causal, ..Choices::default() };
        assert_eq!(choices.read(&both), problem(vec![rule.clone(), rule]), "{causal:?}");
    }
    // a window says itself how it is aligned
    let other = problem(vec![window(Some(1), None, Alignment::BottomRight)]);
    let choices = Choices { causal: CausalAlignment::TopLeft, ..Choices::default() };
    assert_eq!(choices.read(&other), other);
}

#[test]
fn counts_become_inclusive_bounds() {
    let choices = Choices { window: WindowConvention::Count, ..Choices::default() };
    let alignment = Alignment::TopLeft;
    for (counted, inclusive) in [
        ((Some(3), Some(1)), (Some(2), Some(0))),
        ((Some(1), None), (Some(0), None)),
        ((None, Some(4)), (None, Some(3))),
        ((None, None), (None, None)),
    ] {
        let found = choices.read(&problem(vec![window(counted.0, counted.1, alignment)]));
        let expected = problem(vec![window(inclusive.0, inclusive.1, alignment)]);
        assert_eq!(found, expected, "{counted:?}");
    }
}

/// `position - left < key < position + right`, word for word; a position by the lengths in use.
#[test]
fn a_window_of_counts_sees_what_it_says() {
    let choices = Choices { window: WindowConvention::Count, ..Choices::default() };
    let bounds = [None, Some(0), Some(1), Some(2), Some(20)];
    let number =
        |bound: Option<usize>| bound.map(|bound| i32::try_from(bound).expect("a small bound"));
    for (left, right) in bounds.into_iter().flat_map(|left| bounds.map(|right| (left, right))) {
        for alignment in [Alignment::TopLeft, Alignment::BottomRight] {
            let read = choices.read(&problem(vec![window(left, right, alignment)]));
            assert_eq!(read.validate(), Ok(()));
            for (batch, used) in [(0, 9), (1, 6)] {
                for query in 0..5 {
                    let shift = if alignment == Alignment::TopLeft { 0 } else { used - 5 };
                    let position = query + shift;
                    let expected: Vec<usize> = (0..used)
                        .filter(|key| number(left).is_none_or(|left| position - left < *key))
                        .filter(|key| number(right).is_none_or(|right| *key < position + right))
                        .map(|key| key as usize)
                        .collect();
                    let found = read.visible_keys(batch, 1, query as usize);
                    assert_eq!(found, expected, "{left:?} {right:?} {alignment:?} {batch} {query}");
                }
            }
        }
    }
}

#[test]
fn a_softcap_comes_when_declared() {
    for asked in [SoftcapOrder::BeforeBias, SoftcapOrder::AfterBias] {
        let problem =
            Problem { softcap: Some(Softcap { cap: 3.0, order: asked }), ..problem(vec![]) };
        for (softcap, order) in [
            (SoftcapChoice::AsAsked, asked),
            (SoftcapChoice::BeforeBias, SoftcapOrder::BeforeBias),
            (SoftcapChoice::AfterBias, SoftcapOrder::AfterBias),
        ] {
            let read = Choices { softcap, ..Choices::default() }.read(&problem);
            assert_eq!(read.softcap, Some(Softcap { cap: 3.0, order }));
            assert_eq!(Problem { softcap: problem.softcap, ..read }, problem);
        }
    }
    let none = Problem { softcap: None, ..problem(vec![]) };
    let choices = Choices { softcap: SoftcapChoice::AfterBias, ..Choices::default() };
    assert_eq!(choices.read(&none), none);
}

#[test]
fn choices_are_written_as_documented() {
    let expected = json!({
        "lse_base": "natural", "empty_row": "zero", "masked_row": "zero", "lse_sign": "plus",
        "lse_sink": "included", "causal": "as-asked", "window": "inclusive", "softcap": "as-asked",
    });
    assert_eq!(serde_json::to_value(Choices::default()).expect("JSON"), expected);
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/PROTOCOL.md");
    let page = std::fs::read_to_string(page).expect("the protocol's page");
    for (choice, option) in expected.as_object().expect("an object") {
        let row = format!("| `{choice}` | `{}`,", option.as_str().expect("a name"));
        assert!(page.contains(&row), "{row} is not in PROTOCOL.md");
    }
}
