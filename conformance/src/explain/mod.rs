//! Where and why one case fails: the smallest input that still fails, the state of the failing row block
//! by block beside the exact one, and the faults that would explain it.
//!
//! | file | question it answers |
//! |---|---|
//! | `origin` | which concrete input stands for the case |
//! | `target` | what a smaller input must still show |
//! | [`shrink`] | what the smallest such input is |
//! | [`state`] | where the kernel and the exact answer part |
//! | `alike` | which known wrong kernels answer so |
//! | `write`, `text`, `json` | how that is kept and told |

mod alike;
mod json;
mod origin;
pub mod shrink;
pub mod state;
mod target;
pub mod text;
mod write;

use flashproof_spec::problem::Problem;
use flashproof_spec::profile::Profile;

pub use alike::{Alike, Likeness};
pub use json::write as write_json;
pub use shrink::{Limits, Shrunk};
pub use state::{Along, Trace};
pub use target::Target;
pub use write::{WriteExampleError, write};

use self::alike::{Contract, alike};
use crate::adapter::{Choices, Subject};
use crate::case::Case;
use crate::report::CaseReport;
use crate::run::{RunError, quoted, run};
use crate::suite::Suite;
use crate::verdict::Verdict;

/// What is to be explained.
#[derive(Clone, Copy, Debug)]
pub struct Request<'c> {
    /// The case.
    pub case: &'c Case,
    /// The suite that it is of, for the commands that reproduce it.
    pub suite: Suite,
    /// How long to look for a smaller input.
    pub limits: Limits,
}

/// What was found out about a case.
#[derive(Clone, Debug)]
pub struct Explanation {
    /// The name that reaches the kernel.
    pub kernel: String,
    /// Its declared choices.
    pub choices: Choices,
    /// The case as `check` has it.
    pub report: CaseReport,
    /// The failing input; absent where the case does not fail, or its failure is none of an input by
    /// itself.
    pub example: Option<Example>,
    /// What there is to say of how it was come by.
    pub remarks: Vec<String>,
    /// The command that explains the case again.
    pub reproduce: String,
}

/// A failing input, as small as it was found.
#[derive(Clone, Debug)]
pub struct Example {
    /// What the case asks.
    pub from: Problem,
    /// The contract under which the answers are judged.
    pub profile: Profile,
    /// The failure that was kept.
    pub target: Target,
    /// The input, and the kernel's answer to it.
    pub shrunk: Shrunk,
    /// The failing element block by block; absent where there is none to follow.
    pub trace: Option<Trace>,
    /// The mutants that answer as the kernel does, those that come nearest first.
    pub alike: Vec<Alike>,
}

/// Puts the case to the kernel and, where it fails, looks for the reason. `progress` is called once for
/// each smaller input tried.
///
/// # Errors
/// [`RunError`] where the kernel could not be asked, for a reason that is not the kernel's.
pub fn explain(
    subject: &mut dyn Subject,
    request: &Request<'_>,
    progress: &dyn Fn(),
) -> Result<Explanation, RunError> {
    let Request { case, suite, limits } = *request;
    let mut reports = run(subject, suite, std::slice::from_ref(case), |_| ())?;
    let report = reports.remove(0);
    let mut explanation = Explanation {
        kernel: subject.name().to_owned(),
        choices: subject.choices(),
        reproduce: reproduce(subject.name(), case, suite),
        report,
        example: None,
        remarks: Vec::new(),
    };
    if !explanation.report.verdict.is_failure() {
        return Ok(explanation);
    }
    match explanation.report.verdict {
        Verdict::NoBound => {
            explanation
                .remarks
                .push("nothing is proven wrong, so there is nothing to shrink".to_owned());
            return Ok(explanation);
        }
        Verdict::TimedOut => {
            explanation.remarks.push(
                "not shrunk: each smaller input could take as long as the time limit".to_owned(),
            );
            return Ok(explanation);
        }
        _ => {}
    }
    let origin = origin::find(subject, case, &explanation.report)?;
    explanation.remarks.extend(origin.remarks);
    let Some(start) = origin.start else { return Ok(explanation) };
    let (profile, target) = (start.profile, start.target);
    let case_itself = (start.instance, start.examined);
    let from = case_itself.clone();
    let name = &case.name;
    let shrunk = shrink::shrink(subject, &profile, &target, from, limits, name, progress)?;
    let smallest = (&shrunk.instance, &shrunk.examined);
    let trace = state::trace(subject, &profile, &target, smallest, name)?;
    let contract = Contract { profile: &profile, choices: explanation.choices };
    let alike = alike(contract, &target, (&case_itself.0, &case_itself.1), smallest)
        .map_err(|source| RunError::Oracle { case: name.clone(), source })?;
    let from = case_itself.0.problem;
    explanation.example = Some(Example { from, profile, target, shrunk, trace, alike });
    Ok(explanation)
}

/// The command that explains a case.
fn reproduce(kernel: &str, case: &Case, suite: Suite) -> String {
    let suite = if suite == Suite::default() { String::new() } else { format!(" --suite {suite}") };
    let (kernel, seed) = (quoted(kernel), case.seed);
    format!("flashproof explain {kernel} {}{suite} --seed {seed}", quoted(&case.name))
}
