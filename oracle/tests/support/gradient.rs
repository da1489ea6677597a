//! Problems with inputs and upstream gradients: given, random from a seed, and drawn by proptest.
#![allow(dead_code)] // each test program uses a part of it

use flashproof_oracle::backward::{Backward, BiasRowIndex, KeyIndex, Options};
use flashproof_spec::format::Format;
use flashproof_spec::mask::{Alignment, Mask, Rule, Window};
use flashproof_spec::pattern::Pattern;
use flashproof_spec::problem::{Problem, Scale};
use flashproof_spec::score::{Alibi, Bias, Dropout, Sink, Slopes, Softcap, SoftcapOrder};
use flashproof_spec::tensor::{Cotangents, Inputs, Outputs, Tensor};
use proptest::prelude::*;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::SeedableRng;
use rand_distr::{Distribution, StandardNormal};

/// A stream of random numbers apart from that of the inputs with the same seed.
const STREAM: u64 = 1;

/// A problem with its inputs and upstream gradients.
#[derive(Clone, Debug)]
pub struct GradientCase {
    pub problem: Problem,
    pub inputs: Inputs,
    pub cotangents: Cotangents,
    pub lse_format: Format,
}

impl GradientCase {
    /// The oracle for it, with a cap that settles all but midpoints.
    pub fn backward(&self) -> Backward<'_> {
        let options = Options { max_precision: 1 << 12, ..Options::new(self.lse_format) };
        Backward::new(&self.problem, &self.inputs, &self.cotangents, options)
            .expect("a problem with its inputs and upstream gradients")
    }
}

/// A tensor of these values, rounded to `format`.
pub fn tensor(format: Format, shape: &[usize], values: Vec<f64>) -> Tensor {
    Tensor::rounded_from(format, shape, values).expect("as many values as the shape has")
}

/// Standard normal upstream gradients of output and LSE.
pub fn normal_cotangents(problem: &Problem, lse_format: Format, seed: u64) -> Cotangents {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    rng.set_stream(STREAM);
    let mut normal = |format: Format, shape: &[usize]| {
        let count = shape.iter().product();
        tensor(format, shape, (0..count).map(|_| StandardNormal.sample(&mut rng)).collect())
    };
    Cotangents {
        output: normal(problem.format, &problem.output_shape()),
        lse: Some(normal(lse_format, &problem.lse_shape())),
    }
}

/// Outputs of nothing but zeros.
pub fn zero_outputs(problem: &Problem, lse_format: Format) -> Outputs {
    let zeros = |format, shape: &[usize]| tensor(format, shape, vec![0.0; shape.iter().product()]);
    Outputs {
        output: zeros(problem.format, &problem.output_shape()),
        lse: Some(zeros(lse_format, &problem.lse_shape())),
    }
}

/// Every key of a problem.
pub fn all_keys(problem: &Problem) -> Vec<KeyIndex> {
    let mut keys = Vec::new();
    for batch in 0..problem.batch {
        for key_head in 0..problem.key_heads {
            keys.extend((0..problem.key_len).map(|key| KeyIndex { batch, key_head, key }));
        }
    }
    keys
}

/// Every row of the bias of a problem; none where there is no bias.
pub fn all_bias_rows(problem: &Problem) -> Vec<BiasRowIndex> {
    let Some(Bias { shape: [batch, heads, queries, _], .. }) = problem.bias else { return vec![] };
    let mut rows = Vec::new();
    for batch in 0..batch {
        for head in 0..heads {
            rows.extend((0..queries).map(|query| BiasRowIndex { batch, head, query }));
        }
    }
    rows
}

/// Every query head that has a logit of a sink.
pub fn all_sinks(problem: &Problem) -> Vec<usize> {
    match problem.sink {
        Some(Sink::Logits(_)) => (0..problem.query_heads).collect(),
        None | Some(Sink::Zero) => vec![],
    }
}

/// The kinds of entries that cases are drawn from.
#[derive(Clone, Copy, Debug)]
enum Entries {
    /// Moderate, with all bits in use.
    Moderate,
    /// -2, -1, 0, 1, 2: many equal scores and exact answers.
    Small,
    /// Large enough for scores far apart.
    Large,
    /// Any exponent that the format has.
    AnyExponent,
}

fn entries() -> impl Strategy<Value = Entries> {
    prop_oneof![
        4 => Just(Entries::Moderate),
        3 => Just(Entries::Small),
        2 => Just(Entries::Large),
        1 => Just(Entries::AnyExponent),
    ]
}

