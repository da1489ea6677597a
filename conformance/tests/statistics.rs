//! Tests by probability: correct kernels are not rejected, biased ones are, and where the model of
//! independent roundings fails the tests are not made.

mod support;

use std::collections::BTreeMap;
use std::num::NonZeroUsize;

use flashproof_conformance::adapter::builtin::Builtin;
use flashproof_conformance::adapter::{Choices, Subject};
use flashproof_conformance::case::{Case, FORMATS};
use flashproof_conformance::inputs::{Family, Scores, Values};
use flashproof_conformance::report::CaseReport;
use flashproof_conformance::run::{Tests, run, run_with};
use flashproof_conformance::statistics::{
    NotApplicable, Statistics, Summary, Tested, not_applicable, test,
};
use flashproof_conformance::suite::{DEFAULT_SEED, Suite, cases};
use flashproof_conformance::verdict::{Answer, Verdict, judge_rows};
use flashproof_kernels::Kernel;
use flashproof_kernels::cpu::{Naive, Tiled};
use flashproof_oracle::forward::{Options, Oracle};
use flashproof_oracle::row::RowIndex;
use flashproof_spec::bound::{self, Bound};
use flashproof_spec::format::Format;
use flashproof_spec::problem::{Problem, Scale};
use flashproof_spec::profile::{Accumulation, Profile, Schedule};
use flashproof_spec::tensor::{Inputs, Outputs, Tensor};
use ndarray::{Array3, Array4, s};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use support::Tampered;

const STATISTICAL: Tests = Tests { statistical: true };

fn judged(subject: &mut dyn Subject, case: &Case) -> CaseReport {
    let cases = std::slice::from_ref(case);
    run_with(subject, Suite::Quick, cases, STATISTICAL, |_| ()).unwrap().remove(0)
}

fn tested(report: &CaseReport) -> &Tested {
    match report.statistics.as_ref().expect("tests that were asked for") {
        Statistics::Tested(tested) => tested,
        Statistics::NotApplicable(reason) => panic!("{}: {reason}", report.name),
    }
}

fn blocks(queries: usize, keys: usize) -> Tiled {
    let block = |size| NonZeroUsize::new(size).unwrap();
    Tiled::new(block(queries), block(keys))
}

/// Independent data of several shapes, in every format, through several tilings.
#[test]
fn correct_kernels_are_never_rejected() {
    const ELEMENTS: usize = 400_000;
    const FIRST_SEED: u64 = 20_261_201;
    let families = [
        Family::of(Scores::Normal),
        Family { scores: Scores::Normal, values: Values::Positive },
        Family::of(Scores::Large),
    ];
    let mut summary = Summary::default();
    // Of the formats in which no single rounding dominates.
    let (mut wide, mut worst_case) = (Summary::default(), 0.0_f64);
    let mut seed = FIRST_SEED;
    while summary.elements < ELEMENTS {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let kernels: [Box<dyn Kernel>; 3] =
            [Box::new(Naive), Box::new(blocks(16, 48)), Box::new(blocks(64, 17))];
        let kernel = kernels.into_iter().nth(rng.random_range(0..3)).expect("one of three");
        let mut subject = Builtin::new(kernel);
        for format in FORMATS {
            let mut problem = Problem::new(format, 2, 96, rng.random_range(8..=32));
            (problem.key_len, problem.value_dim) = (rng.random_range(24..=160), 64);
            let family = families[rng.random_range(0..families.len())];
            let report = judged(&mut subject, &Case::new(problem, family, None, seed));
            assert_eq!(report.verdict, Verdict::Pass, "seed {seed}: {report:#?}");
            tested(&report);
            let statistics = report.statistics.as_ref().expect("tested");
            summary.add(statistics);
            if matches!(format, Format::F64 | Format::F32) {
                wide.add(statistics);
                let worst = report.output.worst.expect("elements");
                worst_case = worst_case.max(worst.ratio);
            }
        }
        seed += 1;
    }
    println!("seeds {FIRST_SEED}..{seed}: {summary:#?}");
    assert_eq!((summary.rejected, summary.means_rejected), (0, 0));
    // Nearer to its bound than to the worst case, and not near it.
    println!(
        "f64 and f32: {:.4} of the bound, {worst_case:.4} of the worst case",
        wide.worst_ratio
    );
    assert!(wide.worst_ratio > worst_case);
}

