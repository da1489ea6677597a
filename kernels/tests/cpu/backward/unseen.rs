//! Data that takes no part in a gradient changes no bit of it, whatever it is; and where nothing
//! takes part, the gradient is zero and written.

use flashproof_spec::mask::{Mask, Rule};
use flashproof_spec::problem::Problem;
use flashproof_spec::tensor::{Cotangents, Gradients, Inputs, Outputs, Tensor};
use ndarray::{ArrayD, ArrayViewD, Axis};
use proptest::prelude::*;

use crate::support::{
    differentiate, gradient_bits, kernels, problems, run, sees, uniform, uniform_cotangents, values,
};

/// The axis of positions, in tensors of three and of four axes.
const POSITION: Axis = Axis(2);

fn poisoned(tensor: &Tensor, position: usize) -> Tensor {
    let mut values = tensor.values().clone();
    values.index_axis_mut(POSITION, position).fill(f64::NAN);
    Tensor::exact(tensor.format(), values).expect("NaN is a value of every format")
}

/// Bits of the rows of `batch` at `position`, in every head.
fn row_bits(tensor: &Tensor, batch: usize, position: usize) -> Vec<u64> {
    let member: ArrayViewD<'_, f64> = tensor.values().index_axis(Axis(0), batch);
    member.index_axis(Axis(1), position).iter().map(|value| value.to_bits()).collect()
}

fn key_bits(gradients: &Gradients, batch: usize, key: usize) -> [Vec<u64>; 2] {
    [&gradients.key, &gradients.value].map(|tensor| row_bits(tensor, batch, key))
}

/// A problem with both queries and keys, and one of each.
fn with_query_and_key() -> impl Strategy<Value = (Problem, usize, usize)> {
    let problems = problems()
        .prop_filter("queries and keys", |problem| problem.query_len > 0 && problem.key_len > 0);
    problems.prop_flat_map(|problem| {
        (0..problem.query_len, 0..problem.key_len)
            .prop_map(move |(query, key)| (problem.clone(), query, key))
    })
}

