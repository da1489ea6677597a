//! The suite's cases of the backward pass: no false alarm on correct kernels, and no case that passes
//! whatever comes.

mod support;

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroUsize;

use flashproof_conformance::adapter::builtin::Builtin;
use flashproof_conformance::adapter::{Backward, Failure};
use flashproof_conformance::case::{Case, FORMATS};
use flashproof_conformance::inputs::Upstream;
use flashproof_conformance::report::CaseReport;
use flashproof_conformance::run::run;
use flashproof_conformance::suite::{DEFAULT_SEED, Direction, Suite, cases};
use flashproof_conformance::verdict::{Quantity, Verdict};
use flashproof_kernels::cpu::{Naive, Tiled};
use flashproof_spec::clause;
use flashproof_spec::format::Format;
use flashproof_spec::tensor::{Gradients, Tensor};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use support::backward::TamperedBackward;
use support::map;
use support::random::case_of_few_entries;

/// Those that every problem has.
const GRADIENTS: [Quantity; 3] =
    [Quantity::QueryGradient, Quantity::KeyGradient, Quantity::ValueGradient];

/// Those, and the ones of problems with a bias or sinks.
const ALL_GRADIENTS: [Quantity; 5] = [
    Quantity::QueryGradient,
    Quantity::KeyGradient,
    Quantity::ValueGradient,
    Quantity::BiasGradient,
    Quantity::SinkGradient,
];

fn backward(suite: Suite, formats: &[Format]) -> Vec<Case> {
    let mut cases = cases(suite, formats, DEFAULT_SEED);
    cases.retain(|case| Direction::Backward.includes(case));
    cases
}

#[test]
fn a_direction_is_a_part_of_the_cases_and_both_are_all() {
    let all = cases(Suite::Quick, &FORMATS, DEFAULT_SEED);
    let count = |direction: Direction| all.iter().filter(|case| direction.includes(case)).count();
    let (forward, backward) = (count(Direction::Forward), count(Direction::Backward));
    assert!(forward > 0 && backward > 0);
    assert_eq!((forward + backward, count(Direction::Both)), (all.len(), all.len()));
    for case in &all {
        let cites = case.clauses().iter().any(|id| id.contains(":bwd."));
        assert_eq!(cites, case.upstream.is_some(), "{}", case.name);
        assert!(case.clauses().iter().all(|id| clause::find(id).is_some()), "{}", case.name);
    }
}

#[test]
fn conditions_of_the_forward_pass_occur_in_the_backward_pass() {
    for format in FORMATS {
        let cases = backward(Suite::Quick, &[format]);
        let seen = |of: fn(&Case) -> usize| cases.iter().map(of).collect::<BTreeSet<_>>();
        assert!(seen(|case| case.problem.query_len).is_superset(&BTreeSet::from([1, 3, 64, 65])));
        assert!(
            seen(|case| case.problem.key_len).is_superset(&BTreeSet::from([1, 3, 64, 65, 129]))
        );
        let dims = BTreeSet::from([1, 8, 40, 72, 104, 128, 256]);
        assert!(seen(|case| case.problem.head_dim).is_superset(&dims), "{format}");
        assert!(seen(|case| case.problem.mask.rules.len()).is_superset(&BTreeSet::from([0, 1, 2])));
        assert!(cases.iter().any(|it| it.problem.value_dim != it.problem.head_dim));
        assert!(cases.iter().any(|it| it.problem.query_heads == 6 && it.problem.key_heads == 2));
        for upstream in Upstream::ALL {
            assert!(cases.iter().any(|it| it.upstream == Some(upstream)), "{format} {upstream:?}");
        }
    }
}

#[test]
fn upstream_gradients_vary_and_depend_on_the_seed() {
    let cases = backward(Suite::Quick, &FORMATS);
    for case in cases.into_iter().filter(|case| case.problem.query_len > 0) {
        let drawn = case.cotangents(Format::F32).expect("a case of the backward pass");
        assert_eq!(drawn.check(&case.problem, Format::F32), Ok(()), "{}", case.name);
        assert_eq!(case.cotangents(Format::F32).as_ref(), Some(&drawn));
        let reseeded = Case { seed: case.seed + 1, ..case.clone() };
        assert_ne!(reseeded.cotangents(Format::F32).as_ref(), Some(&drawn), "{}", case.name);
        let first = drawn.output.values().first().copied();
        let constant = drawn.output.values().iter().all(|&entry| Some(entry) == first);
        assert_eq!(constant, drawn.output.values().len() == 1, "{}", case.name);
        assert_eq!(drawn.lse.is_some(), case.upstream == Some(Upstream::OutputAndLse));
        let lse = drawn.lse.iter().flat_map(Tensor::values);
        assert!({ lse }.all(|&entry| entry != 0.0), "{}", case.name);
    }
}

fn passes(kernel: &str, formats: &[Format]) {
    let mut subject = Builtin::open(kernel).unwrap();
    for report in run(&mut subject, Suite::Quick, &backward(Suite::Quick, formats), |_| ()).unwrap()
    {
        assert_eq!(report.verdict, Verdict::Pass, "{report:#?}");
    }
}

