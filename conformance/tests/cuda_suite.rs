//! The CUDA kernels, as they are committed in PTX, through every case of the quick suite that they
//! support, forward and backward, in the emulator under every numerics policy.

use std::collections::BTreeMap;
use std::path::Path;

use flashproof_conformance::adapter::compiled::Compiled;
use flashproof_conformance::case::Case;
use flashproof_conformance::report::CaseReport;
use flashproof_conformance::run::run;
use flashproof_conformance::suite::{self, DEFAULT_SEED, Direction, Suite};
use flashproof_conformance::verdict::Verdict;
use flashproof_spec::format::Format;

/// Runs a manifest's kernels through every case, and gives how many pass, of the forward and of the
/// backward pass.
fn passing(manifest: &str, format: Format) -> [usize; 2] {
    passing_of(manifest, &suite::cases(Suite::Quick, &[format], DEFAULT_SEED))
}

/// The same on some cases. Nothing may fail, and nothing may be left undecided.
fn passing_of(manifest: &str, cases: &[Case]) -> [usize; 2] {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../kernels/cuda/manifests");
    let path = folder.join(manifest).display().to_string();
    let mut subject = Compiled::emulated(&path).unwrap_or_else(|error| panic!("{error}"));
    let reports = run(&mut subject, Suite::Quick, cases, |_| ()).expect("a run");
    let mut verdicts = BTreeMap::new();
    for report in &reports {
        *verdicts.entry(report.verdict).or_insert(0) += 1;
        let allowed = matches!(report.verdict, Verdict::Pass | Verdict::Unsupported);
        assert!(allowed, "{}", told(report));
    }
    println!("{manifest}: {verdicts:?}");
    let passed = |backward: bool| {
        let in_pass = |report: &&CaseReport| report.query_gradient.is_some() == backward;
        reports.iter().filter(in_pass).filter(|it| it.verdict == Verdict::Pass).count()
    };
    [passed(false), passed(true)]
}

/// What is wrong, and how to see it again.
fn told(report: &CaseReport) -> String {
    let CaseReport { name, verdict, no_answer, violations, reproduce, .. } = report;
    format!("{name}: {verdict:?}, {no_answer:?}, {violations:?}\n{reproduce}")
}

#[test]
fn kernels_for_tensor_cores_pass_in_f16() {
    let [forward, backward] = passing("tensor_cores.toml", Format::F16);
    assert!(forward > 0 && backward > 0);
}

#[test]
fn kernels_for_tensor_cores_pass_in_bf16() {
    let [forward, backward] = passing("tensor_cores.toml", Format::Bf16);
    assert!(forward > 0 && backward > 0);
}

#[test]
fn kernels_in_f32_pass() {
    let [forward, backward] = passing("f32.toml", Format::F32);
    assert!(forward > 0 && backward > 0);
}

/// Its forward pass is that of the others.
#[test]
fn a_query_gradient_that_is_added_up_atomically_passes() {
    let mut cases = suite::cases(Suite::Quick, &[Format::Bf16], DEFAULT_SEED);
    cases.retain(|case| Direction::Backward.includes(case));
    assert!(passing_of("tensor_cores_atomic.toml", &cases)[1] > 0);
}

#[test]
fn long_heads_pass() {
    assert!(passing("tensor_cores_long_heads.toml", Format::F16)[0] > 0);
    assert!(passing("tensor_cores_long_heads.toml", Format::Bf16)[0] > 0);
    assert!(passing("f32_long_heads.toml", Format::F32)[0] > 0);
}

#[test]
fn keys_in_splits_pass() {
    assert!(passing("split_keys.toml", Format::Bf16)[0] > 0);
    assert!(passing("f32_split_keys.toml", Format::F32)[0] > 0);
}

/// One case in four: these kernels are there to be compared with, and slow here.
#[test]
fn whole_rows_of_scores_pass() {
    for format in [Format::F32, Format::F16, Format::Bf16] {
        let cases = suite::cases(Suite::Quick, &[format], DEFAULT_SEED);
        let some: Vec<_> = cases.into_iter().step_by(4).collect();
        assert!(passing_of("dense.toml", &some)[0] > 0);
    }
}
