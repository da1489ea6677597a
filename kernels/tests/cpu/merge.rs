//! Finished parts of a row become the row.

use flashproof_kernels::cpu::merge::{Row, merge_partials};
use proptest::prelude::*;

const INF: f64 = f64::INFINITY;

fn part(output: &[f64], lse: f64) -> Row<f64> {
    Row { output: output.to_vec(), lse }
}

/// Parts of equal weight: the mean, and one `ln 2` a doubling.
#[test]
fn equal_parts_give_the_mean() {
    let parts = [part(&[1.0, -8.0], 5.0), part(&[3.0, 0.0], 5.0)];
    assert_eq!(merge_partials(2, &parts), part(&[2.0, -4.0], 5.0 + 2_f64.ln()));
    let parts = [1.0, 2.0, 3.0, 6.0].map(|output| part(&[output], -700.0));
    assert_eq!(merge_partials(1, &parts), part(&[3.0], -700.0 + 4_f64.ln()));
}

/// A weight of `e^-1024` is none, whichever part has it.
#[test]
fn the_largest_lse_takes_all() {
    let [low, high] = [part(&[1.0], -2048.0), part(&[7.0], -1024.0)];
    for parts in [[low.clone(), high.clone()], [high.clone(), low]] {
        assert_eq!(merge_partials(1, &parts), high);
    }
}

/// flashinfer#4051 and vllm#28181: two empty parts merged to NaN.
#[test]
fn parts_without_keys_alone_are_a_row_without_keys() {
    let empty = Row::without_keys(2);
    assert_eq!(empty, part(&[0.0, 0.0], -INF));
    for count in 0..3 {
        assert_eq!(merge_partials(2, &vec![empty.clone(); count]), empty);
    }
}

#[test]
fn a_sink_has_weight_and_no_value() {
    let sink = Row::of_sink(1, 0.0);
    assert_eq!(merge_partials(1, &[part(&[3.0], 0.0), sink.clone()]), part(&[1.5], 2_f64.ln()));
    assert_eq!(merge_partials(1, &[Row::without_keys(1), sink.clone()]), sink);
    let none = Row::of_sink(1, -INF);
    assert_eq!(merge_partials(1, &[part(&[3.0], 4.0), none.clone()]), part(&[3.0], 4.0));
    assert_eq!(merge_partials(1, &[none]), Row::without_keys(1));
}

#[test]
fn a_part_that_is_not_finite_is_not_lost() {
    for lse in [f64::NAN, INF] {
        let merged = merge_partials(1, &[part(&[1.0], 0.0), part(&[2.0], lse)]);
        assert!(merged.output[0].is_nan() && !merged.lse.is_finite(), "{merged:?}");
    }
    let merged = merge_partials(1, &[part(&[1.0], 0.0), part(&[f64::NAN], -2048.0)]);
    assert!(merged.output[0].is_nan() && merged.lse == 0.0, "{merged:?}");
}

#[test]
#[should_panic(expected = "entries of a part")]
fn parts_of_unequal_values_are_refused() {
    let _ = merge_partials(1, &[part(&[1.0], 0.0), part(&[1.0, 2.0], 0.0)]);
}

fn parts() -> impl Strategy<Value = Vec<Row<f64>>> {
    let lse = prop_oneof![4 => -20.0..20.0, 1 => Just(-INF)];
    let row = (proptest::array::uniform3(-8.0..8.0), lse);
    proptest::collection::vec(row.prop_map(|(output, lse)| part(&output, lse)), 1..6)
}

proptest! {
    /// Whatever the output of a part without keys holds, it changes no bit.
    #[test]
    fn parts_without_keys_change_nothing(parts in parts(), at in 0..6_usize) {
        let at = at.min(parts.len());
        let mut more = parts.clone();
        more.insert(at, part(&[f64::NAN; 3], -INF));
        prop_assert_eq!(merge_partials(3, &parts), merge_partials(3, &more));
    }

    #[test]
    fn a_part_alone_is_the_row(parts in parts()) {
        for part in parts.into_iter().filter(|part| part.lse != -INF) {
            prop_assert_eq!(merge_partials(3, std::slice::from_ref(&part)), part);
        }
    }

    /// A sum of two has one order.
    #[test]
    fn two_parts_may_change_places(parts in parts()) {
        for pair in parts.windows(2) {
            let turned = [pair[1].clone(), pair[0].clone()];
            prop_assert_eq!(merge_partials(3, pair), merge_partials(3, &turned));
        }
    }

    /// Only differences of LSEs weigh: of whole numbers these are exact.
    #[test]
    fn a_shift_of_all_lses_moves_no_output(
        lses in proptest::collection::vec(-20_i32..20, 1..6),
        shift in -1000_i32..1000,
    ) {
        let at = |shift: i32| {
            let part = |(k, &lse): (usize, &i32)| part(&[k as f64], f64::from(lse + shift));
            merge_partials(1, &lses.iter().enumerate().map(part).collect::<Vec<_>>())
        };
        prop_assert_eq!(at(0).output, at(shift).output);
    }
}
