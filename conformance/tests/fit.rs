//! `check --fit` on kernels that truly compute in less than they declare: it finds just that.

use std::num::NonZeroUsize;

use flashproof_conformance::adapter::builtin::Builtin;
use flashproof_conformance::case::Case;
use flashproof_conformance::fit::{Departure, Fit, Found, Gradient};
use flashproof_conformance::run::{Tests, run, run_and_fit};
use flashproof_conformance::suite::{DEFAULT_SEED, Direction, Suite, cases};
use flashproof_conformance::verdict::Verdict;
use flashproof_kernels::cpu::Tiled;
use flashproof_kernels::{Kernel, Unsupported, builtin};
use flashproof_spec::format::Format;
use flashproof_spec::problem::Problem;
use flashproof_spec::profile::{Carried, Profile};
use flashproof_spec::tensor::{Cotangents, Gradients, Inputs, Outputs};

/// One in so many of the small cases of one pass in f32, with one whose products leave the range of f16, and some of more
/// keys and queries than a tile has.
fn sampled(direction: Direction, every: usize) -> Vec<Case> {
    let mut cases = cases(Suite::Quick, &[Format::F32], DEFAULT_SEED);
    cases.retain(|case| direction.includes(case));
    let pairs = |case: &Case| case.problem.score_shape().iter().product::<usize>();
    let small = cases.iter().filter(|case| pairs(case) < 2000).step_by(every);
    let long = cases.iter().filter(|case| {
        let Problem { query_len, key_len, .. } = case.problem;
        query_len.max(key_len) > 64 && pairs(case) < 40_000
    });
    let long = long.step_by(every);
    let overflowing = cases.iter().filter(|case| case.bug == Some(33));
    small.chain(long).chain(overflowing).cloned().collect()
}

/// Enough to tell single departures apart.
const FEW: usize = 36;
/// Enough to tell pairs apart.
const MORE: usize = 12;

fn fit_of(kernel: Box<dyn Kernel>, direction: Direction, every: usize) -> Fit {
    let name = kernel.name().to_owned();
    let mut subject = Builtin::new(kernel);
    let (reports, fits) = run_and_fit(
        &mut subject,
        Suite::Quick,
        &sampled(direction, every),
        Tests::default(),
        |_| (),
    )
    .expect("a run");
    let failing = reports.iter().filter(|report| report.verdict == Verdict::Fail).count();
    let [fit] = &fits[..] else { panic!("{name}: one format fails, but there are {fits:?}") };
    assert_eq!((fit.format, fit.failing), (Format::F32, failing), "{name}");
    println!("{name}: {fit:?}");
    fit.clone()
}

fn mutant(name: &str, direction: Direction) -> Fit {
    fit_of(builtin(&format!("mutant:{name}")).expect("a mutant"), direction, FEW)
}

fn departures(fit: &Fit) -> &[Departure] {
    match &fit.found {
        Found::PassesIf { departures, .. } => departures,
        Found::Nothing { case } => panic!("nothing is found; {case:?} always fails"),
    }
}

#[test]
fn a_narrow_numerator_is_found() {
    let fit = mutant("acc-bf16", Direction::Forward);
    assert_eq!(departures(&fit), [Departure::CarriedNumerator(Format::Bf16)]);
}

#[test]
fn a_narrow_normalizer_is_found() {
    let fit = mutant("l-bf16", Direction::Forward);
    assert_eq!(departures(&fit), [Departure::CarriedNormalizer(Format::Bf16)]);
}

#[test]
fn products_summed_in_half_are_found() {
    let fit = mutant("qk-f16", Direction::Forward);
    assert_eq!(departures(&fit), [Departure::ScoreSums(Format::F16)]);
}

/// 12 bits rounded to nearest err by 2^-12, which is 2048 units of 2^-23; 16 bits cut off, by 2^-15,
/// which is 256.
#[test]
fn a_coarse_exponential_is_found_and_measured() {
    for (name, errs_by) in [("exp-12bit", 2048.0), ("exp-cut", 256.0)] {
        let fit = mutant(name, Direction::Forward);
        let [Departure::Exponential(ulp)] = *departures(&fit) else { panic!("{name}: {fit:?}") };
        // The error of the library's own exponential comes on top.
        let own = Profile::standard(Format::F32).exp_ulp;
        assert!(own < ulp && ulp <= 1.1 * (errs_by + own), "{name} by {ulp} ulp");
    }
}