/// How a simulated kernel forms one row, in `f64` but for what is said here.
struct Simulated {
    /// How a weight is rounded before it meets the values.
    weight: fn(f64) -> f64,
    /// How each partial sum of the numerator is.
    partial: fn(f64) -> f64,
    /// Whether the normalizer sums the rounded weights.
    rounded_normalizer: bool,
}

impl Simulated {
    fn forward(&self, problem: &Problem, inputs: &Inputs, lse_format: Format) -> Outputs {
        let (query, key, value) = (inputs.query.view4(), inputs.key.view4(), inputs.value.view4());
        let mut output = Array4::zeros(problem.output_shape());
        let mut lse = Array3::zeros(problem.lse_shape());
        for (b, h, q) in ndarray::indices(problem.lse_shape()) {
            let query = query.slice(s![b, h, q, ..]);
            let scores: Vec<f64> = (0..problem.key_len)
                .map(|k| problem.scale_f64() * query.dot(&key.slice(s![b, h, k, ..])))
                .collect();
            let max = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            let exact: Vec<f64> = scores.iter().map(|score| (score - max).exp()).collect();
            let weights: Vec<f64> = exact.iter().map(|&weight| (self.weight)(weight)).collect();
            let normalizer: f64 =
                if self.rounded_normalizer { weights.iter().sum() } else { exact.iter().sum() };
            for j in 0..problem.value_dim {
                let terms =
                    weights.iter().enumerate().map(|(k, weight)| weight * value[[b, h, k, j]]);
                let numerator = terms.fold(0.0, |sum, term| (self.partial)(sum + term));
                output[[b, h, q, j]] = numerator / normalizer;
            }
            lse[[b, h, q]] = max + exact.iter().sum::<f64>().ln();
        }
        Outputs {
            output: Tensor::rounded(problem.format, &output.into_dyn()),
            lse: Some(Tensor::rounded(lse_format, &lse.into_dyn())),
        }
    }
}

const fn exact(x: f64) -> f64 {
    x
}

fn nearest_bf16(x: f64) -> f64 {
    Format::Bf16.round(x)
}

/// Towards zero, to the precision of the format; weights here are far above its smallest number.
fn truncated(x: f64, format: Format) -> f64 {
    let below = f64::MANTISSA_DIGITS - format.precision();
    f64::from_bits(x.to_bits() >> below << below)
}

fn truncated_bf16(x: f64) -> f64 {
    truncated(x, Format::Bf16)
}

fn truncated_f32(x: f64) -> f64 {
    truncated(x, Format::F32)
}

/// Elements wrong at the worst-case bound.
fn wrong(answer: &Answer<'_>) -> usize {
    let tally = judge_rows(answer, &answer.every_row(), |_| ()).unwrap();
    tally.output.wrong + tally.lse.wrong
}

/// `f32` with weights in `bf16`, normalizer of unrounded weights.
fn mixed() -> Profile {
    Profile { weight_format: Format::Bf16, ..Profile::standard(Format::F32) }
}

/// Rows whose keys have equal scores but for one that is above: their weight is `1/2 + t/2^9`, which rounds
/// down to 1/2, for a `t` of each row's own.
fn tied(keys: usize, ts: &[f64]) -> (Problem, Inputs) {
    let mut problem = Problem::new(Format::F32, 1, keys, 1);
    (problem.query_len, problem.scale) = (ts.len(), Scale::Value(1.0));
    let tensor = |len: usize, values: Vec<f64>| {
        Tensor::rounded_from(Format::F32, &[1, 1, len, 1], values).unwrap()
    };
    let queries = ts.iter().map(|t| -(0.5 + t * 2f64.powi(-9)).ln()).collect();
    let of_keys = (0..keys).map(|key| if key == 0 { 0.0 } else { -1.0 }).collect();
    let query = tensor(ts.len(), queries);
    let inputs = Inputs::new(query, tensor(keys, of_keys), tensor(keys, vec![1.0; keys]));
    (problem, inputs)
}

