//! Infinities and NaN in data that takes part in a gradient, and what a backward pass refuses.

use flashproof_spec::format::Format;
use flashproof_spec::problem::{Problem, Scale};
use flashproof_spec::tensor::{Cotangents, Gradients, Outputs};

use crate::support::{
    FORMATS, cotangents, differentiate, inputs, kernels, outputs, products, run, uniform,
    uniform_cotangents, values,
};

/// Two queries see two keys; the gradient of the first query's output or LSE is NaN.
#[test]
fn a_nan_upstream_gradient_is_not_lost() {
    for format in FORMATS {
        for kernel in kernels() {
            let problem = products(format, 2, 2, 1);
            let inputs = inputs(&problem, &[0.5, 1.0], &[1.0, 2.0], &[3.0, 4.0]);
            let outputs = run(kernel.as_ref(), &problem, &inputs);
            let case = format!("{} {format}", kernel.name());
            for (output, lse, value_is_nan) in [(f64::NAN, 0.0, true), (1.0, f64::NAN, false)] {
                let cotangents = cotangents(&problem, &[output, 1.0], Some(&[lse, 0.0]));
                let Gradients { query, key, value, .. } =
                    differentiate(kernel.as_ref(), &problem, &inputs, &outputs, &cotangents);
                let query = values(&query);
                assert!(query[0].is_nan() && query[1].is_finite(), "{case}: {query:?}");
                assert!(values(&key).iter().all(|entry| entry.is_nan()), "{case}");
                assert!(values(&value).iter().all(|v| v.is_nan() == value_is_nan), "{case}");
            }
        }
    }
}

/// As the forward pass leaves it where a visible score is NaN.
#[test]
fn a_nan_lse_poisons_its_row() {
    for format in FORMATS {
        for kernel in kernels() {
            let problem = products(format, 2, 2, 1);
            let inputs = inputs(&problem, &[0.5, 1.0], &[1.0, 2.0], &[3.0, 4.0]);
            let outputs = outputs(&problem, &[f64::NAN, 3.5], &[f64::NAN, 2.0]);
            let cotangents = cotangents(&problem, &[1.0, 1.0], None);
            let Gradients { query, key, value, .. } =
                differentiate(kernel.as_ref(), &problem, &inputs, &outputs, &cotangents);
            let query = values(&query);
            let case = format!("{} {format}", kernel.name());
            assert!(query[0].is_nan() && query[1].is_finite(), "{case}: {query:?}");
            for gradient in [key, value] {
                assert!(values(&gradient).iter().all(|entry| entry.is_nan()), "{case}");
            }
        }
    }
}

/// Weights are recomputed from the LSE: without it there is nothing to recompute them from.
#[test]
fn outputs_without_lse_are_refused() {
    for format in FORMATS {
        for kernel in kernels() {
            let problem = Problem::new(format, 1, 2, 2);
            let inputs = uniform(&problem, 0);
            let outputs = Outputs { lse: None, ..run(kernel.as_ref(), &problem, &inputs) };
            let refusal = kernel
                .backward(&problem, &inputs, &outputs, &uniform_cotangents(&problem, 1))
                .expect_err("a refusal");
            assert_eq!(refusal.feature, "a backward pass without the forward pass's LSE");
            assert_eq!(refusal.kernel, kernel.name());
        }
    }
}

/// What the forward pass refuses, by the same names.
#[test]
fn what_the_forward_pass_refuses_is_refused() {
    let formats = [Format::Tf32, Format::E4m3, Format::E5m2]
        .map(|format| (Problem::new(format, 1, 2, 2), format!("number format {format}")));
    let scale = Problem { scale: Scale::Value(1e-60), ..products(Format::Bf16, 1, 1, 1) };
    let scales = [(scale, "a softmax scale of 1e-60 in f32 arithmetic".to_owned())];
    for (problem, feature) in formats.into_iter().chain(scales) {
        let rows = problem.query_heads * problem.query_len;
        let output = vec![0.0; rows * problem.value_dim];
        let outputs = outputs(&problem, &output, &vec![0.0; rows]);
        let cotangents: Cotangents = cotangents(&problem, &output, None);
        for kernel in kernels() {
            let refusal = kernel
                .backward(&problem, &uniform(&problem, 0), &outputs, &cotangents)
                .expect_err("a refusal");
            assert_eq!((refusal.kernel.as_str(), &refusal.feature), (kernel.name(), &feature));
        }
    }
}
