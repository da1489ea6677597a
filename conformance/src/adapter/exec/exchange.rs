//! The two files of one case: inputs to be left alone, outputs to be written.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::{Path, PathBuf};

use flashproof_spec::format::Format;
use flashproof_spec::problem::Problem;
use flashproof_spec::tensor::{Cotangents, Gradients, Inputs, Outputs, Tensor};
use ndarray::{ArrayD, IxDyn};
use safetensors::Dtype;
use sha2::{Digest, Sha256};

use crate::adapter::{AnswerError, Backward, Failure, named_inputs};
use crate::io::safetensors::{Archive, ReadError, dtype_of, format_of, write};

/// The files of one case, removed with it.
pub(super) struct Exchange<'a> {
    problem: &'a Problem,
    lse_format: Format,
    inputs: Vec<(&'static str, &'a Tensor)>,
    /// The names of the tensors to be written.
    asked: Vec<&'static str>,
    pub(super) inputs_path: PathBuf,
    pub(super) outputs_path: PathBuf,
    inputs_digest: [u8; 32],
}

/// A tensor that is to be written.
struct Slot {
    name: &'static str,
    shape: Vec<usize>,
    format: Format,
}

impl<'a> Exchange<'a> {
    /// Writes the inputs, and outputs that are NaN throughout: what a worker leaves unwritten can
    /// then never look right. With cotangents, it is a backward pass that is asked for.
    pub(super) fn prepare(
        directory: &Path,
        id: u64,
        problem: &'a Problem,
        inputs: &'a Inputs,
        cotangents: Option<&'a Cotangents>,
        lse_format: Format,
    ) -> Result<Self, Failure> {
        let inputs_path = directory.join(format!("{id}-inputs.safetensors"));
        let outputs_path = directory.join(format!("{id}-outputs.safetensors"));
        let inputs = named_inputs(inputs, cotangents);
        let mut slots = Vec::from(output_slots(problem, lse_format));
        if cotangents.is_some() {
            slots.extend(gradient_slots(problem));
        }
        let poison: Vec<_> = slots.iter().map(|slot| (slot.name, slot.poison())).collect();
        let poison: Vec<_> = poison.iter().map(|(name, tensor)| (*name, tensor)).collect();
        write(&inputs_path, &inputs, &BTreeMap::new()).map_err(environment)?;
        write(&outputs_path, &poison, &BTreeMap::new()).map_err(environment)?;
        let inputs_digest = digest(&inputs_path).map_err(environment)?;
        let asked = slots.iter().map(|slot| slot.name).collect();
        Ok(Self { problem, lse_format, inputs, asked, inputs_path, outputs_path, inputs_digest })
    }

    /// What the worker says it wrote in a forward pass.
    pub(super) fn outputs(&self) -> Result<Outputs, Failure> {
        self.check_inputs()?;
        Ok(self.read_outputs(&mut self.open()?)?)
    }

    /// What the worker says it wrote in a forward and a backward pass.
    pub(super) fn backward(&self) -> Result<Backward, Failure> {
        self.check_inputs()?;
        let mut archive = self.open()?;
        let outputs = self.read_outputs(&mut archive)?;
        Ok(Backward { outputs, gradients: self.read_gradients(&mut archive)? })
    }

    fn check_inputs(&self) -> Result<(), Failure> {
        if digest(&self.inputs_path).is_ok_and(|digest| digest == self.inputs_digest) {
            return Ok(());
        }
        let changed = Archive::open(&self.inputs_path).ok().and_then(|mut archive| {
            self.inputs
                .iter()
                .find(|&&(name, tensor)| !holds(&mut archive, name, tensor))
                .map(|&(name, _)| name)
        });
        Err(Failure::InputChanged(changed.unwrap_or("inputs file").to_owned()))
    }

