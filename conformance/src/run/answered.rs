//! Asking a kernel, and what it answered.

use flashproof_oracle::error::OracleError;
use flashproof_spec::format::Format;
use flashproof_spec::problem::Problem;
use flashproof_spec::profile::Profile;
use flashproof_spec::tensor::{Cotangents, Gradients, Inputs, Outputs};

use super::instance::{Examined, Given, Instance};
use super::judged::Judged;
use super::judging;
use super::watch::{AnswerTensor, Shown, Watch};
use super::{RunError, Tests};
use crate::adapter::{Backward, Choices, Failure, LseBase, LseSign, Subject};
use crate::case::{Case, Check};
use crate::closed::ClosedForm;
use crate::fit::Kept;
use crate::inputs::poison::Places;
use crate::merge;
use crate::relation::{self, Other, Posed, Relation};
use crate::rules::answer::Shown as Outside;
use crate::statistics::{NotApplicable, Statistics};
use crate::trivial::Mark;
use crate::verdict::Verdict;

/// A case and what the kernel made of it.
pub(crate) enum Answered<'c> {
    /// Outputs to judge.
    Answers(&'c Case, Box<Answers>),
    /// None, which is the kernel's fault or its right.
    Nothing(&'c Case, Box<Judged>),
}

/// The kernel's answers to one case, and the contract that it gave them under.
pub(crate) struct Answers {
    pub(super) profile: Profile,
    pub(super) choices: Choices,
    /// The case's problem as the kernel reads it, by which it is judged.
    pub(super) read: Problem,
    pub(super) inputs: Inputs,
    pub(super) outputs: Outputs,
    pub(super) rest: Rest,
}

/// What there is besides the outputs on the case's inputs.
pub(super) enum Rest {
    /// Nothing: a case of the forward pass alone.
    Nothing,
    /// What is poisoned, and the outputs on inputs that have it.
    Poisoned(Places, Box<Outputs>),
    /// Answers to related problems.
    Related(Box<Related>),
    /// A formula to compare with.
    Closed(ClosedForm),
    /// A backward pass.
    Backward(Box<BackwardPass>),
}

/// What a backward pass was given, and what it made of it.
pub(super) struct BackwardPass {
    /// Upstream gradients without poison, by which it is judged.
    pub(super) cotangents: Cotangents,
    /// Those that it was given.
    pub(super) given: Cotangents,
    pub(super) gradients: Gradients,
}

/// What a kernel answered to related problems.
pub(super) struct Related {
    pub(super) relation: Relation,
    /// Whether the kernel promises the relation to the bit.
    pub(super) exact: bool,
    /// The others, each as the kernel reads it, and the answers.
    pub(super) others: Vec<(Other, Outputs)>,
    /// The gradients of the first and of the one other, where the relation is about them too, and what
    /// both are from.
    pub(super) gradients: Option<RelatedGradients>,
    pub(super) seed: u64,
}

pub(super) struct RelatedGradients {
    pub(super) cotangents: Cotangents,
    pub(super) first: Gradients,
    pub(super) other: Gradients,
}

impl<'c> Answered<'c> {
    /// Puts the case to the kernel, with its inputs as [`drawn`] has them.
    pub(crate) fn put(
        subject: &mut dyn Subject,
        case: &'c Case,
        profile: Result<Profile, Failure>,
        inputs: Inputs,
    ) -> Result<Self, RunError> {
        let failure = match profile.and_then(|it| Answers::ask(subject, case, it, inputs)) {
            Ok(answers) => return Ok(Self::Answers(case, Box::new(answers))),
            Err(failure) => failure,
        };
        Judged::without_answer(&failure)
            .map(|judged| Self::Nothing(case, Box::new(judged)))
            .ok_or_else(|| RunError::Environment {
                case: case.name.clone(),
                reason: failure.to_string(),
            })
    }

    /// Whether the kernel does not offer what the case asks for.
    pub(super) fn is_unsupported(&self) -> bool {
        matches!(self, Self::Nothing(_, judged) if judged.verdict == Verdict::Unsupported)
    }

    /// Whether both are answers with the same bits, but for those of NaNs, and by the same contract.
    pub(super) fn is_same_as(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Answers(_, a), Self::Answers(_, b)) => a.profile == b.profile && a.is_same_as(b),
            _ => false,
        }
    }

    /// The number format of the case.
    pub(super) fn format(&self) -> Format {
        let (Self::Answers(case, _) | Self::Nothing(case, _)) = self;
        case.problem.format
    }

    /// The verdict alone.
    pub(crate) fn verdict(&self) -> Result<Judged, RunError> {
        match self {
            Self::Nothing(_, judged) => Ok((**judged).clone()),
            Self::Answers(case, answers) => judging::verdict(answers)
                .map_err(|source| RunError::Oracle { case: case.name.clone(), source }),
        }
    }

    /// The trivial answers that would pass as the kernel's does; none where it gave no answer.
    pub(super) fn marks(&self) -> Result<Vec<Mark>, RunError> {
        match self {
            Self::Nothing(..) => Ok(Vec::new()),
            Self::Answers(case, answers) => judging::marks(case, answers)
                .map_err(|source| RunError::Oracle { case: case.name.clone(), source }),
        }
    }

    pub(super) fn judge(&self, tests: Tests, watch: &impl Watch) -> Result<Judged, RunError> {
        match self {
            Self::Nothing(_, judged) => {
                let none = Statistics::NotApplicable(NotApplicable::NoAnswer);
                let statistics = tests.statistical.then_some(none);
                Ok(Judged { statistics, ..(**judged).clone() })
            }
            Self::Answers(case, answers) => {
                let show = |shown: Shown<'_>| watch.see(case, shown);
                judging::judge(case, answers, tests, &show)
                    .map_err(|source| RunError::Oracle { case: case.name.clone(), source })
            }
        }
    }
}

