//! Kernels in plain Rust, one thread, written to be read beside the book's listings.
//!
//! | file | what a porter finds there |
//! |---|---|
//! | [`naive`] | the chapter, listing 26.2: a whole score row at a time; and its derivative |
//! | [`tiled`] | the chapter, listing 26.3: tiles and online softmax; FlashAttention-2's backward pass |
//! | [`split`] | split-KV decoding: the tiled kernel on parts of the keys |
//! | [`matrix`] | the tiled kernel with the accumulation of tensor cores |
//! | [`quantized`] | inputs of 8 bits with descales |
//! | [`tensor_core`] | that accumulation |
//! | [`merge`] | how finished parts of a row become one |
//! | [`element`] | how numbers are loaded, accumulated and stored |
//! | [`mutant`] | the tiled kernel with one exact fault each, for a suite to find |
//!
//! and, shared by the kernels, which differ in the order and the roundings of what they do with it:
//!
//! | file | what it answers |
//! |---|---|
//! | `number_type.rs` | in which number type a problem is computed |
//! | `head.rs` | what a query head reads |
//! | `visible/` | which keys the mask lets a query see, and which tiles are worth entering |
//! | `position.rs` | where a query stands among the keys |
//! | `score.rs` | how a product becomes a score, and how steeply |
//! | `alibi.rs`, `dropout.rs`, `broadcast.rs` | linear biases; kept weights; axes that are shared |
//! | `descale.rs` | what entries of 8 bits are multiplied by |
//! | `row.rs` | how entries of rows are summed |
//! | `forward.rs`, `backward.rs` | the loop over batch and heads, and how results are stored |
//! | `bias_gradient.rs`, `sink_gradient.rs` | gradients that are summed over several heads or batch members |
//! | `convert.rs` | how tensors become elements and back |
//!
//! Every kernel but [`matrix`] and [`quantized`] has a forward and a backward pass, gradients of the LSE included, and takes every
//! mask rule and score modification of a [problem](flashproof_spec::problem::Problem) and all their
//! combinations, grouped heads, any lengths (none included) and any value dimension, in `f64`,
//! `f32`, `f16` and `bf16`; bias and sinks in any format. Sums are kept in `f64` for `f64` inputs and
//! in `f32` for the others.

mod alibi;
mod backward;
mod bias_gradient;
mod broadcast;
mod convert;
mod descale;
mod dropout;
pub mod element;
mod forward;
mod head;
pub mod matrix;
pub mod merge;
pub mod mutant;
pub mod naive;
mod number_type;
mod position;
pub mod quantized;
mod row;
mod score;
mod sink_gradient;
pub mod split;
pub mod tensor_core;
pub mod tiled;
mod visible;

pub use matrix::Matrix;
pub use merge::merge_partials;
pub use naive::Naive;
pub use quantized::Quantized;
pub use split::Split;
pub use tiled::Tiled;

/// Roundings in the softmax scale, counted where the scale is computed.
const SCALE_ROUNDINGS: u32 = 2;

/// IEEE division: correctly rounded.
const IEEE_DIVISION_ULP: f64 = 0.5;
