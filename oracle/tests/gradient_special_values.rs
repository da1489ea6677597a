//! Gradients next to NaN and infinities: unspecified where a row meets one, exact where none does.

#[path = "support/gradient.rs"]
mod gradient;
mod support;

use flashproof_oracle::backward::{ConditionRequest, ExpectedGradient, KeyIndex, LseKnowledge};
use flashproof_oracle::row::RowIndex;
use flashproof_spec::format::Format;
use flashproof_spec::mask::{Mask, Rule};
use flashproof_spec::problem::Problem;
use flashproof_spec::tensor::{Cotangents, Inputs, Outputs, Tensor};
use gradient::{GradientCase, all_keys, normal_cotangents, zero_outputs};
use support::inputs::{all_rows, normal_inputs};

const SEED: u64 = 26;

/// Three queries on four keys; row `r` sees the keys up to `r + 1`, and nobody the last.
fn case() -> GradientCase {
    let mask = Mask { rules: vec![Rule::KeyLengths(vec![3]), Rule::CausalBottomRight] };
    let problem = Problem { query_len: 3, key_len: 4, mask, ..Problem::new(Format::F32, 1, 1, 2) };
    println!("ChaCha8 seed {SEED}");
    GradientCase {
        inputs: normal_inputs(&problem, SEED),
        cotangents: normal_cotangents(&problem, Format::F32, SEED),
        lse_format: Format::F32,
        problem,
    }
}

/// Which tensor to spoil.
#[derive(Clone, Copy, Debug)]
enum Spot {
    Query(usize),
    Key(usize),
    Value(usize),
    OutputGradient(usize),
    LseGradient(usize),
}

fn spoiled(tensor: &Tensor, at: usize, with: f64) -> Tensor {
    let mut values = tensor.values().clone();
    let columns = values.shape().get(3).copied().unwrap_or(1);
    *values.iter_mut().nth(at * columns).expect("an entry") = with;
    Tensor::exact(tensor.format(), values).expect("values of the format")
}

fn spoil(case: &GradientCase, spot: Spot, with: f64) -> GradientCase {
    let GradientCase { inputs, cotangents, .. } = case.clone();
    let mut case = case.clone();
    match spot {
        Spot::Query(at) => {
            case.inputs = Inputs { query: spoiled(&inputs.query, at, with), ..inputs }
        }
        Spot::Key(at) => case.inputs = Inputs { key: spoiled(&inputs.key, at, with), ..inputs },
        Spot::Value(at) => {
            case.inputs = Inputs { value: spoiled(&inputs.value, at, with), ..inputs }
        }
        Spot::OutputGradient(at) => {
            let output = spoiled(&cotangents.output, at, with);
            case.cotangents = Cotangents { output, ..cotangents };
        }
        Spot::LseGradient(at) => {
            let lse = cotangents.lse.as_ref().map(|lse| spoiled(lse, at, with));
            case.cotangents = Cotangents { lse, ..cotangents };
        }
    }
    case
}

fn row(query: usize) -> RowIndex {
    RowIndex { batch: 0, head: 0, query }
}

/// The rows that see a key of [`case`].
fn seen_by(key: usize) -> std::ops::Range<usize> {
    if key < 3 { key.min(2)..3 } else { 3..3 }
}

/// The rows that a spoiled entry reaches.
fn reached(spot: Spot) -> Vec<usize> {
    match spot {
        Spot::Query(at) | Spot::OutputGradient(at) | Spot::LseGradient(at) => vec![at],
        Spot::Key(key) | Spot::Value(key) => seen_by(key).collect(),
    }
}