proptest! {
    /// NaN in one key and its value, after the forward pass: queries that do not see it and all
    /// other keys have the gradients that they had; where no query sees it, it has none.
    #[test]
    fn a_key_reaches_only_the_queries_that_see_it(
        (problem, _, key) in with_query_and_key(),
        seed: u64,
    ) {
        let clean = uniform(&problem, seed);
        let cotangents = uniform_cotangents(&problem, seed.wrapping_add(1));
        let nan = Inputs {
            query: clean.query.clone(),
            key: poisoned(&clean.key, key),
            value: poisoned(&clean.value, key),
        };
        for kernel in kernels() {
            let kernel = kernel.as_ref();
            let outputs = run(kernel, &problem, &clean);
            let [before, after] = [&clean, &nan]
                .map(|inputs| differentiate(kernel, &problem, inputs, &outputs, &cotangents));
            for batch in 0..problem.batch {
                let seen = |query: &usize| sees(&problem, batch, *query, key);
                for query in (0..problem.query_len).filter(|query| !seen(query)) {
                    prop_assert_eq!(
                        row_bits(&before.query, batch, query),
                        row_bits(&after.query, batch, query),
                        "{}: dQ of batch {} query {}", kernel.name(), batch, query
                    );
                }
                let seen = (0..problem.query_len).any(|query| seen(&query));
                for other in (0..problem.key_len).filter(|&other| !seen || other != key) {
                    prop_assert_eq!(
                        key_bits(&before, batch, other),
                        key_bits(&after, batch, other),
                        "{}: dK and dV of batch {} key {}", kernel.name(), batch, other
                    );
                }
            }
        }
    }

    /// NaN in all that a query brings: other queries and the keys that it does not see have the
    /// gradients that they had.
    #[test]
    fn a_query_reaches_only_the_keys_that_it_sees(
        (problem, query, _) in with_query_and_key(),
        seed: u64,
    ) {
        let clean = uniform(&problem, seed);
        let cotangents = uniform_cotangents(&problem, seed.wrapping_add(1));
        for kernel in kernels() {
            let kernel = kernel.as_ref();
            let outputs = run(kernel, &problem, &clean);
            let before = differentiate(kernel, &problem, &clean, &outputs, &cotangents);
            let after = differentiate(
                kernel,
                &problem,
                &Inputs { query: poisoned(&clean.query, query), ..clean.clone() },
                &Outputs {
                    output: poisoned(&outputs.output, query),
                    lse: outputs.lse.as_ref().map(|lse| poisoned(lse, query)),
                },
                &Cotangents {
                    output: poisoned(&cotangents.output, query),
                    lse: cotangents.lse.as_ref().map(|lse| poisoned(lse, query)),
                },
            );
            for batch in 0..problem.batch {
                let seen = |key: &usize| sees(&problem, batch, query, *key);
                let empty = !(0..problem.key_len).any(|key| seen(&key));
                for other in (0..problem.query_len).filter(|&other| empty || other != query) {
                    prop_assert_eq!(
                        row_bits(&before.query, batch, other),
                        row_bits(&after.query, batch, other),
                        "{}: dQ of batch {} query {}", kernel.name(), batch, other
                    );
                }
                for key in (0..problem.key_len).filter(|key| !seen(key)) {
                    prop_assert_eq!(
                        key_bits(&before, batch, key),
                        key_bits(&after, batch, key),
                        "{}: dK and dV of batch {} key {}", kernel.name(), batch, key
                    );
                }
            }
        }
    }

    /// Without a single visible key every gradient is zero, and every element is written.
    #[test]
    fn nothing_seen_is_no_gradient(problem in problems(), seed: u64) {
        let lengths = Rule::KeyLengths(vec![0; problem.batch]);
        let problem = Problem { mask: Mask::only(lengths), ..problem };
        let nan = |tensor: &Tensor| {
            let values = ArrayD::from_elem(tensor.values().raw_dim(), f64::NAN);
            Tensor::exact(tensor.format(), values).expect("NaN is a value of every format")
        };
        let clean = uniform(&problem, seed);
        let inputs =
            Inputs { query: nan(&clean.query), key: nan(&clean.key), value: nan(&clean.value) };
        let cotangents = uniform_cotangents(&problem, seed.wrapping_add(1));
        let cotangents = Cotangents {
            output: nan(&cotangents.output),
            lse: cotangents.lse.as_ref().map(nan),
        };
        for kernel in kernels() {
            let outputs = run(kernel.as_ref(), &problem, &inputs);
            let gradients =
                differentiate(kernel.as_ref(), &problem, &inputs, &outputs, &cotangents);
            let Gradients { query, key, value } = gradients;
            for gradient in [query, key, value] {
                prop_assert!(values(&gradient).iter().all(|&entry| entry == 0.0));
            }
        }
    }

    /// No gradient of the LSE is a gradient of zero.
    #[test]
    fn an_absent_lse_gradient_is_zero(problem in problems(), seed: u64) {
        let inputs = uniform(&problem, seed);
        let uniform = uniform_cotangents(&problem, seed.wrapping_add(1));
        let zero =
            |tensor: &Tensor| Tensor::rounded(tensor.format(), &tensor.values().mapv(|_| 0.0));
        let absent = Cotangents { lse: None, ..uniform.clone() };
        let zero = Cotangents { lse: uniform.lse.as_ref().map(zero), ..uniform };
        for kernel in kernels() {
            let kernel = kernel.as_ref();
            let outputs = run(kernel, &problem, &inputs);
            let [absent, zero] = [&absent, &zero].map(|cotangents| {
                gradient_bits(&differentiate(kernel, &problem, &inputs, &outputs, cotangents))
            });
            prop_assert_eq!(absent, zero, "{}", kernel.name());
        }
    }
}
