//! Rows computed by others, as data: `data/golden.json`, written by `data/golden.py` with mpmath, and
//! `data/modified.json`, written by `data/modified.py` with Python's decimal arithmetic.

mod support;

use flashproof_oracle::double_double;
use flashproof_oracle::enclosure::Enclosure;
use flashproof_oracle::forward::{Options, Oracle};
use flashproof_oracle::round::nearest;
use flashproof_oracle::row::{Exact, Expected};
use flashproof_spec::format::Format;
use flashproof_spec::mask::Alignment;
use flashproof_spec::pattern::Pattern;
use flashproof_spec::problem::Scale;
use flashproof_spec::score::{Alibi, Bias, Dropout, Sink, Slopes, Softcap, SoftcapOrder};
use rug::Float;
use rug::ops::Pow;
use serde::Deserialize;
use support::inputs::{Case, ONLY_ROW, one_query, tensor};

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
    bias: Option<Vec<String>>,
    bias_format: Option<Format>,
    slope: Option<String>,
    cap: Option<String>,
    order: Option<SoftcapOrder>,
    sink: Option<String>,
    sink_format: Option<Format>,
    dropout: Option<String>,
    keep: Option<Vec<bool>>,
}

fn read(text: &str) -> Golden {
    let golden: Golden = serde_json::from_str(text).expect("the data file parses");
    assert!(!golden.cases.is_empty());
    golden
}

fn golden() -> Golden {
    read(include_str!("data/golden.json"))
}

fn modified() -> Golden {
    read(include_str!("data/modified.json"))
}

fn number(text: &str) -> f64 {
    text.parse().expect("a number")
}

fn numbers(texts: &[String]) -> Vec<f64> {
    texts.iter().map(|text| number(text)).collect()
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
    modify(&mut case, golden);
    case
}

/// Gives the case the score modifications that the data names.
fn modify(case: &mut Case, golden: &GoldenCase) {
    let Case { problem, inputs } = case;
    if let (Some(bias), Some(format)) = (&golden.bias, golden.bias_format) {
        let shape = [1, 1, 1, bias.len()];
        problem.bias = Some(Bias { shape, format });
        inputs.bias = Some(tensor(format, &shape, numbers(bias)));
    }
    problem.alibi = golden.slope.as_deref().map(|slope| Alibi {
        slopes: Slopes::Given(vec![number(slope)]),
        alignment: Alignment::BottomRight,
    });
    problem.softcap = golden
        .cap
        .as_deref()
        .map(|cap| Softcap { cap: number(cap), order: golden.order.expect("an order with a cap") });
    if let (Some(sink), Some(format)) = (&golden.sink, golden.sink_format) {
        problem.sink = Some(Sink::Logits(format));
        inputs.sink = Some(tensor(format, &[1], vec![number(sink)]));
    }
    problem.dropout = golden.dropout.as_deref().map(|scale| {
        let keep = golden.keep.clone().expect("a keep mask with dropout");
        let keep = Pattern::new([1, 1, 1, keep.len()], keep).expect("one a key");
        Dropout { scale: number(scale), keep }
    });
}

/// The number that was rounded to so many digits, and that number's rounding error.
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

/// Holds every row to the data, rounded to each of these formats of LSEs.
fn assert_rows_agree(Golden { digits, cases }: &Golden) {
    for golden in cases {
        let Case { problem, inputs } = case(golden);
        for lse_format in [Format::F32, Format::F64] {
            let oracle =
                Oracle::new(&problem, &inputs, Options::new(lse_format)).expect("a problem");
            let row = oracle.row(ONLY_ROW).expect("a row");
            assert_eq!(row.outputs.len(), golden.output.len());
            for (output, text) in row.outputs.iter().zip(&golden.output) {
                let Expected::Exact(output) = output else { panic!("{}: {output:?}", golden.name) };
                assert_is(&golden.name, output, text, *digits, golden.format);
            }
            let Expected::Exact(lse) = &row.lse else { panic!("{}: {:?}", golden.name, row.lse) };
            assert_is(&golden.name, lse, &golden.lse, *digits, lse_format);
        }
    }
}

/// Holds the enclosures of every row, at many bits, to the data.
fn assert_enclosures_agree(Golden { digits, cases }: &Golden) {
    for golden in cases {
        let Case { problem, inputs } = case(golden);
        let oracle = Oracle::new(&problem, &inputs, Options::new(Format::F64)).expect("a problem");
        let row = oracle.enclose_row(ONLY_ROW, PRECISION).expect("a row").expect("numbers");
        let second = double_double::enclose_row(&problem, &inputs, ONLY_ROW).expect("a row");
        let texts = || golden.output.iter().chain([&golden.lse]);
        for row in [Some(row), second].into_iter().flatten() {
            for (enclosure, text) in row.outputs.iter().chain([&row.lse]).zip(texts()) {
                let (_, interval) = printed(text, *digits);
                assert!(
                    enclosure.intersects(&interval),
                    "{}: {enclosure:?} misses {text}",
                    golden.name
                );
            }
        }
    }
}

#[test]
fn rows_agree_with_mpmath() {
    assert_rows_agree(&golden());
}

#[test]
fn enclosures_at_many_bits_agree_with_every_digit() {
    assert_enclosures_agree(&golden());
}

#[test]
fn modified_rows_agree_with_decimal_arithmetic() {
    assert_rows_agree(&modified());
    assert_enclosures_agree(&modified());
}
