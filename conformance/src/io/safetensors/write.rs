//! Writing a safetensors file: whole or not at all, and the same bytes each time.

use std::collections::BTreeMap;
use std::fs::{File, Permissions};
use std::io::{BufWriter, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use flashproof_spec::format::Format;
use flashproof_spec::tensor::Tensor;
use safetensors::Dtype;
use safetensors::tensor::TensorInfo;
use serde_json::{Map, Value, json};

use super::codec::{dtype_of, encode};
use super::{MAX_HEADER_BYTES, METADATA, WriteError};

/// The header's length is a multiple of this, so that the elements of every type are aligned.
const ALIGNMENT: usize = 8;

/// Mode of a new file, less the process's umask, as for any program's output.
const FILE_MODE: u32 = 0o666;

/// Writes tensors and text to a file.
///
/// The file appears under its name only when it is complete; one of that name is replaced.
///
/// # Errors
/// [`WriteError`] names the file or the tensor. Nothing is left behind.
pub fn write(
    path: &Path,
    tensors: &[(&str, &Tensor)],
    metadata: &BTreeMap<String, String>,
) -> Result<(), WriteError> {
    create(path, |file| write_to(&mut BufWriter::new(file), tensors, metadata))
}

/// Puts a file in place once `fill` has filled it.
pub(super) fn create<T>(
    path: &Path,
    fill: impl FnOnce(&mut File) -> Result<T, WriteError>,
) -> Result<T, WriteError> {
    let failed = |source| WriteError::Io { file: path.display().to_string(), source };
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    let mut temporary = tempfile::Builder::new()
        .permissions(Permissions::from_mode(FILE_MODE))
        .tempfile_in(parent.unwrap_or(Path::new(".")))
        .map_err(failed)?;
    let filled = fill(temporary.as_file_mut()).map_err(|error| error.in_file(path))?;
    temporary.persist(path).map_err(|error| failed(error.error))?;
    Ok(filled)
}

/// Writes tensors and text to `sink`, which errors name `output`.
///
/// # Errors
/// [`WriteError`] names the tensor. What was written before stays written.
pub fn write_to(
    sink: &mut impl Write,
    tensors: &[(&str, &Tensor)],
    metadata: &BTreeMap<String, String>,
) -> Result<(), WriteError> {
    let entries = tensors.iter().map(|&(name, tensor)| Entry::new(name, tensor)).collect();
    let entries = arrange(entries)?;
    let header = header(&entries, metadata)?;
    let mut put = |bytes: &[u8]| {
        sink.write_all(bytes).map_err(|source| WriteError::Io { file: "output".to_owned(), source })
    };
    put(&header)?;
    for Entry { content, format, .. } in &entries {
        put(&encode(*format, content.values().iter().copied()))?;
    }
    sink.flush().map_err(|source| WriteError::Io { file: "output".to_owned(), source })
}

impl WriteError {
    fn in_file(self, path: &Path) -> Self {
        match self {
            Self::Io { source, .. } => Self::Io { file: path.display().to_string(), source },
            other => other,
        }
    }
}

/// What is written under a name.
pub(super) struct Entry<'a, T> {
    pub(super) name: &'a str,
    pub(super) format: Format,
    pub(super) shape: &'a [usize],
    pub(super) content: &'a T,
}

impl<'a> Entry<'a, Tensor> {
    fn new(name: &'a str, tensor: &'a Tensor) -> Self {
        Self { name, format: tensor.format(), shape: tensor.shape(), content: tensor }
    }
}

impl<T> Entry<'_, T> {
    fn dtype(&self) -> Result<Dtype, WriteError> {
        let format = self.format;
        dtype_of(format).ok_or_else(|| WriteError::Format { tensor: self.name.to_owned(), format })
    }

    /// Bytes that it takes; `None` where that is more than can be addressed.
    pub(super) fn bytes(&self) -> Option<usize> {
        let of_format = self.format.bytes();
        self.shape.iter().try_fold(of_format, |bytes, &extent| bytes.checked_mul(extent))
    }
}

/// Orders entries by alignment, largest first, then by name.
pub(super) fn arrange<T>(mut entries: Vec<Entry<'_, T>>) -> Result<Vec<Entry<'_, T>>, WriteError> {
    entries.iter().try_for_each(|entry| entry.dtype().map(|_| ()))?;
    let key = |entry: &Entry<'_, T>| dtype_of(entry.format);
    entries.sort_by(|a, b| key(b).cmp(&key(a)).then(a.name.cmp(b.name)));
    Ok(entries)
}

/// The header and its length, written here because the crate's own keeps the metadata in the order of
/// a hash map seeded at random: the same tensors would not give the same file.
pub(super) fn header<T>(
    entries: &[Entry<'_, T>],
    metadata: &BTreeMap<String, String>,
) -> Result<Vec<u8>, WriteError> {
    let mut header = Map::new();
    if !metadata.is_empty() {
        header.insert(METADATA.to_owned(), json!(metadata));
    }
    let mut start = 0_usize;
    for entry in entries {
        let name = entry.name.to_owned();
        let end = entry.bytes().and_then(|bytes| start.checked_add(bytes));
        let end = end.ok_or_else(|| WriteError::TooLarge { tensor: name.clone() })?;
        let info = TensorInfo {
            dtype: entry.dtype()?,
            shape: entry.shape.to_vec(),
            data_offsets: (start, end),
        };
        if name == METADATA || header.insert(name.clone(), json!(info)).is_some() {
            return Err(WriteError::Name { tensor: name });
        }
        start = end;
    }
    let mut text = Value::Object(header).to_string().into_bytes();
    text.resize(text.len().next_multiple_of(ALIGNMENT), b' ');
    if text.len() > MAX_HEADER_BYTES {
        return Err(WriteError::HeaderTooLong { found: text.len() });
    }
    Ok([&(text.len() as u64).to_le_bytes(), &text[..]].concat())
}
