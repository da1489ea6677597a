//! Mutants that answer an input as the kernel under test does.
//!
//! Two answers with the same fault are each within their bounds of what that fault gives, and so within
//! twice the bound of each other. A mutant that answers an input right explains nothing, so it must fail
//! on it in the same way. A small input leaves room for several faults: those that answer the case's own
//! input alike too come first, and of those the ones that do so to the bit.

use std::num::NonZeroUsize;
use std::sync::{Mutex, PoisonError};

use flashproof_kernels::Kernel;
use flashproof_kernels::mutant::{Kind, Mutant, Pass, mutants};
use flashproof_oracle::error::OracleError;
use flashproof_spec::profile::{Profile, Schedule};
use flashproof_spec::tensor::{Cotangents, Gradients, Outputs, Tensor};
use serde::Serialize;

use super::target::Target;
use crate::adapter::builtin::Builtin;
use crate::adapter::{Backward, Choices, LseBase, LseSign, LseSink, Subject};
use crate::run::{Examined, Given, Instance};
use crate::verdict::{Answer, Compared, GradientAnswer, Standing, judge_gradients, judge_rows};

/// How like two answers are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Likeness {
    /// The same bits.
    Bits,
    /// Within twice the bound of each other, element by element.
    Bounds,
}

/// A mutant that gives the same answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Alike {
    /// The mutant's name.
    pub mutant: &'static str,
    /// What it does wrong.
    pub summary: &'static str,
    /// The clauses that say what is wrong with it.
    pub clauses: &'static [&'static str],
    /// How like the answers to the smallest input are.
    pub here: Likeness,
    /// How like the answers to the case's own input are; absent where they are not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub on_the_case: Option<Likeness>,
}

/// The contract of the kernel under test.
#[derive(Clone, Copy)]
pub(super) struct Contract<'c> {
    pub(super) profile: &'c Profile,
    pub(super) choices: Choices,
}

/// An input and the answer to it.
pub(super) type Answered<'a> = (&'a Instance, &'a Examined);

/// The mutants that answer both inputs as the kernel does, and then those that answer the smaller one
/// so. None where there is no answer, or one that is compared with another run; and none for a kernel
/// that gives its LSE in another form, whose bits mean something else.
pub(super) fn alike(
    contract: Contract<'_>,
    target: &Target,
    case: Answered<'_>,
    smallest: Answered<'_>,
) -> Result<Vec<Alike>, OracleError> {
    let Choices { lse_base, lse_sign, lse_sink, .. } = contract.choices;
    let usual = (LseBase::Natural, LseSign::Plus, LseSink::Included);
    if (lse_base, lse_sign, lse_sink) != usual || target.quantity.is_none() {
        return Ok(Vec::new());
    }
    let (Some(smallest), Some(case)) =
        (Evidence::of(contract, smallest)?, Evidence::of(contract, case)?)
    else {
        return Ok(Vec::new());
    };
    let pass = if target.is_forward() { Pass::Forward } else { Pass::Backward };
    let faults = mutants().iter().filter(|it| it.kind == Kind::Fault && it.pass == pass);
    let mut found = Vec::new();
    for mutant in faults {
        let Mutant { name, summary, clauses, .. } = *mutant;
        let mut here: Option<Alike> = None;
        for kernel in kernels(mutant, contract.profile) {
            let mut kernel = Builtin::new(kernel);
            let Some(likeness) = smallest.likeness(&mut kernel) else { continue };
            let on_the_case = case.likeness(&mut kernel);
            let new = Alike { mutant: name, summary, clauses, here: likeness, on_the_case };
            if here.as_ref().is_none_or(|held| rank(&new) < rank(held)) {
                here = Some(new);
            }
        }
        found.extend(here);
    }
    // A stable sort: among equals, the order of the catalogue.
    found.sort_by_key(rank);
    Ok(found)
}

/// Those that answer the case alike before those that do not, the same bits before others.
fn rank(alike: &Alike) -> (bool, Option<Likeness>, Likeness) {
    (alike.on_the_case.is_none(), alike.on_the_case, alike.here)
}

