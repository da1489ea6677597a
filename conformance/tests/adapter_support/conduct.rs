//! The faults of conduct that the faulty workers have, and what the adapter must make of each.

use flashproof_conformance::adapter::{AnswerError, Backward, Failure, Subject};
use flashproof_spec::problem::Problem;
use flashproof_spec::tensor::{Gradients, Outputs, Tensor};

use super::pointed;

/// What a forward or a backward pass gave.
#[derive(Clone, Debug, PartialEq)]
pub struct Answer {
    pub outputs: Outputs,
    pub gradients: Option<Gradients>,
}

/// What became of a case.
pub type Outcome = Result<Answer, Failure>;

/// The passes that a worker can be asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pass {
    Forward,
    Backward,
}

impl Pass {
    pub const ALL: [Self; 2] = [Self::Forward, Self::Backward];

    /// Asks for this pass of a case that points.
    pub fn run(self, subject: &mut dyn Subject, problem: &Problem) -> Outcome {
        let inputs = pointed::inputs(problem);
        match self {
            Self::Forward => {
                subject.forward(problem, &inputs).map(|outputs| Answer { outputs, gradients: None })
            }
            Self::Backward => subject
                .backward(problem, &inputs, &pointed::cotangents(problem))
                .map(|Backward { outputs, gradients }| Answer {
                    outputs,
                    gradients: Some(gradients),
                }),
        }
    }

    /// The exact answer.
    pub fn exact(self, problem: &Problem) -> Answer {
        let gradients = match self {
            Self::Forward => None,
            Self::Backward => Some(pointed::gradients(problem, &pointed::cotangents(problem))),
        };
        Answer { outputs: pointed::outputs(problem), gradients }
    }
}

/// A worker's fault, by the name that the faulty workers take, and whether an outcome shows it.
pub struct Fault {
    pub name: &'static str,
    pub shows: fn(&Outcome) -> bool,
}

const fn fault(name: &'static str, shows: fn(&Outcome) -> bool) -> Fault {
    Fault { name, shows }
}

fn malformed(outcome: &Outcome) -> Option<&AnswerError> {
    match outcome {
        Err(Failure::Malformed(error)) => Some(error),
        _ => None,
    }
}

fn is_nan(tensor: &Tensor) -> bool {
    tensor.values().iter().all(|value| value.is_nan())
}

fn lacks(outcome: &Outcome, tensor: &str) -> bool {
    malformed(outcome) == Some(&AnswerError::MissingOutput { tensor: tensor.to_owned() })
}

/// Whether the tensor is refused for want of one entry on its last axis.
fn is_cut(outcome: &Outcome, name: &str) -> bool {
    matches!(malformed(outcome), Some(AnswerError::WrongShape { tensor, found, expected })
        if tensor == name && found[..3] == expected[..3] && found[3] + 1 == expected[3])
}

/// Whether the tensor is refused for being in f64.
fn is_wide(outcome: &Outcome, name: &str) -> bool {
    matches!(malformed(outcome), Some(AnswerError::WrongFormat { tensor, found, .. })
        if tensor == name && found == "f64")
}

/// The faults of either pass, on a case whose output ends in an axis of at least 2 and whose format is
/// not f64.
pub const FAULTS: [Fault; 14] = [
    fault("crash", |outcome| {
        let said = ["exit status: 3", "out of registers"];
        matches!(outcome, Err(Failure::Crashed(how)) if said.iter().all(|part| how.contains(part)))
    }),
    fault("hang", |outcome| matches!(outcome, Err(Failure::TimedOut { .. }))),
    fault(
        "not-json",
        |outcome| matches!(malformed(outcome), Some(AnswerError::NotJson { found }) if found == "all is well"),
    ),
    fault("not-an-answer", |outcome| {
        matches!(malformed(outcome), Some(AnswerError::NotAnAnswer { .. }))
    }),
    fault(
        "wrong-id",
        |outcome| matches!(malformed(outcome), Some(AnswerError::WrongId { found, expected }) if *found == expected + 1),
    ),
    fault("reports-error", |outcome| {
        *outcome == Err(Failure::Reported("out of registers".to_owned()))
    }),
    fault("wrong-shape", |outcome| is_cut(outcome, "output")),
    fault("wrong-dtype", |outcome| is_wide(outcome, "output")),
    fault("missing-output", |outcome| lacks(outcome, "output")),
    fault("extra-output", |outcome| {
        matches!(malformed(outcome), Some(AnswerError::ExtraOutput { tensor, expected })
            if tensor == "weights" && expected[..2] == ["output", "lse"])
    }),
    fault("truncated-output", |outcome| {
        matches!(malformed(outcome), Some(AnswerError::Unreadable { .. }))
    }),
    fault("unwritten-output", |outcome| {
        outcome.as_ref().is_ok_and(|Answer { outputs, gradients }| {
            let gradients = gradients.iter().flat_map(|of| [&of.query, &of.key, &of.value]);
            let lse = outputs.lse.as_ref().expect("the poisoned LSE");
            [&outputs.output, lse].into_iter().chain(gradients).all(is_nan)
        })
    }),
    fault("non-finite-output", |outcome| {
        outcome.as_ref().is_ok_and(|answer| {
            let lse = answer.outputs.lse.as_ref().expect("an LSE");
            lse.values().iter().all(|value| *value == f64::INFINITY)
        })
    }),
    fault("writes-inputs", |outcome| *outcome == Err(Failure::InputChanged("key".to_owned()))),
];

/// Those of a backward pass alone.
pub const GRADIENT_FAULTS: [Fault; 5] = [
    fault("missing-gradient", |outcome| lacks(outcome, "key_gradient")),
    fault("wrong-gradient-shape", |outcome| is_cut(outcome, "query_gradient")),
    fault("wrong-gradient-dtype", |outcome| is_wide(outcome, "value_gradient")),
    fault("unwritten-gradient", |outcome| {
        outcome.as_ref().is_ok_and(|answer| {
            let gradients = answer.gradients.as_ref().expect("gradients");
            is_nan(&gradients.key) && !is_nan(&gradients.query) && !is_nan(&gradients.value)
        })
    }),
    fault("writes-cotangents", |outcome| {
        *outcome == Err(Failure::InputChanged("output_gradient".to_owned()))
    }),
];

/// Every fault with each pass that it shows in.
pub fn faults() -> impl Iterator<Item = (Fault, Pass)> {
    let either = Pass::ALL.into_iter().flat_map(|pass| FAULTS.map(|fault| (fault, pass)));
    either.chain(GRADIENT_FAULTS.map(|fault| (fault, Pass::Backward)))
}
