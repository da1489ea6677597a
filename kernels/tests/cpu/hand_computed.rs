//! Cases whose exact answer is plain, in every format and tiling.
//!
//! Weights are exactly 0 or 1 here: scores are equal, or so far apart that `e^(s - m)` underflows
//! in `f64` (whose smallest number is about `e^-745`) and so in every format.

use flashproof_kernels::Kernel;
use flashproof_spec::format::Format;
use flashproof_spec::problem::{Problem, Scale};

use crate::support::{FORMATS, inputs, kernels, ln, lse, output, products, run};

/// A difference of scores at which the lower one weighs nothing.
const APART: f64 = 1024.0;

fn in_every_format(test: impl Fn(&dyn Kernel, Format)) {
    for format in FORMATS {
        for kernel in kernels() {
            test(kernel.as_ref(), format);
        }
    }
}

#[test]
fn equal_scores_give_the_mean() {
    in_every_format(|kernel, format| {
        let problem = products(format, 1, 4, 2);
        let value = [1.0, -8.0, 2.0, 4.0, 3.0, 0.0, 10.0, 0.0];
        let inputs = inputs(&problem, &[0.0], &[1.0, 2.0, 3.0, 4.0], &value);
        let outputs = run(kernel, &problem, &inputs);
        assert_eq!(output(&outputs), [4.0, -1.0], "{} {format}", kernel.name());
        assert_eq!(lse(&outputs), [ln(kernel, format, 4.0)], "{} {format}", kernel.name());
    });
}

#[test]
fn a_single_key_gives_its_value_and_its_score() {
    in_every_format(|kernel, format| {
        let problem = Problem { key_len: 1, ..Problem::new(format, 1, 2, 4) };
        let query = [1.0, 2.0, 3.0, 4.0, -1.0, 0.0, 0.0, 0.0];
        let value = [0.125, -3.0, 7.0, 0.0];
        let inputs = inputs(&problem, &query, &[5.0, 6.0, 7.0, 8.0], &value);
        let outputs = run(kernel, &problem, &inputs);
        assert_eq!(output(&outputs), value.repeat(2), "{} {format}", kernel.name());
        // 1/sqrt(4) times 5 + 12 + 21 + 32 and times -5.
        assert_eq!(lse(&outputs), [35.0, -2.5], "{} {format}", kernel.name());
    });
}

/// The largest score takes all, wherever it stands among the blocks: maxima that rise with every
/// key rescale with every block, falling ones never do.
#[test]
fn the_largest_score_takes_all() {
    const RISING: [f64; 7] = [-3.0, -2.0, -1.0, 0.0, 1.0, 2.0, 3.0];
    const FALLING: [f64; 7] = [3.0, 2.0, 1.0, 0.0, -1.0, -2.0, -3.0];
    const MIXED: [f64; 7] = [-1.0, -3.0, 2.0, 0.0, 3.0, -2.0, 1.0];
    const ALL_NEGATIVE: [f64; 7] = [-9.0, -3.0, -8.0, -7.0, -6.0, -5.0, -4.0];
    in_every_format(|kernel, format| {
        for (key, largest) in [(RISING, 6), (FALLING, 0), (MIXED, 4), (ALL_NEGATIVE, 1)] {
            let problem = products(format, 1, 7, 1);
            let value = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0];
            let outputs = run(kernel, &problem, &inputs(&problem, &[APART], &key, &value));
            let case = format!("{} {format} {key:?}", kernel.name());
            assert_eq!(output(&outputs), [value[largest]], "{case}");
            assert_eq!(lse(&outputs), [APART * key[largest]], "{case}");
        }
    });
}

