//! Safetensors files: named tensors behind a JSON header.
//!
//! A file is the header's length (8 bytes, little-endian), the header, and the tensors' elements,
//! little-endian and row-major, without gaps. The `safetensors` crate's types say what a header
//! holds and whether its tensors tile the file; the framing is read here so that every refusal names
//! the file and the tensor, and so that a header's claims are never added up unchecked.

mod codec;
mod error;
mod footprint;
mod read;
mod sparse;
mod write;

pub(crate) use codec::{decode, encode};
pub use codec::{dtype_of, format_of, poison};
pub use error::{ReadError, WriteError};
pub use footprint::Footprint;
pub use read::Archive;
pub use sparse::{Extent, Span, SparseTensor, write_sparse};
pub use write::{write, write_to};

/// Longest header that is read or written: room for tens of thousands of tensors, and little enough
/// that no header can exhaust the memory.
pub const MAX_HEADER_BYTES: usize = 4 << 20;

/// The header's entry that holds text instead of a tensor.
const METADATA: &str = "__metadata__";
