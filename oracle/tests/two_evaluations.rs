//! The two evaluations share nothing but their inputs, and their enclosures meet.

mod support;

use flashproof_oracle::double_double;
use flashproof_oracle::enclosure::Enclosure;
use flashproof_oracle::error::OracleError;
use flashproof_oracle::forward::{MIN_PRECISION, Options, Oracle};
use flashproof_oracle::row::{RowEnclosures, RowIndex};
use flashproof_spec::format::Format;
use flashproof_spec::mask::{Mask, Rule};
use flashproof_spec::problem::Problem;
use proptest::prelude::*;
use support::definition::{certain, evaluate};
use support::inputs::{Case, ONLY_ROW, all_rows, case, normal_inputs, one_query};
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
    fn the_second_one_encloses_the_definition(case in case()) {
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
}

#[test]
fn a_row_that_is_not_there_is_named() {
    let problem = Problem::new(Format::Bf16, 1, 2, 4);
    let inputs = normal_inputs(&problem, SEED);
    let index = RowIndex { batch: 0, head: 1, query: 0 };
    let error = double_double::enclose_row(&problem, &inputs, index).unwrap_err();
    assert_eq!(error, OracleError::Row { field: "head", index: 1, extent: 1 });
}
