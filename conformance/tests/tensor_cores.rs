//! The suite put to kernels that accumulate as tensor cores do, and what it says where that bounds
//! nothing.

use flashproof_conformance::adapter::builtin::Builtin;
use flashproof_conformance::case::Case;
use flashproof_conformance::run::run;
use flashproof_conformance::suite::{DEFAULT_SEED, Direction, Suite, cases};
use flashproof_conformance::verdict::Verdict;
use flashproof_spec::format::Format;
use flashproof_spec::tensor_core::TensorCore;

fn forward(format: Format) -> Vec<Case> {
    let mut cases = cases(Suite::Quick, &[format], DEFAULT_SEED);
    cases.retain(|case| Direction::Forward.includes(case));
    cases
}

/// Ampere's, the coarsest of those that take `bf16`, on every other case; and Volta's and Hopper's in
/// `f16`, whose steps are the shortest and the longest, on one in four.
#[test]
fn tensor_cores_pass_in_the_formats_that_they_take() {
    for (core, format, every) in [
        (TensorCore::Ampere, Format::Bf16, 2),
        (TensorCore::Volta, Format::F16, 4),
        (TensorCore::Hopper, Format::F16, 4),
    ] {
        let mut subject = Builtin::open(&format!("matrix:{}", core.name())).unwrap();
        let cases: Vec<_> = forward(format).into_iter().step_by(every).collect();
        for report in run(&mut subject, Suite::Quick, &cases, |_| ()).unwrap() {
            assert_eq!(report.verdict, Verdict::Pass, "{report:#?}");
        }
    }
}

/// What a generation does not take, and the backward pass, are refused: never a pass.
#[test]
fn what_a_tensor_core_does_not_take_is_unsupported() {
    let mut subject = Builtin::open("matrix:volta").unwrap();
    let forward = forward(Format::Bf16).swap_remove(0);
    let mut gradients = cases(Suite::Quick, &[Format::F16], DEFAULT_SEED);
    gradients.retain(|case| case.upstream.is_some());
    for report in
        run(&mut subject, Suite::Quick, &[forward, gradients.swap_remove(0)], |_| ()).unwrap()
    {
        assert_eq!(report.verdict, Verdict::Unsupported, "{report:#?}");
    }
}
