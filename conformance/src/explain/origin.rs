//! The concrete input that stands for a case.

use flashproof_spec::profile::Profile;

use super::target::Target;
use crate::adapter::{Choices, Subject};
use crate::case::{Case, Check};
use crate::judge::sample::MOST_PAIRS;
use crate::report::CaseReport;
use crate::run::{Examined, Instance, RunError, examine};

/// Where to start from, and what to say of it.
#[derive(Default)]
pub(super) struct Origin {
    pub(super) start: Option<Start>,
    pub(super) remarks: Vec<String>,
}

/// An input that fails by itself.
pub(super) struct Start {
    pub(super) profile: Profile,
    pub(super) instance: Instance,
    pub(super) examined: Examined,
    pub(super) target: Target,
}

/// The first of the inputs of a failing case that fails by itself, compared with the exact answer.
pub(super) fn find(
    subject: &mut dyn Subject,
    case: &Case,
    report: &CaseReport,
) -> Result<Origin, RunError> {
    let Ok(profile) = subject.profile(case.problem.format) else {
        let reason = "not shrunk: the kernel does not tell its profile".to_owned();
        return Ok(Origin { start: None, remarks: vec![reason] });
    };
    let mut origin = Origin::default();
    for (instance, remark) in candidates(case, &profile, subject.choices(), &mut origin.remarks)? {
        let examined = examine(subject, &profile, &instance, &case.name)?;
        if let Some(target) = Target::of(&examined.judged) {
            origin.remarks = remark.into_iter().collect();
            origin.start = Some(Start { profile, instance, examined, target });
            return Ok(origin);
        }
    }
    if origin.remarks.is_empty() {
        let verdict = report.verdict.name();
        origin.remarks.push(format!(
            "not shrunk: asked again, the kernel gives an answer that is not '{verdict}'"
        ));
    }
    Ok(origin)
}

/// Inputs that may stand for the case, each with what is to be said if it does.
fn candidates(
    case: &Case,
    profile: &Profile,
    choices: Choices,
    remarks: &mut Vec<String>,
) -> Result<Vec<(Instance, Option<String>)>, RunError> {
    let about = match case.check {
        None => None,
        Some(Check::Merge(_)) => {
            remarks.push(
                "not shrunk: the case is about a merge of partial results, which has no query, key and \
                 value to shrink"
                    .to_owned(),
            );
            return Ok(Vec::new());
        }
        Some(Check::Related(_)) => Some("the kernel's own answers to related problems"),
        Some(Check::Closed(_)) => Some("a formula"),
    };
    let problem = &case.problem;
    if problem.quantization.is_some() {
        remarks.push(
            "not shrunk: descales belong to blocks of positions, which a smaller problem has not"
                .to_owned(),
        );
        return Ok(Vec::new());
    }
    let [batch, heads, queries, keys] = problem.score_shape();
    if let Some(about) = about {
        let pairs = [heads, queries, keys].iter().fold(batch, |n, &of| n.saturating_mul(of));
        let why = if pairs > MOST_PAIRS {
            format!("whose {pairs} pairs of query and key are too many to compare exactly")
        } else {
            "which are right where they are compared with the exact answer".to_owned()
        };
        remarks.push(format!(
            "not shrunk: the case compares with {about}, not its inputs alone, {why}"
        ));
        if pairs > MOST_PAIRS {
            return Ok(Vec::new());
        }
    }
    let inputs =
        case.inputs().map_err(|source| RunError::Inputs { case: case.name.clone(), source })?;
    let cotangents = case.cotangents(profile.lse_format);
    let plain = Instance { problem: problem.clone(), inputs, cotangents, poison: None };
    let Some(poison) = case.poison else {
        let remark = about.map(|about| {
            format!(
                "the case compares with {about}; its inputs alone fail already, and are explained"
            )
        });
        return Ok(vec![(plain, remark)]);
    };
    // What is hidden is so in the problem that the kernel answers.
    let poisoned = poison.places(&choices.read(problem), &plain.inputs).inputs(&plain.inputs);
    let written = Instance { inputs: poisoned, ..plain.clone() };
    let remark =
        "the poison is written into the inputs, and the answer compared with the exact one";
    let beside = Instance { poison: Some(poison), ..plain };
    Ok(vec![(written, Some(remark.to_owned())), (beside, None)])
}
