//! Judging what a kernel answered, and trivial answers beside it.

use flashproof_oracle::error::OracleError;
use flashproof_spec::profile::Profile;
use flashproof_spec::tensor::Outputs;

use super::Tests;
use super::answered::{Answers, BackwardPass, Related, RelatedGradients, Rest};
use super::judged::Judged;
use super::watch::Shown;
use crate::case::Case;
use crate::closed::judge_closed;
use crate::inputs::poison::Places;
use crate::judge::sample::sample;
use crate::relation::{self, Pair, RowPair};
use crate::statistics::{self, NotApplicable, Statistics};
use crate::trivial::{self, Mark, Question, Replaced, Trial, Tried};
use crate::verdict::{
    Answer, Compared, Convention, GradientAnswer, GradientPlaces, Tally, Verdict, judge_gradients,
    judge_poisoned, judge_rows,
};

/// How much of an answer is compared.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Share {
    All,
    /// A few rows, keys and sinks.
    Few,
}

/// Rows, keys, rows of the bias and sinks of a [`Share::Few`].
const FEW: usize = 3;

impl Share {
    fn of<T: Copy>(self, items: Vec<T>, seed: u64) -> Vec<T> {
        match self {
            Self::All => items,
            Self::Few => sample(&items, FEW, seed),
        }
    }
}

/// Who is shown what of an answer.
type Show<'s> = dyn Fn(Shown<'_>) + Sync + 's;

/// The verdict on a kernel's answer, with the trivial answers that would have passed where it passed.
pub(super) fn judge(
    case: &Case,
    answers: &Answers,
    tests: Tests,
    show: &Show<'_>,
) -> Result<Judged, OracleError> {
    show(Shown::Answers {
        problem: &answers.read,
        profile: &answers.profile,
        tensors: answers.tensors(),
    });
    let judging = Judging::new(case, answers);
    let mut judged = judging.judge(Share::All, show)?;
    if judged.verdict != Verdict::Fail {
        judged.not_discriminating = Some(judging.marks()?);
    }
    if tests.statistical {
        let statistics = statistics(case, answers, &judged)?;
        judged = judged.with_statistics(statistics);
    }
    Ok(judged)
}

/// The verdict on a kernel's answer alone.
pub(super) fn verdict(answers: &Answers) -> Result<Judged, OracleError> {
    let trial = Trial::new(std::iter::empty(), &answers.question());
    let judging = Judging { answers, profile: &answers.profile, explained: true, seed: 0, trial };
    judging.judge(Share::All, &|_| ())
}

/// The verdict, were this the kernel's profile; what fails is not explained.
pub(super) fn verdict_under(answers: &Answers, profile: &Profile) -> Result<Verdict, OracleError> {
    let trial = Trial::new(std::iter::empty(), &answers.question());
    let judging = Judging { answers, profile, explained: false, seed: 0, trial };
    Ok(judging.judge(Share::All, &|_| ())?.verdict)
}

/// The tests by probability, of an answer that keeps its worst-case bounds.
fn statistics(case: &Case, answers: &Answers, judged: &Judged) -> Result<Statistics, OracleError> {
    let reason = statistics::not_applicable(case, &answers.inputs, &answers.profile)
        .or_else(|| (judged.verdict == Verdict::Fail).then_some(NotApplicable::NoAnswer));
    Ok(match reason {
        Some(reason) => Statistics::NotApplicable(reason),
        None => Statistics::Tested(Box::new(statistics::test(&answers.answer())?)),
    })
}

/// The trivial answers that would pass the case as this right answer does. Most are proven wrong by a
/// few rows, and then the others are not looked at.
pub(super) fn marks(case: &Case, answers: &Answers) -> Result<Vec<Mark>, OracleError> {
    let judging = Judging::new(case, answers);
    for share in [Share::Few, Share::All] {
        if judging.trial.surviving().next().is_some() {
            judging.judge(share, &|_| ())?;
        }
    }
    judging.marks()
}

struct Judging<'a> {
    answers: &'a Answers,
    profile: &'a Profile,
    /// Whether a failure is diagnosed.
    explained: bool,
    seed: u64,
    trial: Trial,
}

