//! Weights that are kept and multiplied, or left out, after the softmax.

use flashproof_spec::pattern::Pattern;
use flashproof_spec::problem::Problem;
use flashproof_spec::score::Dropout;
use proptest::prelude::*;

use crate::support::problems::modified_problems;
use crate::support::{
    FORMATS, inputs, kernels, kernels_and_splits, ln, lse, output, products, run, uniform,
};

fn pattern(shape: [usize; 4], digits: &str) -> Pattern {
    let bits = digits.chars().map(|digit| digit == '1').collect();
    Pattern::new(shape, bits).expect("a digit for each place")
}

/// Four equal scores; the LSE counts all of them.
#[test]
fn kept_weights_are_scaled_and_others_left_out() {
    for format in FORMATS {
        for kernel in kernels() {
            for (digits, expected) in
                [("1111", 2.0 * 3.75), ("1010", 2.0 * 1.25), ("0001", 4.0), ("0000", 0.0)]
            {
                let keep = pattern([1, 1, 1, 4], digits);
                let problem = Problem {
                    dropout: Some(Dropout { scale: 2.0, keep }),
                    ..products(format, 1, 4, 1)
                };
                let inputs = inputs(&problem, &[0.0], &[1.0; 4], &[1.0, 2.0, 4.0, 8.0]);
                let outputs = run(kernel.as_ref(), &problem, &inputs);
                let case = format!("{} {format} {digits}", kernel.name());
                assert_eq!(output(&outputs), [expected], "{case}");
                assert_eq!(lse(&outputs), [ln(kernel.as_ref(), format, 4.0)], "{case}");
            }
        }
    }
}

#[test]
fn keep_masks_are_shared_along_axes_of_extent_one() {
    let cases = [
        ([2, 2, 2, 1], "10010110", [1, 0, 0, 1, 0, 1, 1, 0]),
        ([1, 2, 2, 1], "1001", [1, 0, 0, 1, 1, 0, 0, 1]),
        ([2, 1, 2, 1], "1001", [1, 0, 1, 0, 0, 1, 0, 1]),
        ([2, 2, 1, 1], "1001", [1, 1, 0, 0, 0, 0, 1, 1]),
        ([1, 1, 1, 1], "1", [1; 8]),
    ];
    for kernel in kernels_and_splits() {
        for (shape, digits, kept) in cases {
            let problem = Problem {
                batch: 2,
                query_heads: 2,
                dropout: Some(Dropout { scale: 4.0, keep: pattern(shape, digits) }),
                ..products(FORMATS[1], 2, 1, 1)
            };
            let inputs = inputs(&problem, &[0.0; 8], &[0.0; 2], &[3.0; 2]);
            let expected = kept.map(|kept| 12.0 * f64::from(kept));
            let outputs = run(kernel.as_ref(), &problem, &inputs);
            assert_eq!(output(&outputs), expected, "{} {shape:?}", kernel.name());
            assert_eq!(lse(&outputs), [0.0; 8], "{} {shape:?}", kernel.name());
        }
    }
}

proptest! {
    /// Normalizer and LSE are of all weights.
    #[test]
    fn dropout_changes_no_bit_of_the_lse(problem in modified_problems(), seed: u64) {
        let inputs = uniform(&problem, seed);
        let without = Problem { dropout: None, ..problem.clone() };
        for kernel in kernels_and_splits() {
            let [with, without] =
                [&problem, &without].map(|problem| lse(&run(kernel.as_ref(), problem, &inputs)));
            prop_assert_eq!(with, without, "{}", kernel.name());
        }
    }

    /// Where every weight is kept and multiplied by 1, nothing is dropped.
    #[test]
    fn dropout_of_nothing_changes_no_bit(problem in modified_problems(), seed: u64) {
        let inputs = uniform(&problem, seed);
        let keep = Pattern::from_fn([1; 4], |_| true);
        let without = Problem { dropout: None, ..problem.clone() };
        let with = Problem { dropout: Some(Dropout { scale: 1.0, keep }), ..problem };
        for kernel in kernels_and_splits() {
            let [with, without] =
                [&with, &without].map(|problem| output(&run(kernel.as_ref(), problem, &inputs)));
            prop_assert_eq!(with, without, "{}", kernel.name());
        }
    }
}
