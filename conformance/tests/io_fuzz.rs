//! No bytes, however wrong, make the reader panic or reserve more than the file holds.

#[path = "adapter_support/property.rs"]
mod property;

use std::collections::BTreeMap;
use std::io::Cursor;
use std::ops::Range;

use flashproof_conformance::io::safetensors::{Archive, dtype_of, write_to};
use flashproof_spec::format::Format;
use flashproof_spec::tensor::Tensor;
use ndarray::{ArrayD, IxDyn};
use property::settings;
use proptest::prelude::*;
use proptest::sample::Index;

/// Opens and reads everything that can be read, and gives the number of elements read.
fn read_all(bytes: &[u8]) -> usize {
    let Ok(mut archive) = Archive::new("fuzz", Cursor::new(bytes)) else { return 0 };
    archive
        .names()
        .iter()
        .map(|name| {
            let rank = archive.describe(name).expect("a tensor that is there").0.len();
            let floats = archive.tensor(name).map_or(0, |tensor| tensor.values().len());
            let integers = archive.integers(name, rank).map_or(0, |values| values.len());
            let spans = [0..1, 1..3, 2..usize::MAX, Range { start: 7, end: 6 }];
            let bytes = spans.map(|span| archive.span(name, span).map_or(0, |bytes| bytes.len()));
            assert!(bytes[3] == 0 && bytes.iter().all(|&read| read <= 16), "{bytes:?}");
            floats + integers
        })
        .sum()
}

fn tensor() -> impl Strategy<Value = Tensor> {
    let formats: Vec<_> =
        Format::ALL.into_iter().filter(|&format| dtype_of(format).is_some()).collect();
    let shape = prop::collection::vec(0_usize..4, 0..5);
    (prop::sample::select(formats), shape, any::<f64>()).prop_map(|(format, shape, value)| {
        Tensor::rounded(format, &ArrayD::from_elem(IxDyn(&shape), value))
    })
}

fn valid_file() -> impl Strategy<Value = Vec<u8>> {
    let names = prop::collection::btree_map("[a-z]{0,3}", tensor(), 0..5);
    let metadata = prop::collection::btree_map(".{0,4}", ".{0,4}", 0..3);
    (names, metadata).prop_map(|(tensors, metadata): (BTreeMap<String, Tensor>, _)| {
        let tensors: Vec<_> =
            tensors.iter().map(|(name, tensor)| (name.as_str(), tensor)).collect();
        let mut bytes = Vec::new();
        write_to(&mut bytes, &tensors, &metadata).expect("tensors that can be written");
        bytes
    })
}

/// A change to a file: bytes put in the place of others.
#[derive(Clone, Debug)]
struct Splice {
    at: Index,
    removed: usize,
    put: Vec<u8>,
}

fn splice() -> impl Strategy<Value = Splice> {
    let digits =
        prop::collection::vec(prop::sample::select(b"0123456789[]{},\":-eE.".to_vec()), 0..6);
    let anything = prop::collection::vec(any::<u8>(), 0..6);
    (any::<Index>(), 0_usize..6, prop_oneof![digits, anything])
        .prop_map(|(at, removed, put)| Splice { at, removed, put })
}

fn change(bytes: &mut Vec<u8>, splice: &Splice) {
    let start = splice.at.index(bytes.len() + 1);
    let end = (start + splice.removed).min(bytes.len());
    bytes.splice(start..end, splice.put.iter().copied());
}

/// Makes the length before the header that of the header, as far as it can be seen to end.
fn reframe(bytes: &mut [u8]) {
    if let Some(end) = bytes.iter().rposition(|&byte| byte == b'}')
        && end >= 8
    {
        let length = (end - 7) as u64;
        bytes[..8].copy_from_slice(&length.to_le_bytes());
    }
}

proptest! {
    #![proptest_config(settings("io_fuzz", "tests/proptest-regressions/io_fuzz.txt"))]

    #[test]
    fn any_bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..512)) {
        prop_assert!(read_all(&bytes) <= bytes.len());
    }

    #[test]
    fn any_header_is_read_or_refused(header in "\\PC{0,200}", data in 0_usize..64) {
        let mut bytes = (header.len() as u64).to_le_bytes().to_vec();
        bytes.extend(header.bytes());
        bytes.resize(bytes.len() + data, 0);
        prop_assert!(read_all(&bytes) <= bytes.len());
    }

    #[test]
    fn valid_files_are_read(bytes in valid_file()) {
        let archive = Archive::new("valid", Cursor::new(&bytes)).expect("a valid file");
        let expected: usize = archive
            .names()
            .iter()
            .map(|name| archive.describe(name).expect("a tensor").0.iter().product::<usize>())
            .sum();
        prop_assert_eq!(read_all(&bytes), expected);
    }

    #[test]
    fn changed_files_are_read_or_refused(
        mut bytes in valid_file(),
        splices in prop::collection::vec(splice(), 1..4),
        reframed in any::<bool>(),
    ) {
        for splice in &splices {
            change(&mut bytes, splice);
        }
        if reframed {
            reframe(&mut bytes);
        }
        prop_assert!(read_all(&bytes) <= bytes.len());
    }

    #[test]
    fn claims_beyond_the_file_are_refused(
        extents in prop::collection::vec(number(), 0..4),
        first in number(),
        end in number(),
        data in 0_usize..8,
    ) {
        let header = format!(
            r#"{{"a": {{"dtype": "U8", "shape": {extents:?}, "data_offsets": [{first}, {end}]}}}}"#
        );
        let mut bytes = (header.len() as u64).to_le_bytes().to_vec();
        bytes.extend(header.bytes());
        bytes.resize(bytes.len() + data, 0);
        let opened = Archive::new("claims", Cursor::new(&bytes)).is_ok();
        prop_assert_eq!(opened, first == 0 && end == data as u64 && product(&extents) == Some(end));
    }
}

/// Small, to be right now and then, or any.
fn number() -> impl Strategy<Value = u64> {
    prop_oneof![3 => Just(0), 6 => 0_u64..8, 1 => any::<u64>()]
}

fn product(extents: &[u64]) -> Option<u64> {
    extents.iter().try_fold(1_u64, |product, &extent| product.checked_mul(extent))
}
