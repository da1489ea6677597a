//! Judging the tensors of a backward pass from files: right and wrong ones, where they stand, samples,
//! and what is missing or does not fit.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use flashproof_conformance::adapter::{self, Choices};
use flashproof_conformance::case::Case;
use flashproof_conformance::inputs::{Family, Scores, Upstream};
use flashproof_conformance::io::safetensors::{self, Archive};
use flashproof_conformance::judge::sample::MOST_PAIRS;
use flashproof_conformance::judge::{
    AxisOrder, Described, JudgeError, Names, Origin, Request, judge,
};
use flashproof_conformance::report::model::Run;
use flashproof_conformance::report::{CaseReport, Report};
use flashproof_conformance::verdict::{Position, Quantity, Verdict};
use flashproof_spec::format::Format;
use flashproof_spec::mask::{Mask, Rule};
use flashproof_spec::problem::Problem;
use flashproof_spec::tensor::{Cotangents, Gradients, Inputs, Outputs, Tensor};
use indicatif::ProgressBar;
use tempfile::TempDir;

const SEED: u64 = 1;

/// A right backward pass and all that belongs to it.
struct Dump {
    inputs: Inputs,
    outputs: Outputs,
    cotangents: Cotangents,
    gradients: Gradients,
}

fn problem() -> Problem {
    let mut problem = Problem::new(Format::F32, 4, 6, 4);
    (problem.key_heads, problem.key_len, problem.value_dim) = (2, 9, 5);
    problem.mask = Mask::only(Rule::CausalBottomRight);
    problem
}

impl Dump {
    fn new() -> Self {
        let case = Case::new(problem(), Family::of(Scores::Normal), None, SEED)
            .with_upstream(Upstream::OutputAndLse);
        let inputs = case.inputs().unwrap();
        let cotangents = case.cotangents(Format::F32).unwrap();
        let kernel = flashproof_kernels::builtin("tiled").unwrap();
        let outputs = kernel.forward(&case.problem, &inputs).unwrap();
        let gradients = kernel.backward(&case.problem, &inputs, &outputs, &cotangents).unwrap();
        Self { inputs, outputs, cotangents, gradients }
    }

    /// The tensors by name; those of the backward pass by their short names.
    fn named(&self) -> BTreeMap<&'static str, &Tensor> {
        let Self { inputs, outputs, cotangents, gradients } = self;
        BTreeMap::from([
            ("query", &inputs.query),
            ("key", &inputs.key),
            ("value", &inputs.value),
            ("output", &outputs.output),
            ("lse", outputs.lse.as_ref().unwrap()),
            ("do", &cotangents.output),
            ("dlse", cotangents.lse.as_ref().unwrap()),
            ("dq", &gradients.query),
            ("dk", &gradients.key),
            ("dv", &gradients.value),
        ])
    }

    /// Writes the named tensors to a file of the directory.
    fn write(&self, directory: &TempDir, file: &str, names: &[&str]) -> PathBuf {
        let path = directory.path().join(file);
        let named = self.named();
        let tensors: Vec<_> = names.iter().map(|&name| (name, named[name])).collect();
        safetensors::write(&path, &tensors, &BTreeMap::new()).unwrap();
        path
    }
}

const INPUTS: [&str; 3] = ["query", "key", "value"];
const OUTPUTS: [&str; 2] = ["output", "lse"];
const UPSTREAM: [&str; 2] = ["do", "dlse"];
const GRADIENTS: [&str; 3] = ["dq", "dk", "dv"];

fn request(inputs: &Path, from: Origin) -> Request {
    let described = Described { causal: Some(Rule::CausalBottomRight), ..Described::default() };
    Request {
        inputs: inputs.to_owned(),
        from,
        names: Names::default(),
        order: AxisOrder::default(),
        described,
        profile: None,
        most_pairs: MOST_PAIRS,
        seed: SEED,
        elements: None,
        command: "flashproof judge".to_owned(),
    }
}

fn stored(inputs: &Path, outputs: Option<PathBuf>) -> Request {
    request(inputs, Origin::File { outputs, choices: Choices::default() })
}

fn kernel_on(inputs: &Path, kernel: &str) -> Request {
    let (kernel, options) = (kernel.to_owned(), adapter::Options::default());
    request(inputs, Origin::Kernel { kernel, options })
}

fn verdict_of(request: &Request) -> Result<Report, JudgeError> {
    judge(request, &ProgressBar::hidden())
}

fn only_case(report: Report) -> CaseReport {
    report.cases.into_iter().next().unwrap()
}

/// Elements compared of dQ, dK and dV; `None` without a backward pass.
fn compared(case: &CaseReport) -> [Option<usize>; 3] {
    [Quantity::QueryGradient, Quantity::KeyGradient, Quantity::ValueGradient]
        .map(|quantity| case.of(quantity).map(|measured| measured.elements))
}

