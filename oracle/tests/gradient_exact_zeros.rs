//! Gradients under score and weight modifications that are known exactly: the zeros, those that are zero
//! no longer, and the rational ones of equal scores.

#[path = "support/gradient.rs"]
mod gradient;
mod support;

use flashproof_oracle::backward::{ExpectedGradient, KeyIndex};
use flashproof_oracle::row::{Exact, RowIndex};
use flashproof_spec::format::Format;
use flashproof_spec::mask::{Mask, Rule, Site};
use flashproof_spec::pattern::{Pattern, broadcast_place};
use flashproof_spec::problem::{Problem, Scale};
use flashproof_spec::score::{Bias, Dropout, Sink, Softcap, SoftcapOrder};
use flashproof_spec::tensor::{Cotangents, Inputs, Tensor};
use gradient::{GradientCase, all_bias_rows, all_keys, all_sinks, modified_case, tensor};
use proptest::prelude::*;
use rug::Rational;
use support::inputs::{ONLY_ROW, all_rows};
use support::settings;

const FORMAT: Format = Format::F64;

fn exact(entry: &ExpectedGradient) -> &Exact {
    entry.exact().expect("a gradient of finite inputs")
}

fn is_exactly_zero(entry: &ExpectedGradient) -> bool {
    let Exact { enclosure, rounded } = exact(entry);
    *enclosure.lo() == 0 && *enclosure.hi() == 0 && rounded.map(f64::to_bits) == Some(0)
}

/// The case with every value row equal to the first of its head.
fn with_constant_values(mut case: GradientCase) -> GradientCase {
    let mut values = case.inputs.value.values().clone();
    for mut member in values.outer_iter_mut() {
        for mut head in member.outer_iter_mut() {
            let first = head.outer_iter().next().expect("a key").to_owned();
            head.outer_iter_mut().for_each(|mut row| row.assign(&first));
        }
    }
    case.inputs.value = Tensor::exact(case.problem.format, values).expect("its own entries");
    case
}

/// Asserts that all gradients of scores are exactly zero: those of queries, keys, bias and sinks.
fn assert_no_score_gradients(case: &GradientCase) -> Result<(), TestCaseError> {
    let backward = case.backward();
    for row in backward.query_gradient_rows(&all_rows(&case.problem), || ()).unwrap() {
        prop_assert!(row.query.iter().all(is_exactly_zero), "{row:?}");
    }
    for row in backward.key_gradient_rows(&all_keys(&case.problem), || ()).unwrap() {
        prop_assert!(row.key.iter().all(is_exactly_zero), "{row:?}");
    }
    for row in backward.bias_gradient_rows(&all_bias_rows(&case.problem), || ()).unwrap() {
        prop_assert!(row.bias.iter().all(is_exactly_zero), "{row:?}");
    }
    for sink in backward.sink_gradients(&all_sinks(&case.problem), || ()).unwrap() {
        prop_assert!(is_exactly_zero(&sink.sink), "{sink:?}");
    }
    Ok(())
}

fn dropout(kept: bool) -> Dropout {
    Dropout { scale: 2.0, keep: Pattern::new([1, 1, 1, 1], vec![kept]).expect("one truth value") }
}

