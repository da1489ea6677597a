//! The gradient condition of a row bounds its exact quantities outward, and closely.

#[path = "support/gradient.rs"]
mod gradient;
#[path = "support/gradient_definition.rs"]
mod gradient_definition;
mod support;

use flashproof_oracle::backward::{ConditionRequest, ConditionedRow, LseKnowledge};
use flashproof_oracle::row::RowIndex;
use flashproof_spec::bound::gradient::{GradientCondition, SinkGradientCondition};
use flashproof_spec::problem::{Problem, Scale};
use flashproof_spec::score::{Addends, Softcap, SoftcapOrder};
use flashproof_spec::tensor::Outputs;
use gradient::{GradientCase, all_keys, gradient_case, modified_case};
use gradient_definition::{DefinedRow, Definition, lse_gradient, number};
use proptest::prelude::*;
use rug::{Float, Rational};
use support::definition::certain;
use support::inputs::all_rows;
use support::settings;

/// Roundings to `f64` between an exact quantity and its bound, each of at most two units in the last
/// place: a product of two bounds, each rounded once from exact numbers.
const ROUNDINGS: f64 = 6.0;

/// What a kernel could have answered: numbers of the right formats that are as good as any.
fn outputs(case: &GradientCase) -> Outputs {
    let lse = case.cotangents.lse.as_ref().expect("an LSE gradient");
    Outputs { output: case.cotangents.output.clone(), lse: Some(lse.clone()) }
}

fn request(row: &DefinedRow, lse: LseKnowledge) -> ConditionRequest<'static> {
    ConditionRequest { index: row.index, lse, keys: None }
}

fn condition(case: &GradientCase, request: ConditionRequest<'_>) -> Option<ConditionedRow> {
    case.backward().condition(&outputs(case), request).expect("a row and its outputs")
}

/// Whether `hi` is an upper bound on a non-negative `x`.
fn is_above(hi: f64, x: &Float) -> bool {
    *certain(x).lo() <= hi
}

/// Whether `hi` is an upper bound on a non-negative `x`, and one of the closest.
fn is_just_above(hi: f64, x: &Float) -> bool {
    let close = x.clone() * (1.0 + 2.0 * ROUNDINGS * f64::EPSILON);
    is_above(hi, x) && (hi <= close + ROUNDINGS * f64::from_bits(1) || hi.is_infinite())
}

/// `sum_t |x_t y_t|`.
fn mass(x: &[f64], y: &[f64]) -> Float {
    let rational = |x: &f64| Rational::from_f64(*x).expect("a finite entry");
    let mass: Rational = x.iter().zip(y).map(|(x, y)| (rational(x) * rational(y)).abs()).sum();
    number(1.0) * mass
}

/// The entries of a row of a tensor.
fn entries(
    tensor: &flashproof_spec::tensor::Tensor,
    batch: usize,
    head: usize,
    at: usize,
) -> Vec<f64> {
    let tensor = tensor.view4();
    (0..tensor.dim().3).map(|column| tensor[[batch, head, at, column]]).collect()
}

fn scale(case: &GradientCase) -> Float {
    match case.problem.scale {
        Scale::Value(scale) => number(scale).abs(),
        Scale::InverseSqrtHeadDim => number(case.problem.head_dim as f64).sqrt().recip(),
    }
}

/// Whether `hi` is an upper bound on a non-negative `x`, as close as an absolute `2^-60` allows where
/// `x` comes from sums of different terms.
fn is_closely_above(hi: f64, x: &Float, comes_from_sums: bool) -> bool {
    if comes_from_sums {
        let room = number(f64::from(-60).exp2()) + x.clone() * f64::from(-50).exp2();
        is_above(hi, x) && (hi <= x.clone() + room || *x > f64::MAX)
    } else {
        is_just_above(hi, x)
    }
}

