//! Rows with score modifications whose exact answer can be written down.

mod support;

use flashproof_oracle::enclosure::Enclosure;
use flashproof_oracle::forward::{Options, Oracle};
use flashproof_oracle::round::nearest;
use flashproof_oracle::row::{Expected, Row, RowEnclosures};
use flashproof_spec::format::Format;
use flashproof_spec::mask::Alignment;
use flashproof_spec::pattern::Pattern;
use flashproof_spec::problem::Scale;
use flashproof_spec::score::{Alibi, Bias, Dropout, Sink, Slopes, Softcap, SoftcapOrder};
use proptest::prelude::*;
use rug::{Float, Rational};
use support::inputs::{Case, ONLY_ROW, case, one_query, tensor};
use support::settings;

/// Bits of the reference values.
const PRECISION: u32 = 300;

const ORDERS: [SoftcapOrder; 2] = [SoftcapOrder::BeforeBias, SoftcapOrder::AfterBias];

fn answer(case: &Case) -> Row {
    Oracle::new(&case.problem, &case.inputs, Options::new(Format::F64))
        .expect("a problem and its inputs")
        .row(ONLY_ROW)
        .expect("a row of the problem")
}

fn enclose(case: &Case) -> RowEnclosures {
    Oracle::new(&case.problem, &case.inputs, Options::new(Format::F64))
        .expect("a problem and its inputs")
        .enclose_row(ONLY_ROW, PRECISION)
        .expect("a row and a precision")
        .expect("a row of finite numbers")
}

fn outputs(case: &Case) -> Vec<f64> {
    let rounded =
        |output: &Expected| output.exact().expect("a number").rounded.expect("a decided element");
    answer(case).outputs.iter().map(rounded).collect()
}

fn lse(case: &Case) -> f64 {
    answer(case).lse.exact().expect("a number").rounded.expect("a decided element")
}

/// Keys of one dimension under scale 1, so that scaled products are key entries, and values of one
/// dimension, in f64.
fn scored(keys: &[(f64, f64)]) -> Case {
    let (products, values): (Vec<_>, Vec<_>) =
        keys.iter().map(|&(product, value)| (vec![product], vec![value])).unzip();
    let mut case = one_query(Format::F64, &[1.0], &products, &values);
    case.problem.scale = Scale::Value(1.0);
    case
}

fn with_bias(mut case: Case, bias: &[f64]) -> Case {
    let shape = [1, 1, 1, bias.len()];
    case.problem.bias = Some(Bias { shape, format: Format::F64 });
    case.inputs.bias = Some(tensor(Format::F64, &shape, bias.to_vec()));
    case
}

fn with_sink(mut case: Case, logit: f64) -> Case {
    case.problem.sink = Some(Sink::Logits(Format::F64));
    case.inputs.sink = Some(tensor(Format::F64, &[1], vec![logit]));
    case
}

fn with_softcap(mut case: Case, cap: f64, order: SoftcapOrder) -> Case {
    case.problem.softcap = Some(Softcap { cap, order });
    case
}

fn with_dropout(mut case: Case, scale: f64, keep: &[bool]) -> Case {
    let keep = Pattern::new([1, 1, 1, keep.len()], keep.to_vec()).expect("one a key");
    case.problem.dropout = Some(Dropout { scale, keep });
    case
}

/// A number of many bits, rounded to f64.
fn rounded(x: &Float) -> f64 {
    nearest(x, Format::F64)
}

fn float(x: f64) -> Float {
    Float::with_val(PRECISION, x)
}

#[test]
fn a_bias_that_makes_scores_equal_makes_their_mean_exact() {
    let ulp = f64::EPSILON;
    // Products 1, 2 and -0.5 with scores of 2.5, and a mean that is a midpoint: to even.
    let case = with_bias(scored(&[(1.0, 1.0), (2.0, 1.0 + ulp)]), &[1.5, 0.5]);
    assert_eq!(outputs(&case), [1.0]);
    let case = with_bias(scored(&[(1.0, 1.0), (2.0, 4.0), (-0.5, 7.0)]), &[1.5, 0.5, 3.0]);
    assert_eq!(outputs(&case), [4.0]);
    assert_eq!(lse(&case), rounded(&(float(3.0).ln() + 2.5)));
}

