//! The suite: sound cases, no false alarm on correct kernels, and no case that passes whatever comes.

mod support;

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::num::NonZeroUsize;

use flashproof_conformance::adapter::builtin::Builtin;
use flashproof_conformance::case::{Case, FORMATS};
use flashproof_conformance::inputs::{Scores, Values};
use flashproof_conformance::report::CaseReport;
use flashproof_conformance::run::run;
use flashproof_conformance::suite::{DEFAULT_SEED, Direction, Suite, cases, is_match, matching};
use flashproof_conformance::verdict::Verdict;
use flashproof_kernels::cpu::Tiled;
use flashproof_spec::clause;
use flashproof_spec::format::Format;
use flashproof_spec::tensor::{Outputs, Tensor};
use proptest::prelude::*;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use support::random::case_of_few_entries;
use support::{Tampered, map};

fn all(suite: Suite) -> Vec<Case> {
    cases(suite, &FORMATS, DEFAULT_SEED)
}

#[test]
fn cases_can_be_drawn_and_cite_clauses_that_exist() {
    for case in [all(Suite::Quick), all(Suite::Full)].concat() {
        assert_eq!(case.problem.validate(), Ok(()), "{}", case.name);
        assert_eq!(case.family.fits(&case.problem), Ok(()), "{}", case.name);
        assert!(!case.why.is_empty(), "{} says not why", case.name);
        assert!(!case.name.contains(char::is_whitespace), "{}", case.name);
        for id in case.clauses() {
            assert!(clause::find(id).is_some(), "{} cites unknown clause {id}", case.name);
        }
    }
}

#[test]
fn names_are_unique_and_find_their_case() {
    for suite in [Suite::Quick, Suite::Full] {
        let all = all(suite);
        let names: HashSet<_> = all.iter().map(|case| &case.name).collect();
        assert_eq!(names.len(), all.len());
        for case in &all {
            assert!(is_match(case, &case.name), "{}", case.name);
        }
        assert_eq!(matching(all.clone(), &[all[7].name.clone()]), [all[7].clone()]);
    }
}

#[test]
fn every_level_of_every_dimension_occurs_in_every_format() {
    for format in FORMATS {
        let cases = cases(Suite::Full, &[format], DEFAULT_SEED);
        let seen = |of: fn(&Case) -> usize| cases.iter().map(of).collect::<BTreeSet<_>>();
        let lengths = BTreeSet::from([1, 2, 3, 5, 17, 63, 64, 65, 127, 257]);
        assert!(seen(|case| case.problem.query_len).is_superset(&lengths), "{format}");
        assert!(seen(|case| case.problem.key_len).is_superset(&lengths), "{format}");
        let dims = BTreeSet::from([1, 8, 40, 64, 72, 112, 128, 256]);
        assert!(seen(|case| case.problem.head_dim).is_superset(&dims), "{format}");
        assert!(cases.iter().any(|it| it.problem.value_dim < it.problem.head_dim));
        assert!(cases.iter().any(|it| it.problem.value_dim > it.problem.head_dim));
        assert!(cases.iter().any(|it| it.problem.query_heads == 6 && it.problem.key_heads == 2));
        assert!(cases.iter().any(|it| it.problem.batch > 1));
        for scores in Scores::ALL {
            let fits = cases.iter().any(|case| case.family.scores == scores);
            let beyond = matches!(scores, Scores::All133120 | Scores::One133120);
            assert_eq!(fits, format != Format::F16 || !beyond, "{format} {scores:?}");
        }
        for values in Values::ALL {
            assert!(cases.iter().any(|case| case.family.values == values), "{format} {values:?}");
        }
    }
}

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

/// What the cases of some formats make of a kernel whose output is replaced, value by value, and its
/// LSE too where asked.
fn replaced(formats: &[Format], value: f64, lse_too: bool) -> Vec<CaseReport> {
    let mut subject = Tampered::new("naive", move |_, _, outputs: Outputs| {
        let replace = |tensor: &Tensor| map(tensor, |_| value);
        let lse = if lse_too { outputs.lse.as_ref().map(replace) } else { outputs.lse };
        Ok(Outputs { output: replace(&outputs.output), lse })
    });
    run(&mut subject, Suite::Quick, &forward(formats), |_| ()).unwrap()
}

/// Zeros are the answer of a kernel that was never launched, and right only without any key.
#[test]
fn zero_outputs_fail_every_case_though_the_lse_is_right() {
    for report in replaced(&[Format::F32, Format::Bf16], 0.0, false) {
        let right = report.problem.key_len == 0;
        let expected = if right { Verdict::Pass } else { Verdict::Fail };
        assert_eq!(report.verdict, expected, "{}", report.name);
    }
}

#[test]
fn nan_fails_every_case_but_those_that_are_all_nan() {
    for report in replaced(&[Format::F16], f64::NAN, true) {
        let all_nan = report.name.ends_with("26-nan-query-becomes-zero");
        let expected = if all_nan { Verdict::Pass } else { Verdict::Fail };
        assert_eq!(report.verdict, expected, "{}", report.name);
    }
}

proptest! {
    #[test]
    fn patterns_never_panic(pattern in ".{0,30}") {
        let _ = matching(cases(Suite::Quick, &[Format::F32], DEFAULT_SEED), &[pattern]);
    }
}
