//! Relations, formulas and merges: each holds for a right kernel, and each is broken by the fault that
//! it is there for.

mod support;

use flashproof_conformance::adapter::builtin::Builtin;
use flashproof_conformance::adapter::{Backward, Choices, Failure, Guarantees, LseBase, Subject};
use flashproof_conformance::case::{Case, Check};
use flashproof_conformance::closed::ClosedForm;
use flashproof_conformance::inputs::Upstream;
use flashproof_conformance::relation::Relation;
use flashproof_conformance::report::CaseReport;
use flashproof_conformance::run;
use flashproof_conformance::suite::Suite;
use flashproof_conformance::verdict::Verdict;
use flashproof_spec::format::Format;
use flashproof_spec::mask::{Mask, Rule};
use flashproof_spec::problem::Problem;
use flashproof_spec::profile::Profile;
use flashproof_spec::tensor::{Cotangents, Inputs, Outputs};
use support::map;

const SEED: u64 = 4;

/// The next number of `f32`.
fn next_up(x: f64) -> f64 {
    f64::from((x as f32).next_up())
}

/// A kernel with a fault: what it reads of a problem, and what it makes of an answer. Counts its runs.
struct Faulty {
    kernel: Builtin,
    guarantees: Guarantees,
    choices: Choices,
    reads: fn(&Problem) -> Problem,
    makes: fn(usize, &Problem, &Inputs, Outputs) -> Outputs,
    merges: fn(&[Outputs]) -> Vec<Outputs>,
    runs: usize,
}

impl Faulty {
    /// A kernel without a fault, which promises everything.
    fn none() -> Self {
        Self {
            kernel: Builtin::open("tiled:16x16").expect("a built-in kernel"),
            guarantees: Guarantees { deterministic: true, batch_invariant: true },
            choices: Choices::default(),
            reads: Problem::clone,
            makes: |_, _, _, outputs| outputs,
            merges: <[Outputs]>::to_vec,
            runs: 0,
        }
    }

    fn reading(reads: fn(&Problem) -> Problem) -> Self {
        Self { reads, ..Self::none() }
    }

    fn making(makes: fn(usize, &Problem, &Inputs, Outputs) -> Outputs) -> Self {
        Self { makes, ..Self::none() }
    }
}

impl Subject for Faulty {
    fn name(&self) -> &'static str {
        "faulty"
    }

    fn description(&self) -> &'static str {
        "a kernel with a fault"
    }

    fn profile(&mut self, format: Format) -> Result<Profile, Failure> {
        self.kernel.profile(format)
    }

    fn choices(&self) -> Choices {
        self.choices
    }

    fn guarantees(&self) -> Guarantees {
        self.guarantees
    }

    fn forward(&mut self, problem: &Problem, inputs: &Inputs) -> Result<Outputs, Failure> {
        self.runs += 1;
        let outputs = self.kernel.forward(&(self.reads)(problem), inputs)?;
        Ok((self.makes)(self.runs, problem, inputs, outputs))
    }

    fn backward(
        &mut self,
        problem: &Problem,
        inputs: &Inputs,
        cotangents: &Cotangents,
    ) -> Result<Backward, Failure> {
        self.runs += 1;
        let mut answer = self.kernel.backward(problem, inputs, cotangents)?;
        if self.guarantees == PROMISES_TOO_MUCH && self.runs > 1 {
            answer.gradients.key = map(&answer.gradients.key, next_up);
        }
        Ok(answer)
    }

    fn merge(&mut self, problem: &Problem, partials: &[Outputs]) -> Result<Outputs, Failure> {
        self.kernel.merge(problem, &(self.merges)(partials))
    }
}

/// Of a kernel whose `dK` differs from run to run.
const PROMISES_TOO_MUCH: Guarantees = Guarantees { deterministic: true, batch_invariant: false };

fn problem() -> Problem {
    Problem { batch: 2, key_heads: 2, query_len: 9, ..Problem::new(Format::F32, 4, 71, 16) }
}

fn case(check: Check) -> Case {
    Case::checking(check, problem(), SEED)
}

fn report(subject: &mut dyn Subject, case: &Case) -> CaseReport {
    println!("seed {SEED}: {}", case.name);
    let mut reports = run::run(subject, Suite::Quick, std::slice::from_ref(case), |_| ())
        .expect("the case can be put to the kernel");
    reports.remove(0)
}

