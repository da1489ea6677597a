//! A file that another process may read but not change.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

use crate::io::safetensors::Extent;

/// The whole file, where no tensor's bytes alone have changed.
const FILE: &str = "inputs file";

/// What a file held when it was written.
pub(super) struct Image {
    path: PathBuf,
    bytes: u64,
    header: (Range<u64>, [u8; 32]),
    tensors: Vec<(Extent, [u8; 32])>,
}

impl Image {
    /// Takes digests of the header and of the bytes written of each tensor.
    pub(super) fn of(path: &Path, extents: Vec<Extent>) -> io::Result<Self> {
        let file = File::open(path)?;
        let bytes = file.metadata()?.len();
        let first = extents.iter().flat_map(|extent| &extent.ranges).map(|range| range.start).min();
        let header = 0..first.unwrap_or(bytes);
        let tensors = extents.into_iter().map(|extent| {
            let digest = digest(&file, &extent.ranges)?;
            Ok((extent, digest))
        });
        let tensors = tensors.collect::<io::Result<_>>()?;
        let digest = digest(&file, std::slice::from_ref(&header))?;
        Ok(Self { path: path.to_owned(), bytes, header: (header, digest), tensors })
    }

    /// The first tensor whose bytes are no longer those written, or the file itself where its header
    /// or its length has changed or it can not be read.
    pub(super) fn changed(&self) -> Option<&'static str> {
        let Ok(file) = File::open(&self.path) else { return Some(FILE) };
        let holds = |ranges: &[Range<u64>], before: &[u8; 32]| {
            digest(&file, ranges).is_ok_and(|digest| digest == *before)
        };
        let (header, before) = &self.header;
        let same_length = file.metadata().is_ok_and(|metadata| metadata.len() == self.bytes);
        if !same_length || !holds(std::slice::from_ref(header), before) {
            return Some(FILE);
        }
        let changed = self.tensors.iter().find(|(extent, before)| !holds(&extent.ranges, before));
        changed.map(|(extent, _)| extent.tensor)
    }
}

fn digest(file: &File, ranges: &[Range<u64>]) -> io::Result<[u8; 32]> {
    let mut hasher = Sha256::new();
    for range in ranges {
        let mut bytes = vec![0; (range.end - range.start) as usize];
        file.read_exact_at(&mut bytes, range.start)?;
        hasher.update(bytes);
    }
    Ok(hasher.finalize().into())
}
