//! The strict gate: elements that are within the hard bound, against what the exact rounding of the
//! declared schedule leaves of it (`FAS:bound.fwd.strict`, `FAS:bound.bwd.strict`).
//!
//! It takes outputs and the gradients of queries, keys and values. An element to which it does not apply
//! (the kernel declares no [`MaxPolicy`](flashproof_spec::profile::MaxPolicy), or the problem asks for
//! something that the profile does not settle) is counted as such and keeps the hard verdict.

use flashproof_oracle::row::Row;
use flashproof_spec::bound::strict::{self, Admitted};
use serde::Serialize;

use super::element::{Compared, Standing, ratio};
use super::place::Quantity;
use super::rows::Answer;
use super::tally::Element;

/// What the strict gate made of an element that is within its hard bound.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Strict {
    /// It does not apply.
    NotApplied,
    /// The element was put to it.
    Put {
        /// Distance from the middle of what is admitted to the nearest number that a kernel can have
        /// stored as this.
        error: f64,
        /// The largest such distance of a kernel that keeps the declared profile.
        bound: f64,
        /// Error over bound.
        ratio: f64,
    },
}

/// The elements of one output at the strict gate.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct StrictMeasured {
    /// Elements put to it: within their hard bound, and with a strict one.
    pub elements: usize,
    /// Elements that it proves wrong.
    pub wrong: usize,
    /// Elements within their hard bound to which it does not apply.
    pub not_applied: usize,
    /// The element of the largest strict ratio, with strict error and bound.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub worst: Option<Element>,
}

impl StrictMeasured {
    /// Of one element; nothing for one that the gate does not concern.
    pub(super) fn of(compared: &Compared) -> Self {
        match compared.strict {
            None => Self::default(),
            Some(Strict::NotApplied) => Self { not_applied: 1, ..Self::default() },
            Some(Strict::Put { error, bound, ratio }) => {
                let (error, bound) = (Some(error), Some(bound));
                Self {
                    elements: 1,
                    wrong: usize::from(matches!(compared.standing, Standing::Wrong(_))),
                    not_applied: 0,
                    worst: Some(Element { error, bound, ratio, ..compared.element.clone() }),
                }
            }
        }
    }

    pub(super) fn merge(&mut self, other: Self) {
        self.elements += other.elements;
        self.wrong += other.wrong;
        self.not_applied += other.not_applied;
        self.worst = match (self.worst.take(), other.worst) {
            (Some(a), Some(b)) => Some(if b.worse_than(&a) { b } else { a }),
            (a, b) => a.or(b),
        };
    }

    /// Whether the gate concerns no element.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.elements + self.not_applied == 0
    }
}

/// Puts an element that the hard gate has passed to the strict one. Others, and those that are required
/// exactly, it does not concern.
pub(super) fn put(compared: Compared, admitted: impl FnOnce() -> Option<Admitted>) -> Compared {
    if compared.standing != Standing::Right || compared.element.bound.is_none() {
        return compared;
    }
    let Some(admitted) = admitted() else {
        return Compared { strict: Some(Strict::NotApplied), ..compared };
    };
    let (error, bound) = admitted.departure(compared.element.got);
    let ratio = ratio(error, bound);
    let strict = Some(Strict::Put { error, bound, ratio });
    if error <= bound {
        return Compared { strict, ..compared };
    }
    let element = Element { error: Some(error), bound: Some(bound), ratio, ..compared.element };
    let standing = Standing::Wrong(clause(compared.quantity));
    Compared { element, standing, strict, ..compared }
}

/// The clause that states what is admitted.
const fn clause(quantity: Quantity) -> &'static str {
    match quantity {
        Quantity::Output | Quantity::Lse => "FAS:bound.fwd.strict",
        _ => "FAS:bound.bwd.strict",
    }
}

impl Answer<'_> {
    /// Where the outputs of a row lie before they are stored, entry by entry; `None` where the strict
    /// gate does not apply.
    pub(super) fn admitted(&self, row: &Row) -> Vec<Option<Admitted>> {
        let none = || vec![None; row.outputs.len()];
        let Some(condition) = &row.condition else { return none() };
        if !strict::applies_forward(self.problem, self.profile) {
            return none();
        }
        let values = self.kept_values(row);
        strict::forward(self.problem, self.profile, condition, &row.weighted, &values.view())
    }
}
