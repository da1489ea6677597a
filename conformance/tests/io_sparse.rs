//! Files of buffers: elements, guards around them, and holes that take no room.

#[path = "adapter_support/mod.rs"]
mod adapter_support;

use std::collections::BTreeMap;
use std::fs::{self, OpenOptions};
use std::os::unix::fs::{FileExt, MetadataExt};

use adapter_support::{placed, pointed};
use flashproof_conformance::io::safetensors::{
    Archive, Extent, Footprint, ReadError, Span, SparseTensor, WriteError, poison, write,
    write_sparse,
};
use flashproof_spec::format::Format;
use flashproof_spec::layout::{Buffer, Placed};
use flashproof_spec::problem::Problem;
use flashproof_spec::tensor::Tensor;
use tempfile::TempDir;

fn folder() -> TempDir {
    tempfile::tempdir().expect("a folder")
}

/// The case of that layout.
fn case(layout: &str) -> Problem {
    let mut cases = placed::problems(Format::F32).into_iter();
    cases.find(|(name, _)| *name == layout).expect("a layout of that name").1
}

fn key(problem: &Problem) -> Buffer {
    Buffer::store(problem, Placed::Key, &pointed::inputs(problem).key).expect("equal shared keys")
}

#[test]
fn whole_tensors_are_written_as_ever() {
    let folder = folder();
    let (one, other) = (folder.path().join("one"), folder.path().join("other"));
    let inputs = pointed::inputs(&pointed::problem(Format::Bf16));
    let lse = pointed::outputs(&pointed::problem(Format::Bf16)).lse.expect("an LSE");
    let named: [(&str, &Tensor); 3] = [("b", &inputs.query), ("a", &inputs.key), ("lse", &lse)];
    write(&one, &named, &BTreeMap::new()).expect("a file");
    let whole = [("b", &inputs.query), ("a", &inputs.key), ("lse", &lse)]
        .map(|(name, tensor)| SparseTensor::whole(name, tensor));
    let extents = write_sparse(&other, &whole).expect("a file");
    let bytes = fs::read(&one).expect("a file");
    assert_eq!(fs::read(&other).expect("a file"), bytes);
    // the widest format comes first, then names in order
    let names: Vec<_> = extents.iter().map(|extent| extent.tensor).collect();
    assert_eq!(names, ["lse", "a", "b"]);
    for Extent { tensor, ranges } in extents {
        let span = ranges[0].start as usize..ranges[0].end as usize;
        let written = whole.iter().find(|whole| whole.name == tensor).expect("the tensor");
        assert_eq!(bytes[span], written.spans[0].bytes, "{tensor}");
    }
}

#[test]
fn buffers_survive_a_round_trip_in_every_layout() {
    let folder = folder();
    for (layout, problem) in placed::problems(Format::F32) {
        let path = folder.path().join(layout);
        let footprint = Footprint::of(&problem, Placed::Key, Format::F32);
        let buffer = key(&problem);
        write_sparse(&path, &[footprint.tensor("key", &buffer)]).expect("a file");
        let mut archive = Archive::open(&path).expect("a file of tensors");
        let (shape, _) = archive.describe("key").expect("a tensor");
        assert_eq!(shape, [problem.buffer_len(Placed::Key)]);
        let (found, disturbed) = footprint.read(&mut archive, "key").expect("a buffer");
        assert_eq!(disturbed, None, "{layout}");
        let bits = |buffer: &Buffer| -> Vec<_> {
            buffer.written().map(|(at, x)| (at, (!x.is_nan()).then_some(x))).collect()
        };
        assert_eq!(bits(&found), bits(&buffer), "{layout}");
    }
}

#[test]
fn what_is_no_element_is_poison() {
    let folder = folder();
    let path = folder.path().join("file");
    let problem = case("guarded");
    let footprint = Footprint::of(&problem, Placed::Key, Format::F32);
    write_sparse(&path, &[footprint.poisoned("key")]).expect("a file");
    let mut archive = Archive::open(&path).expect("a file of tensors");
    let len = problem.buffer_len(Placed::Key);
    let bytes = archive.span("key", 0..len).expect("bytes");
    assert_eq!(bytes, poison(Format::F32).repeat(len));
    let values = archive.tensor("key").expect("a tensor");
    assert!(values.values().iter().all(|value| value.is_nan()));
}

/// Places among which those that are disturbed are evenly spread.
const DISTURBED: usize = 40;

