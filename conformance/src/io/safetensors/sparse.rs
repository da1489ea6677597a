//! Files of which only some parts are written: the rest is a hole that takes no room on disk.

use std::collections::BTreeMap;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::Path;

use flashproof_spec::format::Format;
use flashproof_spec::tensor::Tensor;

use super::WriteError;
use super::codec::encode;
use super::write::{Entry, arrange, create, header};

/// A tensor of which only some elements are written.
#[derive(Clone, Debug, PartialEq)]
pub struct SparseTensor {
    /// Its name in the file.
    pub name: &'static str,
    /// Its number format.
    pub format: Format,
    /// Its extents.
    pub shape: Vec<usize>,
    /// What is written of it.
    pub spans: Vec<Span>,
}

/// Consecutive elements.
#[derive(Clone, Debug, PartialEq)]
pub struct Span {
    /// The flat index of the first.
    pub start: usize,
    /// Their bytes, little-endian.
    pub bytes: Vec<u8>,
}

impl SparseTensor {
    /// A tensor that is written whole.
    #[must_use]
    pub fn whole(name: &'static str, tensor: &Tensor) -> Self {
        let format = tensor.format();
        let bytes = encode(format, tensor.values().iter().copied());
        let spans = vec![Span { start: 0, bytes }];
        Self { name, format, shape: tensor.shape().to_vec(), spans }
    }

    fn entry(&self) -> Entry<'_, Self> {
        Entry { name: self.name, format: self.format, shape: &self.shape, content: self }
    }
}

/// Where the bytes of a tensor's spans lie in a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Extent {
    /// The tensor's name.
    pub tensor: &'static str,
    /// One range of bytes for each span.
    pub ranges: Vec<Range<u64>>,
}

/// Writes tensors to a file, which appears under its name only when it is complete; one of that name
/// is replaced. Says where each tensor's spans lie.
///
/// # Errors
/// [`WriteError`] names the file or the tensor. Nothing is left behind.
pub fn write_sparse(path: &Path, tensors: &[SparseTensor]) -> Result<Vec<Extent>, WriteError> {
    let entries = arrange(tensors.iter().map(SparseTensor::entry).collect())?;
    let header = header(&entries, &BTreeMap::new())?;
    create(path, |file| {
        let failed = |source| WriteError::Io { file: "output".to_owned(), source };
        file.write_all_at(&header, 0).map_err(failed)?;
        let mut start = header.len() as u64;
        let mut extents = Vec::new();
        for entry in &entries {
            let SparseTensor { name, format, spans, .. } = entry.content;
            let mut ranges = Vec::new();
            for span in spans {
                let from = start + (span.start * format.bytes()) as u64;
                file.write_all_at(&span.bytes, from).map_err(failed)?;
                ranges.push(from..from + span.bytes.len() as u64);
            }
            extents.push(Extent { tensor: name, ranges });
            // the header was refused where this could not be added up
            start += entry.bytes().unwrap_or_default() as u64;
        }
        file.set_len(start).map_err(failed)?;
        Ok(extents)
    })
}
