//! What the rules of others say of specimens on inputs that are drawn as their projects draw them.

use std::collections::{BTreeMap, BTreeSet};

use flashproof_spec::format::Format;
use flashproof_spec::problem::Problem;
use flashproof_spec::tensor::{Cotangents, Gradients, Inputs, Outputs};
use rayon::prelude::*;

use super::choice::spread;
use super::specimen::Specimen;
use super::{Step, right};
use crate::adapter::{Backward, Failure, Subject};
use crate::case::FORMATS;
use crate::rules::answer::{Shown, Standard};
use crate::rules::battery::{Posed, battery};
use crate::rules::drawn::Distribution;
use crate::rules::table::RULES;
use crate::rules::{Looked, Opinion, Rule};
use crate::run::RunError;
use crate::verdict::{Answer, GradientAnswer, Quantity, judge_gradients, judge_rows};

/// A problem with a distribution.
pub(super) struct Task {
    posed: Posed,
    distribution: Distribution,
    /// Whether some rule looks at gradients.
    backward: bool,
}

/// What the rules of a task's distribution say.
pub(super) struct SeenTask {
    /// Of each such rule: its index, and what it says of the right kernel.
    pub(super) of_right: Vec<(usize, Opinion)>,
    /// Of each fault: its index, and each such rule's and what that says of what differs.
    pub(super) of: Vec<(usize, Vec<(usize, Opinion)>)>,
}

/// A rule that accepts an answer of a specimen though what it looks at is proven wrong.
#[derive(Clone, Copy, Debug)]
pub(super) struct Miss {
    pub(super) specimen: usize,
    pub(super) rule: usize,
}

impl SeenTask {
    /// What the rules that accept the right kernel's answer say of a specimen's.
    pub(super) fn opinions(&self, specimen: usize) -> impl Iterator<Item = (usize, Opinion)> {
        let accepts_right = |rule| self.of_right.contains(&(rule, Opinion::Accepts));
        let of = self.of.iter().find(|(of, _)| *of == specimen);
        let opinions = of.into_iter().flat_map(|(_, opinions)| opinions.iter().copied());
        opinions.filter(move |&(rule, _)| accepts_right(rule))
    }
}

/// The battery in every format and distribution of which some rule looks at the output.
pub(super) fn tasks(formats: &[Format]) -> Vec<Task> {
    let mut tasks = Vec::new();
    // No rule here is about inputs of 8 bits.
    for &format in formats.iter().filter(|format| FORMATS.contains(format)) {
        for distribution in Distribution::ALL {
            let is_looked_at = |quantity| {
                let looked = Looked { quantity, format, softcap: false };
                let looks =
                    |rule: &Rule| rule.inputs == distribution && (rule.tolerance)(looked).is_some();
                RULES.iter().any(looks)
            };
            if is_looked_at(Quantity::Output) {
                let backward = is_looked_at(Quantity::QueryGradient);
                let posed = battery(format).into_iter();
                tasks.extend(posed.map(|posed| Task { posed, distribution, backward }));
            }
        }
    }
    tasks
}

pub(super) fn see(
    specimens: &[Specimen],
    tasks: &[Task],
    seed: u64,
    progress: &(dyn Fn(Step) + Sync),
) -> Result<Vec<SeenTask>, RunError> {
    let see = |task: &Task| {
        let seen = task.see(specimens, seed);
        progress(Step::Done);
        seen
    };
    tasks.par_iter().map(see).collect()
}

/// Where rules that accept every answer of a specimen accept a wrong one. Of the answers that differ
/// in a format and distribution, `most` are judged.
pub(super) fn misses(
    specimens: &[Specimen],
    tasks: &[Task],
    seen: &[SeenTask],
    most: usize,
    seed: u64,
) -> Result<Vec<Miss>, RunError> {
    let judge = |(task, specimen): (usize, usize)| {
        let wrong = tasks[task].wrong(&specimens[specimen], seed)?;
        let is_missed = |&(rule, opinion): &(usize, Opinion)| {
            let looks = |&quantity: &Quantity| tasks[task].looks_at(&RULES[rule], quantity);
            opinion == Opinion::Accepts && wrong.iter().any(looks)
        };
        let missed = seen[task].opinions(specimen).filter(is_missed);
        Ok(missed.map(|(rule, _)| Miss { specimen, rule }).collect::<Vec<_>>())
    };
    let doubtful: Vec<_> =
        (0..specimens.len()).flat_map(|it| doubtful(tasks, seen, it, most)).collect();
    let misses = doubtful.into_par_iter().map(judge).collect::<Result<Vec<_>, RunError>>()?;
    Ok(misses.concat())
}

