//! Judging tensors from files: a real model's activations, right and wrong answers to them, samples,
//! and every way in which a file or a description can be bad.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use flashproof_conformance::adapter::{self, Choices};
use flashproof_conformance::io::safetensors::{self, Archive};
use flashproof_conformance::judge::sample::MOST_PAIRS;
use flashproof_conformance::judge::{
    AxisOrder, Described, JudgeError, Names, Origin, Request, judge,
};
use flashproof_conformance::report::model::Run;
use flashproof_conformance::report::{CaseReport, Report};
use flashproof_conformance::verdict::{Position, Verdict};
use flashproof_spec::format::Format;
use flashproof_spec::mask::{Mask, Rule};
use flashproof_spec::problem::Problem;
use flashproof_spec::tensor::{Inputs, Outputs, Tensor};
use indicatif::ProgressBar;
use ndarray::{ArrayD, IxDyn};
use proptest::prelude::*;
use tempfile::TempDir;

const MINILM: &str =
    concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/minilm-attention-f32.safetensors");

/// A request to judge what `kernel` makes of the inputs.
fn kernel_on(inputs: impl Into<PathBuf>, kernel: &str) -> Request {
    let (kernel, options) = (kernel.to_owned(), adapter::Options::default());
    request(inputs, Origin::Kernel { kernel, options })
}

/// A request to judge the outputs in a file.
fn stored(inputs: impl Into<PathBuf>, outputs: Option<PathBuf>) -> Request {
    request(inputs, Origin::File { outputs, choices: Choices::default() })
}

