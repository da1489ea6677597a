//! Judging tensors of problems with masks and modified scores: what tells the problem, and in which
//! order axes come.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use flashproof_conformance::adapter::Choices;
use flashproof_conformance::case::Case;
use flashproof_conformance::inputs::{Family, Scores, Upstream};
use flashproof_conformance::io::safetensors::Archive;
use flashproof_conformance::judge::sample::MOST_PAIRS;
use flashproof_conformance::judge::{
    AxisOrder, Described, JudgeError, Names, Origin, Request, judge,
};
use flashproof_conformance::report::model::Run;
use flashproof_conformance::report::{CaseReport, Report};
use flashproof_conformance::verdict::{Quantity, Verdict};
use flashproof_spec::format::Format;
use flashproof_spec::mask::{Alignment, Mask, Prefix, Rule, Window};
use flashproof_spec::pattern::Pattern;
use flashproof_spec::problem::Problem;
use flashproof_spec::score::{Alibi, Bias, Dropout, Sink, Slopes, Softcap, SoftcapOrder};
use flashproof_spec::tensor::Tensor;
use indicatif::ProgressBar;
use safetensors::Dtype;
use safetensors::tensor::TensorView;
use tempfile::TempDir;

const SEED: u64 = 1;

/// A problem with something of everything that scores can have.
fn problem() -> Problem {
    let window = Window { left: Some(5), right: Some(2), alignment: Alignment::BottomRight };
    Problem {
        batch: 2,
        key_heads: 2,
        key_len: 9,
        value_dim: 5,
        mask: Mask { rules: vec![Rule::Window(window), Rule::KeyLengths(vec![9, 6])] },
        softcap: Some(Softcap { cap: 3.0, order: SoftcapOrder::AfterBias }),
        bias: Some(Bias { shape: [1, 4, 6, 9], format: Format::F32 }),
        alibi: Some(Alibi { slopes: Slopes::Standard, alignment: Alignment::BottomRight }),
        sink: Some(Sink::Logits(Format::F32)),
        dropout: Some(Dropout {
            scale: 2.0,
            keep: Pattern::from_fn([1, 1, 6, 9], |[_, _, query, key]| (query + key) % 3 > 0),
        }),
        ..Problem::new(Format::F32, 4, 6, 4)
    }
}

/// The tensors of a right backward pass by name.
fn dump(problem: &Problem) -> BTreeMap<&'static str, Tensor> {
    let case = Case::new(problem.clone(), Family::of(Scores::Normal), None, SEED)
        .with_upstream(Upstream::OutputAndLse);
    let inputs = case.inputs().unwrap();
    let cotangents = case.cotangents(Format::F32).unwrap();
    let kernel = flashproof_kernels::builtin("naive").unwrap();
    let outputs = kernel.forward(problem, &inputs).unwrap();
    let gradients = kernel.backward(problem, &inputs, &outputs, &cotangents).unwrap();
    let mut tensors = BTreeMap::from([
        ("query", inputs.query),
        ("key", inputs.key),
        ("value", inputs.value),
        ("output", outputs.output),
        ("lse", outputs.lse.unwrap()),
        ("do", cotangents.output),
        ("dlse", cotangents.lse.unwrap()),
        ("dq", gradients.query),
        ("dk", gradients.key),
        ("dv", gradients.value),
    ]);
    for (name, tensor) in [
        ("bias", inputs.bias),
        ("sink", inputs.sink),
        ("dbias", gradients.bias),
        ("dsink", gradients.sink),
    ] {
        tensors.extend(tensor.map(|tensor| (name, tensor)));
    }
    tensors
}

/// A tensor as a file holds it.
enum Stored {
    Float(Tensor),
    Boolean([usize; 4], Vec<bool>),
}

