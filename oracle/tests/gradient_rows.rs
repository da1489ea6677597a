//! Questions about many rows and keys, and questions that have no answer.

#[path = "support/gradient.rs"]
mod gradient;
mod support;

use std::sync::atomic::{AtomicUsize, Ordering};

use flashproof_oracle::backward::{
    Backward, BiasRowIndex, ConditionRequest, KeyIndex, LseKnowledge, Options,
};
use flashproof_oracle::error::OracleError;
use flashproof_oracle::row::RowIndex;
use flashproof_spec::format::Format;
use flashproof_spec::mask::{Mask, Rule};
use flashproof_spec::problem::{Problem, ProblemError};
use flashproof_spec::score::{Bias, Sink};
use flashproof_spec::tensor::{Cotangents, Outputs, TensorError};
use gradient::{GradientCase, all_bias_rows, all_keys, normal_cotangents, tensor, zero_outputs};
use support::inputs::{all_rows, normal_inputs};

const SEED: u64 = 26;

fn case() -> GradientCase {
    println!("ChaCha8 seed {SEED}");
    let problem = Problem {
        batch: 2,
        query_heads: 4,
        key_heads: 2,
        query_len: 3,
        key_len: 5,
        head_dim: 4,
        value_dim: 2,
        mask: Mask { rules: vec![Rule::KeyLengths(vec![5, 2]), Rule::CausalTopLeft] },
        ..Problem::new(Format::Bf16, 1, 1, 1)
    };
    GradientCase {
        inputs: normal_inputs(&problem, SEED),
        cotangents: normal_cotangents(&problem, Format::F32, SEED),
        lse_format: Format::F32,
        problem,
    }
}

#[test]
fn answers_come_in_the_order_asked_for_and_are_counted() {
    let case = case();
    let (backward, alone) = (case.backward(), case.backward());
    let count = AtomicUsize::new(0);
    let progress = || _ = count.fetch_add(1, Ordering::Relaxed);

    let mut rows = all_rows(&case.problem);
    rows.reverse();
    rows.truncate(7);
    let answers = backward.query_gradient_rows(&rows, progress).unwrap();
    assert_eq!(count.swap(0, Ordering::Relaxed), rows.len());
    let one_by_one = rows.iter().map(|&row| alone.query_gradient_row(row).unwrap());
    assert_eq!(answers, one_by_one.collect::<Vec<_>>());

    let mut keys = all_keys(&case.problem);
    keys.reverse();
    keys.truncate(11);
    let answers = backward.key_gradient_rows(&keys, progress).unwrap();
    assert_eq!(count.swap(0, Ordering::Relaxed), keys.len());
    let one_by_one = keys.iter().map(|&key| alone.key_gradient_row(key).unwrap());
    assert_eq!(answers, one_by_one.collect::<Vec<_>>());

    let outputs = zero_outputs(&case.problem, Format::F32);
    let request = |&index| ConditionRequest { index, lse: LseKnowledge::Measured, keys: None };
    let requests: Vec<_> = rows.iter().map(request).collect();
    let answers = backward.conditions(&outputs, &requests, progress).unwrap();
    assert_eq!(count.into_inner(), requests.len());
    let one_by_one = requests.iter().map(|&request| alone.condition(&outputs, request).unwrap());
    assert_eq!(answers, one_by_one.collect::<Vec<_>>());
}

/// The case with a bias of the first axis broadcast, and with sinks.
fn modified() -> GradientCase {
    let mut case = case();
    let shape = [1, 4, 3, 5];
    case.problem.bias = Some(Bias { shape, format: Format::F16 });
    case.problem.sink = Some(Sink::Logits(Format::F32));
    let entries = (0..60).map(|entry| f64::from(entry) / 16.0 - 2.0).collect();
    case.inputs.bias = Some(tensor(Format::F16, &shape, entries));
    case.inputs.sink = Some(tensor(Format::F32, &[4], vec![0.5, -1.0, 0.0, 2.0]));
    case
}

#[test]
fn biases_and_sinks_come_in_the_order_asked_for_and_are_counted() {
    let case = modified();
    let (backward, alone) = (case.backward(), case.backward());
    let count = AtomicUsize::new(0);
    let progress = || _ = count.fetch_add(1, Ordering::Relaxed);
    let mut rows = all_bias_rows(&case.problem);
    rows.reverse();
    let answers = backward.bias_gradient_rows(&rows, progress).unwrap();
    assert_eq!(count.swap(0, Ordering::Relaxed), rows.len());
    let one_by_one = rows.iter().map(|&row| alone.bias_gradient_row(row).unwrap());
    assert_eq!(answers, one_by_one.collect::<Vec<_>>());
    let heads = [2, 0, 3];
    let answers = backward.sink_gradients(&heads, progress).unwrap();
    assert_eq!(count.into_inner(), heads.len());
    let one_by_one = heads.iter().map(|&head| alone.sink_gradient(head).unwrap());
    assert_eq!(answers, one_by_one.collect::<Vec<_>>());
}

