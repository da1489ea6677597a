//! Gradients against differences of the exact forward pass.
//!
//! The loss is `f = sum dO o + sum g L` over all rows. For one input entry moved by `h` either way,
//! Taylor's theorem gives `|(f(h) - f(-h)) / 2h - f'| <= h^2/6 max |f'''|`.
//!
//! Along one entry of a query, key, bias or sink the scores of a row are `s_i + t a_i`, and its part of
//! the loss is `sum_i p_i y_i + g L` with `y_i = z_i dP_i`, over keys and a sink, whose `y` is zero.
//! Derivatives by `t` are cumulants under `p` (`L` is the cumulant generating function of the `a_i`, up to
//! a constant). With `x_i` and `b_i` the `y_i` and `a_i` less their means, the third ones are
//! `E[x b^3] - 3 E[x b] E[b^2]` and `E[b^3]`. No `|x_i|` exceeds the range `Y` of the `y_i`, no `|b_i|` that of
//! the `a_i`, whatever `t` is, so `|f'''| <= sum over rows of (4 Y + |g|) range(a)^3`. In the entry of a value,
//! `f` is linear.
//!
//! With a softcap the scores are `cap tanh((x_i + t a_i) / cap)`, whose derivatives by `t` are at most
//! `A`, `A^2 / cap` and `2 A^3 / cap^2` in magnitude, with `A` above every `|a_i|`: `tanh' <= 1`,
//! `|tanh''| = 2 |tanh| (1 - tanh^2) < 1` and `|tanh'''| = |6 tanh^2 - 2| (1 - tanh^2) <= 2`. With `u`, `v` and `w`
//! these derivatives as functions of the key,
//!
//! ```text
//! f''' = F3(u, u, u) + 3 F2(u, v) + F1(w)
//! |F3| <= (4 Y + |g|) range(u)^3   |F2| <= (Y + |g|) range(u) range(v)   |F1| <= Y range(w) + |g| max|w|
//! ```
//!
//! where `F1` to `F3` are cumulants of one to three scores with `y`, and with each other times `g`. Ranges are
//! at most twice the magnitudes, so
//! `|f'''| <= A^3 ( 8 (4 Y + |g|) + 12 (Y + |g|) / cap + (4 Y + 2 |g|) / cap^2 )`, which is above the
//! bound without a softcap too.

#[path = "support/gradient.rs"]
mod gradient;
#[path = "support/gradient_definition.rs"]
mod gradient_definition;
mod support;

use flashproof_oracle::backward::{BiasRowIndex, KeyGradientEnclosures, KeyIndex};
use flashproof_oracle::enclosure::Enclosure;
use flashproof_oracle::forward::{Options, Oracle};
use flashproof_oracle::row::RowIndex;
use flashproof_spec::format::Format;
use flashproof_spec::mask::{Alignment, Mask, Rule};
use flashproof_spec::pattern::{Pattern, broadcast_place};
use flashproof_spec::problem::Problem;
use flashproof_spec::score::{Alibi, Bias, Dropout, Sink, Slopes, Softcap, SoftcapOrder};
use flashproof_spec::tensor::{Inputs, Tensor};
use gradient::{GradientCase, all_bias_rows, all_keys, all_sinks, normal_cotangents, tensor};
use gradient_definition::{DefinedRow, Definition, lse_gradient, number};
use rug::Float;
use support::inputs::{all_rows, normal_inputs};

const SEED: u64 = 26;

/// Working precision: differences keep as many bits as `h` takes away.
const PRECISION: u32 = 400;

/// `h = 2^-STEP`, so that an entry of few bits can be moved exactly.
const STEP: i32 = 36;

/// The comparison must show an error of `2^-RESOLUTION` in gradients of order one.
const RESOLUTION: i32 = 60;

