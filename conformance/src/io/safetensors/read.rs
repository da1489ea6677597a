//! Reading a safetensors file, a tensor at a time.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::ops::Range;
use std::path::Path;

use flashproof_spec::tensor::{Tensor, TensorError};
use ndarray::{ArrayD, IxDyn};
use safetensors::tensor::{Metadata, TensorInfo};
use safetensors::{Dtype, SafeTensorError};
use serde::Deserialize;
use serde_json::{Map, Value};

use super::codec::{decode, decode_integers, format_of};
use super::{MAX_HEADER_BYTES, METADATA, ReadError};

/// Bytes of the header's length.
const LENGTH_BYTES: u64 = 8;

/// What a reader of floating-point tensors takes.
const FLOATS: &str = "F64, F32, F16, BF16, F8_E4M3 or F8_E5M2";
/// What a reader of integer tensors takes.
const INTEGERS: &str = "I64 or I32";
/// What a reader of truth values takes.
const BOOLEANS: &str = "BOOL";

/// An open safetensors file whose header has been checked against its length.
///
/// Elements are read when they are asked for, so opening a file costs its header alone.
#[derive(Debug)]
pub struct Archive<R> {
    file: String,
    source: R,
    data_start: u64,
    metadata: BTreeMap<String, String>,
    header: Metadata,
}

impl Archive<File> {
    /// Opens a file.
    ///
    /// # Errors
    /// [`ReadError`] names the file and what is wrong with it.
    pub fn open(path: &Path) -> Result<Self, ReadError> {
        let file = path.display().to_string();
        let unreadable = |error: std::io::Error| ReadError::Unreadable {
            file: file.clone(),
            reason: error.to_string(),
        };
        // A pipe or a device may have no end.
        if !std::fs::metadata(path).map_err(unreadable)?.is_file() {
            return Err(ReadError::NotAFile { file });
        }
        let source = File::open(path).map_err(unreadable)?;
        Self::new(&file, source)
    }
}

impl<R: Read + Seek> Archive<R> {
    /// Reads the header from `source`; errors name it `file`.
    ///
    /// # Errors
    /// [`ReadError`] names the file and what is wrong with it.
    pub fn new(file: &str, mut source: R) -> Result<Self, ReadError> {
        let text = read_header(file, &mut source)?;
        let mut entries: Map<String, Value> =
            serde_json::from_slice(&text.bytes).map_err(|error| ReadError::HeaderSyntax {
                file: file.to_owned(),
                reason: error.to_string(),
            })?;
        let metadata = take_metadata(file, &mut entries)?;
        let header = check_layout(file, entries)?;
        let announced = header.data_len() as u64;
        if announced != text.data_bytes {
            let (found, expected) = (text.data_bytes, announced);
            return Err(ReadError::DataLength { file: file.to_owned(), found, expected });
        }
        let data_start = LENGTH_BYTES + text.bytes.len() as u64;
        Ok(Self { file: file.to_owned(), source, data_start, metadata, header })
    }

    /// Names of the tensors, in the file's order.
    #[must_use]
    pub fn names(&self) -> Vec<String> {
        self.header.offset_keys()
    }

    /// The text that the file carries beside its tensors.
    #[must_use]
    pub const fn metadata(&self) -> &BTreeMap<String, String> {
        &self.metadata
    }

    /// Whether there is a tensor of that name.
    #[must_use]
    pub fn contains(&self, tensor: &str) -> bool {
        self.header.info(tensor).is_some()
    }

    /// Extents and element type of a tensor, without reading its elements.
    ///
    /// # Errors
    /// [`ReadError::Missing`].
    pub fn describe(&self, tensor: &str) -> Result<(&[usize], Dtype), ReadError> {
        self.info(tensor).map(|info| (info.shape.as_slice(), info.dtype))
    }

    /// A floating-point tensor of any number of axes.
    ///
    /// # Errors
    /// [`ReadError::Missing`], [`ReadError::WrongDtype`], or [`ReadError::Unreadable`].
    pub fn tensor(&mut self, tensor: &str) -> Result<Tensor, ReadError> {
        let info = self.info(tensor)?.clone();
        let format =
            format_of(info.dtype).ok_or_else(|| self.wrong_dtype(tensor, info.dtype, FLOATS))?;
        let values = decode(format, &self.bytes(tensor, &info)?);
        let malformed = |source| ReadError::Tensor { file: self.file.clone(), source };
        let values = array(&info.shape, values).map_err(malformed)?;
        Tensor::exact(format, values).map_err(malformed)
    }

    /// A floating-point tensor of `rank` axes.
    ///
    /// # Errors
    /// As [`Archive::tensor`], and [`ReadError::Rank`].
    pub fn tensor_of_rank(&mut self, tensor: &str, rank: usize) -> Result<Tensor, ReadError> {
        self.check_rank(tensor, rank)?;
        self.tensor(tensor)
    }