/// The case's inputs.
pub(crate) fn drawn(case: &Case) -> Result<Inputs, RunError> {
    case.inputs().map_err(|source| RunError::Inputs { case: case.name.clone(), source })
}

impl Kept for Answered<'_> {
    fn case(&self) -> &str {
        let (Self::Answers(case, _) | Self::Nothing(case, _)) = self;
        &case.name
    }

    /// Pairs of a row and a key.
    fn size(&self) -> usize {
        let (Self::Answers(case, _) | Self::Nothing(case, _)) = self;
        case.problem.score_shape().iter().fold(1, |pairs, &extent| pairs.saturating_mul(extent))
    }

    /// Without an answer there is nothing that another profile could change.
    fn verdict_under(&self, profile: &Profile) -> Result<Verdict, OracleError> {
        match self {
            Self::Nothing(_, judged) => Ok(judged.verdict),
            Self::Answers(_, answers) => judging::verdict_under(answers, profile),
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
    /// The problem as the kernel reads it, and its inputs.
    pub(crate) const fn posed(&self) -> (&Problem, &Inputs) {
        (&self.read, &self.inputs)
    }

    /// The upstream gradients of a case of the backward pass.
    pub(crate) fn cotangents(&self) -> Option<&Cotangents> {
        self.backward().map(|pass| &pass.cotangents)
    }

    /// Whether nothing but the answer itself is judged: no poisoned run, and no relation to another answer.
    pub(crate) const fn is_plain(&self) -> bool {
        !matches!(self.rest, Rest::Poisoned(..) | Rest::Related(_))
    }

    /// What other projects compare: outputs and gradients of the case's own problem.
    pub(crate) fn shown(&self) -> Outside<'_> {
        let gradients = self.backward().map(|pass| &pass.gradients);
        Outside { outputs: &self.outputs, gradients }
    }

    fn backward(&self) -> Option<&BackwardPass> {
        match &self.rest {
            Rest::Backward(pass) => Some(pass),
            _ => None,
        }
    }

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
        match case.check {
            None => {}
            Some(Check::Related(relation)) => {
                return Self::ask_related(subject, case, profile, inputs, relation);
            }
            Some(Check::Closed(form)) => {
                let outputs = subject.forward(&case.problem, &inputs)?;
                let (choices, read) = (subject.choices(), case.problem.clone());
                return Ok(Self {
                    profile,
                    choices,
                    read,
                    inputs,
                    outputs,
                    rest: Rest::Closed(form),
                });
            }
            Some(Check::Merge(splits)) => return Self::ask_merge(subject, case, profile, splits),
        }
        let cotangents = case.cotangents(profile.lse_format);
        let problem = case.problem.clone();
        let instance = Instance { problem, inputs, cotangents, poison: case.poison };
        Self::of_instance(subject, profile, instance)
    }

    /// Puts concrete inputs to the kernel.
    pub(super) fn of_instance(
        subject: &mut dyn Subject,
        profile: Profile,
        instance: Instance,
    ) -> Result<Self, Failure> {
        let Instance { problem, inputs, cotangents, poison } = instance;
        let problem = &problem;
        let choices = subject.choices();
        let read = choices.read(problem);
        // What is hidden is so in the problem that the kernel answers.
        let poison = poison.map(|poison| poison.places(&read, &inputs));
        let (inputs, outputs, rest) = match (cotangents, poison) {
            (Some(cotangents), poison) => {
                let given = |it: &Places| (it.inputs(&inputs), it.cotangents(&cotangents));
                let (inputs, upstream) =
                    poison.as_ref().map_or_else(|| (inputs.clone(), cotangents.clone()), given);
                let Backward { outputs, gradients } =
                    subject.backward(problem, &inputs, &upstream)?;
                let pass = BackwardPass { cotangents, given: upstream, gradients };
                (inputs, outputs, Rest::Backward(Box::new(pass)))
            }
            (None, Some(poison)) => {
                let clean = subject.forward(problem, &inputs)?;
                let outputs = subject.forward(problem, &poison.inputs(&inputs))?;
                (inputs, clean, Rest::Poisoned(poison, Box::new(outputs)))
            }
            (None, None) => {
                let outputs = subject.forward(problem, &inputs)?;
                (inputs, outputs, Rest::Nothing)
            }
        };
        Ok(Self { profile, choices, read, inputs, outputs, rest })
    }

    /// The verdict, and what it is on.
    pub(super) fn examined(self) -> Result<Examined, OracleError> {
        let judged = judging::verdict(&self)?;
        let Self { read, inputs, outputs, rest, .. } = self;
        let (inputs, outputs, gradients) = match rest {
            Rest::Poisoned(poison, poisoned) => (poison.inputs(&inputs), *poisoned, None),
            Rest::Backward(passes) => (inputs, outputs, Some(passes.gradients)),
            Rest::Nothing | Rest::Related(_) | Rest::Closed(_) => (inputs, outputs, None),
        };
        let given = Given { read, inputs, outputs, gradients };
        Ok(Examined { judged, given: Some(given) })
    }

    /// Asks for the answers to a problem and to those that are related to it.
    fn ask_related(
        subject: &mut dyn Subject,
        case: &Case,
        profile: Profile,
        inputs: Inputs,
        relation: Relation,
    ) -> Result<Self, Failure> {
        let Some(exact) = relation.is_exact(subject.guarantees()) else {
            let reason = format!("{}, which the kernel does not promise", relation.promise());
            return Err(Failure::Unsupported(reason));
        };
        let choices = subject.choices();
        let seed = case.input_seed();
        let first = Posed { problem: case.problem.clone(), inputs };
        let others = relation::others(relation, &first, case.family, seed.wrapping_add(1))
            .map_err(|misfit| Failure::Environment(misfit.to_string()))?;
        let cotangents = case.cotangents(profile.lse_format);
        let mut ask = |posed: &Posed| match &cotangents {
            None => Ok((subject.forward(&posed.problem, &posed.inputs)?, None)),
            Some(cotangents) => subject
                .backward(&posed.problem, &posed.inputs, cotangents)
                .map(|Backward { outputs, gradients }| (outputs, Some(gradients))),
        };
        let (outputs, first_gradients) = ask(&first)?;
        let mut answered = Vec::new();
        let mut gradients = None;
        for mut other in others {
            let (outputs, other_gradients) = ask(&other.posed)?;
            let both = first_gradients.clone().zip(other_gradients);
            gradients = both
                .zip(cotangents.clone())
                .map(|((first, other), cotangents)| RelatedGradients { cotangents, first, other });
            other.posed.problem = choices.read(&other.posed.problem);
            answered.push((other, outputs));
        }
        let related = Related { relation, exact, others: answered, gradients, seed };
        let Posed { problem, inputs } = first;
        let read = choices.read(&problem);
        let rest = Rest::Related(Box::new(related));
        Ok(Self { profile, choices, read, inputs, outputs, rest })
    }

    /// Asks for the merge of partials; the answer is one to the attention problem that it amounts to.
    fn ask_merge(
        subject: &mut dyn Subject,
        case: &Case,
        mut profile: Profile,
        splits: usize,
    ) -> Result<Self, Failure> {
        let choices = subject.choices();
        if (choices.lse_base, choices.lse_sign) != (LseBase::Natural, LseSign::Plus) {
            // A rounded LSE in another base is the exact LSE of nothing that can be written in nats.
            let reason = "a merge of LSEs in nats, by a kernel that has them in another form";
            return Err(Failure::Unsupported(reason.to_owned()));
        }
        let problem = &case.problem;
        let partials = merge::partials(problem, splits, profile.lse_format, case.input_seed());
        let outputs = subject.merge(problem, &partials)?;
        let (read, inputs) = merge::as_attention(problem, &partials);
        let outputs = merge::as_attention_outputs(problem, &outputs);
        // Weights of partials are not those of keys in blocks: the declared schedule is about these.
        profile.max_policy = None;
        Ok(Self { profile, choices, read, inputs, outputs, rest: Rest::Nothing })
    }

    /// Every tensor that the kernel gave, with the problem that it is part of the answer to.
    pub(super) fn tensors(&self) -> Vec<AnswerTensor<'_>> {
        let of_outputs = |problem, outputs| AnswerTensor::outputs(problem, outputs).into_iter();
        let mut given: Vec<_> = of_outputs(&self.read, &self.outputs).collect();
        match &self.rest {
            Rest::Nothing | Rest::Closed(_) => {}
            Rest::Poisoned(_, outputs) => given.extend(of_outputs(&self.read, outputs)),
            Rest::Backward(pass) => {
                given.extend(AnswerTensor::gradients(&self.read, &pass.gradients));
            }
            Rest::Related(related) => {
                for (other, outputs) in &related.others {
                    given.extend(of_outputs(&other.posed.problem, outputs));
                }
                if let Some(RelatedGradients { first, other, .. }) = &related.gradients {
                    given.extend(AnswerTensor::gradients(&self.read, first));
                    let last =
                        related.others.last().map_or(&self.read, |(it, _)| &it.posed.problem);
                    given.extend(AnswerTensor::gradients(last, other));
                }
            }
        }
        given
    }
}
