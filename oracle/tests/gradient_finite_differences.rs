//! Gradients against differences of the exact forward pass.
//!
//! The loss is `f = sum dO o + sum g L` over all rows. For one input entry moved by `h` either way,
//! Taylor's theorem gives `|(f(h) - f(-h)) / 2h - f'| <= h^2/6 max |f'''|`.
//!
//! Along one entry of a query or key the scores of a row are `s_i + t a_i`, and its part of the loss
//! is `sum_i p_i dP_i + g L`. Derivatives by `t` are cumulants under `p` (`L` is the cumulant generating
//! function of the `a_i`, up to a constant). With `x_i` and `y_i` the `dP_i` and `a_i` less their means,
//! the third ones are `E[x y^3] - 3 E[x y] E[y^2]` and `E[y^3]`. No `|x_i|` exceeds the range of the
//! `dP_i`, no `|y_i|` that of the `a_i`, whatever `t` is, so `|f'''| <= sum over rows of
//! (4 range(dP) + |g|) range(a)^3`. In the entry of a value, `f` is linear.

#[path = "support/gradient.rs"]
mod gradient;
#[path = "support/gradient_definition.rs"]
mod gradient_definition;
mod support;

use flashproof_oracle::backward::KeyIndex;
use flashproof_oracle::enclosure::Enclosure;
use flashproof_oracle::forward::{Options, Oracle};
use flashproof_oracle::row::RowIndex;
use flashproof_spec::format::Format;
use flashproof_spec::mask::{Mask, Rule};
use flashproof_spec::problem::Problem;
use flashproof_spec::tensor::{Inputs, Tensor};
use gradient::{GradientCase, all_keys, normal_cotangents};
use gradient_definition::{Definition, number};
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
        },
        cotangents,
        lse_format: Format::F64,
        problem: Problem { format: Format::F64, ..problem },
    }
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
        let row = oracle.enclose_row(index, PRECISION).expect("a row").expect("a visible key");
        for (column, output) in row.outputs.iter().enumerate() {
            loss = loss.add(&times(output, upstream[[batch, head, query, column]]), PRECISION);
        }
        loss = loss.add(&times(&row.lse, gradients[[batch, head, query]]), PRECISION);
    }
    loss
}

/// The tensor with one entry moved.
fn moved(tensor: &Tensor, at: [usize; 4], by: f64) -> Tensor {
    let mut values = tensor.values().clone();
    let before = values[at];
    values[at] += by;
    assert_eq!(values[at] - by, before, "the entry moves exactly");
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

/// `(4 range(dP) + |g|) range(a)^3` of a row, `a` as given for each visible key.
fn third_derivative(
    case: &GradientCase,
    definition: &Definition<'_>,
    index: RowIndex,
    a: impl Fn(usize) -> f64,
) -> Float {
    let row = definition.row(index).expect("a visible key");
    let RowIndex { batch, head, query } = index;
    let g = case.cotangents.lse.as_ref().expect("an LSE gradient").view3()[[batch, head, query]];
    let root = number(case.problem.head_dim as f64).sqrt();
    let spread = range(row.visible.iter().map(|&key| number(a(key)) / &root));
    let cube = spread.clone().square() * spread;
    (range(row.dp.iter().cloned()) * 4 + g.abs()) * cube
}

#[test]
fn query_gradients_are_slopes_of_the_loss() {
    println!("ChaCha8 seed {SEED}");
    let case = case();
    let (backward, definition) = (case.backward(), Definition::new(&case));
    let keys = case.inputs.key.view4();
    for index in all_rows(&case.problem) {
        let RowIndex { batch, head, query } = index;
        let gradient = backward.enclose_query_gradient(index, PRECISION).unwrap().unwrap();
        for (column, derivative) in gradient.iter().enumerate() {
            let with = |by| {
                let moved = moved(&case.inputs.query, [batch, head, query, column], by);
                Inputs { query: moved, ..case.inputs.clone() }
            };
            let a = |key| keys[[batch, 0, key, column]];
            let third = third_derivative(&case, &definition, index, a);
            assert_agrees(derivative, &case, with, &third);
        }
    }
}

#[test]
fn key_and_value_gradients_are_slopes_of_the_loss() {
    println!("ChaCha8 seed {SEED}");
    let case = case();
    let (backward, definition) = (case.backward(), Definition::new(&case));
    let queries = case.inputs.query.view4();
    for index in all_keys(&case.problem) {
        let KeyIndex { batch, key_head, key } = index;
        let gradient = backward.enclose_key_gradient(index, PRECISION).unwrap().unwrap();
        for (column, derivative) in gradient.key.iter().enumerate() {
            let with = |by| {
                let moved = moved(&case.inputs.key, [batch, key_head, key, column], by);
                Inputs { key: moved, ..case.inputs.clone() }
            };
            let row = |(row, _): (&gradient_definition::DefinedRow, usize)| {
                let RowIndex { batch, head, query } = row.index;
                let slope = queries[[batch, head, query, column]];
                let a = |other| if other == key { slope } else { 0.0 };
                third_derivative(&case, &definition, row.index, a)
            };
            let third = definition.seen_by(index).map(row).fold(number(0.0), |sum, row| sum + row);
            assert_agrees(derivative, &case, with, &third);
        }
        for (column, derivative) in gradient.value.iter().enumerate() {
            let with = |by| {
                let moved = moved(&case.inputs.value, [batch, key_head, key, column], by);
                Inputs { value: moved, ..case.inputs.clone() }
            };
            assert_agrees(derivative, &case, with, &number(0.0));
        }
    }
}
