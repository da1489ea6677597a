//! The two evaluations share nothing but their inputs, and their enclosures meet.

mod support;

use flashproof_oracle::double_double;
use flashproof_oracle::enclosure::Enclosure;
use flashproof_oracle::error::OracleError;
use flashproof_oracle::forward::{MIN_PRECISION, Options, Oracle};
use flashproof_oracle::row::{RowEnclosures, RowIndex};
use flashproof_spec::format::Format;
use flashproof_spec::mask::{Alignment, BlockSparse, Mask, Rule, Window};
use flashproof_spec::pattern::Pattern;
use flashproof_spec::problem::Problem;
use flashproof_spec::score::{Alibi, Bias, Dropout, Sink, Slopes, Softcap, SoftcapOrder};
use proptest::prelude::*;
use support::definition::{certain, evaluate};
use support::inputs::{Case, ONLY_ROW, all_rows, case, normal_inputs, one_query, tensor};
use support::modified::modified;
use support::settings;

const SEED: u64 = 26;

/// A precision finer than that of double words.
const PRECISION: u32 = 250;

fn both(case: &Case, index: RowIndex, precision: u32) -> Option<(RowEnclosures, RowEnclosures)> {
    let Case { problem, inputs } = case;
    let second = double_double::enclose_row(problem, inputs, index).expect("a row")?;
    let oracle = Oracle::new(problem, inputs, Options::new(Format::F64)).expect("a problem");
    Some((oracle.enclose_row(index, precision).expect("a row").expect("numbers"), second))
}

/// Whether every element is in both rows' enclosures.
fn meet(a: &RowEnclosures, b: &RowEnclosures) -> bool {
    a.outputs.len() == b.outputs.len()
        && a.lse.intersects(&b.lse)
        && a.outputs.iter().zip(&b.outputs).all(|(a, b)| a.intersects(b))
}

proptest! {
    #![proptest_config(settings("two_evaluations", "tests/proptest-regressions/two_evaluations.txt"))]

    #[test]
    fn enclosures_meet(case in case(), precision in MIN_PRECISION..300) {
        if let Some((first, second)) = both(&case, ONLY_ROW, precision) {
            prop_assert!(meet(&first, &second), "{first:?} and {second:?}");
        }
    }

    #[test]
    fn enclosures_meet_whatever_the_modifications(
        case in modified(), precision in MIN_PRECISION..300,
    ) {
        if let Some((first, second)) = both(&case, ONLY_ROW, precision) {
            prop_assert!(meet(&first, &second), "{first:?} and {second:?}");
        }
    }

    #[test]
    fn the_second_one_encloses_the_definition(case in modified()) {
        let row = double_double::enclose_row(&case.problem, &case.inputs, ONLY_ROW).expect("a row");
        if let Some(row) = row {
            let definition = evaluate(&case);
            prop_assert!(row.lse.intersects(&certain(&definition.lse)));
            for (enclosure, exact) in row.outputs.iter().zip(&definition.output) {
                prop_assert!(enclosure.intersects(&certain(exact)), "{enclosure:?} misses {exact}");
            }
        }
    }
}

#[test]
fn whole_problems_meet_closely() {
    for format in Format::ALL {
        let problem =
            Problem { mask: Mask::only(Rule::CausalTopLeft), ..Problem::new(format, 2, 40, 24) };
        let case = Case { inputs: normal_inputs(&problem, SEED), problem };
        for index in all_rows(&case.problem) {
            let (first, second) = both(&case, index, PRECISION).expect("moderate numbers");
            assert!(meet(&first, &second), "{format}, seed {SEED}: {index:?}");
            // Double words have 106 bits. Of these, 40 keys and some 8 bits of exponent lose about 20.
            let widest = second.outputs.iter().map(Enclosure::width).fold(0.0, f64::max);
            assert!(widest < 2_f64.powi(-80), "{format}: {widest}");
        }
    }
}

#[test]
fn whole_problems_with_every_modification_meet() {
    for order in [SoftcapOrder::BeforeBias, SoftcapOrder::AfterBias] {
        let case = every_modification(order);
        for index in all_rows(&case.problem) {
            let (first, second) = both(&case, index, PRECISION).expect("moderate numbers");
            assert!(meet(&first, &second), "{order:?}, seed {SEED}: {index:?}");
            // As above, with a few bits of the cap.
            let widest = second.outputs.iter().map(Enclosure::width).fold(0.0, f64::max);
            assert!(widest < 2_f64.powi(-75), "{order:?}: {widest}");
        }
    }
}

