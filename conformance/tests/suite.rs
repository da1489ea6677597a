//! The suite put to correct kernels: no false alarm. `trivial.rs` has what is to fail.

mod support;

use std::collections::BTreeMap;
use std::num::NonZeroUsize;

use flashproof_conformance::adapter::builtin::Builtin;
use flashproof_conformance::case::{Case, FORMATS};
use flashproof_conformance::run::run;
use flashproof_conformance::suite::{DEFAULT_SEED, Direction, Suite, cases};
use flashproof_conformance::verdict::Verdict;
use flashproof_kernels::cpu::Tiled;
use flashproof_spec::format::Format;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use support::random::case_of_few_entries;

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