/// Places around the elements that are written to, are told.
#[test]
fn a_disturbed_guard_is_told() {
    let folder = folder();
    let path = folder.path().join("file");
    for layout in ["guarded", "ragged", "paged", "giant"] {
        let problem = case(layout);
        let placed = if layout == "paged" { Placed::Key } else { Placed::Output };
        let footprint = Footprint::of(&problem, placed, Format::F32);
        let owned: Vec<_> = problem.owned(placed).map(|(_, offset)| offset).collect();
        let beside = |offset: &usize| !owned.contains(offset);
        let tensor = footprint.poisoned("x");
        let guards = tensor.spans.iter().flat_map(|Span { start, bytes }| {
            let count = bytes.len() / 4;
            (*start..start + count).filter(beside)
        });
        let guards: Vec<_> = guards.collect();
        assert!(!guards.is_empty(), "{layout}");
        for &offset in guards.iter().step_by(guards.len().div_ceil(DISTURBED)) {
            let extents = write_sparse(&path, std::slice::from_ref(&tensor)).expect("a file");
            let start = extents[0].ranges[0].start - 4 * tensor.spans[0].start as u64;
            let file = OpenOptions::new().write(true).open(&path).expect("a file");
            let quiet = f32::NAN.to_le_bytes();
            file.write_all_at(&quiet, start + 4 * offset as u64).expect("a byte");
            let mut archive = Archive::open(&path).expect("a file of tensors");
            let (_, disturbed) = footprint.read(&mut archive, "x").expect("a buffer");
            assert_eq!(disturbed, Some(offset), "{layout}");
        }
    }
}

/// 128 GiB in less than a megabyte.
#[test]
fn giant_buffers_take_little_room() {
    let folder = folder();
    let path = folder.path().join("file");
    let problem = case("giant");
    let footprint = Footprint::of(&problem, Placed::Output, Format::F32);
    write_sparse(&path, &[footprint.poisoned("output")]).expect("a file");
    let metadata = fs::metadata(&path).expect("a file");
    let bytes = 4 * problem.buffer_len(Placed::Output) as u64;
    assert!(bytes > 3 << 35 && metadata.len() > bytes, "{bytes} bytes");
    // a block is of 512 bytes whatever the file system's is
    assert!(512 * metadata.blocks() < 1 << 20, "{} blocks", metadata.blocks());
}

#[test]
fn spans_are_read_without_the_rest() {
    let folder = folder();
    let path = folder.path().join("file");
    let inputs = pointed::inputs(&pointed::problem(Format::F16));
    write_sparse(&path, &[SparseTensor::whole("value", &inputs.value)]).expect("a file");
    let mut archive = Archive::open(&path).expect("a file of tensors");
    let len = inputs.value.values().len();
    let whole = archive.span("value", 0..len).expect("all bytes");
    assert_eq!(whole.len(), 2 * len);
    assert_eq!(archive.span("value", 3..7).expect("bytes"), whole[6..14]);
    assert!(archive.span("value", len..len).expect("no bytes").is_empty());
    for (start, end) in [(0, len + 1), (len + 1, len + 1), (5, 4), (0, usize::MAX)] {
        let error = archive.span("value", start..end).expect_err("no such elements");
        let named = matches!(&error, ReadError::Span { tensor, start: a, end: b, .. }
            if tensor == "value" && (*a, *b) == (start, end));
        assert!(named, "{error}");
    }
    let error = archive.span("key", 0..1).expect_err("no such tensor");
    assert!(matches!(&error, ReadError::Missing { tensor, .. } if tensor == "key"), "{error}");
}

#[test]
fn a_tensor_past_what_can_be_addressed_is_named() {
    let folder = folder();
    let path = folder.path().join("file");
    let tensor = |name| SparseTensor {
        name,
        format: Format::F32,
        shape: vec![usize::MAX / 4],
        spans: Vec::new(),
    };
    let error = write_sparse(&path, &[tensor("a"), tensor("b")]).expect_err("too much");
    assert!(matches!(&error, WriteError::TooLarge { tensor } if tensor == "b"), "{error}");
    let tensor = SparseTensor { shape: vec![usize::MAX, 2], ..tensor("c") };
    let error = write_sparse(&path, &[tensor]).expect_err("too much");
    assert!(matches!(&error, WriteError::TooLarge { tensor } if tensor == "c"), "{error}");
    assert!(!path.exists());
}
