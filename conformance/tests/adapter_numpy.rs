//! The numpy worker is right, and each of the faulty ones is wrong where it means to be.

#[path = "adapter_support/mod.rs"]
mod adapter_support;

use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use adapter_support::conduct::{FAULTS, GRADIENT_FAULTS, Pass};
use adapter_support::{pointed, python};
use flashproof_conformance::adapter::exec::protocol::Outcome;
use flashproof_conformance::adapter::exec::{Exec, parse_answer};
use flashproof_conformance::adapter::{Failure, Options, Subject};
use flashproof_spec::format::Format;
use flashproof_spec::mask::Rule;
use flashproof_spec::problem::Problem;
use flashproof_spec::profile::{LogError, Profile};
use flashproof_spec::tensor::{Inputs, Outputs, Tensor};
use ndarray::{ArrayD, IxDyn};
use serde_json::{Value, json};

const FORMATS: [Format; 4] = [Format::F64, Format::F32, Format::F16, Format::Bf16];

fn start(command: &str) -> Exec {
    Exec::start(command, &Options::default()).expect("a worker")
}

fn run(subject: &mut Exec, problem: &Problem) -> Result<Outputs, Failure> {
    subject.forward(problem, &pointed::inputs(problem))
}

#[test]
fn numpy_is_exact_where_the_answer_is() {
    let test = "adapter_numpy::numpy_is_exact_where_the_answer_is";
    let Some(command) = python::worker(test, "numpy_worker.py") else { return };
    let mut subject = start(&command);
    let both = vec![Rule::CausalTopLeft, Rule::CausalBottomRight];
    let empty_rows = vec![Rule::KeyLengths(vec![0, 3]), Rule::CausalBottomRight];
    let two_lengths = vec![Rule::KeyLengths(vec![20, 2]), Rule::KeyLengths(vec![4, 20])];
    for format in FORMATS {
        for rules in [
            vec![],
            vec![Rule::CausalTopLeft],
            vec![Rule::CausalBottomRight],
            both.clone(),
            empty_rows.clone(),
            two_lengths.clone(),
            pointed::problem(format).mask.rules,
        ] {
            let problem = pointed::problem_with(format, rules);
            for pass in Pass::ALL {
                let outcome = pass.run(&mut subject, &problem);
                assert_eq!(outcome, Ok(pass.exact(&problem)), "{problem:?}");
            }
        }
    }
}

#[test]
fn numpy_takes_extents_of_zero() {
    let test = "adapter_numpy::numpy_takes_extents_of_zero";
    let Some(command) = python::worker(test, "numpy_worker.py") else { return };
    let mut subject = start(&command);
    for (query_len, key_len) in [(0, 20), (5, 0), (0, 0)] {
        let problem = pointed::problem_with(Format::Bf16, vec![Rule::CausalBottomRight]);
        let problem = Problem { query_len, key_len, ..problem };
        for pass in Pass::ALL {
            let outcome = pass.run(&mut subject, &problem);
            assert_eq!(outcome, Ok(pass.exact(&problem)), "{problem:?}");
        }
    }
}

