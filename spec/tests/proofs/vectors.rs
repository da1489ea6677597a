//! Rows that Coq computed in the exact model, which the Rust exact model reproduces with `==`.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use flashproof_spec::arithmetic::{ExactModel, Logarithm};
use flashproof_spec::attention::{blocks_row, dense_row, merge_splits};
use flashproof_spec::gradient::{Head, KeyValue, Query, attention_gradient, row_pairs};
use flashproof_spec::online::{Key, KeyOf, RowOf, State, StateOf, absorb, finish, merge, start};
use rug::{Integer, Rational};
use serde::Deserialize;

use crate::coq::{self, Workshop};

const A: ExactModel = ExactModel;
/// Entries of each value row.
const VALUE_DIM: usize = 2;

/// What `proofs/Vectors.v` prints; every number a string, a rational its numerator and denominator.
#[derive(Deserialize)]
struct Vectors {
    /// Of each row its blocks, of each block its keys: whether seen, score, value.
    rows: Vec<Vec<Vec<Vec<String>>>>,
    /// Whether there is a reference, the reference, normalizer, numerator.
    states: Vec<Vec<Vec<String>>>,
    /// Output and `2^L`; nothing for a row without keys.
    outputs: Vec<Vec<Vec<String>>>,
    /// The same of each block by itself.
    parts: Vec<Vec<Vec<Vec<String>>>>,
    /// Query, upstream gradients of output and LSE, scale, and of each key: whether seen, score, key,
    /// value.
    gradient_rows: Vec<Vec<Vec<String>>>,
    /// Output and `2^L`; `dS`; `dQ`; and `dK` and `dV` of each key.
    gradients: Vec<Vec<Vec<Vec<String>>>>,
}

fn committed() -> String {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/proved-vectors.json");
    fs::read_to_string(file).unwrap_or_default()
}

fn vectors() -> Vectors {
    serde_json::from_str(&committed()).expect("the data file parses")
}

#[test]
fn the_vectors_are_those_that_coq_computes() {
    if !coq::is_installed("the_vectors_are_those_that_coq_computes") {
        return;
    }
    let workshop = Workshop::new(|_, text| text);
    workshop.compile("Exact.v").expect("the exact model compiles");
    let printed = workshop.compile("Vectors.v").expect("the vectors compile");
    let computed = as_json(&printed);
    if computed != committed() {
        let new = Path::new(env!("CARGO_TARGET_TMPDIR")).join("proved-vectors.json");
        fs::write(&new, &computed).expect("a writable folder for temporary files");
        panic!("spec/tests/data/proved-vectors.json is stale: Coq computes {}", new.display());
    }
}

/// What Coq printed, as JSON: `[1; 2]` becomes `["1","2"]`.
fn as_json(printed: &str) -> String {
    let fields: Vec<_> = printed
        .split("@@ ")
        .skip(1)
        .map(|piece| {
            let (name, rest) = piece.split_once('\n').expect("a name on a line of its own");
            let value = rest.split_once("= ").expect("a value").1;
            let value = value.split_once("\n     :").expect("a type after the value").0;
            format!("\"{name}\": {}", quoted(value))
        })
        .collect();
    format!("{{\n{}\n}}\n", fields.join(",\n"))
}

fn quoted(value: &str) -> String {
    let is_digit = |c: char| c.is_ascii_digit() || c == '-';
    let mut json = String::new();
    let mut rest = value;
    while let Some(next) = rest.chars().next() {
        let length = rest.find(|c| !is_digit(c)).unwrap_or(rest.len());
        if length > 0 {
            let _ = write!(json, "\"{}\"", &rest[..length]);
            rest = &rest[length..];
        } else {
            json.push(if next == ';' { ',' } else { next });
            rest = &rest[next.len_utf8()..];
        }
    }
    json
}

fn rational(fraction: &[String]) -> Rational {
    let [numerator, denominator] = fraction else { panic!("no fraction: {fraction:?}") };
    let whole = |text: &String| text.parse::<Integer>().expect("a whole number");
    Rational::from((whole(numerator), whole(denominator)))
}

fn whole(text: &str) -> Rational {
    Rational::from(text.parse::<Integer>().expect("a whole number"))
}

fn score(seen: &str, score: &str) -> Option<Logarithm> {
    (seen == "1").then(|| Logarithm::from(score.parse::<i16>().expect("a score")))
}

fn key(fields: &[String]) -> KeyOf<ExactModel> {
    let value = fields[2..].iter().map(|entry| whole(entry)).collect();
    Key { score: score(&fields[0], &fields[1]), value }
}

fn blocks(row: &[Vec<Vec<String>>]) -> Vec<Vec<KeyOf<ExactModel>>> {
    row.iter().map(|block| block.iter().map(|fields| key(fields)).collect()).collect()
}

