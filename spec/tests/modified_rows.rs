//! Rows with sinks and dropout, exactly: where a sink is absorbed does not matter, how often it is
//! does; dropout leaves the normalizer alone.

mod support;

use flashproof_spec::arithmetic::{Arithmetic, ExactModel, Logarithm};
use flashproof_spec::attention::{blocks_row, dense_row, dropout, merge_splits, sink, tiled_row};
use flashproof_spec::online::{Key, Row};
use proptest::prelude::*;
use rug::Rational;
use support::{ExactKey, divide, keys, number, reference, settings, sizes};

const A: ExactModel = ExactModel;
const VALUE_DIM: usize = 2;

fn logit() -> impl Strategy<Value = Logarithm> {
    reference()
}

/// The keys with a sink among them.
fn with_sink(keys: &[ExactKey], logit: &Logarithm) -> Vec<ExactKey> {
    let mut all = keys.to_vec();
    all.push(sink(&A, logit.clone(), VALUE_DIM));
    all
}

/// `l`-weighted sums by hand: `sum w v / (sum w + w_sink)` with every weight against score 0.
fn by_hand(keys: &[ExactKey], logit: &Logarithm) -> Row<Logarithm, Rational> {
    let zero = Logarithm::from(0);
    let mut normalizer = A.weight(logit, &zero);
    let mut numerator = vec![Rational::new(); VALUE_DIM];
    for Key { score, value } in keys {
        let Some(score) = score else { continue };
        let weight = A.weight(score, &zero);
        normalizer += &weight;
        for (n, v) in numerator.iter_mut().zip(value) {
            *n += Rational::from(&weight * v);
        }
    }
    let output = numerator.into_iter().map(|n| n / &normalizer).collect();
    Row { output, lse: Logarithm::of(normalizer).expect("a positive sum") }
}

proptest! {
    #![proptest_config(settings("modified_rows", "tests/proptest-regressions/modified_rows.txt"))]

    #[test]
    fn a_sink_is_one_more_term_of_the_normalizer(keys in keys(VALUE_DIM), logit in logit()) {
        let row = dense_row(&A, &with_sink(&keys, &logit)).expect("a sink is always seen");
        prop_assert_eq!(row, by_hand(&keys, &logit));
    }

    #[test]
    fn a_sink_may_be_absorbed_anywhere(
        keys in keys(VALUE_DIM), logit in logit(), at in 0_usize..=20, sizes in sizes(),
    ) {
        let mut placed = keys.clone();
        placed.insert(at.min(keys.len()), sink(&A, logit.clone(), VALUE_DIM));
        let blocks = divide(&placed, &sizes);
        prop_assert_eq!(blocks_row(&A, blocks, VALUE_DIM), Some(by_hand(&keys, &logit)));
    }

    #[test]
    fn a_sink_belongs_to_one_split_only(
        keys in keys(VALUE_DIM), logit in logit(), sizes in sizes(),
    ) {
        let finish = |split: &[ExactKey]| dense_row(&A, split);
        let mut splits: Vec<_> = divide(&keys, &sizes).into_iter().map(finish).collect();
        let once = [&splits[..], &[finish(&[sink(&A, logit.clone(), VALUE_DIM)])]].concat();
        prop_assert_eq!(merge_splits(&A, once), Some(by_hand(&keys, &logit)));
        // Counted in two splits it weighs twice as much.
        let alone = finish(&[sink(&A, logit.clone(), VALUE_DIM)]);
        splits.extend([alone.clone(), alone]);
        let twice = merge_splits(&A, splits).expect("a sink is always seen");
        prop_assert_ne!(twice.lse, by_hand(&keys, &logit).lse);
    }

    #[test]
    fn dropout_changes_the_numerator_alone(
        keys in keys(VALUE_DIM), factors in prop::collection::vec(number(), 20),
        block in 1_usize..=7,
    ) {
        let dropped: Vec<_> = keys
            .iter()
            .zip(&factors)
            .map(|(key, factor)| dropout(&A, key.clone(), factor))
            .collect();
        let (plain, kept) = (dense_row(&A, &keys), dense_row(&A, &dropped));
        prop_assert_eq!(plain.as_ref().map(|row| &row.lse), kept.as_ref().map(|row| &row.lse));
        let block = block.try_into().expect("at least 1");
        prop_assert_eq!(&tiled_row(&A, &dropped, block, VALUE_DIM), &kept);
        let Some((plain, kept)) = plain.zip(kept) else { return Ok(()) };
        for (j, kept) in kept.output.iter().enumerate() {
            let mut sum = Rational::new();
            for (key, factor) in keys.iter().zip(&factors) {
                let Some(score) = &key.score else { continue };
                let p = A.weight(score, &plain.lse);
                sum += p * factor * &key.value[j];
            }
            prop_assert_eq!(&sum, kept);
        }
    }
}

#[test]
fn a_row_of_nothing_but_a_sink_has_output_zero_and_the_logit_as_lse() {
    let logit = Logarithm::from(3);
    let row = dense_row(&A, &with_sink(&[], &logit)).expect("a sink is always seen");
    assert_eq!(row, Row { output: vec![Rational::new(); VALUE_DIM], lse: logit });
}

/// With one key of equal score, the off-by-one softmax gives it one half.
#[test]
fn the_sink_zero_is_the_off_by_one_softmax() {
    let key = Key { score: Some(Logarithm::from(0)), value: vec![Rational::from(5); VALUE_DIM] };
    let row = dense_row(&A, &with_sink(&[key], &Logarithm::from(0))).expect("a row");
    assert_eq!(row.output, vec![Rational::from((5, 2)); VALUE_DIM]);
    assert_eq!(row.lse, Logarithm::from(1));
}
