//! Rows for the simulated forward kernel: problems, inputs, profiles and styles.

use flashproof_spec::format::Format;
use flashproof_spec::mask::Alignment;
use flashproof_spec::pattern::Pattern;
use flashproof_spec::problem::{Problem, Scale};
use flashproof_spec::profile::{Accumulation, LogError, Normalizer, Profile, Schedule};
use flashproof_spec::score::{Alibi, Bias, Dropout, Sink, Slopes, Softcap, SoftcapOrder};
use proptest::prelude::*;

use super::simulated_forward::{
    Addition, Capping, DropoutPlace, Inputs, KeyValue, SinkPlace, Style, site,
};

/// Everything that a run needs.
#[derive(Clone, Debug)]
pub struct Row {
    pub problem: Problem,
    pub inputs: Inputs,
    pub profile: Profile,
    pub style: Style,
}

/// Magnitudes of query and key entries: their products are scores of about 1, of hundreds, of up to
/// a million, so large that weights leave the range of f32, and so small that f16 loses them.
fn magnitudes() -> impl Strategy<Value = (f64, f64)> {
    let one = || prop::sample::select(vec![0.0, 1.0, 4.0, 12.0, 30.0, 300.0, 1000.0]);
    prop_oneof![
        8 => (one(), one()),
        1 => Just((50_000.0, 50_000.0)),
        1 => Just((1.0 / 1024.0, 1.0 / 1024.0)),
    ]
}

fn vector(entries: usize, largest: f64) -> impl Strategy<Value = Vec<f64>> {
    prop::collection::vec(-1.0..=1.0_f64, entries)
        .prop_map(move |xs| xs.into_iter().map(|x| x * largest).collect())
}

/// Values of one column: of one size, nearly constant, cancelling, or subnormal.
fn column(format: Format, keys: usize) -> impl Strategy<Value = Vec<f64>> {
    let subnormal = format.smallest_subnormal();
    prop_oneof![
        2 => vector(keys, 4.0),
        1 => (-4.0..4.0_f64, vector(keys, 1.0 / 64.0))
            .prop_map(|(c, xs)| xs.into_iter().map(|x| c * (1.0 + x)).collect()),
        1 => (-4.0..4.0_f64, prop::collection::vec(any::<bool>(), keys))
            .prop_map(|(c, up)| up.into_iter().map(|up| if up { c } else { -c }).collect()),
        1 => vector(keys, 60_000.0),
        1 => vector(keys, 20.0)
            .prop_map(move |xs| xs.into_iter().map(|x| x.round() * subnormal).collect()),
    ]
}

/// Queries, keys and values, without modifications of scores.
fn inputs(format: Format) -> impl Strategy<Value = Inputs> {
    let sizes = (
        prop_oneof![3 => 1_usize..5, 1 => 5_usize..13],
        prop_oneof![3 => 1_usize..4, 1 => 4_usize..9],
    );
    (sizes, 1_usize..4, magnitudes()).prop_flat_map(move |((keys, dim), columns, (q, k))| {
        (
            vector(dim, q),
            prop::collection::vec(vector(dim, k), keys),
            // From which of the keys each is copied, if at all: ties.
            prop::collection::vec(prop::option::weighted(0.3, 0..keys), keys),
            prop::collection::vec(prop::bool::weighted(0.9), keys),
            0..keys,
            prop::collection::vec(column(format, keys), columns),
        )
            .prop_map(move |(query, keys, copies, mut visible, seen, columns)| {
                visible[seen] = true;
                let rounded = |x: f64| format.round(x);
                let keys = (0..keys.len())
                    .map(|i| {
                        visible[i].then(|| KeyValue {
                            key: keys[copies[i].unwrap_or(i)]
                                .iter()
                                .copied()
                                .map(rounded)
                                .collect(),
                            value: columns.iter().map(|column| rounded(column[i])).collect(),
                            bias: 0.0,
                        })
                    })
                    .collect();
                Inputs { query: query.into_iter().map(rounded).collect(), keys, sink: None }
            })
    })
}

/// A sink's logit.
#[derive(Clone, Copy, Debug)]
enum Logit {
    /// [`Sink::Zero`].
    Zero,
    /// This one.
    Given(f64),
    /// So much more than the greatest product.
    Beside(f64),
}

