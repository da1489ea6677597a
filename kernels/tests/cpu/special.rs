//! Infinities and NaN in data that a query sees.

use flashproof_spec::format::Format;

use crate::support::{inputs, kernels_and_splits, lse, output, products, run};

const INF: f64 = f64::INFINITY;

/// A query of 1, so that scores are the keys.
fn answers(key: &[f64], value: &[f64], check: impl Fn(f64, f64, &str)) {
    for format in [Format::F64, Format::F32, Format::F16, Format::Bf16] {
        for kernel in kernels_and_splits() {
            let problem = products(format, 1, key.len(), 1);
            let outputs = run(kernel.as_ref(), &problem, &inputs(&problem, &[1.0], key, value));
            check(output(&outputs)[0], lse(&outputs)[0], &format!("{} {format}", kernel.name()));
        }
    }
}

/// Whole blocks of `-inf` before, between and after finite scores, in any tiling.
#[test]
fn a_score_of_minus_infinity_has_no_weight() {
    let key = [-INF, -INF, -INF, 3.0, -INF, 3.0, -INF];
    answers(&key, &[50.0, 50.0, 50.0, 2.0, 50.0, 4.0, 50.0], |output, lse, case| {
        assert_eq!(output, 3.0, "{case}");
        assert!(lse > 3.0, "{case}: {lse}");
    });
}

/// A stand-in of zero for a maximum of `-inf` must not outlive it: `e^-2000` is zero.
#[test]
fn a_low_score_after_minus_infinity_becomes_the_maximum() {
    answers(&[-INF, -2000.0], &[50.0, 4.0], |output, lse, case| {
        assert_eq!((output, lse), (4.0, -2000.0), "{case}");
    });
}

#[test]
fn scores_all_minus_infinity_are_never_a_finite_lse() {
    answers(&[-INF, -INF], &[1.0, 2.0], |output, lse, case| {
        assert!(output.is_nan() || output == 0.0, "{case}: {output}");
        assert!(lse.is_nan() || lse == -INF, "{case}: {lse}");
    });
}

#[test]
fn a_nan_score_poisons_the_row() {
    for key in [[f64::NAN, 1.0, 2.0], [1.0, f64::NAN, 2.0], [1.0, 2.0, f64::NAN], [f64::NAN; 3]] {
        answers(&key, &[1.0, 2.0, 3.0], |output, lse, case| {
            assert!(output.is_nan() && lse.is_nan(), "{case} {key:?}: {output} {lse}");
        });
    }
}

#[test]
fn a_score_of_plus_infinity_poisons_the_row() {
    for key in [[INF, 1.0, 2.0], [1.0, INF, 2.0], [1.0, 2.0, INF], [INF; 3], [-INF, INF, 0.0]] {
        answers(&key, &[1.0, 2.0, 3.0], |output, lse, case| {
            assert!(output.is_nan(), "{case} {key:?}: {output}");
            assert!(lse.is_nan() || lse == INF, "{case} {key:?}: {lse}");
        });
    }
}

#[test]
fn a_visible_nan_value_is_not_lost_however_small_its_weight() {
    for key in [[0.0, 1000.0, 2000.0], [2000.0, 1000.0, 0.0], [-INF, 0.0, 1.0]] {
        answers(&key, &[f64::NAN, 2.0, f64::NAN], |output, lse, case| {
            assert!(output.is_nan(), "{case} {key:?}: {output}");
            assert!(lse.is_finite(), "{case} {key:?}: {lse}");
        });
    }
}