    fn open(&self) -> Result<Archive<File>, AnswerError> {
        let archive = Archive::open(&self.outputs_path)?;
        match archive.names().into_iter().find(|name| !self.asked.contains(&name.as_str())) {
            None => Ok(archive),
            Some(tensor) => Err(AnswerError::ExtraOutput { tensor, expected: self.asked.clone() }),
        }
    }

    fn read_outputs(&self, archive: &mut Archive<File>) -> Result<Outputs, AnswerError> {
        let [output, lse] = output_slots(self.problem, self.lse_format);
        let lse = archive.contains(lse.name).then(|| lse.read(archive)).transpose()?;
        Ok(Outputs { output: output.read(archive)?, lse })
    }

    fn read_gradients(&self, archive: &mut Archive<File>) -> Result<Gradients, AnswerError> {
        let [query, key, value] = gradient_slots(self.problem);
        Ok(Gradients {
            query: query.read(archive)?,
            key: key.read(archive)?,
            value: value.read(archive)?,
        })
    }
}

fn output_slots(problem: &Problem, lse_format: Format) -> [Slot; 2] {
    [
        Slot::new("output", problem.output_shape(), problem.format),
        Slot::new("lse", problem.lse_shape(), lse_format),
    ]
}

fn gradient_slots(problem: &Problem) -> [Slot; 3] {
    [
        Slot::new("query_gradient", problem.query_shape(), problem.format),
        Slot::new("key_gradient", problem.key_shape(), problem.format),
        Slot::new("value_gradient", problem.value_shape(), problem.format),
    ]
}

impl Slot {
    fn new(name: &'static str, shape: impl Into<Vec<usize>>, format: Format) -> Self {
        Self { name, shape: shape.into(), format }
    }

    fn poison(&self) -> Tensor {
        let nan = ArrayD::from_elem(IxDyn(&self.shape), f64::NAN);
        Tensor::rounded(self.format, &nan)
    }

    /// Reads the tensor once its header has been seen to be right, so that a worker's mistake can
    /// not make this process read more than the problem calls for.
    fn read(&self, archive: &mut Archive<File>) -> Result<Tensor, AnswerError> {
        let (shape, dtype) = archive.describe(self.name)?;
        if shape != self.shape {
            return Err(AnswerError::WrongShape {
                tensor: self.name.to_owned(),
                found: shape.to_vec(),
                expected: self.shape.clone(),
            });
        }
        if dtype_of(self.format) != Some(dtype) {
            return Err(AnswerError::WrongFormat {
                tensor: self.name.to_owned(),
                found: format_name(dtype),
                expected: self.format.to_string(),
            });
        }
        Ok(archive.tensor(self.name)?)
    }
}

impl Drop for Exchange<'_> {
    fn drop(&mut self) {
        // The directory that holds them goes with the adapter in any case.
        let _ = fs::remove_file(&self.inputs_path);
        let _ = fs::remove_file(&self.outputs_path);
    }
}

impl From<ReadError> for AnswerError {
    fn from(error: ReadError) -> Self {
        match error {
            ReadError::Missing { tensor, .. } => Self::MissingOutput { tensor },
            other => Self::Unreadable { reason: other.to_string() },
        }
    }
}

/// Whether the archive still holds that tensor, bit for bit but for the payloads of NaN.
fn holds(archive: &mut Archive<File>, name: &str, tensor: &Tensor) -> bool {
    archive.tensor(name).is_ok_and(|found| {
        found.format() == tensor.format()
            && found.shape() == tensor.shape()
            && found
                .values()
                .iter()
                .zip(tensor.values())
                .all(|(a, b)| a.to_bits() == b.to_bits() || (a.is_nan() && b.is_nan()))
    })
}

fn digest(path: &Path) -> std::io::Result<[u8; 32]> {
    Ok(Sha256::digest(fs::read(path)?).into())
}

fn format_name(dtype: Dtype) -> String {
    format_of(dtype).map_or_else(|| dtype.to_string(), |format| format.to_string())
}

fn environment(error: impl std::fmt::Display) -> Failure {
    Failure::Environment(error.to_string())
}
