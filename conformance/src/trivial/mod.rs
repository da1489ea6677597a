//! Answers that are no attention, to test the tests with.
//!
//! A kernel that was never launched leaves zeros; one that forgot its scores gives the mean of the
//! values; a reference that was rounded to a narrower format is nearly right everywhere. A suite that
//! lets such an answer pass says nothing of the kernels that pass it. So each answer here is put to
//! every case: as a [`Trivial`] kernel behind the adapter's interface, and, while a real kernel is
//! judged, beside that kernel's own answer. Where one would pass, the case is marked with it and with
//! the reason ([`Mark`]): some rows have one visible key, whose weight is 1 whatever the score.

mod forward;
mod gradient;
mod mark;
mod reference;
mod subject;
mod trial;

use std::collections::BTreeMap;
use std::fmt;

use flashproof_spec::format::Format;
use flashproof_spec::problem::Problem;
use flashproof_spec::tensor::{Cotangents, Gradients, Inputs, Outputs, Tensor};
use serde::{Serialize, Serializer};

pub use mark::{Mark, Reason};
pub use subject::Trivial;
pub(crate) use trial::{Trial, Tried};

use crate::verdict::{Convention, Quantity};

/// An answer that is no attention. What it does not replace is right.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Answer {
    /// Output and LSE zero: a kernel that was never launched.
    Zeros,
    /// The output zero.
    ZeroOutput,
    /// The output is the mean of the values that a row sees.
    MeanOfVisible,
    /// The output is the mean of all values of the head.
    MeanOfAll,
    /// Output and LSE of a softmax over zeros, sinks ignored.
    Uniform,
    /// Output and LSE standard normal.
    Noise,
    /// Output and LSE NaN.
    Nan,
    /// Output and LSE of the same problem on other inputs: what a buffer holds from the launch before.
    Stale,
    /// The output is a copy of the values, as far as they go.
    CopiedValue,
    /// The output is a copy of the query, as far as it goes.
    CopiedQuery,
    /// The output is the exact one, rounded to a narrower format.
    Narrower,
    /// Every gradient zero.
    ZeroGradients,
    /// `dQ` and `dK` zero.
    ZeroQueryAndKey,
    /// Each gradient is a copy of what it is a gradient with respect to.
    CopiedInputs,
    /// Each gradient is a copy of the upstream gradient of the output, as far as it goes.
    CopiedUpstream,
    /// Every gradient standard normal.
    NoiseGradients,
    /// Every gradient NaN.
    NanGradients,
    /// Gradients of the same problem on other inputs.
    StaleGradients,
    /// Each gradient is the exact one, rounded to a narrower format.
    NarrowerGradients,
}

impl Answer {
    /// Every answer: those of a forward pass, then those of a backward pass.
    pub const ALL: [Self; 19] = [
        Self::Zeros,
        Self::ZeroOutput,
        Self::MeanOfVisible,
        Self::MeanOfAll,
        Self::Uniform,
        Self::Noise,
        Self::Nan,
        Self::Stale,
        Self::CopiedValue,
        Self::CopiedQuery,
        Self::Narrower,
        Self::ZeroGradients,
        Self::ZeroQueryAndKey,
        Self::CopiedInputs,
        Self::CopiedUpstream,
        Self::NoiseGradients,
        Self::NanGradients,
        Self::StaleGradients,
        Self::NarrowerGradients,
    ];

    /// The name, as in reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Zeros => "zeros",
            Self::ZeroOutput => "zero-output",
            Self::MeanOfVisible => "mean-of-visible",
            Self::MeanOfAll => "mean-of-all",
            Self::Uniform => "uniform",
            Self::Noise => "noise",
            Self::Nan => "nan",
            Self::Stale => "stale",
            Self::CopiedValue => "copied-value",
            Self::CopiedQuery => "copied-query",
            Self::Narrower => "narrower",
            Self::ZeroGradients => "zero-gradients",
            Self::ZeroQueryAndKey => "zero-query-and-key",
            Self::CopiedInputs => "copied-inputs",
            Self::CopiedUpstream => "copied-upstream",
            Self::NoiseGradients => "noise-gradients",
            Self::NanGradients => "nan-gradients",
            Self::StaleGradients => "stale-gradients",
            Self::NarrowerGradients => "narrower-gradients",
        }
    }

    /// Whether it replaces gradients, behind a right forward pass; the others replace output or LSE.
    #[must_use]
    pub const fn is_backward(self) -> bool {
        matches!(
            self,
            Self::ZeroGradients
                | Self::ZeroQueryAndKey
                | Self::CopiedInputs
                | Self::CopiedUpstream
                | Self::NoiseGradients
                | Self::NanGradients
                | Self::StaleGradients
                | Self::NarrowerGradients
        )
    }

    /// The answers that a case of the backward or forward pass in `format` is to tell from right ones:
    /// those that replace what it is about.
    pub fn concerning(backward: bool, format: Format) -> impl Iterator<Item = Self> {
        let there_is = move |it: &Self| {
            let narrower = matches!(it, Self::Narrower | Self::NarrowerGradients);
            it.is_backward() == backward && (!narrower || reference::narrower(format).is_some())
        };
        Self::ALL.into_iter().filter(there_is)
    }
}

impl fmt::Display for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl Serialize for Answer {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}

/// What a kernel is asked, and how it writes an LSE.
#[derive(Clone, Copy)]
pub(crate) struct Question<'a> {
    pub(crate) problem: &'a Problem,
    pub(crate) inputs: &'a Inputs,
    /// Of a backward pass.
    pub(crate) cotangents: Option<&'a Cotangents>,
    pub(crate) lse_format: Format,
    pub(crate) convention: Convention,
}

/// The tensors that an answer has in place of the right ones.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Replaced(BTreeMap<Quantity, Tensor>);

impl Replaced {
    pub(crate) fn of(answer: Answer, question: &Question<'_>) -> Self {
        Self(if answer.is_backward() {
            gradient::tensors(answer, question)
        } else {
            forward::tensors(answer, question)
        })
    }

    pub(crate) fn get(&self, quantity: Quantity) -> Option<&Tensor> {
        self.0.get(&quantity)
    }

    fn or(&self, quantity: Quantity, right: &Tensor) -> Tensor {
        self.get(quantity).unwrap_or(right).clone()
    }

    /// The outputs with the tensors replaced that they have.
    pub(crate) fn outputs(&self, right: &Outputs) -> Outputs {
        Outputs {
            output: self.or(Quantity::Output, &right.output),
            lse: right.lse.as_ref().map(|lse| self.or(Quantity::Lse, lse)),
        }
    }

    /// The gradients with the tensors replaced that they have.
    pub(crate) fn gradients(&self, right: &Gradients) -> Gradients {
        let optional = |quantity, right: Option<&Tensor>| right.map(|it| self.or(quantity, it));
        Gradients {
            query: self.or(Quantity::QueryGradient, &right.query),
            key: self.or(Quantity::KeyGradient, &right.key),
            value: self.or(Quantity::ValueGradient, &right.value),
            bias: optional(Quantity::BiasGradient, right.bias.as_ref()),
            sink: optional(Quantity::SinkGradient, right.sink.as_ref()),
        }
    }
}
