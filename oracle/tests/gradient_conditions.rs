//! The gradient condition of a row bounds its exact quantities outward, and closely.

#[path = "support/gradient.rs"]
mod gradient;
#[path = "support/gradient_definition.rs"]
mod gradient_definition;
mod support;

use flashproof_oracle::backward::{ConditionRequest, ConditionedRow, LseKnowledge};
use flashproof_spec::bound::gradient::GradientCondition;
use flashproof_spec::problem::Scale;
use flashproof_spec::tensor::Outputs;
use gradient::{GradientCase, all_keys, gradient_case};
use gradient_definition::{DefinedRow, Definition, number};
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
        prop_assert!(is_just_above(condition.score_magnitude_hi[at], &row.score[at].clone().abs()));
        prop_assert!(is_just_above(condition.probability_hi[at], &row.probability[at]));
        prop_assert!(is_just_above(condition.dp_magnitude_hi[at], &row.dp[at].clone().abs()));
        // What cancels in a difference, or adds up in a sum, takes digits with it.
        prop_assert!(is_above(condition.centred_magnitude_hi[at], &row.centred[at].clone().abs()));
        let k = entries(&case.inputs.key, batch, key_head, key);
        let v = entries(&case.inputs.value, batch, key_head, key);
        prop_assert!(is_above(condition.dot_mass_hi[at], &(mass(&q, &k) * scale(case))));
        prop_assert!(is_above(condition.dp_mass_hi[at], &mass(&d_o, &v)));
    }
    let (output, lse) = (outputs(case).output, outputs(case).lse.expect("an LSE"));
    let o = entries(&output, batch, head, query);
    let rational = |x: f64| Rational::from_f64(x).expect("a finite entry");
    let delta: Rational = d_o.iter().zip(&o).map(|(x, y)| rational(*x) * rational(*y)).sum();
    let delta = number(1.0) * delta;
    prop_assert!(is_just_above(condition.delta_magnitude_hi, &delta.clone().abs()));
    prop_assert!(is_above(condition.delta_mass_hi, &mass(&d_o, &o)));
    prop_assert!(is_above(condition.delta_shift_hi, &(delta - &row.delta).abs()));
    let lse = lse.view3()[[batch, head, query]];
    prop_assert!(is_above(condition.lse_magnitude_hi, &row.lse.clone().abs()));
    prop_assert!(is_above(condition.lse_shift_hi, &(row.lse.clone() - lse).abs()));
    Ok(())
}

/// Cases with an upstream gradient of the LSE.
fn cases() -> impl Strategy<Value = GradientCase> {
    gradient_case().prop_filter("an LSE gradient", |case| case.cotangents.lse.is_some())
}

proptest! {
    #![proptest_config(
        settings("gradient_conditions", "tests/proptest-regressions/gradient_conditions.txt")
    )]

    #[test]
    fn every_quantity_is_bounded(case in cases()) {
        let definition = Definition::new(&case);
        for row in &definition.rows {
            let conditioned = condition(&case, request(row, LseKnowledge::Measured)).expect("numbers");
            prop_assert_eq!((&conditioned.index, &conditioned.keys), (&row.index, &row.visible));
            let condition = &conditioned.condition;
            for vector in [
                &condition.score_magnitude_hi,
                &condition.dot_mass_hi,
                &condition.probability_hi,
                &condition.dp_magnitude_hi,
                &condition.dp_mass_hi,
                &condition.centred_magnitude_hi,
            ] {
                prop_assert_eq!(vector.len(), row.visible.len());
            }
            let lse = case.cotangents.lse.as_ref().expect("an LSE gradient").view3();
            let g = lse[[row.index.batch, row.index.head, row.index.query]];
            prop_assert_eq!(condition.lse_gradient_magnitude_hi, g.abs());
            assert_bounds(&case, row, condition)?;
        }
    }

    #[test]
    fn magnitudes_of_gradients_and_mean_keys_are_bounded(case in cases()) {
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
    fn some_keys_are_a_part_of_all(case in cases(), wanted in prop::collection::vec(0_usize..5, 0..6)) {
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
                    [
                        condition.score_magnitude_hi[at],
                        condition.dot_mass_hi[at],
                        condition.probability_hi[at],
                        condition.dp_magnitude_hi[at],
                        condition.dp_mass_hi[at],
                        condition.centred_magnitude_hi[at],
                    ]
                };
                prop_assert_eq!(of(whole, at), of(part, there));
            }
        }
    }
}
