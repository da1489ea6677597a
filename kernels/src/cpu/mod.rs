//! Kernels in plain Rust, one thread, written to be read beside the book's listings.
//!
//! | file | what a porter finds there |
//! |---|---|
//! | [`naive`] | the chapter, listing 26.2: a whole score row at a time; and its derivative |
//! | [`tiled`] | the chapter, listing 26.3: tiles and online softmax; FlashAttention-2's backward pass |
//! | [`element`] | how numbers are loaded, accumulated and stored |
//!
//! and, shared by the kernels, which differ in the order and the roundings of what they do with it:
//!
//! | file | what it answers |
//! |---|---|
//! | `number_type.rs` | in which number type a problem is computed |
//! | `head.rs` | what a query head reads, and its scores |
//! | `visible.rs` | which keys a query sees, and which queries see a key |
//! | `row.rs` | how entries of rows are summed |
//! | `forward.rs`, `backward.rs` | the loop over batch and heads, and how results are stored |
//! | `convert.rs` | how tensors become elements and back |
//!
//! Both kernels have a forward and a backward pass, gradients of the LSE included, and take full,
//! causal (top-left and bottom-right) and length masks and their intersections, grouped heads, any
//! lengths (none included) and any value dimension, in `f64`, `f32`, `f16` and `bf16`. Sums are kept
//! in `f64` for `f64` inputs and in `f32` for the others.

mod backward;
mod convert;
pub mod element;
mod forward;
mod head;
pub mod naive;
mod number_type;
mod row;
pub mod tiled;
mod visible;

pub use naive::Naive;
pub use tiled::Tiled;

/// Roundings in the softmax scale, counted where the scale is computed.
const SCALE_ROUNDINGS: u32 = 2;

/// IEEE division: correctly rounded.
const IEEE_DIVISION_ULP: f64 = 0.5;
