//! Gradients next to NaN and infinities in biases, sinks and the upstream gradients of rows without keys.

#[path = "support/gradient.rs"]
mod gradient;
mod support;

use flashproof_oracle::backward::{BiasRowIndex, ConditionRequest, ExpectedGradient, LseKnowledge};
use flashproof_oracle::row::RowIndex;
use flashproof_spec::format::Format;
use flashproof_spec::layout::{Layout, Ragged};
use flashproof_spec::mask::{Mask, Rule};
use flashproof_spec::problem::Problem;
use flashproof_spec::score::{Bias, Sink};
use flashproof_spec::tensor::{Inputs, Tensor};
use gradient::{GradientCase, all_keys, all_sinks, normal_cotangents, tensor, zero_outputs};
use support::inputs::{all_rows, normal_inputs};

const SEED: u64 = 26;

const FORMAT: Format = Format::F32;

/// Two heads of three queries on four keys, of which queries see those up to their own; with a bias that
/// heads share, and sinks.
fn case() -> GradientCase {
    println!("ChaCha8 seed {SEED}");
    let problem = Problem {
        query_len: 3,
        key_len: 4,
        mask: Mask::only(Rule::CausalTopLeft),
        bias: Some(Bias { shape: [1, 1, 3, 4], format: FORMAT }),
        sink: Some(Sink::Logits(FORMAT)),
        ..Problem::new(FORMAT, 2, 1, 2)
    };
    let bias = (0..12).map(|entry| f64::from(entry) / 8.0).collect();
    GradientCase {
        inputs: Inputs {
            bias: Some(tensor(FORMAT, &[1, 1, 3, 4], bias)),
            sink: Some(tensor(FORMAT, &[2], vec![0.5, -0.5])),
            ..normal_inputs(&problem, SEED)
        },
        cotangents: normal_cotangents(&problem, FORMAT, SEED),
        lse_format: FORMAT,
        problem,
    }
}

fn with_entry(tensor: &Tensor, at: &[usize], entry: f64) -> Tensor {
    let mut values = tensor.values().clone();
    values[at] = entry;
    Tensor::exact(tensor.format(), values).expect("values of the format")
}

fn with_bias(case: &GradientCase, query: usize, key: usize, entry: f64) -> GradientCase {
    let mut case = case.clone();
    case.inputs.bias = case.inputs.bias.map(|bias| with_entry(&bias, &[0, 0, query, key], entry));
    case
}

fn with_sink(case: &GradientCase, head: usize, logit: f64) -> GradientCase {
    let mut case = case.clone();
    case.inputs.sink = case.inputs.sink.map(|sink| with_entry(&sink, &[head], logit));
    case
}

/// All answers of the oracle about one query row and about the row of the bias, of one head.
fn answers(case: &GradientCase, index: RowIndex) -> impl PartialEq + std::fmt::Debug + use<> {
    let backward = case.backward();
    let request = ConditionRequest { index, lse: LseKnowledge::Measured, keys: None };
    let outputs = zero_outputs(&case.problem, FORMAT);
    let bias = BiasRowIndex { batch: 0, head: 0, query: index.query };
    (
        backward.query_gradient_row(index).unwrap(),
        backward.condition(&outputs, request).unwrap(),
        backward.bias_gradient_row(bias).unwrap(),
    )
}

fn is_unspecified(entry: &ExpectedGradient) -> bool {
    *entry == ExpectedGradient::Unspecified
}

#[test]
fn a_visible_bias_that_is_no_number_leaves_its_row_unspecified() {
    let clean = case();
    for entry in [f64::NAN, f64::INFINITY] {
        // The query in the middle sees keys 0 and 1.
        let spoilt = with_bias(&clean, 1, 1, entry);
        let backward = spoilt.backward();
        for index in all_rows(&spoilt.problem) {
            if index.query == 1 {
                assert!(
                    backward.query_gradient_row(index).unwrap().query.iter().all(is_unspecified)
                );
            } else {
                assert_eq!(answers(&spoilt, index), answers(&clean, index));
            }
        }
        let index = BiasRowIndex { batch: 0, head: 0, query: 1 };
        let row = backward.bias_gradient_row(index).unwrap().bias;
        assert_eq!(row.iter().map(is_unspecified).collect::<Vec<_>>(), [true, true, false, false]);
        assert_eq!(row[2..], clean.backward().bias_gradient_row(index).unwrap().bias[2..]);
        assert_eq!(backward.enclose_bias_gradient(index, 64).unwrap(), None);
        for head in all_sinks(&spoilt.problem) {
            assert!(is_unspecified(&backward.sink_gradient(head).unwrap().sink));
            assert_eq!(backward.enclose_sink_gradient(head, 64).unwrap(), None);
        }
    }
}

