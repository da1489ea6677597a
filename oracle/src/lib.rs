//! Exact attention: correctly rounded answers, with the enclosures that prove each digit.
//!
//! The inputs of an attention problem are exact dyadic numbers, so its answer is an exact real
//! number. This crate encloses it between two bounds as close as one asks for, rounds it correctly,
//! and states the exact quantities that the error bounds of [`flashproof_spec::bound`] depend on.
//! It never sees a kernel.
//!
//! | module | question it answers |
//! |---|---|
//! | [`forward`], [`row`] | what are the output and the LSE of a row |
//! | [`backward`] | what are the gradients |
//! | [`enclosure`] | where does a real number lie, and how far is a kernel's output from it |
//! | [`round`] | which value of a format is nearest to a number known by its enclosure |
//! | [`double_double`] | what does a second evaluation say that shares nothing with the first |
//!
//! ```
//! use flashproof_oracle::forward::{Options, Oracle};
//! use flashproof_oracle::row::RowIndex;
//! use flashproof_spec::format::Format;
//! use flashproof_spec::problem::Problem;
//! use flashproof_spec::tensor::{Inputs, Tensor};
//!
//! // One query, and two keys with scores 0 and 1: the output is e / (1 + e).
//! let problem = Problem { query_len: 1, ..Problem::new(Format::F32, 1, 2, 1) };
//! let tensor = |shape: [usize; 4], values: &[f64]| {
//!     Tensor::rounded_from(Format::F32, &shape, values.to_vec()).unwrap()
//! };
//! let inputs = Inputs::new(
//!     tensor(problem.query_shape(), &[1.0]),
//!     tensor(problem.key_shape(), &[0.0, 1.0]),
//!     tensor(problem.value_shape(), &[0.0, 1.0]),
//! );
//! let oracle = Oracle::new(&problem, &inputs, Options::new(Format::F32)).unwrap();
//! let row = oracle.row(RowIndex { batch: 0, head: 0, query: 0 }).unwrap();
//! let output = row.outputs[0].exact().expect("a real number");
//! assert_eq!(output.rounded, Some(f64::from(0.731_058_6_f32)));
//! // The nearest f32 is off by no more than half a unit in its last place, 2^-25.
//! assert!(output.enclosure.error_of(f64::from(0.731_058_6_f32)).1 <= 2_f64.powi(-25));
//! ```
#![forbid(unsafe_code)]

pub mod backward;
mod condition;
mod dot;
pub mod double_double;
pub mod enclosure;
pub mod error;
mod exact;
mod finite;
pub mod forward;
mod grid;
mod groups;
mod head;
mod lse;
mod numerator;
mod ranking;
pub mod round;
pub mod row;
mod scale;
mod score;
mod special;
mod tie;
mod weights;
