//! Rows worked out by hand, as data: `data/golden-rows.json`.

mod support;

use flashproof_spec::arithmetic::{ExactModel, Logarithm};
use flashproof_spec::attention::dense_row;
use flashproof_spec::online::{Row, State, absorb, finish, start};
use rug::Rational;
use serde::Deserialize;
use support::ExactKey;

const A: ExactModel = ExactModel;

#[derive(Deserialize)]
struct Golden {
    rows: Vec<GoldenRow>,
}

#[derive(Deserialize)]
struct GoldenRow {
    name: String,
    blocks: Vec<Vec<(Option<i16>, Vec<i32>)>>,
    reference: i16,
    normalizer: String,
    numerator: Vec<String>,
    output: Vec<String>,
    lse_exponential: String,
}

fn golden_rows() -> Vec<GoldenRow> {
    let golden: Golden =
        serde_json::from_str(include_str!("data/golden-rows.json")).expect("the data file parses");
    assert!(!golden.rows.is_empty());
    golden.rows
}

fn fraction(text: &str) -> Rational {
    text.parse().expect("a fraction")
}

fn fractions(texts: &[String]) -> Vec<Rational> {
    texts.iter().map(|text| fraction(text)).collect()
}

fn blocks(row: &GoldenRow) -> Vec<Vec<ExactKey>> {
    let key = |(score, value): &(Option<i16>, Vec<i32>)| ExactKey {
        score: score.map(Logarithm::from),
        value: value.iter().map(|&entry| Rational::from(entry)).collect(),
    };
    row.blocks.iter().map(|block| block.iter().map(key).collect()).collect()
}

#[test]
fn recurrence_reproduces_the_golden_rows() {
    for row in golden_rows() {
        let value_dim = row.numerator.len();
        let state =
            blocks(&row).iter().fold(start(&A, value_dim), |state, block| absorb(&A, state, block));
        let expected = State {
            reference: Some(Logarithm::from(row.reference)),
            normalizer: fraction(&row.normalizer),
            numerator: fractions(&row.numerator),
        };
        assert_eq!(state, expected, "{}", row.name);
    }
}

#[test]
fn finished_and_dense_rows_are_the_golden_rows() {
    for row in golden_rows() {
        let blocks = blocks(&row);
        let state = blocks
            .iter()
            .fold(start(&A, row.numerator.len()), |state, block| absorb(&A, state, block));
        let expected = Some(Row {
            output: fractions(&row.output),
            lse: Logarithm::of(fraction(&row.lse_exponential)).expect("positive"),
        });
        assert_eq!(finish(&A, &state), expected, "{}", row.name);
        assert_eq!(dense_row(&A, &blocks.concat()), expected, "{}", row.name);
    }
}