const ALL: [Option<usize>; 3] = [Some(4 * 6 * 4), Some(2 * 9 * 4), Some(2 * 9 * 5)];

#[test]
fn right_gradients_pass_wherever_they_stand() {
    let directory = tempfile::tempdir().unwrap();
    let dump = Dump::new();
    for (here, there) in [
        ([&INPUTS[..], &OUTPUTS, &UPSTREAM, &GRADIENTS].concat(), vec![]),
        ([&INPUTS[..], &UPSTREAM].concat(), [&OUTPUTS[..], &GRADIENTS].concat()),
        (INPUTS.to_vec(), [&OUTPUTS[..], &UPSTREAM, &GRADIENTS].concat()),
    ] {
        let inputs = dump.write(&directory, "inputs.safetensors", &here);
        let outputs =
            (!there.is_empty()).then(|| dump.write(&directory, "outputs.safetensors", &there));
        let report = verdict_of(&stored(&inputs, outputs)).unwrap();
        let Run::Judge { rows, keys, .. } = report.run else { panic!("no judge's report") };
        assert_eq!((rows.judged, rows.of, rows.sample_seed), (24, 24, None));
        let keys = keys.expect("a backward pass");
        assert_eq!((keys.judged, keys.of, keys.sample_seed), (18, 18, None));
        let case = only_case(report);
        assert_eq!((case.verdict, compared(&case)), (Verdict::Pass, ALL), "{case:#?}");
        assert!(case.clauses.contains(&"FAS:bwd.lse.gradient"));
    }
}

#[test]
fn a_kernel_runs_backward_where_there_is_an_upstream_gradient() {
    let directory = tempfile::tempdir().unwrap();
    let dump = Dump::new();
    let path = dump.write(&directory, "a.safetensors", &[&INPUTS[..], &UPSTREAM].concat());
    let case = only_case(verdict_of(&kernel_on(&path, "builtin:naive")).unwrap());
    assert_eq!((case.verdict, compared(&case)), (Verdict::Pass, ALL));
    let path = dump.write(&directory, "b.safetensors", &INPUTS);
    let case = only_case(verdict_of(&kernel_on(&path, "builtin:naive")).unwrap());
    assert_eq!((case.verdict, compared(&case)), (Verdict::Pass, [None; 3]));
}

#[test]
fn a_wrong_gradient_is_located_and_named() {
    let directory = tempfile::tempdir().unwrap();
    let mut dump = Dump::new();
    let unscaled = dump.gradients.key.values() / problem().scale_f64();
    dump.gradients.key = Tensor::rounded(Format::F32, &unscaled);
    let every = [&INPUTS[..], &OUTPUTS, &UPSTREAM, &GRADIENTS].concat();
    let path = dump.write(&directory, "a.safetensors", &every);
    let case = only_case(verdict_of(&stored(&path, None)).unwrap());
    assert_eq!(case.verdict, Verdict::Fail);
    let violated: Vec<_> = case.violations.iter().map(|it| (it.clause, it.quantity)).collect();
    assert_eq!(violated, [("FAS:bound.bwd.key", Quantity::KeyGradient)]);
    assert!(matches!(case.violations[0].worst.location.position, Position::Key(_)));
    assert_eq!(case.diagnosis.first().map(|it| it.clause), Some("FAS:bwd.key.scale"));
}

#[test]
fn an_upstream_gradient_of_the_lse_that_is_left_out_is_missed() {
    let directory = tempfile::tempdir().unwrap();
    let dump = Dump::new();
    let without = [&INPUTS[..], &OUTPUTS, &["do"], &GRADIENTS].concat();
    let path = dump.write(&directory, "a.safetensors", &without);
    let case = only_case(verdict_of(&stored(&path, None)).unwrap());
    assert_eq!(case.verdict, Verdict::Fail);
    assert_eq!(case.of(Quantity::ValueGradient).unwrap().wrong, 0);
}

#[test]
fn tensors_of_other_names_are_found_by_option() {
    let directory = tempfile::tempdir().unwrap();
    let dump = Dump::new();
    let path = directory.path().join("a.safetensors");
    let prefixed: Vec<_> =
        dump.named().into_iter().map(|(name, tensor)| (format!("step7.{name}"), tensor)).collect();
    let tensors: Vec<_> = prefixed.iter().map(|(name, tensor)| (name.as_str(), *tensor)).collect();
    safetensors::write(&path, &tensors, &BTreeMap::new()).unwrap();
    let name = |name: &str| Some(format!("step7.{name}"));
    let names = Names {
        query: name("query"),
        key: name("key"),
        value: name("value"),
        output: name("output"),
        lse: name("lse"),
        output_gradient: name("do"),
        lse_gradient: name("dlse"),
        query_gradient: name("dq"),
        key_gradient: name("dk"),
        value_gradient: name("dv"),
        ..Names::default()
    };
    let case = only_case(verdict_of(&Request { names, ..stored(&path, None) }).unwrap());
    assert_eq!((case.verdict, compared(&case)), (Verdict::Pass, ALL));
}

