//! The gradients of the numpy worker are right, and those of each faulty one wrong where they mean to
//! be.

#[path = "adapter_support/mod.rs"]
mod adapter_support;

use adapter_support::{paired, pointed, python};
use flashproof_conformance::adapter::exec::Exec;
use flashproof_conformance::adapter::{Backward, Options, Subject};
use flashproof_spec::format::Format;
use flashproof_spec::mask::Rule;
use flashproof_spec::problem::{Problem, Scale};
use flashproof_spec::tensor::{Cotangents, Gradients, Inputs, Tensor};
use ndarray::{ArrayD, IxDyn};

fn start(command: &str) -> Exec {
    Exec::start(command, &Options::default()).expect("a worker")
}

/// The gradients in bf16's 8 bits, which hold the exact ones of `paired`.
fn short(gradients: &Gradients) -> Gradients {
    let round = |tensor: &Tensor| Tensor::rounded(Format::Bf16, tensor.values());
    Gradients {
        query: round(&gradients.query),
        key: round(&gradients.key),
        value: round(&gradients.value),
        bias: None,
        sink: None,
    }
}

fn paired_gradients(subject: &mut Exec, problem: &Problem, cotangents: &Cotangents) -> Gradients {
    let answer = subject.backward(problem, &paired::inputs(problem), cotangents);
    answer.expect("gradients").gradients
}

#[test]
fn numpy_shares_weights() {
    let test = "adapter_numpy_gradients::numpy_shares_weights";
    let Some(command) = python::worker(test, "numpy_worker.py") else { return };
    let mut subject = start(&command);
    for format in [Format::F64, Format::F32, Format::F16, Format::Bf16] {
        for rules in [
            paired::problem(format).mask.rules,
            vec![],
            vec![Rule::CausalTopLeft],
            vec![Rule::KeyLengths(vec![0, 3]), Rule::CausalBottomRight],
        ] {
            let mut problem = paired::problem(format);
            problem.mask.rules = rules;
            let both = paired::cotangents(&problem);
            for cotangents in [Cotangents { lse: None, ..both.clone() }, both] {
                let found = paired_gradients(&mut subject, &problem, &cotangents);
                let exact = paired::gradients(&problem, &cotangents);
                assert_eq!(short(&found), short(&exact), "{problem:?}");
            }
        }
    }
}

#[test]
fn numpy_takes_a_gradient_of_the_lse_or_none() {
    let test = "adapter_numpy_gradients::numpy_takes_a_gradient_of_the_lse_or_none";
    let Some(command) = python::worker(test, "numpy_worker.py") else { return };
    let mut subject = start(&command);
    let problem = pointed::problem(Format::F64);
    let cotangents = Cotangents { lse: None, ..pointed::cotangents(&problem) };
    let answer = subject.backward(&problem, &pointed::inputs(&problem), &cotangents);
    let gradients = pointed::gradients(&problem, &cotangents);
    assert_eq!(answer, Ok(Backward { outputs: pointed::outputs(&problem), gradients }));
}

/// Which gradients of a worker with the fault are not the exact ones, of those of query, key and
/// value; its outputs are right.
fn wrong(test: &str, fault: &str) -> Option<Vec<&'static str>> {
    let command = python::worker(test, "faulty.py")?;
    let problem = paired::problem(Format::F32);
    let cotangents = paired::cotangents(&problem);
    let mut subject = start(&format!("{command} {fault}"));
    let (inputs, exact) = (paired::inputs(&problem), paired::gradients(&problem, &cotangents));
    let forward = subject.forward(&problem, &inputs);
    let Backward { outputs, gradients } =
        subject.backward(&problem, &inputs, &cotangents).expect("gradients");
    assert_eq!(forward, Ok(outputs), "{fault} is a fault of the backward pass");
    let (found, exact) = (short(&gradients), short(&exact));
    let differ = [
        ("query", found.query != exact.query),
        ("key", found.key != exact.key),
        ("value", found.value != exact.value),
    ];
    Some(differ.into_iter().filter(|(_, differs)| *differs).map(|(name, _)| name).collect())
}

#[test]
fn no_delta_is_wrong_in_query_and_key() {
    let test = "adapter_numpy_gradients::no_delta_is_wrong_in_query_and_key";
    let Some(wrong) = wrong(test, "no-delta") else { return };
    assert_eq!(wrong, ["query", "key"]);
}

#[test]
fn delta_stale_is_wrong_in_query_and_key() {
    let test = "adapter_numpy_gradients::delta_stale_is_wrong_in_query_and_key";
    let Some(wrong) = wrong(test, "delta-stale") else { return };
    assert_eq!(wrong, ["query", "key"]);
}

#[test]
fn dlse_ignored_is_wrong_in_query_and_key() {
    let test = "adapter_numpy_gradients::dlse_ignored_is_wrong_in_query_and_key";
    let Some(wrong) = wrong(test, "dlse-ignored") else { return };
    assert_eq!(wrong, ["query", "key"]);
}

