//! What happens to scores: bias and its broadcasting, ALiBi, softcap, sinks' logits and dropout's
//! factors, as problem and inputs describe them.

mod support;

use flashproof_spec::format::Format;
use flashproof_spec::mask::{Alignment, Mask, Rule, Site};
use flashproof_spec::pattern::Pattern;
use flashproof_spec::problem::{Problem, Scale};
use flashproof_spec::score::{
    Addends, Alibi, Bias, Dropout, Sink, Slopes, Softcap, SoftcapOrder, standard_slopes,
};
use flashproof_spec::tensor::{Inputs, Tensor};
use proptest::prelude::*;
use rug::Float;
use support::settings;

/// Two batch members, two heads, two queries, three keys: bias entries tell every place apart.
fn problem() -> Problem {
    Problem { batch: 2, query_len: 2, ..Problem::new(Format::F32, 2, 3, 1) }
}

fn inputs(problem: &Problem) -> Inputs {
    let zeros =
        |shape: [usize; 4]| Tensor::rounded(problem.format, &ndarray::ArrayD::zeros(&shape[..]));
    Inputs::new(
        zeros(problem.query_shape()),
        zeros(problem.key_shape()),
        zeros(problem.value_shape()),
    )
}

/// A problem with a bias of this shape, whose entries count up from 0 in row-major order.
fn biased(shape: [usize; 4]) -> (Problem, Inputs) {
    let problem = Problem { bias: Some(Bias { shape, format: Format::F32 }), ..problem() };
    let entries = (0..shape.iter().product::<usize>()).map(|entry| entry as f64).collect();
    let bias = Tensor::rounded_from(Format::F32, &shape, entries).expect("as many as the shape");
    let inputs = Inputs { bias: Some(bias), ..inputs(&problem) };
    inputs.check(&problem).expect("the bias is the problem's");
    problem.validate().expect("a bias that can be broadcast");
    (problem, inputs)
}

fn site(place: [usize; 4]) -> Site {
    let [batch, head, query, key] = place;
    Site { batch, head, query, key }
}

fn every_place() -> impl Iterator<Item = [usize; 4]> {
    let [batch, heads, queries, keys] = problem().score_shape();
    (0..batch * heads * queries * keys).map(move |flat| {
        let (rest, key) = (flat / keys, flat % keys);
        let (rest, query) = (rest / queries, rest % queries);
        [rest / heads, rest % heads, query, key]
    })
}

#[test]
fn a_bias_is_broadcast_along_axes_of_extent_one() {
    for (shape, strides) in [
        ([2, 2, 2, 3], [12, 6, 3, 1]),
        ([1, 2, 2, 3], [0, 6, 3, 1]),
        ([2, 1, 2, 3], [6, 0, 3, 1]),
        ([1, 1, 2, 3], [0, 0, 3, 1]),
        ([1, 1, 1, 3], [0, 0, 0, 1]),
        ([1, 2, 2, 1], [0, 2, 1, 0]),
        ([1, 1, 1, 1], [0, 0, 0, 0]),
    ] {
        let (problem, inputs) = biased(shape);
        for place in every_place() {
            let entry: usize = place.iter().zip(strides).map(|(index, step)| index * step).sum();
            assert_eq!(inputs.bias_at(&problem, site(place)), entry as f64, "{shape:?} {place:?}");
        }
    }
}

#[test]
fn a_bias_of_minus_infinity_hides_the_key_and_a_finite_one_does_not() {
    let (problem, mut inputs) = biased([1, 1, 2, 3]);
    let lowest = f64::from(f32::MIN);
    let entries = vec![
        0.0,
        f64::NEG_INFINITY,
        lowest,
        f64::NEG_INFINITY,
        f64::NEG_INFINITY,
        f64::NEG_INFINITY,
    ];
    inputs.bias = Some(Tensor::rounded_from(Format::F32, &[1, 1, 2, 3], entries).expect("six"));
    for head in 0..2 {
        assert_eq!(inputs.visible_keys(&problem, 0, head, 0), [0, 2]);
        assert!(inputs.visible_keys(&problem, 1, head, 1).is_empty());
    }
    let masked = Problem { mask: Mask::only(Rule::KeyLengths(vec![2, 3])), ..problem };
    assert_eq!(inputs.visible_keys(&masked, 0, 0, 0), [0]);
}

