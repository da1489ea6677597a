//! Kernels by name.

use std::collections::BTreeSet;

use flashproof_kernels::{MOST_SPLITS, UnknownKernel, builtin, builtins};
use flashproof_spec::tensor_core::TensorCore;
use proptest::prelude::*;

fn refusal(name: &str) -> UnknownKernel {
    builtin(name).err().unwrap_or_else(|| panic!("'{name}' is a kernel"))
}

#[test]
fn every_kernel_answers_to_its_name_alone() {
    let names: BTreeSet<String> = builtins().iter().map(|k| k.name().to_owned()).collect();
    assert_eq!(names.len(), builtins().len());
    for name in names {
        assert_eq!(builtin(&name).expect("a kernel").name(), name);
    }
}

#[test]
fn unknown_names_are_refused_with_the_known_ones() {
    for name in [
        "",
        "Naive",
        "naive ",
        "tile",
        "tiled32x48",
        "tiled:",
        "split4",
        "split:",
        "matrix",
        "matrix:",
    ] {
        let message = refusal(name).to_string();
        assert!(message.contains(&format!("'{name}'")), "{message}");
    }
    assert_eq!(
        refusal("flash9").to_string(),
        "no kernel is called 'flash9': expected naive, tiled, tiled:QUERIESxKEYS, split, split:SPLITS, matrix:GENERATION, quantized or mutant:NAME"
    );
}

#[test]
fn tiles_of_no_shape_are_refused() {
    for tile in ["", "32", "32*48", "32X48"] {
        let (name, tile) = (format!("tiled:{tile}"), tile.to_owned());
        assert_eq!(refusal(&name), UnknownKernel::Tile { name, tile });
    }
}

#[test]
fn sizes_that_are_no_block_sizes_are_refused() {
    let too_large = format!("{}0", usize::MAX);
    let cases = [
        ("0x5", "0"),
        ("5x0", "0"),
        ("x5", ""),
        ("5x", ""),
        ("+5x5", "+5"),
        ("-5x5", "-5"),
        ("05x5", "05"),
        ("5x 5", " 5"),
        ("5x5x5", "5x5"),
        ("1.5x5", "1.5"),
        ("\u{0665}x5", "\u{0665}"),
        (&format!("{too_large}x1"), &too_large),
    ];
    for (tile, size) in cases {
        let (name, size) = (format!("tiled:{tile}"), size.to_owned());
        assert_eq!(refusal(&name), UnknownKernel::BlockSize { name, size });
    }
}

#[test]
fn numbers_that_are_no_splits_are_refused() {
    for splits in ["", "0", "+4", "04", "-4", " 4", "4x4", "1.5", "65537", "99999999999999999999"] {
        let (name, splits) = (format!("split:{splits}"), splits.to_owned());
        let message = refusal(&name).to_string();
        assert!(message.ends_with("expected a whole number from 1 to 65536"), "{message}");
        assert_eq!(refusal(&name), UnknownKernel::Splits { name, splits });
    }
}

#[test]
fn every_generation_of_tensor_cores_is_a_kernel_of_that_name() {
    for core in TensorCore::ALL {
        let name = format!("matrix:{}", core.name());
        assert_eq!(builtin(&name).expect("a kernel").name(), name);
    }
    for generation in ["", "Hopper", "kepler", "hopper "] {
        let (name, generation) = (format!("matrix:{generation}"), generation.to_owned());
        assert_eq!(refusal(&name), UnknownKernel::Generation { name, generation });
    }
}

proptest! {
    #[test]
    fn every_number_of_splits_is_a_kernel_of_that_name(splits in 1..=MOST_SPLITS) {
        let name = format!("split:{splits}");
        let kernel = builtin(&name).expect("a kernel");
        prop_assert_eq!(kernel.name(), name);
    }

    #[test]
    fn every_tile_of_positive_sizes_is_a_kernel_of_that_name(queries in 1_usize.., keys in 1_usize..) {
        let name = format!("tiled:{queries}x{keys}");
        let kernel = builtin(&name).expect("a kernel");
        prop_assert_eq!(kernel.name(), name);
    }

    #[test]
    fn any_text_is_a_kernel_of_that_name_or_an_error_that_quotes_it(
        name in prop_oneof![any::<String>(), "tiled:[0-9x+ -]{0,40}", "(naive|tiled|split|matrix)[:x0-9]{0,8}"],
    ) {
        match builtin(&name) {
            Ok(kernel) => prop_assert_eq!(kernel.name(), name),
            Err(error) => {
                let quoted = format!("'{name}'");
                prop_assert!(error.to_string().contains(&quoted), "{}", error);
            }
        }
    }
}
