//! The two files of one case: inputs to be left alone, outputs to be written.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use flashproof_spec::format::Format;
use flashproof_spec::layout::{Buffer, Placed};
use flashproof_spec::problem::Problem;
use flashproof_spec::quantization::Descales;
use flashproof_spec::score::Sink;
use flashproof_spec::tensor::{Cotangents, Gradients, Inputs, Outputs, Tensor};
use ndarray::{ArrayD, Axis, stack};
use safetensors::Dtype;

use super::image::Image;
use super::protocol::Operation;
use crate::adapter::{AnswerError, Backward, Failure, OwnershipError};
use crate::io::safetensors::{
    Archive, Footprint, ReadError, Span, SparseTensor, dtype_of, format_of, poison, write_sparse,
};

/// What a worker is asked, with what it reads.
#[derive(Clone, Copy)]
pub(super) enum Task<'a> {
    Forward(&'a Inputs),
    Backward(&'a Inputs, &'a Cotangents),
    Merge(&'a [Outputs]),
}

/// The files of one case, removed with it.
pub(super) struct Exchange<'a> {
    problem: &'a Problem,
    lse_format: Format,
    /// The names of the tensors to be written.
    asked: Vec<&'static str>,
    pub(super) inputs_path: PathBuf,
    pub(super) outputs_path: PathBuf,
    inputs: Option<Image>,
}

impl Task<'_> {
    pub(super) const fn operation(self) -> Operation {
        match self {
            Self::Forward(_) => Operation::Forward,
            Self::Backward(..) => Operation::Backward,
            Self::Merge(_) => Operation::Merge,
        }
    }

    /// The tensors that the worker reads.
    fn reads(self, problem: &Problem) -> Result<Vec<SparseTensor>, Failure> {
        match self {
            Self::Forward(inputs) => inputs_of(problem, inputs),
            Self::Backward(inputs, cotangents) => {
                let mut tensors = inputs_of(problem, inputs)?;
                tensors.extend(cotangents_of(problem, cotangents)?);
                Ok(tensors)
            }
            Self::Merge(partials) => {
                let outputs: Vec<_> = partials.iter().map(|partial| &partial.output).collect();
                let lses: Vec<_> =
                    partials.iter().filter_map(|partial| partial.lse.as_ref()).collect();
                Ok(vec![stacked("outputs", &outputs)?, stacked("lses", &lses)?])
            }
        }
    }

    /// The tensors that it is asked to write.
    fn slots(self, problem: &Problem, lse_format: Format) -> Vec<Slot> {
        let mut slots = Vec::from(output_slots(problem, lse_format));
        if let Self::Backward(..) = self {
            slots.extend(gradient_slots(problem));
            slots.extend(bias_slot(problem));
            slots.extend(sink_slot(problem));
        }
        slots
    }
}

impl<'a> Exchange<'a> {
    /// Writes the inputs, and outputs that are NaN throughout: what a worker leaves unwritten can
    /// then never look right.
    pub(super) fn prepare(
        directory: &Path,
        id: u64,
        problem: &'a Problem,
        task: Task<'_>,
        lse_format: Format,
    ) -> Result<Self, Failure> {
        let slots = task.slots(problem, lse_format);
        let mut exchange = Self {
            problem,
            lse_format,
            asked: slots.iter().map(|slot| slot.name).collect(),
            inputs_path: directory.join(format!("{id}-inputs.safetensors")),
            outputs_path: directory.join(format!("{id}-outputs.safetensors")),
            inputs: None,
        };
        let poison: Vec<_> = slots.iter().map(|slot| slot.poisoned(problem)).collect();
        let extents =
            write_sparse(&exchange.inputs_path, &task.reads(problem)?).map_err(environment)?;
        write_sparse(&exchange.outputs_path, &poison).map_err(environment)?;
        exchange.inputs = Some(Image::of(&exchange.inputs_path, extents).map_err(environment)?);
        Ok(exchange)
    }