#[test]
fn a_row_of_the_least_finite_biases_has_equal_weights() {
    // pytorch#110213: such a row is not a masked one.
    let ulp = f64::EPSILON;
    for format in Format::ALL {
        let mut case = scored(&[(0.25, 1.0), (0.25, 1.0 + ulp)]);
        let shape = [1, 1, 1, 2];
        case.problem.bias = Some(Bias { shape, format });
        let least = -format.max_finite();
        case.inputs.bias = Some(tensor(format, &shape, vec![least; 2]));
        assert_eq!(outputs(&case), [1.0], "{format}");
        let row = answer(&case);
        assert_eq!((row.admitted, row.visible.len()), (2, 2));
        let condition = row.condition.expect("finite scores");
        assert!(condition.probability_lo.iter().all(|&p| p == 0.5_f64.next_down()));
    }
}

#[test]
fn a_distance_of_the_least_finite_bias_leaves_no_weight_and_still_decides_a_midpoint() {
    let ulp = f64::EPSILON;
    let least = f64::from(f32::MIN);
    for head_dim in [1, 2] {
        for (third, expected) in [(2.0, 1.0 + ulp), (-2.0, 1.0)] {
            // With head dimension 2 the scale is irrational.
            let keys = vec![vec![0.5; head_dim]; 3];
            let values = [vec![1.0], vec![1.0 + ulp], vec![third]];
            let case = one_query(Format::F64, &vec![1.0; head_dim], &keys, &values);
            let case = with_bias(case, &[0.0, 0.0, least]);
            assert_eq!(outputs(&case), [expected]);
            let condition = answer(&case).condition.expect("finite scores");
            assert_eq!(condition.probability_lo[2], 0.0);
            assert!(condition.gap_lo[2] <= -least && -least <= condition.gap_hi[2]);
        }
    }
}

#[test]
fn the_off_by_one_softmax_of_one_key_is_its_closed_form() {
    for score in [-3.5, 0.0, 0.25, 2.0, 40.0] {
        let mut case = scored(&[(score, 1.0)]);
        case.problem.sink = Some(Sink::Zero);
        let weight = float(score).exp();
        let total = Float::with_val(PRECISION, &weight + 1);
        assert_eq!(outputs(&case), [rounded(&(weight / &total))]);
        assert_eq!(lse(&case), rounded(&total.ln()));
    }
}

#[test]
fn a_sink_of_the_score_of_a_key_takes_half_its_value() {
    // Odd multiples of the spacing of f64 above 1, whose half is a number of it.
    for (score, logit) in [(1.5, 1.5), (-700.0, -700.0), (0.0, 0.0)] {
        let case = with_sink(scored(&[(score, 3.0)]), logit);
        assert_eq!(outputs(&case), [1.5]);
        assert_eq!(lse(&case), rounded(&(float(2.0).ln() + score)));
        let sink = answer(&case).condition.expect("a finite row").sink.expect("a sink");
        assert_eq!((sink.logit, sink.gap_lo, sink.gap_hi, sink.key_gap_hi), (logit, 0.0, 0.0, 0.0));
        assert!(sink.probability_lo <= 0.5 && 0.5 <= sink.probability_hi);
    }
    // By a bias, and by an irrational scale times zero.
    let keys = [vec![1.0, -1.0], vec![1.0, 1.0]];
    let case = one_query(Format::F64, &[1.0, 1.0], &keys, &[vec![3.0], vec![1.0]]);
    let case = with_sink(with_bias(case, &[0.75, -1e300]), 0.75);
    assert_eq!(outputs(&case), [1.5]);
    let condition = answer(&case).condition.expect("a finite row");
    assert_eq!((condition.gap_lo[0], condition.gap_hi[0]), (0.0, 0.0));
}

#[test]
fn an_output_below_a_midpoint_by_the_weight_of_a_sink_is_rounded_down() {
    // The mean of both values is the midpoint 1 + ulp + ulp/2, and would go to even: up.
    let ulp = f64::EPSILON;
    let keys = [(0.0, 1.0 + ulp), (0.0, 1.0 + 2.0 * ulp)];
    assert_eq!(outputs(&scored(&keys)), [1.0 + 2.0 * ulp]);
    for logit in [-1e5, -1e300] {
        assert_eq!(outputs(&with_sink(scored(&keys), logit)), [1.0 + ulp]);
    }
    assert_eq!(outputs(&with_sink(scored(&keys), f64::NEG_INFINITY)), [1.0 + 2.0 * ulp]);
}

#[test]
fn a_sink_far_above_the_keys_has_all_the_weight() {
    let case = with_sink(scored(&[(0.0, 3.0), (1.0, -2.0)]), 1e6);
    assert_eq!(outputs(&case), [0.0]);
    // LSEs are above the logit, and f64 numbers close to it.
    assert_eq!(lse(&case), 1e6);
    let condition = answer(&case).condition.expect("a finite row");
    let sink = condition.sink.expect("a sink");
    assert_eq!((sink.gap_lo, sink.gap_hi, sink.probability_hi), (0.0, 0.0, 1.0_f64.next_up()));
    assert!(condition.max_magnitude_hi >= 1e6 && sink.key_gap_hi >= 999_999.0);
    assert!(condition.gap_lo[0] <= 1e6 && 1e6 <= condition.gap_hi[0]);
}

