//! Rows that meet NaN, infinities, or no keys at all.

mod support;

use flashproof_oracle::forward::{Options, Oracle};
use flashproof_oracle::row::{Expected, Row};
use flashproof_spec::format::Format;
use flashproof_spec::mask::{Mask, Rule};
use flashproof_spec::problem::{Problem, Scale};
use flashproof_spec::tensor::Inputs;
use support::inputs::{Case, ONLY_ROW, one_query, tensor};

const INF: f64 = f64::INFINITY;
const NAN: f64 = f64::NAN;
const PLUS_INFINITY: Expected = Expected::InfinityOrNan { negative: false };
const MINUS_INFINITY: Expected = Expected::InfinityOrNan { negative: true };

fn answer(case: &Case) -> Row {
    Oracle::new(&case.problem, &case.inputs, Options::new(Format::F32))
        .expect("a problem and its inputs")
        .row(ONLY_ROW)
        .expect("a row of the problem")
}

/// Two query and key entries under scale 1, and two value entries.
fn row(query: [f64; 2], keys: &[([f64; 2], [f64; 2])]) -> Row {
    answer(&case(query, keys))
}

fn case(query: [f64; 2], keys: &[([f64; 2], [f64; 2])]) -> Case {
    let (keys, values): (Vec<_>, Vec<_>) =
        keys.iter().map(|(key, value)| (key.to_vec(), value.to_vec())).unzip();
    let mut case = one_query(Format::F32, &query, &keys, &values);
    case.problem.scale = Scale::Value(1.0);
    case
}

fn rounded(expected: &Expected) -> f64 {
    expected.exact().expect("a number").rounded.expect("a decided element")
}

#[test]
fn a_row_without_visible_keys_is_exact() {
    let mut case = case([1.0, 1.0], &[([1.0, 0.0], [1.0, 2.0])]);
    case.problem.mask = Mask::only(Rule::KeyLengths(vec![0]));
    let row = answer(&case);
    assert_eq!(row.outputs, [Expected::EmptyRow, Expected::EmptyRow]);
    assert_eq!(row.lse, Expected::MinusInfinity);
    assert_eq!((row.visible, row.weighted, row.condition), (vec![], vec![], None));
}

#[test]
fn no_keys_and_no_queries_are_problems_too() {
    let problem = Problem { query_len: 1, ..Problem::new(Format::F32, 1, 0, 2) };
    let empty = |shape: [usize; 4]| tensor(Format::F32, &shape, vec![]);
    let inputs = Inputs {
        query: tensor(Format::F32, &problem.query_shape(), vec![NAN, 1.0]),
        key: empty(problem.key_shape()),
        value: empty(problem.value_shape()),
    };
    let row = answer(&Case { problem, inputs });
    assert_eq!(row.outputs, [Expected::EmptyRow, Expected::EmptyRow]);
}

#[test]
fn a_nan_score_makes_the_row_nan() {
    let finite = ([1.0, 0.0], [1.0, 2.0]);
    for (query, key) in [
        ([1.0, 1.0], [NAN, 0.0]),
        ([NAN, 1.0], [1.0, 0.0]),
        ([1.0, 0.0], [1.0, INF]),
        ([1.0, 1.0], [INF, -INF]),
        ([0.0, 1.0], [-INF, 3.0]),
        ([INF, -INF], [2.0, 2.0]),
    ] {
        let row = row(query, &[finite, (key, [3.0, 4.0])]);
        assert_eq!(row.outputs, [Expected::Nan, Expected::Nan], "{query:?} {key:?}");
        assert_eq!((row.lse, row.condition), (Expected::Nan, None));
    }
}

#[test]
fn nan_goes_before_plus_infinity() {
    let row = row([1.0, 1.0], &[([INF, 1.0], [1.0, 1.0]), ([NAN, 0.0], [1.0, 1.0])]);
    assert_eq!(row.lse, Expected::Nan);
}

#[test]
fn a_score_of_plus_infinity_makes_the_output_nan() {
    for (query, key) in [([1.0, 2.0], [INF, 1.0]), ([-INF, 1.0], [-1.0, 1.0])] {
        let row = row(query, &[(key, [1.0, 1.0]), ([-1.0, 0.5], [1.0, 1.0])]);
        assert_eq!(row.outputs, [Expected::Nan, Expected::Nan]);
        assert_eq!((row.lse, row.condition), (PLUS_INFINITY, None));
    }
}

