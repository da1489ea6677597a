//! Asking a kernel, and judging what it answered.

use std::collections::BTreeMap;

use flashproof_oracle::error::OracleError;
use flashproof_spec::format::Format;
use flashproof_spec::profile::Profile;
use flashproof_spec::tensor::{Cotangents, Gradients, Inputs, Outputs};

use super::RunError;
use super::judged::Judged;
use crate::adapter::{Backward, Choices, Failure, Subject};
use crate::case::Case;
use crate::inputs::poison::poisoned;
use crate::verdict::{Answer, GradientAnswer, judge_gradients, judge_poisoned, judge_rows};

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
    outputs: Outputs,
    rest: Rest,
}

/// What there is besides the outputs on the case's inputs.
enum Rest {
    /// Nothing: a case of the forward pass alone.
    Nothing,
    /// The poisoned keys, as `(batch, key)`, and the outputs on inputs that have them.
    Poisoned(Vec<(usize, usize)>, Box<Outputs>),
    /// Upstream gradients, and what a backward pass made of them.
    Backward(Box<(Cotangents, Gradients)>),
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
        let problem = &case.problem;
        let poisoned_keys = case.poison.map(|poison| poison.keys(problem));
        let (inputs, outputs, rest) = match (case.cotangents(profile.lse_format), poisoned_keys) {
            (Some(cotangents), keys) => {
                let inputs = keys.map_or_else(|| inputs.clone(), |it| poisoned(&inputs, &it));
                let Backward { outputs, gradients } =
                    subject.backward(problem, &inputs, &cotangents)?;
                (inputs, outputs, Rest::Backward(Box::new((cotangents, gradients))))
            }
            (None, Some(keys)) => {
                let clean = subject.forward(problem, &inputs)?;
                let outputs = subject.forward(problem, &poisoned(&inputs, &keys))?;
                (inputs, clean, Rest::Poisoned(keys, Box::new(outputs)))
            }
            (None, None) => {
                let outputs = subject.forward(problem, &inputs)?;
                (inputs, outputs, Rest::Nothing)
            }
        };
        Ok(Self { profile, choices: subject.choices(), inputs, outputs, rest })
    }

    fn judge(&self, case: &Case) -> Result<Judged, OracleError> {
        let answer = Answer {
            problem: &case.problem,
            inputs: &self.inputs,
            outputs: &self.outputs,
            profile: &self.profile,
            choices: self.choices,
        };
        let rows = answer.every_row();
        // The clean run of a poisoned case too: NaN everywhere would be the same in both.
        let judged = Judged::of_tally(judge_rows(&answer, &rows, |_| ())?, &answer);
        Ok(match &self.rest {
            Rest::Nothing => judged,
            Rest::Poisoned(keys, poisoned) => judged.with_poisoned(judge_poisoned(
                &case.problem,
                &rows,
                keys,
                &self.outputs,
                poisoned,
            )),
            Rest::Backward(passes) => {
                let (cotangents, gradients) = &**passes;
                let answer = GradientAnswer { forward: answer, cotangents, gradients };
                let tally = judge_gradients(&answer, &rows, &answer.every_key(), |_| ())?;
                judged.with_gradients(tally, &answer)
            }
        })
    }
}
