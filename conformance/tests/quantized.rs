//! Inputs in 8 bits with descales: correct kernels pass, and each way of getting descales or the scale
//! of weights wrong fails.

mod support;

use flashproof_conformance::adapter::builtin::Builtin;
use flashproof_conformance::adapter::{Backward, Failure, Subject};
use flashproof_conformance::case::{Case, QUANTIZED_FORMATS};
use flashproof_conformance::inputs::{Family, Scores};
use flashproof_conformance::report::CaseReport;
use flashproof_conformance::run::run;
use flashproof_conformance::suite::{DEFAULT_SEED, Feature, Suite, cases};
use flashproof_conformance::verdict::Verdict;
use flashproof_kernels::Kernel;
use flashproof_kernels::cpu::{Matrix, Quantized};
use flashproof_spec::format::Format;
use flashproof_spec::problem::Problem;
use flashproof_spec::profile::Profile;
use flashproof_spec::quantization::{Descale, Descales, Quantization};
use flashproof_spec::tensor::{Cotangents, Inputs, Outputs, Tensor};
use flashproof_spec::tensor_core::TensorCore;
use ndarray::Axis;
use support::map;

fn quantized() -> Vec<Case> {
    cases(Suite::Quick, &QUANTIZED_FORMATS, DEFAULT_SEED)
}

fn reports(subject: &mut dyn Subject, cases: &[Case]) -> Vec<CaseReport> {
    run(subject, Suite::Quick, cases, |_| ()).unwrap()
}

#[test]
fn kernels_of_8_bits_pass() {
    let cases = quantized();
    assert!(cases.len() > 20);
    assert!(cases.iter().all(|case| Feature::Descale.occurs_in(case)));
    for (name, every) in [("quantized", 1), ("matrix:hopper", 2), ("matrix:blackwell", 4)] {
        let mut subject = Builtin::open(name).unwrap();
        let cases: Vec<_> = cases.iter().step_by(every).cloned().collect();
        for report in reports(&mut subject, &cases) {
            assert_eq!(report.verdict, Verdict::Pass, "{name}: {report:#?}");
        }
    }
}

/// A kernel with one scale of weights under a profile with another is found out; under its own it
/// passes.
#[test]
fn weights_that_are_not_scaled_as_declared_fail() {
    for (exponent, declared) in [(0, 8), (4, 4)] {
        let mut honest = Builtin::new(Box::new(Quantized::with_weight_scale(exponent)));
        for report in reports(&mut honest, &small_weights()) {
            assert_eq!(report.verdict, Verdict::Pass, "2^{exponent}: {report:#?}");
        }
        let profile = Quantized::with_weight_scale(declared);
        let mut lying = Lying { kernel: honest, profile: Some(profile), descales: |_, it| it };
        let verdict = if exponent == declared { Verdict::Pass } else { Verdict::Fail };
        for report in reports(&mut lying, &small_weights()) {
            assert_eq!(report.verdict, verdict, "2^{exponent} under 2^{declared}: {report:#?}");
        }
    }
}

/// Rows of which most weights are far below the largest.
fn small_weights() -> Vec<Case> {
    let wanted = |case: &Case| case.name.contains("peak+positive");
    quantized().into_iter().filter(wanted).collect()
}

/// Beyond the format's range a weight has no bound, and so no verdict.
#[test]
fn weights_that_leave_their_format_have_no_bound() {
    let mut subject = Builtin::new(Box::new(Quantized::with_weight_scale(9)));
    let case = quantized().swap_remove(0);
    let report = reports(&mut subject, &[case]).swap_remove(0);
    assert_eq!(report.verdict, Verdict::NoBound, "{report:#?}");
}

/// Hopper sums 13 bits of a product of two numbers of 8 bits. After some thousand keys errors may be
/// as large as the sum: that is no pass, though the answer be right. Blackwell sums 25.
#[test]
fn thirteen_bits_bound_nothing_at_a_long_context() {
    let output = Format::Bf16;
    let [query, key, value] = [Descale::Head; 3];
    let quantization = Some(Quantization { query, key, value, output });
    let problem = |key_len| Problem {
        query_len: 2,
        key_len,
        quantization,
        ..Problem::new(Format::E4m3, 1, 2, 32)
    };
    let case =
        |key_len| Case::new(problem(key_len), Family::of(Scores::Normal), None, DEFAULT_SEED);
    for (core, key_len, verdict) in [
        (TensorCore::Hopper, 1024, Verdict::Pass),
        (TensorCore::Hopper, 4096, Verdict::NoBound),
        (TensorCore::Blackwell, 4096, Verdict::Pass),
    ] {
        let mut subject = Builtin::new(Box::new(Matrix::new(core)));
        let report = reports(&mut subject, &[case(key_len)]).swap_remove(0);
        assert_eq!(report.verdict, verdict, "{core:?} at {key_len} keys: {report:#?}");
        // Not for the LSE, which is no sum of products over keys.
        assert_eq!(report.lse.map(|lse| lse.unbounded), Some(0));
    }
}

