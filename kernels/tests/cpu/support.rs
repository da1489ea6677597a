//! Problems and inputs for the tests.

use std::hint::black_box;

use flashproof_kernels::{Kernel, builtin};
use flashproof_spec::format::Format;
use flashproof_spec::mask::{Mask, Rule};
use flashproof_spec::problem::{Problem, Scale};
use flashproof_spec::tensor::{Cotangents, Gradients, Inputs, Outputs, Tensor};
use ndarray::{ArrayD, IxDyn};
use proptest::prelude::*;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

/// The formats that the kernels take.
pub const FORMATS: [Format; 4] = [Format::F64, Format::F32, Format::F16, Format::Bf16];

/// Naive, and tilings whose sizes divide the lengths of the tests, do not, or exceed them.
pub fn kernels() -> Vec<Box<dyn Kernel>> {
    let mut names = vec!["naive".to_owned()];
    names.extend(TILES.map(|tile| format!("tiled:{tile}")));
    names.iter().map(|name| builtin(name).expect("a kernel of this crate")).collect()
}

const TILES: [&str; 7] = ["1x1", "1x2", "2x1", "2x3", "3x2", "4x4", "64x64"];

/// One head and unit scale, so that a score is the product of a query and a key entry.
pub fn products(format: Format, query_len: usize, key_len: usize, value_dim: usize) -> Problem {
    Problem {
        query_len,
        key_len,
        value_dim,
        scale: Scale::Value(1.0),
        ..Problem::new(format, 1, query_len, 1)
    }
}

/// Inputs of the problem's shapes from flat lists; the format must hold every value.
pub fn inputs(problem: &Problem, query: &[f64], key: &[f64], value: &[f64]) -> Inputs {
    let format = problem.format;
    Inputs {
        query: tensor(format, &problem.query_shape(), query),
        key: tensor(format, &problem.key_shape(), key),
        value: tensor(format, &problem.value_shape(), value),
    }
}

/// As [`inputs`], for what a forward pass wrote.
pub fn outputs(problem: &Problem, output: &[f64], lse: &[f64]) -> Outputs {
    Outputs {
        output: tensor(problem.format, &problem.output_shape(), output),
        lse: Some(tensor(arithmetic(problem.format), &problem.lse_shape(), lse)),
    }
}

/// As [`inputs`], for upstream gradients.
pub fn cotangents(problem: &Problem, output: &[f64], lse: Option<&[f64]>) -> Cotangents {
    let format = arithmetic(problem.format);
    Cotangents {
        output: tensor(problem.format, &problem.output_shape(), output),
        lse: lse.map(|lse| tensor(format, &problem.lse_shape(), lse)),
    }
}

fn tensor(format: Format, shape: &[usize], values: &[f64]) -> Tensor {
    let values = ArrayD::from_shape_vec(IxDyn(shape), values.to_vec()).expect("a full list");
    Tensor::exact(format, values).expect("values of the format")
}

/// The format that the kernels compute in, and store the LSE in.
pub const fn arithmetic(format: Format) -> Format {
    match format {
        Format::F64 => Format::F64,
        _ => Format::F32,
    }
}

/// Numbers uniform on `[-2, 2)`, rounded to the problem's format.
pub fn uniform(problem: &Problem, seed: u64) -> Inputs {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let mut tensor = |shape: [usize; 4]| uniform_tensor(problem.format, &shape, &mut rng);
    Inputs {
        query: tensor(problem.query_shape()),
        key: tensor(problem.key_shape()),
        value: tensor(problem.value_shape()),
    }
}

/// As [`uniform`], for the upstream gradients of output and LSE.
pub fn uniform_cotangents(problem: &Problem, seed: u64) -> Cotangents {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    Cotangents {
        output: uniform_tensor(problem.format, &problem.output_shape(), &mut rng),
        lse: Some(uniform_tensor(arithmetic(problem.format), &problem.lse_shape(), &mut rng)),
    }
}

fn uniform_tensor(format: Format, shape: &[usize], rng: &mut ChaCha8Rng) -> Tensor {
    let values = ArrayD::from_shape_simple_fn(IxDyn(shape), || rng.random_range(-2.0..2.0));
    Tensor::rounded(format, &values)
}

/// The kernel's answer, checked against the problem's shapes and formats.
pub fn run(kernel: &dyn Kernel, problem: &Problem, inputs: &Inputs) -> Outputs {
    problem.validate().expect("a valid problem");
    let outputs = kernel.forward(problem, inputs).expect("a supported problem");
    outputs
        .check(problem, kernel.profile(problem.format).lse_format)
        .expect("outputs of the problem's shapes and formats");
    outputs
}

