//! What a smaller input must still show, so that it shows the same fault.

use serde::Serialize;

use crate::run::Judged;
use crate::verdict::{Location, Quantity, Verdict, Violation};

/// A failure to keep while the input shrinks.
///
/// Of the clauses that an answer violates, one is kept: that of the first output that is wrong, in the
/// order output, LSE, `dQ`, `dK`, `dV`, `dBias`, `dSink`, and where that violates several, the one that it
/// violates worst. Where the diagnosis finds a fault, the first that it names must still explain the
/// failure, so that a smaller input can not show another fault instead.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Target {
    /// The verdict.
    pub verdict: Verdict,
    /// The clause that is violated; absent where there is no answer, and none is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub clause: Option<&'static str>,
    /// The output that violates it; absent where there is no answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub quantity: Option<Quantity>,
    /// The fault that explains it, where one does.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fault: Option<&'static str>,
}

impl Target {
    /// The failure of an answer; `None` where the answer is right, or proves nothing.
    #[must_use]
    pub fn of(judged: &Judged) -> Option<Self> {
        let verdict = judged.verdict;
        if let Some(no_answer) = &judged.no_answer {
            let (clause, quantity, fault) = (no_answer.clause, None, None);
            return verdict.is_failure().then_some(Self { verdict, clause, quantity, fault });
        }
        let worst = principal(judged)?;
        Some(Self {
            verdict,
            clause: Some(worst.clause),
            quantity: Some(worst.quantity),
            fault: judged.findings.first().map(|finding| finding.fault),
        })
    }

    /// Whether an answer fails in the same way.
    #[must_use]
    pub fn is_shown(&self, judged: &Judged) -> bool {
        let same_fault = |fault| judged.findings.iter().any(|finding| finding.fault == fault);
        judged.verdict == self.verdict
            && match (self.quantity, &judged.no_answer) {
                (None, Some(no_answer)) => no_answer.clause == self.clause,
                (Some(_), None) => self.violation(judged).is_some(),
                _ => false,
            }
            && self.fault.is_none_or(same_fault)
    }

    /// The violation that is kept.
    #[must_use]
    pub fn violation<'j>(&self, judged: &'j Judged) -> Option<&'j Violation> {
        let same =
            |it: &&Violation| Some(it.clause) == self.clause && Some(it.quantity) == self.quantity;
        judged.tally.violations.iter().find(same)
    }

    /// Where it is worst.
    #[must_use]
    pub fn location(&self, judged: &Judged) -> Option<Location> {
        self.violation(judged).map(|violation| violation.worst.location)
    }

    /// Whether it lies in the forward pass.
    #[must_use]
    pub fn is_forward(&self) -> bool {
        matches!(self.quantity, Some(Quantity::Output | Quantity::Lse))
    }
}

/// The violation that a failure is known by.
fn principal(judged: &Judged) -> Option<&Violation> {
    let first = judged.tally.violations.iter().map(|it| it.quantity).min()?;
    let of_first = judged.tally.violations.iter().filter(|it| it.quantity == first);
    of_first.fold(None, |held: Option<&Violation>, new| match held {
        Some(held) if !new.worst.worse_than(&held.worst) => Some(held),
        _ => Some(new),
    })
}
