//! Tiles and kernels that must agree to the last bit: every sum runs in the order of keys, or of
//! query heads and queries, however the work is cut.

use std::num::NonZeroUsize;

use flashproof_kernels::Kernel;
use flashproof_kernels::cpu::{Naive, Tiled};
use flashproof_spec::format::Format;
use flashproof_spec::problem::Problem;
use proptest::prelude::*;

use crate::support::problems::modified_problems;
use crate::support::{differentiate, gradient_bits, run, uniform, uniform_cotangents};

/// Sizes that cut the small problems into several blocks, and sizes past their lengths.
fn sizes() -> impl Strategy<Value = NonZeroUsize> {
    prop_oneof![1..=10_usize, 1..=257_usize, Just(usize::MAX)]
        .prop_map(|size| NonZeroUsize::new(size).expect("at least 1"))
}

/// Gradients by each kernel, from one forward pass.
fn agree(kernels: [&dyn Kernel; 2], problem: &Problem, seed: u64) -> Result<(), TestCaseError> {
    let inputs = uniform(problem, seed);
    let outputs = run(&Naive, problem, &inputs);
    let cotangents = uniform_cotangents(problem, seed.wrapping_add(1));
    let [one, other] = kernels.map(|kernel| {
        gradient_bits(&differentiate(kernel, problem, &inputs, &outputs, &cotangents))
    });
    prop_assert_eq!(one, other);
    Ok(())
}

/// Tiles change the order in which an entry of the bias is summed that is shared along the keys and
/// also along queries or heads, and no other.
fn reduced_in_one_order() -> impl Strategy<Value = Problem> {
    modified_problems().prop_filter("one order for every sum", |problem| {
        let shared = |shape: [usize; 4], axis: usize| shape[axis] < problem.score_shape()[axis];
        problem.bias.is_none_or(|bias| {
            !shared(bias.shape, 3) || !(shared(bias.shape, 1) || shared(bias.shape, 2))
        })
    })
}

proptest! {
    #[test]
    fn tiles_change_no_bit(
        problem in reduced_in_one_order(),
        seed: u64,
        block_queries in sizes(),
        block_keys in sizes(),
    ) {
        let ones = Tiled::new(NonZeroUsize::MIN, NonZeroUsize::MIN);
        agree([&ones, &Tiled::new(block_queries, block_keys)], &problem, seed)?;
    }

    /// In a format that is its own accumulator, storing `P` and `dX` rounds nothing, nor does the
    /// factor of dropout, a power of two, wherever it is applied.
    #[test]
    fn tiled_is_naive_where_storage_does_not_round(
        problem in reduced_in_one_order(),
        format in proptest::sample::select(&[Format::F64, Format::F32][..]),
        seed: u64,
        block_queries in sizes(),
        block_keys in sizes(),
    ) {
        let problem = Problem { format, ..problem };
        agree([&Naive, &Tiled::new(block_queries, block_keys)], &problem, seed)?;
    }
}
