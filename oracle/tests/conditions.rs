//! The condition of a row bounds its exact quantities outward, and closely.

mod support;

use flashproof_oracle::forward::{Options, Oracle};
use flashproof_spec::bound::RowCondition;
use flashproof_spec::format::Format;
use flashproof_spec::mask::Site;
use flashproof_spec::problem::Scale;
use flashproof_spec::score::{Softcap, SoftcapOrder};
use proptest::prelude::*;
use rug::float::Round;
use rug::{Float, Rational};
use support::definition::{evaluate, scaled_product};
use support::inputs::{Case, ONLY_ROW, case};
use support::modified::modified;
use support::settings;

/// Bits in which the exact quantities are evaluated.
const PRECISION: u32 = 6000;

/// Roundings to `f64` between an exact quantity and its bound, each of at most two units in the last
/// place: a product or a quotient of two bounds, each rounded once from exact numbers.
const ROUNDINGS: usize = 6;

fn condition(case: &Case) -> RowCondition {
    Oracle::new(&case.problem, &case.inputs, Options::new(Format::F64))
        .expect("a problem and its inputs")
        .row(ONLY_ROW)
        .expect("a row of the problem")
        .condition
        .expect("a row of finite numbers")
}

/// Whether `hi` is an upper bound on a non-negative `x`, and no farther than so many roundings.
fn bounds_above(hi: f64, x: &Float, roundings: usize) -> bool {
    let roundings = roundings as f64;
    let close = Float::with_val(PRECISION, x * (1.0 + 2.0 * roundings * f64::EPSILON));
    *x <= hi && (hi <= close + 2.0 * roundings * f64::from_bits(1) || *x > f64::MAX)
}

/// Whether `lo` is a lower bound on a non-negative `x`, and one of the closest.
fn bounds_below(lo: f64, x: &Float) -> bool {
    let roundings = ROUNDINGS as f64;
    let close = Float::with_val(PRECISION, x * (1.0 - 2.0 * roundings * f64::EPSILON));
    *x >= lo && lo >= close - 2.0 * roundings * f64::from_bits(1)
}

/// `|scale| * sum_t |q_t k_t|` of a key, and the sum alone.
fn masses(case: &Case, key: usize) -> (Float, Float) {
    let rational = |x: f64| Rational::from_f64(x).expect("a finite entry");
    let (query, keys) = (case.inputs.query.view4(), case.inputs.key.view4());
    let mass: Rational = (0..case.problem.head_dim)
        .map(|t| (rational(query[[0, 0, 0, t]]) * rational(keys[[0, 0, key, t]])).abs())
        .sum();
    let mass = Float::with_val(PRECISION, mass);
    let scaled = match case.problem.scale {
        Scale::Value(scale) => Float::with_val(PRECISION, &mass * scale.abs()),
        Scale::InverseSqrtHeadDim => {
            &mass / Float::with_val(PRECISION, case.problem.head_dim as u64).sqrt()
        }
    };
    (scaled, mass)
}

