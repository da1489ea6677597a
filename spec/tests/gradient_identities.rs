//! The identities behind the backward pass, exactly: what is recomputed is what the forward pass
//! had, and what is subtracted is a mean.

#[path = "support/heads.rs"]
mod heads;
mod support;

use flashproof_spec::arithmetic::{Arithmetic, ExactModel};
use flashproof_spec::gradient::{Head, QueryOf, attention_gradient, delta, probability, row_pairs};
use flashproof_spec::online::{Key, KeyOf, absorb, start};
use heads::{ExactHead, HEAD_DIM, VALUE_DIM, heads};
use proptest::prelude::*;
use rug::Rational;
use support::settings;

const A: ExactModel = ExactModel;

/// The row's keys as its forward pass met them.
fn row_keys(head: &ExactHead, query: &QueryOf<ExactModel>) -> Vec<KeyOf<ExactModel>> {
    let pairs = query.scores.iter().zip(&head.keys);
    pairs.map(|(score, key)| Key { score: score.clone(), value: key.value.clone() }).collect()
}

/// `sum_j dO_j v_ij`.
fn probability_gradient(query: &QueryOf<ExactModel>, value: &[Rational]) -> Rational {
    let pairs = query.output_gradient.iter().zip(value);
    pairs.fold(Rational::new(), |sum, (d_o, v)| sum + Rational::from(d_o * v))
}

/// The queries with a row, and that row.
fn rows(head: &ExactHead) -> impl Iterator<Item = (&QueryOf<ExactModel>, &heads::ExactRow)> {
    head.queries.iter().filter_map(|query| Some((query, query.row.as_ref()?)))
}

proptest! {
    #![proptest_config(settings(
        "gradient_identities",
        "tests/proptest-regressions/gradient_identities.txt",
    ))]

    #[test]
    fn recomputed_probabilities_are_those_of_the_forward_pass(head in heads(3, 8)) {
        for (query, row) in rows(&head) {
            let keys = row_keys(&head, query);
            let state = absorb(&A, start(&A, VALUE_DIM), &keys);
            let reference = state.reference.expect("a visible key");
            for score in &query.scores {
                let forward = score.as_ref().map_or_else(Rational::new, |score| {
                    A.div(&A.weight(score, &reference), &state.normalizer)
                });
                prop_assert_eq!(probability(&A, score.as_ref(), &row.lse), forward);
            }
        }
    }

    #[test]
    fn probabilities_of_a_row_sum_to_one(head in heads(3, 8)) {
        for (query, row) in rows(&head) {
            let all = query.scores.iter().map(|score| probability(&A, score.as_ref(), &row.lse));
            prop_assert_eq!(all.fold(Rational::new(), |sum, p| sum + p), 1);
        }
    }

    #[test]
    fn delta_is_the_mean_of_the_probability_gradients(head in heads(3, 8)) {
        for (query, row) in rows(&head) {
            let mut mean = Rational::new();
            for (score, key) in query.scores.iter().zip(&head.keys) {
                let p = probability(&A, score.as_ref(), &row.lse);
                mean += p * probability_gradient(query, &key.value);
            }
            prop_assert_eq!(delta(&A, &query.output_gradient, &row.output), mean);
        }
    }

    #[test]
    fn score_gradients_of_a_row_sum_to_the_lse_gradient(head in heads(3, 8)) {
        for (query, _) in rows(&head) {
            let pairs = row_pairs(&A, query, &head.keys);
            let gradients = pairs.into_iter().flatten().map(|pair| pair.score_gradient);
            let sum = gradients.fold(Rational::new(), |sum, gradient| sum + gradient);
            prop_assert_eq!(&sum, &query.lse_gradient);
        }
    }

    /// The LSE's gradient adds `P g` to the score gradients, and nothing else.
    #[test]
    fn an_lse_gradient_adds_its_share_of_every_probability(head in heads(3, 8)) {
        for (query, _) in rows(&head) {
            let without = QueryOf::<ExactModel> { lse_gradient: Rational::new(), ..query.clone() };
            let with = row_pairs(&A, query, &head.keys);
            for (with, without) in with.iter().zip(row_pairs(&A, &without, &head.keys)) {
                let share = with.as_ref().map(|pair| {
                    Rational::from(&pair.probability * &query.lse_gradient)
                });
                let added = with.as_ref().zip(without.as_ref()).map(|(with, without)| {
                    Rational::from(&with.score_gradient - &without.score_gradient)
                });
                prop_assert_eq!(added, share);
            }
        }
    }

    #[test]
    fn only_visible_pairs_have_gradients(head in heads(3, 8)) {
        for query in &head.queries {
            let pairs = row_pairs(&A, query, &head.keys);
            prop_assert_eq!(pairs.len(), query.scores.len());
            for (pair, score) in pairs.iter().zip(&query.scores) {
                prop_assert_eq!(pair.is_some(), score.is_some());
            }
        }
    }

    #[test]
    fn rows_without_visible_keys_bring_nothing(head in heads(5, 6)) {
        let gradient = attention_gradient(&A, &head);
        for (query, gradient) in head.queries.iter().zip(&gradient.query) {
            if query.row.is_none() {
                prop_assert_eq!(gradient, &vec![Rational::new(); HEAD_DIM]);
            }
        }
        let live = head.queries.iter().filter(|query| query.row.is_some()).cloned().collect();
        let live = ExactHead { queries: live, ..head };
        prop_assert_eq!(attention_gradient(&A, &live).keys, gradient.keys);
    }

    #[test]
    fn keys_that_no_query_sees_have_zero_gradients(head in heads(3, 6)) {
        let gradient = attention_gradient(&A, &head);
        for (i, key) in gradient.keys.iter().enumerate() {
            if head.queries.iter().all(|query| query.scores[i].is_none()) {
                prop_assert!(key.key.iter().chain(&key.value).all(Rational::is_zero));
            }
        }
    }

    #[test]
    fn every_input_entry_has_a_gradient(head in heads(4, 6)) {
        let gradient = attention_gradient(&A, &head);
        prop_assert_eq!(gradient.query.len(), head.queries.len());
        prop_assert_eq!(gradient.keys.len(), head.keys.len());
        prop_assert!(gradient.query.iter().all(|query| query.len() == HEAD_DIM));
        prop_assert!(gradient.keys.iter().all(|key| key.key.len() == HEAD_DIM));
        prop_assert!(gradient.keys.iter().all(|key| key.value.len() == VALUE_DIM));
    }

    /// With the scores given, the scale multiplies query and key gradients once each, and value
    /// gradients not at all.
    #[test]
    fn the_scale_enters_query_and_key_gradients_once(
        head in heads(3, 6),
        factor in (-9_i32..=9, 1_i32..=4).prop_map(Rational::from),
    ) {
        let plain = attention_gradient(&A, &Head { scale: Rational::from(1), ..head.clone() });
        let scaled = attention_gradient(&A, &Head { scale: factor.clone(), ..head });
        let times = |entries: &[Rational]| -> Vec<Rational> {
            entries.iter().map(|entry| Rational::from(entry * &factor)).collect()
        };
        for (plain, scaled) in plain.query.iter().zip(&scaled.query) {
            prop_assert_eq!(&times(plain), scaled);
        }
        for (plain, scaled) in plain.keys.iter().zip(&scaled.keys) {
            prop_assert_eq!(&times(&plain.key), &scaled.key);
            prop_assert_eq!(&plain.value, &scaled.value);
        }
    }
}
