//! Writing a safetensors file: whole or not at all, and the same bytes each time.

use std::collections::BTreeMap;
use std::fs::Permissions;
use std::io::{BufWriter, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

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
    let failed = |source| WriteError::Io { file: path.display().to_string(), source };
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    let mut temporary = tempfile::Builder::new()
        .permissions(Permissions::from_mode(FILE_MODE))
        .tempfile_in(parent.unwrap_or(Path::new(".")))
        .map_err(failed)?;
    write_to(&mut BufWriter::new(temporary.as_file_mut()), tensors, metadata)
        .map_err(|error| error.in_file(path))?;
    temporary.persist(path).map_err(|error| failed(error.error))?;
    Ok(())
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
    let entries = arrange(tensors)?;
    let header = header(&entries, metadata)?;
    let mut put = |bytes: &[u8]| {
        sink.write_all(bytes).map_err(|source| WriteError::Io { file: "output".to_owned(), source })
    };
    put(&(header.len() as u64).to_le_bytes())?;
    put(&header)?;
    for Entry { tensor, .. } in &entries {
        put(&encode(tensor.format(), tensor.values().iter().copied()))?;
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

struct Entry<'a> {
    name: &'a str,
    tensor: &'a Tensor,
    dtype: Dtype,
}

/// Orders tensors by alignment, largest first, then by name.
fn arrange<'a>(tensors: &[(&'a str, &'a Tensor)]) -> Result<Vec<Entry<'a>>, WriteError> {
    let mut entries = tensors
        .iter()
        .map(|&(name, tensor)| match dtype_of(tensor.format()) {
            Some(dtype) => Ok(Entry { name, tensor, dtype }),
            None => Err(WriteError::Format { tensor: name.to_owned(), format: tensor.format() }),
        })
        .collect::<Result<Vec<_>, _>>()?;
    entries.sort_by(|a, b| b.dtype.cmp(&a.dtype).then(a.name.cmp(b.name)));
    Ok(entries)
}

/// The header, written here because the crate's own keeps the metadata in the order of a hash map
/// seeded at random: the same tensors would not give the same file.
fn header(
    entries: &[Entry<'_>],
    metadata: &BTreeMap<String, String>,
) -> Result<Vec<u8>, WriteError> {
    let mut header = Map::new();
    if !metadata.is_empty() {
        header.insert(METADATA.to_owned(), json!(metadata));
    }
    let mut start = 0;
    for &Entry { name, tensor, dtype } in entries {
        let end = start + tensor.values().len() * (dtype.bitsize() / 8);
        let info = TensorInfo { dtype, shape: tensor.shape().to_vec(), data_offsets: (start, end) };
        if name == METADATA || header.insert(name.to_owned(), json!(info)).is_some() {
            return Err(WriteError::Name { tensor: name.to_owned() });
        }
        start = end;
    }
    let mut text = Value::Object(header).to_string().into_bytes();
    text.resize(text.len().next_multiple_of(ALIGNMENT), b' ');
    if text.len() > MAX_HEADER_BYTES {
        return Err(WriteError::HeaderTooLong { found: text.len() });
    }
    Ok(text)
}
