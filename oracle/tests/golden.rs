//! Rows computed by mpmath, as data: `data/golden.json`, written by `data/golden.py`.

mod support;

use flashproof_oracle::enclosure::Enclosure;
use flashproof_oracle::forward::{Options, Oracle};
use flashproof_oracle::round::nearest;
use flashproof_oracle::row::{Exact, Expected};
use flashproof_spec::format::Format;
use flashproof_spec::problem::Scale;
use rug::Float;
use rug::ops::Pow;
use serde::Deserialize;
use support::inputs::{Case, ONLY_ROW, one_query};

/// Bits in which the decimal strings are read: a few more than their digits have.
const PRECISION: u32 = 200;

#[derive(Deserialize)]
struct Golden {
    digits: u32,
    cases: Vec<GoldenCase>,
}

#[derive(Deserialize)]
struct GoldenCase {
    name: String,
    format: Format,
    scale: String,
    query: Vec<String>,
    keys: Vec<Vec<String>>,
    values: Vec<Vec<String>>,
    output: Vec<String>,
    lse: String,
}

fn golden() -> Golden {
    let golden: Golden =
        serde_json::from_str(include_str!("data/golden.json")).expect("the data file parses");
    assert!(!golden.cases.is_empty());
    golden
}

fn numbers(texts: &[String]) -> Vec<f64> {
    texts.iter().map(|text| text.parse().expect("a number")).collect()
}

fn case(golden: &GoldenCase) -> Case {
    let rows = |rows: &[Vec<String>]| rows.iter().map(|row| numbers(row)).collect::<Vec<_>>();
    let query = numbers(&golden.query);
    let mut case = one_query(golden.format, &query, &rows(&golden.keys), &rows(&golden.values));
    if let Ok(scale) = golden.scale.parse() {
        case.problem.scale = Scale::Value(scale);
    } else {
        assert_eq!(golden.scale, "inverse-sqrt-head-dim");
    }
    case
}

/// The number that mpmath rounded to so many digits, and that number's rounding error.
fn printed(text: &str, digits: u32) -> (Float, Enclosure) {
    let value = Float::with_val(PRECISION, Float::parse(text).expect("a number"));
    let unit = Float::with_val(PRECISION, 10).pow(digits - 1).recip();
    let error = Float::with_val(PRECISION, &*value.as_abs() * unit);
    let lo = Float::with_val(PRECISION, &value - &error);
    let hi = Float::with_val(PRECISION, &value + &error);
    (value, Enclosure::new(lo, hi))
}

fn assert_is(name: &str, exact: &Exact, text: &str, digits: u32, format: Format) {
    let (value, interval) = printed(text, digits);
    assert!(exact.enclosure.intersects(&interval), "{name}: {:?} misses {text}", exact.enclosure);
    assert_eq!(exact.rounded, Some(nearest(&value, format)), "{name}: {text} in {format}");
}

#[test]
fn rows_agree_with_mpmath() {
    let Golden { digits, cases } = golden();
    for golden in &cases {
        let Case { problem, inputs } = case(golden);
        for lse_format in [Format::F32, Format::F64] {
            let oracle =
                Oracle::new(&problem, &inputs, Options::new(lse_format)).expect("a problem");
            let row = oracle.row(ONLY_ROW).expect("a row");
            assert_eq!(row.outputs.len(), golden.output.len());
            for (output, text) in row.outputs.iter().zip(&golden.output) {
                let Expected::Exact(output) = output else { panic!("{}: {output:?}", golden.name) };
                assert_is(&golden.name, output, text, digits, golden.format);
            }
            let Expected::Exact(lse) = &row.lse else { panic!("{}: {:?}", golden.name, row.lse) };
            assert_is(&golden.name, lse, &golden.lse, digits, lse_format);
        }
    }
}

#[test]
fn enclosures_at_many_bits_agree_with_every_digit() {
    let Golden { digits, cases } = golden();
    for golden in &cases {
        let Case { problem, inputs } = case(golden);
        let oracle = Oracle::new(&problem, &inputs, Options::new(Format::F64)).expect("a problem");
        let row = oracle.enclose_row(ONLY_ROW, PRECISION).expect("a row").expect("numbers");
        let texts = golden.output.iter().chain([&golden.lse]);
        for (enclosure, text) in row.outputs.iter().chain([&row.lse]).zip(texts) {
            let (_, interval) = printed(text, digits);
            assert!(
                enclosure.intersects(&interval),
                "{}: {enclosure:?} misses {text}",
                golden.name
            );
        }
    }
}