    /// What the worker says it wrote of outputs.
    pub(super) fn outputs(&self) -> Result<Outputs, Failure> {
        self.check_inputs()?;
        self.read_outputs(&mut self.open()?)
    }

    /// What the worker says it wrote in a forward and a backward pass.
    pub(super) fn backward(&self) -> Result<Backward, Failure> {
        self.check_inputs()?;
        let mut archive = self.open()?;
        let outputs = self.read_outputs(&mut archive)?;
        Ok(Backward { outputs, gradients: self.read_gradients(&mut archive)? })
    }

    fn check_inputs(&self) -> Result<(), Failure> {
        match self.inputs.as_ref().and_then(Image::changed) {
            None => Ok(()),
            Some(changed) => Err(Failure::InputChanged(changed.to_owned())),
        }
    }

    fn open(&self) -> Result<Archive<File>, AnswerError> {
        let archive = Archive::open(&self.outputs_path)?;
        match archive.names().into_iter().find(|name| !self.asked.contains(&name.as_str())) {
            None => Ok(archive),
            Some(tensor) => Err(AnswerError::ExtraOutput { tensor, expected: self.asked.clone() }),
        }
    }

    fn read_outputs(&self, archive: &mut Archive<File>) -> Result<Outputs, Failure> {
        let [output, lse] = output_slots(self.problem, self.lse_format);
        let lse =
            archive.contains(lse.name).then(|| lse.read(self.problem, archive)).transpose()?;
        Ok(Outputs { output: output.read(self.problem, archive)?, lse })
    }

    fn read_gradients(&self, archive: &mut Archive<File>) -> Result<Gradients, Failure> {
        let problem = self.problem;
        let mut read = |slot: Slot| slot.read(problem, archive);
        let [query, key, value] = gradient_slots(problem);
        Ok(Gradients {
            query: read(query)?,
            key: read(key)?,
            value: read(value)?,
            bias: bias_slot(problem).map(&mut read).transpose()?,
            sink: sink_slot(problem).map(&mut read).transpose()?,
        })
    }
}

/// A tensor that is to be written.
struct Slot {
    name: &'static str,
    /// The tensor whose place it takes in the layout; `None`: dense under any.
    placed: Option<Placed>,
    shape: Vec<usize>,
    format: Format,
}

fn output_slots(problem: &Problem, lse_format: Format) -> [Slot; 2] {
    [
        Slot::placed(problem, Placed::Output, problem.output_shape(), problem.output_format()),
        Slot::placed(problem, Placed::Lse, problem.lse_shape(), lse_format),
    ]
}

fn gradient_slots(problem: &Problem) -> [Slot; 3] {
    [Placed::QueryGradient, Placed::KeyGradient, Placed::ValueGradient]
        .map(|placed| Slot::placed(problem, placed, problem.placed_shape(placed), problem.format))
}

fn bias_slot(problem: &Problem) -> Option<Slot> {
    problem.bias.map(|bias| Slot::dense("bias_gradient", bias.shape, bias.format))
}

fn sink_slot(problem: &Problem) -> Option<Slot> {
    match problem.sink {
        None | Some(Sink::Zero) => None,
        Some(Sink::Logits(format)) => {
            Some(Slot::dense("sink_gradient", problem.sink_shape(), format))
        }
    }
}

impl Slot {
    fn dense(name: &'static str, shape: impl Into<Vec<usize>>, format: Format) -> Self {
        Self { name, placed: None, shape: shape.into(), format }
    }

    /// A tensor that the layout places: of its own shape where that is contiguous, else the buffer.
    fn placed(
        problem: &Problem,
        placed: Placed,
        shape: impl Into<Vec<usize>>,
        format: Format,
    ) -> Self {
        if problem.stands_contiguous(placed) {
            return Self::dense(placed.name(), shape, format);
        }
        let shape = vec![problem.buffer_len(placed)];
        Self { name: placed.name(), placed: Some(placed), shape, format }
    }

