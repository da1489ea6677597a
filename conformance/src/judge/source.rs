//! Tensors by their names in a file.

use std::fs::File;
use std::path::Path;

use flashproof_spec::format::Format;
use flashproof_spec::problem::Problem;
use flashproof_spec::tensor::{Inputs, Tensor};
use ndarray::ArrayD;
use safetensors::Dtype;

use super::{AxisOrder, JudgeError, Request, description};
use crate::io::safetensors::Archive;

/// Usual names of the query, in the order that they are looked for.
const QUERY: &[&str] = &["query", "q"];
/// Usual names of the key.
const KEY: &[&str] = &["key", "k"];
/// Usual names of the value.
const VALUE: &[&str] = &["value", "v"];
/// Usual names of the bias.
const BIAS: &[&str] = &["bias", "attn_bias"];
/// Usual names of the logits of sinks.
const SINK: &[&str] = &["sink", "sinks"];
/// Usual names of a mask.
const MASK: &[&str] = &["mask", "attn_mask"];
/// Usual names of the output.
pub(super) const OUTPUT: &[&str] = &["output", "out", "o"];
/// Usual names of the LSE.
pub(super) const LSE: &[&str] = &["lse"];

/// An open file of tensors.
pub(super) struct Source {
    file: String,
    archive: Archive<File>,
    order: AxisOrder,
}

/// A mask in a tensor.
pub(super) enum MaskTensor {
    /// Truth values, `[batch, head, query, key]`; true where a key is seen.
    Boolean(ArrayD<bool>),
    /// What is added to scores.
    Additive(Tensor),
}

impl Source {
    pub(super) fn open(path: &Path, order: AxisOrder) -> Result<Self, JudgeError> {
        Ok(Self { file: path.display().to_string(), archive: Archive::open(path)?, order })
    }

    pub(super) fn file(&self) -> &str {
        &self.file
    }

    pub(super) const fn archive(&mut self) -> &mut Archive<File> {
        &mut self.archive
    }

    pub(super) fn contains(&self, name: &str) -> bool {
        self.archive.contains(name)
    }

    /// The names of all tensors, for messages.
    pub(super) fn present(&self) -> String {
        let names = self.archive.names();
        if names.is_empty() { "none".to_owned() } else { names.join(", ") }
    }

    /// What a report calls the tensors.
    pub(super) fn name(&self, request: &Request) -> String {
        let query = request.names.query.as_deref();
        format!("{}:{}", self.file, query.or_else(|| self.usual(QUERY)).unwrap_or("query"))
    }

    /// The first of the usual names that the file has.
    fn usual(&self, names: &[&'static str]) -> Option<&'static str> {
        names.iter().copied().find(|name| self.archive.contains(name))
    }

    /// The tensor of the given name, or of the first usual one that the file has; `None` where no
    /// name is given and the file has none of them.
    pub(super) fn optional(
        &mut self,
        given: Option<&str>,
        usual: &[&'static str],
        rank: usize,
    ) -> Result<Option<Tensor>, JudgeError> {
        match given.or_else(|| self.usual(usual)) {
            None => Ok(None),
            Some(name) => Ok(Some(self.archive.tensor_of_rank(name, rank)?)),
        }
    }

    /// As [`Source::optional`], of four axes in the file's order.
    pub(super) fn activations(
        &mut self,
        given: Option<&str>,
        usual: &[&'static str],
    ) -> Result<Option<Tensor>, JudgeError> {
        let order = self.order;
        Ok(self.optional(given, usual, 4)?.map(|tensor| order.in_order(tensor)))
    }

    fn required(
        &mut self,
        role: &'static str,
        given: Option<&str>,
        usual: &[&'static str],
    ) -> Result<Tensor, JudgeError> {
        self.activations(given, usual)?.ok_or_else(|| JudgeError::NoTensor {
            file: self.file.clone(),
            role,
            tried: usual.join(" or "),
            present: self.present(),
        })
    }

    /// The problem that tensors, flags and metadata describe, and its inputs.
    pub(super) fn problem_and_inputs(
        &mut self,
        request: &Request,
    ) -> Result<(Problem, Inputs), JudgeError> {
        let names = &request.names;
        let mut inputs = Inputs {
            query: self.required("query", names.query.as_deref(), QUERY)?,
            key: self.required("key", names.key.as_deref(), KEY)?,
            value: self.required("value", names.value.as_deref(), VALUE)?,
            bias: self.optional(names.bias.as_deref(), BIAS, 4)?,
            sink: self.optional(names.sink.as_deref(), SINK, 1)?,
            descale: None,
        };
        let seen = match self.mask(names.mask.as_deref())? {
            None => None,
            Some(MaskTensor::Boolean(seen)) => Some(seen),
            Some(MaskTensor::Additive(_)) if inputs.bias.is_some() => {
                return Err(JudgeError::TwoBiases { file: self.file.clone() });
            }
            Some(MaskTensor::Additive(bias)) => {
                inputs.bias = Some(bias);
                None
            }
        };
        let problem = description::problem(self, &inputs, seen.as_ref(), &request.described)?;
        problem.validate()?;
        inputs.check(&problem)?;
        if problem.query_len == 0 {
            return Err(JudgeError::NoRows);
        }
        Ok((problem, inputs))
    }

    /// The mask in a tensor of four axes, an extent of 1 where it is broadcast.
    fn mask(&mut self, given: Option<&str>) -> Result<Option<MaskTensor>, JudgeError> {
        let Some(name) = given.or_else(|| self.usual(MASK)) else { return Ok(None) };
        let (_, dtype) = self.archive.describe(name)?;
        Ok(Some(if dtype == Dtype::BOOL {
            MaskTensor::Boolean(self.archive.booleans(name, 4)?)
        } else {
            MaskTensor::Additive(self.archive.tensor_of_rank(name, 4)?)
        }))
    }
}

impl AxisOrder {
    /// The tensor with its axes as `[batch, head, position, entry]`.
    fn in_order(self, tensor: Tensor) -> Tensor {
        match self {
            Self::Bhsd => tensor,
            Self::Bshd => {
                let values = tensor.view4().permuted_axes([0, 2, 1, 3]);
                Tensor::rounded(
                    tensor.format(),
                    &values.as_standard_layout().into_owned().into_dyn(),
                )
            }
        }
    }
}

/// The extents of tensors of four axes.
pub(super) fn extents(tensor: &Tensor) -> [usize; 4] {
    let (batch, heads, len, dim) = tensor.view4().dim();
    [batch, heads, len, dim]
}

/// The format of the query, which the others must share.
pub(super) fn format(inputs: &Inputs) -> Format {
    inputs.query.format()
}
