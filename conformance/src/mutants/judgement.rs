//! What the bounds, and the rules of others, say of answers that differ.

use flashproof_spec::problem::Problem;
use rayon::prelude::*;

use super::choice::Chosen;
use super::plan::Sample;
use super::specimen::Specimen;
use super::survey::answer;
use super::{Step, right};
use crate::case::Case;
use crate::report::CaseReport;
use crate::rules::answer::Standard;
use crate::rules::table::RULES;
use crate::rules::{Looked, Opinion, Rule};
use crate::run::{About, Answered, Answers, RunError, Tests, drawn};
use crate::suite::Suite;
use crate::verdict::Quantity;

/// One case and what was judged there.
pub(super) struct JudgedCase {
    /// What each rule says of the right kernel; nothing where the case is none for rules.
    pub(super) of_right: Option<Vec<Opinion>>,
    /// Of each specimen that was judged.
    pub(super) of: Vec<Judgement>,
}

/// What is said of one specimen's answer to one case.
pub(super) struct Judgement {
    /// Its index.
    pub(super) specimen: usize,
    /// The verdict by the bounds, with what was violated and what would explain it.
    pub(super) report: CaseReport,
    /// The clause that the case was reported for.
    pub(super) pinned: Option<&'static str>,
    /// What each rule says of what differs from the right kernel's answer; nothing where the case is
    /// none for rules.
    pub(super) opinions: Option<Vec<Opinion>>,
}

impl Judgement {
    /// Whether a rule looks at something that is proven wrong.
    pub(super) fn shows(&self, rule: &Rule) -> bool {
        let Problem { format, softcap, .. } = self.report.problem;
        let is_wrong = |&quantity: &Quantity| {
            self.report.of(quantity).is_some_and(|measured| measured.wrong > 0)
        };
        let looks = |quantity| {
            let looked = Looked { quantity, format, softcap: softcap.is_some() };
            (rule.tolerance)(looked).is_some()
        };
        let mut wrong = Quantity::ALL.into_iter().filter(is_wrong);
        // A kernel that gives no answer is wrong in all of it.
        wrong.any(looks) || (self.report.no_answer.is_some() && looks(Quantity::Output))
    }
}

pub(super) fn judge(
    specimens: &[Specimen],
    suite: &Sample,
    chosen: &Chosen,
    progress: &(dyn Fn(Step) + Sync),
) -> Result<Vec<JudgedCase>, RunError> {
    let chosen: Vec<_> = chosen.iter().collect();
    let of_case = |&(&case, indices): &(&usize, &Vec<usize>)| {
        let judged = judge_case(specimens, &suite.cases[case], indices);
        progress(Step::Done);
        judged
    };
    chosen.par_iter().map(of_case).collect()
}

fn judge_case(
    specimens: &[Specimen],
    case: &Case,
    indices: &[usize],
) -> Result<JudgedCase, RunError> {
    let inputs = drawn(case)?;
    let expected = answer(&mut right(case.problem.format), case, &inputs)?;
    let outside = match &expected {
        Answered::Answers(_, answers) => Outside::of(answers),
        Answered::Nothing(..) => None,
    };
    let judge = |&specimen: &usize| {
        let mut subject = (specimens[specimen].open)();
        let given = answer(subject.as_mut(), case, &inputs)?;
        let opinions = match (&outside, &given) {
            (Some(outside), Answered::Answers(_, answers)) => Some(outside.opinions(answers)),
            // A kernel that gives no answer fails any test.
            (Some(_), Answered::Nothing(..)) => Some(vec![Opinion::Rejects; RULES.len()]),
            (None, _) => None,
        };
        let about = About::case(case, Suite::Quick, subject.name(), Tests::default());
        let report = given.verdict()?.report(about);
        Ok(Judgement { specimen, report, pinned: case.clause, opinions })
    };
    let of = indices.iter().map(judge).collect::<Result<_, RunError>>()?;
    Ok(JudgedCase { of_right: outside.map(|it| it.of_right), of })
}

/// The rules of others on one case.
struct Outside<'a> {
    right: &'a Answers,
    standard: Standard,
    of_right: Vec<Opinion>,
}

impl<'a> Outside<'a> {
    /// `None` where the case is none for rules: more is judged than an answer, or the exact one is not
    /// all numbers.
    fn of(right: &'a Answers) -> Option<Self> {
        if !right.is_plain() {
            return None;
        }
        let (problem, inputs) = right.posed();
        if problem.quantization.is_some() {
            return None;
        }
        let standard = Standard::new(problem, inputs, right.cotangents());
        if !standard.is_ordinary() {
            return None;
        }
        let opinion = |rule| standard.opinion(rule, right.shown());
        Some(Self { of_right: RULES.iter().map(opinion).collect(), right, standard })
    }

    fn opinions(&self, answers: &Answers) -> Vec<Opinion> {
        let (given, right) = (answers.shown(), self.right.shown());
        let opinion = |rule| self.standard.opinion_of_difference(rule, given, right);
        RULES.iter().map(opinion).collect()
    }
}