#[test]
fn the_number_of_threads_does_not_matter() {
    let case = modified();
    let answers = |threads| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().expect("threads");
        pool.install(|| {
            let backward = case.backward();
            let bias = backward.bias_gradient_rows(&all_bias_rows(&case.problem), || ());
            (bias, backward.sink_gradients(&[0, 1, 2, 3], || ()))
        })
    };
    assert_eq!(answers(1), answers(3));
}

#[test]
fn biases_and_sinks_that_are_not_there_are_named() {
    let case = modified();
    let backward = case.backward();
    let first = BiasRowIndex { batch: 0, head: 0, query: 0 };
    for (index, field, extent) in [
        (BiasRowIndex { batch: 1, ..first }, "batch", 1),
        (BiasRowIndex { head: 4, ..first }, "head", 4),
        (BiasRowIndex { query: 3, ..first }, "query", 3),
    ] {
        let error = backward.bias_gradient_rows(&[first, index], || ()).unwrap_err();
        let OracleError::BiasRow { field: named, extent: had, .. } = &error else {
            panic!("{error}")
        };
        assert_eq!((*named, *had), (field, extent));
        assert_eq!(backward.enclose_bias_gradient(index, 64).unwrap_err(), error);
    }
    let error = OracleError::Head { index: 4, extent: 4 };
    assert_eq!(backward.sink_gradients(&[0, 4], || ()).unwrap_err(), error);
    assert_eq!(backward.enclose_sink_gradient(4, 64).unwrap_err(), error);
    let max_precision = 1 << 12;
    for precision in [1, max_precision + 1] {
        let error = OracleError::Precision { precision, max_precision };
        assert_eq!(backward.enclose_bias_gradient(first, precision).unwrap_err(), error);
        assert_eq!(backward.enclose_sink_gradient(0, precision).unwrap_err(), error);
    }
    let without = self::case();
    let none = |input| OracleError::NoInput { input };
    assert_eq!(without.backward().bias_gradient_row(first).unwrap_err(), none("bias"));
    assert_eq!(without.backward().sink_gradient(0).unwrap_err(), none("tensor of sinks"));
    let off_by_one = Problem { sink: Some(Sink::Zero), ..without.problem.clone() };
    let off_by_one = GradientCase { problem: off_by_one, ..without };
    assert_eq!(off_by_one.backward().sink_gradient(0).unwrap_err(), none("tensor of sinks"));
}

#[test]
fn rows_and_keys_that_are_not_there_are_named() {
    let case = case();
    let backward = case.backward();
    let outputs = zero_outputs(&case.problem, Format::F32);
    let first = RowIndex { batch: 0, head: 0, query: 0 };
    for (index, field, extent) in [
        (RowIndex { batch: 2, ..first }, "batch", 2),
        (RowIndex { head: 4, ..first }, "head", 4),
        (RowIndex { query: usize::MAX, ..first }, "query", 3),
    ] {
        let error = backward.query_gradient_rows(&[first, index], || ()).unwrap_err();
        let OracleError::Row { field: named, extent: had, .. } = &error else { panic!("{error}") };
        assert_eq!((*named, *had), (field, extent));
        assert_eq!(backward.enclose_query_gradient(index, 64).unwrap_err(), error);
        let request = ConditionRequest { index, lse: LseKnowledge::Measured, keys: None };
        assert_eq!(backward.conditions(&outputs, &[request], || ()).unwrap_err(), error);
    }
    let first = KeyIndex { batch: 0, key_head: 0, key: 0 };
    for (index, field, extent) in [
        (KeyIndex { batch: 2, ..first }, "batch", 2),
        (KeyIndex { key_head: 2, ..first }, "key_head", 2),
        (KeyIndex { key: 5, ..first }, "key", 5),
    ] {
        let error = backward.key_gradient_rows(&[first, index], || ()).unwrap_err();
        let OracleError::Key { field: named, extent: had, .. } = &error else { panic!("{error}") };
        assert_eq!((*named, *had), (field, extent));
        assert_eq!(backward.key_gradient_row(index).unwrap_err(), error);
        assert_eq!(backward.enclose_key_gradient(index, 64).unwrap_err(), error);
    }
    let keys = [0, 5];
    let index = RowIndex { batch: 0, head: 0, query: 0 };
    let request = ConditionRequest { index, lse: LseKnowledge::Measured, keys: Some(&keys) };
    assert_eq!(
        backward.condition(&outputs, request).unwrap_err(),
        OracleError::Key { field: "key", index: 5, extent: 5 }
    );
}