#[test]
fn a_softcap_at_zero_is_zero() {
    // tanh 0 = 0: the scores are their biases, exactly, and the mean is a midpoint.
    let ulp = f64::EPSILON;
    for cap in [1.0, 30.0, 1e-300, f64::MAX] {
        let zeros = scored(&[(0.0, 1.0), (0.0, 1.0 + ulp)]);
        assert_eq!(outputs(&with_softcap(zeros.clone(), cap, SoftcapOrder::AfterBias)), [1.0]);
        let capped = with_softcap(with_bias(zeros, &[2.0]), cap, SoftcapOrder::BeforeBias);
        assert_eq!(outputs(&capped), [1.0]);
        assert_eq!(lse(&capped), rounded(&(float(2.0).ln() + 2.0)));
        let third = Float::with_val(PRECISION, Rational::from((1, 3)));
        assert_eq!(outputs(&with_sink(capped, 2.0)), [rounded(&(third * (float(2.0) + ulp)))]);
    }
}

#[test]
fn a_softcap_of_one_key_is_the_definition() {
    for (product, bias, cap) in [(0.75, 0.5, 2.0), (-40.0, 3.0, 30.0), (1e5, -0.25, 50.0)] {
        let tanh = |t: Float| Float::with_val(PRECISION, t / cap).tanh() * cap;
        let case = with_bias(scored(&[(product, 1.0)]), &[bias]);
        let before = with_softcap(case.clone(), cap, SoftcapOrder::BeforeBias);
        assert_eq!(lse(&before), rounded(&(tanh(float(product)) + bias)));
        let after = with_softcap(case, cap, SoftcapOrder::AfterBias);
        assert_eq!(lse(&after), rounded(&tanh(float(product) + bias)));
    }
}

#[test]
fn scores_far_beyond_the_cap_keep_their_order() {
    // llama.cpp PR#29034 has a cap of 1. 1 - tanh 200 is 2^-576: the larger score decides a midpoint.
    let ulp = f64::EPSILON;
    for order in ORDERS {
        let of = |larger: f64, smaller: f64| {
            let case = scored(&[(200.0, larger), (150.0, smaller)]);
            outputs(&with_softcap(case, 1.0, order))[0]
        };
        assert_eq!(of(1.0 + ulp, 1.0), 1.0 + ulp);
        assert_eq!(of(1.0, 1.0 + ulp), 1.0);
        // With scores 2^-28,000 apart the midpoint is left undecided, and enclosed.
        let case = scored(&[(20_000.0, 1.0), (10_000.0, 1.0 + ulp)]);
        let row = answer(&with_softcap(case, 1.0, order));
        let output = row.outputs[0].exact().expect("a number");
        assert_eq!(output.rounded, None);
        let midpoint = Rational::from_f64(1.0).unwrap() + Rational::from_f64(ulp / 2.0).unwrap();
        assert!(*output.enclosure.lo() < midpoint && midpoint < *output.enclosure.hi());
        // Values on one side of it are not.
        let case = scored(&[(20_000.0, 1.0), (10_000.0, 1.0)]);
        assert_eq!(outputs(&with_softcap(case, 1.0, order)), [1.0]);
    }
}

#[test]
fn alibi_adds_the_slope_times_the_distance() {
    // One query among five keys, at position 4 from the bottom right, and at 0 from the top left.
    for (alignment, distances) in [
        (Alignment::BottomRight, [4.0, 3.0, 2.0, 1.0, 0.0]),
        (Alignment::TopLeft, [0.0, 1.0, 2.0, 3.0, 4.0]),
    ] {
        let keys: Vec<_> = (0..5).map(|key| (0.0, f64::from(key) + 1.0)).collect();
        let mut case = scored(&keys);
        case.problem.alibi = Some(Alibi { slopes: Slopes::Given(vec![0.5]), alignment });
        let by_hand = with_bias(scored(&keys), &distances.map(|distance: f64| -0.5 * distance));
        let (row, by_hand) = (answer(&case), answer(&by_hand));
        assert_eq!((row.outputs, row.lse), (by_hand.outputs, by_hand.lse));
    }
}