/// Whether the kernel fails the check, at its clause.
fn assert_caught(mut subject: Faulty, check: Check) {
    let report = report(&mut subject, &case(check));
    assert_eq!(report.verdict, Verdict::Fail, "{}", report.name);
    let clauses: Vec<_> = report.violations.iter().map(|it| it.clause).collect();
    assert!(clauses.contains(&check.clause()), "{}: {clauses:?}", report.name);
}

fn every_check() -> Vec<Check> {
    let related = Relation::ALL.into_iter().map(Check::Related);
    let closed = ClosedForm::ALL.into_iter().map(Check::Closed);
    related.chain(closed).chain([1, 2, 7].map(Check::Merge)).collect()
}

#[test]
fn right_kernels_pass_every_check() {
    for check in every_check() {
        let problem = Problem { head_dim: 32, ..problem() };
        for format in [Format::F64, Format::F32, Format::F16, Format::Bf16] {
            let case = Case::checking(check, problem.clone(), SEED);
            let case = case.in_format(format).expect("every format holds it");
            let report = report(&mut Faulty::none(), &case);
            assert_eq!(report.verdict, Verdict::Pass, "{}: {:?}", case.name, report.violations);
            assert!(report.output.elements > 0, "{} compares nothing", case.name);
        }
    }
}

/// The problem without its last key.
fn without_last_key(problem: &Problem) -> Problem {
    let lengths = vec![problem.key_len - 1; problem.batch];
    let mut mask = problem.mask.clone();
    mask.rules.push(Rule::KeyLengths(lengths));
    Problem { mask, ..problem.clone() }
}

#[test]
fn a_key_dropped_by_its_place_breaks_key_permutation() {
    assert_caught(Faulty::reading(without_last_key), Check::Related(Relation::KeyPermutation));
}

#[test]
fn a_leak_between_members_breaks_batch_independence() {
    let leaks = |_, _: &Problem, inputs: &Inputs, outputs: Outputs| {
        let leak = inputs.value.values()[[0, 0, 0, 0]] / 1024.0;
        Outputs { output: map(&outputs.output, |entry| entry + leak), ..outputs }
    };
    assert_caught(Faulty::making(leaks), Check::Related(Relation::BatchIndependence));
}

#[test]
fn a_leak_between_heads_breaks_head_independence() {
    let leaks = |_, _: &Problem, inputs: &Inputs, outputs: Outputs| {
        let leak = inputs.value.values()[[0, 1, 0, 0]] / 1024.0;
        Outputs { output: map(&outputs.output, |entry| entry + leak), ..outputs }
    };
    assert_caught(Faulty::making(leaks), Check::Related(Relation::HeadIndependence));
}

#[test]
fn a_window_one_key_short_is_no_causal_mask() {
    let short = |problem: &Problem| {
        let narrow = |rule: &Rule| match rule {
            Rule::Window(window) => {
                let right = window.right.map(|right| right + 1);
                Rule::Window(flashproof_spec::mask::Window { right, ..*window })
            }
            rule => rule.clone(),
        };
        let rules = problem.mask.rules.iter().map(narrow).collect();
        Problem { mask: Mask { rules }, ..problem.clone() }
    };
    assert_caught(Faulty::reading(short), Check::Related(Relation::CausalWindow));
}

/// A running maximum that starts at -5e4 and not at minus infinity.
#[test]
fn a_finite_initial_maximum_breaks_the_score_shift() {
    let underflows = |_, problem: &Problem, _: &Inputs, outputs: Outputs| {
        if problem.bias.is_none() {
            return outputs;
        }
        Outputs { output: map(&outputs.output, |_| 0.0), ..outputs }
    };
    assert_caught(Faulty::making(underflows), Check::Related(Relation::ScoreShift));
}

#[test]
fn weights_that_do_not_sum_to_one_break_the_value_shift() {
    let loses = |_, _: &Problem, _: &Inputs, outputs: Outputs| Outputs {
        output: map(&outputs.output, |entry| entry * 0.999),
        ..outputs
    };
    assert_caught(Faulty::making(loses), Check::Related(Relation::ValueShift));
}

#[test]
fn an_answer_that_depends_on_the_batch_breaks_the_batch_split() {
    let drops = |problem: &Problem| {
        if problem.batch == 1 { problem.clone() } else { without_last_key(problem) }
    };
    assert_caught(Faulty::reading(drops), Check::Related(Relation::BatchSplit));
    assert_caught(Faulty::reading(drops), Check::Related(Relation::BatchInvariant));
}

