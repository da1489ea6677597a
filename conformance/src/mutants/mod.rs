//! The kill matrix: which faults the suite catches, where and by which clause, and which of them the
//! acceptance rules of other projects miss.
//!
//! A specimen is a kernel that is wrong on purpose, or a control that is right in another way. It
//! answers the suite's cases; where its bits are those of the right kernel ([`RIGHT`]) there is nothing
//! to judge, and of the other cases some are judged. The rules of others ([`crate::rules`]) see the
//! answers that were judged, and answers on inputs that are drawn as their own tests draw them.
//!
//! | module | question it answers |
//! |---|---|
//! | [`specimen`] | what is put through the suite |
//! | [`plan`] | which cases are run, and how many are judged |
//! | `survey`, `choice` | where a specimen answers otherwise than the right kernel, and what of that is judged |
//! | `judgement`, `own` | what the bounds and the rules say |
//! | [`matrix`], [`kill`] | what is kept |
//! | [`text`], [`markdown`], [`html`] | how that is told |

mod choice;
pub mod html;
mod judgement;
pub mod kill;
pub mod markdown;
pub mod matrix;
mod own;
pub mod plan;
pub mod specimen;
mod survey;
pub mod text;
mod words;

use flashproof_kernels::Kernel;
use flashproof_kernels::cpu::{Quantized, Tiled};
use flashproof_spec::format::Format;

use crate::adapter::builtin::Builtin;
use crate::run::RunError;
use matrix::Matrix;
use plan::Plan;
use specimen::Specimen;
use survey::Survey;

/// The built-in kernel whose answers are right, and that faults are changes of; for inputs of 8 bits it
/// is `quantized`.
pub const RIGHT: &str = "tiled";

/// Steps of a run, to show how far it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// So many steps are to come, once known.
    Expected(usize),
    /// One is done.
    Done,
}

/// Puts the specimens through the suite and the rules.
///
/// # Errors
/// [`RunError`] where a case could not be put to a kernel or to the oracle.
pub fn run(
    specimens: &[Specimen],
    plan: &Plan,
    progress: &(dyn Fn(Step) + Sync),
) -> Result<Matrix, RunError> {
    let suites: Vec<_> = plan.formats.iter().map(|&format| plan.cases(format)).collect();
    let tasks = own::tasks(&plan.formats);
    progress(Step::Expected(suites.iter().map(|it| it.cases.len()).sum::<usize>() + tasks.len()));
    let mut matrix = Matrix::new(plan, &suites, specimens);
    for suite in &suites {
        let survey = Survey::of(specimens, suite, progress)?;
        let chosen = choice::choose(specimens, suite, &survey, &plan.extent);
        progress(Step::Expected(chosen.len()));
        let judged = judgement::judge(specimens, suite, &chosen, progress)?;
        for specimen in 0..specimens.len() {
            matrix.add_kill(specimen, suite.format, survey.of_specimen(specimen), &judged);
        }
        matrix.add_ours(&judged);
    }
    let seen = own::see(specimens, &tasks, plan.seed, progress)?;
    let judged = plan.extent.judged_own;
    matrix.add_own(&seen, &own::misses(specimens, &tasks, &seen, judged, plan.seed)?);
    Ok(matrix)
}

/// The right kernel for a format.
fn right(format: Format) -> Builtin {
    let tiled = Tiled::default();
    Builtin::new(if tiled.takes(format) { Box::new(tiled) } else { Box::new(Quantized::default()) })
}
