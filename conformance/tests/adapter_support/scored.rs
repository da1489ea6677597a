//! Cases of `pointed` whose scores and weights are modified, with exact answers still.
//!
//! The key pointed at keeps all of the weight, so that a bias adds to the LSE what it adds to that
//! score, dropout multiplies the value of that key, and the gradient of its score is that of the LSE.

use flashproof_spec::format::Format;
use flashproof_spec::mask::{Alignment, Mask, Site};
use flashproof_spec::pattern::Pattern;
use flashproof_spec::problem::Problem;
use flashproof_spec::score::{Alibi, Bias, Dropout, Sink, Slopes};
use flashproof_spec::tensor::{Cotangents, Gradients, Inputs, Outputs, Tensor};
use ndarray::{Array1, Array4, ArrayD};

use super::pointed::{self, exact, target};

/// Far above any score: all of the weight is the sink's.
const TOWERING: f64 = 4096.0;

/// Far below: the sink has no weight.
const LOW: f64 = 8.0;

/// A bias that is shared by batch members and queries, linear biases, dropout, and sinks that weigh
/// nothing in all heads but the last.
pub fn problem(format: Format) -> Problem {
    let problem = pointed::problem(format);
    let [_, heads, _, keys] = problem.score_shape();
    let slopes = Slopes::Given(vec![0.5, 1.0, 0.25, 2.0]);
    Problem {
        bias: Some(Bias { shape: [1, heads, 1, keys], format: Format::F16 }),
        alibi: Some(Alibi { slopes, alignment: Alignment::TopLeft }),
        dropout: Some(Dropout {
            scale: 2.0,
            keep: Pattern::from_fn([1, 1, problem.query_len, keys], |[_, _, q, k]| (q + k) % 3 > 0),
        }),
        sink: Some(Sink::Logits(Format::F32)),
        ..problem
    }
}

/// Those of `pointed`; small whole biases, even so that LSEs are whole, and minus infinity on a key
/// that no row points at.
pub fn inputs(problem: &Problem) -> Inputs {
    let bias = problem.bias.expect("a bias");
    let last = problem.query_heads - 1;
    let entries = Array4::from_shape_fn(bias.shape, |(_, h, _, k)| match k {
        0 => f64::NEG_INFINITY,
        _ => 2.0 * ((h + k) % 3) as f64,
    });
    let sink = (0..problem.query_heads).map(|h| if h == last { TOWERING } else { LOW });
    Inputs {
        bias: Some(exact(bias.format, entries)),
        sink: Some(exact(Format::F32, sink.collect::<Array1<f64>>())),
        ..pointed::inputs(problem)
    }
}

/// The exact outputs.
pub fn outputs(problem: &Problem) -> Outputs {
    let inputs = inputs(problem);
    let Outputs { output, lse } = pointed::outputs(problem);
    let (mut output, mut lse) = (output.values().clone(), lse.expect("an LSE").values().clone());
    for (b, h, i) in ndarray::indices(problem.lse_shape()) {
        let weighs = sink_towers(problem, h);
        let site = target(problem, (b, h, i)).map(|key| Site { batch: b, head: h, query: i, key });
        let kept = site.map_or(0.0, |site| problem.dropout_at(site));
        for entry in 0..problem.value_dim {
            output[[b, h, i, entry]] *= if weighs { 0.0 } else { kept };
        }
        let added = site.map(|site| inputs.addends_at(problem, site));
        lse[[b, h, i]] = match added {
            _ if weighs => TOWERING,
            Some(added) => lse[[b, h, i]] + added.bias + added.alibi,
            None => LOW,
        };
    }
    let lse_format = pointed::lse_format(problem);
    let tensor = |format, values: ArrayD<f64>| Tensor::exact(format, values).expect("exact");
    Outputs { output: tensor(problem.format, output), lse: Some(tensor(lse_format, lse)) }
}

/// The exact gradients.
pub fn gradients(problem: &Problem, cotangents: &Cotangents) -> Gradients {
    let bias = problem.bias.expect("a bias");
    let lse = cotangents.lse.as_ref().expect("a gradient of the LSE").view3();
    let d_output = cotangents.output.view4();
    let inputs = inputs(problem);
    let (query, key) = (inputs.query.view4(), inputs.key.view4());
    let mut d_query = Array4::zeros(problem.query_shape());
    let mut d_key = Array4::zeros(problem.key_shape());
    let mut d_value = Array4::zeros(problem.value_shape());
    let mut d_bias = Array4::zeros(bias.shape);
    let mut d_sink = Array1::zeros(problem.query_heads);
    for (b, h, i) in ndarray::indices(problem.lse_shape()) {
        let g = lse[[b, h, i]];
        let Some(t) = target(problem, (b, h, i)).filter(|_| !sink_towers(problem, h)) else {
            d_sink[h] += g;
            continue;
        };
        let kept = problem.dropout_at(Site { batch: b, head: h, query: i, key: t });
        let head = problem.key_head_of(h);
        d_bias[[0, h, 0, t]] += g;
        for e in 0..problem.head_dim {
            d_query[[b, h, i, e]] += g * key[[b, head, t, e]];
            d_key[[b, head, t, e]] += g * query[[b, h, i, e]];
        }
        for e in 0..problem.value_dim {
            d_value[[b, head, t, e]] += kept * d_output[[b, h, i, e]];
        }
    }
    let tensor = |values: Array4<f64>| exact(problem.format, values);
    Gradients {
        query: tensor(d_query),
        key: tensor(d_key),
        value: tensor(d_value),
        bias: Some(exact(bias.format, d_bias)),
        sink: Some(exact(Format::F32, d_sink)),
    }
}

/// Upstream gradients that are numbers everywhere: a row without keys has a gradient of its sink.
pub fn cotangents(problem: &Problem) -> Cotangents {
    let all = Problem { mask: Mask::full(), ..problem.clone() };
    pointed::cotangents(&all)
}

fn sink_towers(problem: &Problem, head: usize) -> bool {
    head + 1 == problem.query_heads
}
