//! Asking a kernel, and judging what it answered.

use std::collections::BTreeMap;

use flashproof_oracle::error::OracleError;
use flashproof_spec::format::Format;
use flashproof_spec::profile::Profile;
use flashproof_spec::tensor::{Inputs, Outputs};

use super::RunError;
use super::judged::Judged;
use crate::adapter::{Choices, Failure, Subject};
use crate::case::Case;
use crate::inputs::poison;
use crate::verdict::{Answer, judge_poisoned, judge_rows};

/// A case and what the kernel made of it.
pub(super) enum Answered<'c> {
    /// Outputs to judge.
    Answers(&'c Case, Box<Answers>),
    /// None, which is the kernel's fault or its right.
    Nothing(Box<Judged>),
}

/// The kernel's answers to one case, and the contract that it gave them under.
pub(super) struct Answers {
    profile: Profile,
    choices: Choices,
    inputs: Inputs,
    clean: Outputs,
    /// The poisoned keys, as `(batch, key)`, and the answer on inputs that have them.
    poisoned: Option<(Vec<(usize, usize)>, Outputs)>,
}

impl<'c> Answered<'c> {
    /// Draws the case's inputs and puts them to the kernel. `profiles` holds what the kernel said
    /// when it was asked before.
    pub(super) fn ask(
        subject: &mut dyn Subject,
        case: &'c Case,
        profiles: &mut BTreeMap<Format, Result<Profile, Failure>>,
    ) -> Result<Self, RunError> {
        let name = || case.name.clone();
        let inputs = case.inputs().map_err(|source| RunError::Inputs { case: name(), source })?;
        let format = case.problem.format;
        let profile = profiles.entry(format).or_insert_with(|| subject.profile(format)).clone();
        let failure = match profile.and_then(|it| Answers::ask(subject, case, it, inputs)) {
            Ok(answers) => return Ok(Self::Answers(case, Box::new(answers))),
            Err(failure) => failure,
        };
        Judged::without_answer(&failure)
            .map(|judged| Self::Nothing(Box::new(judged)))
            .ok_or_else(|| RunError::Environment { case: name(), reason: failure.to_string() })
    }

    pub(super) fn judge(self) -> Result<Judged, RunError> {
        match self {
            Self::Nothing(judged) => Ok(*judged),
            Self::Answers(case, answers) => answers
                .judge(case)
                .map_err(|source| RunError::Oracle { case: case.name.clone(), source }),
        }
    }
}

/// Whether the kernel may read the case's inputs as zero: arithmetic that flushes its results does
/// the same to its operands (PTX ISA, `.ftz`), and the bounds count the results alone. Subnormals of
/// a narrower exponent range are normal numbers to it.
fn flushes_inputs(profile: &Profile, case: &Case) -> bool {
    profile.flush_to_zero
        && case.family.has_subnormals()
        && case.problem.format.min_exponent() <= profile.arithmetic.min_exponent()
}

impl Answers {
    fn ask(
        subject: &mut dyn Subject,
        case: &Case,
        profile: Profile,
        inputs: Inputs,
    ) -> Result<Self, Failure> {
        if flushes_inputs(&profile, case) {
            let reason = "subnormal inputs, which the declared profile flushes to zero";
            return Err(Failure::Unsupported(reason.to_owned()));
        }
        let clean = subject.forward(&case.problem, &inputs)?;
        let poisoned = match case.poison {
            None => None,
            Some(poison) => {
                let keys = poison.keys(&case.problem);
                let outputs = subject.forward(&case.problem, &poison::poisoned(&inputs, &keys))?;
                Some((keys, outputs))
            }
        };
        Ok(Self { profile, choices: subject.choices(), inputs, clean, poisoned })
    }

    fn judge(&self, case: &Case) -> Result<Judged, OracleError> {
        let answer = Answer {
            problem: &case.problem,
            inputs: &self.inputs,
            outputs: &self.clean,
            profile: &self.profile,
            choices: self.choices,
        };
        let rows = answer.every_row();
        // The clean run too: NaN everywhere would be the same in both.
        let clean = judge_rows(&answer, &rows, |_| ())?;
        let judged = Judged::of_tally(clean, &answer);
        Ok(match &self.poisoned {
            None => judged,
            Some((keys, outputs)) => judged.with_poisoned(judge_poisoned(
                &case.problem,
                &rows,
                keys,
                &self.clean,
                outputs,
            )),
        })
    }
}
