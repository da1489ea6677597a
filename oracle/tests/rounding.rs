//! Answers are rounded correctly, exact midpoints included.

mod support;

use flashproof_oracle::enclosure::Enclosure;
use flashproof_oracle::forward::{Options, Oracle};
use flashproof_oracle::round::{Decision, decide, nearest};
use flashproof_oracle::row::{Exact, Row};
use flashproof_spec::format::Format;
use flashproof_spec::problem::Scale;
use proptest::prelude::*;
use rug::Float;
use support::definition::{certain, evaluate};
use support::inputs::{Case, ONLY_ROW, case, one_query};
use support::modified::{algebraic, modified};
use support::settings;

fn answer(case: &Case, lse_format: Format) -> Row {
    Oracle::new(&case.problem, &case.inputs, Options::new(lse_format))
        .expect("a problem and its inputs")
        .row(ONLY_ROW)
        .expect("a row of the problem")
}

fn rounded(exact: &Exact) -> f64 {
    exact.rounded.expect("a decided element")
}

/// The output entries of a case of finite numbers, rounded.
fn outputs(case: &Case) -> Vec<f64> {
    let row = answer(case, Format::F64);
    row.outputs.iter().map(|output| rounded(output.exact().expect("a number"))).collect()
}

/// The LSE of a case of finite numbers, rounded to `format`.
fn lse(case: &Case, format: Format) -> f64 {
    rounded(answer(case, format).lse.exact().expect("a number"))
}

/// Keys of one dimension under scale 1, so that scores are key entries, and values of one dimension.
fn scored(format: Format, keys: &[(f64, f64)]) -> Case {
    let (scores, values): (Vec<_>, Vec<_>) =
        keys.iter().map(|&(score, value)| (vec![score], vec![value])).unzip();
    let mut case = one_query(format, &[1.0], &scores, &values);
    case.problem.scale = Scale::Value(1.0);
    case
}

fn same(a: f64, b: f64) -> bool {
    a == b || (a.is_nan() && b.is_nan())
}

/// The answers of a case, the definition's, and the format that they are rounded to.
fn elements(case: &Case, lse_format: Format) -> Vec<(Exact, Float, Format)> {
    let definition = evaluate(case);
    let row = answer(case, lse_format);
    let formats = vec![case.problem.format; definition.output.len()];
    let answers = row.outputs.into_iter().chain([row.lse]);
    let exact = definition.output.into_iter().chain([definition.lse]);
    answers
        .zip(exact)
        .zip(formats.into_iter().chain([lse_format]))
        .map(|((answer, exact), format)| (answer.exact().expect("a number").clone(), exact, format))
        .collect()
}

/// Whether a value is nearest to the definition's, as far as brute force can tell a midpoint from its
/// neighbourhood.
fn rounds_to(exact: &Float, value: f64, format: Format) -> bool {
    let certain = certain(exact);
    [certain.lo(), certain.hi()].iter().any(|end| same(nearest(end, format), value))
}

proptest! {
    #![proptest_config(settings("rounding", "tests/proptest-regressions/rounding.txt"))]

    #[test]
    fn the_definition_rounds_to_the_answer(
        case in case(), lse_format in prop::sample::select(Format::ALL.to_vec()),
    ) {
        for (answer, exact, format) in elements(&case, lse_format) {
            prop_assert!(answer.enclosure.intersects(&certain(&exact)));
            prop_assert!(rounds_to(&exact, rounded(&answer), format), "{exact} in {format}: {answer:?}");
        }
    }

    #[test]
    fn the_definition_rounds_to_the_answer_whatever_is_added(
        case in algebraic(), lse_format in prop::sample::select(Format::ALL.to_vec()),
    ) {
        for (answer, exact, format) in elements(&case, lse_format) {
            prop_assert!(rounds_to(&exact, rounded(&answer), format), "{exact} in {format}: {answer:?}");
        }
    }

    #[test]
    fn a_softcap_leaves_an_element_undecided_at_worst(
        case in modified(), lse_format in prop::sample::select(Format::ALL.to_vec()),
    ) {
        for (answer, exact, format) in elements(&case, lse_format) {
            prop_assert!(answer.enclosure.intersects(&certain(&exact)));
            let right = answer.rounded.is_none_or(|rounded| rounds_to(&exact, rounded, format));
            prop_assert!(right, "{exact} in {format}: {answer:?}");
        }
    }

    #[test]
    fn rounding_agrees_with_the_specification(x in any::<f64>(), format in prop::sample::select(Format::ALL.to_vec())) {
        prop_assert!(same(nearest(&Float::with_val(53, x), format), format.round(x)));
    }

    #[test]
    fn no_other_value_is_nearer((x, format) in more_bits_than_f64()) {
        let value = nearest(&x, format);
        prop_assert!(format.represents(value) && value.is_finite());
        let distance = |value: f64| Float::with_val(400, &x - value).abs();
        for direction in [f64::INFINITY, f64::NEG_INFINITY] {
            let neighbour = neighbour(value, direction, format);
            prop_assert!(distance(value) <= distance(neighbour), "{x}: {value} or {neighbour}");
        }
    }
}

