//! The comparison of each element, as tensors.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use flashproof_spec::format::Format;
use flashproof_spec::tensor::Tensor;
use ndarray::{ArrayD, IxDyn};

use super::JudgeError;
use crate::io::safetensors;
use crate::verdict::{Compared, Quantity, Standing};

/// What the file's metadata says of its tensors.
const MEANING: &str = "error: the smallest distance from the exact answer that is possible (of an \
LSE, in nats); bound: the largest of a kernel that keeps the declared profile; ratio: error over \
bound, infinite for an element that is required exactly and is another. NaN: not judged, or required \
exactly, or without a bound.";

/// Error, bound and ratio of each element of an answer; NaN where there is none.
pub(super) struct Elements(BTreeMap<Quantity, Mutex<Measures>>);

struct Measures {
    error: ArrayD<f64>,
    bound: ArrayD<f64>,
    ratio: ArrayD<f64>,
}

impl Elements {
    /// For these tensors of an answer.
    pub(super) fn new<'t>(answer: impl IntoIterator<Item = (Quantity, &'t Tensor)>) -> Self {
        let unknown = |(quantity, tensor): (Quantity, &Tensor)| {
            (quantity, Mutex::new(Measures::unknown(tensor.shape())))
        };
        Self(answer.into_iter().map(unknown).collect())
    }

    /// Keeps some elements.
    pub(super) fn record(&self, elements: &[Compared]) {
        for compared in elements {
            if let Some(measures) = self.0.get(&compared.quantity) {
                // Each element is written by itself, so a panic elsewhere leaves nothing half done.
                measures.lock().unwrap_or_else(PoisonError::into_inner).set(compared);
            }
        }
    }

    /// Writes the file, whole or not at all.
    pub(super) fn write(self, path: &Path) -> Result<(), JudgeError> {
        let named: Vec<_> = self
            .0
            .into_iter()
            .flat_map(|(quantity, measures)| {
                measures.into_inner().unwrap_or_else(PoisonError::into_inner).named(name(quantity))
            })
            .collect();
        let tensors: Vec<_> = named.iter().map(|(name, tensor)| (name.as_str(), tensor)).collect();
        let metadata = BTreeMap::from([("meaning".to_owned(), MEANING.to_owned())]);
        Ok(safetensors::write(path, &tensors, &metadata)?)
    }
}

/// What the tensors of an output are called.
const fn name(quantity: Quantity) -> &'static str {
    match quantity {
        Quantity::Output => "output",
        Quantity::Lse => "lse",
        Quantity::QueryGradient => "query_gradient",
        Quantity::KeyGradient => "key_gradient",
        Quantity::ValueGradient => "value_gradient",
        Quantity::BiasGradient => "bias_gradient",
        Quantity::SinkGradient => "sink_gradient",
    }
}

impl Measures {
    fn unknown(shape: &[usize]) -> Self {
        let unknown = || ArrayD::from_elem(IxDyn(shape), f64::NAN);
        Self { error: unknown(), bound: unknown(), ratio: unknown() }
    }

    fn set(&mut self, compared: &Compared) {
        if compared.standing == Standing::Unspecified {
            return;
        }
        let element = &compared.element;
        let at = element.location.indices();
        self.error[at.as_slice()] = element.error.unwrap_or(f64::NAN);
        self.bound[at.as_slice()] = element.bound.unwrap_or(f64::NAN);
        self.ratio[at.as_slice()] = element.ratio;
    }

    fn named(self, quantity: &str) -> Vec<(String, Tensor)> {
        [("error", self.error), ("bound", self.bound), ("ratio", self.ratio)]
            .into_iter()
            .map(|(what, values)| {
                (format!("{quantity}_{what}"), Tensor::rounded(Format::F64, &values))
            })
            .collect()
    }
}
