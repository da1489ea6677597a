//! Why a case has no output to judge.

use flashproof_spec::tensor::TensorError;

use super::OwnershipError;
use super::compiled::DeviceFault;

/// Why a case has no output to judge.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum Failure {
    /// The kernel does not offer what the case asks for: counted, and never a pass.
    #[error("unsupported: {0}")]
    Unsupported(String),
    /// The kernel panicked, or its process ended or could not be started again.
    #[error("crashed: {0}")]
    Crashed(String),
    /// The kernel lives, and says that it failed.
    #[error("the kernel reports an error: {0}")]
    Reported(String),
    /// The kernel gave no answer within the time limit.
    #[error("timed out after {seconds} s")]
    TimedOut {
        /// The limit.
        seconds: f64,
    },
    /// The kernel answered with something that is not an answer to the case.
    #[error("malformed answer: {0}")]
    Malformed(#[from] AnswerError),
    /// The kernel changed its inputs.
    #[error("the kernel wrote to its input '{0}'")]
    InputChanged(String),
    /// The kernel wrote where it should not, or did not where it should (`FAS:layout.ownership`).
    #[error("{0}")]
    Ownership(#[from] OwnershipError),
    /// The kernel did what no kernel may do, whatever numbers came out (`FAS:device.*`).
    #[error("{0}")]
    Device(#[from] DeviceFault),
    /// The case could not be put to the kernel, for a reason that is not the kernel's.
    #[error("could not hand the case over: {0}")]
    Environment(String),
}

/// What is wrong with an answer. A non-finite output is none of these: it is judged.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[allow(missing_docs)] // each variant's message is its documentation
pub enum AnswerError {
    #[error("'{found}' is not JSON: expected one JSON object on one line of standard output")]
    NotJson { found: String },
    #[error("{found} is JSON but no answer: {reason}")]
    NotAnAnswer { found: String, reason: String },
    #[error("a line of more than {limit} bytes: expected one JSON object on one line")]
    TooLong { limit: usize },
    #[error("the answer is to request {found}: expected {expected}")]
    WrongId { found: u64, expected: u64 },
    #[error("the outputs file has no tensor '{tensor}'")]
    MissingOutput { tensor: String },
    #[error("the outputs file has a tensor '{tensor}': expected none but {}", expected.join(", "))]
    ExtraOutput { tensor: String, expected: Vec<&'static str> },
    #[error("'{tensor}' has shape {found:?}: expected {expected:?}")]
    WrongShape { tensor: String, found: Vec<usize>, expected: Vec<usize> },
    #[error("'{tensor}' has format {found}: expected {expected}")]
    WrongFormat { tensor: String, found: String, expected: String },
    #[error("{reason}")]
    Unreadable { reason: String },
}

impl From<TensorError> for AnswerError {
    fn from(error: TensorError) -> Self {
        match error {
            TensorError::Shape { tensor, found, expected } => {
                Self::WrongShape { tensor, found, expected }
            }
            TensorError::Format { tensor, found, expected } => Self::WrongFormat {
                tensor,
                found: found.to_string(),
                expected: expected.to_string(),
            },
            TensorError::Missing { tensor } => Self::MissingOutput { tensor },
            TensorError::Count { .. }
            | TensorError::Unexpected { .. }
            | TensorError::Value { .. }
            | TensorError::Descale { .. } => Self::Unreadable { reason: error.to_string() },
        }
    }
}
