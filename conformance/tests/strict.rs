//! The strict gate: no false alarm on correct kernels, faults that the hard one misses, and a count of
//! what it does not take.

mod support;

use std::collections::BTreeMap;
use std::num::NonZeroUsize;

use flashproof_conformance::adapter::Choices;
use flashproof_conformance::adapter::builtin::Builtin;
use flashproof_conformance::case::{Case, FORMATS};
use flashproof_conformance::inputs::{BiasValues, Family, Modifiers, Scores, SinkValues, Upstream};
use flashproof_conformance::run::run;
use flashproof_conformance::suite::Suite;
use flashproof_conformance::verdict::{
    Answer, Measured, Quantity, StrictMeasured, Tally, Verdict, judge_rows,
};
use flashproof_kernels::builtin;
use flashproof_kernels::cpu::{Naive, Tiled};
use flashproof_kernels::mutant::{Kind, Mutant, Pass, mutants};
use flashproof_spec::format::Format;
use flashproof_spec::mask::{Alignment, Rule, Window};
use flashproof_spec::pattern::Pattern;
use flashproof_spec::problem::{Problem, Scale};
use flashproof_spec::score::{Alibi, Bias, Dropout, Sink, Slopes, Softcap, SoftcapOrder};
use flashproof_spec::tensor::Outputs;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use support::random::case_of_few_entries;

const FIRST_SEED: u64 = 20_261_129;

/// One of the items.
fn one<T: Clone>(rng: &mut ChaCha8Rng, items: &[T]) -> T {
    items[rng.random_range(0..items.len())].clone()
}

/// A case at random with score modifications and masks of every kind, few keys and wide values: so
/// that an element costs little.
fn random_case(format: Format, seed: u64, rng: &mut ChaCha8Rng) -> Case {
    let Case { mut problem, family, .. } = case_of_few_entries(format, seed, rng);
    let key_len = rng.random_range(1..=120);
    for rule in &mut problem.mask.rules {
        if let Rule::KeyLengths(lengths) = rule {
            for length in lengths.iter_mut() {
                *length = (*length).min(key_len);
            }
        }
    }
    (problem.key_len, problem.value_dim) = (key_len, rng.random_range(16..=160));
    if rng.random_bool(0.2) {
        let alignment = one(rng, &[Alignment::TopLeft, Alignment::BottomRight]);
        let side = |rng: &mut ChaCha8Rng| rng.random_bool(0.7).then(|| rng.random_range(0..90));
        let (left, right) = (side(rng), side(rng));
        problem.mask.rules.push(Rule::Window(Window { left, right, alignment }));
    }
    problem.scale =
        one(rng, &[Scale::InverseSqrtHeadDim, Scale::InverseSqrtHeadDim, Scale::Value(0.3)]);
    if rng.random_bool(0.2) {
        let order = one(rng, &[SoftcapOrder::BeforeBias, SoftcapOrder::AfterBias]);
        problem.softcap = Some(Softcap { cap: one(rng, &[1.0, 5.0, 30.0]), order });
    }
    let Problem { batch, query_heads, query_len, .. } = problem;
    if rng.random_bool(0.3) {
        let shape = one(rng, &[[1, 1, 1, key_len], [batch, query_heads, query_len, key_len]]);
        problem.bias = Some(Bias { shape, format });
    }
    if rng.random_bool(0.2) {
        let alignment = one(rng, &[Alignment::TopLeft, Alignment::BottomRight]);
        problem.alibi = Some(Alibi { slopes: Slopes::Standard, alignment });
    }
    if rng.random_bool(0.3) {
        problem.sink = Some(one(rng, &[Sink::Zero, Sink::Logits(format)]));
    }
    if rng.random_bool(0.1) {
        let keep =
            Pattern::from_fn([batch, query_heads, query_len, key_len], |_| rng.random_bool(0.8));
        let scale = if format == Format::F64 { 2.0 } else { 1.25 };
        problem.dropout = Some(Dropout { scale, keep });
    }
    let bias = [
        BiasValues::Normal,
        BiasValues::Ramp,
        BiasValues::MinusInfinity,
        BiasValues::Causal,
        BiasValues::MinusInfinityRows,
        BiasValues::Lowest,
        BiasValues::LowestRows,
    ];
    let sinks = [SinkValues::Normal, SinkValues::Twenty, SinkValues::High, SinkValues::Low];
    let modifiers = Modifiers { bias: one(rng, &bias), sink: one(rng, &sinks), wide: false };
    let family = if family.fits(&problem).is_ok() { family } else { Family::of(Scores::Normal) };
    Case::new(problem, family, None, seed).with_modifiers(modifiers)
}

