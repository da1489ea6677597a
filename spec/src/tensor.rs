//! Tensors: exact values, tagged with the format they are representable in.

use ndarray::{ArrayD, ArrayView3, ArrayView4, Ix3, Ix4, IxDyn};

use crate::format::Format;
use crate::problem::Problem;
use crate::quantization::Descales;
use crate::score::Sink;

/// A dense tensor whose every value is representable in `format`.
///
/// Values are held as `f64`, which contains each supported format, so no value is ever changed by
/// being held. NaN payloads are not kept.
#[derive(Clone, Debug, PartialEq)]
pub struct Tensor {
    format: Format,
    values: ArrayD<f64>,
}

/// Data that does not make the tensor that was asked for.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[allow(missing_docs)] // each variant's message is its documentation
pub enum TensorError {
    #[error("{tensor} has shape {found:?}: expected {expected:?}")]
    Shape { tensor: String, found: Vec<usize>, expected: Vec<usize> },
    #[error("{tensor} has format {found}: expected {expected}")]
    Format { tensor: String, found: Format, expected: Format },
    #[error("{count} values do not fill shape {shape:?}")]
    Count { count: usize, shape: Vec<usize> },
    #[error("{tensor} is missing: the problem has one")]
    Missing { tensor: String },
    #[error("{tensor} is given: the problem has none")]
    Unexpected { tensor: String },
    #[error("{tensor} has {value} at flat index {index}: expected a positive, finite number")]
    Descale { tensor: String, value: f64, index: usize },
    #[error("value {value} at flat index {index} is not representable in {format}")]
    Value { value: f64, index: usize, format: Format },
}

impl Tensor {
    /// A tensor of values that are representable in `format` already.
    ///
    /// # Errors
    /// [`TensorError::Value`] at the first value that is not.
    pub fn exact(format: Format, values: ArrayD<f64>) -> Result<Self, TensorError> {
        match values.iter().enumerate().find(|(_, value)| !format.represents(**value)) {
            None => Ok(Self { format, values }),
            Some((index, &value)) => Err(TensorError::Value { value, index, format }),
        }
    }

    /// A tensor of values rounded to `format`, to nearest, ties to even.
    #[must_use]
    pub fn rounded(format: Format, values: &ArrayD<f64>) -> Self {
        Self { format, values: values.mapv(|value| format.round(value)) }
    }

    /// As [`Tensor::rounded`], from a flat row-major list.
    ///
    /// # Errors
    /// [`TensorError::Count`] when the list does not fill the shape.
    pub fn rounded_from(
        format: Format,
        shape: &[usize],
        values: Vec<f64>,
    ) -> Result<Self, TensorError> {
        let count = values.len();
        ArrayD::from_shape_vec(IxDyn(shape), values)
            .map(|values| Self::rounded(format, &values))
            .map_err(|_| TensorError::Count { count, shape: shape.to_vec() })
    }

    /// The format that every value is representable in.
    #[must_use]
    pub const fn format(&self) -> Format {
        self.format
    }

    /// The values, of any number of axes.
    #[must_use]
    pub const fn values(&self) -> &ArrayD<f64> {
        &self.values
    }

    /// The extents.
    #[must_use]
    pub fn shape(&self) -> &[usize] {
        self.values.shape()
    }

    /// The values as `[batch, head, position, dimension]`.
    ///
    /// # Panics
    /// When the tensor has not four axes: check it against its problem first.
    #[must_use]
    pub fn view4(&self) -> ArrayView4<'_, f64> {
        self.values.view().into_dimensionality::<Ix4>().expect("a tensor of four axes")
    }

    /// The values as `[batch, head, query]`.
    ///
    /// # Panics
    /// When the tensor has not three axes: check it against its problem first.
    #[must_use]
    pub fn view3(&self) -> ArrayView3<'_, f64> {
        self.values.view().into_dimensionality::<Ix3>().expect("a tensor of three axes")
    }

    fn check(&self, tensor: &str, shape: &[usize], format: Format) -> Result<(), TensorError> {
        if self.shape() != shape {
            return Err(TensorError::Shape {
                tensor: tensor.to_owned(),
                found: self.shape().to_vec(),
                expected: shape.to_vec(),
            });
        }
        if self.format != format {
            return Err(TensorError::Format {
                tensor: tensor.to_owned(),
                found: self.format,
                expected: format,
            });
        }
        Ok(())
    }
}

