//! Gradients are linear in the upstream gradients: exactly so for factors that round nothing.

use flashproof_spec::format::Format;
use flashproof_spec::problem::Problem;
use flashproof_spec::tensor::{Cotangents, Gradients, Tensor};
use proptest::prelude::*;

use crate::support::problems::problems;
use crate::support::{differentiate, kernels, run, uniform, uniform_cotangents, values};

fn scaled(cotangents: &Cotangents, factor: f64) -> Cotangents {
    let scale = |tensor: &Tensor| {
        Tensor::exact(tensor.format(), tensor.values() * factor).expect("values of the format")
    };
    Cotangents { output: scale(&cotangents.output), lse: cotangents.lse.as_ref().map(scale) }
}

fn all(gradients: &Gradients) -> Vec<f64> {
    [&gradients.query, &gradients.key, &gradients.value].into_iter().flat_map(values).collect()
}

proptest! {
    /// A sign turns nothing in round-to-nearest, and a power of two shifts every rounding alike, in
    /// formats in which nothing here comes near underflow.
    #[test]
    fn a_factor_of_the_upstream_gradients_is_one_of_the_gradients(
        problem in problems(),
        (format, factor) in prop_oneof![
            (proptest::sample::select(&[Format::F64, Format::F32, Format::Bf16][..]), -4_i32..=4)
                .prop_map(|(format, exponent)| (format, 2_f64.powi(exponent))),
            Just((Format::F16, -1.0)),
        ],
        seed: u64,
    ) {
        let problem = Problem { format, ..problem };
        let inputs = uniform(&problem, seed);
        let one = uniform_cotangents(&problem, seed.wrapping_add(1));
        let other = scaled(&one, factor);
        for kernel in kernels() {
            let kernel = kernel.as_ref();
            let outputs = run(kernel, &problem, &inputs);
            let [one, other] = [&one, &other].map(|cotangents| {
                all(&differentiate(kernel, &problem, &inputs, &outputs, cotangents))
            });
            let expected: Vec<f64> = one.iter().map(|gradient| factor * gradient).collect();
            prop_assert_eq!(&other, &expected, "{}", kernel.name());
        }
    }
}
