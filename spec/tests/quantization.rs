//! Inputs of 8 bits: what they stand for, which are refused, and what a scale of weights is worth.

use flashproof_spec::bound::{self, Bound, RowCondition};
use flashproof_spec::format::Format;
use flashproof_spec::problem::Problem;
use flashproof_spec::profile::Profile;
use flashproof_spec::quantization::{Descale, Descales, Quantization};
use flashproof_spec::tensor::{Inputs, Tensor};
use ndarray::Array2;

fn problem() -> Problem {
    let quantization = Quantization {
        query: Descale::Block(2),
        key: Descale::Head,
        value: Descale::Block(3),
        output: Format::Bf16,
    };
    let quantization = Some(quantization);
    Problem { query_len: 5, quantization, ..Problem::new(Format::E4m3, 2, 4, 1) }
}

fn tensor(format: Format, shape: &[usize], value: impl Fn(usize) -> f64) -> Tensor {
    let count = shape.iter().product();
    Tensor::rounded_from(format, shape, (0..count).map(value).collect()).expect("a full tensor")
}

/// Entries of 1, so that what they stand for is the descale.
fn inputs(problem: &Problem) -> Inputs {
    let [query, key, value] = problem
        .descale_shapes()
        .expect("descales")
        .map(|shape| tensor(Format::F32, &shape, |i| 0.3 + i as f64));
    let ones = |shape: [usize; 4]| tensor(problem.format, &shape, |_| 1.0);
    Inputs {
        descale: Some(Descales { query, key, value }),
        ..Inputs::new(
            ones(problem.query_shape()),
            ones(problem.key_shape()),
            ones(problem.value_shape()),
        )
    }
}

#[test]
fn an_entry_stands_for_itself_times_the_descale_of_its_block() {
    let problem = problem();
    assert_eq!(problem.validate(), Ok(()));
    assert_eq!(problem.descale_shapes(), Some([[1, 2, 3], [1, 2, 1], [1, 2, 2]]));
    let inputs = inputs(&problem);
    assert_eq!(inputs.check(&problem), Ok(()));
    let exact = inputs.dequantized(&problem);
    let stands_for = problem.dequantized();
    assert_eq!((stands_for.format, stands_for.output_format()), (Format::F64, Format::F64));
    assert_eq!(exact.check(&stands_for), Ok(()));
    let descale = |i: usize| Format::F32.round(0.3 + i as f64);
    let values = |tensor: &Tensor| tensor.values().iter().copied().collect::<Vec<_>>();
    assert_eq!(values(&exact.query), [0, 0, 1, 1, 2, 3, 3, 4, 4, 5].map(descale));
    assert_eq!(values(&exact.key), [0, 0, 0, 0, 1, 1, 1, 1].map(descale));
    assert_eq!(values(&exact.value), [0, 0, 0, 1, 2, 2, 2, 3].map(descale));
}

#[test]
fn what_has_no_descales_stands_for_itself() {
    let problem = Problem::new(Format::E4m3, 1, 2, 1);
    let ones = || tensor(Format::E4m3, &[1, 1, 2, 1], |_| 1.0);
    let inputs = Inputs::new(ones(), ones(), ones());
    assert_eq!(inputs.dequantized(&problem), inputs);
    assert_eq!(problem.dequantized(), problem);
    assert_eq!(problem.output_format(), Format::E4m3);
}

#[test]
fn quantizations_that_can_not_be_are_refused() {
    let quantization = problem().quantization.expect("quantized");
    let with =
        |quantization, format| Problem { format, quantization: Some(quantization), ..problem() };
    for (problem, message) in [
        (
            with(quantization, Format::Bf16),
            "quantized inputs of format bf16: expected e4m3 or e5m2",
        ),
        (
            with(Quantization { output: Format::E4m3, ..quantization }, Format::E5m2),
            "quantized inputs give outputs of format e4m3: expected f32, f16 or bf16",
        ),
        (
            with(Quantization { key: Descale::Block(0), ..quantization }, Format::E4m3),
            "the key has a descale for every 0 positions: expected at least 1",
        ),
    ] {
        assert_eq!(problem.validate().expect_err(message).to_string(), message);
    }
}