/// Entries of few bits, held in a format with room for `h` beside them.
fn case() -> GradientCase {
    let problem = Problem {
        query_heads: 2,
        key_heads: 1,
        query_len: 3,
        key_len: 4,
        head_dim: 3,
        value_dim: 2,
        mask: Mask::only(Rule::CausalBottomRight),
        ..Problem::new(Format::Bf16, 1, 1, 1)
    };
    let wide = |tensor: Tensor| {
        Tensor::exact(Format::F64, tensor.values().clone()).expect("every bf16 number is an f64")
    };
    let inputs = normal_inputs(&problem, SEED);
    let mut cotangents = normal_cotangents(&problem, Format::F64, SEED);
    cotangents.output = wide(cotangents.output);
    GradientCase {
        inputs: Inputs {
            query: wide(inputs.query),
            key: wide(inputs.key),
            value: wide(inputs.value),
            bias: None,
            sink: None,
            descale: None,
        },
        cotangents,
        lse_format: Format::F64,
        problem: Problem { format: Format::F64, ..problem },
    }
}

/// The case with every modification: a bias that two heads share and that hides a key, ALiBi, a softcap of
/// this order, a mask that leaves a row without keys, sinks and dropout.
fn modified(order: SoftcapOrder) -> GradientCase {
    let mut case = case();
    let GradientCase { problem, inputs, .. } = &mut case;
    let shape = [1, 1, 3, 4];
    let entries = [0.5, -1.0, 0.25, 2.0, f64::NEG_INFINITY, 0.75, -0.5, 1.0, 1.5, 0.0, -2.0, 0.125];
    problem.bias = Some(Bias { shape, format: Format::F64 });
    inputs.bias = Some(tensor(Format::F64, &shape, entries.to_vec()));
    let slopes = Slopes::Given(vec![0.25, -0.5]);
    problem.alibi = Some(Alibi { slopes, alignment: Alignment::BottomRight });
    problem.softcap = Some(Softcap { cap: 2.0, order });
    problem.sink = Some(Sink::Logits(Format::F64));
    inputs.sink = Some(tensor(Format::F64, &[2], vec![0.5, -0.25]));
    let keep =
        Pattern::from_fn([1, 2, 3, 4], |[_, head, query, key]| (head + query + key) % 3 != 0);
    problem.dropout = Some(Dropout { scale: 2.0, keep });
    let seen = Pattern::from_fn([1, 2, 3, 1], |[_, head, query, _]| (head, query) != (1, 1));
    problem.mask.rules.push(Rule::Boolean(seen));
    case
}

/// The case without modifications, and those with.
fn cases() -> Vec<GradientCase> {
    println!("ChaCha8 seed {SEED}");
    let orders = [SoftcapOrder::BeforeBias, SoftcapOrder::AfterBias];
    [case()].into_iter().chain(orders.map(modified)).collect()
}

/// The loss, `sum dO o + sum g L`.
fn loss(case: &GradientCase, inputs: &Inputs) -> Enclosure {
    let oracle = Oracle::new(&case.problem, inputs, Options::new(Format::F64)).expect("a problem");
    let upstream = case.cotangents.output.view4();
    let gradients = case.cotangents.lse.as_ref().expect("an LSE gradient").view3();
    let times = |x: &Enclosure, y: f64| x.mul(&Enclosure::point(number(y)), PRECISION);
    let mut loss = Enclosure::point(number(0.0));
    for index in all_rows(&case.problem) {
        let RowIndex { batch, head, query } = index;
        let Some(row) = oracle.enclose_row(index, PRECISION).expect("a row") else {
            // No visible key: the output is zero, and the LSE is the logit of the sink.
            let logit = inputs.sink_at(&case.problem, head).expect("a sink");
            let lse = Enclosure::point(number(logit));
            loss = loss.add(&times(&lse, gradients[[batch, head, query]]), PRECISION);
            continue;
        };
        for (column, output) in row.outputs.iter().enumerate() {
            loss = loss.add(&times(output, upstream[[batch, head, query, column]]), PRECISION);
        }
        loss = loss.add(&times(&row.lse, gradients[[batch, head, query]]), PRECISION);
    }
    loss
}

