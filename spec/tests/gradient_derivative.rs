//! The gradients are derivatives, exactly: the forward pass, run in dual numbers, differentiates
//! itself, and shares no equation with the backward pass.
//!
//! The loss of a head is `sum_r ( sum_j dO_rj o_rj + g_r L_r )` with the upstream gradients held
//! fixed, so that its derivative along one input entry is that entry's gradient.

#[path = "support/dual.rs"]
mod dual;
#[path = "support/heads.rs"]
mod heads;
mod support;

use dual::{Dual, DualModel, DualScore};
use flashproof_spec::arithmetic::ExactModel;
use flashproof_spec::attention::dense_row;
use flashproof_spec::gradient::{
    KeyValue, Query, QueryOf, attention_gradient, group_sum, row_pairs,
};
use flashproof_spec::online::Key;
use flashproof_spec::problem::Problem;
use heads::{ExactHead, HEAD_DIM, VALUE_DIM, heads, score, sized_heads};
use proptest::prelude::*;
use rug::Rational;
use support::settings;

const A: ExactModel = ExactModel;

/// The entry that moves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Along {
    Score { query: usize, key: usize },
    Query { query: usize, entry: usize },
    Key { key: usize, entry: usize },
    Value { key: usize, entry: usize },
}

/// 1 if the condition holds, else 0.
fn indicator(holds: bool) -> Rational {
    Rational::from(u32::from(holds))
}

/// `d s_ri`: of `scale * sum_t q_t k_it` by the product rule, or of the score itself.
fn score_derivative(head: &ExactHead, r: usize, i: usize, along: Along) -> Rational {
    match along {
        Along::Score { query, key } => indicator((query, key) == (r, i)),
        Along::Query { query, entry } => {
            indicator(query == r) * &head.scale * &head.keys[i].key[entry]
        }
        Along::Key { key, entry } => {
            indicator(key == i) * &head.scale * &head.queries[r].query[entry]
        }
        Along::Value { .. } => Rational::new(),
    }
}

/// The derivative of one row's part of the loss.
fn row_derivative(head: &ExactHead, r: usize, along: Along) -> Rational {
    let query = &head.queries[r];
    let keys: Vec<Key<DualScore, Dual>> = (0..head.keys.len())
        .map(|i| Key {
            score: query.scores[i]
                .clone()
                .map(|score| DualScore { score, derivative: score_derivative(head, r, i, along) }),
            value: (0..VALUE_DIM)
                .map(|j| Dual {
                    value: head.keys[i].value[j].clone(),
                    derivative: indicator(along == Along::Value { key: i, entry: j }),
                })
                .collect(),
        })
        .collect();
    let Some(row) = dense_row(&DualModel, &keys) else { return Rational::new() };
    let outputs = row.output.iter().zip(&query.output_gradient);
    let of_output = outputs.map(|(o, d_o)| Rational::from(&o.derivative * d_o));
    of_output.fold(row.lse.derivative * &query.lse_gradient, |sum, term| sum + term)
}

/// The derivative of a head's loss; by scores, queries and keys in units of `ln 2`.
fn derivative(head: &ExactHead, along: Along) -> Rational {
    (0..head.queries.len()).fold(Rational::new(), |sum, r| sum + row_derivative(head, r, along))
}

/// The derivatives by the entries of one key and its value.
fn key_derivative(head: &ExactHead, key: usize) -> KeyValue<Rational> {
    KeyValue {
        key: (0..HEAD_DIM).map(|entry| derivative(head, Along::Key { key, entry })).collect(),
        value: (0..VALUE_DIM).map(|entry| derivative(head, Along::Value { key, entry })).collect(),
    }
}

proptest! {
    #![proptest_config(settings(
        "gradient_derivative",
        "tests/proptest-regressions/gradient_derivative.txt",
    ))]

    #[test]
    fn score_gradients_are_derivatives(head in heads(2, 6)) {
        for (r, query) in head.queries.iter().enumerate() {
            for (i, pair) in row_pairs(&A, query, &head.keys).into_iter().enumerate() {
                let gradient = pair.map_or_else(Rational::new, |pair| pair.score_gradient);
                prop_assert_eq!(gradient, derivative(&head, Along::Score { query: r, key: i }));
            }
        }
    }

    #[test]
    fn query_gradients_are_derivatives(head in heads(3, 6)) {
        let gradient = attention_gradient(&A, &head);
        for (query, gradient) in gradient.query.iter().enumerate() {
            for (entry, gradient) in gradient.iter().enumerate() {
                prop_assert_eq!(gradient, &derivative(&head, Along::Query { query, entry }));
            }
        }
    }

    #[test]
    fn key_gradients_are_derivatives(head in heads(3, 5)) {
        let gradient = attention_gradient(&A, &head);
        for (key, gradient) in gradient.keys.iter().enumerate() {
            prop_assert_eq!(&gradient.key, &key_derivative(&head, key).key);
        }
    }

    #[test]
    fn value_gradients_are_derivatives(head in heads(3, 5)) {
        let gradient = attention_gradient(&A, &head);
        for (key, gradient) in gradient.keys.iter().enumerate() {
            prop_assert_eq!(&gradient.value, &key_derivative(&head, key).value);
        }
    }

    /// Six query heads on two key heads: the assignment of heads is not its own inverse.
    #[test]
    fn key_and_value_gradients_sum_over_the_query_heads_that_read_them(
        key_heads in prop::collection::vec(sized_heads(6, 2), 2),
    ) {
        let problem = Problem {
            query_heads: 6,
            key_heads: 2,
            ..Problem::new(flashproof_spec::format::Format::F64, 6, 2, HEAD_DIM)
        };
        for (g, (whole, group)) in key_heads.iter().zip([[0, 1, 2], [3, 4, 5]]).enumerate() {
            prop_assert!(group.iter().all(|&h| problem.key_head_of(h) == g));
            // One query for each query head; those of the other group read other keys.
            let of_heads = |heads: &[usize]| ExactHead {
                queries: heads.iter().map(|&h| whole.queries[h].clone()).collect(),
                ..whole.clone()
            };
            let parts = group.iter().map(|&h| attention_gradient(&A, &of_heads(&[h])).keys);
            let sum = group_sum(&A, parts).expect("a group has heads");
            prop_assert_eq!(&sum, &attention_gradient(&A, &of_heads(&group)).keys);
            for (key, sum) in sum.iter().enumerate() {
                prop_assert_eq!(sum, &key_derivative(&of_heads(&group), key));
            }
        }
    }
}

/// Sanity of the second way itself: `d/ds` of `2^s / (2^s + 1)` at 0 is `ln 2 / 4`.
#[test]
fn dual_numbers_know_the_logistic_function() {
    let scale = Rational::from(1);
    let key = |k: i32, v: i32| KeyValue { key: vec![k.into(), 0.into()], value: vec![v.into(); 3] };
    let keys = vec![key(0, 1), key(0, 0)];
    let query: Vec<Rational> = vec![1.into(), 0.into()];
    let scores = keys.iter().map(|kv| Some(score(&scale, &query, &kv.key))).collect();
    let query: QueryOf<ExactModel> = Query {
        query,
        scores,
        row: None,
        output_gradient: vec![1.into(), 0.into(), 0.into()],
        lse_gradient: Rational::new(),
    };
    let head = ExactHead { scale, queries: vec![query], keys };
    assert_eq!(derivative(&head, Along::Score { query: 0, key: 0 }), Rational::from((1, 4)));
}

#[test]
fn no_heads_have_no_sum() {
    assert_eq!(group_sum(&A, []), None);
}