/// Numbers in the range of a format, with a tail that no `f64` could hold.
fn more_bits_than_f64() -> impl Strategy<Value = (Float, Format)> {
    prop::sample::select(vec![
        Format::F32,
        Format::Tf32,
        Format::F16,
        Format::Bf16,
        Format::E4m3,
        Format::E5m2,
    ])
    .prop_flat_map(|format| {
        let exponents = format.min_quantum() - 2..format.max_finite().log2() as i32;
        (0..1_u32 << (format.precision() + 3), exponents, -1.0..1.0_f64).prop_map(
            move |(mantissa, exponent, tail)| {
                let bits = i32::try_from(format.precision()).expect("few bits") + 3;
                let x = Float::with_val(160, mantissa) >> bits;
                let tail = Float::with_val(160, tail) >> 90;
                ((x + tail) << exponent, format)
            },
        )
    })
}

/// The format's next value towards `direction`, found by rounding alone.
fn neighbour(value: f64, direction: f64, format: Format) -> f64 {
    let up = direction > 0.0;
    let spacing = (0..).map(|k| format.smallest_subnormal() * f64::from(k).exp2());
    spacing
        .map(|step| format.round(if up { value + step } else { value - step }))
        .find(|&next| next != value)
        .expect("another value, or infinity")
}

#[test]
fn equal_scores_whose_mean_is_a_midpoint_round_to_even() {
    // bf16 has 8 bits: between 1 and 2 its values are 2^-7 apart.
    let ulp = 2_f64.powi(-7);
    let mean_of = |values: &[f64]| {
        let keys: Vec<_> = values.iter().map(|&value| (0.5, value)).collect();
        outputs(&scored(Format::Bf16, &keys))[0]
    };
    assert_eq!(mean_of(&[1.0, 1.0 + ulp]), 1.0);
    assert_eq!(mean_of(&[1.0 + ulp, 1.0 + 2.0 * ulp]), 1.0 + 2.0 * ulp);
    assert_eq!(mean_of(&[-1.0 - ulp, -1.0]), -1.0);
    assert_eq!(mean_of(&[1.0, 1.0, 1.0 + ulp, 1.0 + ulp]), 1.0);
    // Half the smallest positive number is a midpoint with zero.
    let smallest = Format::Bf16.smallest_subnormal();
    assert_eq!(mean_of(&[0.0, smallest]), 0.0);
    assert_eq!(mean_of(&[smallest, 2.0 * smallest]), 2.0 * smallest);
}

#[test]
fn groups_of_one_common_mean_are_recognised_as_exact() {
    // Scores 0, 1 and -3, each twice, and each time the mean is the midpoint 1 + ulp / 2.
    let ulp = 2_f64.powi(-7);
    let group = |score, spread| [(score, 1.0 + ulp + spread), (score, 1.0 - spread)];
    let keys = [group(0.0, 0.0), group(1.0, ulp), group(-3.0, 4.0 * ulp)].concat();
    assert_eq!(outputs(&scored(Format::Bf16, &keys)), [1.0]);
    let cancelling = [(0.0, 3.0), (0.0, -3.0), (2.0, 0.0), (5.0, 1.5), (5.0, -1.5)];
    for format in Format::ALL {
        assert_eq!(outputs(&scored(format, &cancelling)), [0.0]);
    }
}

#[test]
fn a_weight_far_below_the_precision_decides_a_midpoint() {
    // The third key's weight is e^-(133120^2), some 10^(-7.7e9): no working precision reaches it.
    let ulp = 2_f64.powi(-7);
    let large = 133_120.0;
    let with_third = |pair: [f64; 2], third: f64| {
        let keys = [vec![large], vec![large], vec![0.0]];
        let values = [vec![pair[0]], vec![pair[1]], vec![third]];
        outputs(&one_query(Format::Bf16, &[large], &keys, &values))[0]
    };
    assert_eq!(with_third([1.0, 1.0 + ulp], 2.0), 1.0 + ulp);
    assert_eq!(with_third([1.0, 1.0 + ulp], -2.0), 1.0);
    assert_eq!(with_third([1.0 + ulp, 1.0 + 2.0 * ulp], 2.0), 1.0 + 2.0 * ulp);
    assert_eq!(with_third([1.0 + ulp, 1.0 + 2.0 * ulp], -2.0), 1.0 + ulp);
    let middle = [(0.0, 1.0), (0.0, 1.0 + ulp), (-3.0, 1.0 + ulp), (-3.0, 1.0)];
    let keys = [&middle[..], &[(-large, 2.0)]].concat();
    assert_eq!(outputs(&scored(Format::Bf16, &keys)), [1.0 + ulp]);
}

#[test]
fn constant_values_come_back_whatever_the_scores() {
    for format in Format::ALL {
        let value = format.round(0.7);
        let keys = [(0.0, value), (3.0, value), (-0.5, value), (1.5, value)];
        assert_eq!(outputs(&scored(format, &keys)), [value]);
    }
}

