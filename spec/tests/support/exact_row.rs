//! What is exact of one row, and what the forward bounds need of it.
#![allow(dead_code)] // each test program uses a part of it

use flashproof_spec::bound::{RowCondition, SinkCondition};
use flashproof_spec::problem::Problem;
use flashproof_spec::score::{Softcap, SoftcapOrder};
use ndarray::Array2;
use rug::Float;
use rug::float::Round;

use super::simulated_forward::{Inputs, KeyValue, exact_scale, site};

/// Enough for a score of 1 beside the lowest number of `f64`.
const BITS: u32 = 1300;

fn exact(x: f64) -> Float {
    Float::with_val(BITS, x)
}

/// `|x|` from above; a positive number even where it is below the range of `f64`.
fn hi(x: &Float) -> f64 {
    x.clone().abs().to_f64_round(Round::Up)
}

fn lo(x: &Float) -> f64 {
    x.to_f64_round(Round::Down)
}

/// `e^(-gap)`, and at least the smallest number that the type holds.
fn power(gap: &Float) -> Float {
    /// Weights below `e^-LEAST` count as that much: far below anything that they are added to.
    const LEAST: f64 = 1e6;
    Float::with_val(BITS, -gap.clone().min(&exact(LEAST))).exp()
}

/// The parts of one score.
struct Score {
    product: Float,
    mass: Float,
    addend_magnitude: Float,
    cap_argument: Float,
    total: Float,
}

impl Score {
    fn new(problem: &Problem, query: &[f64], position: usize, key: &KeyValue) -> Self {
        let scale = Float::with_val(BITS, exact_scale(problem));
        let products: Vec<Float> =
            query.iter().zip(&key.key).map(|(&q, &k)| exact(q) * k * &scale).collect();
        let product = products.iter().fold(exact(0.0), |sum, x| sum + x);
        let mass = products.into_iter().fold(exact(0.0), |sum, x| sum + x.abs());
        let bias = exact(if problem.bias.is_some() { key.bias } else { 0.0 });
        let alibi = exact(problem.alibi_at(site(position)));
        let addend_magnitude = bias.clone().abs() + alibi.clone().abs();
        let addend = bias + alibi;
        let (total, cap_argument) = match problem.softcap {
            None => (product.clone() + addend, exact(0.0)),
            Some(Softcap { cap, order: SoftcapOrder::BeforeBias }) => {
                let argument = product.clone() / cap;
                (argument.clone().tanh() * cap + addend, argument)
            }
            Some(Softcap { cap, order: SoftcapOrder::AfterBias }) => {
                let argument = (product.clone() + addend) / cap;
                (argument.clone().tanh() * cap, argument)
            }
        };
        Self { product, mass, addend_magnitude, cap_argument, total }
    }
}

/// What is exact of one row.
pub struct ExactRow {
    pub condition: RowCondition,
    /// Multiplied by the factors of dropout.
    pub values: Array2<f64>,
    /// Outputs, then the LSE.
    pub row: Vec<Float>,
}

impl ExactRow {
    pub fn new(problem: &Problem, inputs: &Inputs) -> Self {
        let keys: Vec<(usize, &KeyValue)> = inputs
            .keys
            .iter()
            .enumerate()
            .filter_map(|(position, key)| Some((position, key.as_ref()?)))
            .collect();
        let scores: Vec<Score> = keys
            .iter()
            .map(|(position, key)| Score::new(problem, &inputs.query, *position, key))
            .collect();
        let greatest = |scores: &mut dyn Iterator<Item = Float>| {
            scores.max_by(Float::total_cmp).expect("a visible key")
        };
        let key_max = greatest(&mut scores.iter().map(|score| score.total.clone()));
        let sink = inputs.sink.map(exact);
        let m = greatest(&mut sink.iter().cloned().chain([key_max.clone()]));
        let gaps: Vec<Float> =
            scores.iter().map(|score| Float::with_val(BITS, &m - &score.total)).collect();
        let sink_gap = sink.as_ref().map(|logit| Float::with_val(BITS, &m - logit));
        let l = gaps.iter().chain(&sink_gap).fold(exact(0.0), |sum, gap| sum + power(gap));
        let probability = |gap: &Float| power(gap) / &l;
        let p: Vec<Float> = gaps.iter().map(probability).collect();
        let lse = Float::with_val(BITS, l.ln_ref()) + &m;
        let values: Vec<f64> = keys
            .iter()
            .flat_map(|(position, key)| {
                let factor = problem.dropout_at(site(*position));
                key.value.iter().map(move |value| value * factor)
            })
            .collect();
        let values = Array2::from_shape_vec((keys.len(), problem.value_dim), values)
            .expect("value rows of one length");
        let output: Vec<Float> = values
            .columns()
            .into_iter()
            .map(|column| column.iter().zip(&p).fold(exact(0.0), |sum, (&v, p)| sum + exact(v) * p))
            .collect();
        let sink = sink.zip(sink_gap).map(|(logit, gap)| {
            let key_gap = Float::with_val(BITS, &logit - &key_max);
            let p = probability(&gap);
            SinkCondition {
                logit: logit.to_f64(),
                gap_lo: lo(&gap),
                gap_hi: hi(&gap),
                key_gap_hi: hi(&key_gap),
                probability_lo: lo(&p),
                probability_hi: hi(&p),
            }
        });
        let of = |part: fn(&Score) -> &Float| scores.iter().map(|score| hi(part(score))).collect();
        let condition = RowCondition {
            gap_lo: gaps.iter().map(lo).collect(),
            gap_hi: gaps.iter().map(hi).collect(),
            product_magnitude_hi: of(|score| &score.product),
            addend_magnitude_hi: of(|score| &score.addend_magnitude),
            cap_argument_lo: scores
                .iter()
                .map(|score| lo(&score.cap_argument.clone().abs()))
                .collect(),
            score_magnitude_hi: of(|score| &score.total),
            dot_mass_hi: of(|score| &score.mass),
            probability_lo: p.iter().map(lo).collect(),
            probability_hi: p.iter().map(hi).collect(),
            max_magnitude_hi: hi(&m),
            normalizer_lo: lo(&l),
            normalizer_hi: hi(&l),
            lse_magnitude_hi: hi(&lse),
            output_lo: output.iter().map(lo).collect(),
            output_hi: output.iter().map(|o| o.to_f64_round(Round::Up)).collect(),
            sink,
            product_unit_hi: 1.0,
            value_unit_hi: 1.0,
        };
        Self { condition, values, row: output.into_iter().chain([lse]).collect() }
    }
}
