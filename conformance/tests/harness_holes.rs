//! Holes that testers of attention kernels were found with: this one is to have none of them.
//!
//! Each test names the tester and the hole.

mod support;

use flashproof_conformance::adapter::builtin::Builtin;
use flashproof_conformance::adapter::{Choices, Failure};
use flashproof_conformance::case::{Case, Check, FORMATS};
use flashproof_conformance::inputs::{self, Family, Scores, Upstream, Values};
use flashproof_conformance::relation::Relation;
use flashproof_conformance::report::{CaseReport, Outcome, Report, model};
use flashproof_conformance::run::run;
use flashproof_conformance::suite::{DEFAULT_SEED, Direction, Suite, cases};
use flashproof_conformance::trivial::{self, Trivial};
use flashproof_conformance::verdict::{self, Quantity, Verdict, judge_rows};
use flashproof_kernels::Kernel as _;
use flashproof_kernels::cpu::Naive;
use flashproof_oracle::row::RowIndex;
use flashproof_spec::format::Format;
use flashproof_spec::mask::Rule;
use flashproof_spec::problem::Problem;
use flashproof_spec::tensor::{Inputs, Outputs, Tensor};
use ndarray::s;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use support::{Tampered, map, with_value_at};

const SEED: u64 = 1;

fn case(problem: Problem, scores: Scores, values: Values) -> Case {
    Case::new(problem, Family { scores, values }, None, SEED)
}

fn reported<T>(tamper: T, case: Case) -> CaseReport
where
    T: FnMut(&Problem, &Inputs, Outputs) -> Result<Outputs, Failure> + Send,
{
    let mut subject = Tampered::new("naive", tamper);
    run(&mut subject, Suite::Quick, &[case], |_| ()).unwrap().remove(0)
}

/// cubecl PR#1070: a reference of NaN matched anything. Here what is NaN follows from the inputs, and
/// nothing but NaN is right there; and where a kernel's own answer is the reference, its NaN is not.
#[test]
fn a_reference_of_nan_matches_nothing() {
    let problem = Problem::new(Format::F32, 2, 5, 8);
    for instead in [0.0, 1.0, f64::INFINITY, f64::NEG_INFINITY] {
        let report = reported(
            |_, _, outputs| {
                let number = |x: f64| if x.is_nan() { instead } else { x };
                let lse = outputs.lse.as_ref().map(|lse| map(lse, number));
                Ok(Outputs { output: map(&outputs.output, number), lse })
            },
            case(problem.clone(), Scores::NanQuery, Values::Normal),
        );
        let violated: Vec<_> =
            report.violations.iter().map(|it| (it.clause, it.quantity, it.elements)).collect();
        let clause = "FAS:fwd.special.nan";
        assert_eq!(violated, [(clause, Quantity::Output, 8), (clause, Quantity::Lse, 1)]);
    }
    let mut nan = Trivial::new(trivial::Answer::Nan);
    for relation in Relation::ALL {
        let case = Case::checking(Check::Related(relation), problem.clone(), SEED);
        let report = run(&mut nan, Suite::Quick, &[case], |_| ()).unwrap().remove(0);
        assert_ne!(report.verdict, Verdict::Pass, "{}", report.name);
    }
    let mut nan = Trivial::new(trivial::Answer::NanGradients);
    let repeat = Case::checking(Check::Related(Relation::Repeat), problem, SEED)
        .with_upstream(Upstream::Output);
    let report = run(&mut nan, Suite::Quick, &[repeat], |_| ()).unwrap().remove(0);
    assert_eq!(report.verdict, Verdict::Fail);
}

