//! Gradients computed by mpmath, as data: `data/gradient.json`, written by `data/gradient.py`.

#[path = "support/gradient.rs"]
mod gradient;
mod support;

use flashproof_oracle::backward::{Backward, ExpectedGradient, Options};
use flashproof_oracle::enclosure::Enclosure;
use flashproof_oracle::round::nearest;
use flashproof_spec::format::Format;
use flashproof_spec::problem::Problem;
use flashproof_spec::score::{Bias, Sink};
use flashproof_spec::tensor::{Cotangents, Inputs, Tensor};
use gradient::{GradientCase, all_bias_rows, all_keys, all_sinks};
use rug::Float;
use rug::ops::Pow;
use serde::Deserialize;
use support::inputs::all_rows;

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
    problem: Problem,
    lse_format: Format,
    query: Vec<String>,
    key: Vec<String>,
    value: Vec<String>,
    bias: Option<Vec<String>>,
    sink: Option<Vec<String>>,
    output_gradient: Vec<String>,
    lse_gradient: Option<Vec<String>>,
    d_query: Vec<String>,
    d_key: Vec<String>,
    d_value: Vec<String>,
    #[serde(default)]
    d_bias: Vec<String>,
    #[serde(default)]
    d_sink: Vec<String>,
}

fn golden() -> Golden {
    let golden: Golden =
        serde_json::from_str(include_str!("data/gradient.json")).expect("the data file parses");
    assert!(!golden.cases.is_empty());
    golden
}

/// The tensor of these numbers, which its format has exactly.
fn tensor(format: Format, shape: &[usize], texts: &[String]) -> Tensor {
    let values: Vec<f64> = texts.iter().map(|text| text.parse().expect("a number")).collect();
    assert!(values.iter().all(|&value| format.represents(value)));
    gradient::tensor(format, shape, values)
}

fn case(golden: &GoldenCase) -> GradientCase {
    let problem = golden.problem.clone();
    let format = problem.format;
    let lse = golden.lse_gradient.as_ref();
    let bias = problem.bias.map(|Bias { shape, format }| {
        tensor(format, &shape, golden.bias.as_ref().expect("entries of the bias"))
    });
    let sink = golden.sink.as_ref().map(|sink| {
        tensor(sink_format(&problem).expect("a problem with sinks"), &problem.sink_shape(), sink)
    });
    GradientCase {
        inputs: Inputs {
            query: tensor(format, &problem.query_shape(), &golden.query),
            key: tensor(format, &problem.key_shape(), &golden.key),
            value: tensor(format, &problem.value_shape(), &golden.value),
            bias,
            sink,
            descale: None,
        },
        cotangents: Cotangents {
            output: tensor(format, &problem.output_shape(), &golden.output_gradient),
            lse: lse.map(|lse| tensor(golden.lse_format, &problem.lse_shape(), lse)),
        },
        lse_format: golden.lse_format,
        problem,
    }
}

/// The format of the logits of sinks; `None` where there are none.
fn sink_format(problem: &Problem) -> Option<Format> {
    match problem.sink {
        Some(Sink::Logits(format)) => Some(format),
        None | Some(Sink::Zero) => None,
    }
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

fn are_zero<'t>(mut texts: impl Iterator<Item = &'t String>) -> bool {
    texts.all(|text| printed(text, 1).0.is_zero())
}

/// The gradients of all entries of each input, with the format they are rounded to.
fn gradients(case: &GradientCase) -> [(Vec<ExpectedGradient>, Format); 5] {
    let GradientCase { problem, inputs, cotangents, lse_format } = case;
    let backward = Backward::new(problem, inputs, cotangents, Options::new(*lse_format))
        .expect("a problem with its inputs");
    let queries = backward.query_gradient_rows(&all_rows(problem), || ()).expect("rows");
    let keys = backward.key_gradient_rows(&all_keys(problem), || ()).expect("keys");
    let bias = backward.bias_gradient_rows(&all_bias_rows(problem), || ()).expect("rows");
    let sinks = backward.sink_gradients(&all_sinks(problem), || ()).expect("heads");
    [
        (queries.into_iter().flat_map(|row| row.query).collect(), problem.format),
        (keys.iter().flat_map(|row| &row.key).cloned().collect(), problem.format),
        (keys.into_iter().flat_map(|row| row.value).collect(), problem.format),
        (
            bias.into_iter().flat_map(|row| row.bias).collect(),
            problem.bias.map_or(problem.format, |bias| bias.format),
        ),
        (
            sinks.into_iter().map(|sink| sink.sink).collect(),
            sink_format(problem).unwrap_or(problem.format),
        ),
    ]
}

#[test]
fn gradients_agree_with_mpmath() {
    let Golden { digits, cases } = golden();
    for golden in &cases {
        let texts =
            [&golden.d_query, &golden.d_key, &golden.d_value, &golden.d_bias, &golden.d_sink];
        for ((gradient, format), texts) in gradients(&case(golden)).into_iter().zip(texts) {
            assert_eq!(gradient.len(), texts.len(), "{}", golden.name);
            for (entry, text) in gradient.iter().zip(texts) {
                let ExpectedGradient::Exact(entry) = entry else { panic!("{}", golden.name) };
                let (value, interval) = printed(text, digits);
                let name = &golden.name;
                assert!(entry.enclosure.intersects(&interval), "{name}: {entry:?} misses {text}");
                assert_eq!(entry.rounded, Some(nearest(&value, format)), "{name}: {text}");
            }
        }
    }
}

#[test]
fn enclosures_at_many_bits_agree_with_every_digit() {
    let Golden { digits, cases } = golden();
    let assert_meet = |enclosures: &[Enclosure], texts: &[String], name: &str| {
        assert_eq!(enclosures.len(), texts.len(), "{name}");
        for (enclosure, text) in enclosures.iter().zip(texts) {
            let (_, interval) = printed(text, digits);
            assert!(enclosure.intersects(&interval), "{name}: {enclosure:?} misses {text}");
        }
    };
    for golden in &cases {
        let (case, name) = (case(golden), &golden.name);
        let (backward, problem) = (case.backward(), &case.problem);
        let Problem { head_dim, value_dim, .. } = *problem;
        let rows = all_rows(problem).into_iter().zip(golden.d_query.chunks(head_dim));
        for (index, texts) in rows {
            match backward.enclose_query_gradient(index, PRECISION).expect("a row") {
                Some(row) => assert_meet(&row, texts, name),
                None => assert!(are_zero(texts.iter()), "{name}: {texts:?}"),
            }
        }
        let (d_key, d_value) = (golden.d_key.chunks(head_dim), golden.d_value.chunks(value_dim));
        for (index, (key, value)) in all_keys(problem).into_iter().zip(d_key.zip(d_value)) {
            if let Some(row) = backward.enclose_key_gradient(index, PRECISION).expect("a key") {
                assert_meet(&row.key, key, name);
                assert_meet(&row.value, value, name);
            } else {
                assert!(are_zero(key.iter().chain(value)), "{name}: {key:?} {value:?}");
            }
        }
        let bias = all_bias_rows(problem).into_iter().flat_map(|index| {
            backward.enclose_bias_gradient(index, PRECISION).expect("a row").expect("numbers")
        });
        assert_meet(&bias.collect::<Vec<_>>(), &golden.d_bias, name);
        let sinks = all_sinks(problem).into_iter().map(|head| {
            backward.enclose_sink_gradient(head, PRECISION).expect("a head").expect("a number")
        });
        assert_meet(&sinks.collect::<Vec<_>>(), &golden.d_sink, name);
    }
}
