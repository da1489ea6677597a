//! Data that takes no part in a gradient changes no bit of it, whatever it is; and where nothing
//! takes part, the gradient is zero and written.

use flashproof_spec::mask::{Mask, Rule, Site};
use flashproof_spec::problem::Problem;
use flashproof_spec::tensor::{Cotangents, Gradients, Inputs, Outputs, Tensor};
use ndarray::{ArrayD, Axis, s};
use proptest::prelude::*;

use crate::support::problems::{modified_problems, problems};
use crate::support::sight::{shared, visible};
use crate::support::{
    differentiate, gradient_bits, kernels, run, uniform, uniform_cotangents, values,
};

/// The axis of positions, in tensors of three and of four axes.
const POSITION: Axis = Axis(2);

fn poisoned(tensor: &Tensor, position: usize) -> Tensor {
    let mut values = tensor.values().clone();
    values.index_axis_mut(POSITION, position).fill(f64::NAN);
    Tensor::exact(tensor.format(), values).expect("NaN is a value of every format")
}

/// Bits of one row.
fn row_bits(tensor: &Tensor, batch: usize, head: usize, position: usize) -> Vec<u64> {
    let values = tensor.view4();
    values.slice(s![batch, head, position, ..]).iter().map(|value| value.to_bits()).collect()
}

fn key_bits(gradients: &Gradients, batch: usize, head: usize, key: usize) -> [Vec<u64>; 2] {
    [&gradients.key, &gradients.value].map(|tensor| row_bits(tensor, batch, head, key))
}

/// A problem with both queries and keys, and one of each.
fn with_query_and_key() -> impl Strategy<Value = (Problem, usize, usize)> {
    let problems = modified_problems()
        .prop_filter("queries and keys", |problem| problem.query_len > 0 && problem.key_len > 0);
    problems.prop_flat_map(|problem| {
        (0..problem.query_len, 0..problem.key_len)
            .prop_map(move |(query, key)| (problem.clone(), query, key))
    })
}

/// Batch members, each with each head.
fn pairs(batch: usize, heads: usize) -> impl Iterator<Item = (usize, usize)> {
    (0..batch).flat_map(move |member| (0..heads).map(move |head| (member, head)))
}

/// The query heads that read a key head.
fn readers(problem: &Problem, key_head: usize) -> impl Iterator<Item = usize> {
    let &Problem { query_heads, key_heads, .. } = problem;
    (0..query_heads).filter(move |head| head * key_heads / query_heads == key_head)
}

