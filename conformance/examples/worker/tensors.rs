//! Tensors between the files of a case and the buffers that a kernel reads and writes.

use std::error::Error;
use std::fs::File;

use flashproof_conformance::io::safetensors::{Archive, Footprint, SparseTensor};
use flashproof_spec::format::Format;
use flashproof_spec::layout::{
    Buffer, Placed, StoredCotangents, StoredGradients, StoredInputs, StoredOutputs,
};
use flashproof_spec::problem::Problem;
use flashproof_spec::quantization::Descales;
use flashproof_spec::tensor::{Outputs, Tensor};
use ndarray::{Axis, Slice};

/// What a forward pass reads.
pub fn inputs(
    problem: &Problem,
    archive: &mut Archive<File>,
) -> Result<StoredInputs, Box<dyn Error>> {
    let mut placed =
        |placed: Placed| buffer(problem, placed, problem.format, placed.name(), archive);
    let (query, key, value) =
        (placed(Placed::Query)?, placed(Placed::Key)?, placed(Placed::Value)?);
    let bias = optional("bias", archive)?;
    let sink = optional("sink", archive)?;
    let descale = match problem.quantization {
        None => None,
        Some(_) => Some(Descales {
            query: archive.tensor("query_descale")?,
            key: archive.tensor("key_descale")?,
            value: archive.tensor("value_descale")?,
        }),
    };
    Ok(StoredInputs { query, key, value, bias, sink, descale })
}

/// The upstream gradients that a backward pass reads too.
pub fn cotangents(
    problem: &Problem,
    lse_format: Format,
    archive: &mut Archive<File>,
) -> Result<StoredCotangents, Box<dyn Error>> {
    let output = buffer(problem, Placed::Output, problem.format, "output_gradient", archive)?;
    let lse = archive
        .contains("lse_gradient")
        .then(|| buffer(problem, Placed::Lse, lse_format, "lse_gradient", archive));
    Ok(StoredCotangents { output, lse: lse.transpose()? })
}

/// The finished partial results that a merge reads.
pub fn partials(archive: &mut Archive<File>) -> Result<Vec<Outputs>, Box<dyn Error>> {
    let (outputs, lses) = (archive.tensor("outputs")?, archive.tensor("lses")?);
    let part = |tensor: &Tensor, split: usize| {
        let values = tensor.values().slice_axis(Axis(0), Slice::from(split..=split));
        Tensor::exact(tensor.format(), values.remove_axis(Axis(0)).to_owned())
    };
    (0..outputs.shape()[0])
        .map(|split| Ok(Outputs { output: part(&outputs, split)?, lse: Some(part(&lses, split)?) }))
        .collect()
}

/// The tensors to write of a forward pass, by their names in the file.
pub fn outputs(problem: &Problem, outputs: &StoredOutputs) -> Vec<SparseTensor> {
    let output = tensor(problem, Placed::Output, &outputs.output);
    let lse = outputs.lse.as_ref().map(|lse| tensor(problem, Placed::Lse, lse));
    [output].into_iter().chain(lse).collect()
}

/// Those of a backward pass.
pub fn gradients(problem: &Problem, gradients: &StoredGradients) -> Vec<SparseTensor> {
    let StoredGradients { query, key, value, bias, sink } = gradients;
    let placed = [
        tensor(problem, Placed::QueryGradient, query),
        tensor(problem, Placed::KeyGradient, key),
        tensor(problem, Placed::ValueGradient, value),
    ];
    let bias = bias.as_ref().map(|bias| SparseTensor::whole("bias_gradient", bias));
    let sink = sink.as_ref().map(|sink| SparseTensor::whole("sink_gradient", sink));
    placed.into_iter().chain(bias).chain(sink).collect()
}

/// A tensor that the layout places: of its own shape where it is contiguous, else a buffer.
fn buffer(
    problem: &Problem,
    placed: Placed,
    format: Format,
    name: &str,
    archive: &mut Archive<File>,
) -> Result<Buffer, Box<dyn Error>> {
    if problem.stands_contiguous(placed) {
        return Ok(Buffer::store(problem, placed, &archive.tensor(name)?)?);
    }
    let (buffer, _) = Footprint::of(problem, placed, format).read(archive, name)?;
    Ok(buffer)
}

fn tensor(problem: &Problem, placed: Placed, buffer: &Buffer) -> SparseTensor {
    if problem.stands_contiguous(placed) {
        SparseTensor::whole(placed.name(), &buffer.gather(problem, placed))
    } else {
        Footprint::of(problem, placed, buffer.format()).tensor(placed.name(), buffer)
    }
}

fn optional(name: &str, archive: &mut Archive<File>) -> Result<Option<Tensor>, Box<dyn Error>> {
    Ok(archive.contains(name).then(|| archive.tensor(name)).transpose()?)
}
