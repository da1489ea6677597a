//! The definition of attention, evaluated by brute force: the specification's executable clause in
//! so many bits that its rounding errors are far below anything that is compared with it.

use flashproof_oracle::enclosure::Enclosure;
use flashproof_spec::arithmetic::{Arithmetic, Mpfr};
use flashproof_spec::attention::dense_row;
use flashproof_spec::mask::Site;
use flashproof_spec::online::Key;
use flashproof_spec::problem::{Problem, Scale};
use flashproof_spec::score::{Addends, Softcap, SoftcapOrder};
use flashproof_spec::tensor::Inputs;
use rug::{Float, Rational};

use super::inputs::Case;

/// Bits of the evaluation: above the 4,300 or so over which the products of four `f64` can spread.
const PRECISION: u32 = 6000;

/// Bits of an answer that are certain: those that sums of a few terms can not have cancelled, down
/// to the finest number that a comparison asks for.
const CERTAIN: u32 = 1200;

/// Output and LSE of the only query.
#[derive(Debug)]
pub struct Definition {
    pub output: Vec<Float>,
    pub lse: Float,
    /// The score of each visible key.
    pub scores: Vec<Float>,
    /// The score of the sink.
    pub sink: Option<Float>,
}

/// Evaluates the definition on the keys that the only query of the case sees. A sink is one more key, whose
/// value is zero; dropout multiplies values, as it multiplies weights.
pub fn evaluate(case: &Case) -> Definition {
    let Case { problem, inputs } = case;
    let arithmetic = Mpfr::new(PRECISION).expect("a precision that MPFR has");
    let visible = inputs.visible_keys(problem, 0, 0, 0);
    let scores: Vec<Float> = visible.iter().map(|&key| score(arithmetic, case, key)).collect();
    let value = inputs.value.view4();
    let mut keys: Vec<_> = visible
        .iter()
        .zip(&scores)
        .map(|(&key, score)| Key {
            score: Some(score.clone()),
            value: (0..problem.value_dim)
                .map(|column| {
                    let factor = arithmetic.number(problem.dropout_at(site(key)));
                    arithmetic.mul(&factor, &arithmetic.number(value[[0, 0, key, column]]))
                })
                .collect(),
        })
        .collect();
    let sink = inputs.sink_at(problem, 0).map(|logit| arithmetic.number(logit));
    keys.extend(sink.iter().map(|logit| Key {
        score: Some(logit.clone()),
        value: vec![arithmetic.number(0.0); problem.value_dim],
    }));
    let row = dense_row(&arithmetic, &keys).expect("a visible key");
    Definition { output: row.output, lse: row.lse, scores, sink }
}

/// Where the only query meets a key.
fn site(key: usize) -> Site {
    Site { batch: 0, head: 0, query: 0, key }
}

/// The scaled dot product of the only query with a key.
pub fn scaled_product(case: &Case, key: usize) -> Float {
    let arithmetic = Mpfr::new(PRECISION).expect("a precision that MPFR has");
    scaled_dot(arithmetic, &case.problem, &case.inputs, key)
}

/// The score of a key, from a dot product in rational numbers.
fn score(arithmetic: Mpfr, case: &Case, key: usize) -> Float {
    let Case { problem, inputs } = case;
    let product = scaled_dot(arithmetic, problem, inputs, key);
    let Addends { bias, alibi } = inputs.addends_at(problem, site(key));
    let addend = arithmetic.add(&arithmetic.number(bias), &arithmetic.number(alibi));
    let capped = |score: Float, cap: f64| {
        let cap = arithmetic.number(cap);
        arithmetic.mul(&cap, &arithmetic.div(&score, &cap).tanh())
    };
    match problem.softcap {
        None => arithmetic.add(&product, &addend),
        Some(Softcap { cap, order: SoftcapOrder::BeforeBias }) => {
            arithmetic.add(&capped(product, cap), &addend)
        }
        Some(Softcap { cap, order: SoftcapOrder::AfterBias }) => {
            capped(arithmetic.add(&product, &addend), cap)
        }
    }
}

fn scaled_dot(arithmetic: Mpfr, problem: &Problem, inputs: &Inputs, key: usize) -> Float {
    let (query, keys) = (inputs.query.view4(), inputs.key.view4());
    let rational = |x: f64| Rational::from_f64(x).expect("a finite entry");
    let dot: Rational = (0..problem.head_dim)
        .map(|t| rational(query[[0, 0, 0, t]]) * rational(keys[[0, 0, key, t]]))
        .sum();
    let dot = Float::with_val(PRECISION, &dot);
    match problem.scale {
        Scale::Value(scale) => arithmetic.mul(&dot, &arithmetic.number(scale)),
        Scale::InverseSqrtHeadDim => {
            let root = Float::with_val(PRECISION, problem.head_dim as u64).sqrt();
            arithmetic.div(&dot, &root)
        }
    }
}

/// What the brute-force value says for certain about the exact one.
pub fn certain(x: &Float) -> Enclosure {
    let slack = Float::with_val(PRECISION, 1) >> CERTAIN;
    let lo = Float::with_val(PRECISION, x - &slack);
    let hi = Float::with_val(PRECISION, x + &slack);
    Enclosure::new(lo, hi)
}
