//! One refusal for each way in which a safetensors file can be wrong.

use std::collections::BTreeMap;
use std::io::{Cursor, Read, Seek, SeekFrom};

use flashproof_conformance::io::safetensors::{Archive, MAX_HEADER_BYTES, ReadError, write_to};
use flashproof_spec::format::Format;
use flashproof_spec::tensor::Tensor;
use ndarray::{ArrayD, IxDyn};
use safetensors::Dtype;

const NAME: &str = "test file";

/// A file of that header, followed by `data_bytes` zeros.
fn file(header: &str, data_bytes: usize) -> Vec<u8> {
    let mut bytes = (header.len() as u64).to_le_bytes().to_vec();
    bytes.extend(header.bytes());
    bytes.resize(bytes.len() + data_bytes, 0);
    bytes
}

fn refusal(bytes: &[u8]) -> ReadError {
    let error = Archive::new(NAME, Cursor::new(bytes)).map(|_| ()).expect_err("a wrong file");
    assert!(error.to_string().contains(NAME), "{error} does not name the file");
    error
}

fn entry_refusal(entry: &str) -> ReadError {
    let error = refusal(&file(&format!(r#"{{"query": {entry}}}"#), 8));
    assert!(error.to_string().contains("'query'"), "{error} does not name the tensor");
    error
}

#[test]
fn framing() {
    let file_name = || NAME.to_owned();
    assert_eq!(refusal(b"short"), ReadError::TooShort { file: file_name(), found: 5 });
    let cut = ReadError::HeaderCut { file: file_name(), announced: 9, present: 2 };
    assert_eq!(refusal(b"\x09\0\0\0\0\0\0\0{}"), cut);
    let huge = ReadError::HeaderCut { file: file_name(), announced: u64::MAX, present: 0 };
    assert_eq!(refusal(&[0xff; 8]), huge);
    let announced = MAX_HEADER_BYTES as u64 + 1;
    let long = file(&" ".repeat(MAX_HEADER_BYTES + 1), 0);
    assert_eq!(refusal(&long), ReadError::HeaderTooLong { file: file_name(), announced });
}

#[test]
fn header_syntax() {
    for header in ["", "{", "[]", "\"text\"", "{\"a\": 1}x", "\u{0}"] {
        let error = refusal(&file(header, 0));
        assert!(matches!(error, ReadError::HeaderSyntax { .. }), "{header:?}: {error}");
    }
    let deep = format!("{{\"a\": {}", "[".repeat(100_000));
    assert!(matches!(refusal(&file(&deep, 0)), ReadError::HeaderSyntax { .. }));
    let error = refusal(b"\x02\0\0\0\0\0\0\0\xff\xff");
    assert!(matches!(error, ReadError::HeaderSyntax { .. }), "{error}");
}

#[test]
fn metadata() {
    for header in [r#"{"__metadata__": {"a": 1}}"#, r#"{"__metadata__": "text"}"#] {
        let error = refusal(&file(header, 0));
        assert!(matches!(error, ReadError::Metadata { .. }), "{error}");
    }
}

#[test]
fn entries() {
    for entry in [
        "1",
        "{}",
        r#"{"dtype": "F32", "shape": [2]}"#,
        r#"{"dtype": 4, "shape": [2], "data_offsets": [0, 8]}"#,
        r#"{"dtype": "F32", "shape": [-2], "data_offsets": [0, 8]}"#,
        r#"{"dtype": "F32", "shape": [2.0], "data_offsets": [0, 8]}"#,
        r#"{"dtype": "F32", "shape": [2], "data_offsets": [0, 8, 9]}"#,
    ] {
        let error = entry_refusal(entry);
        assert!(matches!(error, ReadError::Entry { .. }), "{entry}: {error}");
    }
    let error = entry_refusal(r#"{"dtype": "F128", "shape": [1], "data_offsets": [0, 8]}"#);
    assert!(matches!(&error, ReadError::UnknownDtype { found, .. } if found == "F128"), "{error}");
}

#[test]
fn sizes() {
    for (entry, found, expected) in [
        (r#"{"dtype": "F32", "shape": [3], "data_offsets": [0, 8]}"#, "8", "12"),
        (r#"{"dtype": "F32", "shape": [], "data_offsets": [0, 8]}"#, "8", "4"),
        (r#"{"dtype": "F32", "shape": [2], "data_offsets": [8, 0]}"#, "fewer than no", "8"),
        (r#"{"dtype": "F4", "shape": [1], "data_offsets": [0, 8]}"#, "8", "an impossible number"),
        (
            r#"{"dtype": "F32", "shape": [4294967296, 4294967296], "data_offsets": [0, 8]}"#,
            "8",
            "an impossible number",
        ),
    ] {
        let error = entry_refusal(entry);
        let ReadError::Size { found: says, expected: wants, .. } = &error else {
            panic!("{entry}: {error}");
        };
        assert_eq!((says.as_str(), wants.as_str()), (found, expected), "{entry}");
    }
}

#[test]
fn layout() {
    let two = |first: &str, second: &str| {
        let entry =
            |offsets| format!(r#"{{"dtype": "F32", "shape": [1], "data_offsets": {offsets}}}"#);
        refusal(&file(&format!(r#"{{"a": {}, "b": {}}}"#, entry(first), entry(second)), 12))
    };
    for (first, second) in [("[0, 4]", "[8, 12]"), ("[0, 4]", "[0, 4]"), ("[4, 8]", "[8, 12]")] {
        let error = two(first, second);
        assert!(matches!(error, ReadError::Layout { .. }), "{first} {second}: {error}");
    }
    let error = two("[0, 4]", "[4, 8]");
    let expected = ReadError::DataLength { file: NAME.to_owned(), found: 12, expected: 8 };
    assert_eq!(error, expected);
}

/// The header's claims, each of which could be right, add up to the largest number there is, so that
/// to add the header's own length would overflow.
#[test]
fn claims_that_overflow() {
    let size = 1_u64 << 60;
    let entries: Vec<_> = (0..16)
        .map(|i| {
            let start = i * size;
            let bytes = if i < 15 { size } else { size - 1 };
            let end = start + bytes;
            format!(
                r#""{i}": {{"dtype": "U8", "shape": [{bytes}], "data_offsets": [{start}, {end}]}}"#
            )
        })
        .collect();
    let error = refusal(&file(&format!("{{{}}}", entries.join(", ")), 0));
    let expected = ReadError::DataLength { file: NAME.to_owned(), found: 0, expected: u64::MAX };
    assert_eq!(error, expected);
}

/// A file that claims to be as long as its header says, and has no bytes to show for it: as a sparse
/// file has.
struct Sparse {
    head: Cursor<Vec<u8>>,
    length: u64,
}

impl Read for Sparse {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        self.head.read(buffer)
    }
}

impl Seek for Sparse {
    fn seek(&mut self, to: SeekFrom) -> std::io::Result<u64> {
        match to {
            SeekFrom::End(0) => Ok(self.length),
            to => self.head.seek(to),
        }
    }
}

#[test]
fn tensors_larger_than_memory() {
    let bytes = 1_u64 << 60;
    let header = format!(
        r#"{{"query": {{"dtype": "F8_E4M3", "shape": [{bytes}], "data_offsets": [0, {bytes}]}}}}"#
    );
    let head = file(&header, 0);
    let length = head.len() as u64 + bytes;
    let source = Sparse { head: Cursor::new(head), length };
    let mut archive = Archive::new(NAME, source).expect("a header that fits its file");
    let error = archive.tensor("query").expect_err("no memory is that large");
    let (file, tensor) = (NAME.to_owned(), "query".to_owned());
    assert_eq!(error, ReadError::TooLarge { file, tensor, bytes: 1 << 60 });
}

#[test]
fn files_that_shrink_while_they_are_read() {
    let header = r#"{"query": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}}"#;
    let source =
        Sparse { length: file(header, 8).len() as u64, head: Cursor::new(file(header, 7)) };
    let mut archive = Archive::new(NAME, source).expect("a header that fits its file");
    let error = archive.tensor("query").expect_err("a byte is missing");
    assert!(matches!(error, ReadError::Unreadable { .. }), "{error}");
}

#[test]
fn tensors_that_are_not_what_was_asked_for() {
    let tensor = Tensor::rounded(Format::F32, &ArrayD::zeros(IxDyn(&[2, 3])));
    let mut bytes = Vec::new();
    write_to(&mut bytes, &[("query", &tensor), ("key", &tensor)], &BTreeMap::new())
        .expect("a file");
    let mut archive = Archive::new(NAME, Cursor::new(&bytes)).expect("a file");
    let (file, query) = (|| NAME.to_owned(), || "query".to_owned());
    let missing = ReadError::Missing {
        file: file(),
        tensor: "value".to_owned(),
        present: vec!["key".to_owned(), query()],
    };
    assert_eq!(archive.tensor("value"), Err(missing.clone()));
    assert_eq!(archive.integers("value", 1), Err(missing.clone()));
    assert_eq!(archive.describe("value"), Err(missing.clone()));
    assert_eq!(missing.to_string(), "'test file' has no tensor 'value': it has key, query");
    let rank = ReadError::Rank { file: file(), tensor: query(), found: vec![2, 3], expected: 4 };
    assert_eq!(archive.tensor_of_rank("query", 4), Err(rank));
    let dtype = ReadError::WrongDtype {
        file: file(),
        tensor: query(),
        found: Dtype::F32,
        expected: "I64 or I32",
    };
    assert_eq!(archive.integers("query", 2), Err(dtype));
}

#[test]
fn integers_are_no_floats() {
    let header = r#"{"lengths": {"dtype": "I32", "shape": [2], "data_offsets": [0, 8]}}"#;
    let bytes = file(header, 8);
    let mut archive = Archive::new(NAME, Cursor::new(&bytes)).expect("a file");
    let error = archive.tensor("lengths").expect_err("no floating-point tensor");
    assert!(matches!(&error, ReadError::WrongDtype { found: Dtype::I32, .. }), "{error}");
    assert_eq!(archive.integers("lengths", 1).map(|lengths| lengths.sum()), Ok(0));
}