impl<'a> Judging<'a> {
    fn new(case: &Case, answers: &'a Answers) -> Self {
        let concerning = trivial::Answer::concerning(case.upstream.is_some(), case.problem.format);
        let trial = Trial::new(concerning, &answers.question());
        let profile = &answers.profile;
        Self { answers, profile, explained: true, seed: case.input_seed(), trial }
    }

    /// Compares this much of the answer, and shows it to the trivial ones.
    fn judge(&self, share: Share, show: &Show<'_>) -> Result<Judged, OracleError> {
        let answer = Answer { profile: self.profile, ..self.answers.answer() };
        let rows = share.of(answer.every_row(), self.seed);
        let visit = |compared: &[Compared]| self.trial.visit(compared);
        let shown = |compared: &[Compared]| {
            visit(compared);
            show(Shown::Elements(compared));
        };
        match &self.answers.rest {
            Rest::Related(related) => return self.judge_related(&answer, related),
            Rest::Closed(form) => {
                let tally = judge_closed(*form, &answer, &rows, visit)?;
                return Ok(Judged::undiagnosed(tally, &answer));
            }
            Rest::Nothing | Rest::Poisoned(..) | Rest::Backward(_) => {}
        }
        let tally = judge_rows(&answer, &rows, shown)?;
        // The clean run of a poisoned case too: NaN everywhere would be the same in both.
        let wrong_rows = tally.failing.clone();
        let judged = if self.explained {
            Judged::of_tally(tally, &answer)
        } else {
            Judged::undiagnosed(tally, &answer)
        };
        Ok(match &self.answers.rest {
            Rest::Poisoned(poison, outputs) => {
                self.compare_poisoned(poison, outputs);
                judged.with_poisoned(judge_poisoned(&answer, &rows, poison, outputs))
            }
            Rest::Backward(pass) => {
                let BackwardPass { cotangents, gradients, .. } = &**pass;
                let wrong_rows = &wrong_rows;
                let answer = GradientAnswer { forward: answer, cotangents, gradients, wrong_rows };
                let places = self.places(&answer, share);
                let tally = judge_gradients(&answer, &places, shown)?;
                if self.explained {
                    judged.with_gradients(tally, &answer)
                } else {
                    judged.with_repeated_gradients(tally)
                }
            }
            Rest::Nothing | Rest::Related(_) | Rest::Closed(_) => judged,
        })
    }

    fn places(&self, answer: &GradientAnswer<'_>, share: Share) -> GradientPlaces {
        let GradientPlaces { rows, keys, bias_rows, sinks } = answer.every_place();
        GradientPlaces {
            rows: share.of(rows, self.seed),
            keys: share.of(keys, self.seed),
            bias_rows: share.of(bias_rows, self.seed),
            sinks: share.of(sinks, self.seed),
        }
    }

    /// Compares trivial answers to clean and poisoned inputs; what is right in them is the kernel's.
    fn compare_poisoned(&self, poison: &Places, outputs: &Outputs) {
        let answers = self.answers;
        let right = answers.answer();
        let rows = right.every_row();
        let poisoned = poison.inputs(&answers.inputs);
        for tried in self.trial.surviving() {
            let clean = tried.replaced.outputs(&answers.outputs);
            let question = Question { inputs: &poisoned, ..answers.question() };
            let outputs = Replaced::of(tried.answer, &question).outputs(outputs);
            let answer = Answer { outputs: &clean, ..right };
            if is_wrong(&judge_poisoned(&answer, &rows, poison, &outputs)) {
                tried.condemn();
            }
        }
    }