#[test]
fn scores_add_bias_and_alibi_to_the_product() {
    let addends = Addends { bias: 0.5, alibi: -0.25 };
    assert_eq!(problem().score(3.0, addends), 3.25);
    for scale in [-1.5, 0.0] {
        let scaled = Problem { scale: Scale::Value(scale), ..problem() };
        assert_eq!(scaled.validate(), Ok(()));
        assert_eq!(scaled.scale_f64(), scale);
    }
}

/// The slopes that the paper prints for 8 heads, 2^-1 to 2^-8, and for others by its rule.
#[test]
fn alibi_slopes_are_those_of_the_paper() {
    let powers = |exponents: &[f64]| -> Vec<f64> {
        exponents.iter().map(|e| Format::F32.round(e.exp2())).collect()
    };
    assert_eq!(standard_slopes(8), powers(&[-1.0, -2.0, -3.0, -4.0, -5.0, -6.0, -7.0, -8.0]));
    assert_eq!(standard_slopes(16)[..3], powers(&[-0.5, -1.0, -1.5]));
    assert_eq!(standard_slopes(1), powers(&[-8.0]));
    assert_eq!(standard_slopes(2), powers(&[-4.0, -8.0]));
    // Not a power of two: the slopes of the power below, then every other one of the power above.
    assert_eq!(standard_slopes(3), powers(&[-4.0, -8.0, -2.0]));
    assert_eq!(standard_slopes(6), powers(&[-2.0, -4.0, -6.0, -8.0, -1.0, -3.0]));
    assert_eq!(standard_slopes(12)[8..], powers(&[-0.5, -1.5, -2.5, -3.5]));
    assert!(standard_slopes(0).is_empty());
}

/// Against 2^x in MPFR: correctly rounded, not nearly so.
#[test]
fn alibi_slopes_are_correctly_rounded() {
    for heads in 1..=128_usize {
        let power = heads.next_power_of_two() / if heads.is_power_of_two() { 1 } else { 2 };
        for (head, slope) in standard_slopes(heads).into_iter().enumerate() {
            let exponent = if head < power {
                Float::with_val(200, -8 * (head as i64 + 1)) / power as u64
            } else {
                Float::with_val(200, -4 * (2 * (head - power) as i64 + 1)) / power as u64
            };
            assert_eq!(slope, f64::from(exponent.exp2().to_f32()), "head {head} of {heads}");
        }
    }
}

#[test]
fn alibi_falls_with_the_distance_from_the_own_position() {
    let alibi = |alignment| Problem {
        alibi: Some(Alibi { slopes: Slopes::Given(vec![0.5, 2.0]), alignment }),
        ..problem()
    };
    let row = |problem: &Problem, head, query| -> Vec<f64> {
        (0..3).map(|key| problem.alibi_at(site([0, head, query, key]))).collect()
    };
    let top_left = alibi(Alignment::TopLeft);
    assert_eq!(row(&top_left, 0, 0), [-0.0, -0.5, -1.0]);
    assert_eq!(row(&top_left, 1, 1), [-2.0, -0.0, -2.0]);
    // Two queries on three keys: the last query stands at the last key.
    let bottom_right = alibi(Alignment::BottomRight);
    assert_eq!(row(&bottom_right, 0, 0), [-0.5, -0.0, -0.5]);
    assert_eq!(row(&bottom_right, 1, 1), [-4.0, -2.0, -0.0]);
    // At the last key in use.
    let used = Problem { mask: Mask::only(Rule::KeyLengths(vec![2, 3])), ..bottom_right };
    assert_eq!(row(&used, 0, 1), [-0.5, -0.0, -0.5]);
}

#[test]
fn dropout_factors_are_the_scale_or_zero() {
    let keep = Pattern::from_fn([1, 2, 1, 3], |[_, head, _, key]| head == 1 && key != 1);
    let problem = Problem { dropout: Some(Dropout { scale: 1.25, keep }), ..problem() };
    assert_eq!(problem.validate(), Ok(()));
    for place in every_place() {
        let kept = place[1] == 1 && place[3] != 1;
        assert_eq!(problem.dropout_at(site(place)), if kept { 1.25 } else { 0.0 });
    }
    assert_eq!(self::problem().dropout_at(site([0, 0, 0, 0])), 1.0);
}