#[test]
fn a_precision_out_of_range_is_refused() {
    let case = case();
    let options = Options::new(Format::F32);
    let backward = Backward::new(&case.problem, &case.inputs, &case.cotangents, options).unwrap();
    let max_precision = options.max_precision;
    for precision in [0, 1, max_precision + 1, u32::MAX] {
        let expected = OracleError::Precision { precision, max_precision };
        let row = RowIndex { batch: 0, head: 0, query: 0 };
        assert_eq!(backward.enclose_query_gradient(row, precision).unwrap_err(), expected);
        let key = KeyIndex { batch: 0, key_head: 0, key: 0 };
        assert_eq!(backward.enclose_key_gradient(key, precision).unwrap_err(), expected);
    }
}

#[test]
fn problems_inputs_and_outputs_are_checked() {
    let GradientCase { problem, inputs, cotangents, lse_format } = case();
    let options = Options::new(lse_format);
    let odd = Problem { query_heads: 5, ..problem.clone() };
    assert_eq!(
        Backward::new(&odd, &inputs, &cotangents, options).unwrap_err(),
        OracleError::Problem(ProblemError::Heads { query_heads: 5, key_heads: 2 })
    );
    let longer = Problem { key_len: 6, ..problem.clone() };
    let named = |error: OracleError| match error {
        OracleError::Inputs(
            TensorError::Shape { tensor, .. } | TensorError::Format { tensor, .. },
        ) => tensor,
        other => panic!("{other}"),
    };
    let checked = |problem, cotangents, options| {
        named(Backward::new(problem, &inputs, cotangents, options).unwrap_err())
    };
    assert_eq!(checked(&longer, &cotangents, options), "key");
    let swapped = Cotangents { output: inputs.key.clone(), lse: None };
    assert_eq!(checked(&problem, &swapped, options), "output_gradient");
    assert_eq!(checked(&problem, &cotangents, Options::new(Format::F64)), "lse_gradient");

    let backward = Backward::new(&problem, &inputs, &cotangents, options).unwrap();
    let index = RowIndex { batch: 0, head: 0, query: 0 };
    let ask = |outputs: &Outputs, lse| {
        backward.condition(outputs, ConditionRequest { index, lse, keys: None })
    };
    let outputs = zero_outputs(&problem, lse_format);
    let wrong = Outputs { output: inputs.key.clone(), ..outputs.clone() };
    assert_eq!(named(ask(&wrong, LseKnowledge::Measured).unwrap_err()), "output");
    let without = Outputs { lse: None, ..outputs };
    assert_eq!(ask(&without, LseKnowledge::Measured).unwrap_err(), OracleError::NoLse);
    assert!(ask(&without, LseKnowledge::Within(1.0)).unwrap().is_some());
}

#[test]
fn no_keys_and_no_queries_are_problems_too() {
    for (query_len, key_len) in [(2, 0), (0, 2), (0, 0)] {
        let problem = Problem { query_len, key_len, ..Problem::new(Format::F32, 1, 1, 3) };
        let case = GradientCase {
            inputs: normal_inputs(&problem, SEED),
            cotangents: normal_cotangents(&problem, Format::F32, SEED),
            lse_format: Format::F32,
            problem,
        };
        let backward = case.backward();
        let outputs = zero_outputs(&case.problem, Format::F32);
        let rows = all_rows(&case.problem);
        for row in backward.query_gradient_rows(&rows, || ()).unwrap() {
            assert!(row.query.iter().all(|entry| entry.magnitude_hi() == 0.0));
            let request =
                ConditionRequest { index: row.index, lse: LseKnowledge::Measured, keys: None };
            assert_eq!(backward.condition(&outputs, request).unwrap(), None);
        }
        let keys = all_keys(&case.problem);
        for row in backward.key_gradient_rows(&keys, || ()).unwrap() {
            assert!(row.key.iter().chain(&row.value).all(|entry| entry.magnitude_hi() == 0.0));
            assert_eq!(row.contributors, []);
        }
        assert_eq!((rows.len(), keys.len()), (query_len, key_len));
    }
}