proptest! {
    #![proptest_config(
        settings("gradient_exact_zeros", "tests/proptest-regressions/gradient_exact_zeros.txt")
    )]

    #[test]
    fn constant_values_without_sink_and_dropped_keys_give_scores_none(case in modified_case()) {
        let mut case = with_constant_values(case);
        (case.cotangents.lse, case.problem.sink, case.inputs.sink) = (None, None, None);
        for dropout in [None, Some(dropout(true))] {
            case.problem.dropout = dropout;
            assert_no_score_gradients(&case)?;
        }
    }

    #[test]
    fn one_key_without_sink_gives_scores_none(case in modified_case()) {
        let mut case = case;
        (case.cotangents.lse, case.problem.sink, case.inputs.sink) = (None, None, None);
        // Each query sees the key at its own place, if there is one.
        let diagonal = Pattern::from_fn(case.problem.score_shape(), |[_, _, query, key]| query == key);
        case.problem.mask.rules.push(Rule::Boolean(diagonal));
        assert_no_score_gradients(&case)?;
    }

    #[test]
    fn dropping_all_keys_or_values_of_zero_gives_scores_none(case in modified_case()) {
        let mut case = case;
        case.cotangents.lse = None;
        let mut dropped = case.clone();
        dropped.problem.dropout = Some(dropout(false));
        assert_no_score_gradients(&dropped)?;
        for row in dropped.backward().key_gradient_rows(&all_keys(&case.problem), || ()).unwrap() {
            prop_assert!(row.value.iter().all(is_exactly_zero), "{row:?}");
        }
        let zeros = case.inputs.value.values().mapv(|_| 0.0);
        case.inputs.value = Tensor::exact(case.problem.format, zeros).expect("zeros");
        assert_no_score_gradients(&case)?;
    }

    #[test]
    fn hidden_sites_give_a_bias_none(case in modified_case()) {
        let GradientCase { problem, inputs, .. } = &case;
        let Some(Bias { shape, .. }) = problem.bias else { return Ok(()) };
        let is_visible = |[batch, head, query, key]: [usize; 4]| {
            let site = Site { batch, head, query, key };
            problem.sees(site) && inputs.bias_at(problem, site) != f64::NEG_INFINITY
        };
        let sites: Vec<[usize; 4]> = ndarray::indices(problem.score_shape())
            .into_iter()
            .map(|(batch, head, query, key)| [batch, head, query, key])
            .filter(|&site| is_visible(site))
            .map(|site| broadcast_place(shape, site))
            .collect();
        for row in case.backward().bias_gradient_rows(&all_bias_rows(problem), || ()).unwrap() {
            prop_assert_eq!(row.bias.len(), shape[3]);
            for (key, entry) in row.bias.iter().enumerate() {
                let place = [row.index.batch, row.index.head, row.index.query, key];
                prop_assert!(sites.contains(&place) || is_exactly_zero(entry), "{place:?}: {entry:?}");
            }
        }
    }

    /// A bias that is the same for all keys of a row moves its LSE and nothing else.
    #[test]
    fn a_bias_that_is_broadcast_over_keys_gets_the_gradients_of_the_lse(
        case in modified_case(), with_lse in any::<bool>(), entries in prop::collection::vec(-2_i8..3, 12),
    ) {
        let mut case = case;
        let [batch, heads, queries, _] = case.problem.score_shape();
        let shape = [1, heads, queries, 1];
        let entries = entries.into_iter().cycle().take(heads * queries).map(f64::from).collect();
        case.problem.bias = Some(Bias { shape, format: FORMAT });
        case.inputs.bias = Some(tensor(FORMAT, &shape, entries));
        (case.problem.sink, case.inputs.sink) = (None, None);
        if let Some(Softcap { order, .. }) = &mut case.problem.softcap {
            *order = SoftcapOrder::BeforeBias;
        }
        if !with_lse {
            case.cotangents.lse = None;
        }
        for row in case.backward().bias_gradient_rows(&all_bias_rows(&case.problem), || ()).unwrap() {
            let gradients = (0..batch).filter_map(|batch| {
                let (head, query) = (row.index.head, row.index.query);
                let visible = case.inputs.visible_keys(&case.problem, batch, head, query);
                let lse = case.cotangents.lse.as_ref()?;
                let g = lse.view3()[[batch, head, query]];
                (!visible.is_empty()).then(|| Rational::from_f64(g).expect("a finite number"))
            });
            let expected: Rational = gradients.sum();
            let Exact { enclosure, rounded } = exact(&row.bias[0]);
            prop_assert!(*enclosure.lo() <= expected && expected <= *enclosure.hi());
            if expected == 0 {
                prop_assert!(is_exactly_zero(&row.bias[0]));
            }
            prop_assert!(rounded.is_some());
        }
    }
}

/// One query of zero on keys of these values, so that every score is zero, with `dO = 1`.
fn equal_scores(values: &[f64], g: Option<f64>) -> GradientCase {
    let problem = Problem {
        query_len: 1,
        key_len: values.len(),
        scale: Scale::Value(1.0),
        ..Problem::new(FORMAT, 1, 1, 1)
    };
    let of = |shape: &[usize], values: Vec<f64>| tensor(FORMAT, shape, values);
    GradientCase {
        inputs: Inputs::new(
            of(&problem.query_shape(), vec![0.0]),
            of(&problem.key_shape(), (1..=values.len()).map(|key| key as f64).collect()),
            of(&problem.value_shape(), values.to_vec()),
        ),
        cotangents: Cotangents {
            output: of(&problem.output_shape(), vec![1.0]),
            lse: g.map(|g| of(&problem.lse_shape(), vec![g])),
        },
        lse_format: FORMAT,
        problem,
    }
}

fn with_sink(mut case: GradientCase, logit: f64) -> GradientCase {
    case.problem.sink = Some(Sink::Logits(FORMAT));
    case.inputs.sink = Some(tensor(FORMAT, &[1], vec![logit]));
    case
}

fn with_bias(mut case: GradientCase, shape: [usize; 4], entries: &[f64]) -> GradientCase {
    case.problem.bias = Some(Bias { shape, format: FORMAT });
    case.inputs.bias = Some(tensor(FORMAT, &shape, entries.to_vec()));
    case
}