#[test]
fn an_ignored_document_mask_breaks_concatenation() {
    let ignores = |problem: &Problem| {
        let other = |rule: &&Rule| !matches!(rule, Rule::Documents(_));
        let rules = problem.mask.rules.iter().filter(other).cloned().collect();
        Problem { mask: Mask { rules }, ..problem.clone() }
    };
    assert_caught(Faulty::reading(ignores), Check::Related(Relation::DocumentConcat));
}

/// One unit in the last place is no error, and no repetition either.
#[test]
fn one_bit_breaks_a_promise_and_nothing_else() {
    let drifts = |run: usize, _: &Problem, _: &Inputs, outputs: Outputs| {
        let output = map(&outputs.output, |x| if run == 1 { x } else { next_up(x) });
        Outputs { output, ..outputs }
    };
    assert_caught(Faulty::making(drifts), Check::Related(Relation::Repeat));
    assert_caught(Faulty::making(drifts), Check::Related(Relation::BatchInvariant));
    let promising_nothing =
        || Faulty { guarantees: Guarantees::default(), ..Faulty::making(drifts) };
    for relation in [Relation::BatchIndependence, Relation::BatchSplit] {
        let report = report(&mut promising_nothing(), &case(Check::Related(relation)));
        assert_eq!(report.verdict, Verdict::Pass, "{}", report.name);
    }
    for relation in [Relation::Repeat, Relation::BatchInvariant] {
        let report = report(&mut promising_nothing(), &case(Check::Related(relation)));
        assert_eq!(report.verdict, Verdict::Unsupported, "{}", report.name);
    }
}

#[test]
fn gradients_that_vary_break_a_promise() {
    let case = case(Check::Related(Relation::Repeat)).with_upstream(Upstream::OutputAndLse);
    let steady = report(&mut Faulty::none(), &case);
    assert_eq!(steady.verdict, Verdict::Pass, "{:?}", steady.violations);
    assert!(steady.key_gradient.is_some_and(|it| it.elements > 0));
    let mut varying = Faulty { guarantees: PROMISES_TOO_MUCH, ..Faulty::none() };
    let report = report(&mut varying, &case);
    assert_eq!(report.verdict, Verdict::Fail);
    assert_eq!(report.violations[0].clause, "FAS:repeat.deterministic");
}

#[test]
fn a_dropped_key_is_missed_by_no_formula() {
    let problem = Problem { head_dim: 32, ..problem() };
    for form in [ClosedForm::Uniform, ClosedForm::OneHot] {
        let case = Case::checking(Check::Closed(form), problem.clone(), SEED);
        let report = report(&mut Faulty::reading(without_last_key), &case);
        assert_eq!(report.verdict, Verdict::Fail, "{}", report.name);
        assert_eq!(report.violations[0].clause, form.clause());
    }
}

/// Falling scores give the first keys the weight: a scale that is off shows in all of them.
#[test]
fn a_wrong_scale_is_missed_by_no_geometric_sum() {
    let off = |problem: &Problem| Problem {
        scale: flashproof_spec::problem::Scale::Value(1.001),
        ..problem.clone()
    };
    let problem = Problem { head_dim: 32, ..problem() };
    let case = Case::checking(Check::Closed(ClosedForm::Geometric), problem, SEED);
    let report = report(&mut Faulty::reading(off), &case);
    assert_eq!(report.verdict, Verdict::Fail);
    assert_eq!(report.violations[0].clause, "FAS:closed.geometric");
}

#[test]
fn a_partial_that_is_lost_breaks_the_merge() {
    let loses = |partials: &[Outputs]| partials[1..].to_vec();
    let mut subject = Faulty { merges: loses, ..Faulty::none() };
    let report = report(&mut subject, &case(Check::Merge(3)));
    assert_eq!(report.verdict, Verdict::Fail, "{:?}", report.violations);
}

#[test]
fn a_merge_is_asked_in_nats_only() {
    let choices = Choices { lse_base: LseBase::Two, ..Choices::default() };
    let mut subject = Faulty { choices, ..Faulty::none() };
    let report = report(&mut subject, &case(Check::Merge(3)));
    assert_eq!(report.verdict, Verdict::Unsupported);
}