    fn poisoned(&self, problem: &Problem) -> SparseTensor {
        if let Some(placed) = self.placed {
            return Footprint::of(problem, placed, self.format).poisoned(self.name);
        }
        let bytes = poison(self.format).repeat(self.shape.iter().product());
        let spans = vec![Span { start: 0, bytes }];
        SparseTensor { name: self.name, format: self.format, shape: self.shape.clone(), spans }
    }

    /// Reads the tensor once its header has been seen to be right, so that a worker's mistake can
    /// not make this process read more than the problem calls for.
    fn read(&self, problem: &Problem, archive: &mut Archive<File>) -> Result<Tensor, Failure> {
        self.check_header(archive)?;
        let Some(placed) = self.placed else {
            return Ok(archive.tensor(self.name).map_err(AnswerError::from)?);
        };
        let footprint = Footprint::of(problem, placed, self.format);
        match footprint.read(archive, self.name).map_err(AnswerError::from)? {
            (buffer, None) => Ok(buffer.gather(problem, placed)),
            (_, Some(offset)) => Err(OwnershipError::Beside { tensor: self.name, offset }.into()),
        }
    }

    fn check_header(&self, archive: &Archive<File>) -> Result<(), AnswerError> {
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
        Ok(())
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

fn inputs_of(problem: &Problem, inputs: &Inputs) -> Result<Vec<SparseTensor>, Failure> {
    let placed = [
        input(problem, "query", Placed::Query, &inputs.query)?,
        input(problem, "key", Placed::Key, &inputs.key)?,
        input(problem, "value", Placed::Value, &inputs.value)?,
    ];
    let bias = inputs.bias.as_ref().map(|bias| SparseTensor::whole("bias", bias));
    let sink = inputs.sink.as_ref().map(|sink| SparseTensor::whole("sink", sink));
    let descales = inputs.descale.iter().flat_map(Descales::named);
    let descales = descales.map(|(name, descale)| SparseTensor::whole(name, descale));
    Ok(placed.into_iter().chain(bias).chain(sink).chain(descales).collect())
}

fn cotangents_of(problem: &Problem, cotangents: &Cotangents) -> Result<Vec<SparseTensor>, Failure> {
    let output = input(problem, "output_gradient", Placed::Output, &cotangents.output)?;
    let lse = cotangents.lse.as_ref();
    let lse = lse.map(|lse| input(problem, "lse_gradient", Placed::Lse, lse)).transpose()?;
    Ok([output].into_iter().chain(lse).collect())
}

/// A tensor that the layout places, as it is written: whole where it is contiguous, else the buffer.
fn input(
    problem: &Problem,
    name: &'static str,
    placed: Placed,
    tensor: &Tensor,
) -> Result<SparseTensor, Failure> {
    if problem.stands_contiguous(placed) {
        return Ok(SparseTensor::whole(name, tensor));
    }
    let buffer = Buffer::store(problem, placed, tensor).map_err(environment)?;
    Ok(Footprint::of(problem, placed, tensor.format()).tensor(name, &buffer))
}

/// Tensors of one shape and format as one with a further axis in front.
fn stacked(name: &'static str, tensors: &[&Tensor]) -> Result<SparseTensor, Failure> {
    let views: Vec<_> = tensors.iter().map(|tensor| tensor.values().view()).collect();
    let first = tensors.first().ok_or_else(|| environment("no partial results to merge"))?;
    let values: ArrayD<f64> = stack(Axis(0), &views).map_err(environment)?;
    let values = values.as_standard_layout().into_owned();
    let tensor = Tensor::exact(first.format(), values).map_err(environment)?;
    Ok(SparseTensor::whole(name, &tensor))
}

fn format_name(dtype: Dtype) -> String {
    format_of(dtype).map_or_else(|| dtype.to_string(), |format| format.to_string())
}

fn environment(error: impl std::fmt::Display) -> Failure {
    Failure::Environment(error.to_string())
}
