//! Rows that meet NaN, infinities, or no keys at all.

mod support;

use flashproof_oracle::forward::{Options, Oracle};
use flashproof_oracle::row::{Expected, Row};
use flashproof_spec::format::Format;
use flashproof_spec::mask::{Mask, Rule};
use flashproof_spec::pattern::Pattern;
use flashproof_spec::problem::{Problem, Scale};
use flashproof_spec::score::{Bias, Dropout, Sink, Softcap, SoftcapOrder};
use flashproof_spec::tensor::Inputs;
use rug::Float;
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
    let inputs = Inputs::new(
        tensor(Format::F32, &problem.query_shape(), vec![NAN, 1.0]),
        empty(problem.key_shape()),
        empty(problem.value_shape()),
    );
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

/// The same row with a bias.
fn with_bias(mut case: Case, bias: &[f64]) -> Case {
    let shape = [1, 1, 1, bias.len()];
    case.problem.bias = Some(Bias { shape, format: Format::F32 });
    case.inputs.bias = Some(tensor(Format::F32, &shape, bias.to_vec()));
    case
}

/// The same row with a sink.
fn with_sink(mut case: Case, logit: f64) -> Case {
    case.problem.sink = Some(Sink::Logits(Format::F32));
    case.inputs.sink = Some(tensor(Format::F32, &[1], vec![logit]));
    case
}

fn with_softcap(mut case: Case, order: SoftcapOrder) -> Case {
    case.problem.softcap = Some(Softcap { cap: 3.0, order });
    case
}

/// Two keys of scores 1 and 2.
fn two_keys() -> Case {
    case([1.0, 1.0], &[([1.0, 0.0], [1.0, 2.0]), ([1.5, 0.5], [3.0, 5.0])])
}

fn lse(case: &Case) -> f64 {
    rounded(&answer(case).lse)
}

#[test]
fn a_bias_of_minus_infinity_hides_a_key_whatever_it_holds() {
    let expected = answer(&case([1.0, 1.0], &[([1.0, 0.0], [1.0, 2.0])]));
    for poison in [NAN, INF, -INF, 1.0] {
        let keys = [([1.0, 0.0], [1.0, 2.0]), ([poison; 2], [poison; 2])];
        let hidden = with_bias(case([1.0, 1.0], &keys), &[0.0, -INF]);
        for case in [
            hidden.clone(),
            with_softcap(hidden.clone(), SoftcapOrder::BeforeBias),
            with_softcap(hidden, SoftcapOrder::AfterBias),
        ] {
            let row = answer(&case);
            assert_eq!(row.outputs.iter().map(rounded).collect::<Vec<_>>(), [1.0, 2.0], "{poison}");
            assert_eq!((row.admitted, row.visible), (2, vec![0]));
        }
        assert_eq!(expected.admitted, 1);
    }
}

#[test]
fn a_row_hidden_by_its_bias_is_told_from_one_that_the_mask_hides() {
    let by_bias = with_bias(two_keys(), &[-INF, -INF]);
    let mut by_mask = with_bias(two_keys(), &[1.0, -INF]);
    by_mask.problem.mask = Mask::only(Rule::KeyLengths(vec![0]));
    for (case, admitted) in [(by_bias, 2), (by_mask, 0)] {
        let row = answer(&case);
        assert_eq!(row.outputs, [Expected::EmptyRow, Expected::EmptyRow]);
        assert_eq!(
            (row.lse, row.admitted, row.visible),
            (Expected::MinusInfinity, admitted, vec![])
        );
    }
}

#[test]
fn a_bias_of_plus_infinity_or_nan_is_like_such_a_score() {
    for order in [None, Some(SoftcapOrder::BeforeBias)] {
        for (bias, lse) in [(INF, PLUS_INFINITY), (NAN, Expected::Nan)] {
            let mut case = with_bias(two_keys(), &[bias, 0.0]);
            if let Some(order) = order {
                case = with_softcap(case, order);
            }
            let row = answer(&case);
            assert_eq!(row.outputs, [Expected::Nan, Expected::Nan]);
            assert_eq!((row.lse, row.condition), (lse, None));
        }
    }
    // A score of minus infinity less infinity is NaN; a capped one is a number less infinity.
    let infinite = case([1.0, 1.0], &[([-INF, 0.0], [1.0, 2.0]), ([1.0, 0.0], [3.0, 5.0])]);
    let added = with_bias(infinite, &[INF, 0.0]);
    assert_eq!(answer(&added).lse, Expected::Nan);
    let capped = with_softcap(added.clone(), SoftcapOrder::BeforeBias);
    assert_eq!(answer(&capped).lse, PLUS_INFINITY);
    assert_eq!(answer(&with_softcap(added, SoftcapOrder::AfterBias)).lse, Expected::Nan);
}