#[test]
fn a_hidden_bias_may_be_anything() {
    let clean = case();
    for entry in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
        let spoilt = with_bias(&clean, 1, 3, entry);
        for index in all_rows(&clean.problem) {
            assert_eq!(answers(&spoilt, index), answers(&clean, index));
        }
        for index in all_keys(&clean.problem) {
            let row = |case: &GradientCase| case.backward().key_gradient_row(index).unwrap();
            assert_eq!(row(&spoilt), row(&clean));
        }
        for head in all_sinks(&clean.problem) {
            let sink = |case: &GradientCase| case.backward().sink_gradient(head).unwrap();
            assert_eq!(sink(&spoilt), sink(&clean));
        }
    }
}

#[test]
fn what_a_key_holds_that_the_bias_hides_does_not_matter() {
    let mut clean = case();
    for query in 0..3 {
        clean = with_bias(&clean, query, 0, f64::NEG_INFINITY);
    }
    let mut spoilt = clean.clone();
    spoilt.inputs.key = with_entry(&clean.inputs.key, &[0, 0, 0, 1], f64::NAN);
    spoilt.inputs.value = with_entry(&clean.inputs.value, &[0, 0, 0, 0], f64::INFINITY);
    for index in all_rows(&clean.problem) {
        assert_eq!(answers(&spoilt, index), answers(&clean, index));
    }
    for index in all_keys(&clean.problem) {
        let row = |case: &GradientCase| case.backward().key_gradient_row(index).unwrap();
        assert_eq!(row(&spoilt), row(&clean));
    }
}

#[test]
fn a_logit_that_is_no_number_leaves_its_head_unspecified() {
    let clean = case();
    for logit in [f64::NAN, f64::INFINITY] {
        let spoilt = with_sink(&clean, 1, logit);
        let backward = spoilt.backward();
        assert!(is_unspecified(&backward.sink_gradient(1).unwrap().sink));
        assert_eq!(backward.sink_gradient(0), clean.backward().sink_gradient(0));
        for index in all_rows(&spoilt.problem) {
            let row = backward.query_gradient_row(index).unwrap();
            assert_eq!(row.query.iter().all(is_unspecified), index.head == 1);
        }
    }
}

/// The case with all keys hidden from the last query.
fn without_keys() -> GradientCase {
    let case = case();
    (0..3).fold(case, |case, key| with_bias(&case, 2, key, f64::NEG_INFINITY))
}

#[test]
fn a_row_without_keys_gives_its_sink_what_is_no_number() {
    let clean = without_keys();
    let sink = |case: &GradientCase, head| case.backward().sink_gradient(head).unwrap();
    let row = |head| RowIndex { batch: 0, head, query: 2 };
    assert_eq!(sink(&clean, 1).without_keys, [row(1)]);
    let outputs = zero_outputs(&clean.problem, FORMAT);
    let request = ConditionRequest { index: row(1), lse: LseKnowledge::Measured, keys: None };
    let condition = |case: &GradientCase| case.backward().condition(&outputs, request).unwrap();

    let mut spoilt = clean.clone();
    let lse = clean.cotangents.lse.as_ref().expect("an LSE gradient");
    spoilt.cotangents.lse = Some(with_entry(lse, &[0, 1, 2], f64::NAN));
    assert!(is_unspecified(&sink(&spoilt, 1).sink));
    assert_eq!(sink(&spoilt, 0), sink(&clean, 0));
    assert_eq!(condition(&spoilt), None);
    let query = spoilt.backward().query_gradient_row(row(1)).unwrap().query;
    assert!(query.iter().all(|entry| entry.magnitude_hi() == 0.0));

    // The output is zero, and so is D, whatever its gradient.
    let mut poisoned = clean.clone();
    poisoned.cotangents.output = with_entry(&clean.cotangents.output, &[0, 1, 2, 0], f64::INFINITY);
    assert_eq!(sink(&poisoned, 1), sink(&clean, 1));
    let condition = condition(&poisoned).expect("a sink").condition;
    let delta = [condition.delta_magnitude_hi, condition.delta_mass_hi, condition.delta_shift_hi];
    assert_eq!(delta, [0.0; 3]);
    // The weight of a sink of minus infinity is 0 / 0 there.
    assert!(is_unspecified(&sink(&with_sink(&clean, 1, f64::NEG_INFINITY), 1).sink));
}

/// Padding queries are no rows of a sink, stored or not: their upstream gradients may be anything.
#[test]
fn padding_queries_bring_nothing_to_a_sink() {
    let mut case = case();
    let whole = case.backward().sink_gradient(0).unwrap();
    case.problem.mask.rules.push(Rule::QueryLengths(vec![2]));
    let padded = case.backward().sink_gradient(0).unwrap();
    assert_eq!(padded.without_keys, []);
    assert!(padded.contributors.iter().all(|row| row.query < 2));
    assert_ne!(padded.sink, whole.sink);
    let lse = case.cotangents.lse.as_ref().expect("an LSE gradient");
    case.cotangents.lse = Some(with_entry(lse, &[0, 0, 2], f64::NAN));
    assert_eq!(case.backward().sink_gradient(0).unwrap(), padded);
    case.problem.layout = Layout::Ragged(Ragged {
        query_starts: vec![0],
        query_rows: 2,
        key_starts: vec![0],
        key_rows: 4,
    });
    assert_eq!(case.backward().sink_gradient(0).unwrap(), padded);
}