#[test]
fn keys_that_tie_for_the_largest_score_share() {
    in_every_format(|kernel, format| {
        let key = [0.0, 2.0, 1.0, 2.0, 0.0, 2.0];
        let value = [100.0, 1.0, 100.0, 2.0, 100.0, 9.0];
        let two = products(format, 1, 4, 1);
        let outputs = run(kernel, &two, &inputs(&two, &[APART], &key[..4], &value[..4]));
        assert_eq!(output(&outputs), [1.5], "{} {format}", kernel.name());
        let sum = 2.0 * APART + ln(kernel, format, 2.0);
        let expected = kernel.profile(format).lse_format.round(sum);
        assert_eq!(lse(&outputs), [expected], "{} {format}", kernel.name());
        // Three keys share by thirds, which only the division at the end keeps exact.
        if kernel.name() != "naive" {
            let three = products(format, 1, 6, 1);
            let outputs = run(kernel, &three, &inputs(&three, &[APART], &key, &value));
            assert_eq!(output(&outputs), [4.0], "{} {format}", kernel.name());
        }
    });
}

#[test]
fn consecutive_query_heads_share_a_key_head() {
    in_every_format(|kernel, format| {
        let problem =
            Problem { query_heads: 6, key_heads: 2, batch: 2, ..products(format, 1, 2, 1) };
        // Each key head prefers another key, so both the key and the value head must be right.
        let key = [1.0, 0.0, 0.0, 1.0, 0.0, 1.0, 1.0, 0.0];
        let value = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0];
        let outputs = run(kernel, &problem, &inputs(&problem, &[APART; 12], &key, &value));
        let expected = [1.0, 1.0, 1.0, 4.0, 4.0, 4.0, 6.0, 6.0, 6.0, 7.0, 7.0, 7.0];
        assert_eq!(output(&outputs), expected, "{} {format}", kernel.name());
    });
}

/// Every query prefers another key, across heads and batch members.
#[test]
fn each_query_gets_its_own_row() {
    in_every_format(|kernel, format| {
        let problem =
            Problem { query_heads: 2, key_heads: 2, batch: 2, ..products(format, 3, 2, 2) };
        let query = [1.0, -1.0, -1.0, -1.0, 1.0, -1.0, 1.0, 1.0, -1.0, -1.0, -1.0, 1.0]
            .map(|sign| sign * APART);
        let key = [1.0, 0.0].repeat(4);
        let value: Vec<f64> = (0..16).map(f64::from).collect();
        let outputs = run(kernel, &problem, &inputs(&problem, &query, &key, &value));
        let expected = [
            [0.0, 1.0, 2.0, 3.0, 2.0, 3.0],
            [6.0, 7.0, 4.0, 5.0, 6.0, 7.0],
            [8.0, 9.0, 8.0, 9.0, 10.0, 11.0],
            [14.0, 15.0, 14.0, 15.0, 12.0, 13.0],
        ];
        assert_eq!(output(&outputs), expected.concat(), "{} {format}", kernel.name());
    });
}

/// A sum of 64 squares of 48, and one of 64 squares of 133120, which no narrow format holds.
#[test]
fn large_scores_of_small_formats_are_kept_in_the_accumulator() {
    for (format, entry) in
        [(Format::F16, 48.0), (Format::Bf16, 133_120.0), (Format::F32, 133_120.0)]
    {
        for kernel in kernels() {
            let problem = Problem { scale: Scale::Value(1.0), ..Problem::new(format, 1, 1, 64) };
            let rows = [entry; 64];
            let outputs = run(kernel.as_ref(), &problem, &inputs(&problem, &rows, &rows, &rows));
            assert_eq!(output(&outputs), rows, "{} {format}", kernel.name());
            assert_eq!(lse(&outputs), [64.0 * entry * entry], "{} {format}", kernel.name());
        }
    }
}

#[test]
fn a_scale_of_zero_makes_all_scores_equal() {
    in_every_format(|kernel, format| {
        let problem = Problem { scale: Scale::Value(0.0), ..products(format, 1, 2, 1) };
        let outputs = run(kernel, &problem, &inputs(&problem, &[APART], &[1.0, 9.0], &[2.0, 4.0]));
        assert_eq!(output(&outputs), [3.0], "{} {format}", kernel.name());
    });
}
