//! Kernels, inputs and answers for the tests.

pub mod problems;
pub mod sight;

use std::hint::black_box;

use flashproof_kernels::{Kernel, builtin};
use flashproof_spec::format::Format;
use flashproof_spec::problem::{Problem, Scale};
use flashproof_spec::score::{Bias, Sink};
use flashproof_spec::tensor::{Cotangents, Gradients, Inputs, Outputs, Tensor};
use ndarray::{ArrayD, IxDyn};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

/// The formats that the kernels take.
pub const FORMATS: [Format; 4] = [Format::F64, Format::F32, Format::F16, Format::Bf16];

/// Naive, and tilings whose sizes divide the lengths of the tests, do not, or exceed them; and a
/// split into one part, whose merge is exact.
pub fn kernels() -> Vec<Box<dyn Kernel>> {
    let tiled = TILES.map(|tile| format!("tiled:{tile}"));
    let names = tiled.into_iter().chain(["naive", "split:1"].map(str::to_owned));
    names.map(|name| builtin(&name).expect("a kernel of this crate")).collect()
}

/// As [`kernels`], and splits whose merges round.
pub fn kernels_and_splits() -> Vec<Box<dyn Kernel>> {
    let splits = ["split:2", "split:3", "split:5"];
    let splits = splits.map(|name| builtin(name).expect("a kernel of this crate"));
    kernels().into_iter().chain(splits).collect()
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

/// Inputs of the problem's shapes from flat lists, without bias and sinks; the format must hold
/// every value.
pub fn inputs(problem: &Problem, query: &[f64], key: &[f64], value: &[f64]) -> Inputs {
    let format = problem.format;
    Inputs::new(
        tensor(format, &problem.query_shape(), query),
        tensor(format, &problem.key_shape(), key),
        tensor(format, &problem.value_shape(), value),
    )
}

/// The inputs with this bias.
pub fn with_bias(problem: &Problem, inputs: Inputs, bias: &[f64]) -> Inputs {
    let described = problem.bias.expect("a problem with a bias");
    Inputs { bias: Some(tensor(described.format, &described.shape, bias)), ..inputs }
}

/// The inputs with these logits of sinks.
pub fn with_sink(problem: &Problem, inputs: Inputs, sink: &[f64]) -> Inputs {
    let Some(Sink::Logits(format)) = problem.sink else { panic!("a problem with given sinks") };
    Inputs { sink: Some(tensor(format, &problem.sink_shape(), sink)), ..inputs }
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

pub fn tensor(format: Format, shape: &[usize], values: &[f64]) -> Tensor {
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

/// Numbers uniform on `[-2, 2)`, rounded to their formats; one bias in four is minus infinity.
pub fn uniform(problem: &Problem, seed: u64) -> Inputs {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let mut tensor = |shape: [usize; 4]| uniform_tensor(problem.format, &shape, &mut rng);
    let [query, key, value] =
        [problem.query_shape(), problem.key_shape(), problem.value_shape()].map(&mut tensor);
    let bias = problem.bias.map(|bias| uniform_bias(bias, &mut rng));
    let sink = match problem.sink {
        None | Some(Sink::Zero) => None,
        Some(Sink::Logits(format)) => Some(uniform_tensor(format, &problem.sink_shape(), &mut rng)),
    };
    Inputs { query, key, value, bias, sink, descale: None }
}

/// As [`uniform`], for the upstream gradients of output and LSE.
pub fn uniform_cotangents(problem: &Problem, seed: u64) -> Cotangents {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    Cotangents {
        output: uniform_tensor(problem.format, &problem.output_shape(), &mut rng),
        lse: Some(uniform_tensor(arithmetic(problem.format), &problem.lse_shape(), &mut rng)),
    }
}

/// Hides nothing where the format has no infinity.
fn uniform_bias(bias: Bias, rng: &mut ChaCha8Rng) -> Tensor {
    let drawn = uniform_tensor(bias.format, &bias.shape, rng);
    if !bias.format.represents(f64::NEG_INFINITY) {
        return drawn;
    }
    let values =
        drawn.values().mapv(|b| if rng.random_ratio(1, 4) { f64::NEG_INFINITY } else { b });
    Tensor::rounded(bias.format, &values)
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

/// `tanh x` in the arithmetic of the kernels, for an `x` that it holds.
pub fn tanh(format: Format, x: f64) -> f64 {
    let x = black_box(x);
    match arithmetic(format) {
        Format::F64 => x.tanh(),
        _ => f64::from((x as f32).tanh()),
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

/// All gradients as bits, in which NaN equals NaN and the zeros differ.
pub fn gradient_bits(gradients: &Gradients) -> Vec<u64> {
    let Gradients { query, key, value, bias, sink } = gradients;
    let all = [query, key, value].into_iter().chain(bias).chain(sink);
    all.flat_map(values).map(f64::to_bits).collect()
}
