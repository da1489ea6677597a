//! Rows of whole problems: heads, masks, order, invariances, and questions that have no answer.

mod support;

use std::sync::atomic::{AtomicUsize, Ordering};

use flashproof_oracle::error::OracleError;
use flashproof_oracle::forward::{Options, Oracle};
use flashproof_oracle::row::{Row, RowIndex};
use flashproof_spec::format::Format;
use flashproof_spec::mask::{Mask, Rule};
use flashproof_spec::problem::{Problem, ProblemError};
use flashproof_spec::tensor::{Inputs, Tensor, TensorError};
use ndarray::Axis;
use proptest::prelude::*;
use support::inputs::{Case, ONLY_ROW, all_rows, case, normal_inputs};
use support::settings;

const SEED: u64 = 26;

fn options() -> Options {
    Options::new(Format::F32)
}

fn answers(problem: &Problem, inputs: &Inputs) -> Vec<Row> {
    Oracle::new(problem, inputs, options())
        .expect("a problem and its inputs")
        .rows(&all_rows(problem), || ())
        .expect("rows of the problem")
}

/// Grouped heads, two batch members of different lengths, causal.
fn grouped_problem() -> Problem {
    Problem {
        batch: 2,
        query_heads: 6,
        key_heads: 2,
        query_len: 5,
        key_len: 7,
        head_dim: 8,
        value_dim: 3,
        mask: Mask { rules: vec![Rule::KeyLengths(vec![7, 4]), Rule::CausalBottomRight] },
        ..Problem::new(Format::Bf16, 6, 5, 8)
    }
}

/// The tensor with its entries along an axis taken in this order.
fn select(tensor: &Tensor, axis: usize, order: &[usize]) -> Tensor {
    Tensor::exact(tensor.format(), tensor.values().select(Axis(axis), order))
        .expect("its own entries")
}

#[test]
fn each_row_reads_its_own_batch_member_head_and_keys() {
    let problem = grouped_problem();
    let inputs = normal_inputs(&problem, SEED);
    let rows = answers(&problem, &inputs);
    assert_eq!(rows.len(), 60);
    for row in rows {
        let RowIndex { batch, head, query } = row.index;
        let used = [7, 4][batch];
        let visible: Vec<usize> = (0..used).filter(|key| key + 5 <= query + used).collect();
        assert_eq!(row.visible, visible);
        // The same row, cut out as a problem of its own: key head 0 serves heads 0, 1 and 2.
        let cut = |tensor: &Tensor, head: usize, positions: &[usize]| {
            select(&select(&select(tensor, 0, &[batch]), 1, &[head]), 2, positions)
        };
        let single = Problem {
            batch: 1,
            query_heads: 1,
            key_heads: 1,
            query_len: 1,
            key_len: visible.len(),
            mask: Mask::full(),
            ..problem.clone()
        };
        let inputs = Inputs::new(
            cut(&inputs.query, head, &[query]),
            cut(&inputs.key, head / 3, &visible),
            cut(&inputs.value, head / 3, &visible),
        );
        let alone = Oracle::new(&single, &inputs, options()).unwrap().row(ONLY_ROW).unwrap();
        assert_eq!(
            (row.outputs, row.lse, row.condition),
            (alone.outputs, alone.lse, alone.condition)
        );
    }
}

#[test]
fn rows_come_in_the_order_asked_for_and_are_counted() {
    let problem = grouped_problem();
    let inputs = normal_inputs(&problem, SEED);
    let oracle = Oracle::new(&problem, &inputs, options()).unwrap();
    let mut wanted = all_rows(&problem);
    wanted.reverse();
    wanted.truncate(7);
    let count = AtomicUsize::new(0);
    let rows = oracle.rows(&wanted, || _ = count.fetch_add(1, Ordering::Relaxed)).unwrap();
    assert_eq!(count.into_inner(), wanted.len());
    for (row, index) in rows.iter().zip(&wanted) {
        assert_eq!(row, &oracle.row(*index).unwrap());
        assert_eq!(row.index, *index);
    }
}

proptest! {
    #![proptest_config(settings("rows", "tests/proptest-regressions/rows.txt"))]

    #[test]
    fn the_order_of_keys_does_not_matter(case in case(), turn in 0_usize..8) {
        let Case { mut problem, inputs } = case;
        problem.mask = Mask::full();
        let mut order: Vec<usize> = (0..problem.key_len).collect();
        order.rotate_left(turn % problem.key_len);
        order.reverse();
        let permuted = Inputs::new(
            inputs.query.clone(),
            select(&inputs.key, 2, &order),
            select(&inputs.value, 2, &order),
        );
        let (row, other) = (answers(&problem, &inputs), answers(&problem, &permuted));
        prop_assert_eq!(&row[0].outputs, &other[0].outputs);
        prop_assert_eq!(&row[0].lse, &other[0].lse);
    }

    #[test]
    fn a_layout_in_memory_does_not_matter(case in case()) {
        let Case { problem, inputs } = case;
        let reversed = |tensor: &Tensor| {
            let axes = tensor.values().view().reversed_axes();
            let values = axes.as_standard_layout().into_owned().reversed_axes();
            Tensor::exact(tensor.format(), values).expect("its own entries")
        };
        let other =
            Inputs::new(reversed(&inputs.query), reversed(&inputs.key), reversed(&inputs.value));
        prop_assert_eq!(answers(&problem, &inputs), answers(&problem, &other));
    }
}

#[test]
fn a_row_that_is_not_there_is_named() {
    let problem = grouped_problem();
    let inputs = normal_inputs(&problem, SEED);
    let oracle = Oracle::new(&problem, &inputs, options()).unwrap();
    for (index, field, extent) in [
        (RowIndex { batch: 2, head: 0, query: 0 }, "batch", 2),
        (RowIndex { batch: 0, head: 6, query: 0 }, "head", 6),
        (RowIndex { batch: 0, head: 0, query: usize::MAX }, "query", 5),
    ] {
        let error = oracle.rows(&[ONLY_ROW, index], || ()).unwrap_err();
        let OracleError::Row { field: named, extent: had, .. } = &error else { panic!("{error}") };
        assert_eq!((*named, *had), (field, extent));
        assert_eq!(oracle.enclose_row(index, 64).unwrap_err(), error);
    }
}

#[test]
fn a_precision_out_of_range_is_refused() {
    let problem = grouped_problem();
    let inputs = normal_inputs(&problem, SEED);
    let oracle = Oracle::new(&problem, &inputs, options()).unwrap();
    let max_precision = options().max_precision;
    for precision in [0, 1, max_precision + 1, u32::MAX] {
        let error = oracle.enclose_row(ONLY_ROW, precision).unwrap_err();
        assert_eq!(error, OracleError::Precision { precision, max_precision });
    }
}

#[test]
fn problems_and_inputs_are_checked() {
    let problem = grouped_problem();
    let inputs = normal_inputs(&problem, SEED);
    let odd = Problem { query_heads: 5, ..problem.clone() };
    assert_eq!(
        Oracle::new(&odd, &inputs, options()).unwrap_err(),
        OracleError::Problem(ProblemError::Heads { query_heads: 5, key_heads: 2 })
    );
    let longer = Problem { key_len: 8, ..problem };
    assert!(matches!(
        Oracle::new(&longer, &inputs, options()).unwrap_err(),
        OracleError::Inputs(TensorError::Shape { tensor, .. }) if tensor == "key"
    ));
}