/// What a key's score is made of, and its weight.
fn assert_score_bounds(
    case: &GradientCase,
    row: &DefinedRow,
    condition: &GradientCondition,
    at: usize,
) -> Result<(), TestCaseError> {
    let Problem { softcap, bias, alibi, sink, .. } = &case.problem;
    let sums = softcap.is_some() || bias.is_some() || alibi.is_some();
    let score = row.score[at].clone().abs();
    prop_assert!(is_closely_above(condition.score_magnitude_hi[at], &score, sums));
    let product = row.product[at].clone().abs();
    prop_assert!(is_just_above(condition.product_magnitude_hi[at], &product));
    let Addends { bias, alibi } = row.addends[at];
    let addend = number(bias.abs()) + alibi.abs();
    prop_assert!(is_just_above(condition.addend_magnitude_hi[at], &addend));
    let sums = sums || sink.is_some();
    let (hi, p) = (condition.probability_hi[at], &row.probability[at]);
    let holds = if sums { is_above(hi, p) } else { is_just_above(hi, p) };
    prop_assert!(holds, "{} for {}", hi, p);
    let (log, exact) = (condition.log_probability_hi[at], p.clone().ln());
    prop_assert!(*certain(&exact).lo() <= log && log <= 0.0);
    let room = number(f64::from(-50).exp2()) * (exact.clone().abs() + 1);
    prop_assert!(log <= exact.clone() + room || exact < -f64::MAX);
    let slope = &row.slope[at];
    prop_assert!(is_closely_above(condition.cap_slope_hi[at], slope, softcap.is_some()));
    let argument = softcap.map_or(number(0.0), |Softcap { cap, order }| match order {
        SoftcapOrder::BeforeBias => row.product[at].clone().abs() / cap,
        SoftcapOrder::AfterBias => {
            (number(row.addends[at].bias) + row.addends[at].alibi + &row.product[at]).abs() / cap
        }
    });
    let lo = condition.cap_argument_lo[at];
    prop_assert!(lo >= 0.0 && lo <= *certain(&argument).hi());
    let close = argument.clone() * (1.0 - f64::from(-50).exp2()) - f64::from(-60).exp2();
    prop_assert!(lo >= close || argument > f64::MAX);
    prop_assert_eq!(condition.dropout[at], row.dropout[at]);
    Ok(())
}

fn assert_bounds(
    case: &GradientCase,
    row: &DefinedRow,
    condition: &GradientCondition,
) -> Result<(), TestCaseError> {
    let (batch, head, query) = (row.index.batch, row.index.head, row.index.query);
    let key_head = case.problem.key_head_of(head);
    let q = entries(&case.inputs.query, batch, head, query);
    let d_o = entries(&case.cotangents.output, batch, head, query);
    for (at, &key) in row.visible.iter().enumerate() {
        assert_score_bounds(case, row, condition, at)?;
        prop_assert!(is_just_above(condition.dp_magnitude_hi[at], &row.dp[at].clone().abs()));
        // What cancels in a difference, or adds up in a sum, takes digits with it.
        prop_assert!(is_above(condition.centred_magnitude_hi[at], &row.centred[at].clone().abs()));
        let k = entries(&case.inputs.key, batch, key_head, key);
        let v = entries(&case.inputs.value, batch, key_head, key);
        prop_assert!(is_above(condition.dot_mass_hi[at], &(mass(&q, &k) * scale(case))));
        prop_assert!(is_above(condition.dp_mass_hi[at], &mass(&d_o, &v)));
    }
    prop_assert_eq!(condition.sink.is_some(), row.sink.is_some());
    if let (Some(sink), Some(exact)) = (condition.sink, &row.sink) {
        prop_assert_eq!(sink.logit, exact.logit);
        prop_assert!(is_above(sink.probability_hi, &exact.probability));
        prop_assert!(is_above(sink.centred_magnitude_hi, &exact.centred.clone().abs()));
    }
    assert_row_bounds(case, row.index, (&row.delta, &row.lse), condition)
}

/// The bounds on `D` and the LSE of a row, exactly these.
fn assert_row_bounds(
    case: &GradientCase,
    index: RowIndex,
    (delta, lse): (&Float, &Float),
    condition: &GradientCondition,
) -> Result<(), TestCaseError> {
    let RowIndex { batch, head, query } = index;
    let d_o = entries(&case.cotangents.output, batch, head, query);
    let (output, kernel_lse) = (outputs(case).output, outputs(case).lse.expect("an LSE"));
    let o = entries(&output, batch, head, query);
    let rational = |x: f64| Rational::from_f64(x).expect("a finite entry");
    let computed: Rational = d_o.iter().zip(&o).map(|(x, y)| rational(*x) * rational(*y)).sum();
    let computed = number(1.0) * computed;
    prop_assert!(is_just_above(condition.delta_magnitude_hi, &computed.clone().abs()));
    prop_assert!(is_above(condition.delta_mass_hi, &mass(&d_o, &o)));
    prop_assert!(is_above(condition.delta_shift_hi, &(computed - delta).abs()));
    let kernel_lse = kernel_lse.view3()[[batch, head, query]];
    prop_assert!(is_above(condition.lse_magnitude_hi, &lse.clone().abs()));
    prop_assert!(is_above(condition.lse_shift_hi, &(lse.clone() - kernel_lse).abs()));
    let g = lse_gradient(case, index);
    prop_assert_eq!(condition.lse_gradient_magnitude_hi, g.abs());
    Ok(())
}

/// The vectors of a condition.
fn vectors(condition: &GradientCondition) -> [&[f64]; 12] {
    [
        &condition.score_magnitude_hi,
        &condition.product_magnitude_hi,
        &condition.addend_magnitude_hi,
        &condition.cap_argument_lo,
        &condition.cap_slope_hi,
        &condition.dropout,
        &condition.dot_mass_hi,
        &condition.probability_hi,
        &condition.log_probability_hi,
        &condition.dp_magnitude_hi,
        &condition.dp_mass_hi,
        &condition.centred_magnitude_hi,
    ]
}