#[test]
fn the_tiled_kernel_passes() {
    passes("tiled", &[Format::F32, Format::F16]);
}

#[test]
fn the_naive_kernel_passes() {
    passes("naive", &[Format::F64, Format::Bf16]);
}

/// Any tiling of a correct kernel passes: block sizes, shapes, masks and data are drawn at random.
#[test]
fn no_false_alarm_in_a_million_gradient_elements() {
    const ELEMENTS: usize = 1_000_000;
    const LONGEST_BLOCK: usize = 97;
    const FIRST_SEED: u64 = 20_261_130;
    let mut elements = 0;
    let mut worst = BTreeMap::<(Format, Quantity), f64>::new();
    let mut seed = FIRST_SEED;
    while elements < ELEMENTS {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let mut block = || NonZeroUsize::new(rng.random_range(1..=LONGEST_BLOCK)).unwrap();
        let mut subject = if seed.is_multiple_of(4) {
            Builtin::new(Box::new(Naive))
        } else {
            Builtin::new(Box::new(Tiled::new(block(), block())))
        };
        let cases: Vec<_> = FORMATS
            .iter()
            .map(|&format| {
                let case = case_of_few_entries(format, seed, &mut rng);
                case.with_upstream(Upstream::ALL[rng.random_range(0..Upstream::ALL.len())])
            })
            .collect();
        for report in run(&mut subject, Suite::Quick, &cases, |_| ()).unwrap() {
            // Huge data can leave the range of a format; then nothing is proven.
            let alarm = report.verdict == Verdict::Fail;
            assert!(!alarm && report.no_answer.is_none(), "seed {seed}: {report:#?}");
            for quantity in GRADIENTS {
                let measured = report.of(quantity).expect("a backward pass");
                elements += measured.elements - measured.unbounded;
                if let Some(element) = &measured.worst {
                    let held = worst.entry((report.problem.format, quantity)).or_default();
                    *held = held.max(element.ratio);
                }
            }
        }
        seed += 1;
    }
    println!("seeds {FIRST_SEED}..{seed}, {elements} elements, largest ratios {worst:?}");
}

/// What the suite makes of a kernel some of whose gradients are zero.
fn zeroed(format: Format, which: &'static [Quantity]) -> Vec<CaseReport> {
    let mut subject = TamperedBackward::new("naive", move |backward: Backward| {
        let Backward { outputs, gradients } = backward;
        let Gradients { query, key, value, bias, sink } = gradients;
        let zero = |quantity, tensor| {
            if which.contains(&quantity) { map(&tensor, |_| 0.0) } else { tensor }
        };
        let gradients = Gradients {
            query: zero(Quantity::QueryGradient, query),
            key: zero(Quantity::KeyGradient, key),
            value: zero(Quantity::ValueGradient, value),
            bias: bias.map(|bias| zero(Quantity::BiasGradient, bias)),
            sink: sink.map(|sink| zero(Quantity::SinkGradient, sink)),
        };
        Ok::<_, Failure>(Backward { outputs, gradients })
    });
    let mut cases = backward(Suite::Quick, &[format]);
    cases.retain(|case| case.check.is_none());
    run(&mut subject, Suite::Quick, &cases, |_| ()).unwrap()
}

/// Whether some query of the problem sees some key.
fn sees_any(report: &CaseReport) -> bool {
    let problem = &report.problem;
    let [batch, heads, queries] = problem.lse_shape();
    ndarray::indices((batch, heads, queries))
        .into_iter()
        .any(|(batch, head, query)| !problem.visible_keys(batch, head, query).is_empty())
}

/// Zeros are what a kernel that was never launched gives, and right only where no query sees a key.
#[test]
fn gradients_of_zeros_fail_every_case() {
    for report in zeroed(Format::Bf16, &ALL_GRADIENTS) {
        let expected = if sees_any(&report) { Verdict::Fail } else { Verdict::Pass };
        assert_eq!(report.verdict, expected, "{}", report.name);
    }
}

/// Each gradient alone too, wherever the exact one is large enough to tell from zero; on most cases
/// it is.
#[test]
fn one_gradient_of_zeros_fails_most_cases() {
    for which in
        [&[Quantity::QueryGradient][..], &[Quantity::KeyGradient], &[Quantity::ValueGradient]]
    {
        let reports = zeroed(Format::F16, which);
        let failing = reports.iter().filter(|report| report.verdict == Verdict::Fail).count();
        println!("{which:?} of zeros: {failing} of {} cases fail", reports.len());
        assert!(2 * failing > reports.len(), "{which:?}: {failing} of {}", reports.len());
        for report in reports {
            for quantity in GRADIENTS.into_iter().filter(|it| !which.contains(it)) {
                assert_eq!(report.of(quantity).expect("a backward pass").wrong, 0);
            }
        }
    }
}