/// Every weight is rounded alike, so their errors add up and do not average out: three times over the
/// bound at 400 keys, and more at more.
#[test]
fn identical_keys_but_one_leave_the_bound() {
    const KEYS: usize = 400;
    const TIMES: f64 = 2.9;
    let (problem, inputs) = tied(KEYS, &[0.999]);
    let profile = mixed();
    let kernel = Simulated { weight: nearest_bf16, partial: exact, rounded_normalizer: false };
    let outputs = kernel.forward(&problem, &inputs, Format::F32);
    let choices = Choices::default();
    let answer = Answer {
        problem: &problem,
        inputs: &inputs,
        outputs: &outputs,
        profile: &profile,
        choices,
    };
    assert_eq!(wrong(&answer), 0);
    let sample = test(&answer).unwrap().output;
    let ratio = sample.worst.expect("an element").ratio;
    println!("{ratio:.2} times the bound");
    assert!(ratio > TIMES, "{ratio}");
    // So it is not asked of such data, whoever draws it.
    let ties = Family { scores: Scores::Ties, values: Values::Ones };
    let case = Case::new(problem.clone(), ties, None, 1);
    assert_eq!(not_applicable(&case, &inputs, &profile), Some(NotApplicable::Structured));
    let case = Case::new(problem, Family::of(Scores::Normal), None, 1);
    assert_eq!(not_applicable(&case, &inputs, &profile), Some(NotApplicable::EqualKeys));
}

/// Truncated partial sums of positive terms all err to one side: several times over the bound at 65,536
/// keys, if a kernel that truncates were taken to round.
#[test]
fn a_truncating_accumulator_leaves_the_bound() {
    const KEYS: usize = 65_536;
    const TIMES: f64 = 6.0;
    let mut problem = Problem::new(Format::F32, 1, KEYS, 4);
    problem.query_len = 1;
    let family = Family { scores: Scores::Normal, values: Values::Positive };
    let case = Case::new(problem.clone(), family, None, 1);
    let inputs = case.inputs().unwrap();
    let kernel = Simulated { weight: exact, partial: truncated_f32, rounded_normalizer: false };
    let outputs = kernel.forward(&problem, &inputs, Format::F32);
    let rounds = Profile { schedule: Schedule::Dense, ..Profile::standard(Format::F32) };
    let choices = Choices::default();
    let answer =
        Answer { problem: &problem, inputs: &inputs, outputs: &outputs, profile: &rounds, choices };
    assert_eq!(wrong(&answer), 0);
    let sample = test(&answer).unwrap().output;
    let ratio = sample.worst.expect("an element").ratio;
    println!("{ratio:.2} times the bound");
    assert!(ratio > TIMES, "{ratio}");
    // Declared as what it is, it is not asked.
    let truncates = Profile {
        value_accumulation: Accumulation::TensorCore {
            chunk: 16,
            fraction_bits: 24,
            output_bits: 23,
        },
        ..rounds
    };
    assert_eq!(not_applicable(&case, &inputs, &truncates), Some(NotApplicable::Truncation));
}

/// Weights that are cut off instead of rounded stay within every element's bound, and shrink every
/// output.
#[test]
fn truncated_weights_are_caught_by_their_mean() {
    let profile = Profile::standard(Format::Bf16);
    for (values, queries) in [(Values::Positive, 64), (Values::Normal, 1200)] {
        let mut problem = Problem::new(Format::Bf16, 1, 48, 16);
        problem.query_len = queries;
        let family = Family { scores: Scores::Normal, values };
        let case = Case::new(problem, family, None, 1);
        let run_as = |weight: fn(f64) -> f64| {
            let kernel = Simulated { weight, partial: exact, rounded_normalizer: false };
            let mut subject =
                Tampered::new("naive", move |problem: &Problem, inputs: &Inputs, _| {
                    Ok(kernel.forward(problem, inputs, Format::F32))
                })
                .computing(profile.clone());
            // By the worst-case bounds it passes.
            let cases = std::slice::from_ref(&case);
            let hard = run(&mut subject, Suite::Quick, cases, |_| ()).unwrap().remove(0);
            assert_eq!(hard.verdict, Verdict::Pass, "{hard:#?}");
            judged(&mut subject, &case)
        };
        let rounded = run_as(nearest_bf16);
        assert_eq!(rounded.verdict, Verdict::Pass, "{rounded:#?}");
        let cut = run_as(truncated_bf16);
        let mean = tested(&cut).output.mean().expect("elements");
        println!("{}: mean {:.3e}, {:.2} times its bound", values.name(), mean.mean, mean.ratio);
        let violated: Vec<_> = cut.violations.iter().map(|it| it.clause).collect();
        assert_eq!(
            (cut.verdict, &violated[..]),
            (Verdict::Fail, &["FAS:bound.fwd.mean-error"][..])
        );
        assert!(mean.mean < 0.0);
        assert!(cut.reproduce.ends_with("--statistical"), "{}", cut.reproduce);
    }
}