/// Asserts the bounds of every row.
fn assert_all_bounds(case: &GradientCase) -> Result<(), TestCaseError> {
    let definition = Definition::new(case);
    for index in all_rows(&case.problem) {
        let request = ConditionRequest { index, lse: LseKnowledge::Measured, keys: None };
        let Some(row) = definition.row(index) else {
            assert_sink_alone(case, request)?;
            continue;
        };
        let conditioned = condition(case, request).expect("numbers");
        prop_assert_eq!((&conditioned.index, &conditioned.keys), (&row.index, &row.visible));
        for vector in vectors(&conditioned.condition) {
            prop_assert_eq!(vector.len(), row.visible.len());
        }
        assert_bounds(case, row, &conditioned.condition)?;
    }
    Ok(())
}

/// Asserts the condition of a row without keys: one of its sink, where it has one.
fn assert_sink_alone(
    case: &GradientCase,
    request: ConditionRequest<'_>,
) -> Result<(), TestCaseError> {
    let conditioned = condition(case, request);
    let index = request.index;
    let Some(logit) = case.inputs.sink_at(&case.problem, index.head) else {
        prop_assert_eq!(conditioned, None);
        return Ok(());
    };
    let condition = conditioned.expect("a sink").condition;
    prop_assert!(vectors(&condition).iter().all(|vector| vector.is_empty()));
    let g = lse_gradient(case, index).abs();
    let sink = SinkGradientCondition { logit, probability_hi: 1.0, centred_magnitude_hi: g };
    prop_assert_eq!(condition.sink, Some(sink));
    assert_row_bounds(case, index, (&number(0.0), &number(logit)), &condition)
}

/// Cases with an upstream gradient of the LSE.
fn cases() -> impl Strategy<Value = GradientCase> {
    gradient_case().prop_filter("an LSE gradient", |case| case.cotangents.lse.is_some())
}

/// The same with modified scores and weights.
fn modified_cases() -> impl Strategy<Value = GradientCase> {
    modified_case().prop_filter("an LSE gradient", |case| case.cotangents.lse.is_some())
}

proptest! {
    #![proptest_config(
        settings("gradient_conditions", "tests/proptest-regressions/gradient_conditions.txt")
    )]

    #[test]
    fn every_quantity_is_bounded(case in cases()) {
        assert_all_bounds(&case)?;
    }

    #[test]
    fn every_quantity_of_modified_scores_is_bounded(case in modified_cases()) {
        assert_all_bounds(&case)?;
    }

    #[test]
    fn magnitudes_of_gradients_and_mean_keys_are_bounded(case in modified_cases()) {
        let definition = Definition::new(&case);
        let backward = case.backward();
        for row in backward.query_gradient_rows(&all_rows(&case.problem), || ()).unwrap() {
            for (j, entry) in row.query.iter().enumerate() {
                let exact = definition.query_gradient(row.index, j).abs();
                prop_assert!(is_above(entry.magnitude_hi(), &exact));
                prop_assert!(is_above(row.mean_key_hi[j], &definition.mean_key(row.index, j).abs()));
            }
        }
        for row in backward.key_gradient_rows(&all_keys(&case.problem), || ()).unwrap() {
            for (j, entry) in row.key.iter().enumerate() {
                prop_assert!(is_above(entry.magnitude_hi(), &definition.key_gradient(row.index, j).abs()));
            }
            for (j, entry) in row.value.iter().enumerate() {
                prop_assert!(is_above(entry.magnitude_hi(), &definition.value_gradient(row.index, j).abs()));
            }
        }
    }

    #[test]
    fn some_keys_are_a_part_of_all(case in modified_cases(), wanted in prop::collection::vec(0_usize..5, 0..6)) {
        let wanted: Vec<usize> = wanted.into_iter().filter(|&key| key < case.problem.key_len).collect();
        for row in &Definition::new(&case).rows {
            let whole = condition(&case, request(row, LseKnowledge::Within(0.5))).expect("numbers");
            let some = ConditionRequest { keys: Some(&wanted), ..request(row, LseKnowledge::Within(0.5)) };
            let part = condition(&case, some).expect("numbers");
            prop_assert_eq!(part.condition.lse_shift_hi, 0.5);
            for key in 0..case.problem.key_len {
                let at = whole.position(key).filter(|_| wanted.contains(&key));
                prop_assert_eq!(part.position(key).is_some(), at.is_some());
                let (Some(at), Some(there)) = (at, part.position(key)) else { continue };
                let (whole, part) = (&whole.condition, &part.condition);
                let of = |condition: &GradientCondition, at: usize| {
                    vectors(condition).map(|vector| vector[at])
                };
                prop_assert_eq!(of(whole, at), of(part, there));
            }
        }
    }
}