#[test]
fn a_softcap_makes_infinite_scores_finite() {
    for (entry, cap) in [(INF, 3.0), (-INF, -3.0)] {
        let keys = [([entry, 1.0], [7.0, 9.0])];
        let case = case([1.0, 1.0], &keys);
        let before = with_softcap(with_bias(case.clone(), &[0.25]), SoftcapOrder::BeforeBias);
        assert_eq!(lse(&before), cap + 0.25);
        let after = with_softcap(with_bias(case, &[0.25]), SoftcapOrder::AfterBias);
        assert_eq!(lse(&after), cap);
        for case in [before, after] {
            let row = answer(&case);
            assert_eq!(row.outputs.iter().map(rounded).collect::<Vec<_>>(), [7.0, 9.0]);
            assert_eq!(row.weighted, [0]);
            let condition = row.condition.expect("a finite score");
            assert_eq!((condition.product_magnitude_hi[0], condition.dot_mass_hi[0]), (INF, INF));
            assert_eq!(condition.cap_argument_lo[0], INF);
            assert!((2.75..=3.25).contains(&condition.score_magnitude_hi[0]));
        }
    }
    // Its weight beside a key of score zero, from which it differs by the cap.
    let keys = [([INF, 1.0], [1.0, 0.0]), ([0.0, 0.0], [0.0, 1.0])];
    let row = answer(&with_softcap(case([1.0, 1.0], &keys), SoftcapOrder::BeforeBias));
    let enclosure = &row.outputs[0].exact().expect("a number").enclosure;
    let cube = Float::with_val(200, 3).exp();
    let probability = Float::with_val(200, &cube / Float::with_val(200, &cube + 1));
    assert!(*enclosure.lo() <= probability && probability <= *enclosure.hi());
    assert_eq!(
        answer(&with_softcap(
            case([1.0, 1.0], &[([NAN, 1.0], [1.0, 0.0])]),
            SoftcapOrder::AfterBias
        ))
        .lse,
        Expected::Nan
    );
}

#[test]
fn a_sink_alone_has_all_the_weight() {
    let bias = with_bias(two_keys(), &[-INF, -INF]);
    let mut mask = two_keys();
    mask.problem.mask = Mask::only(Rule::KeyLengths(vec![0]));
    let scores = case([1.0, 1.0], &[([-INF, 0.0], [1.0, 2.0]), ([0.0, -INF], [3.0, 5.0])]);
    for case in [bias, mask, scores] {
        for logit in [0.0, 1.5, -1e30, f64::from(f32::MAX)] {
            let case = with_sink(case.clone(), logit);
            let row = answer(&case);
            let logit = Format::F32.round(logit);
            for (element, value) in row.outputs.iter().chain([&row.lse]).zip([0.0, 0.0, logit]) {
                let exact = element.exact().expect("a number");
                assert_eq!(exact.rounded, Some(value));
                assert!(*exact.enclosure.lo() == value && *exact.enclosure.hi() == value);
            }
            assert_eq!((row.weighted, row.condition), (vec![], None));
        }
    }
}

#[test]
fn a_sink_alone_meets_infinite_values_with_a_weight_of_zero() {
    let keys = [([-INF, 0.0], [INF, 2.0]), ([-INF, 0.0], [3.0, 5.0])];
    let row = answer(&with_sink(case([1.0, 1.0], &keys), 1.0));
    assert_eq!(row.outputs[0], Expected::Nan);
    assert_eq!(rounded(&row.outputs[1]), 0.0);
}

#[test]
fn a_sink_that_is_no_number() {
    let mut empty = two_keys();
    empty.problem.mask = Mask::only(Rule::KeyLengths(vec![0]));
    for (logit, lse) in [(NAN, Expected::Nan), (INF, PLUS_INFINITY)] {
        let row = answer(&with_sink(two_keys(), logit));
        assert_eq!(row.outputs, [Expected::Nan, Expected::Nan]);
        assert_eq!((row.lse, row.condition), (lse.clone(), None));
        // A kernel need not divide by the normalizer of a row without keys.
        let row = answer(&with_sink(empty.clone(), logit));
        assert_eq!(row.outputs, [Expected::EmptyRowOrNan, Expected::EmptyRowOrNan]);
        assert_eq!(row.lse, lse);
    }
    // Minus infinity is no sink.
    let row = answer(&with_sink(empty, -INF));
    assert_eq!((row.outputs[0].clone(), row.lse), (Expected::EmptyRow, Expected::MinusInfinity));
    let (with, without) = (answer(&with_sink(two_keys(), -INF)), answer(&two_keys()));
    assert_eq!(
        with.outputs.iter().map(rounded).collect::<Vec<_>>(),
        without.outputs.iter().map(rounded).collect::<Vec<_>>()
    );
    assert_eq!(with.condition.expect("finite scores").sink, None);
}

#[test]
fn a_special_value_that_dropout_drops_leaves_its_entry_unspecified() {
    let keep = Pattern::new([1, 1, 1, 2], vec![true, false]).expect("one a key");
    let dropout = Some(Dropout { scale: 2.0, keep });
    for (values, expected) in [
        ([1.0, NAN], Expected::Unspecified),
        ([1.0, INF], Expected::Unspecified),
        ([NAN, NAN], Expected::Nan),
        ([INF, NAN], Expected::Unspecified),
        ([INF, 1.0], PLUS_INFINITY),
    ] {
        let keys = [([1.0, 0.0], [values[0], 2.0]), ([1.0, 0.0], [values[1], 5.0])];
        let mut case = case([1.0, 1.0], &keys);
        case.problem.dropout = dropout.clone();
        let row = answer(&case);
        assert_eq!(row.outputs[0], expected, "{values:?}");
        assert_eq!(rounded(&row.outputs[1]), 2.0);
    }
}
