//! What the rules of others say of specimens on inputs that are drawn as their projects draw them.

use flashproof_spec::format::Format;
use flashproof_spec::problem::Problem;
use flashproof_spec::tensor::{Cotangents, Gradients, Inputs, Outputs};
use rayon::prelude::*;

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
use crate::verdict::Quantity;

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

    fn environment(&self, failure: &Failure) -> RunError {
        let case = format!("{} ({})", self.posed.name, self.distribution.describe());
        RunError::Environment { case, reason: failure.to_string() }
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
