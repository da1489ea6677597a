//! Why nothing was measured.

use flashproof_spec::format::Format;

use super::{LEAST_LENGTHS, MOST_LENGTH};
use crate::adapter::{Failure, compiled};

/// Why nothing was measured.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)] // each variant's message is its documentation
pub enum TrafficError {
    #[error("traffic is counted in the emulator: '{kernel}' is no ptx:MANIFEST")]
    NotCompiled { kernel: String },
    #[error(transparent)]
    Manifest(#[from] compiled::ManifestError),
    #[error("a length of {found}: expected 1 to {MOST_LENGTH}")]
    Length { found: usize },
    #[error("the length {length} is given twice")]
    Repeated { length: usize },
    #[error("{found} lengths: growth is seen over {LEAST_LENGTHS} or more")]
    TooFew { found: usize },
    #[error("{kernel}, {format}, T = {length}: {failure}")]
    Kernel { kernel: String, format: Format, length: usize, failure: Failure },
}