/// `dQ`, `dK` and `dV` of each key, and `dBias` of each key and `dSink` where there are any.
fn gradients(case: &GradientCase) -> Vec<Option<f64>> {
    let backward = case.backward();
    let rounded = |entry: &ExpectedGradient| exact(entry).rounded;
    let mut all = vec![rounded(&backward.query_gradient_row(ONLY_ROW).unwrap().query[0])];
    let keys = backward.key_gradient_rows(&all_keys(&case.problem), || ()).unwrap();
    all.extend(keys.iter().map(|row| rounded(&row.key[0])));
    all.extend(keys.iter().map(|row| rounded(&row.value[0])));
    let bias = backward.bias_gradient_rows(&all_bias_rows(&case.problem), || ()).unwrap();
    all.extend(bias.iter().flat_map(|row| &row.bias).map(rounded));
    let sinks = backward.sink_gradients(&all_sinks(&case.problem), || ()).unwrap();
    all.extend(sinks.iter().map(|sink| rounded(&sink.sink)));
    all
}

fn assert_gradients(case: &GradientCase, expected: &[f64]) {
    let expected: Vec<Option<f64>> = expected.iter().copied().map(Some).collect();
    assert_eq!(gradients(case), expected);
}

#[test]
fn one_key_and_a_sink_share_what_the_key_would_keep_from_scores() {
    // p = 1/2 each; D = 4/2; dS = (4 - 2) / 2, and the sink's is its negative.
    let case = with_bias(with_sink(equal_scores(&[4.0], None), 0.0), [1, 1, 1, 1], &[0.0]);
    assert_gradients(&case, &[1.0, 0.0, 0.5, 1.0, -1.0]);
    // With g = 6: dS = 1/2 (2 + 6), and the sink's 1/2 (6 - 2).
    let case = with_bias(with_sink(equal_scores(&[4.0], Some(6.0)), 0.0), [1, 1, 1, 1], &[0.0]);
    assert_gradients(&case, &[4.0, 0.0, 0.5, 4.0, 2.0]);
}

#[test]
fn a_sink_without_weight_changes_nothing() {
    let plain = equal_scores(&[4.0, 8.0], Some(1.0));
    let mut expected = gradients(&plain);
    expected.push(Some(0.0));
    assert_eq!(gradients(&with_sink(plain, f64::NEG_INFINITY)), expected);
}

#[test]
fn dropped_keys_leave_constant_values_with_score_gradients() {
    // z = (2, 0), so y = (8, 0), D = 4 and dS = (2, -2); dQ = 2 * 1 - 2 * 2.
    let mut case = with_bias(equal_scores(&[4.0, 4.0], None), [1, 1, 1, 2], &[0.0, 0.0]);
    let keep = Pattern::new([1, 1, 1, 2], vec![true, false]).expect("two truth values");
    case.problem.dropout = Some(Dropout { scale: 2.0, keep });
    assert_gradients(&case, &[-2.0, 0.0, 0.0, 1.0, 0.0, 2.0, -2.0]);
}

#[test]
fn equal_keys_with_different_biases_share_one_weight_when_their_scores_agree() {
    // Scores 1 + 0 and 2 - 1 are equal, so dS = (4 - 6, 8 - 6) / 2 and dQ = -1 + 2.
    let mut case = with_bias(equal_scores(&[4.0, 8.0], None), [1, 1, 1, 2], &[0.0, -1.0]);
    case.inputs.query = tensor(FORMAT, &case.problem.query_shape(), vec![1.0]);
    assert_gradients(&case, &[1.0, -1.0, 1.0, 0.5, 0.5, -1.0, 1.0]);
}

#[test]
fn a_softcap_at_its_middle_has_a_slope_of_one() {
    for order in [SoftcapOrder::BeforeBias, SoftcapOrder::AfterBias] {
        let mut case = with_bias(equal_scores(&[4.0, 8.0], None), [1, 1, 1, 2], &[0.0, 0.0]);
        case.problem.softcap = Some(Softcap { cap: 3.0, order });
        assert_gradients(&case, &[1.0, 0.0, 0.0, 0.5, 0.5, -1.0, 1.0]);
    }
}

#[test]
fn rows_without_keys_give_a_sink_their_lse_gradients() {
    let mut case = with_sink(equal_scores(&[4.0], Some(0.75)), 3.0);
    case.problem.mask = Mask::only(Rule::KeyLengths(vec![0]));
    assert_gradients(&case, &[0.0, 0.0, 0.0, 0.75]);
    let sink = case.backward().sink_gradient(0).unwrap();
    let only = RowIndex { batch: 0, head: 0, query: 0 };
    assert_eq!((sink.contributors, sink.without_keys), (vec![], vec![only]));
    let key = KeyIndex { batch: 0, key_head: 0, key: 0 };
    assert_eq!(case.backward().key_gradient_row(key).unwrap().contributors, []);
}