/// What a faulty kernel takes for the descales.
type Fault = fn(&Problem, Descales) -> Descales;

/// Each fault fails in every case in which it changes something, but where bounds say less than the
/// fault; never does a fault pass everywhere that it occurs.
#[test]
fn a_descale_that_is_another_s_fails() {
    let faults: [(&str, Fault); 6] = [
        ("the value's dropped", |_, it| Descales { value: map(&it.value, |_| 1.0), ..it }),
        ("the key's dropped", |_, it| Descales { key: map(&it.key, |_| 1.0), ..it }),
        ("the query's dropped", |_, it| Descales { query: map(&it.query, |_| 1.0), ..it }),
        ("the key's for the value's", |_, it| {
            let alike = it.key.shape() == it.value.shape();
            if alike { Descales { value: it.key.clone(), ..it } } else { it }
        }),
        ("the first block's for all", |_, it| Descales { value: first(&it.value, 2), ..it }),
        ("the first head's for all", |_, it| Descales { value: first(&it.value, 1), ..it }),
    ];
    let cases = quantized();
    for (name, fault) in faults {
        let changes = |case: &&Case| {
            let inputs = case.inputs().unwrap();
            let descales = inputs.descale.expect("descales");
            let sees_two = case.problem.key_len > 1 && case.poison.is_none();
            sees_two && fault(&case.problem, descales.clone()) != descales
        };
        let changed: Vec<_> = cases.iter().filter(changes).cloned().collect();
        assert!(!changed.is_empty(), "{name} changes nothing");
        let kernel = Builtin::open("quantized").unwrap();
        let mut subject = Lying { kernel, profile: None, descales: fault };
        let reports = reports(&mut subject, &changed);
        let failed = reports.iter().filter(|report| report.verdict == Verdict::Fail).count();
        println!("{name}: {failed} of {}", reports.len());
        assert!(2 * failed > reports.len(), "{name}: {failed} of {}", reports.len());
        for report in reports.iter().filter(|report| report.name.contains("/reported/38")) {
            assert_eq!(report.verdict, Verdict::Fail, "{name}: {report:#?}");
        }
    }
}

/// The descales with each taken of the first along an axis.
fn first(descales: &Tensor, axis: usize) -> Tensor {
    let mut values = descales.values().clone();
    let first = values.index_axis(Axis(axis), 0).to_owned();
    for mut lane in values.axis_iter_mut(Axis(axis)) {
        lane.assign(&first);
    }
    Tensor::rounded(descales.format(), &values)
}

/// The backward pass, and inputs of 8 bits in kernels that do not know them, are no pass.
#[test]
fn what_is_not_offered_is_unsupported() {
    let case = quantized().swap_remove(0);
    for name in ["naive", "tiled", "split", "matrix:volta"] {
        let mut subject = Builtin::open(name).unwrap();
        let report = reports(&mut subject, std::slice::from_ref(&case)).swap_remove(0);
        assert_eq!(report.verdict, Verdict::Unsupported, "{name}");
    }
}

/// A kernel that is given other descales, or declares another's profile.
struct Lying {
    kernel: Builtin,
    profile: Option<Quantized>,
    descales: Fault,
}

impl Subject for Lying {
    fn name(&self) -> &str {
        self.kernel.name()
    }

    fn description(&self) -> &str {
        self.kernel.description()
    }

    fn profile(&mut self, format: Format) -> Result<Profile, Failure> {
        match &self.profile {
            None => self.kernel.profile(format),
            Some(declared) => Ok(declared.profile(format)),
        }
    }

    fn choices(&self) -> flashproof_conformance::adapter::Choices {
        self.kernel.choices()
    }

    fn forward(&mut self, problem: &Problem, inputs: &Inputs) -> Result<Outputs, Failure> {
        let given = inputs.descale.clone();
        let descale = given.map(|descales| (self.descales)(problem, descales));
        self.kernel.forward(problem, &Inputs { descale, ..inputs.clone() })
    }

    fn backward(
        &mut self,
        problem: &Problem,
        inputs: &Inputs,
        cotangents: &Cotangents,
    ) -> Result<Backward, Failure> {
        self.kernel.backward(problem, inputs, cotangents)
    }
}