/// Tasks to judge of a specimen: those that rules accept which reject none of its answers.
fn doubtful(
    tasks: &[Task],
    seen: &[SeenTask],
    specimen: usize,
    most: usize,
) -> Vec<(usize, usize)> {
    let mut opinions: BTreeMap<usize, Vec<(usize, Opinion)>> = BTreeMap::new();
    for (task, seen) in seen.iter().enumerate() {
        for (rule, opinion) in seen.opinions(specimen) {
            opinions.entry(rule).or_default().push((task, opinion));
        }
    }
    opinions.retain(|_, of| of.iter().all(|&(_, opinion)| opinion != Opinion::Rejects));
    let mut kinds: BTreeMap<(Format, Distribution), BTreeSet<usize>> = BTreeMap::new();
    for (task, opinion) in opinions.into_values().flatten() {
        if opinion == Opinion::Accepts {
            let Task { posed, distribution, .. } = &tasks[task];
            kinds.entry((posed.problem.format, *distribution)).or_default().insert(task);
        }
    }
    let of_kind = |tasks: BTreeSet<usize>| spread(&tasks.into_iter().collect::<Vec<_>>(), most);
    kinds.into_values().flat_map(of_kind).map(|task| (task, specimen)).collect()
}

impl Task {
    fn see(&self, specimens: &[Specimen], seed: u64) -> Result<SeenTask, RunError> {
        let problem = &self.posed.problem;
        let inputs = self.distribution.inputs(problem, seed);
        let cotangents = self.backward.then(|| self.distribution.cotangents(problem, seed));
        let standard = Standard::new(problem, &inputs, cotangents.as_ref());
        let rules: Vec<usize> =
            (0..RULES.len()).filter(|&it| RULES[it].inputs == self.distribution).collect();
        let of = |opinion: &dyn Fn(&Rule) -> Opinion| -> Vec<(usize, Opinion)> {
            rules.iter().map(|&rule| (rule, opinion(&RULES[rule]))).collect()
        };
        let ask = |subject: &mut dyn Subject| ask(subject, problem, &inputs, cotangents.as_ref());
        let expected =
            ask(&mut right(problem.format)).map_err(|failure| self.environment(&failure))?;
        let of_right = of(&|rule| standard.opinion(rule, shown(&expected)));
        let mut seen = SeenTask { of_right, of: Vec::new() };
        let faults = specimens.iter().enumerate().filter(|(_, specimen)| specimen.is_fault);
        for (index, specimen) in faults {
            let opinions = match ask((specimen.open)().as_mut()) {
                Ok(given) => of(&|rule| {
                    standard.opinion_of_difference(rule, shown(&given), shown(&expected))
                }),
                Err(failure @ Failure::Environment(_)) => return Err(self.environment(&failure)),
                Err(Failure::Unsupported(_)) => of(&|_| Opinion::DoesNotLook),
                // A kernel that gives no answer fails any test.
                Err(_) => of(&|_| Opinion::Rejects),
            };
            seen.of.push((index, opinions));
        }
        Ok(seen)
    }

    /// The outputs and gradients of the specimen that are proven wrong.
    fn wrong(&self, specimen: &Specimen, seed: u64) -> Result<Vec<Quantity>, RunError> {
        let problem = &self.posed.problem;
        let inputs = self.distribution.inputs(problem, seed);
        let cotangents = self.backward.then(|| self.distribution.cotangents(problem, seed));
        let mut subject = (specimen.open)();
        let profile =
            subject.profile(problem.format).map_err(|failure| self.environment(&failure))?;
        let Ok((outputs, gradients)) = ask(subject.as_mut(), problem, &inputs, cotangents.as_ref())
        else {
            return Ok(Vec::new());
        };
        let choices = subject.choices();
        let (inputs, outputs, profile) = (&inputs, &outputs, &profile);
        let answer = Answer { problem, inputs, outputs, profile, choices };
        let oracle = |source| RunError::Oracle { case: self.name(), source };
        let mut tally = judge_rows(&answer, &answer.every_row(), |_| ()).map_err(oracle)?;
        if let Some((cotangents, gradients)) = cotangents.as_ref().zip(gradients.as_ref()) {
            let wrong_rows = &tally.failing.clone();
            let answer = GradientAnswer { forward: answer, cotangents, gradients, wrong_rows };
            let places = answer.every_place();
            tally = tally.merged(judge_gradients(&answer, &places, |_| ()).map_err(oracle)?);
        }
        let is_wrong = |quantity: &Quantity| tally.of(*quantity).wrong > 0;
        Ok(Quantity::ALL.into_iter().filter(is_wrong).collect())
    }

    fn looks_at(&self, rule: &Rule, quantity: Quantity) -> bool {
        let Problem { format, softcap, .. } = self.posed.problem;
        (rule.tolerance)(Looked { quantity, format, softcap: softcap.is_some() }).is_some()
    }

    fn name(&self) -> String {
        format!("{} ({})", self.posed.name, self.distribution.describe())
    }

    fn environment(&self, failure: &Failure) -> RunError {
        RunError::Environment { case: self.name(), reason: failure.to_string() }
    }
}

fn shown((outputs, gradients): &(Outputs, Option<Gradients>)) -> Shown<'_> {
    Shown { outputs, gradients: gradients.as_ref() }
}

fn ask(
    subject: &mut dyn Subject,
    problem: &Problem,
    inputs: &Inputs,
    cotangents: Option<&Cotangents>,
) -> Result<(Outputs, Option<Gradients>), Failure> {
    match cotangents {
        None => Ok((subject.forward(problem, inputs)?, None)),
        Some(cotangents) => subject
            .backward(problem, inputs, cotangents)
            .map(|Backward { outputs, gradients }| (outputs, Some(gradients))),
    }
}