/// Writes tensors and metadata with the reference implementation.
fn write(
    directory: &TempDir,
    tensors: impl IntoIterator<Item = (&'static str, Stored)>,
    metadata: &[(&str, &str)],
) -> PathBuf {
    let bytes: Vec<(&str, Dtype, Vec<usize>, Vec<u8>)> = tensors
        .into_iter()
        .map(|(name, stored)| match stored {
            Stored::Float(tensor) => {
                assert_eq!(tensor.format(), Format::F32);
                let shape = tensor.shape().to_vec();
                let bytes = tensor.values().iter().flat_map(|&x| (x as f32).to_le_bytes());
                (name, Dtype::F32, shape, bytes.collect())
            }
            Stored::Boolean(shape, values) => {
                (name, Dtype::BOOL, shape.to_vec(), values.into_iter().map(u8::from).collect())
            }
        })
        .collect();
    let views = bytes.iter().map(|(name, dtype, shape, bytes)| {
        (*name, TensorView::new(*dtype, shape.clone(), bytes).unwrap())
    });
    let metadata =
        metadata.iter().map(|&(name, text)| (name.to_owned(), text.to_owned())).collect();
    let file = safetensors::serialize(views.collect::<Vec<_>>(), Some(metadata)).unwrap();
    let path = directory.path().join("dump.safetensors");
    std::fs::write(&path, file).unwrap();
    path
}

fn floats(tensors: BTreeMap<&'static str, Tensor>) -> impl Iterator<Item = (&'static str, Stored)> {
    tensors.into_iter().map(|(name, tensor)| (name, Stored::Float(tensor)))
}

fn stored(inputs: &Path) -> Request {
    Request {
        inputs: inputs.to_owned(),
        from: Origin::File { outputs: None, choices: Choices::default() },
        names: Names::default(),
        order: AxisOrder::default(),
        described: Described::default(),
        profile: None,
        most_pairs: MOST_PAIRS,
        seed: SEED,
        elements: None,
        command: "flashproof judge".to_owned(),
    }
}

fn verdict_of(request: &Request) -> Result<Report, JudgeError> {
    judge(request, &ProgressBar::hidden())
}

fn only_case(report: Report) -> CaseReport {
    report.cases.into_iter().next().unwrap()
}

fn case_of(request: &Request) -> CaseReport {
    only_case(verdict_of(request).unwrap())
}

fn refused(request: &Request, parts: &[&str]) {
    let error = verdict_of(request).unwrap_err().to_string();
    for part in parts {
        assert!(error.contains(part), "no '{part}' in: {error}");
    }
}

#[test]
fn the_problem_in_the_metadata_is_enough() {
    let directory = tempfile::tempdir().unwrap();
    let json = serde_json::to_string(&problem()).unwrap();
    let path = write(&directory, floats(dump(&problem())), &[("problem", &json)]);
    let case = case_of(&stored(&path));
    assert_eq!(case.verdict, Verdict::Pass, "{case:#?}");
    assert_eq!(case.problem, problem());
    for (quantity, elements) in [(Quantity::BiasGradient, 4 * 6 * 9), (Quantity::SinkGradient, 4)] {
        assert_eq!(case.of(quantity).map(|it| (it.elements, it.unbounded)), Some((elements, 0)));
    }
    // The same on the command line, which takes precedence.
    let path = write(&directory, floats(dump(&problem())), &[("problem", "nonsense")]);
    let described = Described { problem: Some(json), ..Described::default() };
    assert_eq!(case_of(&Request { described, ..stored(&path) }).verdict, Verdict::Pass);
    refused(&stored(&path), &["metadata entry 'problem'", "dump.safetensors"]);
}

#[test]
fn bias_and_sinks_describe_themselves() {
    let directory = tempfile::tempdir().unwrap();
    let bias = Some(Bias { shape: [1, 1, 6, 9], format: Format::F32 });
    let simple = Problem {
        mask: Mask::full(),
        softcap: None,
        alibi: None,
        dropout: None,
        bias,
        ..problem()
    };
    let path = write(&directory, floats(dump(&simple)), &[]);
    let case = case_of(&stored(&path));
    assert_eq!((case.verdict, &case.problem), (Verdict::Pass, &simple));
    for (described, parts) in [
        (r#"{"bias": {"shape": [1, 1, 6, 8], "format": "f32"}}"#, ["bias", "[1,1,6,8]"]),
        (r#"{"sink": "zero"}"#, ["sink", "zero"]),
        (r#"{"sink": {"logits": "f64"}}"#, ["sink", "f64"]),
    ] {
        let path = write(&directory, floats(dump(&simple)), &[("problem", described)]);
        refused(&stored(&path), &parts);
    }
    let mut without = dump(&simple);
    without.remove("bias");
    let described = r#"{"bias": {"shape": [1, 1, 6, 9], "format": "f32"}}"#;
    let path = write(&directory, floats(without), &[("problem", described)]);
    refused(&stored(&path), &["bias is missing"]);
    let mut without = dump(&simple);
    without.remove("dsink");
    let path = write(&directory, floats(without), &[]);
    refused(&stored(&path), &["--sink-gradient"]);
}

/// Where a mask comes from.
fn masked(pattern: &Pattern) -> Problem {
    Problem {
        mask: Mask { rules: vec![Rule::KeyLengths(vec![9, 6]), Rule::Boolean(pattern.clone())] },
        softcap: None,
        bias: None,
        alibi: None,
        sink: None,
        dropout: None,
        ..problem()
    }
}

fn pattern() -> Pattern {
    Pattern::from_fn([1, 4, 6, 9], |[_, head, query, key]| (head + query + 2 * key) % 3 > 0)
}

#[test]
fn a_mask_is_a_tensor_of_truth_values_or_of_numbers_to_add() {
    let directory = tempfile::tempdir().unwrap();
    let problem = masked(&pattern());
    let mut forward = dump(&problem);
    forward.retain(|name, _| !name.starts_with('d'));
    let lengths = ("problem", r#"{"mask": [{"key-lengths": [9, 6]}]}"#);
    let boolean = Stored::Boolean(pattern().shape(), pattern().bits().to_vec());
    let with = |mask| floats(forward.clone()).chain([("mask", mask)]);
    let path = write(&directory, with(boolean), &[lengths]);
    let case = case_of(&stored(&path));
    assert_eq!((case.verdict, &case.problem), (Verdict::Pass, &problem));
    // Minus infinity where it hides a key, zero elsewhere: a bias.
    let added = |bit: &bool| if *bit { 0.0 } else { f64::NEG_INFINITY };
    let values = pattern().bits().iter().map(added).collect();
    let additive = Tensor::rounded_from(Format::F32, &pattern().shape(), values).unwrap();
    let path = write(&directory, with(Stored::Float(additive.clone())), &[lengths]);
    let case = case_of(&stored(&path));
    assert_eq!(case.verdict, Verdict::Pass, "{case:#?}");
    assert_eq!(case.problem.bias, Some(Bias { shape: [1, 4, 6, 9], format: Format::F32 }));
    // A mask that differs by one key fails: it is read.
    let mut bits = pattern().bits().to_vec();
    bits[5] = !bits[5];
    let path = write(&directory, with(Stored::Boolean(pattern().shape(), bits)), &[lengths]);
    assert_eq!(case_of(&stored(&path)).verdict, Verdict::Fail);
    let two = [("bias", Stored::Float(additive.clone())), ("mask", Stored::Float(additive))];
    let path = write(&directory, floats(forward.clone()).chain(two), &[lengths]);
    refused(&stored(&path), &["bias", "additive mask"]);
    let flat = Stored::Float(Tensor::rounded_from(Format::F32, &[54], vec![0.0; 54]).unwrap());
    let path = write(&directory, with(flat), &[lengths]);
    refused(&stored(&path), &["'mask'", "4 axes"]);
}

#[test]
fn a_mask_is_a_list_of_rules_on_the_command_line() {
    let directory = tempfile::tempdir().unwrap();
    let prefix = Prefix { lengths: vec![3, 1], alignment: Alignment::TopLeft };
    let problem = Problem {
        mask: Mask::only(Rule::Prefix(prefix)),
        ..masked(&Pattern::from_fn([1; 4], |_| true))
    };
    let mut forward = dump(&problem);
    forward.retain(|name, _| !name.starts_with('d'));
    let path = write(&directory, floats(forward), &[("problem", r#"{"mask": []}"#)]);
    let with = |mask: &str| {
        let described = Described { mask: Some(mask.to_owned()), ..Described::default() };
        Request { described, ..stored(&path) }
    };
    let rules = r#"[{"prefix": {"lengths": [3, 1], "alignment": "top-left"}}]"#;
    let case = case_of(&with(rules));
    assert_eq!((case.verdict, &case.problem.mask), (Verdict::Pass, &problem.mask));
    assert_eq!(case_of(&stored(&path)).verdict, Verdict::Fail);
    refused(&with("causal"), &["'causal'", "causal-bottom-right"]);
    refused(&with(r#"[{"prefix": {"lengths": [3]}}]"#), &["prefix", "2"]);
    let program = |arguments: &[&str]| {
        let mut program = Command::new(env!("CARGO_BIN_EXE_flashproof"));
        program.arg("judge").arg(&path).args(arguments).output().unwrap()
    };
    let right = program(&["--mask", rules]);
    assert_eq!(right.status.code(), Some(0), "{}", String::from_utf8_lossy(&right.stderr));
    assert_eq!(program(&["--mask", "[]"]).status.code(), Some(1));
}

/// `[batch, position, head, entry]`.
fn transposed(tensor: &Tensor) -> Tensor {
    let values = tensor.view4().permuted_axes([0, 2, 1, 3]);
    Tensor::rounded(tensor.format(), &values.as_standard_layout().into_owned().into_dyn())
}

#[test]
fn axes_can_come_in_another_order() {
    const ACTIVATIONS: [&str; 8] = ["query", "key", "value", "output", "do", "dq", "dk", "dv"];
    let directory = tempfile::tempdir().unwrap();
    let json = serde_json::to_string(&problem()).unwrap();
    let tensors = dump(&problem()).into_iter().map(|(name, tensor)| {
        let tensor = if ACTIVATIONS.contains(&name) { transposed(&tensor) } else { tensor };
        (name, Stored::Float(tensor))
    });
    let path = write(&directory, tensors, &[("problem", &json)]);
    let elements = directory.path().join("elements.safetensors");
    let request =
        Request { order: AxisOrder::Bshd, elements: Some(elements.clone()), ..stored(&path) };
    let case = case_of(&request);
    assert_eq!((case.verdict, &case.problem), (Verdict::Pass, &problem()));
    let mut archive = Archive::open(&elements).unwrap();
    for (name, shape) in [
        ("output_ratio", &[2, 4, 6, 5][..]),
        ("bias_gradient_ratio", &[1, 4, 6, 9]),
        ("sink_gradient_ratio", &[4]),
    ] {
        assert_eq!(archive.tensor(name).unwrap().shape(), shape);
    }
    // Taken in the usual order, heads are positions and the other way round.
    refused(&stored(&path), &["query_heads", "6", "4"]);
}

#[test]
fn rows_of_the_bias_and_sinks_are_sampled() {
    let directory = tempfile::tempdir().unwrap();
    let json = serde_json::to_string(&problem()).unwrap();
    let path = write(&directory, floats(dump(&problem())), &[("problem", &json)]);
    // A row of the bias is shared by two rows of nine keys; a head has twelve rows.
    for (most_pairs, bias_row_count, sink_count) in [(432, 24, 4), (431, 23, 3), (0, 1, 1)] {
        let report = verdict_of(&Request { most_pairs, ..stored(&path) }).unwrap();
        let Run::Judge { bias_rows, sinks, .. } = report.run else { panic!("no judge's report") };
        let (bias_rows, sinks) = (bias_rows.expect("a bias"), sinks.expect("sinks"));
        assert_eq!((bias_rows.judged, bias_rows.of), (bias_row_count, 24), "{most_pairs} pairs");
        assert_eq!((sinks.judged, sinks.of), (sink_count, 4), "{most_pairs} pairs");
        let case = only_case(report);
        assert_eq!(case.verdict, Verdict::Pass);
        let elements = |quantity| case.of(quantity).map(|it| it.elements);
        assert_eq!(elements(Quantity::BiasGradient), Some(bias_row_count * 9));
        assert_eq!(elements(Quantity::SinkGradient), Some(sink_count));
    }
}
