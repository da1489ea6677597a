//! What is put through the suite: kernels that are wrong on purpose, and controls.

use std::fmt;
use std::sync::Arc;

use flashproof_kernels::mutant::{Kind, Mutant, Pass, mutants};

use flashproof_spec::format::Format;

use crate::adapter::Subject;
use crate::adapter::builtin::Builtin;
use crate::case::Case;
use crate::suite::Direction;

/// A kernel that is wrong on purpose, or right in another way than [`super::RIGHT`].
#[derive(Clone)]
pub struct Specimen {
    /// Its name.
    pub name: String,
    /// What it does, in a line.
    pub summary: String,
    /// Whether it is wrong. A control is right, and must not be flagged.
    pub is_fault: bool,
    /// The pass that differs from the right kernel's, and whose cases it is put through.
    pub pass: Direction,
    /// The clauses that describe the fault: those that it violates.
    pub clauses: Vec<&'static str>,
    /// Whether it takes inputs of a format.
    pub takes: Arc<dyn Fn(Format) -> bool + Send + Sync>,
    /// A new one for each case, so that no answer depends on what was asked before.
    pub open: Arc<dyn Fn() -> Box<dyn Subject> + Send + Sync>,
}

impl fmt::Debug for Specimen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Specimen").field("name", &self.name).finish_non_exhaustive()
    }
}

/// Every fault and every control among the built-in kernels, faults first.
#[must_use]
pub fn specimens() -> Vec<Specimen> {
    mutants().iter().map(Specimen::of).collect()
}

impl Specimen {
    /// Whether the case is one of its pass, in a format that it takes.
    pub(super) fn is_asked(&self, case: &Case) -> bool {
        self.pass.includes(case) && (self.takes)(case.problem.format)
    }

    fn of(mutant: &'static Mutant) -> Self {
        Self {
            name: mutant.name.to_owned(),
            summary: mutant.summary.to_owned(),
            is_fault: mutant.kind == Kind::Fault,
            pass: match mutant.pass {
                Pass::Forward => Direction::Forward,
                Pass::Backward => Direction::Backward,
            },
            clauses: mutant.clauses.to_vec(),
            takes: Arc::new(|format| mutant.kernel().takes(format)),
            open: Arc::new(|| Box::new(Builtin::new(mutant.kernel()))),
        }
    }
}
