//! Tensors hold values of their format only, and inputs and outputs fit their problem.

use flashproof_spec::format::Format;
use flashproof_spec::problem::Problem;
use flashproof_spec::tensor::{Cotangents, Gradients, Inputs, Outputs, Tensor, TensorError};
use ndarray::{ArrayD, IxDyn};

fn filled(format: Format, shape: &[usize], value: f64) -> Tensor {
    Tensor::exact(format, ArrayD::from_elem(IxDyn(shape), value)).expect("representable")
}

fn problem() -> Problem {
    Problem { query_len: 2, key_len: 4, value_dim: 5, ..Problem::new(Format::F16, 2, 1, 3) }
}

fn inputs(problem: &Problem) -> Inputs {
    Inputs {
        query: filled(problem.format, &problem.query_shape(), 1.0),
        key: filled(problem.format, &problem.key_shape(), 2.0),
        value: filled(problem.format, &problem.value_shape(), 3.0),
        bias: None,
        sink: None,
        descale: None,
    }
}

#[test]
fn exact_tensors_refuse_the_first_value_that_is_none_of_the_formats() {
    let values = ArrayD::from_shape_vec(IxDyn(&[3]), vec![1.0, 0.1, 0.2]).expect("three values");
    let error = Tensor::exact(Format::Bf16, values.clone()).expect_err("0.1 is no bf16 number");
    let expected = TensorError::Value { value: 0.1, index: 1, format: Format::Bf16 };
    assert_eq!(error, expected);
    assert_eq!(error.to_string(), "value 0.1 at flat index 1 is not representable in bf16");
    assert!(Tensor::exact(Format::F64, values).is_ok());
}

#[test]
fn infinities_are_values_where_the_format_has_them() {
    let infinite = ArrayD::from_elem(IxDyn(&[1]), f64::INFINITY);
    for format in Format::ALL {
        let made = Tensor::exact(format, infinite.clone());
        assert_eq!(made.is_ok(), format.has_infinity(), "{format}");
        let nan = Tensor::exact(format, ArrayD::from_elem(IxDyn(&[1]), f64::NAN));
        assert!(nan.is_ok(), "{format}");
    }
}

#[test]
fn rounded_tensors_hold_the_rounded_values() {
    let values = vec![0.1, -1e6, 1.0, 1e-9];
    for format in Format::ALL {
        let tensor = Tensor::rounded_from(format, &[2, 2], values.clone()).expect("four values");
        assert_eq!((tensor.format(), tensor.shape()), (format, &[2, 2][..]));
        for (found, value) in tensor.values().iter().zip(&values) {
            let rounded = format.round(*value);
            assert!(*found == rounded || (found.is_nan() && rounded.is_nan()), "{format} {value}");
        }
    }
}

#[test]
fn lists_that_do_not_fill_the_shape_are_refused() {
    let error = Tensor::rounded_from(Format::F32, &[2, 3], vec![0.0; 5]).expect_err("one short");
    assert_eq!(error, TensorError::Count { count: 5, shape: vec![2, 3] });
    assert_eq!(error.to_string(), "5 values do not fill shape [2, 3]");
}

#[test]
fn shapes_whose_product_overflows_are_refused() {
    let shape = [usize::MAX, 2];
    let error = Tensor::rounded_from(Format::F32, &shape, vec![0.0]).expect_err("too large");
    assert_eq!(error, TensorError::Count { count: 1, shape: shape.to_vec() });
}

#[test]
fn inputs_that_fit_their_problem_are_accepted() {
    assert_eq!(inputs(&problem()).check(&problem()), Ok(()));
}

#[test]
fn inputs_name_the_tensor_that_does_not_fit() {
    let problem = problem();
    let short = filled(Format::F16, &[1, 2, 3, 3], 0.0);
    for (tensor, misfit) in [
        ("query", Inputs { query: short.clone(), ..inputs(&problem) }),
        ("key", Inputs { key: short.clone(), ..inputs(&problem) }),
        ("value", Inputs { value: short.clone(), ..inputs(&problem) }),
    ] {
        let error = misfit.check(&problem).expect_err(tensor);
        assert!(error.to_string().starts_with(&format!("{tensor} has shape [1, 2, 3, 3]:")));
    }
    let wide = filled(Format::F32, &problem.key_shape(), 0.0);
    let error = Inputs { key: wide, ..inputs(&problem) }.check(&problem).expect_err("f32 keys");
    assert_eq!(error.to_string(), "key has format f32: expected f16");
}

#[test]
fn outputs_are_checked_with_the_lse_they_have() {
    let problem = problem();
    let output = filled(Format::F16, &problem.output_shape(), 0.0);
    let lse = |format, shape: &[usize]| Some(filled(format, shape, 0.0));
    let check = |lse| Outputs { output: output.clone(), lse }.check(&problem, Format::F32);
    assert_eq!(check(None), Ok(()));
    assert_eq!(check(lse(Format::F32, &problem.lse_shape())), Ok(()));
    let error = check(lse(Format::F16, &problem.lse_shape())).expect_err("f16 LSE");
    assert_eq!(error.to_string(), "lse has format f16: expected f32");
    let error = check(lse(Format::F32, &[1, 2, 2, 1])).expect_err("four axes");
    assert_eq!(error.to_string(), "lse has shape [1, 2, 2, 1]: expected [1, 2, 2]");
}

#[test]
fn views_index_as_the_tensor_does() {
    let values = (0..24).map(f64::from).collect();
    let tensor = Tensor::rounded_from(Format::F32, &[1, 2, 3, 4], values).expect("24 values");
    assert_eq!(tensor.view4()[[0, 1, 2, 3]], 23.0);
    assert_eq!(tensor.view4()[[0, 0, 1, 0]], 4.0);
    let rows = Tensor::rounded_from(Format::F32, &[1, 2, 3], (0..6).map(f64::from).collect());
    assert_eq!(rows.expect("6 values").view3()[[0, 1, 0]], 3.0);
}

#[test]
fn cotangents_are_shaped_like_the_outputs() {
    let problem = problem();
    let output = filled(Format::F16, &problem.output_shape(), 0.0);
    let lse = |format| Some(filled(format, &problem.lse_shape(), 0.0));
    let check = |output: &Tensor, lse| {
        Cotangents { output: output.clone(), lse }.check(&problem, Format::F32)
    };
    assert_eq!(check(&output, None), Ok(()));
    assert_eq!(check(&output, lse(Format::F32)), Ok(()));
    let error = check(&output, lse(Format::F16)).expect_err("an f16 LSE");
    assert_eq!(error.to_string(), "lse_gradient has format f16: expected f32");
    let error = check(&inputs(&problem).query, None).expect_err("head_dim entries");
    assert!(error.to_string().starts_with("output_gradient has shape [1, 2, 2, 3]:"), "{error}");
}

#[test]
fn gradients_are_shaped_like_the_inputs() {
    let problem = problem();
    let Inputs { query, key, value, .. } = inputs(&problem);
    let fitting = Gradients { query, key, value, bias: None, sink: None };
    assert_eq!(fitting.check(&problem), Ok(()));
    let short = filled(Format::F16, &[1, 2, 3, 3], 0.0);
    for (tensor, misfit) in [
        ("query_gradient", Gradients { query: short.clone(), ..fitting.clone() }),
        ("key_gradient", Gradients { key: short.clone(), ..fitting.clone() }),
        ("value_gradient", Gradients { value: short.clone(), ..fitting.clone() }),
    ] {
        let error = misfit.check(&problem).expect_err(tensor);
        assert!(error.to_string().starts_with(&format!("{tensor} has shape")), "{error}");
    }
}
