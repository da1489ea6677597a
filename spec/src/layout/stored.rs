//! Tensors in buffers, and back.

use ndarray::{ArrayD, IxDyn};

use super::{Buffer, Placed};
use crate::format::Format;
use crate::problem::Problem;
use crate::quantization::Descales;
use crate::tensor::{Cotangents, Gradients, Inputs, Outputs, Tensor};

/// A tensor that the problem's layout can not hold.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error(
    "{tensor} has {first} and {second} for the element at offset {offset}, the second of them at {place:?}: \
     expected one value, because the layout shares it"
)]
pub struct StoreError {
    /// The tensor's name.
    pub tensor: &'static str,
    /// Where the element stands.
    pub offset: usize,
    /// `[batch, head, position, entry]` of the second value.
    pub place: [usize; 4],
    /// The value stored first.
    pub first: f64,
    /// The value that differs from it.
    pub second: f64,
}

/// What a forward pass reads, as it stands in memory; bias and sinks are dense.
#[derive(Clone, Debug, PartialEq)]
pub struct StoredInputs {
    /// The query.
    pub query: Buffer,
    /// The key.
    pub key: Buffer,
    /// The value.
    pub value: Buffer,
    /// The bias, where the problem has one.
    pub bias: Option<Tensor>,
    /// The logits of the sinks, where the problem has them.
    pub sink: Option<Tensor>,
    /// The descales, where the problem is quantized; dense like bias and sinks.
    pub descale: Option<Descales>,
}

/// What a forward pass writes, as it stands in memory.
#[derive(Clone, Debug, PartialEq)]
pub struct StoredOutputs {
    /// The output.
    pub output: Buffer,
    /// The LSE, where the kernel gives it.
    pub lse: Option<Buffer>,
}

/// Upstream gradients as they stand in memory.
#[derive(Clone, Debug, PartialEq)]
pub struct StoredCotangents {
    /// That of the output.
    pub output: Buffer,
    /// That of the LSE; `None` is zero.
    pub lse: Option<Buffer>,
}

/// What a backward pass writes, as it stands in memory; gradients of bias and sinks are dense.
#[derive(Clone, Debug, PartialEq)]
pub struct StoredGradients {
    /// The gradient of the query.
    pub query: Buffer,
    /// The gradient of the key.
    pub key: Buffer,
    /// The gradient of the value.
    pub value: Buffer,
    /// The gradient of the bias, where the problem has one.
    pub bias: Option<Tensor>,
    /// The gradient of the sinks' logits, where the problem has them.
    pub sink: Option<Tensor>,
}

impl Buffer {
    /// A tensor in the buffer that the problem's layout gives it, of the tensor's own format. What
    /// has no storage is left out; what belongs to no element stays poison.
    ///
    /// # Errors
    /// [`StoreError`] where elements share a place and differ; NaN differs from NaN in nothing.
    ///
    /// # Panics
    /// When the tensor has not the shape of the problem's, or the problem is not valid: check them
    /// first.
    pub fn store(problem: &Problem, placed: Placed, tensor: &Tensor) -> Result<Self, StoreError> {
        let mut buffer = Self::poisoned(tensor.format(), problem.buffer_len(placed));
        let flat = tensor.values().as_standard_layout();
        let shape = IxDyn(&problem.placed_shape(placed));
        let values = flat.to_shape(shape).expect("a tensor of the problem's shape");
        for (place, offset) in problem.owned(placed) {
            let second = values[IxDyn(&place)];
            if buffer.is_written(offset) {
                let first = buffer.read(offset);
                if first.to_bits() != second.to_bits() && !(first.is_nan() && second.is_nan()) {
                    let tensor = placed.name();
                    return Err(StoreError { tensor, offset, place, first, second });
                }
            }
            buffer.write(offset, second);
        }
        Ok(buffer)
    }

