//! The node tests of ONNX's Attention operator, an independent statement of what masks, biases,
//! softcaps and windows mean: every expected output lies within the bounds of the profile of the code
//! that computed it.

#[path = "adapter_support/python.rs"]
mod python;

use std::path::{Path, PathBuf};
use std::process::Command;

use flashproof_conformance::adapter::Choices;
use flashproof_conformance::judge::sample::MOST_PAIRS;
use flashproof_conformance::judge::{AxisOrder, Described, Names, Origin, Request, judge};
use flashproof_conformance::report::CaseReport;
use flashproof_conformance::verdict::Verdict;
use indicatif::ProgressBar;
use serde::Deserialize;
use tempfile::TempDir;

/// The tests of version 1.23.2. Another version has others: say here how many.
const TESTS: usize = 93;

#[derive(Deserialize)]
struct Index {
    onnx: String,
    tests: Vec<Test>,
}

#[derive(Deserialize)]
struct Test {
    name: String,
    opset: u32,
}

/// The tests as files, where Python and the package are at hand.
fn converted(test: &str) -> Option<(TempDir, Index)> {
    let python = python::with_packages(test, &["onnx"])?;
    let directory = TempDir::new().expect("a temporary directory");
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("python/onnx_attention.py");
    let output = Command::new(python)
        .arg(script)
        .arg(directory.path())
        .output()
        .expect("Python can be started");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let index = std::fs::read(directory.path().join("index.json")).expect("the script wrote it");
    Some((directory, serde_json::from_slice(&index).expect("the script wrote JSON")))
}

/// The verdict on one expected output, as the answer to its problem or, with `mask`, to that with
/// another mask.
fn report(directory: &Path, name: &str, described: Described) -> CaseReport {
    let file = |suffix: &str| -> PathBuf { directory.join(format!("{name}.{suffix}")) };
    let profile = file("profile.json").to_str().expect("a path in UTF-8").to_owned();
    let request = Request {
        inputs: file("safetensors"),
        from: Origin::File { outputs: None, choices: Choices::default() },
        names: Names::default(),
        order: AxisOrder::Bhsd,
        described,
        profile: Some(profile),
        most_pairs: MOST_PAIRS,
        seed: 1,
        elements: None,
        command: String::new(),
    };
    let mut report =
        judge(&request, &ProgressBar::hidden()).unwrap_or_else(|error| panic!("{name}: {error}"));
    report.cases.remove(0)
}

#[test]
fn expected_outputs_are_within_the_bounds() {
    let test = "expected_outputs_are_within_the_bounds";
    let Some((directory, index)) = converted(test) else { return };
    assert_eq!(index.tests.len(), TESTS, "onnx {}", index.onnx);
    for opset in [23, 24, 25] {
        assert!(index.tests.iter().any(|test| test.opset == opset), "no test of opset {opset}");
    }
    let mut greatest = 0.0_f64;
    for Test { name, .. } in &index.tests {
        let report = report(directory.path(), name, Described::default());
        assert_eq!(report.verdict, Verdict::Pass, "{name}: {:?}", report.violations);
        assert!(report.output.elements > 0, "{name} compares nothing");
        greatest = report.output.worst.map_or(greatest, |worst| greatest.max(worst.ratio));
    }
    println!("onnx {}: {TESTS} tests, greatest ratio {greatest:.3}", index.onnx);
}

/// What makes the agreement mean something: read with another mask, scale or bias, the same outputs
/// are wrong.
#[test]
fn another_reading_of_a_test_is_found_wrong() {
    let Some((directory, _)) = converted("another_reading_of_a_test_is_found_wrong") else {
        return;
    };
    let mask = |json: &str| Described { mask: Some(json.to_owned()), ..Described::default() };
    let scale = |text: &str| Described { scale: Some(text.to_owned()), ..Described::default() };
    let window = r#"[{"window": {"left": 1, "right": 0, "alignment": "top-left"}}]"#;
    let causal_window = r#"["causal-top-left", {"window": {"left": 2, "right": null,
        "alignment": "top-left"}}]"#;
    for (name, described) in [
        ("test_attention_4d_causal", mask(r#"["causal-bottom-right"]"#)),
        ("test_attention_4d_causal_bf16", mask("[]")),
        // Few of the boolean masks hide anything: most are random numbers taken for truth values.
        ("test_attention_local_window_gqa_rank4_mask", mask(causal_window)),
        ("test_attention_local_window", mask(window)),
        ("test_attention_4d_gqa_causal_nonpad_decode", mask(r#"["causal-bottom-right"]"#)),
        ("test_attention_4d_scaled", scale("0.0125")),
    ] {
        let report = report(directory.path(), name, described);
        assert_eq!(report.verdict, Verdict::Fail, "{name}");
    }
}
