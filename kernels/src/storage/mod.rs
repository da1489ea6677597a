//! Passes over tensors as they stand in memory: rows are gathered, computed on, and scattered back.
//!
//! A row that stands nowhere is never read: where a kernel that computes on dense tensors needs some
//! number there, it is NaN, which no visible key or query may meet.

mod address;

use flashproof_spec::layout::{
    Buffer, Layout, Placed, StoredCotangents, StoredGradients, StoredInputs, StoredOutputs,
};
use flashproof_spec::problem::Problem;
use flashproof_spec::tensor::{Cotangents, Inputs, Outputs, Tensor};
use ndarray::{ArrayD, IxDyn};

use self::address::Rows;
use crate::{Kernel, Unsupported};

/// [`Kernel::forward`] between a gathering and a scattering.
pub(crate) fn forward<K: Kernel + ?Sized>(
    kernel: &K,
    problem: &Problem,
    inputs: &StoredInputs,
) -> Result<StoredOutputs, Unsupported> {
    let outputs = kernel.forward(&dense(problem), &gathered_inputs(problem, inputs))?;
    Ok(StoredOutputs {
        output: scatter(problem, Placed::Output, &outputs.output),
        lse: outputs.lse.map(|lse| scatter(problem, Placed::Lse, &lse)),
    })
}

/// [`Kernel::backward`] between a gathering and a scattering.
pub(crate) fn backward<K: Kernel + ?Sized>(
    kernel: &K,
    problem: &Problem,
    inputs: &StoredInputs,
    outputs: &StoredOutputs,
    cotangents: &StoredCotangents,
) -> Result<StoredGradients, Unsupported> {
    let lse = |lse: &Option<Buffer>| lse.as_ref().map(|lse| gather(problem, Placed::Lse, lse));
    let inputs = gathered_inputs(problem, inputs);
    let output = gather(problem, Placed::Output, &outputs.output);
    let outputs = Outputs { output, lse: lse(&outputs.lse) };
    let output = gather(problem, Placed::Output, &cotangents.output);
    let cotangents = Cotangents { output, lse: lse(&cotangents.lse) };
    let gradients = kernel.backward(&dense(problem), &inputs, &outputs, &cotangents)?;
    Ok(StoredGradients {
        query: scatter(problem, Placed::QueryGradient, &gradients.query),
        key: scatter(problem, Placed::KeyGradient, &gradients.key),
        value: scatter(problem, Placed::ValueGradient, &gradients.value),
        bias: gradients.bias,
        sink: gradients.sink,
    })
}

/// The problem whose tensors are the gathered ones.
fn dense(problem: &Problem) -> Problem {
    Problem { layout: Layout::Contiguous, ..problem.clone() }
}

fn gathered_inputs(problem: &Problem, inputs: &StoredInputs) -> Inputs {
    Inputs {
        query: gather(problem, Placed::Query, &inputs.query),
        key: gather(problem, Placed::Key, &inputs.key),
        value: gather(problem, Placed::Value, &inputs.value),
        bias: inputs.bias.clone(),
        sink: inputs.sink.clone(),
        descale: inputs.descale.clone(),
    }
}

/// Reads every row that stands somewhere.
///
/// Clauses: `FAS:layout.strided`, `FAS:layout.ragged`, `FAS:layout.paged`, `FAS:layout.offset`.
fn gather(problem: &Problem, placed: Placed, buffer: &Buffer) -> Tensor {
    let rows = Rows::of(problem, placed);
    let [batch, heads, positions, entries] = rows.shape;
    let mut values = Vec::new();
    for b in 0..batch {
        for h in 0..heads {
            for p in 0..positions {
                match rows.start(b, h, p) {
                    Some(start) => {
                        values.extend((0..entries).map(|e| buffer.read(rows.entry(start, e))));
                    }
                    None => values.extend(std::iter::repeat_n(f64::NAN, entries)),
                }
            }
        }
    }
    let axes = if placed == Placed::Lse { 3 } else { 4 };
    let values = ArrayD::from_shape_vec(IxDyn(&rows.shape[..axes]), values);
    let values = values.expect("as many values as the shape has places");
    Tensor::exact(buffer.format(), values).expect("values of the buffer's own format")
}

/// Writes every row that stands somewhere, whole, and nothing beside it.
///
/// Clauses: `FAS:layout.ownership`, `FAS:fwd.output.written`, `FAS:bwd.output.written`.
fn scatter(problem: &Problem, placed: Placed, tensor: &Tensor) -> Buffer {
    let rows = Rows::of(problem, placed);
    let mut buffer = Buffer::poisoned(tensor.format(), rows.elements);
    let [batch, heads, positions, entries] = rows.shape;
    let mut values = tensor.values().iter();
    for b in 0..batch {
        for h in 0..heads {
            for p in 0..positions {
                let row = values.by_ref().take(entries);
                if let Some(start) = rows.start(b, h, p) {
                    row.enumerate().for_each(|(e, &value)| {
                        buffer.write(rows.entry(start, e), value);
                    });
                } else {
                    row.for_each(drop);
                }
            }
        }
    }
    buffer
}