/// What modifies the scores and weights of a row.
#[derive(Clone, Debug, Default)]
struct Modifications {
    softcap: Option<Softcap>,
    bias: Option<Vec<f64>>,
    /// Whether the bias comes on top of one that cancels the product.
    cancelling: bool,
    slopes: Option<Slopes>,
    sink: Option<Logit>,
    dropout: Option<(f64, Vec<bool>)>,
}

fn softcaps() -> impl Strategy<Value = Softcap> {
    let orders = prop::sample::select(vec![SoftcapOrder::BeforeBias, SoftcapOrder::AfterBias]);
    // Below and above most scores; 0.7 and 50.1 are numbers of no binary format.
    let caps = prop::sample::select(vec![0.7, 4.0, 30.0, 50.1, 1024.0]);
    (caps, orders).prop_map(|(cap, order)| Softcap { cap, order })
}

/// Biases of a row: small, large, and the lowest number of the format, of some keys or all.
fn biases(format: Format, keys: usize) -> impl Strategy<Value = Vec<f64>> {
    let lowest = -format.max_finite();
    let hiding = prop_oneof![4 => -4.0..4.0_f64, 1 => Just(0.0), 2 => Just(lowest)];
    prop_oneof![
        2 => vector(keys, 4.0),
        1 => vector(keys, 300.0),
        1 => vector(keys, 1e4),
        3 => prop::collection::vec(hiding, keys),
        1 => Just(vec![lowest; keys]),
    ]
    .prop_map(move |biases| biases.into_iter().map(|bias| format.round(bias)).collect())
}

/// The off-by-one softmax, and logits below, among and far above most scores.
fn sinks() -> impl Strategy<Value = Logit> {
    prop_oneof![
        2 => Just(Logit::Zero),
        3 => (-5.0..5.0_f64).prop_map(Logit::Given),
        2 => (-100.0..100.0_f64).prop_map(Logit::Given),
        1 => prop::sample::select(vec![-1e4, 300.0, 800.0, 5000.0]).prop_map(Logit::Given),
        3 => (-2.0..2.0_f64).prop_map(Logit::Beside),
    ]
}

fn dropouts(format: Format, keys: usize) -> impl Strategy<Value = (f64, Vec<bool>)> {
    let scales = match format {
        Format::F64 => vec![0.5, 2.0],
        _ => vec![Format::F32.round(0.7), Format::F32.round(1.0 / 0.9), 2.0],
    };
    (prop::sample::select(scales), prop::collection::vec(prop::bool::weighted(0.8), keys))
}

fn modifications(format: Format, keys: usize) -> impl Strategy<Value = Modifications> {
    let slopes = prop_oneof![
        1 => Just(Slopes::Standard),
        1 => prop::sample::select(vec![0.5, 10.0])
            .prop_map(|slope| Slopes::Given(vec![slope])),
    ];
    let modified =
        (
            prop::option::weighted(0.5, softcaps()),
            (prop::option::weighted(0.6, biases(format, keys)), prop::bool::weighted(0.2)),
            prop::option::weighted(0.3, slopes),
            prop::option::weighted(0.5, sinks()),
            prop::option::weighted(0.3, dropouts(format, keys)),
        )
            .prop_map(|(softcap, (bias, cancelling), slopes, sink, dropout)| {
                Modifications { softcap, bias, cancelling, slopes, sink, dropout }
            });
    prop_oneof![1 => Just(Modifications::default()), 2 => modified]
}

fn styles() -> impl Strategy<Value = Style> {
    let additions = vec![Addition::Nats, Addition::Converted, Addition::Unscaled];
    let cappings = vec![Capping::Quotient, Capping::Reciprocal, Capping::Folded];
    let sinks = vec![SinkPlace::First, SinkPlace::Last, SinkPlace::KeyFrame];
    let dropouts = vec![DropoutPlace::Weight, DropoutPlace::RoundedWeight, DropoutPlace::Output];
    (
        any::<(bool, bool, bool, bool, bool)>(),
        (prop::bool::weighted(0.25), 0_usize..4),
        (prop::sample::select(additions), prop::sample::select(cappings)),
        (prop::sample::select(sinks), prop::sample::select(dropouts)),
    )
        .prop_map(|(booleans, (folded_scale, split), (addition, capping), (sink, dropout))| {
            let (base_two, rounded_references, reciprocal, separate_blocks, addends_first) =
                booleans;
            Style {
                base_two,
                folded_scale,
                rounded_references,
                reciprocal,
                separate_blocks,
                split,
                addition,
                addends_first,
                capping,
                sink,
                dropout,
            }
        })
}

