//! What the oracle can not answer.

use flashproof_spec::problem::ProblemError;
use flashproof_spec::tensor::TensorError;

/// A question that has no answer.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum OracleError {
    /// The problem can not be posed.
    #[error(transparent)]
    Problem(#[from] ProblemError),
    /// The inputs are not the problem's.
    #[error(transparent)]
    Inputs(#[from] TensorError),
    /// Inputs are multiplied by descales.
    #[error("the inputs have descales: expected the problem and the inputs that they stand for")]
    Quantized,
    /// The problem has no such row.
    #[error("row index {field} = {index} is out of range: expected less than {extent}")]
    Row {
        /// Which part of the index.
        field: &'static str,
        /// What was asked for.
        index: usize,
        /// How many there are.
        extent: usize,
    },
    /// The problem has no such key.
    #[error("key index {field} = {index} is out of range: expected less than {extent}")]
    Key {
        /// Which part of the index.
        field: &'static str,
        /// What was asked for.
        index: usize,
        /// How many there are.
        extent: usize,
    },
    /// The bias has no such row.
    #[error("bias row index {field} = {index} is out of range: expected less than {extent}")]
    BiasRow {
        /// Which part of the index.
        field: &'static str,
        /// What was asked for.
        index: usize,
        /// How many there are, in the bias's own shape.
        extent: usize,
    },
    /// The problem has no such query head.
    #[error("query head {index} is out of range: expected less than {extent}")]
    Head {
        /// What was asked for.
        index: usize,
        /// How many there are.
        extent: usize,
    },
    /// The problem has no such input, so there is no gradient of it.
    #[error("the problem has no {input}: expected one whose gradient is asked for")]
    NoInput {
        /// Which input.
        input: &'static str,
    },
    /// A measured LSE was announced, and the kernel's outputs have none.
    #[error("the outputs have no LSE to measure: expected one, or a bound on its error")]
    NoLse,
    /// No enclosure is computed at this precision.
    #[error(
        "a working precision of {precision} bits: expected {} to {max_precision}",
        crate::forward::MIN_PRECISION
    )]
    Precision {
        /// What was asked for.
        precision: u32,
        /// The most that the options allow.
        max_precision: u32,
    },
}
