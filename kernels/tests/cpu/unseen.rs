//! Data that a query does not see changes no bit of its answer, whatever it is.

use flashproof_spec::mask::{Mask, Rule, Site};
use flashproof_spec::problem::Problem;
use flashproof_spec::tensor::{Inputs, Outputs, Tensor};
use ndarray::s;
use proptest::prelude::*;

use crate::support::problems::{modified_problems, problems};
use crate::support::sight::{sees, shared, visible};
use crate::support::{bits, kernels_and_splits, run, uniform, values, with_bias};

proptest! {
    /// NaN at one key leaves every query alone that does not see it, whether a rule or a bias of
    /// minus infinity hides it.
    #[test]
    fn a_key_out_of_sight_has_no_influence((problem, key) in with_key(), seed: u64) {
        let clean = uniform(&problem, seed);
        let poisoned = poison_key(&clean, key);
        for kernel in kernels_and_splits() {
            let before = run(kernel.as_ref(), &problem, &clean);
            let after = run(kernel.as_ref(), &problem, &poisoned);
            for [batch, head, query] in rows(&problem) {
                if !visible(&problem, &clean, Site { batch, head, query, key }) {
                    prop_assert_eq!(
                        row_bits(&before, [batch, head, query]),
                        row_bits(&after, [batch, head, query]),
                        "{} batch {} head {} query {}", kernel.name(), batch, head, query
                    );
                }
            }
        }
    }

    /// The bias of a key that the mask hides is not looked at, be it NaN or infinite.
    #[test]
    fn the_bias_of_a_masked_key_has_no_influence(problem in modified_problems(), seed: u64) {
        let Some(bias) = problem.bias else { return Ok(()) };
        let clean = uniform(&problem, seed);
        let mut entries = values(clean.bias.as_ref().expect("a bias"));
        for (place, entry) in entries.iter_mut().enumerate() {
            if !is_read(&problem, bias.shape, place) {
                *entry = f64::NAN;
            }
        }
        let poisoned = with_bias(&problem, clean.clone(), &entries);
        for kernel in kernels_and_splits() {
            let [before, after] =
                [&clean, &poisoned].map(|inputs| bits(&run(kernel.as_ref(), &problem, inputs)));
            prop_assert_eq!(before, after, "{}", kernel.name());
        }
    }

    /// NaN everywhere, to queries that see nothing.
    #[test]
    fn a_query_without_keys_is_not_read(problem in problems(), seed: u64) {
        let lengths = Rule::KeyLengths(vec![0; problem.batch]);
        let problem = Problem { mask: Mask::only(lengths), ..problem };
        let nan = |tensor: &Tensor| Tensor::rounded(problem.format, &tensor.values().mapv(|_| f64::NAN));
        let clean = uniform(&problem, seed);
        let inputs = Inputs::new(nan(&clean.query), nan(&clean.key), nan(&clean.value));
        for kernel in kernels_and_splits() {
            let outputs = run(kernel.as_ref(), &problem, &inputs);
            prop_assert!(outputs.output.values().iter().all(|&entry| entry == 0.0));
            let lse = outputs.lse.expect("an LSE");
            prop_assert!(lse.values().iter().all(|&entry| entry == f64::NEG_INFINITY));
        }
    }

    /// Nor is one that is padding, beside others that are not.
    #[test]
    fn a_padding_query_is_not_read(problem in modified_problems(), used in 0..=9_usize, seed: u64) {
        let used = used.min(problem.query_len);
        let mut mask = problem.mask.clone();
        mask.rules.push(Rule::QueryLengths(vec![used; problem.batch]));
        let problem = Problem { mask, ..problem };
        let clean = uniform(&problem, seed);
        let mut query = clean.query.values().clone();
        query.slice_mut(s![.., .., used.., ..]).fill(f64::NAN);
        let poisoned =
            Inputs { query: Tensor::rounded(problem.format, &query), ..clean.clone() };
        for kernel in kernels_and_splits() {
            let [before, after] =
                [&clean, &poisoned].map(|inputs| run(kernel.as_ref(), &problem, inputs));
            prop_assert_eq!(bits(&before), bits(&after), "{}", kernel.name());
        }
    }
}

/// A problem with keys, and one of them.
fn with_key() -> impl Strategy<Value = (Problem, usize)> {
    modified_problems()
        .prop_filter("a key", |problem| problem.key_len > 0)
        .prop_flat_map(|problem| (0..problem.key_len).prop_map(move |key| (problem.clone(), key)))
}

fn rows(problem: &Problem) -> Vec<[usize; 3]> {
    let [batch, heads, queries] = problem.lse_shape();
    let heads = move |b| (0..heads).flat_map(move |h| (0..queries).map(move |q| [b, h, q]));
    (0..batch).flat_map(heads).collect()
}

/// Whether an entry of the bias stands for a site that the mask shows.
fn is_read(problem: &Problem, shape: [usize; 4], place: usize) -> bool {
    rows(problem).into_iter().any(|[batch, head, query]| {
        (0..problem.key_len).any(|key| {
            let site = Site { batch, head, query, key };
            sees(problem, site) && shared(shape, site.place()) == place
        })
    })
}

fn poison_key(inputs: &Inputs, key: usize) -> Inputs {
    let poison = |tensor: &Tensor| {
        let mut values = tensor.values().clone();
        values.slice_mut(s![.., .., key, ..]).fill(f64::NAN);
        Tensor::rounded(tensor.format(), &values)
    };
    Inputs { key: poison(&inputs.key), value: poison(&inputs.value), ..inputs.clone() }
}

fn row_bits(outputs: &Outputs, [batch, head, query]: [usize; 3]) -> Vec<u64> {
    let output = outputs.output.view4();
    let lse = outputs.lse.as_ref().expect("an LSE").view3();
    let output = output.slice(s![batch, head, query, ..]);
    output.iter().chain([&lse[[batch, head, query]]]).map(|value| value.to_bits()).collect()
}
