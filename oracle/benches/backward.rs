//! Time of the exact backward pass on one thread: gradients of every query, key and value of a head
//! of 256 queries and keys, and the conditions of every row.
//!
//! The floor: one exponential for each pair of query and key (65,536), and one multiply-add for
//! each entry of a query, key, value and cotangent in each pair (4,194,304 each at dimension 64),
//! in two dot products and three sums.

#[path = "../tests/support/gradient.rs"]
mod gradient;
#[path = "../tests/support/mod.rs"]
mod support;

use divan::Bencher;
use divan::counter::ItemsCount;
use flashproof_oracle::backward::{Backward, ConditionRequest, LseKnowledge, Options};
use flashproof_spec::format::Format;
use flashproof_spec::mask::Alignment;
use flashproof_spec::problem::Problem;
use flashproof_spec::score::{Alibi, Bias, Sink, Slopes, Softcap, SoftcapOrder};
use gradient::{all_bias_rows, all_keys, all_sinks, normal_cotangents, tensor, zero_outputs};
use support::inputs::{all_rows, normal_inputs};

const LENGTH: usize = 256;
const SEED: u64 = 26;

fn main() {
    divan::main();
}

#[derive(Clone, Copy, Debug)]
enum Part {
    Query,
    Key,
    Condition,
    All,
}

#[divan::bench(
    args = [
        (Format::Bf16, Part::Query), (Format::Bf16, Part::Key), (Format::Bf16, Part::Condition),
        (Format::Bf16, Part::All), (Format::F32, Part::All), (Format::F64, Part::All),
    ],
    sample_count = 3,
)]
fn mpfr(bencher: Bencher, (format, part): (Format, Part)) {
    let problem = Problem::new(format, 1, LENGTH, 64);
    let lse_format = if format == Format::F64 { Format::F64 } else { Format::F32 };
    let inputs = normal_inputs(&problem, SEED);
    let cotangents = normal_cotangents(&problem, lse_format, SEED);
    let outputs = zero_outputs(&problem, lse_format);
    let (rows, keys) = (all_rows(&problem), all_keys(&problem));
    bencher.counter(ItemsCount::new(LENGTH * LENGTH)).bench_local(|| {
        let backward = Backward::new(&problem, &inputs, &cotangents, Options::new(lse_format))
            .expect("a problem with its inputs");
        for &row in &rows {
            if matches!(part, Part::Query | Part::All) {
                divan::black_box(backward.query_gradient_row(row).expect("a row"));
            }
            if matches!(part, Part::Condition | Part::All) {
                let request =
                    ConditionRequest { index: row, lse: LseKnowledge::Measured, keys: None };
                divan::black_box(backward.condition(&outputs, request).expect("a row"));
            }
        }
        if matches!(part, Part::Key | Part::All) {
            for &key in &keys {
                divan::black_box(backward.key_gradient_row(key).expect("a key"));
            }
        }
    });
}

/// What is added to scores, all at once or apart.
#[derive(Clone, Copy, Debug)]
enum Modification {
    Bias,
    BroadcastBias,
    Softcap,
    Sink,
    All,
}

fn modified(modification: Modification) -> Problem {
    let plain = Problem::new(Format::Bf16, 1, LENGTH, 64);
    let bias = |shape| Some(Bias { shape, format: Format::Bf16 });
    let full = bias(plain.score_shape());
    let softcap = Some(Softcap { cap: 30.0, order: SoftcapOrder::BeforeBias });
    let sink = Some(Sink::Logits(Format::Bf16));
    match modification {
        Modification::Bias => Problem { bias: full, ..plain },
        Modification::BroadcastBias => Problem { bias: bias([1, 1, 1, LENGTH]), ..plain },
        Modification::Softcap => Problem { softcap, ..plain },
        Modification::Sink => Problem { sink, ..plain },
        Modification::All => {
            let alignment = Alignment::default();
            let alibi = Some(Alibi { slopes: Slopes::Standard, alignment });
            Problem { bias: full, alibi, softcap, sink, ..plain }
        }
    }
}

/// Gradients of everything, bias and sink included.
#[divan::bench(
    args = [
        Modification::Bias, Modification::BroadcastBias, Modification::Softcap,
        Modification::Sink, Modification::All,
    ],
    sample_count = 3,
)]
fn modifications(bencher: Bencher, modification: Modification) {
    let problem = modified(modification);
    let mut inputs = normal_inputs(&problem, SEED);
    // Any numbers in the bias's range: its size is what counts.
    inputs.bias = problem.bias.map(|Bias { shape, format }| {
        let count = shape.iter().product();
        tensor(format, &shape, inputs.key.values().iter().copied().cycle().take(count).collect())
    });
    inputs.sink = problem.sink.map(|_| tensor(Format::Bf16, &[1], vec![0.5]));
    let cotangents = normal_cotangents(&problem, Format::F32, SEED);
    bencher.counter(ItemsCount::new(LENGTH * LENGTH)).bench_local(|| {
        let backward = Backward::new(&problem, &inputs, &cotangents, Options::new(Format::F32))
            .expect("a problem with its inputs");
        for row in all_rows(&problem) {
            divan::black_box(backward.query_gradient_row(row).expect("a row"));
        }
        for key in all_keys(&problem) {
            divan::black_box(backward.key_gradient_row(key).expect("a key"));
        }
        for row in all_bias_rows(&problem) {
            divan::black_box(backward.bias_gradient_row(row).expect("a row of the bias"));
        }
        for head in all_sinks(&problem) {
            divan::black_box(backward.sink_gradient(head).expect("a head"));
        }
    });
}