#[test]
fn dropout_leaves_the_normalizer_alone() {
    let keys = [(0.0, 4.0), (0.0, 8.0), (0.0, 16.0), (0.0, 32.0)];
    let case = with_dropout(scored(&keys), 2.0, &[true, false, true, false]);
    assert_eq!(outputs(&case), [10.0]);
    assert_eq!(lse(&case), lse(&scored(&keys)));
    let none = with_dropout(scored(&keys), 2.0, &[false; 4]);
    assert_eq!(outputs(&none), [0.0]);
    // Midpoints are seen through it: twice half the mean of 1 and 1 + ulp, and of no others.
    let ulp = f64::EPSILON;
    let pairs = [(1.0, 1.0), (1.0, 7.0), (1.0, 1.0 + ulp), (1.0, -5.0)];
    let case = with_dropout(scored(&pairs), 2.0, &[true, false, true, false]);
    assert_eq!(outputs(&case), [1.0]);
}

#[test]
fn a_dropout_scale_that_is_no_power_of_two_is_exact_in_f32() {
    let scale = f64::from(1.0 / 0.9_f32);
    let mut case = one_query(Format::F32, &[1.0], &[vec![0.0], vec![0.0]], &[vec![3.0], vec![5.0]]);
    case = with_dropout(case, scale, &[true, true]);
    // 4 times a number of f32 is one, so it is the answer to the last bit.
    let row = answer(&case);
    let output = row.outputs[0].exact().expect("a number");
    assert_eq!(output.rounded, Some(4.0 * scale));
    assert!(output.enclosure.error_of(4.0 * scale).0 == 0.0);
}

proptest! {
    #![proptest_config(settings(
        "score_modifications", "tests/proptest-regressions/score_modifications.txt"
    ))]

    #[test]
    fn a_constant_added_to_all_scores_moves_the_lse_alone(case in case(), shift in -64_i8..64) {
        let shift = f64::from(shift);
        for order in [None, Some(SoftcapOrder::BeforeBias)] {
            let mut shifted = with_bias(case.clone(), &[shift]);
            let mut still = case.clone();
            if let Some(order) = order {
                shifted = with_softcap(shifted, 3.0, order);
                still = with_softcap(still, 3.0, order);
            }
            let (row, still) = (answer(&shifted), answer(&still));
            for (a, b) in row.outputs.iter().zip(&still.outputs) {
                let (a, b) = (a.exact().expect("a number"), b.exact().expect("a number"));
                prop_assert!(a.enclosure.intersects(&b.enclosure));
                prop_assert!(a.rounded == b.rounded || a.rounded.is_none() || b.rounded.is_none());
            }
            let lse = |row: &Row| row.lse.exact().expect("a number").enclosure.clone();
            let moved = lse(&still).add(&Enclosure::point(float(shift)), PRECISION);
            prop_assert!(lse(&row).intersects(&moved), "{:?} and {moved:?}", row.lse);
        }
    }

    #[test]
    fn what_adds_nothing_changes_nothing(case in case()) {
        let plain = answer(&case);
        let keys = case.problem.key_len;
        let zeros = with_bias(case.clone(), &vec![0.0; keys]);
        let mut flat = case.clone();
        flat.problem.alibi =
            Some(Alibi { slopes: Slopes::Given(vec![0.0]), alignment: Alignment::TopLeft });
        let kept = with_dropout(case.clone(), 1.0, &vec![true; keys]);
        let no_sink = with_sink(case, f64::NEG_INFINITY);
        for case in [zeros, flat, kept, no_sink] {
            let row = answer(&case);
            for (a, b) in row.outputs.iter().chain([&row.lse]).zip(plain.outputs.iter().chain([&plain.lse])) {
                let (a, b) = (a.exact().expect("a number"), b.exact().expect("a number"));
                prop_assert!(a.enclosure.intersects(&b.enclosure));
                prop_assert_eq!(a.rounded.map(f64::to_bits), b.rounded.map(f64::to_bits));
            }
        }
    }

    #[test]
    fn a_huge_cap_is_nearly_none(case in case()) {
        // 0 <= |t| - |cap tanh (t / cap)| <= |t|^3 / (3 cap^2), below 2^-1200 for scores of formats up to
        // f32: far below the width of any enclosure at this precision.
        prop_assume!(case.problem.format != Format::F64);
        let plain = enclose(&case);
        for order in ORDERS {
            let row = enclose(&with_softcap(case.clone(), f64::MAX, order));
            for (a, b) in row.outputs.iter().chain([&row.lse]).zip(plain.outputs.iter().chain([&plain.lse])) {
                prop_assert!(a.intersects(b), "{a:?} and {b:?}");
            }
        }
    }
}