/// What a forward pass reads.
#[derive(Clone, Debug, PartialEq)]
pub struct Inputs {
    /// Query, `[batch, query_heads, query_len, head_dim]`.
    pub query: Tensor,
    /// Key, `[batch, key_heads, key_len, head_dim]`.
    pub key: Tensor,
    /// Value, `[batch, key_heads, key_len, value_dim]`.
    pub value: Tensor,
    /// Additive bias, of the problem's bias shape and format; where the problem has one.
    pub bias: Option<Tensor>,
    /// Logits of the sinks, `[query_heads]`; where the problem has them.
    pub sink: Option<Tensor>,
    /// What entries of query, key and value are multiplied by; where the problem is quantized.
    pub descale: Option<Descales>,
}

impl Inputs {
    /// Query, key and value, without bias, sinks and descales.
    #[must_use]
    pub const fn new(query: Tensor, key: Tensor, value: Tensor) -> Self {
        Self { query, key, value, bias: None, sink: None, descale: None }
    }

    /// Checks shapes and formats against the problem, and that descales are positive and finite.
    ///
    /// # Errors
    /// Names the first tensor that differs, what it has and what was expected.
    pub fn check(&self, problem: &Problem) -> Result<(), TensorError> {
        self.query.check("query", &problem.query_shape(), problem.format)?;
        self.key.check("key", &problem.key_shape(), problem.format)?;
        self.value.check("value", &problem.value_shape(), problem.format)?;
        check_bias("bias", self.bias.as_ref(), problem)?;
        check_sink("sink", self.sink.as_ref(), problem)?;
        self.check_descales(problem)
    }

    fn check_descales(&self, problem: &Problem) -> Result<(), TensorError> {
        let named = ["query_descale", "key_descale", "value_descale"];
        match (&self.descale, problem.descale_shapes()) {
            (None, None) => Ok(()),
            (None, Some(_)) => Err(TensorError::Missing { tensor: named[0].to_owned() }),
            (Some(_), None) => Err(TensorError::Unexpected { tensor: named[0].to_owned() }),
            (Some(descales), Some(shapes)) => {
                descales.named().into_iter().zip(shapes).try_for_each(|((name, tensor), shape)| {
                    tensor.check(name, &shape, Format::F32)?;
                    let fits = |value: f64| value.is_finite() && value > 0.0;
                    match tensor.values.iter().enumerate().find(|(_, value)| !fits(**value)) {
                        None => Ok(()),
                        Some((index, &value)) => {
                            Err(TensorError::Descale { tensor: name.to_owned(), value, index })
                        }
                    }
                })
            }
        }
    }
}

/// What a forward pass writes.
#[derive(Clone, Debug, PartialEq)]
pub struct Outputs {
    /// Output, `[batch, query_heads, query_len, value_dim]`.
    pub output: Tensor,
    /// LSE, `[batch, query_heads, query_len]`, where the kernel gives it.
    pub lse: Option<Tensor>,
}

impl Outputs {
    /// Checks shapes and formats against the problem; `lse_format` is the profile's.
    ///
    /// # Errors
    /// Names the first tensor that differs, what it has and what was expected.
    pub fn check(&self, problem: &Problem, lse_format: Format) -> Result<(), TensorError> {
        self.output.check("output", &problem.output_shape(), problem.output_format())?;
        self.lse.as_ref().map_or(Ok(()), |lse| lse.check("lse", &problem.lse_shape(), lse_format))
    }
}