fn request(inputs: impl Into<PathBuf>, from: Origin) -> Request {
    Request {
        inputs: inputs.into(),
        from,
        names: Names::default(),
        order: AxisOrder::default(),
        described: Described::default(),
        profile: None,
        most_pairs: MOST_PAIRS,
        seed: 1,
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

/// The request with the names and the lengths of one layer of the model.
fn of_layer(layer: usize, request: Request) -> Request {
    let name = |tensor: &str| Some(format!("layer{layer}.{tensor}"));
    Request {
        names: Names { query: name("q"), key: name("k"), value: name("v"), ..Names::default() },
        described: Described { lengths: Some("lengths".to_owned()), ..Described::default() },
        ..request
    }
}

/// A layer's inputs and the problem behind them.
fn layer(layer: usize) -> (Problem, Inputs) {
    let mut archive = Archive::open(Path::new(MINILM)).unwrap();
    let mut tensor = |name: &str| archive.tensor(&format!("layer{layer}.{name}")).unwrap();
    let inputs = Inputs {
        query: tensor("q"),
        key: tensor("k"),
        value: tensor("v"),
        bias: None,
        sink: None,
        descale: None,
    };
    let mut problem = Problem::new(Format::F32, 12, 87, 32);
    problem.batch = 2;
    problem.mask = Mask::only(Rule::KeyLengths(vec![87, 8]));
    inputs.check(&problem).unwrap();
    (problem, inputs)
}

fn tiled(problem: &Problem, inputs: &Inputs) -> Outputs {
    flashproof_kernels::builtin("tiled").unwrap().forward(problem, inputs).unwrap()
}

/// Writes outputs to a new file of the directory.
fn write_outputs(directory: &TempDir, outputs: &Outputs) -> PathBuf {
    let path = directory.path().join("outputs.safetensors");
    let mut tensors = vec![("o", &outputs.output)];
    tensors.extend(outputs.lse.as_ref().map(|lse| ("lse", lse)));
    safetensors::write(&path, &tensors, &BTreeMap::new()).unwrap();
    path
}

/// The verdict on outputs for layer 0.
fn judged(outputs: &Outputs) -> CaseReport {
    let directory = tempfile::tempdir().unwrap();
    let path = write_outputs(&directory, outputs);
    only_case(verdict_of(&of_layer(0, stored(MINILM, Some(path)))).unwrap())
}

fn diagnosed(report: &CaseReport) -> Vec<&'static str> {
    report.diagnosis.iter().map(|finding| finding.clause).collect()
}

#[test]
fn built_in_kernels_are_right_on_real_activations() {
    for kernel in ["builtin:naive", "builtin:tiled", "builtin:tiled:16x24"] {
        for layer in [0, 5] {
            let report = verdict_of(&of_layer(layer, kernel_on(MINILM, kernel))).unwrap();
            let Run::Judge { rows, .. } = report.run else { panic!("no judge's report") };
            assert_eq!((rows.judged, rows.of, rows.sample_seed), (2088, 2088, None));
            let case = only_case(report);
            assert_eq!(case.verdict, Verdict::Pass, "{kernel} layer {layer}: {case:#?}");
            assert_eq!(case.output.elements, 2088 * 32);
            assert_eq!(case.lse.unwrap().elements, 2088);
        }
    }
}

#[test]
fn right_outputs_from_a_file_pass() {
    let (problem, inputs) = layer(0);
    let report = judged(&tiled(&problem, &inputs));
    assert_eq!(report.verdict, Verdict::Pass, "{report:#?}");
}

#[test]
fn padding_that_takes_part_is_named() {
    let (problem, inputs) = layer(0);
    let unmasked = Problem { mask: Mask::full(), ..problem };
    let report = judged(&tiled(&unmasked, &inputs));
    assert_eq!(report.verdict, Verdict::Fail);
    assert_eq!(diagnosed(&report).first(), Some(&"FAS:mask.length.padding"));
}

#[test]
fn an_lse_in_base_two_is_named() {
    let (problem, inputs) = layer(0);
    let outputs = tiled(&problem, &inputs);
    let in_bits = |lse: &Tensor| {
        Tensor::rounded(lse.format(), &lse.values().mapv(|nats| nats / std::f64::consts::LN_2))
    };
    let report = judged(&Outputs { lse: outputs.lse.as_ref().map(in_bits), ..outputs });
    assert_eq!((report.verdict, report.output.wrong), (Verdict::Fail, 0));
    assert_eq!(diagnosed(&report).first(), Some(&"FAS:choice.lse.base"));
}

/// Output and LSE of a row in `f64`, over some keys.
fn row_over(problem: &Problem, inputs: &Inputs, at: [usize; 3], keys: &[usize]) -> (Vec<f64>, f64) {
    let [batch, head, query] = at;
    let (q, k, v) = (inputs.query.view4(), inputs.key.view4(), inputs.value.view4());
    let score = |key: usize| -> f64 {
        let products =
            (0..problem.head_dim).map(|t| q[[batch, head, query, t]] * k[[batch, head, key, t]]);
        problem.scale_f64() * products.sum::<f64>()
    };
    let m = keys.iter().map(|&key| score(key)).fold(f64::NEG_INFINITY, f64::max);
    let l: f64 = keys.iter().map(|&key| (score(key) - m).exp()).sum();
    let mean = |j: usize| {
        keys.iter().map(|&key| (score(key) - m).exp() * v[[batch, head, key, j]]).sum::<f64>() / l
    };
    ((0..problem.value_dim).map(mean).collect(), m + l.ln())
}

#[test]
fn one_key_dropped_in_one_row_is_named_and_located() {
    let (problem, inputs) = layer(0);
    let outputs = tiled(&problem, &inputs);
    let at = [0, 3, 40];
    let keys: Vec<_> = (0..87).filter(|&key| key != 40).collect();
    let (row, lse_of_row) = row_over(&problem, &inputs, at, &keys);
    let mut output = outputs.output.values().clone();
    let mut lse = outputs.lse.as_ref().unwrap().values().clone();
    for (j, value) in row.into_iter().enumerate() {
        output[[at[0], at[1], at[2], j]] = value;
    }
    lse[&at[..]] = lse_of_row;
    let report = judged(&Outputs {
        output: Tensor::rounded(Format::F32, &output),
        lse: Some(Tensor::rounded(Format::F32, &lse)),
    });
    assert_eq!(report.verdict, Verdict::Fail);
    assert!(diagnosed(&report).contains(&"FAS:fwd.softmax.every-key"), "{:?}", report.diagnosis);
    for violation in report.violations {
        let place = violation.worst.location;
        assert_eq!([place.batch, place.head], at[..2]);
        assert_eq!(place.position, Position::Query(at[2]));
    }
}

/// A small file of inputs, with the right output and LSE of a causal problem.
fn small(directory: &TempDir, metadata: &[(&str, &str)]) -> PathBuf {
    small_of(
        directory,
        &Problem { mask: Mask::only(Rule::CausalBottomRight), ..square() },
        metadata,
    )
}

fn square() -> Problem {
    Problem::new(Format::F32, 2, 6, 4)
}

fn small_of(directory: &TempDir, problem: &Problem, metadata: &[(&str, &str)]) -> PathBuf {
    use flashproof_conformance::inputs::{Family, Scores, generate};
    let inputs = generate(problem, Family::of(Scores::Normal), 1).unwrap();
    let outputs = tiled(problem, &inputs);
    let path = directory.path().join("small.safetensors");
    let metadata =
        metadata.iter().map(|&(name, text)| (name.to_owned(), text.to_owned())).collect();
    let tensors = [
        ("q", &inputs.query),
        ("key", &inputs.key),
        ("v", &inputs.value),
        ("out", &outputs.output),
        ("lse", outputs.lse.as_ref().unwrap()),
    ];
    safetensors::write(&path, &tensors, &metadata).unwrap();
    path
}

#[test]
fn a_description_in_the_metadata_is_enough() {
    let directory = tempfile::tempdir().unwrap();
    let described =
        r#"{"mask": ["causal-bottom-right"], "scale": "inverse-sqrt-head-dim", "query_len": 6}"#;
    let path = small(&directory, &[("problem", described)]);
    assert_eq!(only_case(verdict_of(&stored(path, None)).unwrap()).verdict, Verdict::Pass);
    let path = small(&directory, &[("problem", described), ("scale", "1/sqrt(5)")]);
    assert_eq!(only_case(verdict_of(&stored(path, None)).unwrap()).verdict, Verdict::Pass);
    // The scale of the metadata counts where nothing else gives one.
    let path = small(&directory, &[("scale", "1/sqrt(5)")]);
    let error = verdict_of(&stored(path, None)).unwrap_err();
    assert!(matches!(error, JudgeError::Scale { .. }), "{error}");
}

#[test]
fn a_flag_overrides_the_metadata() {
    let directory = tempfile::tempdir().unwrap();
    let path =
        small(&directory, &[("problem", r#"{"mask": ["causal-top-left"]}"#), ("scale", "7")]);
    let described = Described {
        causal: Some(Rule::CausalBottomRight),
        scale: Some("1/sqrt(d)".to_owned()),
        ..Described::default()
    };
    let right = Request { described, ..stored(&path, None) };
    let case = only_case(verdict_of(&right).unwrap());
    assert_eq!(case.verdict, Verdict::Pass);
    assert_eq!(case.problem.mask, Mask::only(Rule::CausalBottomRight));
    assert_eq!(only_case(verdict_of(&stored(&path, None)).unwrap()).verdict, Verdict::Fail);
}

#[test]
fn the_comparison_of_each_element_can_be_kept() {
    let directory = tempfile::tempdir().unwrap();
    let path = small(&directory, &[("problem", r#"{"mask": ["causal-bottom-right"]}"#)]);
    let elements = directory.path().join("elements.safetensors");
    let request = Request { elements: Some(elements.clone()), ..stored(path, None) };
    let case = only_case(verdict_of(&request).unwrap());
    let mut archive = Archive::open(&elements).unwrap();
    let largest = |tensor: &Tensor| tensor.values().iter().copied().fold(0.0, f64::max);
    let ratio = archive.tensor("output_ratio").unwrap();
    assert_eq!(ratio.shape(), [1, 2, 6, 4]);
    assert_eq!(largest(&ratio), case.output.worst.unwrap().ratio);
    let lse_ratio = archive.tensor("lse_ratio").unwrap();
    assert_eq!(largest(&lse_ratio), case.lse.unwrap().worst.unwrap().ratio);
    for name in ["output_error", "output_bound", "lse_error", "lse_bound"] {
        assert!(archive.tensor(name).unwrap().values().iter().all(|x| x.is_finite()), "{name}");
    }
}

#[test]
fn rows_of_a_large_problem_are_sampled_and_the_report_says_so() {
    let directory = tempfile::tempdir().unwrap();
    let problem = Problem { query_len: 50, ..square() };
    let path = small_of(&directory, &problem, &[]);
    let elements = directory.path().join("elements.safetensors");
    let rows = |most_pairs, seed| {
        let kept = Some(elements.clone());
        let request = Request { most_pairs, seed, elements: kept, ..stored(&path, None) };
        let report = verdict_of(&request).unwrap();
        let Run::Judge { rows, .. } = report.run else { panic!("no judge's report") };
        let case = only_case(report);
        assert_eq!((case.verdict, case.output.elements), (Verdict::Pass, rows.judged * 4));
        let ratio = Archive::open(&elements).unwrap().tensor("lse_ratio").unwrap();
        let judged: Vec<_> = ratio.values().iter().map(|ratio| !ratio.is_nan()).collect();
        assert_eq!(judged.iter().filter(|it| **it).count(), rows.judged);
        (rows, judged)
    };
    // 100 rows of 6 keys.
    let (all, _) = rows(600, 3);
    assert_eq!((all.judged, all.of, all.sample_seed), (100, 100, None));
    let (some, chosen) = rows(599, 3);
    assert_eq!((some.judged, some.of, some.sample_seed), (99, 100, Some(3)));
    assert_eq!(chosen, rows(599, 3).1);
    assert_ne!(rows(300, 3).1, rows(300, 4).1);
}

#[test]
fn a_profile_is_named_or_read() {
    let directory = tempfile::tempdir().unwrap();
    let path = small(&directory, &[("problem", r#"{"mask": ["causal-bottom-right"]}"#)]);
    let file = directory.path().join("profile.json");
    std::fs::write(&file, r#"{"base": "standard", "exp_ulp": 3.0}"#).unwrap();
    for profile in ["standard", "dense", file.to_str().unwrap()] {
        let request = Request { profile: Some(profile.to_owned()), ..stored(&path, None) };
        assert_eq!(only_case(verdict_of(&request).unwrap()).verdict, Verdict::Pass, "{profile}");
    }
    std::fs::write(&file, r#"{"base": "standard", "exp_ulp": -1.0}"#).unwrap();
    for profile in ["/nonexistent", "strict", file.to_str().unwrap()] {
        let request = Request { profile: Some(profile.to_owned()), ..stored(&path, None) };
        let error = verdict_of(&request).unwrap_err();
        assert!(matches!(error, JudgeError::Profile { .. }), "{error}");
        assert!(error.to_string().contains(profile), "{error}");
    }
}

fn refused(request: &Request, parts: &[&str]) {
    let error = verdict_of(request).unwrap_err().to_string();
    for part in parts {
        assert!(error.contains(part), "no '{part}' in: {error}");
    }
}

#[test]
fn what_does_not_fit_is_named() {
    let directory = tempfile::tempdir().unwrap();
    let path = small(&directory, &[]);
    let with = |described: Described| Request { described, ..stored(&path, None) };
    let lengths =
        |text: &str| with(Described { lengths: Some(text.to_owned()), ..Described::default() });
    refused(&lengths("1,2"), &["key length: 2", "batch of 1"]);
    refused(&lengths("7"), &["7", "key_len = 6"]);
    refused(&lengths("a,b"), &["'a,b'", "small.safetensors", "lse"]);
    refused(&lengths("q"), &["'q'", "1 axes"]);
    let scale =
        |text: &str| with(Described { scale: Some(text.to_owned()), ..Described::default() });
    refused(&scale("big"), &["--scale", "'big'"]);
    refused(&scale("1/sqrt(64)"), &["1/sqrt(64)", "head_dim is 4"]);
    let names = |names: Names| Request { names, ..stored(&path, None) };
    let some = |name: &str| Some(name.to_owned());
    refused(&names(Names { query: some("x"), ..Names::default() }), &["'x'", "small.safetensors"]);
    refused(&names(Names { query: some("lse"), ..Names::default() }), &["'lse'", "4 axes"]);
    refused(&names(Names { lse: some("q"), ..Names::default() }), &["'q'", "3 axes"]);
    refused(&kernel_on(&path, "builtin:none"), &["'none'"]);
    refused(&stored(MINILM, None), &["--query", "query or q", "layer0.q"]);
    refused(&of_layer(0, stored(MINILM, None)), &["output", "--kernel"]);
}

#[test]
fn a_contradictory_description_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    for (described, parts) in [
        (r#"{"key_len": 7}"#, &["key_len", "6", "7"][..]),
        (r#"{"format": "bf16"}"#, &["format", "f32", "bf16"]),
        (r#"{"keylen": 7}"#, &["keylen", "problem"]),
        (r#"{"scale": {"value": 1e999}}"#, &["problem"]),
        ("nonsense", &["'problem'"]),
    ] {
        refused(&stored(small(&directory, &[("problem", described)]), None), parts);
    }
}

#[test]
fn tensors_that_are_not_of_one_problem_are_refused() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("odd.safetensors");
    let tensor = |format, shape: &[usize]| Tensor::rounded(format, &ArrayD::zeros(IxDyn(shape)));
    let ok = tensor(Format::F32, &[1, 2, 3, 4]);
    for (wrong, parts) in [
        (tensor(Format::F32, &[1, 2, 3, 5]), &["key", "5", "4"][..]),
        (tensor(Format::F32, &[2, 2, 3, 4]), &["key"]),
        (tensor(Format::Bf16, &[1, 2, 3, 4]), &["key", "bf16", "f32"]),
        (tensor(Format::F32, &[1, 3, 3, 4]), &["query_heads", "3"]),
        (tensor(Format::F32, &[1, 0, 3, 4]), &["key_heads", "0"]),
    ] {
        let tensors = [("q", &ok), ("k", &wrong), ("v", &ok), ("o", &ok)];
        safetensors::write(&path, &tensors, &BTreeMap::new()).unwrap();
        refused(&stored(&path, None), parts);
    }
    let none = tensor(Format::F32, &[1, 2, 0, 4]);
    let tensors = [("q", &none), ("k", &ok), ("v", &ok), ("o", &none)];
    safetensors::write(&path, &tensors, &BTreeMap::new()).unwrap();
    refused(&stored(&path, None), &["no rows"]);
    let other = tensor(Format::F32, &[1, 2, 3, 5]);
    let tensors = [("q", &ok), ("k", &ok), ("v", &ok), ("o", &other)];
    safetensors::write(&path, &tensors, &BTreeMap::new()).unwrap();
    refused(&stored(&path, None), &["output", "[1, 2, 3, 5]", "[1, 2, 3, 4]"]);
}

fn flashproof(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_flashproof")).args(arguments).output().unwrap()
}

#[test]
fn the_program_judges_and_exits_accordingly() {
    let layer0 = ["--query", "layer0.q", "--key", "layer0.k", "--value", "layer0.v"];
    let judge = |rest: &[&str]| flashproof(&[&["judge", MINILM], &layer0[..], rest].concat());
    let right = judge(&["--lengths", "lengths", "--kernel", "builtin:tiled"]);
    let text = String::from_utf8(right.stdout).unwrap();
    assert_eq!(right.status.code(), Some(0), "{text}");
    assert!(text.contains("2088 of 2088 rows") && text.contains("1 pass"), "{text}");

    let directory = tempfile::tempdir().unwrap();
    let (problem, inputs) = layer(0);
    let unmasked = Problem { mask: Mask::full(), ..problem };
    let outputs = write_outputs(&directory, &tiled(&unmasked, &inputs));
    let wrong = judge(&["--lengths", "87,8", outputs.to_str().unwrap()]);
    let text = String::from_utf8(wrong.stdout).unwrap();
    assert_eq!(wrong.status.code(), Some(1), "{text}");
    for part in
        ["FAS:mask.length.padding", "got ", "want ", "ratio ", "reproduce  flashproof judge"]
    {
        assert!(text.contains(part), "no '{part}' in {text}");
    }

    let missing = directory.path().join("missing/elements.safetensors");
    let unwritable = judge(&["--kernel", "builtin:tiled", "--out", missing.to_str().unwrap()]);
    assert_eq!(unwritable.status.code(), Some(2));
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 1);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn any_description_is_understood_or_refused(text in ".{0,60}", scale in ".{0,12}", lengths in ".{0,12}") {
        let directory = tempfile::tempdir().unwrap();
        let path = small(&directory, &[("problem", &text), ("scale", &scale)]);
        let _ = verdict_of(&stored(&path, None));
        let described = Described {
            scale: Some(scale),
            lengths: Some(lengths),
            mask: Some(text),
            ..Described::default()
        };
        let _ = verdict_of(&Request { described, ..stored(&path, None) });
    }

    #[test]
    fn any_bytes_are_a_file_of_tensors_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..200), cut in 0..2000_usize) {
        let directory = tempfile::tempdir().unwrap();
        let path = small(&directory, &[]);
        let mut file = std::fs::read(&path).unwrap();
        file.truncate(cut);
        std::fs::write(&path, &file).unwrap();
        let _ = verdict_of(&stored(&path, None));
        std::fs::write(&path, &bytes).unwrap();
        prop_assert!(verdict_of(&stored(&path, None)).is_err());
    }
}
