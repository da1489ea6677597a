//! The numpy worker is right, and each of the faulty ones is wrong where it means to be.

#[path = "adapter_support/mod.rs"]
mod adapter_support;

use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use adapter_support::conduct::{FAULTS, GRADIENT_FAULTS, Pass};
use adapter_support::{masks, placed, pointed, python, scored};
use flashproof_conformance::adapter::exec::protocol::Outcome;
use flashproof_conformance::adapter::exec::{Exec, parse_answer};
use flashproof_conformance::adapter::{Backward, Failure, Options, Subject};
use flashproof_spec::format::Format;
use flashproof_spec::mask::{Alignment, Mask, Rule, Window};
use flashproof_spec::pattern::Pattern;
use flashproof_spec::problem::Problem;
use flashproof_spec::profile::{LogError, Profile};
use flashproof_spec::score::{Alibi, Slopes, Softcap, SoftcapOrder};
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
fn numpy_knows_every_mask_rule() {
    let test = "adapter_numpy::numpy_knows_every_mask_rule";
    let Some(command) = python::worker(test, "numpy_worker.py") else { return };
    let mut subject = start(&command);
    for (name, rules) in masks::of_every_kind(&pointed::problem(Format::F32)) {
        let problem = pointed::problem_with(Format::F32, rules);
        assert_eq!(problem.validate(), Ok(()), "{name}");
        for pass in Pass::ALL {
            let outcome = pass.run(&mut subject, &problem);
            assert_eq!(outcome, Ok(pass.exact(&problem)), "{name} {pass:?}");
        }
    }
}

#[test]
fn numpy_reads_and_writes_every_layout() {
    let test = "adapter_numpy::numpy_reads_and_writes_every_layout";
    let Some(command) = python::worker(test, "numpy_worker.py") else { return };
    let mut subject = start(&command);
    for format in [Format::F64, Format::Bf16] {
        for (layout, problem) in placed::problems(format) {
            for pass in Pass::ALL {
                let found = pass.run(&mut subject, &problem).expect("an answer");
                let exact = placed::exact(pass, &problem);
                assert!(placed::same(&found, &exact), "{format} {layout} {pass:?}: {found:?}");
            }
        }
    }
}

#[test]
fn numpy_takes_bias_sinks_and_dropout() {
    let test = "adapter_numpy::numpy_takes_bias_sinks_and_dropout";
    let Some(command) = python::worker(test, "numpy_worker.py") else { return };
    let problem = scored::problem(Format::F32);
    let cotangents = scored::cotangents(&problem);
    let answer = start(&command).backward(&problem, &scored::inputs(&problem), &cotangents);
    let gradients = scored::gradients(&problem, &cotangents);
    assert_eq!(answer, Ok(Backward { outputs: scored::outputs(&problem), gradients }));
}

#[test]
fn numpy_merges() {
    let test = "adapter_numpy::numpy_merges";
    let Some(command) = python::worker(test, "numpy_worker.py") else { return };
    let problem = pointed::problem(Format::Bf16);
    let (whole, parts) = pointed::partials(&problem);
    assert_eq!(start(&command).merge(&problem, &parts), Ok(whole));
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
            bias: None,
            sink: None,
            descale: None,
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
fn assume_packed_is_wrong_where_heads_are_not_outside() {
    let test = "adapter_numpy::assume_packed_is_wrong_where_heads_are_not_outside";
    let Some(command) = python::worker(test, "faulty.py") else { return };
    let mut subject = start(&format!("{command} assume-packed"));
    for (layout, problem) in placed::problems(Format::F32) {
        let found = Pass::Forward.run(&mut subject, &problem);
        let exact = placed::exact(Pass::Forward, &problem);
        let right = found.as_ref().is_ok_and(|found| placed::same(found, &exact));
        assert_eq!(right, ["ragged", "paged"].contains(&layout), "{layout}: {found:?}");
    }
}

/// LSEs of a worker on a case in which all keys score 0: of `n` keys each weighs `1/n`, and the LSE is
/// `ln n`.
fn even_lse(command: &str, problem: &Problem) -> Tensor {
    let inputs = pointed::inputs(problem);
    let query = Tensor::rounded(Format::F32, &ArrayD::zeros(IxDyn(&problem.query_shape())));
    let answer = start(command).forward(problem, &Inputs { query, ..inputs });
    answer.expect("an answer").lse.expect("an LSE")
}

#[test]
fn mask_head0_is_wrong_in_the_other_heads() {
    let test = "adapter_numpy::mask_head0_is_wrong_in_the_other_heads";
    let Some(command) = python::worker(test, "faulty.py") else { return };
    let rule = Rule::Boolean(Pattern::from_fn([1, 1, 1, 20], |[_, _, _, key]| key < 15));
    let problem = pointed::problem_with(Format::F32, vec![rule]);
    let worker = python::worker(test, "numpy_worker.py").expect("the same Python");
    let right = even_lse(&worker, &problem);
    let found = even_lse(&format!("{command} mask-head0"), &problem);
    for ((_, head, _), lse) in found.view3().indexed_iter() {
        let first = right.view3()[[0, 0, 0]];
        assert_eq!(*lse == first, head == 0, "head {head}: {lse} and {first}");
    }
}

#[test]
fn window_plus_one_is_wrong_where_a_key_comes_in_on_the_left() {
    let test = "adapter_numpy::window_plus_one_is_wrong_where_a_key_comes_in_on_the_left";
    let Some(command) = python::worker(test, "faulty.py") else { return };
    let window = Window { left: Some(0), right: Some(0), alignment: Alignment::BottomRight };
    let problem = pointed::problem_with(Format::F32, vec![Rule::Window(window)]);
    let worker = python::worker(test, "numpy_worker.py").expect("the same Python");
    assert!(even_lse(&worker, &problem).values().iter().all(|&lse| lse == 0.0));
    let found = even_lse(&format!("{command} window-plus-one"), &problem);
    assert!(found.values().iter().all(|&lse| lse > 0.0), "{found:?}");
}

/// Which outputs and gradients of a worker with the fault are not the exact ones.
fn scored_wrong(test: &str, fault: &str) -> Option<Vec<&'static str>> {
    let command = python::worker(test, "faulty.py")?;
    let problem = scored::problem(Format::F32);
    let cotangents = scored::cotangents(&problem);
    let mut subject = start(&format!("{command} {fault}"));
    let answer = subject.backward(&problem, &scored::inputs(&problem), &cotangents);
    let Backward { outputs, gradients } = answer.expect("an answer");
    let (exact, slopes) = (scored::outputs(&problem), scored::gradients(&problem, &cotangents));
    let differ = [
        ("output", outputs.output != exact.output),
        ("lse", outputs.lse != exact.lse),
        ("query", gradients.query != slopes.query),
        ("key", gradients.key != slopes.key),
        ("value", gradients.value != slopes.value),
        ("bias", gradients.bias != slopes.bias),
        ("sink", gradients.sink != slopes.sink),
    ];
    Some(differ.into_iter().filter(|(_, differs)| *differs).map(|(name, _)| name).collect())
}