fn state(fields: &[Vec<String>]) -> StateOf<ExactModel> {
    State {
        reference: score(&fields[0][0], &fields[1][0]),
        normalizer: rational(&fields[2]),
        numerator: fields[3..].iter().map(|it| rational(it)).collect(),
    }
}

fn row(fields: &[Vec<String>]) -> Option<RowOf<ExactModel>> {
    let (mass, output) = fields.split_last()?;
    let lse = Logarithm::of(rational(mass)).expect("a positive mass");
    Some(RowOf::<ExactModel> { output: output.iter().map(|it| rational(it)).collect(), lse })
}

#[test]
fn absorbing_blocks_reproduces_what_coq_computed() {
    let vectors = vectors();
    assert!(!vectors.rows.is_empty());
    for (index, blocks_) in vectors.rows.iter().enumerate() {
        let blocks = blocks(blocks_);
        let absorbed = blocks.iter().fold(start(&A, VALUE_DIM), |s, block| absorb(&A, s, block));
        assert_eq!(absorbed, state(&vectors.states[index]));
        assert_eq!(finish(&A, &absorbed), row(&vectors.outputs[index]));
        let slices = blocks.iter().map(Vec::as_slice);
        assert_eq!(blocks_row(&A, slices, VALUE_DIM), row(&vectors.outputs[index]));
    }
}

#[test]
fn merging_in_pairs_reproduces_what_coq_computed() {
    let vectors = vectors();
    for (blocks_, expected) in vectors.rows.iter().zip(&vectors.states) {
        let of_block = |block: &Vec<_>| absorb(&A, start(&A, VALUE_DIM), block);
        let mut states: Vec<_> = blocks(blocks_).iter().map(of_block).collect();
        while states.len() > 1 {
            let pair = |pair: &[StateOf<ExactModel>]| match pair {
                [left, right] => merge(&A, left.clone(), right.clone()),
                _ => pair[0].clone(),
            };
            states = states.chunks(2).map(pair).collect();
        }
        assert_eq!(states, [state(expected)]);
    }
}

#[test]
fn merging_finished_parts_reproduces_what_coq_computed() {
    let vectors = vectors();
    for (index, blocks_) in vectors.rows.iter().enumerate() {
        let parts: Vec<_> = blocks(blocks_).iter().map(|block| dense_row(&A, block)).collect();
        let expected: Vec<_> = vectors.parts[index].iter().map(|it| row(it)).collect();
        assert_eq!(parts, expected);
        assert_eq!(merge_splits(&A, parts), row(&vectors.outputs[index]));
    }
}

#[test]
fn gradients_reproduce_what_coq_computed() {
    let vectors = vectors();
    assert!(!vectors.gradient_rows.is_empty());
    for (posed, expected) in vectors.gradient_rows.iter().zip(&vectors.gradients) {
        let numbers = |fields: &[String]| fields.iter().map(|it| whole(it)).collect::<Vec<_>>();
        let pairs = &posed[4..];
        let keys: Vec<KeyValue<Rational>> = pairs
            .iter()
            .map(|it| KeyValue { key: numbers(&it[2..4]), value: numbers(&it[4..]) })
            .collect();
        let of_row = row(&expected[0]);
        let query = Query {
            query: numbers(&posed[0]),
            scores: pairs.iter().map(|it| score(&it[0], &it[1])).collect(),
            row: of_row.clone(),
            output_gradient: numbers(&posed[1]),
            lse_gradient: whole(&posed[2][0]),
        };
        let forward: Vec<_> = query
            .scores
            .iter()
            .zip(&keys)
            .map(|(score, key)| Key { score: score.clone(), value: key.value.clone() })
            .collect();
        assert_eq!(dense_row(&A, &forward), of_row);

        let of_pairs = row_pairs(&A, &query, &keys);
        let score_gradients: Vec<_> = of_pairs
            .into_iter()
            .map(|pair| pair.map_or_else(Rational::new, |pair| pair.score_gradient))
            .collect();
        let fractions = |it: &[Vec<String>]| it.iter().map(|it| rational(it)).collect::<Vec<_>>();
        assert_eq!(score_gradients, fractions(&expected[1]));

        let head = Head { scale: whole(&posed[3][0]), queries: vec![query], keys };
        let gradient = attention_gradient(&A, &head);
        assert_eq!(gradient.query, [fractions(&expected[2])]);
        for (of_key, expected) in gradient.keys.iter().zip(&expected[3..]) {
            assert_eq!([&of_key.key[..], &of_key.value[..]].concat(), fractions(expected));
        }
    }
}

#[test]
fn every_kind_of_row_is_among_the_vectors() {
    let vectors = vectors();
    let kinds: BTreeMap<bool, usize> =
        vectors.outputs.iter().fold(BTreeMap::new(), |mut kinds, output| {
            *kinds.entry(output.is_empty()).or_default() += 1;
            kinds
        });
    assert!(kinds.len() == 2, "rows with and without keys: {kinds:?}");
    assert!(vectors.rows.iter().flatten().any(Vec::is_empty), "an empty block");
}