/// What was judged, over all cases.
#[derive(Default)]
struct Count {
    /// Elements of every output, at the hard gate.
    hard: usize,
    /// Of each output and format: elements put to the strict gate, elements not, the largest ratio.
    strict: BTreeMap<(Format, Quantity), (usize, usize, f64)>,
}

impl Count {
    fn add(&mut self, format: Format, quantity: Quantity, measured: &Measured) {
        self.hard += measured.elements - measured.unbounded;
        let StrictMeasured { elements, not_applied, worst, .. } = &measured.strict;
        let (put, not, ratio) = self.strict.entry((format, quantity)).or_default();
        (*put, *not) = (*put + elements, *not + not_applied);
        *ratio = ratio.max(worst.as_ref().map_or(0.0, |worst| worst.ratio));
    }

    fn put(&self) -> usize {
        self.strict.values().map(|(put, ..)| put).sum()
    }
}

/// Correct kernels of any tiling pass both gates: shapes, masks, score modifications and data of all
/// families are drawn at random, in every format, forward and backward.
#[test]
fn no_false_alarm_in_two_million_elements() {
    const ELEMENTS: usize = 2_000_000;
    const LONGEST_BLOCK: usize = 70;
    let is_control = |it: &&Mutant| it.kind == Kind::Control && it.pass == Pass::Forward;
    let controls: Vec<_> = mutants().iter().filter(is_control).collect();
    let mut count = Count::default();
    let mut seed = FIRST_SEED;
    while count.hard < ELEMENTS {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let mut block = || NonZeroUsize::new(rng.random_range(1..=LONGEST_BLOCK)).unwrap();
        let mut subject = match seed % 5 {
            0 => Builtin::new(Box::new(Naive)),
            // Other correct kernels, whose forward pass is what they are about.
            1 if !seed.is_multiple_of(4) => {
                Builtin::new(controls[seed as usize % controls.len()].kernel())
            }
            _ => Builtin::new(Box::new(Tiled::new(block(), block()))),
        };
        let mut cases: Vec<_> =
            FORMATS.iter().map(|&format| random_case(format, seed, &mut rng)).collect();
        if seed.is_multiple_of(4) {
            let upstream = one(&mut rng, &Upstream::ALL);
            let small = |&format| case_of_few_entries(format, seed, &mut rng);
            let small: Vec<_> = FORMATS.iter().map(small).collect();
            cases.extend(small.into_iter().map(|case| case.with_upstream(upstream)));
            cases[seed as usize % FORMATS.len()] =
                cases[seed as usize % FORMATS.len()].clone().with_upstream(upstream);
        }
        for report in run(&mut subject, Suite::Quick, &cases, |_| ()).unwrap() {
            assert_eq!(report.violations, [], "seed {seed}: {report:#?}");
            for quantity in Quantity::ALL {
                if let Some(measured) = report.of(quantity) {
                    count.add(report.problem.format, quantity, measured);
                }
            }
        }
        seed += 1;
    }
    println!(
        "seeds {FIRST_SEED}..{seed}: {} elements, {} at the strict gate",
        count.hard,
        count.put()
    );
    for ((format, quantity), (put, not, ratio)) in &count.strict {
        println!("  {format} {quantity}: {put} put to it, {not} not, largest ratio {ratio}");
    }
    assert!(10 * count.put() > 8 * count.hard, "{} of {}", count.put(), count.hard);
}

/// The tally of the outputs alone that a kernel gives on normal inputs.
fn tally(kernel: &str, problem: &Problem, seed: u64) -> Tally {
    let case = Case::new(problem.clone(), Family::of(Scores::Normal), None, seed);
    let inputs = case.inputs().expect("inputs");
    let kernel = builtin(kernel).expect("a kernel");
    let outputs = kernel.forward(problem, &inputs).expect("an answer");
    let outputs = Outputs { lse: None, ..outputs };
    let profile = kernel.profile(problem.format);
    let choices = Choices::default();
    let answer = Answer { problem, inputs: &inputs, outputs: &outputs, profile: &profile, choices };
    judge_rows(&answer, &answer.every_row(), |_| ()).expect("a problem with its inputs")
}