/// arXiv 2510.04212: the normalizer sums unrounded weights and the numerator rounded ones, and several
/// weights tie. Values of 1 show it. No element leaves its bound of either kind.
#[test]
fn unrounded_normalizers_under_ties_are_caught_by_their_mean() {
    const KEYS: usize = 64;
    let mut rng = ChaCha8Rng::seed_from_u64(1);
    let ts: Vec<f64> = (0..64).map(|_| rng.random_range(0.1..0.7)).collect();
    let (problem, inputs) = tied(KEYS, &ts);
    let profile = mixed();
    let choices = Choices::default();
    for (rounded_normalizer, rejected) in [(false, true), (true, false)] {
        let kernel = Simulated { weight: nearest_bf16, partial: exact, rounded_normalizer };
        let outputs = kernel.forward(&problem, &inputs, Format::F32);
        let answer = Answer {
            problem: &problem,
            inputs: &inputs,
            outputs: &outputs,
            profile: &profile,
            choices,
        };
        assert_eq!(wrong(&answer), 0);
        let sample = test(&answer).unwrap().output;
        let mean = sample.mean().expect("elements");
        println!("rounded {rounded_normalizer}: {:.2} times its bound", mean.ratio);
        assert_eq!((sample.rejected, mean.is_rejected()), (0, rejected));
    }
}

/// A bound of high probability is at most the worst case, and below it where sums are long.
#[test]
fn a_statistical_bound_is_never_above_the_worst_case() {
    for format in FORMATS {
        let mut problem = Problem::new(format, 1, 512, 64);
        problem.query_len = 3;
        let case = Case::new(problem.clone(), Family::of(Scores::Normal), None, 1);
        let inputs = case.inputs().unwrap();
        for profile in [Profile::standard(format), Profile::dense(format)] {
            let options = Options::new(profile.lse_format);
            let oracle = Oracle::new(&problem, &inputs, options).unwrap();
            for query in 0..problem.query_len {
                let index = RowIndex { batch: 0, head: 0, query };
                let row = oracle.row(index).unwrap();
                let condition = row.condition.expect("a row of numbers");
                let values = inputs.value.view4();
                let values = values.slice(s![0, 0, .., ..]);
                let hard = bound::forward(&problem, &profile, &condition, &values);
                let soft = bound::statistical(&problem, &profile, &condition, &values).unwrap();
                let pairs = hard.output.iter().zip(soft.output.iter().map(|it| it.bound));
                for (hard, soft) in pairs.chain([(&hard.lse, soft.lse.bound)]) {
                    let (&Bound::Within(hard), Bound::Within(soft)) = (hard, soft) else {
                        panic!("no bound");
                    };
                    assert!(soft < hard, "{format}: {soft:e} of {hard:e}");
                }
            }
        }
    }
}

/// Of the quick suite, what is not tested says why, and what is tested is independent data.
#[test]
fn the_suite_says_what_is_not_tested() {
    let cases = cases(Suite::Quick, &[Format::F32], DEFAULT_SEED);
    let profile = Profile::standard(Format::F32);
    let mut reasons = BTreeMap::<_, usize>::new();
    for case in &cases {
        let reason = not_applicable(case, &case.inputs().unwrap(), &profile);
        *reasons.entry(reason).or_default() += 1;
        if case.family.scores == Scores::Ties || case.family.values == Values::Ones {
            assert!(reason.is_some(), "{}", case.name);
        }
    }
    println!("{reasons:#?}");
    assert!(reasons[&None] > 10);
    let flushes = Profile { flush_to_zero: true, ..profile };
    let tested =
        cases.iter().any(|case| not_applicable(case, &case.inputs().unwrap(), &flushes).is_none());
    assert!(!tested);
}
