//! What a rule says of a whole answer.

use flashproof_spec::problem::Problem;
use flashproof_spec::tensor::{Cotangents, Gradients, Inputs, Outputs, Tensor};
use ndarray::{ArrayViewD, Axis};

use super::dense::{Dense, DenseGradients, DenseOutputs};
use super::tolerance::Numbers;
use super::{Looked, Opinion, Rule};
use crate::run::same_bits;
use crate::verdict::Quantity;

/// What rules compare answers to one problem with: computed once, for any number of answers.
#[derive(Clone, Debug)]
pub struct Standard {
    quantities: Vec<Compared>,
    problem: Problem,
}

/// One output of the reference and of the peer, where it is stored.
#[derive(Clone, Debug)]
struct Compared {
    quantity: Quantity,
    reference: Vec<f64>,
    peer: Vec<f64>,
}

impl Standard {
    /// Of output and LSE, and with cotangents of the gradients.
    ///
    /// # Panics
    /// When inputs or cotangents are not the problem's.
    #[must_use]
    pub fn new(problem: &Problem, inputs: &Inputs, cotangents: Option<&Cotangents>) -> Self {
        let [reference, peer] = [Dense::reference(problem, inputs), Dense::peer(problem, inputs)];
        let (of_reference, of_peer) = (reference.forward(), peer.forward());
        let mut quantities = Vec::new();
        let mut add = |quantity, reference: &ArrayViewD<'_, f64>, peer: &ArrayViewD<'_, f64>| {
            let [reference, peer] = [reference, peer].map(|it| stored(problem, quantity, it));
            quantities.push(Compared { quantity, reference, peer });
        };
        let DenseOutputs { output, lse } = &of_reference;
        add(Quantity::Output, &output.view().into_dyn(), &of_peer.output.view().into_dyn());
        add(Quantity::Lse, &lse.view().into_dyn(), &of_peer.lse.view().into_dyn());
        if let Some(cotangents) = cotangents {
            let DenseGradients { query, key, value, bias, sink } = reference.backward(cotangents);
            let of_peer = peer.backward(cotangents);
            for (quantity, reference, peer) in [
                (Quantity::QueryGradient, query.into_dyn(), of_peer.query.into_dyn()),
                (Quantity::KeyGradient, key.into_dyn(), of_peer.key.into_dyn()),
                (Quantity::ValueGradient, value.into_dyn(), of_peer.value.into_dyn()),
                (Quantity::BiasGradient, bias.into_dyn(), of_peer.bias.into_dyn()),
                (Quantity::SinkGradient, sink.into_dyn(), of_peer.sink.into_dyn()),
            ] {
                add(quantity, &reference.view(), &peer.view());
            }
        }
        Self { quantities, problem: problem.clone() }
    }

    /// Whether every number of the reference is finite, but for the LSEs of rows without keys: what
    /// the rules were made for.
    #[must_use]
    pub fn is_ordinary(&self) -> bool {
        self.quantities.iter().all(|it| {
            let of_lse = it.quantity == Quantity::Lse;
            let ordinary = |x: &f64| x.is_finite() || (of_lse && *x == f64::NEG_INFINITY);
            it.reference.iter().chain(&it.peer).all(ordinary)
        })
    }

    /// What the rule says of an answer: it rejects where it rejects one output or gradient.
    ///
    /// # Panics
    /// When the answer is not one to the problem.
    #[must_use]
    pub fn opinion(&self, rule: &Rule, answer: Shown<'_>) -> Opinion {
        self.opinion_of(rule, answer, |_| true)
    }

    /// As [`Standard::opinion`], of those outputs and gradients alone that differ from another answer's:
    /// the rule does not look where it compares none of them.
    ///
    /// # Panics
    /// When the answers are not to the problem.
    #[must_use]
    pub fn opinion_of_difference(
        &self,
        rule: &Rule,
        answer: Shown<'_>,
        other: Shown<'_>,
    ) -> Opinion {
        self.opinion_of(rule, answer, |quantity| match (answer.of(quantity), other.of(quantity)) {
            (Some(a), Some(b)) => !same_bits(a, b),
            (a, b) => a.is_some() || b.is_some(),
        })
    }

    fn opinion_of(
        &self,
        rule: &Rule,
        answer: Shown<'_>,
        is_of_interest: impl Fn(Quantity) -> bool,
    ) -> Opinion {
        let of = |compared: &Compared| {
            let quantity = compared.quantity;
            let Some(tensor) = answer.of(quantity).filter(|_| is_of_interest(quantity)) else {
                return Opinion::DoesNotLook;
            };
            let Problem { format, softcap, .. } = self.problem;
            let looked = Looked { quantity, format, softcap: softcap.is_some() };
            let numbers = Numbers {
                format: tensor.format(),
                got: &stored(&self.problem, quantity, &tensor.values().view()),
                reference: &compared.reference,
                peer: &compared.peer,
            };
            rule.opinion(looked, &numbers)
        };
        self.quantities.iter().map(of).max().unwrap_or(Opinion::DoesNotLook)
    }
}

/// What of an answer rules can look at.
#[derive(Clone, Copy, Debug)]
pub struct Shown<'a> {
    /// Output and LSE.
    pub outputs: &'a Outputs,
    /// Gradients, where they were asked for.
    pub gradients: Option<&'a Gradients>,
}

impl<'a> Shown<'a> {
    fn of(self, quantity: Quantity) -> Option<&'a Tensor> {
        match quantity {
            Quantity::Output => Some(&self.outputs.output),
            Quantity::Lse => self.outputs.lse.as_ref(),
            Quantity::QueryGradient => self.gradients.map(|it| &it.query),
            Quantity::KeyGradient => self.gradients.map(|it| &it.key),
            Quantity::ValueGradient => self.gradients.map(|it| &it.value),
            Quantity::BiasGradient => self.gradients.and_then(|it| it.bias.as_ref()),
            Quantity::SinkGradient => self.gradients.and_then(|it| it.sink.as_ref()),
        }
    }
}

/// The elements that the problem's layout stores, in order.
fn stored(problem: &Problem, quantity: Quantity, values: &ArrayViewD<'_, f64>) -> Vec<f64> {
    let has_row = match quantity {
        Quantity::BiasGradient | Quantity::SinkGradient => {
            return values.iter().copied().collect();
        }
        Quantity::KeyGradient | Quantity::ValueGradient => Problem::has_key_row,
        _ => Problem::has_query_row,
    };
    let mut kept = Vec::with_capacity(values.len());
    for (batch, member) in values.axis_iter(Axis(0)).enumerate() {
        for head in member.axis_iter(Axis(0)) {
            for (row, entries) in head.axis_iter(Axis(0)).enumerate() {
                if has_row(problem, batch, row) {
                    kept.extend(entries.iter().copied());
                }
            }
        }
    }
    kept
}
