//! The acceptance rules that other projects hold attention kernels to, re-implemented from their
//! descriptions.
//!
//! Each says of a kernel's answer whether it would pass. They are here to be compared with the
//! derived bounds (`flashproof mutants`), not to judge by. What a rule compares with is dense
//! attention ([`dense`]): a *reference* in `f64`, and where the rule asks for it a *peer*, the same in
//! the kernel's own format with a rounding after every operation, as eager `PyTorch` has it. Neither
//! comes from the oracle: the reference is what such rules have, good to some 1e-15, whose error no
//! tolerance here is near.
//!
//! | module | question it answers |
//! |---|---|
//! | [`table`] | which rules there are, and what each tolerates |
//! | [`tolerance`] | whether numbers are within a tolerance |
//! | [`dense`] | what a rule compares with |
//! | [`answer`] | what a rule says of a whole answer |
//! | [`drawn`], [`battery`] | on which inputs and problems rules are tried |

pub mod answer;
pub mod battery;
pub mod dense;
pub mod drawn;
pub mod table;
pub mod tolerance;

use flashproof_spec::format::Format;
use serde::Serialize;

use crate::verdict::Quantity;
use drawn::Distribution;
use tolerance::Tolerance;

/// An acceptance rule of another project.
#[derive(Clone, Copy, Debug)]
pub struct Rule {
    /// A short name, for columns.
    pub name: &'static str,
    /// Whose it is, and of which tests.
    pub project: &'static str,
    /// What it requires, in a formula or a few words.
    pub requires: &'static str,
    /// How its inputs are drawn, by the project's tests or, where their source was not at hand, as
    /// most draw them.
    pub inputs: Distribution,
    /// Whether the project states those inputs.
    pub states_inputs: bool,
    /// What it tolerates in an output of a kernel of that format; `None` where it does not look.
    pub tolerance: fn(Looked) -> Option<Tolerance>,
}

/// What a rule is asked about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Looked {
    /// Which output.
    pub quantity: Quantity,
    /// The format of the kernel's inputs and outputs.
    pub format: Format,
    /// Whether the problem has a softcap.
    pub softcap: bool,
}

/// What a rule says of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Opinion {
    /// It compares nothing that was given.
    DoesNotLook,
    /// All that it compares is within its tolerance.
    Accepts,
    /// Something is not.
    Rejects,
}

impl Rule {
    /// What the rule says of one output.
    #[must_use]
    pub fn opinion(&self, looked: Looked, numbers: &tolerance::Numbers<'_>) -> Opinion {
        match (self.tolerance)(looked) {
            None => Opinion::DoesNotLook,
            Some(tolerance) if tolerance.accepts(numbers) => Opinion::Accepts,
            Some(_) => Opinion::Rejects,
        }
    }
}
