//! What a query does not see has no gradient and no influence on one, whatever it holds: binary64,
//! compared bit for bit.

mod support;

use flashproof_spec::arithmetic::F64;
use flashproof_spec::attention::dense_row;
use flashproof_spec::gradient::tiled::{Blocks, by_key_blocks, two_passes};
use flashproof_spec::gradient::{Gradient, Head, KeyValue, Query, attention_gradient, probability};
use flashproof_spec::online::Key;
use proptest::prelude::*;
use support::settings;

type F64Head = Head<f64, f64>;

const HEAD_DIM: usize = 2;
const VALUE_DIM: usize = 3;

/// A query, which keys it sees, its output gradient and its LSE gradient.
type QueryInputs = (Vec<f64>, Vec<bool>, Vec<f64>, f64);

/// Everything of a head but its rows.
#[derive(Clone, Debug)]
struct Inputs {
    scale: f64,
    queries: Vec<QueryInputs>,
    keys: Vec<(Vec<f64>, Vec<f64>)>,
}

impl Inputs {
    fn head(&self) -> F64Head {
        let keys: Vec<_> = self
            .keys
            .iter()
            .map(|(key, value)| KeyValue { key: key.clone(), value: value.clone() })
            .collect();
        let queries = self
            .queries
            .iter()
            .map(|(query, sees, output_gradient, lse_gradient)| {
                let score = |key: &[f64]| {
                    self.scale * query.iter().zip(key).map(|(q, k)| q * k).sum::<f64>()
                };
                let scores: Vec<_> =
                    sees.iter().zip(&keys).map(|(sees, kv)| sees.then(|| score(&kv.key))).collect();
                let row_keys: Vec<_> = scores
                    .iter()
                    .zip(&keys)
                    .map(|(&score, kv)| Key { score, value: kv.value.clone() })
                    .collect();
                Query {
                    query: query.clone(),
                    scores,
                    row: dense_row(&F64, &row_keys),
                    output_gradient: output_gradient.clone(),
                    lse_gradient: *lse_gradient,
                }
            })
            .collect();
        Head { scale: self.scale, queries, keys }
    }
}

fn entries(len: usize) -> impl Strategy<Value = Vec<f64>> {
    prop::collection::vec(-9.0..9.0_f64, len)
}

fn inputs() -> impl Strategy<Value = Inputs> {
    (0_usize..4, 1_usize..7).prop_flat_map(|(queries, keys)| {
        let sees = prop_oneof![
            3 => prop::collection::vec(any::<bool>(), keys),
            1 => Just(vec![false; keys]),
        ];
        let query = (entries(HEAD_DIM), sees, entries(VALUE_DIM), -9.0..9.0_f64);
        let key = (entries(HEAD_DIM), entries(VALUE_DIM));
        (prop::collection::vec(query, queries), prop::collection::vec(key, keys))
            .prop_map(|(queries, keys)| Inputs { scale: 0.125, queries, keys })
    })
}

/// The gradients by every function that gives them.
fn gradients(head: &F64Head) -> [Gradient<f64>; 3] {
    let one = |len: usize| [(0..len).collect::<Vec<_>>()];
    let (queries, keys) = (one(head.queries.len()), one(head.keys.len()));
    let blocks = Blocks { queries: &queries, keys: &keys };
    [
        attention_gradient(&F64, head),
        by_key_blocks(&F64, head, blocks),
        two_passes(&F64, head, blocks),
    ]
}

/// Every entry of a gradient, bit for bit.
fn bits(gradient: &Gradient<f64>) -> Vec<u64> {
    let keys = gradient.keys.iter().flat_map(|kv| kv.key.iter().chain(&kv.value));
    gradient.query.iter().flatten().chain(keys).map(|entry| entry.to_bits()).collect()
}