fn entry(format: Format, entries: Entries) -> impl Strategy<Value = f64> {
    let least = format.min_quantum();
    let most = format.max_finite().log2() as i32 - 1;
    let raw = match entries {
        Entries::Moderate => (-4.0..4.0_f64).boxed(),
        Entries::Small => (-2_i8..=2).prop_map(f64::from).boxed(),
        Entries::Large => (-40.0..40.0_f64).boxed(),
        Entries::AnyExponent => {
            (-2.0..2.0_f64, least..=most).prop_map(|(x, e)| x * f64::from(e).exp2()).boxed()
        }
    };
    raw.prop_map(move |x| format.round(x))
}

fn drawn(
    format: Format,
    shape: Vec<usize>,
    entries: Entries,
) -> impl Strategy<Value = Tensor> + use<> {
    let count = shape.iter().product::<usize>();
    prop::collection::vec(entry(format, entries), count)
        .prop_map(move |values| tensor(format, &shape, values))
}

fn scale() -> impl Strategy<Value = Scale> {
    prop_oneof![
        5 => Just(Scale::InverseSqrtHeadDim),
        2 => (-2.0..2.0_f64).prop_map(Scale::Value),
        1 => prop_oneof![Just(0.0), Just(1.0), Just(-0.125)].prop_map(Scale::Value),
    ]
}

fn mask(batch: usize, key_len: usize) -> impl Strategy<Value = Mask> {
    let lengths = prop::collection::vec(0..=key_len, batch).prop_map(Rule::KeyLengths);
    let causal = prop_oneof![Just(Rule::CausalTopLeft), Just(Rule::CausalBottomRight)];
    (prop::option::of(lengths), prop::option::of(causal))
        .prop_map(|(lengths, causal)| Mask { rules: lengths.into_iter().chain(causal).collect() })
}

fn problem() -> impl Strategy<Value = Problem> {
    let sizes = (
        1_usize..=2,
        prop::sample::select(vec![(1, 1), (2, 1), (2, 2)]),
        1_usize..=3,
        1_usize..=5,
        prop::sample::select(vec![1_usize, 2, 3, 4, 9]),
        1_usize..=3,
    );
    let format = prop::sample::select(Format::ALL.to_vec());
    (format, sizes, scale()).prop_flat_map(
        |(
            format,
            (batch, (query_heads, key_heads), query_len, key_len, head_dim, value_dim),
            scale,
        )| {
            mask(batch, key_len).prop_map(move |mask| Problem {
                batch,
                key_heads,
                query_len,
                value_dim,
                scale,
                mask,
                ..Problem::new(format, query_heads, key_len, head_dim)
            })
        },
    )
}

/// A few queries and keys of any format, scale, mask, grouping and kind of entries, with or
/// without an upstream gradient of the LSE; no infinities or NaN.
pub fn gradient_case() -> impl Strategy<Value = GradientCase> {
    let lse_format = prop::sample::select(vec![Format::F32, Format::F64]);
    (problem(), lse_format, entries(), entries(), any::<bool>()).prop_flat_map(
        |(problem, lse_format, scores, values, with_lse)| {
            let format = problem.format;
            let lse = drawn(lse_format, problem.lse_shape().to_vec(), values);
            let tensors = (
                drawn(format, problem.query_shape().to_vec(), scores),
                drawn(format, problem.key_shape().to_vec(), scores),
                drawn(format, problem.value_shape().to_vec(), values),
                drawn(format, problem.output_shape().to_vec(), values),
                lse.prop_map(move |lse| with_lse.then_some(lse)),
            );
            tensors.prop_map(move |(query, key, value, output, lse)| GradientCase {
                problem: problem.clone(),
                inputs: Inputs { query, key, value, bias: None, sink: None, descale: None },
                cotangents: Cotangents { output, lse },
                lse_format,
            })
        },
    )
}

/// A shape that broadcasts to `full`.
fn broadcast(full: [usize; 4]) -> impl Strategy<Value = [usize; 4]> {
    prop::array::uniform4(any::<bool>())
        .prop_map(move |kept| std::array::from_fn(|axis| if kept[axis] { full[axis] } else { 1 }))
}

fn pattern(full: [usize; 4]) -> impl Strategy<Value = Pattern> {
    broadcast(full).prop_flat_map(|shape| {
        let count: usize = shape.iter().product();
        prop::collection::vec(prop::bool::weighted(0.7), count)
            .prop_map(move |bits| Pattern::new(shape, bits).expect("as many as the shape has"))
    })
}