/// cubek: a launch that failed was printed, and passed. Here it is a verdict, whether it was reported,
/// ended the kernel, or left the outputs as they were allocated.
#[test]
fn a_launch_that_failed_does_not_pass() {
    let case = case(Problem::new(Format::F32, 2, 5, 8), Scores::Normal, Values::Normal);
    let failures = [
        (Failure::Reported("invalid configuration argument".to_owned()), Verdict::Crashed),
        (Failure::Crashed("signal 11".to_owned()), Verdict::Crashed),
        (Failure::TimedOut { seconds: 60.0 }, Verdict::TimedOut),
    ];
    for (failure, verdict) in failures {
        let report = reported(|_, _, _| Err(failure.clone()), case.clone());
        assert_eq!(report.verdict, verdict);
        let subject = model::Subject {
            name: "a kernel".to_owned(),
            description: String::new(),
            choices: Choices::default(),
            profiles: [].into(),
            formats_refused: [].into(),
        };
        let (suite, direction) = (Suite::Quick, Direction::Both);
        let check = model::Run::Check { suite, direction, seed: SEED, only: Vec::new() };
        let outcome = Report::new(subject, check, vec![report]).summary.outcome();
        assert_eq!(outcome, Outcome::Failed);
    }
    let never_launched = reported(
        |_, _, outputs| {
            let zeros = |tensor: &Tensor| map(tensor, |_| 0.0);
            Ok(Outputs { output: zeros(&outputs.output), lse: outputs.lse.as_ref().map(zeros) })
        },
        case,
    );
    assert_eq!(never_launched.verdict, Verdict::Fail);
}

/// `ThunderKittens`: a small mean error made up for a large one of a single element.
#[test]
fn one_wrong_element_fails_a_large_case() {
    for format in FORMATS {
        let case = case(Problem::new(format, 1, 64, 64), Scores::Normal, Values::Normal);
        let report = reported(
            |_, _, outputs| {
                let output = with_value_at(&outputs.output, &[0, 0, 63, 63], 1.0);
                Ok(Outputs { output, ..outputs })
            },
            case,
        );
        assert_eq!((report.verdict, report.output.wrong), (Verdict::Fail, 1), "{format}");
    }
}

/// mlir-air#1427: a tolerance of 0.5 passed random numbers, the values being uniform on an interval of
/// that length.
#[test]
fn random_numbers_between_the_values_fail() {
    for format in FORMATS {
        let mut rng = ChaCha8Rng::seed_from_u64(SEED);
        let report = reported(
            |_, _, outputs| {
                let output = map(&outputs.output, |_| rng.random_range(1.0..2.0));
                Ok(Outputs { output, ..outputs })
            },
            case(Problem::new(format, 1, 16, 16), Scores::Normal, Values::Positive),
        );
        assert_eq!(report.verdict, Verdict::Fail);
        // Not by the one element or the other.
        assert!(4 * report.output.wrong > 3 * report.output.elements, "{format}");
    }
}

/// ggml: a normalized mean squared error of 5e-4 passes when every output is 2% too large.
#[test]
fn two_percent_in_every_output_fail() {
    for format in FORMATS {
        let report = reported(
            |_, _, outputs| Ok(Outputs { output: map(&outputs.output, |x| 1.02 * x), ..outputs }),
            case(Problem::new(format, 1, 32, 32), Scores::Normal, Values::Normal),
        );
        assert_eq!(report.verdict, Verdict::Fail, "{format}");
    }
}

/// ONNX: masks drawn as `rand().astype(bool)` are all true.
#[test]
fn boolean_masks_of_the_suite_show_and_hide() {
    let cases = cases(Suite::Quick, &[Format::F32], DEFAULT_SEED);
    let rules = cases.iter().flat_map(|case| {
        case.problem.mask.rules.iter().map(move |rule| (case.name.as_str(), case.bug, rule))
    });
    let mut seen = 0;
    for (name, bug, rule) in rules {
        let Rule::Boolean(pattern) = rule else { continue };
        let shown = pattern.bits().iter().filter(|&&bit| bit).count();
        // A reported fault may need a mask of one kind.
        assert!(bug.is_some() || pattern.bits().len() == 1 || shown > 0, "{name}");
        assert!(
            bug.is_some() || pattern.bits().len() == 1 || shown < pattern.bits().len(),
            "{name}"
        );
        seen += 1;
    }
    assert!(seen > 20, "{seen}");
}

/// `TransformerEngine`'s tolerances pass a softmax of equal weights and gradients of zero; `PyTorch`'s
/// earlier rule for fused attention passes `dQ = 0`.
#[test]
fn equal_weights_and_zero_gradients_fail() {
    for format in FORMATS {
        let case = case(Problem::new(format, 2, 33, 64), Scores::Normal, Values::Normal);
        let backward = case.clone().with_upstream(Upstream::Output);
        for (answer, case) in [
            (trivial::Answer::Uniform, case.clone()),
            (trivial::Answer::MeanOfVisible, case),
            (trivial::Answer::ZeroQueryAndKey, backward.clone()),
            (trivial::Answer::ZeroGradients, backward),
        ] {
            let mut subject = Trivial::new(answer);
            let report = run(&mut subject, Suite::Quick, &[case], |_| ()).unwrap().remove(0);
            assert_eq!(report.verdict, Verdict::Fail, "{answer} in {format}");
        }
    }
}

