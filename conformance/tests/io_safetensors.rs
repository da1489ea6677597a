//! Safetensors files: exchange with the reference implementation, and whole files or none.

use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::io::Cursor;
use std::os::unix::fs::PermissionsExt;

use flashproof_conformance::io::safetensors::{
    Archive, ReadError, WriteError, dtype_of, write, write_to,
};
use flashproof_spec::format::Format;
use flashproof_spec::tensor::Tensor;
use ndarray::{ArrayD, IxDyn};
use safetensors::tensor::TensorView;
use safetensors::{Dtype, SafeTensors};

/// The formats that a file holds.
fn stored() -> impl Iterator<Item = Format> {
    Format::ALL.into_iter().filter(|&format| dtype_of(format).is_some())
}

/// One of each kind of value, in the shape `[2, 1, 4]`.
fn sample(format: Format) -> Tensor {
    let infinity = if format.has_infinity() { f64::INFINITY } else { format.max_finite() };
    let values = vec![
        0.0,
        -0.0,
        1.5,
        -format.max_finite(),
        format.smallest_subnormal(),
        -format.smallest_normal(),
        infinity,
        f64::NAN,
    ];
    Tensor::rounded_from(format, &[2, 1, 4], values).expect("eight values")
}

/// Equality of bits, but for the payloads of NaN.
fn same(a: &Tensor, b: &Tensor) -> bool {
    let equal = |(a, b): (&f64, &f64)| a.to_bits() == b.to_bits() || (a.is_nan() && b.is_nan());
    a.format() == b.format()
        && a.shape() == b.shape()
        && a.values().iter().zip(b.values()).all(equal)
}

fn to_bytes(tensors: &[(&str, &Tensor)], metadata: &BTreeMap<String, String>) -> Vec<u8> {
    let mut bytes = Vec::new();
    write_to(&mut bytes, tensors, metadata).expect("tensors that can be written");
    bytes
}

fn archive(bytes: &[u8]) -> Archive<Cursor<&[u8]>> {
    Archive::new("test file", Cursor::new(bytes)).expect("a safetensors file")
}

fn metadata(count: usize) -> BTreeMap<String, String> {
    (0..count).map(|i| (format!("key {i}"), format!("value {i}"))).collect()
}

#[test]
fn tensors_of_every_format_survive_a_round_trip() {
    for format in stored() {
        let tensor = sample(format);
        let bytes = to_bytes(&[("a", &tensor)], &BTreeMap::new());
        let found = archive(&bytes).tensor("a").expect("the tensor");
        assert!(same(&found, &tensor), "{format}: {found:?}");
    }
}

#[test]
fn tensors_of_no_elements_and_of_no_axes_survive_a_round_trip() {
    let empty = Tensor::rounded(Format::F16, &ArrayD::zeros(IxDyn(&[2, 0, 3])));
    let scalar = Tensor::rounded(Format::F64, &ArrayD::from_elem(IxDyn(&[]), 2.5));
    let bytes = to_bytes(&[("empty", &empty), ("scalar", &scalar)], &BTreeMap::new());
    let mut archive = archive(&bytes);
    assert_eq!(archive.tensor("empty"), Ok(empty));
    assert_eq!(archive.tensor("scalar"), Ok(scalar));
}

#[test]
fn the_reference_implementation_reads_what_is_written() {
    let tensors: Vec<_> = stored().map(|format| (format.name(), sample(format))).collect();
    let named: Vec<_> = tensors.iter().map(|(name, tensor)| (*name, tensor)).collect();
    let bytes = to_bytes(&named, &metadata(2));
    let (_, header) = SafeTensors::read_metadata(&bytes).expect("a header");
    let expected: HashMap<_, _> = metadata(2).into_iter().collect();
    assert_eq!(header.metadata().as_ref(), Some(&expected));
    let reference = SafeTensors::deserialize(&bytes).expect("a file");
    assert_eq!(reference.len(), tensors.len());
    for (name, tensor) in &tensors {
        let view = reference.tensor(name).expect("the tensor");
        assert_eq!(Some(view.dtype()), dtype_of(tensor.format()));
        assert_eq!(view.shape(), tensor.shape());
    }
    let f32s: Vec<_> = sample(Format::F32).values().iter().map(|&x| (x as f32).to_bits()).collect();
    let data = reference.tensor("f32").expect("the tensor").data();
    let (chunks, rest) = data.as_chunks::<4>();
    assert!(rest.is_empty());
    let found: Vec<_> = chunks.iter().map(|&bytes| u32::from_le_bytes(bytes)).collect();
    assert_eq!(found[..7], f32s[..7]);
    assert!(f32::from_bits(found[7]).is_nan());
}