/// The tensor with one entry moved.
fn moved(tensor: &Tensor, at: &[usize], by: f64) -> Tensor {
    let mut values = tensor.values().clone();
    let before = values[at];
    values[at] += by;
    assert_eq!((values[at] - by).to_bits(), before.to_bits(), "the entry moves exactly");
    Tensor::exact(Format::F64, values).expect("a sum of two numbers of few bits")
}

/// Asserts that a derivative agrees with the difference to within `third h^2 / 6`.
fn assert_agrees(
    derivative: &Enclosure,
    case: &GradientCase,
    with: impl Fn(f64) -> Inputs,
    third: &Float,
) {
    let h = f64::from(-STEP).exp2();
    let rise = loss(case, &with(h)).sub(&loss(case, &with(-h)), PRECISION);
    let slope = rise.div(&Enclosure::point(number(2.0 * h)), PRECISION);
    let allowed: Float = number(h).square() * third / 6;
    let room = Enclosure::new(-allowed.clone(), allowed);
    let reach = slope.add(&room, PRECISION);
    assert!(reach.intersects(derivative), "{derivative:?} misses {reach:?}");
    assert!(reach.width() < f64::from(-RESOLUTION).exp2(), "{reach:?} shows too little");
}

fn range(x: impl Iterator<Item = Float>) -> Float {
    let all: Vec<Float> = x.collect();
    let most = all.iter().fold(all[0].clone(), Float::max);
    let least = all.iter().fold(all[0].clone(), Float::min);
    most - least
}

/// A bound on the third derivative of a row's loss along scores with these slopes `a`, for each visible
/// key and for a sink, within a softcap.
fn third_derivative(case: &GradientCase, row: &DefinedRow, keys: &[Float], sink: f64) -> Float {
    let sinks = row.sink.iter().map(|_| number(0.0));
    let y = range(row.dp.iter().zip(&row.dropout).map(|(dp, z)| dp.clone() * z).chain(sinks));
    let g = lse_gradient(case, row.index).abs();
    let slopes = keys.iter().cloned().chain(row.sink.iter().map(|_| number(sink)));
    let cube = |x: Float| x.clone().square() * x;
    let Some(Softcap { cap, .. }) = case.problem.softcap else {
        return (y * 4 + g) * cube(range(slopes));
    };
    let largest = slopes.fold(number(0.0), |most, a| most.max(&a.abs()));
    let linear = (y.clone() * 4 + g) * 8;
    let mixed = (y.clone() + g) * 12 / cap;
    let last = (y * 4 + 2.0 * g) / cap / cap;
    cube(largest) * (linear + mixed + last)
}

/// The same, summed over rows, for an entry that moves scores by these slopes.
fn third_derivatives(
    case: &GradientCase,
    definition: &Definition<'_>,
    keys: impl Fn(RowIndex, usize) -> Float,
    sink: impl Fn(RowIndex) -> f64,
) -> Float {
    let of_row = |row: &DefinedRow| {
        let slopes: Vec<Float> = row.visible.iter().map(|&key| keys(row.index, key)).collect();
        third_derivative(case, row, &slopes, sink(row.index))
    };
    definition.rows.iter().map(of_row).fold(number(0.0), |sum, row| sum + row)
}

/// An entry of a query or key with the scale, where it moves a score.
fn scaled(case: &GradientCase, entry: f64, moves: bool) -> Float {
    let root = number(case.problem.head_dim as f64).sqrt();
    if moves { number(entry) / root } else { number(0.0) }
}

#[test]
fn query_gradients_are_slopes_of_the_loss() {
    for case in cases() {
        let (backward, definition) = (case.backward(), Definition::new(&case));
        let keys = case.inputs.key.view4();
        for index in definition.rows.iter().map(|row| row.index) {
            let RowIndex { batch, head, query } = index;
            let gradient = backward.enclose_query_gradient(index, PRECISION).unwrap().unwrap();
            for (column, derivative) in gradient.iter().enumerate() {
                let with = |by| {
                    let moved = moved(&case.inputs.query, &[batch, head, query, column], by);
                    Inputs { query: moved, ..case.inputs.clone() }
                };
                let a = |row, key| scaled(&case, keys[[batch, 0, key, column]], row == index);
                let third = third_derivatives(&case, &definition, a, |_| 0.0);
                assert_agrees(derivative, &case, with, &third);
            }
        }
    }
}