/// The upstream gradients that a backward pass starts from.
#[derive(Clone, Debug, PartialEq)]
pub struct Cotangents {
    /// Gradient of the loss with respect to the output, shaped and formatted like the output.
    pub output: Tensor,
    /// Gradient of the loss with respect to the LSE, `[batch, query_heads, query_len]`, where the
    /// loss depends on it; `None` is zero.
    pub lse: Option<Tensor>,
}

impl Cotangents {
    /// Checks shapes and formats against the problem; `lse_format` is the profile's.
    ///
    /// # Errors
    /// Names the first tensor that differs, what it has and what was expected.
    pub fn check(&self, problem: &Problem, lse_format: Format) -> Result<(), TensorError> {
        self.output.check("output_gradient", &problem.output_shape(), problem.output_format())?;
        self.lse
            .as_ref()
            .map_or(Ok(()), |lse| lse.check("lse_gradient", &problem.lse_shape(), lse_format))
    }
}

/// What a backward pass writes.
#[derive(Clone, Debug, PartialEq)]
pub struct Gradients {
    /// Gradient with respect to the query, shaped like it.
    pub query: Tensor,
    /// Gradient with respect to the key, shaped like it: summed over the query heads that read it.
    pub key: Tensor,
    /// Gradient with respect to the value, shaped like it: summed over the query heads that read it.
    pub value: Tensor,
    /// Gradient with respect to the bias, shaped like it: summed over what shares an entry.
    pub bias: Option<Tensor>,
    /// Gradient with respect to the logits of the sinks, `[query_heads]`: summed over batch and
    /// queries.
    pub sink: Option<Tensor>,
}

impl Gradients {
    /// Gradients of query, key and value, of a problem without bias and sinks.
    #[must_use]
    pub const fn new(query: Tensor, key: Tensor, value: Tensor) -> Self {
        Self { query, key, value, bias: None, sink: None }
    }

    /// Checks shapes and formats against the problem.
    ///
    /// # Errors
    /// Names the first tensor that differs, what it has and what was expected.
    pub fn check(&self, problem: &Problem) -> Result<(), TensorError> {
        self.query.check("query_gradient", &problem.query_shape(), problem.format)?;
        self.key.check("key_gradient", &problem.key_shape(), problem.format)?;
        self.value.check("value_gradient", &problem.value_shape(), problem.format)?;
        check_bias("bias_gradient", self.bias.as_ref(), problem)?;
        check_sink("sink_gradient", self.sink.as_ref(), problem)
    }
}

/// Checks that there is a bias where the problem has one, and of its shape and format.
fn check_bias(name: &str, tensor: Option<&Tensor>, problem: &Problem) -> Result<(), TensorError> {
    let expected = problem.bias.as_ref().map(|bias| (&bias.shape[..], bias.format));
    check_optional(name, tensor, expected)
}

/// Checks that there are logits of sinks where the problem has them, and of their shape and format.
fn check_sink(name: &str, tensor: Option<&Tensor>, problem: &Problem) -> Result<(), TensorError> {
    let shape = problem.sink_shape();
    let expected = match problem.sink {
        None | Some(Sink::Zero) => None,
        Some(Sink::Logits(format)) => Some((&shape[..], format)),
    };
    check_optional(name, tensor, expected)
}

fn check_optional(
    name: &str,
    tensor: Option<&Tensor>,
    expected: Option<(&[usize], Format)>,
) -> Result<(), TensorError> {
    match (tensor, expected) {
        (None, None) => Ok(()),
        (Some(tensor), Some((shape, format))) => tensor.check(name, shape, format),
        (None, Some(_)) => Err(TensorError::Missing { tensor: name.to_owned() }),
        (Some(_), None) => Err(TensorError::Unexpected { tensor: name.to_owned() }),
    }
}
