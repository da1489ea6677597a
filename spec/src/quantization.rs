//! Inputs of 8 bits: what their entries are multiplied by, and in which format the output comes.
//!
//! An entry of query, key or value stands for itself times a descale, an `f32` number that all entries
//! of a head share, or all of a block of consecutive positions of it. Attention is that of the
//! products, which are exact in `f64`: at most 4 bits times 24.

use ndarray::{Array3, ArrayD, ArrayView3};
use serde::{Deserialize, Serialize};

use crate::format::Format;
use crate::problem::Problem;
use crate::tensor::{Inputs, Tensor};

/// How the inputs of a problem in `e4m3` or `e5m2` are scaled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Quantization {
    /// Which queries of a query head share a descale.
    pub query: Descale,
    /// Which keys of a key head share a descale.
    pub key: Descale,
    /// Which values of a key head share a descale.
    pub value: Descale,
    /// Number format of the output.
    pub output: Format,
}

/// Which positions of a head share a descale.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Descale {
    /// All of them (`FAS:num.descale.head`).
    Head,
    /// So many consecutive ones, from the first on (`FAS:num.descale.block`).
    Block(usize),
}

impl Descale {
    /// How many descales a head of `len` positions has.
    #[must_use]
    pub const fn count(self, len: usize) -> usize {
        match self {
            Self::Head => 1,
            Self::Block(size) => len.div_ceil(if size == 0 { 1 } else { size }),
        }
    }

    /// Which of them is that of `position`.
    #[must_use]
    pub const fn of(self, position: usize) -> usize {
        match self {
            Self::Head => 0,
            Self::Block(size) => position / if size == 0 { 1 } else { size },
        }
    }
}

/// The descales of query, key and value, each `[batch, heads, count]` in `f32`, positive and finite.
#[derive(Clone, Debug, PartialEq)]
pub struct Descales {
    /// Of the query, by query head.
    pub query: Tensor,
    /// Of the key, by key head.
    pub key: Tensor,
    /// Of the value, by key head.
    pub value: Tensor,
}

impl Problem {
    /// Number format of the output: that of the inputs, unless they are quantized.
    #[must_use]
    pub const fn output_format(&self) -> Format {
        match self.quantization {
            None => self.format,
            Some(quantization) => quantization.output,
        }
    }

    /// The problem of the products of entries and descales, whose inputs are
    /// [these](Inputs::dequantized); any other as it is.
    #[must_use]
    pub fn dequantized(&self) -> Self {
        match self.quantization {
            None => self.clone(),
            Some(_) => Self { format: Format::F64, quantization: None, ..self.clone() },
        }
    }

    /// Shapes of the descales of query, key and value, where the problem has them.
    #[must_use]
    pub fn descale_shapes(&self) -> Option<[[usize; 3]; 3]> {
        let Quantization { query, key, value, .. } = self.quantization?;
        Some([
            [self.batch, self.query_heads, query.count(self.query_len)],
            [self.batch, self.key_heads, key.count(self.key_len)],
            [self.batch, self.key_heads, value.count(self.key_len)],
        ])
    }
}

impl Inputs {
    /// Every entry times its descale, exactly, in `f64`; inputs without descales as they are
    /// (`FAS:num.descale.head`, `FAS:num.descale.block`).
    ///
    /// # Panics
    /// When the inputs are not the problem's: [`Inputs::check`] them first.
    #[must_use]
    pub fn dequantized(&self, problem: &Problem) -> Self {
        let (Some(quantization), Some(descales)) = (problem.quantization, &self.descale) else {
            return self.clone();
        };
        let scaled = |tensor: &Tensor, descale: Descale, by: &Tensor| {
            let mut values = tensor.view4().to_owned();
            let by = by.view3();
            for ((batch, head, position, _), value) in values.indexed_iter_mut() {
                *value *= by[[batch, head, descale.of(position)]];
            }
            Tensor::exact(Format::F64, values.into_dyn()).expect("f64 holds every number")
        };
        Self {
            query: scaled(&self.query, quantization.query, &descales.query),
            key: scaled(&self.key, quantization.key, &descales.key),
            value: scaled(&self.value, quantization.value, &descales.value),
            descale: None,
            ..self.clone()
        }
    }
}

impl Descales {
    /// Descales of 1 for the problem; `None` where it has none.
    #[must_use]
    pub fn ones(problem: &Problem) -> Option<Self> {
        let [query, key, value] = problem.descale_shapes()?.map(|shape| {
            let ones: ArrayD<f64> = Array3::ones(shape).into_dyn();
            Tensor::rounded(Format::F32, &ones)
        });
        Some(Self { query, key, value })
    }

    /// Each with its name, as in files and messages.
    #[must_use]
    pub fn named(&self) -> [(&'static str, &Tensor); 3] {
        [("query_descale", &self.query), ("key_descale", &self.key), ("value_descale", &self.value)]
    }

    /// The largest of one head's descales of the key and of the value.
    #[must_use]
    pub fn largest_of(&self, batch: usize, key_head: usize) -> (f64, f64) {
        let largest = |tensor: &Tensor| {
            let of: ArrayView3<'_, f64> = tensor.view3();
            of.index_axis(ndarray::Axis(0), batch)
                .index_axis(ndarray::Axis(0), key_head)
                .iter()
                .copied()
                .fold(0.0, f64::max)
        };
        (largest(&self.key), largest(&self.value))
    }
}
