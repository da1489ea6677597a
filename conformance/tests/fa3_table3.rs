//! The example `fa3_table3`, whose numbers are pinned at a size that takes seconds.

#[path = "../examples/fa3_table3/arithmetic.rs"]
mod arithmetic;
#[path = "../examples/fa3_table3/methods.rs"]
mod methods;
#[path = "../examples/fa3_table3/quantize.rs"]
mod quantize;
#[path = "../examples/fa3_table3/table.rs"]
mod table;

use ndarray::Array2;
use quantize::{Rotation, Scaled, quantized};
use table::Size;

const SIZE: Size = Size { queries: 128, keys: 1024, head_dim: 128, seed: 1 };

/// Two digits of every error, and the order of the paper's table: flash in f16 below dense, flash in
/// FP8 below dense, and incoherent processing what makes most of that.
#[test]
fn the_table_has_the_paper_s_order_and_the_pinned_numbers() {
    let table = table::measure(SIZE).expect("a table");
    let of = |name: &str| {
        let line = table.lines.iter().find(|line| line.name.trim() == name).expect(name);
        line.from_drawn
    };
    assert!(of("fp16, flash") < of("fp16, dense"));
    assert!(of("fp8, flash") < of("fp8, dense, a scale a tensor"));
    assert!(of("fp8, flash") < of("without incoherent processing"));
    assert!(of("fp16, dense") < of("fp8, flash"));
    insta::assert_snapshot!(table.to_string());
}

/// An orthogonal matrix keeps products.
#[test]
fn a_rotation_keeps_scores() {
    let matrix = Array2::from_shape_fn((3, 16), |(row, column)| {
        f64::from((row * 7 + column * 5) as u32 % 11) - 5.0
    });
    let rotated = Rotation::new(16, 9).apply(&matrix.view());
    // Whole numbers and a norm of 1/4: nothing rounds.
    assert_eq!(rotated.dot(&rotated.t()), matrix.dot(&matrix.t()));
    assert_ne!(rotated, matrix);
}

/// The largest entry of a block becomes the largest number of the format, and so stays as it is.
#[test]
fn a_block_is_scaled_by_its_own_largest_entry() {
    let matrix =
        Array2::from_shape_vec((2, 2), vec![448.0, 3.0, 0.4375, 0.0001]).expect("two rows");
    let blocks = quantized(&matrix.view(), Scaled::Blocks(1));
    assert_eq!(blocks.row(0), matrix.row(0));
    assert_eq!(blocks[[1, 0]], 0.4375);
    let together = quantized(&matrix.view(), Scaled::Together);
    assert_eq!(together[[1, 1]], 0.0);
    assert!(blocks[[1, 1]] > 0.0);
}