#[test]
fn descales_are_positive_and_of_the_problem_s_shapes() {
    let problem = problem();
    let refused = |change: fn(&mut Descales), message: &str| {
        let mut inputs = inputs(&problem);
        change(inputs.descale.as_mut().expect("descales"));
        assert_eq!(inputs.check(&problem).expect_err(message).to_string(), message);
    };
    refused(
        |it| it.key = tensor(Format::F32, &[1, 2, 1], |i| i as f64),
        "key_descale has 0 at flat index 0: expected a positive, finite number",
    );
    refused(
        |it| it.value = tensor(Format::F32, &[1, 2, 2], |_| f64::INFINITY),
        "value_descale has inf at flat index 0: expected a positive, finite number",
    );
    refused(
        |it| it.query = tensor(Format::F32, &[1, 2, 1], |_| 1.0),
        "query_descale has shape [1, 2, 1]: expected [1, 2, 3]",
    );
    refused(
        |it| it.query = tensor(Format::F64, &[1, 2, 3], |_| 1.0),
        "query_descale has format f64: expected f32",
    );
    let none = Inputs { descale: None, ..inputs(&problem) };
    assert!(none.check(&problem).is_err());
    let plain = Problem { quantization: None, ..problem.clone() };
    assert!(inputs(&problem).check(&plain).is_err());
}

/// One key with all the weight but for `keys - 1` others that `e4m3` flushes, all of value 1.
fn bound_under(weight_scale: f64, keys: usize) -> Bound {
    let rest: f64 = 1.0 / 4096.0;
    let normalizer = rest.mul_add(keys as f64 - 1.0, 1.0);
    let gap = |i: usize| if i == 0 { 0.0 } else { -f64::ln(rest) };
    let weight = |i: usize| if i == 0 { 1.0 } else { rest };
    let per_key = |of: &dyn Fn(usize) -> f64| (0..keys).map(of).collect::<Vec<f64>>();
    let condition = RowCondition {
        gap_lo: per_key(&gap),
        gap_hi: per_key(&gap),
        product_magnitude_hi: per_key(&gap),
        addend_magnitude_hi: vec![0.0; keys],
        cap_argument_lo: vec![0.0; keys],
        score_magnitude_hi: per_key(&gap),
        dot_mass_hi: per_key(&gap),
        probability_lo: per_key(&|i| weight(i) / normalizer),
        probability_hi: per_key(&|i| weight(i) / normalizer),
        max_magnitude_hi: 0.0,
        normalizer_lo: normalizer,
        normalizer_hi: normalizer,
        lse_magnitude_hi: normalizer.ln(),
        output_lo: vec![1.0],
        output_hi: vec![1.0],
        sink: None,
        product_unit_hi: 1.0,
        value_unit_hi: 1.0,
    };
    let problem = Problem { query_len: 1, key_len: keys, ..problem() };
    let profile = Profile { weight_scale, ..Profile::standard(Format::E4m3) };
    bound::forward(&problem, &profile, &condition, &Array2::ones((keys, 1)).view()).output[0]
}

/// What a kernel that does not scale its weights loses, all of the small ones, is in its own bound,
/// and in no bound of one that does.
#[test]
fn what_is_flushed_is_divided_by_the_scale_of_the_weights() {
    const KEYS: usize = 2048;
    let flushed = (KEYS as f64 - 1.0) / 4096.0;
    let lost = flushed / (1.0 + flushed);
    let (Bound::Within(plain), Bound::Within(scaled)) =
        (bound_under(1.0, KEYS), bound_under(256.0, KEYS))
    else {
        panic!("two bounds");
    };
    assert!(plain >= lost, "{plain} below {lost}");
    assert!(scaled < lost, "{scaled} above {lost}");
}

/// 448 is in range, and so is what rounds to it; 512 is not.
#[test]
fn a_scale_that_takes_weights_out_of_their_format_leaves_no_bound() {
    assert!(matches!(bound_under(448.0, 3), Bound::Within(_)));
    assert!(matches!(bound_under(512.0, 3), Bound::None(_)));
}
