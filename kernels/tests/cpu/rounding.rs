//! Where the kernels round: what their profiles declare, one number at a time.

use std::hint::black_box;

use flashproof_kernels::{Kernel, builtin};
use flashproof_spec::format::Format;
use flashproof_spec::problem::{Problem, Scale};
use flashproof_spec::profile::{Normalizer, Profile, Schedule, Weights};
use half::{bf16, f16};

use crate::support::{FORMATS, inputs, kernels, lse, output, products, run, uniform};

/// `e^-1` as the kernels compute it: opaque, so that it is not the compiler that does.
fn weight_of_minus_one() -> f32 {
    black_box(-1.0_f32).exp()
}

fn kernel(name: &str) -> Box<dyn Kernel> {
    builtin(name).expect("a kernel of this crate")
}

/// Scores 0 and -1: output and LSE. Each test takes values at which another rounding would show.
fn two_keys(name: &str, format: Format, values: [f64; 2]) -> (f64, f64) {
    let problem = products(format, 1, 2, 1);
    let inputs = inputs(&problem, &[1.0], &[0.0, -1.0], &values);
    let outputs = run(kernel(name).as_ref(), &problem, &inputs);
    (output(&outputs)[0], lse(&outputs)[0])
}

#[test]
fn the_naive_kernel_keeps_weights_in_the_accumulator() {
    let weight = weight_of_minus_one();
    let normalizer = 1.0 + weight;
    let output = 1.0 / normalizer - weight / normalizer;
    let lse = f64::from(black_box(normalizer).ln());
    let naive = |format| two_keys("naive", format, [1.0, -1.0]);
    assert_eq!(naive(Format::F32), (output.into(), lse));
    assert_eq!(naive(Format::F16), (f16::from_f32(output).into(), lse));
    assert_eq!(naive(Format::Bf16), (bf16::from_f32(output).into(), lse));
    for format in FORMATS {
        let profile = kernel("naive").profile(format);
        assert_eq!(profile.weight_format, profile.arithmetic);
        assert_eq!(profile.weights, Weights::Normalized);
        assert_eq!(profile.schedule, Schedule::Dense);
    }
}

/// The numerator meets the rounded weight, the normalizer the weight as it was.
#[test]
fn the_tiled_kernel_rounds_weights_but_not_in_the_normalizer() {
    let weight = weight_of_minus_one();
    let normalizer = 1.0 + weight;
    let output = |rounded: f32| rounded / normalizer;
    let lse = f64::from(black_box(normalizer).ln());
    let tiled = |format| two_keys("tiled", format, [0.0, 1.0]);
    let half = output(f16::from_f32(weight).to_f32());
    let brain = output(bf16::from_f32(weight).to_f32());
    assert_eq!(tiled(Format::F32), (output(weight).into(), lse));
    assert_eq!(tiled(Format::F16), (f16::from_f32(half).into(), lse));
    assert_eq!(tiled(Format::Bf16), (bf16::from_f32(brain).into(), lse));
    for format in FORMATS {
        let profile = kernel("tiled").profile(format);
        assert_eq!(profile.weight_format, format);
        assert_eq!(profile.weights, Weights::Unnormalized);
        assert_eq!(profile.normalizer, Normalizer::Unrounded);
    }
}

/// Before the maximum moves the only weight is `e^0`; the move multiplies both sums by the factor.
#[test]
fn a_rising_maximum_rescales_normalizer_and_numerator() {
    let factor = weight_of_minus_one();
    let problem = products(Format::F32, 1, 2, 1);
    let inputs = inputs(&problem, &[1.0], &[-1.0, 0.0], &[3.0, 5.0]);
    let outputs = run(kernel("tiled:1x1").as_ref(), &problem, &inputs);
    assert_eq!(output(&outputs), [f64::from((3.0 * factor + 5.0) / (factor + 1.0))]);
    assert_eq!(lse(&outputs), [f64::from(black_box(factor + 1.0).ln())]);
}

/// `1/sqrt(d)` for a `d` that is no power of four, through the LSE of a single key of score 1/sqrt(d).
#[test]
fn the_softmax_scale_is_the_nearest_number_of_the_accumulator() {
    for format in FORMATS {
        for kernel in kernels() {
            for head_dim in [2, 40, 72, 112, 128] {
                let problem = Problem { key_len: 1, ..Problem::new(format, 1, 1, head_dim) };
                let mut unit = vec![0.0; head_dim];
                unit[head_dim - 1] = 1.0;
                let inputs = inputs(&problem, &unit, &unit, &vec![0.0; head_dim]);
                let outputs = run(kernel.as_ref(), &problem, &inputs);
                let exact = 1.0 / (head_dim as f64).sqrt();
                let expected = kernel.profile(format).arithmetic.round(exact);
                assert_eq!(lse(&outputs), [expected], "{} {format} {head_dim}", kernel.name());
            }
        }
    }
}

#[test]
fn a_tiling_declares_its_key_blocks() {
    let profile = kernel("tiled:3x17").profile(Format::Bf16);
    assert_eq!(profile.schedule, Schedule::Blocks(17));
}

/// Two keys, each in a part of its own: the parts are values and scores, and the merge is attention
/// over them, in the accumulator. The weight meets the value unrounded.
#[test]
fn a_split_merges_accumulators() {
    let weight = weight_of_minus_one();
    let normalizer = 1.0 + weight;
    let lse = f64::from(black_box(normalizer).ln());
    let output = weight / normalizer;
    let split = |format| two_keys("split:2", format, [0.0, 1.0]);
    assert_eq!(split(Format::F32), (output.into(), lse));
    assert_eq!(split(Format::F16), (f16::from_f32(output).into(), lse));
    assert_eq!(split(Format::Bf16), (bf16::from_f32(output).into(), lse));
}

#[test]
fn a_split_declares_its_parts_and_the_sink() {
    for format in FORMATS {
        let tiled = kernel("tiled").profile(format);
        assert_eq!(tiled.merged_parts, None);
        let split = Profile { merged_parts: Some(6), max_policy: None, ..tiled };
        assert_eq!(kernel("split:5").profile(format), split);
    }
}

#[test]
fn a_format_without_arithmetic_here_is_refused_by_name() {
    for format in [Format::Tf32, Format::E4m3, Format::E5m2] {
        for kernel in kernels() {
            let problem = Problem::new(format, 1, 2, 2);
            let refusal = kernel.forward(&problem, &uniform(&problem, 0)).expect_err("a refusal");
            assert_eq!(refusal.feature, format!("number format {format}"));
            assert_eq!(refusal.kernel, kernel.name());
        }
    }
}

/// A scale that the accumulator turns into zero, a subnormal or infinity would be another problem.
#[test]
fn a_scale_out_of_the_accumulators_range_is_refused_by_name() {
    for scale in [1e-60, 1e-39, 1e39] {
        for kernel in kernels() {
            let problem =
                |format| Problem { scale: Scale::Value(scale), ..products(format, 1, 1, 1) };
            let narrow = problem(Format::Bf16);
            let refusal = kernel.forward(&narrow, &uniform(&narrow, 0)).expect_err("a refusal");
            assert_eq!(refusal.feature, format!("a softmax scale of {scale:e} in f32 arithmetic"));
            let wide = problem(Format::F64);
            let outputs = run(kernel.as_ref(), &wide, &inputs(&wide, &[1.0], &[1.0], &[7.0]));
            assert_eq!((output(&outputs), lse(&outputs)), (vec![7.0], vec![scale]));
        }
    }
}