/// Entries of the bias's gradient, and whether one of the sites that share it is `touched`.
fn bias_bits(
    problem: &Problem,
    gradients: &Gradients,
    touched: impl Fn(Site) -> bool,
) -> Vec<Option<u64>> {
    let Some(gradient) = &gradients.bias else { return Vec::new() };
    let mut bits: Vec<_> = values(gradient).into_iter().map(|b| Some(b.to_bits())).collect();
    let shape = gradient.shape().try_into().expect("four axes");
    for (batch, head) in pairs(problem.batch, problem.query_heads) {
        for (query, key) in pairs(problem.query_len, problem.key_len) {
            let site = Site { batch, head, query, key };
            if touched(site) {
                bits[shared(shape, site.place())] = None;
            }
        }
    }
    bits
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
            key: poisoned(&clean.key, key),
            value: poisoned(&clean.value, key),
            ..clean.clone()
        };
        for kernel in kernels() {
            let kernel = kernel.as_ref();
            let outputs = run(kernel, &problem, &clean);
            let [before, after] = [&clean, &nan]
                .map(|inputs| differentiate(kernel, &problem, inputs, &outputs, &cotangents));
            let seen = |batch, head, query| {
                visible(&problem, &clean, Site { batch, head, query, key })
            };
            for (batch, head) in pairs(problem.batch, problem.query_heads) {
                for query in (0..problem.query_len).filter(|&query| !seen(batch, head, query)) {
                    prop_assert_eq!(
                        row_bits(&before.query, batch, head, query),
                        row_bits(&after.query, batch, head, query),
                        "{}: dQ of batch {} head {} query {}", kernel.name(), batch, head, query
                    );
                }
            }
            for (batch, key_head) in pairs(problem.batch, problem.key_heads) {
                let seen = readers(&problem, key_head)
                    .any(|head| (0..problem.query_len).any(|query| seen(batch, head, query)));
                for other in (0..problem.key_len).filter(|&other| !seen || other != key) {
                    prop_assert_eq!(
                        key_bits(&before, batch, key_head, other),
                        key_bits(&after, batch, key_head, other),
                        "{}: dK and dV of batch {} head {} key {}",
                        kernel.name(), batch, key_head, other
                    );
                }
            }
            let touched = |site: Site| site.key == key && visible(&problem, &clean, site);
            prop_assert_eq!(
                bias_bits(&problem, &before, touched),
                bias_bits(&problem, &after, touched),
                "{}: dB", kernel.name()
            );
            prop_assert_eq!(&before.sink, &after.sink, "{}", kernel.name());
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
            let seen = |batch, head, key| {
                visible(&problem, &clean, Site { batch, head, query, key })
            };
            for (batch, head) in pairs(problem.batch, problem.query_heads) {
                let empty = !(0..problem.key_len).any(|key| seen(batch, head, key));
                for other in (0..problem.query_len).filter(|&other| empty || other != query) {
                    prop_assert_eq!(
                        row_bits(&before.query, batch, head, other),
                        row_bits(&after.query, batch, head, other),
                        "{}: dQ of batch {} head {} query {}", kernel.name(), batch, head, other
                    );
                }
            }
            for (batch, key_head) in pairs(problem.batch, problem.key_heads) {
                let seen = |key: &usize| {
                    readers(&problem, key_head).any(|head| seen(batch, head, *key))
                };
                for key in (0..problem.key_len).filter(|key| !seen(key)) {
                    prop_assert_eq!(
                        key_bits(&before, batch, key_head, key),
                        key_bits(&after, batch, key_head, key),
                        "{}: dK and dV of batch {} head {} key {}",
                        kernel.name(), batch, key_head, key
                    );
                }
            }
            let touched = |site: Site| site.query == query && visible(&problem, &clean, site);
            prop_assert_eq!(
                bias_bits(&problem, &before, touched),
                bias_bits(&problem, &after, touched),
                "{}: dB", kernel.name()
            );
        }
    }

    /// NaN in output and LSE of a row without keys, and in the gradient of the output: there is
    /// nothing to multiply by it, and a sink that is alone weighs 1 whatever the LSE.
    #[test]
    fn the_outputs_of_a_row_without_keys_are_not_read(problem in modified_problems(), seed: u64) {
        let inputs = uniform(&problem, seed);
        let cotangents = uniform_cotangents(&problem, seed.wrapping_add(1));
        let empty = |batch, head, query| {
            let site = |key| Site { batch, head, query, key };
            !(0..problem.key_len).any(|key| visible(&problem, &inputs, site(key)))
        };
        let nan = |tensor: &Tensor| {
            let mut values = tensor.values().clone();
            for (place, entry) in values.indexed_iter_mut() {
                if empty(place[0], place[1], place[2]) {
                    *entry = f64::NAN;
                }
            }
            Tensor::exact(tensor.format(), values).expect("NaN is in every format")
        };
        for kernel in kernels() {
            let kernel = kernel.as_ref();
            let outputs = run(kernel, &problem, &inputs);
            let before = differentiate(kernel, &problem, &inputs, &outputs, &cotangents);
            let outputs =
                Outputs { output: nan(&outputs.output), lse: outputs.lse.as_ref().map(nan) };
            let cotangents = Cotangents { output: nan(&cotangents.output), ..cotangents.clone() };
            let after = differentiate(kernel, &problem, &inputs, &outputs, &cotangents);
            prop_assert_eq!(gradient_bits(&before), gradient_bits(&after), "{}", kernel.name());
        }
    }

    /// Without a single visible key every gradient is zero, and every element is written.
    #[test]
    fn nothing_seen_is_no_gradient(problem in modified_problems(), seed: u64) {
        let lengths = Rule::KeyLengths(vec![0; problem.batch]);
        let problem = Problem { mask: Mask::only(lengths), sink: None, ..problem };
        let nan = |tensor: &Tensor| {
            let values = ArrayD::from_elem(tensor.values().raw_dim(), f64::NAN);
            Tensor::exact(tensor.format(), values).expect("NaN is a value of every format")
        };
        let clean = uniform(&problem, seed);
        let inputs = Inputs {
            query: nan(&clean.query),
            key: nan(&clean.key),
            value: nan(&clean.value),
            bias: clean.bias.as_ref().map(nan),
            sink: None, descale: None };
        let cotangents = uniform_cotangents(&problem, seed.wrapping_add(1));
        let cotangents = Cotangents {
            output: nan(&cotangents.output),
            lse: cotangents.lse.as_ref().map(nan),
        };
        for kernel in kernels() {
            let outputs = run(kernel.as_ref(), &problem, &inputs);
            let gradients =
                differentiate(kernel.as_ref(), &problem, &inputs, &outputs, &cotangents);
            let Gradients { query, key, value, bias, sink } = gradients;
            prop_assert!(sink.is_none());
            for gradient in [query, key, value].iter().chain(&bias) {
                prop_assert!(values(gradient).iter().all(|&entry| entry == 0.0));
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