#[test]
fn an_upstream_gradient_alone_is_no_backward_pass() {
    let directory = tempfile::tempdir().unwrap();
    let names = [&INPUTS[..], &OUTPUTS, &UPSTREAM].concat();
    let path = Dump::new().write(&directory, "a.safetensors", &names);
    let case = only_case(verdict_of(&stored(&path, None)).unwrap());
    assert_eq!((case.verdict, compared(&case)), (Verdict::Pass, [None; 3]));
}

fn refused(request: &Request, parts: &[&str]) {
    let error = verdict_of(request).unwrap_err().to_string();
    for part in parts {
        assert!(error.contains(part), "no '{part}' in: {error}");
    }
}

#[test]
fn what_is_missing_or_does_not_fit_is_named() {
    let directory = tempfile::tempdir().unwrap();
    let mut dump = Dump::new();
    let some = |name: &str| Some(name.to_owned());

    let no_upstream = [&INPUTS[..], &OUTPUTS, &GRADIENTS].concat();
    let path = dump.write(&directory, "a.safetensors", &no_upstream);
    refused(&stored(&path, None), &["a.safetensors", "--output-gradient", "output_gradient or do"]);
    let names = Names { lse_gradient: some("lse"), ..Names::default() };
    refused(&Request { names, ..kernel_on(&path, "builtin:naive") }, &["--output-gradient"]);

    let two_of_three = [&INPUTS[..], &OUTPUTS, &UPSTREAM, &["dq", "dv"]].concat();
    let path = dump.write(&directory, "b.safetensors", &two_of_three);
    refused(&stored(&path, None), &["b.safetensors", "--key-gradient", "key_gradient or dk"]);
    let names = Names { key_gradient: some("gradient.k"), ..Names::default() };
    refused(&Request { names, ..stored(&path, None) }, &["'gradient.k'", "b.safetensors"]);
    let names = Names { key_gradient: some("dv"), ..Names::default() };
    refused(&Request { names, ..stored(&path, None) }, &["key_gradient", "[1, 2, 9, 5]"]);

    let none = [&INPUTS[..], &OUTPUTS, &UPSTREAM].concat();
    let path = dump.write(&directory, "c.safetensors", &none);
    let names = Names { output_gradient: some("do"), ..Names::default() };
    refused(&Request { names, ..stored(&path, None) }, &["c.safetensors", "--query-gradient"]);

    dump.cotangents.output = Tensor::rounded(Format::F64, dump.cotangents.output.values());
    let path = dump.write(&directory, "d.safetensors", &none);
    refused(&kernel_on(&path, "builtin:naive"), &["output_gradient", "f64", "f32"]);
}

#[test]
fn rows_and_keys_are_sampled_and_the_comparison_can_be_kept() {
    let directory = tempfile::tempdir().unwrap();
    let every = [&INPUTS[..], &OUTPUTS, &UPSTREAM, &GRADIENTS].concat();
    let path = Dump::new().write(&directory, "a.safetensors", &every);
    let elements = directory.path().join("elements.safetensors");
    // 24 rows of 9 keys; a key head has 12 rows, so 108 pairs.
    for (most_pairs, row_count, key_count) in [(216, 24, 18), (215, 23, 9), (60, 6, 5), (0, 1, 1)] {
        let kept = Some(elements.clone());
        let request = Request { most_pairs, elements: kept, ..stored(&path, None) };
        let report = verdict_of(&request).unwrap();
        let Run::Judge { rows, keys, .. } = report.run else { panic!("no judge's report") };
        let keys = keys.expect("a backward pass");
        assert_eq!((rows.judged, keys.judged), (row_count, key_count), "{most_pairs} pairs");
        assert_eq!(keys.sample_seed.is_some(), key_count < 18);
        let case = only_case(report);
        assert_eq!(case.verdict, Verdict::Pass, "{case:#?}");
        let expected = [row_count * 4, key_count * 4, key_count * 5].map(Some);
        assert_eq!(compared(&case), expected);
        let mut archive = Archive::open(&elements).unwrap();
        for (name, count) in ["query", "key", "value"].into_iter().zip(expected) {
            let ratio = archive.tensor(&format!("{name}_gradient_ratio")).unwrap();
            let judged = ratio.values().iter().filter(|ratio| !ratio.is_nan()).count();
            assert_eq!(Some(judged), count, "{name}");
        }
    }
}
