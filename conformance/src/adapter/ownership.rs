//! Whether a kernel wrote what is its to write (`FAS:layout.ownership`).

use std::collections::BTreeSet;

use flashproof_spec::layout::{Buffer, Placed};
use flashproof_spec::problem::Problem;

/// A kernel wrote beside the elements of an output, or left one unwritten.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs)] // each variant's message is its documentation
pub enum OwnershipError {
    #[error("it wrote to offset {offset} of '{tensor}', where no element stands")]
    Beside { tensor: &'static str, offset: usize },
    #[error("it did not write element {place:?} of '{tensor}', at offset {offset}")]
    Unwritten { tensor: &'static str, place: [usize; 4], offset: usize },
    #[error("'{tensor}' is a buffer of {found} elements: expected {expected}")]
    Length { tensor: &'static str, found: usize, expected: usize },
}

/// Checks that of an output's buffer exactly the elements that stand there were written.
pub(super) fn check_ownership(
    problem: &Problem,
    placed: Placed,
    buffer: &Buffer,
) -> Result<(), OwnershipError> {
    let tensor = placed.name();
    let (found, expected) = (buffer.len(), problem.buffer_len(placed));
    if found != expected {
        return Err(OwnershipError::Length { tensor, found, expected });
    }
    let mut owned = BTreeSet::new();
    for (place, offset) in problem.owned(placed) {
        if !buffer.is_written(offset) {
            return Err(OwnershipError::Unwritten { tensor, place, offset });
        }
        owned.insert(offset);
    }
    match buffer.written().find(|(offset, _)| !owned.contains(offset)) {
        None => Ok(()),
        Some((offset, _)) => Err(OwnershipError::Beside { tensor, offset }),
    }
}
