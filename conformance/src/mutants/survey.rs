//! Where specimens answer otherwise than the right kernel.

use rayon::prelude::*;

use super::plan::Sample;
use super::specimen::Specimen;
use super::{Step, right};
use crate::adapter::{Failure, Subject};
use crate::case::Case;
use crate::run::{Answered, RunError, drawn};
use flashproof_spec::profile::Profile;
use flashproof_spec::tensor::Inputs;

/// Of each specimen, what it was asked and where its answers differ.
pub(super) struct Survey {
    of: Vec<Asked>,
}

/// The cases that one specimen was asked.
#[derive(Clone, Debug, Default)]
pub(super) struct Asked {
    /// How many.
    pub(super) cases: usize,
    /// Those whose answer has other bits than the right kernel's: indices, ascending.
    pub(super) differing: Vec<usize>,
    /// Clauses of the specimen's own that every differing case puts to the test, and fewer than half of
    /// all cases asked.
    pub(super) confined_to: Vec<&'static str>,
}

impl Survey {
    pub(super) fn of(
        specimens: &[Specimen],
        suite: &Sample,
        progress: &(dyn Fn(Step) + Sync),
    ) -> Result<Self, RunError> {
        let of_case = |case: &Case| {
            let differing = differing(specimens, case);
            progress(Step::Done);
            differing
        };
        let differing: Vec<Vec<usize>> =
            suite.cases.par_iter().map(of_case).collect::<Result<_, _>>()?;
        let asked = |(index, specimen)| {
            let differing =
                (0..suite.cases.len()).filter(|&case| differing[case].contains(&index)).collect();
            Asked::new(specimen, suite, differing)
        };
        Ok(Self { of: specimens.iter().enumerate().map(asked).collect() })
    }

    pub(super) fn of_specimen(&self, index: usize) -> &Asked {
        &self.of[index]
    }
}

impl Asked {
    fn new(specimen: &Specimen, suite: &Sample, differing: Vec<usize>) -> Self {
        let asked: Vec<_> = suite.cases.iter().filter(|it| specimen.is_asked(it)).collect();
        let is_confined = |clause: &&&'static str| {
            let tests = |case: &Case| case.clauses().contains(*clause);
            let testing = asked.iter().filter(|case| tests(case)).count();
            !differing.is_empty()
                && 2 * testing < asked.len()
                && differing.iter().all(|&case| tests(&suite.cases[case]))
        };
        let confined_to = specimen.clauses.iter().filter(is_confined).copied().collect();
        Self { cases: asked.len(), differing, confined_to }
    }
}

/// The specimens whose answer to the case differs from the right kernel's.
fn differing(specimens: &[Specimen], case: &Case) -> Result<Vec<usize>, RunError> {
    let inputs = drawn(case)?;
    let expected = answer(&mut right(case.problem.format), case, &inputs)?;
    let mut differing = Vec::new();
    for (index, specimen) in specimens.iter().enumerate() {
        if specimen.is_asked(case) {
            let given = answer((specimen.open)().as_mut(), case, &inputs)?;
            if !is_same(&expected, &given) {
                differing.push(index);
            }
        }
    }
    Ok(differing)
}

/// What the subject answers to a case with these inputs.
pub(super) fn answer<'c>(
    subject: &mut dyn Subject,
    case: &'c Case,
    inputs: &Inputs,
) -> Result<Answered<'c>, RunError> {
    let profile: Result<Profile, Failure> = subject.profile(case.problem.format);
    Answered::put(subject, case, profile, inputs.clone())
}

fn is_same(a: &Answered<'_>, b: &Answered<'_>) -> bool {
    match (a, b) {
        (Answered::Answers(_, a), Answered::Answers(_, b)) => a.is_same_as(b),
        (Answered::Nothing(_, a), Answered::Nothing(_, b)) => a.verdict == b.verdict,
        _ => false,
    }
}