#[test]
fn key_and_value_gradients_are_slopes_of_the_loss() {
    for case in cases() {
        let (backward, definition) = (case.backward(), Definition::new(&case));
        for index in all_keys(&case.problem) {
            if let Some(gradient) = backward.enclose_key_gradient(index, PRECISION).unwrap() {
                assert_key_agrees(&case, &definition, index, &gradient);
            } else {
                assert!(definition.seen_by(index).next().is_none());
            }
        }
    }
}

fn assert_key_agrees(
    case: &GradientCase,
    definition: &Definition<'_>,
    index: KeyIndex,
    gradient: &KeyGradientEnclosures,
) {
    let KeyIndex { batch, key_head, key } = index;
    let queries = case.inputs.query.view4();
    for (column, derivative) in gradient.key.iter().enumerate() {
        let with = |by| {
            let moved = moved(&case.inputs.key, &[batch, key_head, key, column], by);
            Inputs { key: moved, ..case.inputs.clone() }
        };
        let a = |RowIndex { batch, head, query }: RowIndex, other| {
            scaled(case, queries[[batch, head, query, column]], other == key)
        };
        let third = third_derivatives(case, definition, a, |_| 0.0);
        assert_agrees(derivative, case, with, &third);
    }
    for (column, derivative) in gradient.value.iter().enumerate() {
        let with = |by| {
            let moved = moved(&case.inputs.value, &[batch, key_head, key, column], by);
            Inputs { value: moved, ..case.inputs.clone() }
        };
        assert_agrees(derivative, case, with, &number(0.0));
    }
}

#[test]
fn bias_gradients_are_slopes_of_the_loss() {
    for case in cases() {
        let (backward, definition) = (case.backward(), Definition::new(&case));
        for index in all_bias_rows(&case.problem) {
            let gradient = backward.enclose_bias_gradient(index, PRECISION).unwrap().unwrap();
            for (key, derivative) in gradient.iter().enumerate() {
                assert_bias_agrees(&case, &definition, index, key, derivative);
            }
        }
    }
}

fn assert_bias_agrees(
    case: &GradientCase,
    definition: &Definition<'_>,
    BiasRowIndex { batch, head, query }: BiasRowIndex,
    key: usize,
    derivative: &Enclosure,
) {
    let place = [batch, head, query, key];
    let bias = case.inputs.bias.as_ref().expect("a bias");
    let shape = case.problem.bias.expect("a bias").shape;
    if bias.values()[place] == f64::NEG_INFINITY {
        assert_eq!(derivative.magnitude_hi().to_bits(), 0);
        return;
    }
    let with = |by| Inputs { bias: Some(moved(bias, &place, by)), ..case.inputs.clone() };
    let a = |RowIndex { batch, head, query }: RowIndex, key| {
        let here = broadcast_place(shape, [batch, head, query, key]) == place;
        number(f64::from(u8::from(here)))
    };
    let third = third_derivatives(case, definition, a, |_| 0.0);
    assert_agrees(derivative, case, with, &third);
}

#[test]
fn sink_gradients_are_slopes_of_the_loss() {
    for case in cases() {
        let (backward, definition) = (case.backward(), Definition::new(&case));
        for head in all_sinks(&case.problem) {
            let sink = case.inputs.sink.as_ref().expect("logits of sinks");
            let derivative = backward.enclose_sink_gradient(head, PRECISION).unwrap().unwrap();
            let with = |by| Inputs { sink: Some(moved(sink, &[head], by)), ..case.inputs.clone() };
            let of_sink = |row: RowIndex| f64::from(u8::from(row.head == head));
            let third = third_derivatives(&case, &definition, |_, _| number(0.0), of_sink);
            assert_agrees(&derivative, &case, with, &third);
        }
    }
}