#[test]
fn numpy_rounds_outputs_to_nearest_even() {
    let test = "adapter_numpy::numpy_rounds_outputs_to_nearest_even";
    let Some(command) = python::worker(test, "numpy_worker.py") else { return };
    let mut subject = start(&command);
    for format in [Format::F16, Format::Bf16] {
        // Each column is the mean of two values; their neighbours, which are ties, among them.
        let ulp = 2.0 * format.unit_roundoff();
        let columns = [
            (1.0, 1.0 + ulp),
            (1.0 + ulp, 1.0 + 2.0 * ulp),
            (-1.0, -1.0 - ulp),
            (format.smallest_subnormal(), 0.0),
            (format.smallest_subnormal(), 2.0 * format.smallest_subnormal()),
            (1.0, 1.0 + 4.0 * ulp),
            (f64::NAN, 1.0),
            (f64::INFINITY, 1.0),
        ];
        let problem = Problem {
            query_len: 1,
            key_len: 2,
            value_dim: columns.len(),
            ..Problem::new(format, 1, 1, 1)
        };
        let values = columns.iter().map(|pair| pair.0).chain(columns.iter().map(|pair| pair.1));
        let tensor = |shape: &[usize], values: Vec<f64>| {
            let values = ArrayD::from_shape_vec(IxDyn(shape), values).expect("a full tensor");
            Tensor::exact(format, values).expect("exact values")
        };
        let inputs = Inputs {
            query: tensor(&problem.query_shape(), vec![0.0]),
            key: tensor(&problem.key_shape(), vec![1.0; 2]),
            value: tensor(&problem.value_shape(), values.collect()),
        };
        let output = subject.forward(&problem, &inputs).expect("an answer").output;
        for ((a, b), &found) in columns.into_iter().zip(output.values()) {
            let expected = format.round(f64::midpoint(a, b));
            assert!(
                found == expected || (found.is_nan() && expected.is_nan()),
                "{format}: the mean of {a} and {b} is {expected}, and not {found}"
            );
        }
    }
}

#[test]
fn numpy_declares_what_numpy_does() {
    let test = "adapter_numpy::numpy_declares_what_numpy_does";
    let Some(command) = python::worker(test, "numpy_worker.py") else { return };
    let mut subject = start(&command);
    assert!(subject.description().starts_with("numpy "), "{}", subject.description());
    for format in FORMATS {
        let log = LogError { absolute: 0.0, ulp: 4.0 };
        let expected = Profile { exp_ulp: 3.0, log, ..Profile::dense(format) };
        assert_eq!(subject.profile(format), Ok(expected));
    }
    assert!(matches!(subject.profile(Format::E4m3), Err(Failure::Unsupported(_))));
}

#[test]
fn numpy_says_which_mask_rule_it_does_not_know() {
    let test = "adapter_numpy::numpy_says_which_mask_rule_it_does_not_know";
    let Some(command) = python::worker(test, "numpy_worker.py") else { return };
    for rule in [json!("sideways"), json!({"sliding-window": 128})] {
        let mut problem = serde_json::to_value(pointed::problem(Format::F32)).expect("JSON");
        problem["mask"] = json!(["causal-top-left", {"key-lengths": [1, 2]}, rule]);
        let request = json!({
            "op": "forward", "id": 7, "scale": 1.0, "problem": problem, "inputs": "", "outputs": "",
        });
        let answer = parse_answer(&ask(&command, &request), 7);
        let named = rule.as_str().unwrap_or("sliding-window");
        assert!(
            matches!(&answer, Ok(Outcome::Unsupported(why)) if why.contains(named)),
            "{answer:?}"
        );
    }
}

/// What a worker writes, asked one thing without an adapter.
fn ask(command: &str, request: &Value) -> String {
    let words = shlex::split(command).expect("words");
    let mut worker = Command::new(&words[0])
        .args(&words[1..])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("a worker");
    let mut stdin = worker.stdin.take().expect("its standard input");
    writeln!(stdin, "{request}").expect("a worker that reads");
    drop(stdin);
    let output = worker.wait_with_output().expect("a worker that ends");
    assert!(output.status.success(), "{}", output.status);
    String::from_utf8(output.stdout).expect("text")
}

/// The rows of an answer, `[batch, head, query]`, in which it is not the exact one.
fn wrong_rows(problem: &Problem, answer: &Outputs) -> Vec<[usize; 3]> {
    let exact = pointed::outputs(problem);
    let lse = |outputs: &Outputs| outputs.lse.clone().expect("an LSE");
    let (lse, exact_lse) = (lse(answer), lse(&exact));
    ndarray::indices(problem.lse_shape())
        .into_iter()
        .map(<[usize; 3]>::from)
        .filter(|&[b, h, i]| {
            let row = |outputs: &Outputs| {
                outputs.output.view4().slice(ndarray::s![b, h, i, ..]).to_owned()
            };
            row(answer) != row(&exact) || lse.view3()[[b, h, i]] != exact_lse.view3()[[b, h, i]]
        })
        .collect()
}