#[test]
fn gradients_carried_in_bf16_are_found() {
    for (name, gradient) in [("dv-bf16-acc", Gradient::Value), ("dk-bf16-acc", Gradient::Key)] {
        let fit = mutant(name, Direction::Backward);
        let [Departure::CarriedGradient(found, Carried { format, block })] = *departures(&fit)
        else {
            panic!("{name}: {fit:?}")
        };
        assert_eq!((found, format), (gradient, Format::Bf16));
        // It is rounded after every 64 queries; that fewer roundings would do is no contradiction.
        assert!(block >= 64, "{name} in blocks of {block}");
    }
}

#[test]
fn a_fault_is_no_precision() {
    for name in ["drop-key", "sink-per-split", "empty-row-mean"] {
        let fit = mutant(name, Direction::Forward);
        assert!(matches!(fit.found, Found::Nothing { case: Some(_) }), "{name}: {fit:?}");
    }
}

/// The output of a kernel with a narrow numerator, and the LSE of one with a coarse exponential.
struct Two {
    numerator: Box<dyn Kernel>,
    exponential: Box<dyn Kernel>,
}

impl Kernel for Two {
    fn name(&self) -> &'static str {
        "two"
    }

    fn summary(&self) -> &'static str {
        "a narrow numerator and a coarse exponential"
    }

    fn profile(&self, format: Format) -> Profile {
        self.numerator.profile(format)
    }

    fn forward(&self, problem: &Problem, inputs: &Inputs) -> Result<Outputs, Unsupported> {
        let Outputs { output, .. } = self.numerator.forward(problem, inputs)?;
        Ok(Outputs { output, ..self.exponential.forward(problem, inputs)? })
    }

    fn backward(
        &self,
        problem: &Problem,
        inputs: &Inputs,
        outputs: &Outputs,
        cotangents: &Cotangents,
    ) -> Result<Gradients, Unsupported> {
        self.numerator.backward(problem, inputs, outputs, cotangents)
    }
}

#[test]
fn two_departures_are_found_together() {
    let open = |name| builtin(name).expect("a mutant");
    let two = Two { numerator: open("mutant:acc-bf16"), exponential: open("mutant:exp-12bit") };
    let fit = fit_of(Box::new(two), Direction::Forward, MORE);
    // The true pair asks less of the exponential than a narrow normalizer, which comes first, would.
    assert!(
        matches!(
            departures(&fit),
            [Departure::Exponential(_), Departure::CarriedNumerator(Format::Bf16)]
        ),
        "{fit:?}"
    );
}

#[test]
fn verdicts_are_those_of_a_run_without_it() {
    let cases: Vec<_> = sampled(Direction::Forward, FEW).into_iter().take(40).collect();
    let mut subject = Builtin::open("mutant:acc-bf16").expect("a mutant");
    let (fitted, _) =
        run_and_fit(&mut subject, Suite::Quick, &cases, Tests::default(), |_| ()).expect("a run");
    let plain = run(&mut subject, Suite::Quick, &cases, |_| ()).expect("a run");
    let text = |reports| serde_json::to_string(reports).expect("JSON");
    assert_eq!(text(&fitted), text(&plain));
}

/// As the program prints it after the verdicts.
#[test]
fn a_fit_is_told_in_words() {
    let told = |departure: Departure, words: &str| assert_eq!(departure.to_string(), words);
    told(Departure::Exponential(48.0), "exp errs by 48 ulp");
    told(
        Departure::CarriedGradient(Gradient::Value, Carried { format: Format::Bf16, block: 64 }),
        "dV is carried in bf16 between query blocks of 64 or less",
    );
    told(
        Departure::CarriedNumerator(Format::Bf16),
        "the numerator is carried in bf16 between key blocks",
    );
}

#[test]
fn a_kernel_that_passes_needs_no_fit() {
    let cases: Vec<_> = sampled(Direction::Forward, FEW).into_iter().take(40).collect();
    let size = NonZeroUsize::new(16).expect("a block");
    let mut subject = Builtin::new(Box::new(Tiled::new(size, size)));
    let (_, fits) =
        run_and_fit(&mut subject, Suite::Quick, &cases, Tests::default(), |_| ()).expect("a run");
    assert_eq!(fits, []);
}