    /// The tensor that the buffer holds by the problem's layout: NaN where an element has no storage
    /// or was not written.
    ///
    /// # Panics
    /// When the buffer is shorter than the layout's, or the problem is not valid: check them first.
    #[must_use]
    pub fn gather(&self, problem: &Problem, placed: Placed) -> Tensor {
        let mut shape = problem.placed_shape(placed).to_vec();
        let mut values = ArrayD::from_elem(IxDyn(&shape), f64::NAN);
        for (place, offset) in problem.owned(placed) {
            values[IxDyn(&place)] = self.read(offset);
        }
        if placed == Placed::Lse {
            shape.pop();
            values = values.into_shape_with_order(IxDyn(&shape)).expect("an axis of extent 1 less");
        }
        Tensor::exact(self.format(), values).expect("values of the buffer's own format")
    }
}

impl Problem {
    /// A tensor as its layout can hold it: of elements that share a place, each takes the value of
    /// the last; those without storage become NaN.
    ///
    /// # Panics
    /// As [`Buffer::store`] does.
    #[must_use]
    pub fn as_stored(&self, placed: Placed, tensor: &Tensor) -> Tensor {
        let mut buffer = Buffer::poisoned(tensor.format(), self.buffer_len(placed));
        let flat = tensor.values().as_standard_layout();
        let shape = IxDyn(&self.placed_shape(placed));
        let values = flat.to_shape(shape).expect("a tensor of the problem's shape");
        for (place, offset) in self.owned(placed) {
            buffer.write(offset, values[IxDyn(&place)]);
        }
        buffer.gather(self, placed)
    }
}

impl StoredInputs {
    /// Inputs as the problem's layout holds them.
    ///
    /// # Errors
    /// [`StoreError`] where elements share a place and differ.
    ///
    /// # Panics
    /// When the inputs are not the problem's: [`Inputs::check`] them first.
    pub fn store(problem: &Problem, inputs: &Inputs) -> Result<Self, StoreError> {
        Ok(Self {
            query: Buffer::store(problem, Placed::Query, &inputs.query)?,
            key: Buffer::store(problem, Placed::Key, &inputs.key)?,
            value: Buffer::store(problem, Placed::Value, &inputs.value)?,
            bias: inputs.bias.clone(),
            sink: inputs.sink.clone(),
            descale: inputs.descale.clone(),
        })
    }
}

impl StoredCotangents {
    /// Upstream gradients as the problem's layout holds them.
    ///
    /// # Errors
    /// None with a valid problem: no two elements of an output share a place.
    ///
    /// # Panics
    /// When the cotangents are not the problem's: [`Cotangents::check`] them first.
    pub fn store(problem: &Problem, cotangents: &Cotangents) -> Result<Self, StoreError> {
        let lse = cotangents.lse.as_ref();
        Ok(Self {
            output: Buffer::store(problem, Placed::Output, &cotangents.output)?,
            lse: lse.map(|lse| Buffer::store(problem, Placed::Lse, lse)).transpose()?,
        })
    }
}

impl StoredOutputs {
    /// Outputs of poison, for a kernel to write.
    #[must_use]
    pub fn poisoned(problem: &Problem, lse_format: Format) -> Self {
        let buffer = |placed, format| Buffer::poisoned(format, problem.buffer_len(placed));
        Self {
            output: buffer(Placed::Output, problem.output_format()),
            lse: Some(buffer(Placed::Lse, lse_format)),
        }
    }

    /// The tensors that the buffers hold.
    ///
    /// # Panics
    /// As [`Buffer::gather`] does.
    #[must_use]
    pub fn gather(&self, problem: &Problem) -> Outputs {
        Outputs {
            output: self.output.gather(problem, Placed::Output),
            lse: self.lse.as_ref().map(|lse| lse.gather(problem, Placed::Lse)),
        }
    }
}

impl StoredGradients {
    /// The tensors that the buffers hold.
    ///
    /// # Panics
    /// As [`Buffer::gather`] does.
    #[must_use]
    pub fn gather(&self, problem: &Problem) -> Gradients {
        Gradients {
            query: self.query.gather(problem, Placed::QueryGradient),
            key: self.key.gather(problem, Placed::KeyGradient),
            value: self.value.gather(problem, Placed::ValueGradient),
            bias: self.bias.clone(),
            sink: self.sink.clone(),
        }
    }
}
