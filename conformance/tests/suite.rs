//! The suite put to kernels: no false alarm on correct ones, and no case that passes whatever comes.

mod support;

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroUsize;

use flashproof_conformance::adapter::builtin::Builtin;
use flashproof_conformance::case::{Case, FORMATS};
use flashproof_conformance::report::CaseReport;
use flashproof_conformance::run::run;
use flashproof_conformance::suite::{
    DEFAULT_SEED, Direction, Feature, Suite, cases, with_features,
};
use flashproof_conformance::verdict::Verdict;
use flashproof_kernels::cpu::Tiled;
use flashproof_spec::format::Format;
use flashproof_spec::tensor::{Outputs, Tensor};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use support::random::case_of_few_entries;
use support::{Tampered, map};

/// The cases of the forward pass; `gradient_suite.rs` has those of the backward pass.
fn forward(formats: &[Format]) -> Vec<Case> {
    let mut cases = cases(Suite::Quick, formats, DEFAULT_SEED);
    cases.retain(|case| Direction::Forward.includes(case));
    cases
}

fn passes(kernel: &str, formats: &[Format]) {
    let mut subject = Builtin::open(kernel).unwrap();
    let cases = forward(formats);
    for report in run(&mut subject, Suite::Quick, &cases, |_| ()).unwrap() {
        assert_eq!(report.verdict, Verdict::Pass, "{report:#?}");
    }
}

#[test]
fn the_tiled_kernel_passes() {
    passes("tiled", &FORMATS);
}

/// The formats with an accumulator of their own and with another one.
#[test]
fn the_naive_kernel_passes() {
    passes("naive", &[Format::F64, Format::Bf16]);
}

/// Any tiling of a correct kernel passes: block sizes, shapes, masks and data are drawn at random.
#[test]
fn no_false_alarm_in_half_a_million_elements() {
    const ELEMENTS: usize = 500_000;
    const LONGEST_BLOCK: usize = 257;
    const FIRST_SEED: u64 = 20_261_129;
    let mut elements = 0;
    let mut worst = BTreeMap::<Format, f64>::new();
    let mut seed = FIRST_SEED;
    while elements < ELEMENTS {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let mut block = || NonZeroUsize::new(rng.random_range(1..=LONGEST_BLOCK)).unwrap();
        let mut subject = Builtin::new(Box::new(Tiled::new(block(), block())));
        let cases: Vec<_> =
            FORMATS.iter().map(|&it| case_of_few_entries(it, seed, &mut rng)).collect();
        for report in run(&mut subject, Suite::Quick, &cases, |_| ()).unwrap() {
            assert_eq!(report.verdict, Verdict::Pass, "seed {seed}: {report:#?}");
            elements += report.output.elements + report.lse.map_or(0, |lse| lse.elements);
            if let Some(element) = report.output.worst {
                let held = worst.entry(report.problem.format).or_default();
                *held = held.max(element.ratio);
            }
        }
        seed += 1;
    }
    println!("seeds {FIRST_SEED}..{seed}, {elements} elements, largest output ratios {worst:?}");
}

/// What the cases of some formats that have an exact answer make of a kernel whose output is replaced,
/// value by value, and its LSE too where asked.
fn replaced(formats: &[Format], value: f64, lse_too: bool) -> Vec<CaseReport> {
    let mut subject = Tampered::new("naive", move |_, _, outputs: Outputs| {
        let replace = |tensor: &Tensor| map(tensor, |_| value);
        let lse = if lse_too { outputs.lse.as_ref().map(replace) } else { outputs.lse };
        Ok(Outputs { output: replace(&outputs.output), lse })
    });
    let mut cases = forward(formats);
    cases.retain(|case| case.check.is_none());
    run(&mut subject, Suite::Quick, &cases, |_| ()).unwrap()
}

/// Zeros are the answer of a kernel that was never launched, and right only where no row sees a key:
/// in every case of plain attention, and in most of the others, where a sink may leave next to no
/// weight for keys, or dropout none.
#[test]
fn zero_outputs_fail_though_the_lse_is_right() {
    for format in [Format::F32, Format::Bf16] {
        let all: Vec<_> = forward(&[format]);
        let modified: BTreeSet<_> = Feature::ALL
            .into_iter()
            .flat_map(|feature| with_features(all.clone(), &[feature]))
            .map(|case| case.name)
            .collect();
        let mut missed = Vec::new();
        for report in replaced(&[format], 0.0, false) {
            if !sees_any(&report) {
                assert_eq!(report.verdict, Verdict::Pass, "{}", report.name);
            } else if report.verdict != Verdict::Fail {
                assert!(modified.contains(&report.name), "{}", report.name);
                missed.push(report.name);
            }
        }
        println!(
            "{format}: zeros pass {} of {} modified cases: {missed:#?}",
            missed.len(),
            modified.len()
        );
        assert!(missed.len() * 50 < modified.len(), "{format}: {missed:#?}");
    }
}

/// Whether the mask lets some query see some key.
fn sees_any(report: &CaseReport) -> bool {
    let problem = &report.problem;
    let [batch, heads, queries] = problem.lse_shape();
    ndarray::indices((batch, heads, queries))
        .into_iter()
        .any(|(batch, head, query)| !problem.visible_keys(batch, head, query).is_empty())
}

#[test]
fn nan_fails_every_case_but_those_that_are_all_nan() {
    for report in replaced(&[Format::F16], f64::NAN, true) {
        let all_nan = report.name.ends_with("26-nan-query-becomes-zero");
        let right = all_nan || report.output.elements == 0;
        let expected = if right { Verdict::Pass } else { Verdict::Fail };
        assert_eq!(report.verdict, expected, "{}", report.name);
    }
}
