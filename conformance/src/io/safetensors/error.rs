//! What can be wrong with a safetensors file.

use flashproof_spec::format::Format;
use flashproof_spec::tensor::TensorError;
use safetensors::Dtype;

use super::MAX_HEADER_BYTES;

/// A file that can not be read, or does not hold what was asked for.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[allow(missing_docs)] // each variant's message is its documentation
pub enum ReadError {
    #[error("cannot read '{file}': {reason}")]
    Unreadable { file: String, reason: String },
    #[error("'{file}' is no regular file: expected a safetensors file")]
    NotAFile { file: String },
    #[error("'{file}' is no safetensors file: {found} bytes, and the header's length takes 8")]
    TooShort { file: String, found: u64 },
    #[error(
        "'{file}' is no safetensors file, or cut short: it announces a header of \
         {announced} bytes, and {present} follow"
    )]
    HeaderCut { file: String, announced: u64, present: u64 },
    #[error(
        "'{file}' announces a header of {announced} bytes: expected at most {MAX_HEADER_BYTES}"
    )]
    HeaderTooLong { file: String, announced: u64 },
    #[error("'{file}' is no safetensors file: its header is not a JSON object: {reason}")]
    HeaderSyntax { file: String, reason: String },
    #[error("'{file}': __metadata__ is not an object of strings: {reason}")]
    Metadata { file: String, reason: String },
    #[error(
        "'{file}': the header's entry for tensor '{tensor}' is malformed: {reason}; expected \
         dtype, shape and data_offsets"
    )]
    Entry { file: String, tensor: String, reason: String },
    #[error(
        "'{file}': tensor '{tensor}' has unknown dtype '{found}': expected one such as \
         F32, F16, BF16 or I64"
    )]
    UnknownDtype { file: String, tensor: String, found: String },
    #[error(
        "'{file}': tensor '{tensor}' takes {found} bytes: expected {expected} for its \
         shape and dtype"
    )]
    Size { file: String, tensor: String, found: String, expected: String },
    #[error("'{file}': the tensors do not follow one another: {reason}")]
    Layout { file: String, reason: String },
    #[error(
        "'{file}' is cut short or overlong: it has {found} bytes of tensors, and its \
         header announces {expected}"
    )]
    DataLength { file: String, found: u64, expected: u64 },
    #[error("'{file}' has no tensor '{tensor}': it has {}", list(present))]
    Missing { file: String, tensor: String, present: Vec<String> },
    #[error("'{file}': tensor '{tensor}' has shape {found:?}: expected {expected} axes")]
    Rank { file: String, tensor: String, found: Vec<usize>, expected: usize },
    #[error("'{file}': tensor '{tensor}' has dtype {found}: expected {expected}")]
    WrongDtype { file: String, tensor: String, found: Dtype, expected: &'static str },
    #[error("'{file}': tensor '{tensor}' takes {bytes} bytes, more than there is memory for")]
    TooLarge { file: String, tensor: String, bytes: usize },
    #[error("'{file}': tensor '{tensor}' of shape {shape:?} has no elements {start}..{end}")]
    Span { file: String, tensor: String, start: usize, end: usize, shape: Vec<usize> },
    #[error("'{file}': {source}")]
    Tensor { file: String, source: TensorError },
}

/// Tensors that can not be written.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)] // each variant's message is its documentation
pub enum WriteError {
    #[error("cannot write '{file}': {source}")]
    Io { file: String, source: std::io::Error },
    #[error(
        "tensor '{tensor}' has format {format}: a safetensors file holds f64, f32, f16, \
         bf16, e4m3 and e5m2"
    )]
    Format { tensor: String, format: Format },
    #[error("'{tensor}' names two tensors, or is the metadata's own name: expected distinct names")]
    Name { tensor: String },
    #[error("tensor '{tensor}' ends past what can be addressed")]
    TooLarge { tensor: String },
    #[error("the header takes {found} bytes: expected at most {MAX_HEADER_BYTES}")]
    HeaderTooLong { found: usize },
}

fn list(names: &[String]) -> String {
    if names.is_empty() { "none".to_owned() } else { names.join(", ") }
}
