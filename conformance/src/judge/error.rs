//! Why tensors from a file can not be judged.

use flashproof_oracle::error::OracleError;
use flashproof_spec::pattern::PatternError;
use flashproof_spec::problem::ProblemError;
use flashproof_spec::tensor::TensorError;

use super::scale::ScaleError;
use crate::adapter::{Failure, OpenError};
use crate::io::safetensors::{ReadError, WriteError};

/// Why tensors from a file can not be judged.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)] // each variant's message is its documentation
pub enum JudgeError {
    #[error(transparent)]
    Read(#[from] ReadError),
    #[error(transparent)]
    Write(#[from] WriteError),
    #[error(
        "'{file}' has no {role} tensor called {tried}: name it with --{role}; the file has {present}"
    )]
    NoTensor { file: String, role: &'static str, tried: String, present: String },
    #[error(
        "there is nothing to judge: '{file}' has no output called {tried}; name it with --output, \
         give a second file, or run a kernel on the inputs with --kernel"
    )]
    NothingToJudge { file: String, tried: String },
    #[error("{problem_part}: the tensors say {tensors}, the description {described}")]
    Contradiction { problem_part: &'static str, tensors: String, described: String },
    #[error("{origin} is no problem description: {reason}")]
    Description { origin: String, reason: String },
    #[error(
        "'{text}' is no mask: {reason}; expected a JSON list of rules, such as [\"causal-bottom-right\"]"
    )]
    Mask { text: String, reason: String },
    #[error(
        "'{file}' has both a bias and an additive mask: expected one of them, added beforehand"
    )]
    TwoBiases { file: String },
    #[error(transparent)]
    Pattern(#[from] PatternError),
    #[error("{origin}: {source}")]
    Scale { origin: String, source: ScaleError },
    #[error("length {found} in '{tensor}' is negative: expected the number of keys in use")]
    NegativeLength { tensor: String, found: i64 },
    #[error(
        "'{text}' is neither a list of key lengths, such as 7,5, nor a tensor of '{file}', which \
         has {present}"
    )]
    Lengths { text: String, file: String, present: String },
    #[error(
        "'{text}' is no profile: {reason}; expected standard, dense, or a JSON file in the form \
         that a worker declares one"
    )]
    Profile { text: String, reason: String },
    #[error("the query has no rows: there is nothing to judge")]
    NoRows,
    #[error(transparent)]
    Problem(#[from] ProblemError),
    #[error(transparent)]
    Tensor(#[from] TensorError),
    #[error(transparent)]
    Oracle(#[from] OracleError),
    #[error(transparent)]
    Open(#[from] OpenError),
    #[error("{subject} declares no profile for {format}: {failure}")]
    NoProfile { subject: String, format: flashproof_spec::format::Format, failure: Failure },
    #[error("{0}")]
    Environment(String),
}