#[test]
fn what_the_reference_implementation_writes_is_read() {
    let bf16s = [0x3f80_u16, 0xc040, 0x0001].map(u16::to_le_bytes).concat();
    let lengths = [7_i32, -1].map(i32::to_le_bytes).concat();
    let long = [1_i64 << 40].map(i64::to_le_bytes).concat();
    let view = |dtype, shape: &[usize], data| TensorView::new(dtype, shape.to_vec(), data);
    let views = [
        ("query", view(Dtype::BF16, &[3, 1], &bf16s).expect("a view")),
        ("lengths", view(Dtype::I32, &[2], &lengths).expect("a view")),
        ("long", view(Dtype::I64, &[1], &long).expect("a view")),
    ];
    let text = HashMap::from([("model".to_owned(), "none".to_owned())]);
    let bytes = safetensors::serialize(views, Some(text)).expect("a file");
    let mut archive = archive(&bytes);
    assert_eq!(archive.names(), ["long", "lengths", "query"]);
    assert_eq!(archive.metadata()["model"], "none");
    assert!(archive.contains("query") && !archive.contains("key"));
    assert_eq!(archive.describe("query"), Ok(([3, 1].as_slice(), Dtype::BF16)));
    let query = archive.tensor_of_rank("query", 2).expect("the tensor");
    assert_eq!(query.format(), Format::Bf16);
    let subnormal = Format::Bf16.smallest_subnormal();
    assert_eq!(query.values().iter().copied().collect::<Vec<_>>(), [1.0, -3.0, subnormal]);
    assert_eq!(archive.integers("lengths", 1), Ok(ndarray::arr1(&[7, -1]).into_dyn()));
    assert_eq!(archive.integers("long", 1), Ok(ndarray::arr1(&[1 << 40]).into_dyn()));
}

#[test]
fn the_same_tensors_give_the_same_bytes() {
    let (a, b) = (sample(Format::F32), sample(Format::F64));
    let many = metadata(20);
    let first = to_bytes(&[("a", &a), ("b", &b)], &many);
    assert_eq!(first, to_bytes(&[("b", &b), ("a", &a)], &many));
    let header = u64::from_le_bytes(first[..8].try_into().expect("eight bytes"));
    assert_eq!(header % 8, 0, "the elements are not aligned");
}

#[test]
fn a_file_appears_whole_or_not_at_all() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("a.safetensors");
    let tensor = sample(Format::F16);
    write(&path, &[("a", &tensor)], &BTreeMap::new()).expect("a new file");
    let before = fs::read(&path).expect("the file");

    let tf32 = Tensor::rounded(Format::Tf32, tensor.values());
    let error = write(&path, &[("a", &tensor), ("b", &tf32)], &BTreeMap::new());
    let error = error.expect_err("no file holds tf32");
    assert!(matches!(&error, WriteError::Format { tensor, .. } if tensor == "b"), "{error}");
    assert_eq!(fs::read(&path).expect("the file"), before);

    write(&path, &[("b", &tensor)], &BTreeMap::new()).expect("a file in the place of another");
    assert_eq!(Archive::open(&path).expect("the file").names(), ["b"]);
    assert_eq!(fs::read_dir(folder.path()).expect("the folder").count(), 1);
}

#[test]
fn a_file_is_readable_as_any_program_s_output() {
    let folder = tempfile::tempdir().expect("a folder");
    let [ours, plain] = ["ours", "plain"].map(|name| folder.path().join(name));
    write(&ours, &[("a", &sample(Format::F16))], &BTreeMap::new()).expect("a file");
    fs::write(&plain, "").expect("a file");
    let mode = |path| fs::metadata(path).expect("a file").permissions().mode();
    assert_eq!(mode(&ours), mode(&plain));
}

#[test]
fn a_path_that_can_not_be_written_is_named() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("no such folder").join("a.safetensors");
    let error = write(&path, &[("a", &sample(Format::F16))], &BTreeMap::new());
    let error = error.expect_err("there is no such folder");
    assert!(matches!(error, WriteError::Io { .. }), "{error}");
    assert!(error.to_string().contains(path.to_str().expect("a path in UTF-8")), "{error}");
}

#[test]
fn names_of_tensors_are_distinct() {
    let tensor = sample(Format::F16);
    for names in [["a", "a"], ["a", "__metadata__"]] {
        let tensors = names.map(|name| (name, &tensor));
        let error =
            write_to(&mut Vec::new(), &tensors, &BTreeMap::new()).expect_err("a name twice");
        assert!(matches!(&error, WriteError::Name { tensor } if tensor == names[1]), "{error}");
    }
}

#[test]
fn a_path_that_is_no_file_is_named() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().display().to_string();
    let error = Archive::open(folder.path()).map(|_| ()).expect_err("a folder");
    assert_eq!(error, ReadError::NotAFile { file });
    let error = Archive::open(&folder.path().join("none")).map(|_| ()).expect_err("nothing");
    assert!(
        matches!(&error, ReadError::Unreadable { file, .. } if file.ends_with("none")),
        "{error}"
    );
}