/// Dense and standard profiles, and some that say so where they compute in less.
fn profiles(format: Format) -> impl Strategy<Value = Profile> {
    let booleans = any::<(bool, bool, bool, bool)>();
    let narrow = prop::sample::select(vec![
        Narrow::Nothing,
        Narrow::Nothing,
        Narrow::Scores,
        Narrow::Carried,
        Narrow::Normalizer,
        Narrow::Weights,
        Narrow::ScoreAccumulator,
        Narrow::ValueAccumulator,
    ]);
    let ulps = prop::sample::select(vec![(2.5, 2.5, 3.0), (0.5, 2.5, 0.5), (40.0, 40.0, 300.0)]);
    let tanh_ulps = prop::sample::select(vec![2.5, 4096.0]);
    (booleans, 1_usize..5, narrow, (ulps, tanh_ulps)).prop_map(
        move |((dense, rounded, fused, flush), block, narrow, (ulps, tanh_ulp))| {
            let (exp_ulp, division_ulp, log_ulp) = ulps;
            let base = if dense { Profile::dense(format) } else { Profile::standard(format) };
            let half = Format::F16;
            let plain = Profile {
                normalizer: if rounded { Normalizer::Rounded } else { Normalizer::Unrounded },
                scaled_score_rounded: !fused,
                schedule: if dense { Schedule::Dense } else { Schedule::Blocks(block) },
                flush_to_zero: flush && format != Format::F64,
                exp_ulp,
                tanh_ulp,
                division_ulp,
                log: LogError { ulp: log_ulp, ..base.log },
                ..base
            };
            let accumulator = Accumulation::Ieee { format: half, depth: None };
            match narrow {
                Narrow::Nothing => plain,
                Narrow::Scores => Profile { score_format: half, ..plain },
                Narrow::Carried => Profile { carried_format: half, ..plain },
                Narrow::Normalizer => Profile { carried_normalizer: Some(half), ..plain },
                Narrow::Weights => Profile { weight_format: half, ..plain },
                Narrow::ScoreAccumulator => Profile { score_accumulation: accumulator, ..plain },
                Narrow::ValueAccumulator => Profile { value_accumulation: accumulator, ..plain },
            }
        },
    )
}

#[derive(Clone, Copy, Debug)]
enum Narrow {
    Nothing,
    Scores,
    Carried,
    Normalizer,
    Weights,
    ScoreAccumulator,
    ValueAccumulator,
}

/// The usual scale, some others, and one so small that scores become subnormal.
fn scales() -> impl Strategy<Value = Scale> {
    prop_oneof![
        4 => Just(Scale::InverseSqrtHeadDim),
        1 => prop::sample::select(vec![1.0, 0.7, 12.5, 0.5_f64.powi(100)])
            .prop_map(Scale::Value),
    ]
}

/// Whether the scaled query loses digits to underflow, which the bounds do not allow for.
fn folding_underflows(scale: Scale, inputs: &Inputs, profile: &Profile) -> bool {
    let scale = match scale {
        Scale::Value(scale) => scale,
        Scale::InverseSqrtHeadDim => (inputs.query.len() as f64).sqrt().recip(),
    };
    let Accumulation::Ieee { format, .. } = profile.score_accumulation else { return true };
    // The computed factor may be slightly less.
    let smallest = 2.0 * format.smallest_normal();
    inputs.query.iter().map(|q| (q * scale).abs()).any(|q| q > 0.0 && q < smallest)
}