/// The verdict on some rows of a kernel's answer to normal inputs.
fn wrong_in(problem: &Problem, rows: &[RowIndex], outputs: &Outputs, inputs: &Inputs) -> usize {
    let profile = Naive.profile(problem.format);
    let choices = Choices::default();
    let answer = verdict::Answer { problem, inputs, outputs, profile: &profile, choices };
    let tally = judge_rows(&answer, rows, |_| ()).unwrap();
    tally.output.wrong
}

/// `FlashAttention`: an error of twice that of a plain implementation passes a kernel that drops key 0 in
/// the last row of 1024 queries and keys in bf16, the largest error being elsewhere.
#[test]
fn a_key_dropped_in_one_row_of_many_fails() {
    let problem = Problem::new(Format::Bf16, 1, 1024, 64);
    let inputs = inputs::generate(&problem, Family::of(Scores::Normal), SEED).unwrap();
    // The last row alone: others are right.
    let last = Problem { query_len: 1, ..problem };
    let query = inputs.query.view4().slice(s![.., .., 1023.., ..]).to_owned().into_dyn();
    let inputs = Inputs { query: Tensor::rounded(Format::Bf16, &query), ..inputs };
    let without = Problem { key_len: 1023, ..last.clone() };
    let behind = |tensor: &Tensor| {
        let kept = tensor.view4().slice(s![.., .., 1.., ..]).to_owned().into_dyn();
        Tensor::rounded(tensor.format(), &kept)
    };
    let fewer = Inputs::new(inputs.query.clone(), behind(&inputs.key), behind(&inputs.value));
    let row = [RowIndex { batch: 0, head: 0, query: 0 }];
    let right = Naive.forward(&last, &inputs).unwrap();
    let dropped = Naive.forward(&without, &fewer).unwrap();
    let profile = Naive.profile(Format::Bf16);
    let wrong = |outputs: &Outputs| {
        let choices = Choices::default();
        let answer = verdict::Answer {
            problem: &last,
            inputs: &inputs,
            outputs,
            profile: &profile,
            choices,
        };
        let tally = judge_rows(&answer, &row, |_| ()).unwrap();
        (tally.output.wrong, tally.lse.wrong)
    };
    assert_eq!(wrong(&right), (0, 0));
    // Seen in the LSE, which nothing averages.
    assert_eq!(wrong(&dropped).1, 1);
}

/// SOL-ExecBench: where 99% of the elements need to match, zeros match near-uniform attention over
/// 65,536 keys, the output being that small.
#[test]
fn zeros_fail_where_every_weight_is_small() {
    let mut problem = Problem::new(Format::F32, 1, 65_536, 8);
    problem.query_len = 1;
    for format in [Format::F32, Format::Bf16] {
        problem.format = format;
        let inputs = inputs::generate(&problem, Family::of(Scores::Normal), SEED).unwrap();
        let right = Naive.forward(&problem, &inputs).unwrap();
        let zeros = Outputs { output: map(&right.output, |_| 0.0), lse: right.lse.clone() };
        let row = [RowIndex { batch: 0, head: 0, query: 0 }];
        assert_eq!(wrong_in(&problem, &row, &right, &inputs), 0);
        assert!(wrong_in(&problem, &row, &zeros, &inputs) > 0, "{format}");
    }
}

/// What the tests above tamper with passes as it is.
#[test]
fn a_right_kernel_passes_them() {
    let mut subject = Builtin::open("naive").unwrap();
    let shapes = [(5, 8), (16, 16), (32, 32), (64, 64)];
    let cases: Vec<_> = FORMATS
        .into_iter()
        .flat_map(|format| {
            shapes.map(|(len, dim)| {
                case(Problem::new(format, 1, len, dim), Scores::Normal, Values::Normal)
            })
        })
        .collect();
    for report in run(&mut subject, Suite::Quick, &cases, |_| ()).unwrap() {
        assert_eq!(report.verdict, Verdict::Pass, "{}", report.name);
    }
}