/// The mutant in its own tiles, and in those of the kernel's schedule.
fn kernels(mutant: &'static Mutant, profile: &Profile) -> Vec<Box<dyn Kernel>> {
    let scheduled = match profile.schedule {
        Schedule::Blocks(keys) => NonZeroUsize::new(keys),
        Schedule::Dense | Schedule::Undeclared => None,
    };
    let tiled = scheduled.map(|keys| mutant.tiled_kernel(keys, keys));
    [mutant.kernel()].into_iter().chain(tiled).collect()
}

/// An answer, element by element.
struct Evidence<'a> {
    contract: Contract<'a>,
    given: &'a Given,
    cotangents: Option<&'a Cotangents>,
    elements: Vec<Compared>,
}

impl<'a> Evidence<'a> {
    fn of(
        contract: Contract<'a>,
        (instance, examined): Answered<'a>,
    ) -> Result<Option<Self>, OracleError> {
        let (Some(given), None) = (&examined.given, instance.poison) else { return Ok(None) };
        let cotangents = instance.cotangents.as_ref();
        let mut evidence = Self { contract, given, cotangents, elements: Vec::new() };
        evidence.elements = evidence.judged()?;
        Ok(Some(evidence))
    }

    /// Every element of the answer.
    fn judged(&self) -> Result<Vec<Compared>, OracleError> {
        let Contract { profile, choices } = self.contract;
        let Given { read: problem, inputs, outputs, gradients } = self.given;
        let answer = Answer { problem, inputs, outputs, profile, choices };
        let elements = Mutex::new(Vec::new());
        let visit = |compared: &[Compared]| {
            elements.lock().unwrap_or_else(PoisonError::into_inner).extend_from_slice(compared);
        };
        judge_rows(&answer, &answer.every_row(), visit)?;
        if let Some((cotangents, gradients)) = self.cotangents.zip(gradients.as_ref()) {
            let answer = GradientAnswer { forward: answer, cotangents, gradients, wrong_rows: &[] };
            judge_gradients(&answer, &answer.every_place(), visit)?;
        }
        Ok(elements.into_inner().unwrap_or_else(PoisonError::into_inner))
    }

    /// How like the answer of another kernel is; `None` where it is another, or none, or right.
    fn likeness(&self, kernel: &mut Builtin) -> Option<Likeness> {
        let (outputs, gradients) = self.answer(kernel)?;
        let other = Given { outputs, gradients, ..self.given.clone() };
        let mut likeness = Likeness::Bits;
        let mut fails = false;
        for compared in &self.elements {
            let (got, of_other) = (compared.element.got, value_of(&other, compared)?);
            if same_bits(got, of_other) {
                fails |= matches!(compared.standing, Standing::Wrong(_));
                continue;
            }
            let bound = compared.element.bound?;
            if (got - of_other).abs() > 2.0 * bound || of_other.is_nan() {
                return None;
            }
            likeness = Likeness::Bounds;
            fails |= (of_other - compared.element.want.expected()).abs() > bound;
        }
        fails.then_some(likeness)
    }

    /// What another kernel answers.
    fn answer(&self, kernel: &mut Builtin) -> Option<(Outputs, Option<Gradients>)> {
        let Given { read, inputs, .. } = self.given;
        let Some(cotangents) = self.cotangents else {
            return Some((kernel.forward(read, inputs).ok()?, None));
        };
        let lse_format = kernel.profile(read.format).ok()?.lse_format;
        let of_lse = |lse: &Tensor| Tensor::rounded(lse_format, lse.values());
        let lse = cotangents.lse.as_ref().map(of_lse);
        let cotangents = Cotangents { output: cotangents.output.clone(), lse };
        let Backward { outputs, gradients } = kernel.backward(read, inputs, &cotangents).ok()?;
        Some((outputs, Some(gradients)))
    }
}

/// The element of another answer that stands where this one does; `None` where it has none.
fn value_of(given: &Given, compared: &Compared) -> Option<f64> {
    let tensor = given.tensor(compared.quantity)?;
    tensor.values().get(&compared.element.location.indices()[..]).copied()
}

fn same_bits(one: f64, other: f64) -> bool {
    one.to_bits() == other.to_bits() || (one.is_nan() && other.is_nan())
}