#[test]
fn dk_unscaled_is_wrong_in_the_key() {
    let test = "adapter_numpy_gradients::dk_unscaled_is_wrong_in_the_key";
    let Some(wrong) = wrong(test, "dk-unscaled") else { return };
    assert_eq!(wrong, ["key"]);
}

#[test]
fn dq_zero_is_wrong_in_the_query() {
    let test = "adapter_numpy_gradients::dq_zero_is_wrong_in_the_query";
    let Some(wrong) = wrong(test, "dq-zero") else { return };
    assert_eq!(wrong, ["query"]);
}

#[test]
fn dkv_overwrite_is_wrong_in_key_and_value() {
    let test = "adapter_numpy_gradients::dkv_overwrite_is_wrong_in_key_and_value";
    let Some(wrong) = wrong(test, "dkv-overwrite") else { return };
    assert_eq!(wrong, ["key", "value"]);
}

#[test]
fn mask_shift_is_wrong_in_all() {
    let test = "adapter_numpy_gradients::mask_shift_is_wrong_in_all";
    let Some(wrong) = wrong(test, "mask-shift") else { return };
    assert_eq!(wrong, ["query", "key", "value"]);
}

#[test]
fn bwd_pad_zero_is_wrong_in_key_and_value() {
    let test = "adapter_numpy_gradients::bwd_pad_zero_is_wrong_in_key_and_value";
    let Some(wrong) = wrong(test, "bwd-pad-zero") else { return };
    // The keys that fill up a tile are zeros, and bring nothing to dQ where their weight is finite.
    assert_eq!(wrong, ["key", "value"]);
}

/// One head of `len` queries and as many keys, of one entry each.
fn narrow_problem(format: Format, query_len: usize, key_len: usize) -> Problem {
    let scale = Scale::Value(1.0);
    Problem { query_len, key_len, scale, ..Problem::new(format, 1, 1, 1) }
}

fn column(format: Format, values: Vec<f64>) -> Tensor {
    let shape = IxDyn(&[1, 1, values.len(), 1]);
    let values = ArrayD::from_shape_vec(shape, values).expect("a column");
    Tensor::exact(format, values).expect("exact values")
}

/// Padding that is scored 0 where the LSE is -120: `e^120` is no f32, and infinity times the zeros of
/// its keys is NaN (pytorch#196678).
#[test]
fn bwd_pad_zero_is_nan_under_low_scores() {
    let test = "adapter_numpy_gradients::bwd_pad_zero_is_nan_under_low_scores";
    let Some(command) = python::worker(test, "faulty.py") else { return };
    let problem = narrow_problem(Format::F32, 1, 1);
    let one = |value| column(Format::F32, vec![value]);
    let inputs = Inputs {
        query: one(-120.0),
        key: one(1.0),
        value: one(3.0),
        bias: None,
        sink: None,
        descale: None,
    };
    let cotangents = Cotangents { output: one(1.0), lse: None };
    let right =
        Gradients { query: one(0.0), key: one(0.0), value: one(1.0), bias: None, sink: None };
    let worker = python::worker(test, "numpy_worker.py").expect("the same Python");
    let answer = start(&worker).backward(&problem, &inputs, &cotangents).expect("gradients");
    assert_eq!(answer.gradients, right);
    let mut faulty = start(&format!("{command} bwd-pad-zero"));
    let answer = faulty.backward(&problem, &inputs, &cotangents).expect("gradients");
    let Gradients { query, key, value, .. } = answer.gradients;
    assert!(query.values().iter().all(|value| value.is_nan()), "{query:?}");
    assert_eq!((key, value), (right.key, right.value));
}

/// A sum of 256 and of one more from each of 8 blocks of queries: bf16 holds no odd number above 256.
#[test]
fn dv_bf16_acc_loses_what_f16_holds() {
    /// Queries between which the faulty worker stores the sum.
    const BLOCK: usize = 16;
    let test = "adapter_numpy_gradients::dv_bf16_acc_loses_what_f16_holds";
    let Some(command) = python::worker(test, "faulty.py") else { return };
    let query_len = 8 * BLOCK;
    let problem = narrow_problem(Format::F16, query_len, 1);
    let zeros = |len| column(Format::F16, vec![0.0; len]);
    let inputs = Inputs {
        query: zeros(query_len),
        key: zeros(1),
        value: zeros(1),
        bias: None,
        sink: None,
        descale: None,
    };
    let d_output = (0..query_len).map(|i| match i {
        0 => 256.0,
        _ => f64::from(i % BLOCK == 1),
    });
    let cotangents = Cotangents { output: column(Format::F16, d_output.collect()), lse: None };
    let worker = python::worker(test, "numpy_worker.py").expect("the same Python");
    for (command, sum) in [(worker, 264.0), (format!("{command} dv-bf16-acc"), 256.0)] {
        let answer = start(&command).backward(&problem, &inputs, &cotangents).expect("gradients");
        assert_eq!(answer.gradients.value, column(Format::F16, vec![sum]), "{command}");
    }
}