    /// An integer tensor of `rank` axes, from 32 or 64 bits.
    ///
    /// # Errors
    /// [`ReadError::Missing`], [`ReadError::Rank`], [`ReadError::WrongDtype`], or
    /// [`ReadError::Unreadable`].
    pub fn integers(&mut self, tensor: &str, rank: usize) -> Result<ArrayD<i64>, ReadError> {
        self.check_rank(tensor, rank)?;
        let info = self.info(tensor)?.clone();
        let bytes = self.bytes(tensor, &info)?;
        let values = decode_integers(info.dtype, &bytes)
            .ok_or_else(|| self.wrong_dtype(tensor, info.dtype, INTEGERS))?;
        array(&info.shape, values)
            .map_err(|source| ReadError::Tensor { file: self.file.clone(), source })
    }

    /// A tensor of truth values of `rank` axes.
    ///
    /// # Errors
    /// As [`Archive::integers`].
    pub fn booleans(&mut self, tensor: &str, rank: usize) -> Result<ArrayD<bool>, ReadError> {
        self.check_rank(tensor, rank)?;
        let info = self.info(tensor)?.clone();
        if info.dtype != Dtype::BOOL {
            return Err(self.wrong_dtype(tensor, info.dtype, BOOLEANS));
        }
        let values = self.bytes(tensor, &info)?.into_iter().map(|byte| byte != 0).collect();
        array(&info.shape, values)
            .map_err(|source| ReadError::Tensor { file: self.file.clone(), source })
    }

    /// The bytes of consecutive elements, by their flat indices, without reading the rest of the tensor.
    ///
    /// # Errors
    /// [`ReadError::Missing`], [`ReadError::Span`] where the tensor has no such elements, or
    /// [`ReadError::Unreadable`].
    pub fn span(&mut self, tensor: &str, elements: Range<usize>) -> Result<Vec<u8>, ReadError> {
        let info = self.info(tensor)?;
        let (first, last) = info.data_offsets;
        let bits = |index: usize| index.checked_mul(info.dtype.bitsize());
        let place = |index: usize| {
            let bits = bits(index).filter(|bits| bits.is_multiple_of(8))?;
            first.checked_add(bits / 8).filter(|&place| place <= last)
        };
        match (place(elements.start), place(elements.end)) {
            (Some(start), Some(end)) if start <= end => self.bytes_at(start, end),
            _ => Err(ReadError::Span {
                file: self.file.clone(),
                tensor: tensor.to_owned(),
                start: elements.start,
                end: elements.end,
                shape: info.shape.clone(),
            }),
        }
    }

    fn info(&self, tensor: &str) -> Result<&TensorInfo, ReadError> {
        self.header.info(tensor).ok_or_else(|| ReadError::Missing {
            file: self.file.clone(),
            tensor: tensor.to_owned(),
            present: self.names(),
        })
    }

    fn check_rank(&self, tensor: &str, rank: usize) -> Result<(), ReadError> {
        let shape = &self.info(tensor)?.shape;
        if shape.len() == rank {
            return Ok(());
        }
        Err(ReadError::Rank {
            file: self.file.clone(),
            tensor: tensor.to_owned(),
            found: shape.clone(),
            expected: rank,
        })
    }

    fn wrong_dtype(&self, tensor: &str, found: Dtype, expected: &'static str) -> ReadError {
        ReadError::WrongDtype {
            file: self.file.clone(),
            tensor: tensor.to_owned(),
            found,
            expected,
        }
    }

    /// The bytes of a tensor; as many as the file was seen to hold.
    fn bytes(&mut self, tensor: &str, info: &TensorInfo) -> Result<Vec<u8>, ReadError> {
        self.check_memory(tensor, info)?;
        let (start, end) = info.data_offsets;
        self.bytes_at(start, end)
    }

    /// The bytes between two offsets into the tensors' data.
    fn bytes_at(&mut self, start: usize, end: usize) -> Result<Vec<u8>, ReadError> {
        let mut bytes = vec![0; end - start];
        self.source
            .seek(SeekFrom::Start(self.data_start + start as u64))
            .and_then(|_| self.source.read_exact(&mut bytes))
            .map_err(|error| unreadable(&self.file, &error))?;
        Ok(bytes)
    }

    /// Refuses a tensor that there is no memory for: a sparse file can be far longer than any. An
    /// element takes its own bytes here and 8 more when decoded.
    fn check_memory(&self, tensor: &str, info: &TensorInfo) -> Result<(), ReadError> {
        let (start, end) = info.data_offsets;
        let decoded = info.shape.iter().product::<usize>().checked_mul(size_of::<f64>());
        decoded
            .and_then(|decoded| decoded.checked_add(end - start))
            .filter(|&bytes| Vec::<u8>::new().try_reserve_exact(bytes).is_ok())
            .map(|_| ())
            .ok_or_else(|| ReadError::TooLarge {
                file: self.file.clone(),
                tensor: tensor.to_owned(),
                bytes: end - start,
            })
    }
}