fn softcap() -> impl Strategy<Value = Softcap> {
    let order = prop_oneof![Just(SoftcapOrder::BeforeBias), Just(SoftcapOrder::AfterBias)];
    let cap = prop_oneof![3 => 0.1..20.0_f64, 1 => Just(1.0), 1 => Just(30.0)];
    (cap, order).prop_map(|(cap, order)| Softcap { cap, order })
}

fn alibi(heads: usize) -> impl Strategy<Value = Alibi> {
    let slope = (-2.0..2.0_f64).prop_map(|slope| Format::F32.round(slope));
    let slopes = prop_oneof![
        Just(Slopes::Standard),
        prop::collection::vec(slope, heads).prop_map(Slopes::Given),
    ];
    let alignment = prop_oneof![Just(Alignment::TopLeft), Just(Alignment::BottomRight)];
    (slopes, alignment).prop_map(|(slopes, alignment)| Alibi { slopes, alignment })
}

fn dropout(full: [usize; 4]) -> impl Strategy<Value = Dropout> {
    let scale = prop_oneof![Just(1.0), Just(2.0), Just(8.0)];
    (scale, pattern(full)).prop_map(|(scale, keep)| Dropout { scale, keep })
}

fn more_rules(full: [usize; 4]) -> impl Strategy<Value = Vec<Rule>> {
    let window =
        (prop::option::of(0..=full[3]), prop::option::of(0..=full[3])).prop_map(|(left, right)| {
            Rule::Window(Window { left, right, alignment: Alignment::BottomRight })
        });
    let lengths = prop::collection::vec(0..=full[2], full[0]).prop_map(Rule::QueryLengths);
    let rule = prop_oneof![3 => pattern(full).prop_map(Rule::Boolean), 1 => window, 1 => lengths];
    prop::option::of(rule).prop_map(|rule| rule.into_iter().collect())
}

/// Formats of biases and sinks.
fn addend_format() -> impl Strategy<Value = Format> {
    prop::sample::select(vec![Format::F64, Format::F32, Format::F16, Format::Bf16])
}

/// A bias with moderate, many equal, hiding and lowest entries.
fn bias(format: Format, shape: [usize; 4]) -> impl Strategy<Value = Tensor> {
    let entry = prop_oneof![
        6 => -4.0..4.0_f64,
        3 => (-2_i8..=2).prop_map(f64::from),
        2 => Just(f64::NEG_INFINITY),
        1 => Just(-format.max_finite()),
    ];
    let count = shape.iter().product::<usize>();
    prop::collection::vec(entry.prop_map(move |x| format.round(x)), count)
        .prop_map(move |values| tensor(format, &shape, values))
}

fn sink(format: Format, heads: usize) -> impl Strategy<Value = Tensor> {
    let entry = prop_oneof![
        4 => -4.0..4.0_f64,
        2 => (-2_i8..=2).prop_map(f64::from),
        1 => Just(50.0),
        1 => Just(-50.0),
    ];
    prop::collection::vec(entry.prop_map(move |x| format.round(x)), heads)
        .prop_map(move |values| tensor(format, &[heads], values))
}

/// A [`gradient_case`] with any score and weight modifications, and any mask, of each head its own.
pub fn modified_case() -> impl Strategy<Value = GradientCase> {
    gradient_case().prop_flat_map(|case| {
        let full = case.problem.score_shape();
        let heads = case.problem.query_heads;
        let bias =
            (broadcast(full), addend_format()).prop_flat_map(|(shape, format)| bias(format, shape));
        let sink = prop_oneof![
            1 => Just(None),
            3 => addend_format().prop_flat_map(move |format| sink(format, heads)).prop_map(Some),
        ];
        let modifications = (
            prop::option::of(softcap()),
            prop::option::of(bias),
            prop::option::of(alibi(heads)),
            prop::option::of(sink),
            prop::option::of(dropout(full)),
            more_rules(full),
        );
        modifications.prop_map(move |(softcap, bias, alibi, sink, dropout, rules)| {
            let mut case = case.clone();
            let problem = &mut case.problem;
            problem.mask.rules.extend(rules);
            problem.softcap = softcap;
            problem.bias = bias
                .as_ref()
                .map(|bias| Bias { shape: bias.view4().dim().into(), format: bias.format() });
            problem.alibi = alibi;
            problem.sink = sink.as_ref().map(|sink| match sink {
                None => Sink::Zero,
                Some(sink) => Sink::Logits(sink.format()),
            });
            problem.dropout = dropout;
            (case.inputs.bias, case.inputs.sink) = (bias, sink.flatten());
            case
        })
    })
}