#[test]
fn the_lse_of_one_key_is_its_score_even_at_a_midpoint() {
    // f32 has 24 bits: 1 + 2^-24 and 1 + 3 * 2^-24 are midpoints.
    let half_ulp = 2_f64.powi(-24);
    let of_scores = |scores: &[f64]| {
        let keys: Vec<_> = scores.iter().map(|&score| (score, 1.0)).collect();
        lse(&scored(Format::F64, &keys), Format::F32)
    };
    assert_eq!(of_scores(&[1.0 + half_ulp]), 1.0);
    assert_eq!(of_scores(&[1.0 + 3.0 * half_ulp]), 1.0 + 4.0 * half_ulp);
    // A second key adds something, however little.
    assert_eq!(of_scores(&[1.0 + half_ulp, -1e15]), 1.0 + 2.0 * half_ulp);
    assert_eq!(of_scores(&[-1e15, -1.0 - half_ulp]), -1.0);
    assert_eq!(of_scores(&[-1e15, -1.0 - 3.0 * half_ulp]), -1.0 - 2.0 * half_ulp);
}

#[test]
fn a_rational_scale_that_is_no_binary_fraction_keeps_midpoints_exact() {
    // Head dimension 9: the scale is 1/3, and a dot product of 3 (1 + 2^-24) scores a midpoint.
    let dot = 3.0 * (1.0 + 2_f64.powi(-24));
    let mut query = vec![0.0; 9];
    query[4] = 1.0;
    let mut key = vec![0.0; 9];
    key[4] = dot;
    let one = one_query(Format::F64, &query, &[key.clone()], &[vec![1.0]]);
    assert_eq!(lse(&one, Format::F32), 1.0);
    let mut far = vec![0.0; 9];
    far[4] = -1e15;
    let two = one_query(Format::F64, &query, &[key, far], &[vec![1.0], vec![1.0]]);
    assert_eq!(lse(&two, Format::F32), 1.0 + 2_f64.powi(-23));
}

#[test]
fn an_lse_beyond_the_format_overflows() {
    let case = scored(Format::F64, &[(1e300, 1.0), (0.0, 1.0)]);
    assert_eq!(lse(&case, Format::F64), 1e300);
    assert_eq!(lse(&case, Format::F32), f64::INFINITY);
    assert!(lse(&case, Format::E4m3).is_nan());
    let case = scored(Format::F64, &[(-1e300, 1.0), (-2e300, 1.0)]);
    assert_eq!(lse(&case, Format::Bf16), f64::NEG_INFINITY);
}

#[test]
fn a_precision_cap_leaves_the_element_undecided_and_enclosed() {
    // e^-700 needs a grid finer than 2^-1009, and the cap stays below.
    let case = scored(Format::F64, &[(700.0, 0.0), (0.0, 1.0)]);
    let capped = Options { max_precision: 512, ..Options::new(Format::F64) };
    let row = Oracle::new(&case.problem, &case.inputs, capped).unwrap().row(ONLY_ROW).unwrap();
    let output = row.outputs[0].exact().unwrap();
    assert_eq!(output.rounded, None);
    assert!(output.enclosure.intersects(&certain(&evaluate(&case).output[0])));
    assert_eq!(rounded(row.lse.exact().unwrap()), 700.0);
    assert_eq!(outputs(&case), [nearest(&evaluate(&case).output[0], Format::F64)]);
}

#[test]
fn an_enclosure_of_several_midpoints_decides_nothing() {
    let between =
        |lo: f64, hi: f64| Enclosure::new(Float::with_val(53, lo), Float::with_val(53, hi));
    let ulp = 2_f64.powi(-7);
    assert_eq!(decide(&between(1.0, 1.0 + 0.49 * ulp), Format::Bf16), Decision::Value(1.0));
    let Decision::Midpoint(midpoint) = decide(&between(1.0, 1.0 + ulp), Format::Bf16) else {
        panic!("one midpoint")
    };
    assert_eq!(midpoint, 1.0 + ulp / 2.0);
    assert_eq!(decide(&between(1.0, 1.0 + 2.0 * ulp), Format::Bf16), Decision::Open);
    let smallest = Format::Bf16.smallest_subnormal();
    assert_eq!(decide(&between(-smallest, smallest), Format::Bf16), Decision::Open);
    assert_eq!(decide(&between(-2.0 * smallest, smallest), Format::Bf16), Decision::Open);
    assert_eq!(decide(&between(-smallest, 2.0 * smallest), Format::Bf16), Decision::Open);
    assert_eq!(
        decide(&between(-0.4 * smallest, 0.4 * smallest), Format::Bf16),
        Decision::Value(0.0)
    );
    let Decision::Midpoint(midpoint) = decide(&between(-smallest, 0.0), Format::Bf16) else {
        panic!("one midpoint")
    };
    assert_eq!(midpoint, -smallest / 2.0);
    assert_eq!(decide(&Enclosure::whole_line(), Format::F32), Decision::Open);
}