proptest! {
    #![proptest_config(settings("gradient_masked", "tests/proptest-regressions/gradient_masked.txt"))]

    #[test]
    fn invisible_data_has_no_influence(
        inputs in inputs(),
        poison in prop::sample::select(&[f64::NAN, f64::INFINITY, f64::NEG_INFINITY][..]),
    ) {
        let clean = inputs.head();
        let mut poisoned = inputs.clone();
        for (i, (key, value)) in poisoned.keys.iter_mut().enumerate() {
            if inputs.queries.iter().all(|(_, sees, ..)| !sees[i]) {
                key.fill(poison);
                value.fill(poison);
            }
        }
        for (query, sees, output_gradient, lse_gradient) in &mut poisoned.queries {
            if !sees.contains(&true) {
                query.fill(poison);
                output_gradient.fill(poison);
                *lse_gradient = poison;
            }
        }
        let poisoned = poisoned.head();
        for (clean, poisoned) in gradients(&clean).iter().zip(&gradients(&poisoned)) {
            prop_assert_eq!(bits(clean), bits(poisoned));
        }
    }

    /// A key that one query does not see has no part in that query's gradient, whoever else sees
    /// it.
    #[test]
    fn a_row_depends_on_the_keys_it_sees(
        inputs in inputs(),
        key in any::<prop::sample::Index>(),
    ) {
        let key = key.index(inputs.keys.len());
        let mut poisoned = inputs.clone();
        poisoned.keys[key].0.fill(f64::NAN);
        poisoned.keys[key].1.fill(f64::NAN);
        for (clean, poisoned) in gradients(&inputs.head()).iter().zip(gradients(&poisoned.head())) {
            for (r, (_, sees, ..)) in inputs.queries.iter().enumerate() {
                if sees[key] {
                    prop_assert!(poisoned.query[r].iter().all(|entry| entry.is_nan()));
                } else {
                    prop_assert_eq!(&clean.query[r], &poisoned.query[r]);
                }
            }
        }
    }

    /// One query on one key, inputs three times normal: `P` is 1, and nothing that moves the score
    /// moves the output (flash-attention#334 returned NaN).
    #[test]
    fn a_single_key_has_no_score_gradient(
        query in prop::collection::vec(-9.0..9.0_f64, 16),
        key in prop::collection::vec(-9.0..9.0_f64, 16),
        value in prop::collection::vec(-9.0..9.0_f64, 16),
        output_gradient in prop::collection::vec(-9.0..9.0_f64, 16),
    ) {
        let inputs = Inputs {
            scale: 0.25,
            queries: vec![(query, vec![true], output_gradient.clone(), 0.0)],
            keys: vec![(key, value)],
        };
        for gradient in gradients(&inputs.head()) {
            prop_assert_eq!(&gradient.query[0], &vec![0.0; 16]);
            prop_assert_eq!(&gradient.keys[0].key, &vec![0.0; 16]);
            prop_assert_eq!(&gradient.keys[0].value, &output_gradient);
        }
    }
}

/// Scores near -120 and a tile half of padding (pytorch#196678): a padded key of zeros, scored as
/// if it were one, would weigh `e^(0 - L)`, beyond binary32.
#[test]
fn padding_under_low_scores_has_no_probability() {
    const KEYS: usize = 32;
    const TILE: usize = 2 * KEYS;
    let key = |i: usize| (vec![-12.0, i as f64 / 64.0], vec![1.0, i as f64, -1.0]);
    let query = |sees| (vec![10.0, 1.0], sees, vec![0.5, -0.25, 1.0], 0.75);
    let inputs = Inputs {
        scale: 1.0,
        queries: vec![query(vec![true; KEYS])],
        keys: (0..KEYS).map(key).collect(),
    };
    let mut padded = inputs.clone();
    padded.keys.resize(TILE, (vec![0.0; HEAD_DIM], vec![0.0; VALUE_DIM]));
    padded.queries[0].1.resize(TILE, false);

    let (head, padded) = (inputs.head(), padded.head());
    let lse = head.queries[0].row.as_ref().expect("a row with keys").lse;
    assert_eq!(probability(&F64, None, &lse), 0.0);
    assert!(probability(&F64, Some(&0.0), &lse) > f64::from(f32::MAX));
    for (expected, mut found) in gradients(&head).into_iter().zip(gradients(&padded)) {
        let padding = found.keys.split_off(KEYS);
        assert_eq!(found, expected);
        let zero = KeyValue { key: vec![0.0; HEAD_DIM], value: vec![0.0; VALUE_DIM] };
        assert_eq!(padding, vec![zero; TILE - KEYS]);
    }
}