/// Two batch members, three heads on one key head, and every kind of rule and modification.
fn every_modification(order: SoftcapOrder) -> Case {
    let shape = [1, 3, 6, 9];
    let blocks = Pattern::from_fn([1, 1, 3, 3], |[_, _, query, key]| query + 1 >= key);
    let rules = vec![
        Rule::KeyLengths(vec![9, 7]),
        Rule::KeyStarts(vec![0, 1]),
        Rule::Window(Window { left: Some(5), right: Some(3), alignment: Alignment::BottomRight }),
        Rule::BlockSparse(BlockSparse { query_block: 2, key_block: 3, pattern: blocks }),
    ];
    let problem = Problem {
        batch: 2,
        query_heads: 3,
        key_heads: 1,
        query_len: 6,
        key_len: 9,
        value_dim: 4,
        mask: Mask { rules },
        softcap: Some(Softcap { cap: 4.0, order }),
        bias: Some(Bias { shape, format: Format::Bf16 }),
        alibi: Some(Alibi { slopes: Slopes::Standard, alignment: Alignment::BottomRight }),
        sink: Some(Sink::Logits(Format::F32)),
        dropout: Some(Dropout {
            scale: 1.25,
            keep: Pattern::from_fn([2, 3, 6, 9], |[b, h, q, k]| (b + h + q * k) % 4 != 3),
        }),
        ..Problem::new(Format::F32, 3, 6, 10)
    };
    let mut inputs = normal_inputs(&problem, SEED);
    let entry = |n: usize| if n % 11 == 5 { f64::NEG_INFINITY } else { (n % 7) as f64 - 3.0 };
    inputs.bias = Some(tensor(Format::Bf16, &shape, (0..3 * 6 * 9).map(entry).collect()));
    inputs.sink = Some(tensor(Format::F32, &[3], vec![-1.5, 0.0, 20.0]));
    Case { problem, inputs }
}

#[test]
fn rows_beyond_reach_are_declined() {
    let row = |scores: [f64; 2], value: f64| {
        let keys = scores.map(|score| vec![score]);
        let case = one_query(Format::F64, &[1.0], &keys, &[vec![1.0], vec![value]]);
        double_double::enclose_row(&case.problem, &case.inputs, ONLY_ROW).expect("a row")
    };
    assert!(row([1.0, 2.0], 3.0).is_some());
    assert!(row([1.0, f64::NAN], 3.0).is_none());
    assert!(row([1.0, f64::MIN_POSITIVE], 3.0).is_none());
    assert!(row([1.0, 2.0], f64::INFINITY).is_none());
    assert!(row([1.0, 2.0], f64::MAX).is_none());
    let modified = |modify: &dyn Fn(&mut Case)| {
        let mut case = one_query(Format::F64, &[1.0], &[vec![1.0]], &[vec![1.0]]);
        modify(&mut case);
        double_double::enclose_row(&case.problem, &case.inputs, ONLY_ROW).expect("a row")
    };
    let biased = |bias: f64| {
        modified(&|case| {
            case.problem.bias = Some(Bias { shape: [1; 4], format: Format::F64 });
            case.inputs.bias = Some(tensor(Format::F64, &[1; 4], vec![bias]));
        })
    };
    let sunk = |logit: f64| {
        modified(&|case| {
            case.problem.sink = Some(Sink::Logits(Format::F64));
            case.inputs.sink = Some(tensor(Format::F64, &[1], vec![logit]));
        })
    };
    assert!(biased(-1.0).is_some() && sunk(-1.0).is_some());
    // Without keys and without a sink there are no numbers; a sink of minus infinity is none.
    assert!(biased(f64::NEG_INFINITY).is_none());
    assert!(sunk(f64::NEG_INFINITY).is_some());
    for beyond in [f64::MIN, f64::INFINITY, f64::NAN] {
        assert!(biased(beyond).is_none() && sunk(beyond).is_none());
    }
}

#[test]
fn a_row_that_is_not_there_is_named() {
    let problem = Problem::new(Format::Bf16, 1, 2, 4);
    let inputs = normal_inputs(&problem, SEED);
    let index = RowIndex { batch: 0, head: 1, query: 0 };
    let error = double_double::enclose_row(&problem, &inputs, index).unwrap_err();
    assert_eq!(error, OracleError::Row { field: "head", index: 1, extent: 1 });
}