#[test]
fn dbias_no_reduce_is_wrong_in_the_bias() {
    let test = "adapter_numpy::dbias_no_reduce_is_wrong_in_the_bias";
    let Some(wrong) = scored_wrong(test, "dbias-no-reduce") else { return };
    assert_eq!(wrong, ["bias"]);
}

#[test]
fn sink_per_split_is_wrong_in_the_lse_and_what_follows() {
    let test = "adapter_numpy::sink_per_split_is_wrong_in_the_lse_and_what_follows";
    let Some(wrong) = scored_wrong(test, "sink-per-split") else { return };
    // half of the weight of a row without keys, or of one that its sink has all of, is the other's
    assert!(wrong.contains(&"lse") && !wrong.contains(&"output"), "{wrong:?}");
}

#[test]
fn dropout_post_p_is_wrong_in_score_gradients() {
    let test = "adapter_numpy::dropout_post_p_is_wrong_in_score_gradients";
    let Some(wrong) = scored_wrong(test, "dropout-post-p") else { return };
    assert_eq!(wrong, ["query", "key", "bias"]);
}

#[test]
fn alibi_exponent_is_wrong_where_heads_are_no_power_of_two() {
    let test = "adapter_numpy::alibi_exponent_is_wrong_where_heads_are_no_power_of_two";
    let Some(command) = python::worker(test, "faulty.py") else { return };
    let mut faulty = start(&format!("{command} alibi-exponent"));
    let worker = python::worker(test, "numpy_worker.py").expect("the same Python");
    let mut right = start(&worker);
    let alibi = Alibi { slopes: Slopes::Standard, alignment: Alignment::BottomRight };
    for (heads, differs) in [(4, false), (6, true)] {
        let problem = Problem {
            query_heads: heads,
            alibi: Some(alibi.clone()),
            ..pointed::problem(Format::F32)
        };
        let (found, expected) = (run(&mut faulty, &problem), run(&mut right, &problem));
        assert_eq!(found.expect("an answer") != expected.expect("an answer"), differs, "{heads}");
    }
}

/// One key is hidden, and weighs as one that scores -1 where the softcap of 1 comes last.
#[test]
fn softcap_after_mask_sees_what_is_hidden() {
    let test = "adapter_numpy::softcap_after_mask_sees_what_is_hidden";
    let Some(command) = python::worker(test, "faulty.py") else { return };
    let problem = Problem {
        key_len: 2,
        mask: Mask::only(Rule::CausalTopLeft),
        softcap: Some(Softcap { cap: 1.0, order: SoftcapOrder::BeforeBias }),
        ..Problem::new(Format::F32, 1, 1, 1)
    };
    let column = |values: &[f64]| {
        let values = ArrayD::from_shape_vec(IxDyn(&[1, 1, values.len(), 1]), values.to_vec());
        Tensor::exact(Format::F32, values.expect("a column")).expect("exact values")
    };
    let inputs = Inputs::new(column(&[0.0]), column(&[0.0, 0.0]), column(&[0.0, 1.0]));
    let worker = python::worker(test, "numpy_worker.py").expect("the same Python");
    let output = |command: &str| {
        let answer = start(command).forward(&problem, &inputs).expect("an answer");
        answer.output.values()[[0, 0, 0, 0]]
    };
    assert_eq!(output(&worker), 0.0);
    assert!(output(&format!("{command} softcap-after-mask")) > 0.0);
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

#[test]
fn the_worker_is_short() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("worker");
    for (file, limit) in
        [("flashproof_worker.py", 100), ("numpy_worker.py", 130), ("numpy_scores.py", 140)]
    {
        let text = std::fs::read_to_string(folder.join(file)).expect("a part of the worker");
        let lines = text.lines().count();
        assert!(lines < limit, "{file} has {lines} lines");
    }
}