#[test]
fn the_scale_turns_and_kills_infinities() {
    let mut case = case([1.0, 2.0], &[([INF, 1.0], [5.0, 6.0]), ([1.0, 1.0], [1.0, 2.0])]);
    case.problem.scale = Scale::Value(-2.0);
    let row = answer(&case);
    assert_eq!(row.outputs.iter().map(rounded).collect::<Vec<_>>(), [1.0, 2.0]);
    assert_eq!(row.weighted, [1]);
    case.problem.scale = Scale::Value(0.0);
    assert_eq!(answer(&case).lse, Expected::Nan);
}

#[test]
fn a_score_of_minus_infinity_has_no_weight() {
    let live = [([1.0, 0.0], [1.0, 2.0]), ([2.0, 1.0], [3.0, 5.0])];
    let dead = ([-INF, 1.0], [f64::from(f32::MAX), f64::from(f32::MIN)]);
    let with = row([1.0, 1.0], &[dead, live[0], dead, live[1]]);
    let without = row([1.0, 1.0], &live);
    assert_eq!(with.outputs, without.outputs);
    assert_eq!(with.lse, without.lse);
    assert_eq!((with.visible, with.weighted), (vec![0, 1, 2, 3], vec![1, 3]));
    assert_eq!(with.condition, without.condition);
}

#[test]
fn scores_all_minus_infinity_leave_no_number() {
    let row = row([1.0, 1.0], &[([-INF, 1.0], [1.0, 2.0]), ([0.0, -INF], [3.0, 4.0])]);
    assert_eq!(row.outputs, [Expected::EmptyRowOrNan, Expected::EmptyRowOrNan]);
    assert_eq!((row.lse, row.condition), (MINUS_INFINITY, None));
}

#[test]
fn special_values_stay_in_their_column() {
    let live = ([1.0, 0.0], [1.0, 2.0]);
    let dead = [-INF, 1.0];
    for (keys, expected) in [
        (vec![([0.0, 1.0], [NAN, 2.0])], Expected::Nan),
        (vec![([0.0, 1.0], [INF, 2.0])], PLUS_INFINITY),
        (vec![([0.0, 1.0], [-INF, 2.0])], MINUS_INFINITY),
        (vec![([0.0, 1.0], [-INF, 2.0]), ([0.0, 2.0], [-INF, 2.0])], MINUS_INFINITY),
        (vec![([0.0, 1.0], [INF, 2.0]), ([0.0, 2.0], [-INF, 2.0])], Expected::Nan),
        (vec![([0.0, 1.0], [INF, 2.0]), ([0.0, 2.0], [NAN, 2.0])], Expected::Nan),
        (vec![(dead, [INF, 2.0])], Expected::Nan),
        (vec![(dead, [NAN, 2.0])], Expected::Nan),
        (vec![(dead, [INF, 2.0]), ([0.0, 1.0], [INF, 2.0])], Expected::Nan),
    ] {
        let row = row([1.0, 1.0], &[&[live][..], &keys].concat());
        assert_eq!(row.outputs[0], expected, "{keys:?}");
        assert_eq!(rounded(&row.outputs[1]), 2.0);
        assert!(rounded(&row.lse).is_finite());
        let condition = row.condition.expect("finite scores");
        assert_eq!((condition.output_lo[0], condition.output_hi[0]), (-INF, INF));
        assert!(condition.output_lo[1] <= 2.0 && 2.0 <= condition.output_hi[1]);
    }
}

#[test]
fn invisible_keys_have_no_influence() {
    let keys = [([1.0, 0.5], [1.0, 2.0]), ([0.25, 1.0], [-3.0, 0.5])];
    let expected = row([1.0, 1.0], &keys);
    for poison in [NAN, INF, -INF, f64::from(f32::MAX), f64::from(f32::from_bits(1))] {
        let mut case = case([1.0, 1.0], &[keys[0], keys[1], ([poison; 2], [poison; 2])]);
        case.problem.mask = Mask::only(Rule::KeyLengths(vec![2]));
        assert_eq!(answer(&case), expected, "poison {poison}");
        // The first query of a causal pair, with the poison in its future.
        case.problem.mask = Mask::only(Rule::CausalTopLeft);
        let first = answer(&case);
        assert_eq!(rounded(&first.outputs[0]), 1.0);
        assert_eq!(first.visible, [0]);
    }
}