/// Without the LSE, which shows most of these: of 15 inputs each, 512 keys.
#[test]
fn the_strict_gate_finds_what_the_hard_one_misses() {
    const RUNS: u64 = 15;
    for (kernel, dim) in [
        ("tiled", 64),
        ("mutant:acc-bf16", 64),
        ("mutant:scale-bf16", 112),
        ("mutant:exp-12bit", 64),
    ] {
        let mut problem = Problem::new(Format::Bf16, 1, 512, dim);
        problem.query_len = 16;
        let (mut hard, mut strict) = (0, 0);
        for seed in FIRST_SEED..FIRST_SEED + RUNS {
            let tally = tally(kernel, &problem, seed);
            let finds = |clause| tally.violations.iter().any(|it| it.clause == clause);
            hard += u64::from(finds("FAS:bound.fwd.output"));
            strict += u64::from(tally.output.wrong > 0);
            assert_eq!(tally.output.strict.not_applied, 0, "{kernel}, seed {seed}");
        }
        println!("{kernel}, seeds from {FIRST_SEED}: of {RUNS} runs, hard {hard}, strict {strict}");
        if kernel == "tiled" {
            assert_eq!(strict, 0);
        } else {
            assert!(strict > hard && 2 * strict > RUNS, "{kernel}: {hard}, {strict}");
        }
    }
}

/// Elements of an output that are within their hard bound and not put to the strict gate, of all.
fn not_applied(
    kernel: &str,
    problem: Problem,
    upstream: bool,
) -> BTreeMap<Quantity, (usize, usize)> {
    let case = Case::new(problem, Family::of(Scores::Normal), None, FIRST_SEED);
    let case = if upstream { case.with_upstream(Upstream::Output) } else { case };
    let mut subject = Builtin::open(kernel).expect("a built-in kernel");
    let reports = run(&mut subject, Suite::Quick, &[case], |_| ()).unwrap();
    assert_eq!(reports[0].verdict, Verdict::Pass);
    let counts = |quantity| {
        let measured = reports[0].of(quantity)?;
        let StrictMeasured { elements, not_applied, .. } = measured.strict;
        Some((quantity, (elements, not_applied)))
    };
    Quantity::ALL.into_iter().filter_map(counts).collect()
}

#[test]
fn what_the_gate_does_not_take_is_counted() {
    let problem = Problem { query_len: 4, ..Problem::new(Format::Bf16, 1, 70, 8) };
    let all = problem.output_shape().iter().product::<usize>();
    let dropout = Problem {
        dropout: Some(Dropout {
            scale: 2.0,
            keep: Pattern::from_fn([1, 1, 4, 70], |[_, _, _, key]| key % 3 > 0),
        }),
        ..problem.clone()
    };
    let outputs = |kernel, problem| not_applied(kernel, problem, false)[&Quantity::Output];
    assert_eq!(outputs("tiled", problem.clone()), (all, 0));
    assert_eq!(outputs("naive", problem.clone()), (all, 0));
    // Parts are merged, whose maxima are their own.
    assert_eq!(outputs("split", problem.clone()), (0, all));
    assert_eq!(outputs("tiled", dropout.clone()), (0, all));
    // Weights that are not rounded have no place where dropout would matter.
    assert_eq!(outputs("naive", dropout.clone()), (all, 0));
    let gradients = [Quantity::QueryGradient, Quantity::KeyGradient, Quantity::ValueGradient];
    let of = |problem: &Problem, quantity| match quantity {
        Quantity::QueryGradient => problem.query_shape(),
        Quantity::KeyGradient => problem.key_shape(),
        _ => problem.value_shape(),
    };
    let tiled = not_applied("tiled", problem.clone(), true);
    let dropped = not_applied("tiled", dropout.clone(), true);
    for quantity in gradients {
        let all = of(&problem, quantity).iter().product::<usize>();
        assert_eq!(tiled[&quantity], (all, 0), "{quantity}");
        let (put, not) = dropped[&quantity];
        // A key that dropout leaves out of every row has a gradient of value that is exactly zero.
        assert!(put == 0 && not > 0, "{quantity}: {put}, {not}");
    }
    // The gate takes neither LSE nor the gradients of bias and sinks.
    assert_eq!(tiled[&Quantity::Lse], (0, 0));
}
