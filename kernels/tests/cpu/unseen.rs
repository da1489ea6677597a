//! Data that a query does not see changes no bit of its answer, whatever it is.

use flashproof_spec::mask::{Mask, Rule};
use flashproof_spec::problem::Problem;
use flashproof_spec::tensor::{Inputs, Outputs, Tensor};
use ndarray::s;
use proptest::prelude::*;

use crate::support::{kernels, problems, run, sees, uniform};

proptest! {
    /// NaN at one key leaves every query alone that the rule keeps from it.
    #[test]
    fn a_key_out_of_sight_has_no_influence(
        (problem, key) in one_rule(),
        seed: u64,
    ) {
        let clean = uniform(&problem, seed);
        let poisoned = poison_key(&clean, key);
        for kernel in kernels() {
            let before = run(kernel.as_ref(), &problem, &clean);
            let after = run(kernel.as_ref(), &problem, &poisoned);
            for batch in 0..problem.batch {
                for query in (0..problem.query_len).filter(|&query| !sees(&problem, batch, query, key)) {
                    prop_assert_eq!(
                        row_bits(&before, batch, query),
                        row_bits(&after, batch, query),
                        "{} batch {} query {}", kernel.name(), batch, query
                    );
                }
            }
        }
    }

    /// NaN everywhere, to queries that see nothing.
    #[test]
    fn a_query_without_keys_is_not_read(problem in problems(), seed: u64) {
        let lengths = Rule::KeyLengths(vec![0; problem.batch]);
        let problem = Problem { mask: Mask::only(lengths), ..problem };
        let nan = |tensor: &Tensor| Tensor::rounded(problem.format, &tensor.values().mapv(|_| f64::NAN));
        let clean = uniform(&problem, seed);
        let inputs =
            Inputs { query: nan(&clean.query), key: nan(&clean.key), value: nan(&clean.value) };
        for kernel in kernels() {
            let outputs = run(kernel.as_ref(), &problem, &inputs);
            prop_assert!(outputs.output.values().iter().all(|&entry| entry == 0.0));
            let lse = outputs.lse.expect("an LSE");
            prop_assert!(lse.values().iter().all(|&entry| entry == f64::NEG_INFINITY));
        }
    }
}

/// A problem of one rule, and one of its keys.
fn one_rule() -> impl Strategy<Value = (Problem, usize)> {
    let with_keys = problems().prop_map(|problem| Problem {
        key_len: problem.key_len.max(1),
        mask: Mask::full(),
        ..problem
    });
    with_keys.prop_flat_map(|problem| {
        let lengths = proptest::collection::vec(0..=problem.key_len, problem.batch);
        let rule = prop_oneof![
            Just(Rule::CausalTopLeft),
            Just(Rule::CausalBottomRight),
            lengths.prop_map(Rule::KeyLengths),
        ];
        (rule, 0..problem.key_len).prop_map(move |(rule, key)| {
            (Problem { mask: Mask::only(rule), ..problem.clone() }, key)
        })
    })
}

fn poison_key(inputs: &Inputs, key: usize) -> Inputs {
    let poison = |tensor: &Tensor| {
        let mut values = tensor.values().clone();
        values.slice_mut(s![.., .., key, ..]).fill(f64::NAN);
        Tensor::rounded(tensor.format(), &values)
    };
    Inputs { query: inputs.query.clone(), key: poison(&inputs.key), value: poison(&inputs.value) }
}

fn row_bits(outputs: &Outputs, batch: usize, query: usize) -> Vec<u64> {
    let output = outputs.output.view4();
    let lse = outputs.lse.as_ref().expect("an LSE").view3();
    let output = output.slice(s![batch, .., query, ..]);
    let lse = lse.slice(s![batch, .., query]);
    output.iter().chain(&lse).map(|value| value.to_bits()).collect()
}
