//! The tests, tested: answers that are no attention fail every case but those that are marked with
//! them, and those they pass.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::LazyLock;

use flashproof_conformance::adapter::builtin::Builtin;
use flashproof_conformance::case::{Case, FORMATS};
use flashproof_conformance::run::{not_discriminating, run};
use flashproof_conformance::suite::{DEFAULT_SEED, Suite, cases};
use flashproof_conformance::trivial::{Answer, Mark, Reason, Trivial};
use flashproof_conformance::verdict::Verdict;
use flashproof_spec::format::Format;
use rayon::prelude::*;

/// One case in this many, in each format another one: together, each case of the suite in some format.
const EVERY: usize = FORMATS.len();

/// A share of the quick suite, so that this takes seconds: cases of consecutive places in different
/// formats, which differ a little in their cases.
fn share() -> Vec<Case> {
    let of_format = |(nth, format)| {
        let cases = cases(Suite::Quick, &[format], DEFAULT_SEED);
        cases.into_iter().skip(nth).step_by(EVERY)
    };
    FORMATS.into_iter().enumerate().flat_map(of_format).collect()
}

/// The share, and what its cases are marked with.
static MARKED: LazyLock<(Vec<Case>, Vec<Vec<Mark>>)> = LazyLock::new(|| {
    let cases = share();
    let marks = cases.par_iter().map(|case| not_discriminating(case).unwrap()).collect();
    (cases, marks)
});

/// What a kernel that gives the answer comes to in the case, through the whole of a run.
fn verdict(answer: Answer, case: &Case) -> Verdict {
    let mut subject = Trivial::new(answer);
    let report = run(&mut subject, Suite::Quick, std::slice::from_ref(case), |_| ()).unwrap();
    report[0].verdict
}

/// The marks come from elements that passed while a right answer was judged; here a kernel gives the
/// answer. Each case is put to one answer in turn and to one that it is marked with.
#[test]
fn trivial_answers_fail_exactly_the_cases_that_are_not_marked_with_them() {
    let (cases, marks) = &*MARKED;
    let asked: Vec<_> = cases
        .iter()
        .zip(marks)
        .enumerate()
        .flat_map(|(nth, (case, marks))| {
            let backward = case.upstream.is_some();
            let concerning: Vec<_> = Answer::concerning(backward, case.problem.format).collect();
            let in_turn = concerning[nth % concerning.len()];
            let marked = marks.get(nth % marks.len().max(1)).map(|mark| mark.answer);
            let answers: BTreeSet<_> = [in_turn].into_iter().chain(marked).collect();
            answers.into_iter().map(move |answer| (answer, case, marks))
        })
        .collect();
    let wrong: Vec<_> = asked
        .par_iter()
        .filter(|&&(answer, case, marks)| {
            let marked = marks.iter().any(|mark| mark.answer == answer);
            let expected = if marked { Verdict::Pass } else { Verdict::Fail };
            verdict(answer, case) != expected
        })
        .map(|(answer, case, marks)| format!("{answer} in {}: {marks:?}", case.name))
        .collect();
    let tried = |answer| asked.iter().filter(|(it, ..)| *it == answer).count();
    println!("{} answers to {} cases", asked.len(), cases.len());
    assert_eq!(wrong, [""; 0]);
    // Every answer was tried, marked and not.
    for answer in Answer::ALL {
        assert!(tried(answer) > 20, "{answer}: {}", tried(answer));
    }
}

/// What a suite that was full of cases like these would be worth.
#[test]
fn few_cases_are_marked_and_none_without_a_reason_of_its_own() {
    let (cases, marks) = &*MARKED;
    let mut counts = BTreeMap::<(Answer, Reason), usize>::new();
    for mark in marks.iter().flatten() {
        *counts.entry((mark.answer, mark.reason)).or_default() += 1;
        assert!(mark.largest_ratio <= 1.0, "{mark:?}");
    }
    let table: Vec<_> = counts
        .iter()
        .map(|((answer, reason), count)| format!("{answer:20} {count:4} {reason}"))
        .collect();
    insta::assert_snapshot!(table.join("\n"));
    let marked = marks.iter().filter(|marks| !marks.is_empty()).count();
    assert!(4 * marked < cases.len(), "{marked} of {}", cases.len());
}

/// The purposes of cases promise it.
#[test]
fn every_fault_that_was_reported_has_a_case_that_zeros_fail() {
    let cases = cases(Suite::Quick, &[Format::F32], DEFAULT_SEED);
    let reported: Vec<_> = cases.into_iter().filter(|case| case.bug.is_some()).collect();
    let blind: BTreeSet<_> = reported
        .par_iter()
        .filter(|case| {
            let marks = not_discriminating(case).unwrap();
            marks.iter().any(|it| matches!(it.answer, Answer::Zeros | Answer::ZeroGradients))
        })
        .filter_map(|case| case.bug)
        .collect();
    // Exactly zero is right where there are no elements, and where answers are compared.
    println!("{blind:?}");
    for case in &reported {
        let only = reported.iter().filter(|it| it.bug == case.bug).count() == 1;
        let bug = case.bug.expect("a reported fault");
        let agrees = case.check.is_some();
        assert!(!(only && blind.contains(&bug)) || agrees, "{}", case.name);
    }
}

/// Marks that a run shows, from judging a whole answer, are those that a few rows and then the rest of
/// another kernel's answer give.
#[test]
fn a_run_shows_the_same_marks() {
    /// A share of the share.
    const EVERY: usize = 8;
    let (cases, marks) = &*MARKED;
    let cases: Vec<_> = cases.iter().step_by(EVERY).cloned().collect();
    let mut subject = Builtin::open("naive").unwrap();
    let reports = run(&mut subject, Suite::Quick, &cases, |_| ()).unwrap();
    for (report, marks) in reports.iter().zip(marks.iter().step_by(EVERY)) {
        let shown = report.not_discriminating.as_ref().expect("a case that passes");
        let answers =
            |marks: &[Mark]| marks.iter().map(|it| (it.answer, it.reason)).collect::<Vec<_>>();
        assert_eq!(answers(shown), answers(marks), "{}", report.name);
    }
}
