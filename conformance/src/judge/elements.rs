//! The comparison of each element, as tensors.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use flashproof_spec::format::Format;
use flashproof_spec::tensor::Tensor;
use ndarray::{ArrayD, IxDyn};

use super::JudgeError;
use crate::io::safetensors;
use crate::verdict::{Answer, Compared, Location, Quantity};

/// What the file's metadata says of its tensors.
const MEANING: &str = "error: the smallest distance from the exact answer that is possible (of an \
LSE, in nats); bound: the largest of a kernel that keeps the declared profile; ratio: error over \
bound, infinite for an element that is required exactly and is another. NaN: not judged, or required \
exactly, or without a bound.";

/// Error, bound and ratio of each element of an answer; NaN where there is none.
pub(super) struct Elements {
    output: Mutex<Measures>,
    lse: Option<Mutex<Measures>>,
}

struct Measures {
    error: ArrayD<f64>,
    bound: ArrayD<f64>,
    ratio: ArrayD<f64>,
}

impl Elements {
    pub(super) fn new(answer: &Answer<'_>) -> Self {
        let unknown = |tensor: &Tensor| Mutex::new(Measures::unknown(tensor.shape()));
        Self {
            output: unknown(&answer.outputs.output),
            lse: answer.outputs.lse.as_ref().map(unknown),
        }
    }

    /// Keeps one row's elements.
    pub(super) fn record(&self, row: &[Compared]) {
        for compared in row {
            let measures = match compared.quantity {
                Quantity::Output => Some(&self.output),
                Quantity::Lse => self.lse.as_ref(),
            };
            if let Some(measures) = measures {
                // Each element is written by itself, so a panic elsewhere leaves nothing half done.
                measures.lock().unwrap_or_else(PoisonError::into_inner).set(compared);
            }
        }
    }

    /// Writes the file, whole or not at all.
    pub(super) fn write(self, path: &Path) -> Result<(), JudgeError> {
        let mut named =
            self.output.into_inner().unwrap_or_else(PoisonError::into_inner).named("output");
        if let Some(lse) = self.lse {
            named.extend(lse.into_inner().unwrap_or_else(PoisonError::into_inner).named("lse"));
        }
        let tensors: Vec<_> = named.iter().map(|(name, tensor)| (name.as_str(), tensor)).collect();
        let metadata = BTreeMap::from([("meaning".to_owned(), MEANING.to_owned())]);
        Ok(safetensors::write(path, &tensors, &metadata)?)
    }
}

impl Measures {
    fn unknown(shape: &[usize]) -> Self {
        let unknown = || ArrayD::from_elem(IxDyn(shape), f64::NAN);
        Self { error: unknown(), bound: unknown(), ratio: unknown() }
    }

    fn set(&mut self, compared: &Compared) {
        let element = &compared.element;
        let Location { batch, head, query, entry } = element.location;
        let at: Vec<usize> = [batch, head, query].into_iter().chain(entry).collect();
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