/// The kernel's gradients, checked against the problem's shapes and formats.
pub fn differentiate(
    kernel: &dyn Kernel,
    problem: &Problem,
    inputs: &Inputs,
    outputs: &Outputs,
    cotangents: &Cotangents,
) -> Gradients {
    problem.validate().expect("a valid problem");
    let gradients =
        kernel.backward(problem, inputs, outputs, cotangents).expect("a supported problem");
    gradients.check(problem).expect("gradients of the problem's shapes and formats");
    gradients
}

/// `ln count` in the arithmetic of the kernel's LSE, `-inf` for 0.
pub fn ln(kernel: &dyn Kernel, format: Format, count: f32) -> f64 {
    // Opaque, so that it is computed by the library that the kernels call, not by the compiler.
    let count = black_box(count);
    match kernel.profile(format).lse_format {
        Format::F64 => f64::from(count).ln(),
        _ => f64::from(count.ln()),
    }
}

/// `e^x` in the arithmetic of the kernels, for an `x` that it holds.
pub fn exp(format: Format, x: f64) -> f64 {
    let x = black_box(x);
    match arithmetic(format) {
        Format::F64 => x.exp(),
        _ => f64::from((x as f32).exp()),
    }
}

/// The output's values, row-major.
pub fn output(outputs: &Outputs) -> Vec<f64> {
    outputs.output.values().iter().copied().collect()
}

/// The LSE's values, row-major.
pub fn lse(outputs: &Outputs) -> Vec<f64> {
    outputs.lse.as_ref().expect("an LSE").values().iter().copied().collect()
}

/// Output and LSE as bits, in which NaN equals NaN and the zeros differ.
pub fn bits(outputs: &Outputs) -> Vec<u64> {
    output(outputs).into_iter().chain(lse(outputs)).map(f64::to_bits).collect()
}

/// A tensor's values, row-major.
pub fn values(tensor: &Tensor) -> Vec<f64> {
    tensor.values().iter().copied().collect()
}

/// Gradients of query, key and value as bits, in which NaN equals NaN and the zeros differ.
pub fn gradient_bits(gradients: &Gradients) -> Vec<u64> {
    let Gradients { query, key, value } = gradients;
    [query, key, value].into_iter().flat_map(values).map(f64::to_bits).collect()
}

/// Whether the problem's mask lets `query` see `key`: the rules in the words of their clauses, by
/// differences of positions.
pub fn sees(problem: &Problem, batch: usize, query: usize, key: usize) -> bool {
    let lengths = problem.mask.rules.iter().filter_map(|rule| match rule {
        Rule::KeyLengths(lengths) => Some(lengths[batch]),
        Rule::CausalTopLeft | Rule::CausalBottomRight => None,
    });
    let used = lengths.fold(problem.key_len, usize::min);
    let before_the_end = |position: usize, len: usize| len as i64 - position as i64;
    problem.mask.rules.iter().all(|rule| match rule {
        Rule::CausalTopLeft => key <= query,
        Rule::CausalBottomRight => {
            before_the_end(key, used) >= before_the_end(query, problem.query_len)
        }
        Rule::KeyLengths(_) => key < used,
    })
}

/// Any intersection of the masks that the kernels know.
pub fn masks(batch: usize, key_len: usize) -> impl Strategy<Value = Mask> {
    let lengths = proptest::collection::vec(0..=key_len, batch).prop_map(Rule::KeyLengths);
    let rules = (any::<bool>(), any::<bool>(), proptest::option::of(lengths));
    rules.prop_map(|(top_left, bottom_right, lengths)| {
        let rules = top_left.then_some(Rule::CausalTopLeft);
        let rules = rules.into_iter().chain(bottom_right.then_some(Rule::CausalBottomRight));
        Mask { rules: rules.chain(lengths).collect() }
    })
}

/// Small problems of every supported format and mask, grouped heads and unequal lengths included.
pub fn problems() -> impl Strategy<Value = Problem> {
    let format = proptest::sample::select(&FORMATS[..]);
    let shape = (1..=2_usize, 1..=2_usize, 1..=3_usize, 0..=9_usize, 0..=9_usize);
    (format, shape, 1..=5_usize, 1..=4_usize).prop_flat_map(
        |(format, (batch, key_heads, group, query_len, key_len), head_dim, value_dim)| {
            masks(batch, key_len).prop_map(move |mask| Problem {
                batch,
                query_heads: key_heads * group,
                key_heads,
                query_len,
                key_len,
                head_dim,
                value_dim,
                format,
                scale: Scale::default(),
                mask,
            })
        },
    )
}