#[test]
fn what_a_spoiled_entry_reaches_is_unspecified_and_nothing_else() {
    let clean = case();
    let outputs = zero_outputs(&clean.problem, Format::F32);
    let rows = 0..3;
    let spots =
        rows.flat_map(|at| [Spot::Query(at), Spot::OutputGradient(at), Spot::LseGradient(at)]);
    let spots = spots.chain((0..4).flat_map(|key| [Spot::Key(key), Spot::Value(key)]));
    for (spot, with) in spots.flat_map(|spot| [(spot, f64::NAN), (spot, f64::NEG_INFINITY)]) {
        let spoilt = spoil(&clean, spot, with);
        let (clean, backward) = (clean.backward(), spoilt.backward());
        let reached = reached(spot);
        for index in all_rows(&spoilt.problem) {
            let gradient = backward.query_gradient_row(index).unwrap();
            let request = ConditionRequest { index, lse: LseKnowledge::Measured, keys: None };
            let condition = backward.condition(&outputs, request).unwrap();
            let enclosures = backward.enclose_query_gradient(index, 64).unwrap();
            if reached.contains(&index.query) {
                assert_eq!(gradient.query, vec![ExpectedGradient::Unspecified; 2], "{spot:?}");
                assert_eq!(gradient.mean_key_hi, [f64::INFINITY; 2]);
                assert_eq!(gradient.query[0].magnitude_hi(), f64::INFINITY);
                assert_eq!((condition, enclosures), (None, None));
            } else {
                assert_eq!(gradient, clean.query_gradient_row(index).unwrap(), "{spot:?}");
                assert_eq!(condition, clean.condition(&outputs, request).unwrap());
                assert_eq!(enclosures, clean.enclose_query_gradient(index, 64).unwrap());
            }
        }
        for index in all_keys(&spoilt.problem) {
            let gradient = backward.key_gradient_row(index).unwrap();
            let unspecified = seen_by(index.key).any(|row| reached.contains(&row));
            if unspecified {
                let entries = gradient.key.iter().chain(&gradient.value);
                assert!(entries.into_iter().all(|entry| *entry == ExpectedGradient::Unspecified));
                assert_eq!(backward.enclose_key_gradient(index, 64).unwrap(), None);
            } else {
                assert_eq!(gradient, clean.key_gradient_row(index).unwrap(), "{spot:?}");
            }
            assert_eq!(gradient.contributors, seen_by(index.key).map(row).collect::<Vec<_>>());
        }
    }
}

#[test]
fn a_row_that_sees_nothing_may_hold_anything() {
    let mut case = case();
    case.problem.mask = Mask::only(Rule::KeyLengths(vec![0]));
    for spot in [Spot::Query(1), Spot::OutputGradient(1), Spot::LseGradient(1)] {
        let spoilt = spoil(&case, spot, f64::NAN);
        let gradient = spoilt.backward().query_gradient_row(row(1)).unwrap();
        assert!(gradient.query.iter().all(|entry| entry.magnitude_hi() == 0.0));
        let index = KeyIndex { batch: 0, key_head: 0, key: 1 };
        let gradient = spoilt.backward().key_gradient_row(index).unwrap();
        assert!(
            gradient.key.iter().chain(&gradient.value).all(|entry| entry.magnitude_hi() == 0.0)
        );
        assert_eq!(gradient.contributors, []);
    }
}

#[test]
fn nothing_is_known_of_a_kernel_that_answers_with_nan_or_infinity() {
    let case = case();
    let backward = case.backward();
    let zeros = zero_outputs(&case.problem, Format::F32);
    for with in [f64::NAN, f64::INFINITY] {
        let outputs = Outputs {
            output: spoiled(&zeros.output, 0, with),
            lse: zeros.lse.as_ref().map(|lse| spoiled(lse, 1, with)),
        };
        let condition = |query| {
            let request =
                ConditionRequest { index: row(query), lse: LseKnowledge::Measured, keys: None };
            backward.condition(&outputs, request).unwrap().expect("finite inputs").condition
        };
        let (first, second, third) = (condition(0), condition(1), condition(2));
        assert_eq!(first.delta_shift_hi, f64::INFINITY);
        assert_eq!(first.delta_magnitude_hi, f64::INFINITY);
        assert_eq!(first.delta_mass_hi, f64::INFINITY);
        assert!(first.lse_shift_hi.is_finite());
        assert_eq!(second.lse_shift_hi, f64::INFINITY);
        assert!(second.delta_shift_hi.is_finite());
        assert!(third.delta_shift_hi.is_finite() && third.lse_shift_hi.is_finite());
    }
}
