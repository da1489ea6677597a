//! Enclosures of gradients contain the exact ones, shrink around them, and round to the right value.

#[path = "support/gradient.rs"]
mod gradient;
#[path = "support/gradient_definition.rs"]
mod gradient_definition;
mod support;

use flashproof_oracle::backward::{BiasRowIndex, ExpectedGradient, KeyGradientEnclosures};
use flashproof_oracle::enclosure::Enclosure;
use flashproof_oracle::forward::MIN_PRECISION;
use flashproof_oracle::round::nearest;
use flashproof_spec::format::Format;
use gradient::{GradientCase, all_bias_rows, all_keys, all_sinks, gradient_case, modified_case};
use gradient_definition::Definition;
use proptest::prelude::*;
use rug::Float;
use support::definition::certain;
use support::inputs::all_rows;
use support::settings;

/// Every entry of every gradient, enclosed at one precision: queries, keys and values, the bias and
/// the sinks. Rows and keys without terms have none.
fn enclosures(case: &GradientCase, precision: u32) -> Vec<Enclosure> {
    let backward = case.backward();
    let mut all = Vec::new();
    for index in all_rows(&case.problem) {
        all.extend(
            backward.enclose_query_gradient(index, precision).expect("a row").into_iter().flatten(),
        );
    }
    for index in all_keys(&case.problem) {
        let row = backward.enclose_key_gradient(index, precision).expect("a key");
        if let Some(KeyGradientEnclosures { key, value }) = row {
            all.extend(key.into_iter().chain(value));
        }
    }
    for index in all_bias_rows(&case.problem) {
        let row = backward.enclose_bias_gradient(index, precision).expect("a row of the bias");
        all.extend(row.expect("finite inputs"));
    }
    for head in all_sinks(&case.problem) {
        let sink = backward.enclose_sink_gradient(head, precision).expect("a head");
        all.push(sink.expect("finite inputs"));
    }
    all
}

/// The same entries by the definition.
fn defined(case: &GradientCase, definition: &Definition<'_>) -> Vec<Float> {
    let problem = &case.problem;
    let mut all = Vec::new();
    for row in &definition.rows {
        all.extend((0..problem.head_dim).map(|j| definition.query_gradient(row.index, j)));
    }
    for index in all_keys(problem) {
        if definition.seen_by(index).next().is_some() {
            all.extend((0..problem.head_dim).map(|j| definition.key_gradient(index, j)));
            all.extend((0..problem.value_dim).map(|j| definition.value_gradient(index, j)));
        }
    }
    for BiasRowIndex { batch, head, query } in all_bias_rows(problem) {
        let keys = 0..problem.bias.expect("a bias").shape[3];
        all.extend(keys.map(|key| definition.bias_gradient([batch, head, query, key])));
    }
    all.extend(all_sinks(problem).into_iter().map(|head| definition.sink_gradient(head)));
    all
}

/// Whether an answer is the exact number, as well as the brute force knows it.
fn assert_right(
    answer: &ExpectedGradient,
    exact: &Float,
    format: Format,
) -> Result<(), TestCaseError> {
    let ExpectedGradient::Exact(answer) = answer else { panic!("{answer:?} of finite inputs") };
    let certain = certain(exact);
    prop_assert!(answer.enclosure.intersects(&certain), "{answer:?} misses {exact}");
    let (lo, hi) = (nearest(certain.lo(), format), nearest(certain.hi(), format));
    // Past its largest value, a format without infinity has NaN.
    let same = |a: f64, b: f64| a == b || (a.is_nan() && b.is_nan());
    match answer.rounded {
        // Two candidates: the exact number is a midpoint, or next to one.
        Some(value) => {
            prop_assert!(same(value, lo) || same(value, hi), "{value} for {exact}");
        }
        None => {
            prop_assert!(!same(lo, hi), "{exact} is undecided");
        }
    }
    Ok(())
}

/// Asserts that every answer is the number that the definition gives.
fn assert_all_right(case: &GradientCase, definition: &Definition<'_>) -> Result<(), TestCaseError> {
    let (backward, format) = (case.backward(), case.problem.format);
    for row in backward.query_gradient_rows(&all_rows(&case.problem), || ()).expect("rows") {
        for (j, entry) in row.query.iter().enumerate() {
            assert_right(entry, &definition.query_gradient(row.index, j), format)?;
        }
    }
    for row in backward.key_gradient_rows(&all_keys(&case.problem), || ()).expect("keys") {
        for (j, entry) in row.key.iter().enumerate() {
            assert_right(entry, &definition.key_gradient(row.index, j), format)?;
        }
        for (j, entry) in row.value.iter().enumerate() {
            assert_right(entry, &definition.value_gradient(row.index, j), format)?;
        }
    }
    for row in backward.bias_gradient_rows(&all_bias_rows(&case.problem), || ()).expect("rows") {
        let BiasRowIndex { batch, head, query } = row.index;
        let format = case.problem.bias.expect("a bias").format;
        for (key, entry) in row.bias.iter().enumerate() {
            assert_right(entry, &definition.bias_gradient([batch, head, query, key]), format)?;
        }
    }
    for sink in backward.sink_gradients(&all_sinks(&case.problem), || ()).expect("heads") {
        let format = case.inputs.sink.as_ref().expect("logits").format();
        assert_right(&sink.sink, &definition.sink_gradient(sink.head), format)?;
    }
    Ok(())
}

/// Asserts that enclosures contain those of twice the precision.
fn assert_nested(case: &GradientCase, precision: u32) -> Result<(), TestCaseError> {
    let (coarse, fine) = (enclosures(case, precision), enclosures(case, 2 * precision));
    prop_assert_eq!(coarse.len(), fine.len());
    for (coarse, fine) in coarse.iter().zip(&fine) {
        prop_assert!(coarse.contains(fine), "{coarse:?} does not contain {fine:?}");
    }
    Ok(())
}

/// Asserts that enclosures contain the numbers of the definition, and that answers are these.
fn assert_defined(case: &GradientCase, precision: u32) -> Result<(), TestCaseError> {
    let definition = Definition::new(case);
    let (enclosures, exact) = (enclosures(case, precision), defined(case, &definition));
    prop_assert_eq!(enclosures.len(), exact.len());
    for (enclosure, exact) in enclosures.iter().zip(&exact) {
        prop_assert!(enclosure.intersects(&certain(exact)), "{enclosure:?} misses {exact}");
    }
    assert_all_right(case, &definition)
}

proptest! {
    #![proptest_config(
        settings("gradient_enclosures", "tests/proptest-regressions/gradient_enclosures.txt")
    )]

    #[test]
    fn twice_the_precision_is_contained(case in gradient_case(), precision in MIN_PRECISION..300) {
        assert_nested(&case, precision)?;
    }

    #[test]
    fn the_definition_is_enclosed_and_rounded(
        case in gradient_case(), precision in MIN_PRECISION..300,
    ) {
        assert_defined(&case, precision)?;
    }

    #[test]
    fn twice_the_precision_is_contained_with_modified_scores(
        case in modified_case(), precision in MIN_PRECISION..300,
    ) {
        assert_nested(&case, precision)?;
    }

    #[test]
    fn the_definition_with_modified_scores_is_enclosed_and_rounded(
        case in modified_case(), precision in MIN_PRECISION..300,
    ) {
        assert_defined(&case, precision)?;
    }
}
