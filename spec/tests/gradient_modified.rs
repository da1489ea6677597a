//! Gradients through bias, softcap, sink and dropout are derivatives, exactly: the forward pass of
//! each row, run in dual numbers, differentiates itself.

#[path = "support/dual.rs"]
mod dual;
#[path = "support/heads.rs"]
mod heads;
mod support;

use dual::{Dual, DualModel, DualScore};
use flashproof_spec::arithmetic::{ExactModel, Logarithm};
use flashproof_spec::attention::{dense_row, dropout, sink};
use flashproof_spec::gradient::QueryOf;
use flashproof_spec::gradient::modified::{Factors, ModifiedPair, modified_pair, sink_gradient};
use flashproof_spec::online::{Key, KeyOf};
use heads::{ExactHead, VALUE_DIM, sized_heads};
use proptest::prelude::*;
use rug::Rational;
use support::{number, reference, settings};

const A: ExactModel = ExactModel;
const KEYS: usize = 5;

/// What moves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Along {
    /// The score of a key, as a bias added to it does.
    Score(usize),
    Value {
        key: usize,
        entry: usize,
    },
    Sink,
}

/// One query and its keys, a sink, and the factors of each key.
#[derive(Clone, Debug)]
struct Example {
    head: ExactHead,
    logit: Logarithm,
    factors: Vec<Factors<Rational>>,
}

fn indicator(holds: bool) -> Rational {
    Rational::from(u32::from(holds))
}

impl Example {
    fn query(&self) -> &QueryOf<ExactModel> {
        &self.head.queries[0]
    }

    /// The query with the row that a forward pass with sink and dropout stores.
    fn with_row(mut self) -> Self {
        let mut keys: Vec<KeyOf<ExactModel>> = (0..KEYS)
            .map(|i| {
                let score = self.query().scores[i].clone();
                let key = Key { score, value: self.head.keys[i].value.clone() };
                dropout(&A, key, &self.factors[i].dropout)
            })
            .collect();
        keys.push(sink(&A, self.logit.clone(), VALUE_DIM));
        self.head.queries[0].row = dense_row(&A, &keys);
        self
    }

    fn pair(&self, key: usize) -> Option<ModifiedPair<Rational>> {
        modified_pair(&A, self.query(), key, &self.head.keys[key].value, &self.factors[key])
    }

    /// The derivative of `sum_j dO_j o_j + g L`; by scores in units of `ln 2`.
    fn derivative(&self, along: Along) -> Rational {
        let query = self.query();
        let number = |value: Rational, derivative| Dual { value, derivative };
        let mut keys: Vec<Key<DualScore, Dual>> = (0..KEYS)
            .map(|i| {
                let score = query.scores[i].clone().map(|score| DualScore {
                    score,
                    derivative: indicator(along == Along::Score(i)),
                });
                let entry = |j: usize| {
                    let moves = along == Along::Value { key: i, entry: j };
                    number(self.head.keys[i].value[j].clone(), indicator(moves))
                };
                let key = Key { score, value: (0..VALUE_DIM).map(entry).collect() };
                let factor = number(self.factors[i].dropout.clone(), Rational::new());
                dropout(&DualModel, key, &factor)
            })
            .collect();
        let logit =
            DualScore { score: self.logit.clone(), derivative: indicator(along == Along::Sink) };
        keys.push(sink(&DualModel, logit, VALUE_DIM));
        let row = dense_row(&DualModel, &keys).expect("a sink is always seen");
        let outputs = row.output.iter().zip(&query.output_gradient);
        let of_output = outputs.map(|(o, d_o)| Rational::from(&o.derivative * d_o));
        of_output.fold(row.lse.derivative * &query.lse_gradient, |sum, term| sum + term)
    }
}

fn examples() -> impl Strategy<Value = Example> {
    let factors = (number(), number()).prop_map(|(dropout, slope)| Factors { dropout, slope });
    (sized_heads(1, KEYS), reference(), prop::collection::vec(factors, KEYS))
        .prop_map(|(head, logit, factors)| Example { head, logit, factors }.with_row())
}

proptest! {
    #![proptest_config(settings(
        "gradient_modified",
        "tests/proptest-regressions/gradient_modified.txt",
    ))]

    #[test]
    fn bias_gradients_are_derivatives(example in examples()) {
        for key in 0..KEYS {
            let gradient = example.pair(key).map_or_else(Rational::new, |pair| pair.score_gradient);
            prop_assert_eq!(gradient, example.derivative(Along::Score(key)));
        }
    }

    #[test]
    fn sink_gradients_are_derivatives(example in examples()) {
        let gradient = sink_gradient(&A, example.query(), &example.logit);
        prop_assert_eq!(gradient, example.derivative(Along::Sink));
    }

    #[test]
    fn value_gradients_carry_the_kept_weights(example in examples()) {
        for key in 0..KEYS {
            for (entry, d_o) in example.query().output_gradient.iter().enumerate() {
                let kept = example.pair(key).map_or_else(Rational::new, |it| it.kept_probability);
                prop_assert_eq!(kept * d_o, example.derivative(Along::Value { key, entry }));
            }
        }
    }

    /// By the chain rule; the slope itself is checked in `scores.rs`.
    #[test]
    fn products_take_the_slope_of_the_softcap(example in examples()) {
        for key in 0..KEYS {
            let Some(pair) = example.pair(key) else { continue };
            let slope = &example.factors[key].slope;
            prop_assert_eq!(pair.product_gradient, slope * example.derivative(Along::Score(key)));
        }
    }

    /// Every probability of the row, the sink's included, sums to one; so the gradients of all
    /// scores and of the logit sum to that of the LSE.
    #[test]
    fn gradients_of_scores_and_sink_sum_to_that_of_the_lse(example in examples()) {
        let scores = (0..KEYS).filter_map(|key| Some(example.pair(key)?.score_gradient));
        let sum = scores.fold(sink_gradient(&A, example.query(), &example.logit), |s, x| s + x);
        prop_assert_eq!(&sum, &example.query().lse_gradient);
    }
}

/// A row that sees no key gives its sink the whole gradient of the LSE.
#[test]
fn a_row_without_keys_passes_the_lse_gradient_to_its_sink() {
    let query = QueryOf::<ExactModel> {
        query: vec![],
        scores: vec![],
        row: dense_row(&A, &[sink(&A, Logarithm::from(4), 1)]),
        output_gradient: vec![Rational::from(9)],
        lse_gradient: Rational::from(7),
    };
    assert_eq!(sink_gradient(&A, &query, &Logarithm::from(4)), 7);
}