impl Row {
    fn new(
        (format, scale): (Format, Scale),
        mut inputs: Inputs,
        modifications: Modifications,
        (mut profile, merged): (Profile, bool),
        mut style: Style,
    ) -> Self {
        let problem = problem(format, scale, &mut inputs, modifications);
        // One for each key at most, and the sink.
        profile.merged_parts = merged.then_some(problem.key_len + 1);
        if profile.schedule == Schedule::Dense && !merged {
            style.split = 0;
            // It divides by the normalizer before any other place.
            style.sink = SinkPlace::First;
        }
        // A correct kernel takes no score out of range that is in range in nats, but for hidden ones.
        let edge = profile.score_format.max_finite() / 2.0;
        if inputs.keys.iter().flatten().all(|key| key.bias < -edge) {
            style.addition = Addition::Nats;
            style.base_two = false;
        }
        if largest_addend(&problem, &inputs, edge) / problem.scale_f64() > edge {
            style.addition = Addition::Nats;
        }
        style.folded_scale &= !folding_underflows(scale, &inputs, &profile);
        Self { problem, inputs, profile, style }
    }
}

/// The largest magnitude of what is added to a score, but for biases below `-edge`.
fn largest_addend(problem: &Problem, inputs: &Inputs, edge: f64) -> f64 {
    let keys = inputs.keys.iter().flatten().map(|key| key.bias);
    let largest = keys.filter(|bias| *bias >= -edge).map(f64::abs).fold(0.0, f64::max);
    let alibi = (0..inputs.keys.len()).map(|key| problem.alibi_at(site(key)).abs());
    largest + alibi.fold(0.0, f64::max)
}

/// The nearest number of the format, in its range.
fn nearest(format: Format, x: f64) -> f64 {
    format.round(x).clamp(-format.max_finite(), format.max_finite())
}

/// The scaled products of the query with each visible key, in `f64`.
fn products(scale: Scale, inputs: &Inputs) -> Vec<f64> {
    let scale = match scale {
        Scale::Value(scale) => scale,
        Scale::InverseSqrtHeadDim => (inputs.query.len() as f64).sqrt().recip(),
    };
    let product = |key: &KeyValue| -> f64 {
        inputs.query.iter().zip(&key.key).map(|(q, k)| q * k * scale).sum()
    };
    inputs.keys.iter().map(|key| key.as_ref().map_or(f64::NEG_INFINITY, product)).collect()
}

fn problem(
    format: Format,
    scale: Scale,
    inputs: &mut Inputs,
    modifications: Modifications,
) -> Problem {
    let keys = inputs.keys.len();
    let values = inputs.keys.iter().flatten().next().expect("a visible key").value.len();
    let Modifications { softcap, bias, cancelling, slopes, sink, dropout } = modifications;
    let products = products(scale, inputs);
    if let Some(bias) = &bias {
        for ((key, &bias), product) in inputs.keys.iter_mut().zip(bias).zip(&products) {
            let product = if cancelling { *product } else { 0.0 };
            if let Some(key) = key {
                key.bias = nearest(format, bias - product);
            }
        }
    }
    inputs.sink = sink.map(|logit| match logit {
        Logit::Zero => 0.0,
        Logit::Given(logit) => Format::F32.round(logit),
        Logit::Beside(more) => {
            let greatest = products.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            Format::F32.round(greatest + more)
        }
    });
    let shape = [1, 1, 1, keys];
    let problem = Problem {
        query_len: 1,
        value_dim: values,
        scale,
        softcap,
        bias: bias.map(|_| Bias { shape, format }),
        alibi: slopes.map(|slopes| Alibi { slopes, alignment: Alignment::BottomRight }),
        sink: sink.map(|logit| match logit {
            Logit::Zero => Sink::Zero,
            Logit::Given(_) | Logit::Beside(_) => Sink::Logits(Format::F32),
        }),
        dropout: dropout.map(|(scale, keep)| Dropout {
            scale,
            keep: Pattern::new(shape, keep).expect("one for each key"),
        }),
        ..Problem::new(format, 1, keys, inputs.query.len())
    };
    problem.validate().expect("a problem that can be posed");
    problem
}

pub fn rows() -> impl Strategy<Value = Row> {
    let formats = vec![Format::F64, Format::F32, Format::F16, Format::Bf16];
    prop::sample::select(formats).prop_flat_map(|format| {
        inputs(format).prop_flat_map(move |inputs| {
            let modifications = modifications(format, inputs.keys.len());
            let profiles = (profiles(format), prop::bool::weighted(0.2));
            (scales(), Just(inputs), modifications, profiles, styles()).prop_map(
                move |(scale, inputs, modifications, profile, style)| {
                    Row::new((format, scale), inputs, modifications, profile, style)
                },
            )
        })
    })
}