/// A header that is wholly present, and how many bytes follow it.
struct HeaderText {
    bytes: Vec<u8>,
    data_bytes: u64,
}

fn read_header(file: &str, source: &mut (impl Read + Seek)) -> Result<HeaderText, ReadError> {
    let failed = |error: std::io::Error| unreadable(file, &error);
    let file_bytes = source.seek(SeekFrom::End(0)).map_err(failed)?;
    let Some(present) = file_bytes.checked_sub(LENGTH_BYTES) else {
        return Err(ReadError::TooShort { file: file.to_owned(), found: file_bytes });
    };
    source.rewind().map_err(failed)?;
    let mut length = [0; LENGTH_BYTES as usize];
    source.read_exact(&mut length).map_err(failed)?;
    let announced = u64::from_le_bytes(length);
    if announced > present {
        return Err(ReadError::HeaderCut { file: file.to_owned(), announced, present });
    }
    if announced > MAX_HEADER_BYTES as u64 {
        return Err(ReadError::HeaderTooLong { file: file.to_owned(), announced });
    }
    let mut bytes = vec![0; announced as usize];
    source.read_exact(&mut bytes).map_err(failed)?;
    Ok(HeaderText { bytes, data_bytes: present - announced })
}

fn take_metadata(
    file: &str,
    entries: &mut Map<String, Value>,
) -> Result<BTreeMap<String, String>, ReadError> {
    entries.remove(METADATA).map_or(Ok(BTreeMap::new()), |value| {
        BTreeMap::deserialize(value).map_err(|error| ReadError::Metadata {
            file: file.to_owned(),
            reason: error.to_string(),
        })
    })
}

/// Checks each entry by itself, then that the tensors tile the data from its start.
fn check_layout(file: &str, entries: Map<String, Value>) -> Result<Metadata, ReadError> {
    let mut tensors = entries
        .into_iter()
        .map(|(tensor, entry)| Ok((tensor.clone(), check_entry(file, &tensor, &entry)?)))
        .collect::<Result<Vec<_>, ReadError>>()?;
    tensors.sort_by_key(|(_, info)| info.data_offsets);
    Metadata::new(None, tensors).map_err(|error| ReadError::Layout {
        file: file.to_owned(),
        reason: match error {
            SafeTensorError::InvalidOffset(tensor) => {
                format!("'{tensor}' does not start where the one before it ends")
            }
            other => other.to_string(),
        },
    })
}

fn check_entry(file: &str, tensor: &str, entry: &Value) -> Result<TensorInfo, ReadError> {
    let (file, tensor) = (file.to_owned(), tensor.to_owned());
    if let Some(Value::String(found)) = entry.get("dtype")
        && Dtype::deserialize(&entry["dtype"]).is_err()
    {
        return Err(ReadError::UnknownDtype { file, tensor, found: found.clone() });
    }
    let info = match TensorInfo::deserialize(entry) {
        Ok(info) => info,
        Err(error) => return Err(ReadError::Entry { file, tensor, reason: error.to_string() }),
    };
    let (start, end) = info.data_offsets;
    let (found, expected) = (end.checked_sub(start), byte_len(&info));
    if found.is_none() || found != expected {
        let say = |bytes: Option<usize>, otherwise: &str| {
            bytes.map_or_else(|| otherwise.to_owned(), |bytes| bytes.to_string())
        };
        let (found, expected) =
            (say(found, "fewer than no"), say(expected, "an impossible number"));
        return Err(ReadError::Size { file, tensor, found, expected });
    }
    Ok(info)
}

/// Bytes that the shape and the element type call for; `None` where that is no whole number of bytes
/// or too large to address.
fn byte_len(info: &TensorInfo) -> Option<usize> {
    let elements = info.shape.iter().try_fold(1_usize, |product, &n| product.checked_mul(n))?;
    let bits = elements.checked_mul(info.dtype.bitsize())?;
    bits.is_multiple_of(8).then_some(bits / 8)
}

/// The values in their shape, whose number of elements the header was checked to give.
fn array<T>(shape: &[usize], values: Vec<T>) -> Result<ArrayD<T>, TensorError> {
    let count = values.len();
    ArrayD::from_shape_vec(IxDyn(shape), values)
        .map_err(|_| TensorError::Count { count, shape: shape.to_vec() })
}

fn unreadable(file: &str, error: &std::io::Error) -> ReadError {
    ReadError::Unreadable { file: file.to_owned(), reason: error.to_string() }
}