#[test]
fn sinks_have_a_logit_for_each_query_head() {
    let given = Problem { sink: Some(Sink::Logits(Format::F32)), ..problem() };
    let sink = Tensor::rounded_from(Format::F32, &[2], vec![20.0, -3.0]).expect("two");
    let with_sink = Inputs { sink: Some(sink), ..inputs(&given) };
    assert_eq!(with_sink.check(&given), Ok(()));
    assert_eq!([0, 1].map(|head| with_sink.sink_at(&given, head)), [Some(20.0), Some(-3.0)]);
    let zero = Problem { sink: Some(Sink::Zero), ..problem() };
    assert_eq!(inputs(&zero).sink_at(&zero, 1), Some(0.0));
    assert_eq!(inputs(&problem()).sink_at(&problem(), 1), None);
}

fn softcapped(order: SoftcapOrder) -> Problem {
    Problem { softcap: Some(Softcap { cap: 2.0, order }), ..problem() }
}

#[test]
fn a_softcap_comes_before_or_after_the_bias_as_the_problem_says() {
    let addends = Addends { bias: 100.0, alibi: 0.0 };
    // Before: the bias is not bounded. After: the sum is.
    assert!(softcapped(SoftcapOrder::BeforeBias).score(1.0, addends) > 100.0);
    assert_eq!(softcapped(SoftcapOrder::AfterBias).score(1.0, addends), 2.0);
    assert_eq!(softcapped(SoftcapOrder::AfterBias).score_slope(0.0, Addends::default()), 1.0);
}

/// A masked key stays masked: no score, capped or not, is what hides it.
#[test]
fn a_softcap_leaves_the_mask_alone() {
    let (mut problem, mut inputs) = biased([1, 1, 1, 3]);
    let entries = vec![0.0, f64::NEG_INFINITY, 0.0];
    inputs.bias = Some(Tensor::rounded_from(Format::F32, &[1, 1, 1, 3], entries).expect("three"));
    problem.mask = Mask::only(Rule::KeyLengths(vec![2, 2]));
    for order in [SoftcapOrder::BeforeBias, SoftcapOrder::AfterBias] {
        let capped = Problem { softcap: Some(Softcap { cap: 1.0, order }), ..problem.clone() };
        assert_eq!(inputs.visible_keys(&capped, 0, 0, 0), [0]);
    }
}

proptest! {
    #![proptest_config(settings("scores", "tests/proptest-regressions/scores.txt"))]

    /// Against MPFR: `cap * tanh(x / cap)` with three roundings of at most two units each, and its
    /// slope as the difference quotient, whose own error the third derivative bounds.
    #[test]
    fn softcap_and_slope_agree_with_mpfr(x in -60.0..60.0_f64, cap in 0.5..40.0_f64) {
        const BITS: u32 = 400;
        /// Spacing of the difference quotient, `2^-100`.
        const STEP: i32 = -100;
        let softcap = Softcap { cap, order: SoftcapOrder::BeforeBias };
        let exact = |x: Float| (x / cap).tanh() * cap;
        let at = Float::with_val(BITS, x);
        let step = Float::with_val(BITS, 1) << STEP;
        let value = exact(at.clone());
        let units = |y: &Float| (y.clone().abs() >> (f64::MANTISSA_DIGITS - 1)).to_f64();
        let error = (Float::with_val(BITS, softcap.apply(x)) - &value).abs().to_f64();
        prop_assert!(error <= 6.0 * units(&value), "{error:e}");

        let rise = exact(Float::with_val(BITS, &at + &step)) - exact(Float::with_val(BITS, &at - &step));
        let slope = rise / (step * 2_u32);
        // |(cap tanh(x / cap))'''| <= 2 / cap^2, of which the quotient errs by a sixth of step^2.
        let quotient_error = (2.0 * f64::from(STEP)).exp2() / (3.0 * cap * cap);
        // The argument's rounding moves cosh^2 by 2 |x / cap| units; cosh, square and reciprocal.
        let allowed = (2.0 * (x / cap).abs() + 8.0) * units(&slope) + quotient_error;
        let error = (Float::with_val(BITS, softcap.slope(x)) - slope).abs().to_f64();
        prop_assert!(error <= allowed, "{error:e} > {allowed:e}");
        prop_assert!(softcap.apply(x).abs() <= cap);
    }
}