    /// Compares the answer with those to the related problems, and the trivial ones likewise.
    fn judge_related(&self, answer: &Answer<'_>, related: &Related) -> Result<Judged, OracleError> {
        let answers = self.answers;
        let rows = relation::sampled(answer, related.seed);
        let mut tally = Tally::default();
        for (how, outputs) in &related.others {
            let posed = &how.posed;
            let other =
                Answer { problem: &posed.problem, inputs: &posed.inputs, outputs, ..*answer };
            let Related { relation, exact, .. } = *related;
            let pair = Pair { relation, exact, first: *answer, other, how };
            let question =
                Question { problem: &posed.problem, inputs: &posed.inputs, ..answers.question() };
            let trivial: Vec<_> = (self.trial.surviving())
                .map(|tried| {
                    let first = tried.replaced.outputs(&answers.outputs);
                    (tried, first, Replaced::of(tried.answer, &question).outputs(outputs))
                })
                .collect();
            let visit = |rows: &RowPair<'_>| {
                for (tried, first, second) in &trivial {
                    let first = Answer { outputs: first, ..*answer };
                    let other = Answer { outputs: second, ..other };
                    if (Pair { first, other, ..pair }).differ_in(rows) {
                        tried.condemn();
                    }
                }
            };
            tally = tally.merged(relation::compare(&pair, &rows, visit)?);
        }
        let judged = Judged::undiagnosed(tally, answer);
        let Some(RelatedGradients { first, other, .. }) = &related.gradients else {
            return Ok(judged);
        };
        let compare =
            |first: &_, other: &_| relation::compare_gradients(related.relation, first, other);
        for tried in self.trial.surviving() {
            // The inputs of both runs are the same, and so is what it makes of them.
            let (first, other) = (tried.replaced.gradients(first), tried.replaced.gradients(other));
            if is_wrong(&compare(&first, &other)) {
                tried.condemn();
            }
        }
        Ok(judged.with_repeated_gradients(compare(first, other)))
    }

    /// The trivial answers that are wrong nowhere, once all has been shown to them.
    fn marks(&self) -> Result<Vec<Mark>, OracleError> {
        let answer = self.answers.answer();
        let rows = answer.every_row();
        let consistent = matches!(self.answers.rest, Rest::Related(_));
        let mut marks = Vec::new();
        for tried in self.trial.surviving() {
            // Elements are shown with their hard bounds, and the strict gate may reject what they admit.
            if consistent || !self.is_wrong_in_full(tried)? {
                marks.push(tried.mark(&rows, &answer, consistent));
            }
        }
        Ok(marks)
    }

    /// Whether the answer fails, judged as a kernel's is.
    fn is_wrong_in_full(&self, tried: &Tried) -> Result<bool, OracleError> {
        let answers = self.answers;
        let outputs = tried.replaced.outputs(&answers.outputs);
        let answer = Answer { outputs: &outputs, ..answers.answer() };
        let rows = answer.every_row();
        let tally = match &answers.rest {
            Rest::Closed(form) => judge_closed(*form, &answer, &rows, |_| ())?,
            Rest::Backward(pass) => {
                let BackwardPass { cotangents, gradients, .. } = &**pass;
                let gradients = tried.replaced.gradients(gradients);
                let answer = GradientAnswer {
                    forward: answer,
                    cotangents,
                    gradients: &gradients,
                    wrong_rows: &[],
                };
                judge_gradients(&answer, &answer.every_place(), |_| ())?
            }
            Rest::Nothing | Rest::Poisoned(..) | Rest::Related(_) => {
                judge_rows(&answer, &rows, |_| ())?
            }
        };
        Ok(is_wrong(&tally))
    }
}

fn is_wrong(tally: &Tally) -> bool {
    !tally.violations.is_empty()
}

impl Answers {
    fn answer(&self) -> Answer<'_> {
        Answer {
            problem: &self.read,
            inputs: &self.inputs,
            outputs: &self.outputs,
            profile: &self.profile,
            choices: self.choices,
        }
    }

    fn question(&self) -> Question<'_> {
        let cotangents = match &self.rest {
            Rest::Backward(pass) => Some(&pass.given),
            Rest::Related(related) => related.gradients.as_ref().map(|it| &it.cotangents),
            Rest::Nothing | Rest::Poisoned(..) | Rest::Closed(_) => None,
        };
        Question {
            problem: &self.read,
            inputs: &self.inputs,
            cotangents,
            lse_format: self.profile.lse_format,
            convention: Convention::of_lse(self.choices),
        }
    }
}