proptest! {
    #![proptest_config(settings("conditions", "tests/proptest-regressions/conditions.txt"))]

    #[test]
    fn every_quantity_is_bounded_closely(case in case()) {
        let condition = condition(&case);
        let definition = evaluate(&case);
        let float = |x: &Float| Float::with_val(PRECISION, x);
        let max = definition.scores.iter().fold(definition.scores[0].clone(), Float::max);
        let weights: Vec<Float> =
            definition.scores.iter().map(|score| Float::with_val(PRECISION, score - &max).exp()).collect();
        let normalizer = Float::with_val(PRECISION, Float::sum(weights.iter()));
        for (key, (score, weight)) in definition.scores.iter().zip(&weights).enumerate() {
            let gap = Float::with_val(PRECISION, &max - score);
            prop_assert!(bounds_above(condition.gap_hi[key], &gap, ROUNDINGS));
            prop_assert!(bounds_below(condition.gap_lo[key], &gap) || gap > f64::MAX);
            prop_assert!(bounds_above(condition.product_magnitude_hi[key], &float(score).abs(), ROUNDINGS));
            prop_assert_eq!(condition.addend_magnitude_hi[key], 0.0);
            prop_assert_eq!(condition.cap_argument_lo[key], 0.0);
            prop_assert!(bounds_above(condition.score_magnitude_hi[key], &float(score).abs(), ROUNDINGS));
            let probability = Float::with_val(PRECISION, weight / &normalizer);
            prop_assert!(bounds_below(condition.probability_lo[key], &probability));
            prop_assert!(bounds_above(condition.probability_hi[key], &probability, ROUNDINGS));
            // The mass is a sum of as many roundings as there are entries.
            let (mass, unscaled) = masses(&case, key);
            let roundings = ROUNDINGS + 2 * case.problem.head_dim;
            prop_assert!(
                bounds_above(condition.dot_mass_hi[key], &mass, roundings) || unscaled > f64::MAX
            );
        }
        prop_assert!(bounds_above(condition.max_magnitude_hi, &max.abs(), ROUNDINGS));
        prop_assert!(bounds_below(condition.normalizer_lo, &normalizer));
        prop_assert!(bounds_above(condition.normalizer_hi, &normalizer, ROUNDINGS));
        prop_assert!(condition.normalizer_lo >= 1.0);
        prop_assert!(condition.lse_magnitude_hi >= float(&definition.lse).abs());
        for (column, output) in definition.output.iter().enumerate() {
            prop_assert!(condition.output_lo[column] <= *output);
            prop_assert!(condition.output_hi[column] >= *output);
        }
        let keys = definition.scores.len();
        for vector in [&condition.gap_hi, &condition.probability_lo, &condition.dot_mass_hi] {
            prop_assert_eq!(vector.len(), keys);
        }
    }
    #[test]
    fn every_quantity_is_bounded_whatever_the_modifications(case in modified()) {
        let condition = condition(&case);
        let definition = evaluate(&case);
        let float = |x: f64| Float::with_val(PRECISION, x);
        let terms = || definition.scores.iter().chain(&definition.sink);
        let max = terms().fold(definition.scores[0].clone(), Float::max);
        let weights: Vec<Float> =
            terms().map(|score| Float::with_val(PRECISION, score - &max).exp()).collect();
        let normalizer = Float::with_val(PRECISION, Float::sum(weights.iter()));
        let visible = case.inputs.visible_keys(&case.problem, 0, 0, 0);
        for (place, (&key, score)) in visible.iter().zip(&definition.scores).enumerate() {
            let gap = Float::with_val(PRECISION, &max - score);
            prop_assert!(encloses(condition.gap_lo[place], condition.gap_hi[place], &gap));
            prop_assert!(condition.gap_hi[place] <= gap.to_f64_round(Round::Up) + 2.0 * close(&gap));
            prop_assert!(condition.cap_argument_lo[place] <= capped_argument(&case, key));
            let probability = Float::with_val(PRECISION, &weights[place] / &normalizer);
            let (lo, hi) = (condition.probability_lo[place], condition.probability_hi[place]);
            prop_assert!(bounds_below(lo, &probability) && bounds_above(hi, &probability, ROUNDINGS));
            let score = score.clone().abs();
            prop_assert!(encloses(0.0, condition.score_magnitude_hi[place], &score));
            prop_assert!(condition.score_magnitude_hi[place] <= score.to_f64_round(Round::Up) + close(&score));
            let site = Site { batch: 0, head: 0, query: 0, key };
            let addends = case.inputs.addends_at(&case.problem, site);
            let added = float(addends.bias).abs() + float(addends.alibi).abs();
            prop_assert!(bounds_above(condition.addend_magnitude_hi[place], &added, ROUNDINGS));
            let product = Float::with_val(PRECISION, scaled_product(&case, key)).abs();
            prop_assert!(bounds_above(condition.product_magnitude_hi[place], &product, ROUNDINGS));
            prop_assert!(condition.dot_mass_hi[place] >= product);
        }
        prop_assert!(condition.max_magnitude_hi >= max.clone().abs());
        prop_assert!(bounds_below(condition.normalizer_lo, &normalizer));
        prop_assert!(bounds_above(condition.normalizer_hi, &normalizer, ROUNDINGS));
        prop_assert!(condition.normalizer_lo >= 1.0);
        prop_assert!(condition.lse_magnitude_hi >= definition.lse.clone().abs());
        for (column, output) in definition.output.iter().enumerate() {
            prop_assert!(condition.output_lo[column] <= *output && condition.output_hi[column] >= *output);
        }
        prop_assert_eq!(condition.sink.is_some(), definition.sink.is_some());
        if let (Some(sink), Some(logit)) = (condition.sink, &definition.sink) {
            prop_assert_eq!(float(sink.logit), logit.clone());
            let gap = Float::with_val(PRECISION, &max - logit);
            prop_assert!(encloses(sink.gap_lo, sink.gap_hi, &gap));
            let largest = definition.scores.iter().fold(definition.scores[0].clone(), Float::max);
            let key_gap = Float::with_val(PRECISION, &largest - logit).abs();
            prop_assert!(encloses(0.0, sink.key_gap_hi, &key_gap));
            prop_assert!(sink.key_gap_hi <= key_gap.to_f64_round(Round::Up) + 2.0 * close(&key_gap));
            let probability = Float::with_val(PRECISION, &weights[visible.len()] / &normalizer);
            prop_assert!(bounds_below(sink.probability_lo, &probability));
            prop_assert!(bounds_above(sink.probability_hi, &probability, ROUNDINGS));
        }
    }
}

/// The magnitude of what the softcap takes `tanh` of; 0 without one.
fn capped_argument(case: &Case, key: usize) -> Float {
    let Some(Softcap { cap, order }) = case.problem.softcap else { return Float::new(PRECISION) };
    let site = Site { batch: 0, head: 0, query: 0, key };
    let addends = case.inputs.addends_at(&case.problem, site);
    let mut argument = scaled_product(case, key);
    if order == SoftcapOrder::AfterBias {
        argument += addends.bias;
        argument += addends.alibi;
    }
    argument.abs() / cap
}

/// Whether a number lies between bounds.
fn encloses(lo: f64, hi: f64, x: &Float) -> bool {
    lo <= *x && *x <= hi
}

/// Scores that are not linear are known to `2^-64`, and `f64` has a relative rounding besides.
fn close(x: &Float) -> f64 {
    2_f64.powi(-63) + x.to_f64().abs() * ROUNDINGS as f64 * f64::EPSILON
}