fn faulty(test: &str, fault: &str) -> Option<(Problem, Vec<[usize; 3]>)> {
    let command = python::worker(test, "faulty.py")?;
    let problem = pointed::problem(Format::F32);
    let answer = run(&mut start(&format!("{command} {fault}")), &problem).expect("an answer");
    let wrong = wrong_rows(&problem, &answer);
    Some((problem, wrong))
}

#[test]
fn drop_key_is_wrong_in_one_row() {
    let test = "adapter_numpy::drop_key_is_wrong_in_one_row";
    let Some((_, wrong)) = faulty(test, "drop-key") else { return };
    assert_eq!(wrong, [[1, 3, 4]]);
}

#[test]
fn skip_rescale_is_wrong_where_the_maximum_comes_late() {
    let test = "adapter_numpy::skip_rescale_is_wrong_where_the_maximum_comes_late";
    let Some((_, wrong)) = faulty(test, "skip-rescale") else { return };
    // Blocks are of 16 keys; a row points at its last key, which is in the second block where it
    // sees more than 16: of the first member's 5 rows the 3 in the middle. The last points at its
    // middle key.
    let expected: Vec<_> = (0..4).flat_map(|h| (1..4).map(move |i| [0, h, i])).collect();
    assert_eq!(wrong, expected);
}

#[test]
fn lse_base_2_is_wrong_in_every_row() {
    let test = "adapter_numpy::lse_base_2_is_wrong_in_every_row";
    let Some((problem, wrong)) = faulty(test, "lse-base-2") else { return };
    assert_eq!(wrong.len(), problem.lse_shape().into_iter().product::<usize>());
}

#[test]
fn causal_top_left_is_wrong_in_every_row() {
    let test = "adapter_numpy::causal_top_left_is_wrong_in_every_row";
    let Some((problem, wrong)) = faulty(test, "causal-top-left") else { return };
    // No row sees, counted from the left, as far as the key that it points at.
    assert_eq!(wrong.len(), problem.lse_shape().into_iter().product::<usize>());
}

#[test]
fn every_fault_of_conduct_is_told_from_the_others() {
    let test = "adapter_numpy::every_fault_of_conduct_is_told_from_the_others";
    let Some(command) = python::worker(test, "faulty.py") else { return };
    let problem = pointed::problem(Format::F32);
    let either = FAULTS.map(|fault| (fault, Pass::ALL));
    let backward = GRADIENT_FAULTS.map(|fault| (fault, [Pass::Backward; 2]));
    for (fault, passes) in either.into_iter().chain(backward) {
        let seconds = if fault.name == "hang" { 1 } else { 60 };
        let case_limit = Duration::from_secs(seconds);
        let options = Options { case_limit, ..Options::default() };
        let command = format!("{command} {}", fault.name);
        let mut subject = Exec::start(&command, &options).expect("a worker");
        // The second time, a worker that had to be given up is a new one.
        for pass in passes {
            let outcome = pass.run(&mut subject, &problem);
            assert!((fault.shows)(&outcome), "{} {pass:?}: {outcome:?}", fault.name);
        }
    }
}

/// Lines of the functions named, with the blank ones that follow.
fn lines_of(worker: &str, functions: &[&str]) -> usize {
    let starts =
        |line: &&str| functions.iter().any(|name| line.starts_with(&format!("def {name}(")));
    let mut count = 0;
    let mut lines = worker.lines().peekable();
    while let Some(line) = lines.next() {
        if starts(&line) {
            count += 1;
            while lines.next_if(|line| line.is_empty() || line.starts_with(' ')).is_some() {
                count += 1;
            }
        }
    }
    count
}

#[test]
fn the_worker_is_short() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("worker/numpy_worker.py");
    let worker = std::fs::read_to_string(path).expect("the worker");
    let lines = worker.lines().count();
    let backward = lines_of(&worker, &["gradients", "backward"]);
    assert!(backward > 0 && backward < 40, "{backward} lines of the backward pass");
    assert!(lines - backward < 60, "{} other lines", lines - backward);
    assert!(lines < 100, "{lines} lines");
}
