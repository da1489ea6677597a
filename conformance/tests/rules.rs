//! The rules of other projects: each accepts and rejects what it should by hand, dense attention is
//! attention, and the known holes of the rules are there.

mod support;

use flashproof_conformance::adapter::Choices;
use flashproof_conformance::rules::answer::{Shown, Standard};
use flashproof_conformance::rules::battery::battery;
use flashproof_conformance::rules::dense::{Dense, DenseGradients};
use flashproof_conformance::rules::drawn::Distribution;
use flashproof_conformance::rules::table::{RULES, find};
use flashproof_conformance::rules::tolerance::Numbers;
use flashproof_conformance::rules::{Looked, Opinion, Rule};
use flashproof_conformance::verdict::{
    Answer, GradientAnswer, Quantity, judge_gradients, judge_rows,
};
use flashproof_spec::format::Format;
use flashproof_spec::problem::Problem;
use flashproof_spec::profile::Profile;
use flashproof_spec::tensor::{Gradients, Inputs, Outputs, Tensor};
use ndarray::{ArrayD, s};

const SEED: u64 = 1;

fn rule(name: &str) -> &'static Rule {
    find(name).unwrap_or_else(|| panic!("no rule is called {name}"))
}

/// What the rule says of one number, where the reference is 1 and the peer is as given.
fn opinion(name: &str, quantity: Quantity, format: Format, peer: f64, got: f64) -> Opinion {
    let looked = Looked { quantity, format, softcap: false };
    let numbers = Numbers { format, got: &[got], reference: &[1.0], peer: &[peer] };
    rule(name).opinion(looked, &numbers)
}

/// Of a reference of 1: the largest power-of-two fraction of error that each rule lets pass, and the
/// next that it does not.
#[test]
fn each_rule_draws_its_line_where_its_project_does() {
    use Format::{Bf16, F16, F32, F64};
    use Quantity::{KeyGradient, Lse, Output, QueryGradient, ValueGradient};
    let ulps = |count: f64, exponent: i32| 1.0 + count * 2_f64.powi(exponent);
    for (name, quantity, format, peer, accepted, rejected) in [
        // Twice and three times the peer's error of 2^-7.
        ("FlashAttention-2", Output, Bf16, ulps(1.0, -7), ulps(2.0, -7), ulps(3.0, -7)),
        ("FlashAttention-2", QueryGradient, Bf16, ulps(1.0, -7), ulps(3.0, -7), ulps(4.0, -7)),
        // In f16, 1 + 0.3 - 0.3 is 1 again or off by a unit of 1.3, which is 2^-10: to be seen below.
        ("FlashAttention-3", Output, F16, ulps(8.0, -10), ulps(16.0, -10), ulps(19.0, -10)),
        // 4 x 2^-10 is above 3.9e-3, as atol and as rtol: 2 x 4 x 2^-10.
        ("PyTorch (older)", QueryGradient, F16, ulps(1.0, -10), ulps(8.0, -10), ulps(9.0, -10)),
        ("PyTorch (older)", Output, F16, ulps(2.0, -10), ulps(4.0, -10), ulps(5.0, -10)),
        ("PyTorch (newer)", QueryGradient, F16, ulps(1.0, -10), ulps(180.0, -10), ulps(181.0, -10)),
        ("PyTorch (newer)", KeyGradient, F16, ulps(1.0, -10), ulps(16.0, -10), ulps(17.0, -10)),
        ("PyTorch (newer)", Output, F16, ulps(1.0, -10), ulps(4.0, -10), ulps(5.0, -10)),
        ("FlexAttention", Output, F32, ulps(1.0, -20), ulps(10.0, -20), ulps(11.0, -20)),
        ("FlexAttention", Output, F16, ulps(10.0, -10), ulps(11.0, -10), ulps(12.0, -10)),
        // 1.3e-6 + 1e-5 is 11.3e-6; 2^-17 is 7.6e-6.
        ("assert_close", Output, F32, 1.0, ulps(1.0, -17), ulps(2.0, -17)),
        ("assert_close", Output, F16, 1.0, ulps(1.0, -10), ulps(2.0, -10)),
        ("assert_close", Output, Bf16, 1.0, ulps(2.0, -7), ulps(3.0, -7)),
        ("assert_close", Lse, F64, 1.0, ulps(1.0, -23), ulps(2.0, -23)),
        ("xFormers", Output, F32, 1.0, ulps(2.0, -13), ulps(3.0, -13)),
        ("xFormers", ValueGradient, Bf16, 1.0, ulps(102.0, -7), ulps(103.0, -7)),
        ("xFormers", Lse, F32, 1.0, ulps(1.0, -13), ulps(2.0, -13)),
        // Against another backend, not the reference: the peer.
        ("Transformer Engine", Output, F16, ulps(8.0, -10), ulps(10.0, -10), ulps(11.0, -10)),
        ("Transformer Engine", QueryGradient, Bf16, 1.0, ulps(3.0, -7), ulps(4.0, -7)),
        ("JAX splash", Output, F32, 1.0, ulps(6.0, -10), ulps(7.0, -10)),
        ("JAX splash", QueryGradient, Bf16, 1.0, ulps(12.0, -7), ulps(13.0, -7)),
        ("JAX splash", Lse, F32, 1.0, ulps(2.0, -10), ulps(3.0, -10)),
        ("FlashInfer", Output, F16, 1.0, ulps(2.0, -10), ulps(3.0, -10)),
        ("vLLM", Output, Bf16, 1.0, ulps(3.0, -7), ulps(4.0, -7)),
        // The mean of one number is that number.
        ("CUTLASS", Output, F16, 1.0, 1.0, ulps(2.0, -10)),
        ("ThunderKittens", Output, Bf16, 1.0, ulps(1.0, -7), ulps(2.0, -7)),
        ("Triton tutorial", Output, F16, 1.0, ulps(10.0, -10), ulps(11.0, -10)),
        // sqrt(5e-4) is 0.02236; 22 x 2^-10 is 0.02148.
        ("ggml NMSE", Output, F16, 1.0, ulps(22.0, -10), ulps(23.0, -10)),
        ("MLX", Output, F16, 1.0, 1.0, ulps(1.0, -10)),
        ("MLX", Output, Bf16, 1.0, ulps(1.0, -7), ulps(2.0, -7)),
        ("ONNX", Output, F32, 1.0, ulps(1.0, -10), ulps(2.0, -10)),
        ("KernelBench", Output, F32, 1.0, ulps(1.0, -13), ulps(2.0, -13)),
        ("SOL-ExecBench", Output, Bf16, 1.0, ulps(2.0, -7), ulps(3.0, -7)),
    ] {
        let of = |got| opinion(name, quantity, format, peer, got);
        assert_eq!(of(accepted), Opinion::Accepts, "{name} {quantity} {format} at {accepted}");
        assert_eq!(of(rejected), Opinion::Rejects, "{name} {quantity} {format} at {rejected}");
        assert_eq!(of(f64::NAN), Opinion::Rejects, "{name} {quantity} {format} at NaN");
    }
}

#[test]
fn rules_do_not_look_at_what_their_projects_do_not_compare() {
    for (name, quantity, format) in [
        ("FlashAttention-2", Quantity::Lse, Format::Bf16),
        ("FlashAttention-2", Quantity::Output, Format::F32),
        ("ggml NMSE", Quantity::QueryGradient, Format::F16),
        ("MLX", Quantity::Lse, Format::F32),
        ("Transformer Engine", Quantity::Output, Format::F32),
        ("JAX splash", Quantity::Output, Format::F16),
    ] {
        assert_eq!(opinion(name, quantity, format, 1.0, 9.0), Opinion::DoesNotLook, "{name}");
    }
}

#[test]
fn names_are_one_each() {
    for rule in &RULES {
        assert!(std::ptr::eq(find(rule.name).unwrap(), find(rule.name).unwrap()));
        assert_eq!(RULES.iter().filter(|other| other.name == rule.name).count(), 1);
    }
}

/// The answer that dense attention in `f64` gives, as a kernel's.
fn dense(problem: &Problem, inputs: &Inputs) -> Outputs {
    let outputs = Dense::reference(problem, inputs).forward();
    let rounded = |values: ArrayD<f64>| Tensor::rounded(Format::F64, &values);
    Outputs {
        output: rounded(outputs.output.into_dyn()),
        lse: Some(rounded(outputs.lse.into_dyn())),
    }
}

/// The reference is itself held to the bounds, as a kernel of `f64`.
#[test]
fn the_reference_is_attention() {
    for posed in battery(Format::F64) {
        let problem = &posed.problem;
        let inputs = Distribution::Normal.inputs(problem, SEED);
        let cotangents = Distribution::Normal.cotangents(problem, SEED);
        let outputs = dense(problem, &inputs);
        let DenseGradients { query, key, value, bias, sink } =
            Dense::reference(problem, &inputs).backward(&cotangents);
        let rounded = |values: ArrayD<f64>| Tensor::rounded(Format::F64, &values);
        let gradients = Gradients {
            query: rounded(query.into_dyn()),
            key: rounded(key.into_dyn()),
            value: rounded(value.into_dyn()),
            bias: problem.bias.map(|_| rounded(bias.into_dyn())),
            sink: problem.sink.map(|_| rounded(sink.into_dyn())),
        };
        let profile = Profile::standard(Format::F64);
        let choices = Choices::default();
        let answer =
            Answer { problem, inputs: &inputs, outputs: &outputs, profile: &profile, choices };
        let tally = judge_rows(&answer, &answer.every_row(), |_| ()).unwrap();
        assert_eq!(tally.violations, [], "{}", posed.name);
        let answer = GradientAnswer {
            forward: answer,
            cotangents: &cotangents,
            gradients: &gradients,
            wrong_rows: &[],
        };
        let tally = judge_gradients(&answer, &answer.every_place(), |_| ()).unwrap();
        assert_eq!(tally.violations, [], "{}", posed.name);
    }
}

/// Two keys of scores 0 and 3 in bf16, where every rounding is known: the weights are 0.04742587 and
/// 0.95257413, so 0.04736328125 and 0.953125; the output of values 1 and 3 is 2.90673828125 before
/// and 2.90625 after its own rounding.
#[test]
fn the_peer_rounds_every_tensor() {
    let problem = Problem { query_len: 1, ..Problem::new(Format::Bf16, 1, 2, 1) };
    let tensor = |shape: [usize; 4], values: &[f64]| {
        Tensor::rounded_from(Format::Bf16, &shape, values.to_vec()).unwrap()
    };
    let inputs = Inputs::new(
        tensor([1, 1, 1, 1], &[1.0]),
        tensor([1, 1, 2, 1], &[0.0, 3.0]),
        tensor([1, 1, 2, 1], &[1.0, 3.0]),
    );
    let outputs = Dense::peer(&problem, &inputs).forward();
    assert_eq!(outputs.output[[0, 0, 0, 0]], 2.90625);
}

/// A problem with inputs and the right answer, rounded.
struct Right {
    standard: Standard,
    outputs: Outputs,
    gradients: Option<Gradients>,
}

fn rounded(problem: &Problem, values: &ArrayD<f64>) -> Tensor {
    Tensor::rounded(problem.format, values)
}

fn right(problem: &Problem, distribution: Distribution, backward: bool) -> Right {
    let inputs = distribution.inputs(problem, SEED);
    let cotangents = backward.then(|| distribution.cotangents(problem, SEED));
    let dense = Dense::reference(problem, &inputs);
    let outputs =
        Outputs { output: rounded(problem, &dense.forward().output.into_dyn()), lse: None };
    let gradients = cotangents.as_ref().map(|cotangents| {
        let exact = dense.backward(cotangents);
        Gradients::new(
            rounded(problem, &exact.query.into_dyn()),
            rounded(problem, &exact.key.into_dyn()),
            rounded(problem, &exact.value.into_dyn()),
        )
    });
    Right { standard: Standard::new(problem, &inputs, cotangents.as_ref()), outputs, gradients }
}

fn said(
    standard: &Standard,
    name: &str,
    outputs: &Outputs,
    gradients: Option<&Gradients>,
) -> Opinion {
    standard.opinion(rule(name), Shown { outputs, gradients })
}

fn zeroed(tensor: &Tensor) -> Tensor {
    support::map(tensor, |_| 0.0)
}

#[test]
fn transformer_engine_passes_gradients_of_zero_and_uniform_weights() {
    for format in [Format::F16, Format::Bf16] {
        let problem = Problem { batch: 2, ..Problem::new(format, 2, 128, 64) };
        let Right { standard, outputs, gradients } =
            right(&problem, Distribution::TransformerEngine, true);
        let gradients = gradients.unwrap();
        let nothing =
            Gradients { query: zeroed(&gradients.query), key: zeroed(&gradients.key), ..gradients };
        let inputs = Distribution::TransformerEngine.inputs(&problem, SEED);
        let mut mean = outputs.output.values().clone();
        for (batch, head) in ndarray::indices((2, 2)) {
            let values = inputs.value.view4();
            let values = values.slice(s![batch, head, .., ..]);
            let of_head = values.mean_axis(ndarray::Axis(0)).unwrap();
            mean.slice_mut(s![batch, head, .., ..]).assign(&of_head);
        }
        let uniform = Outputs { output: rounded(&problem, &mean), lse: None };
        let of = |outputs: &Outputs| said(&standard, "Transformer Engine", outputs, Some(&nothing));
        assert_eq!(of(&uniform), Opinion::Accepts, "{format}");
        let none = Outputs { output: zeroed(&outputs.output), lse: None };
        assert_eq!(of(&none), Opinion::Rejects, "{format}");
    }
}

#[test]
fn the_older_rule_of_pytorch_passes_query_gradients_of_zero() {
    let mut passed = 0;
    for format in [Format::F16, Format::Bf16] {
        for (len, dim) in [(64, 64), (128, 32), (128, 64), (256, 32)] {
            let problem = Problem::new(format, 2, len, dim);
            let Right { standard, outputs, gradients } = right(&problem, Distribution::Unit, true);
            let gradients = gradients.unwrap();
            let zero = Gradients { query: zeroed(&gradients.query), ..gradients };
            let opinion = said(&standard, "PyTorch (older)", &outputs, Some(&zero));
            passed += u32::from(opinion == Opinion::Accepts);
            let other = said(&standard, "FlashAttention-2", &outputs, Some(&zero));
            assert_eq!(other, Opinion::Rejects, "{format} {len} {dim}");
        }
    }
    assert_eq!(passed, 8);
}

#[test]
fn twice_the_largest_error_of_a_peer_hides_a_dropped_key_in_one_row() {
    let problem = Problem::new(Format::Bf16, 1, 1024, 64);
    let Right { standard, outputs, .. } = right(&problem, Distribution::Normal, false);
    let inputs = Distribution::Normal.inputs(&problem, SEED);
    // The last row alone, over the keys from 1 on.
    let short = |tensor: &Tensor, from: usize| {
        let values = tensor.values().slice(s![.., .., from.., ..]).to_owned().into_dyn();
        Tensor::rounded(Format::Bf16, &values)
    };
    let without = Problem { query_len: 1, key_len: 1023, ..problem.clone() };
    let row = Dense::reference(
        &without,
        &Inputs::new(short(&inputs.query, 1023), short(&inputs.key, 1), short(&inputs.value, 1)),
    )
    .forward();
    let mut dropped = outputs.output.values().clone();
    dropped.slice_mut(s![0, 0, 1023, ..]).assign(&row.output.slice(s![0, 0, 0, ..]));
    let dropped = Outputs { output: rounded(&problem, &dropped), lse: None };
    assert_ne!(dropped, outputs);
    let opinion = said(&standard, "FlashAttention-2", &dropped, None);
    assert_eq!(opinion, Opinion::Accepts);
}

#[test]
fn the_mean_square_of_ggml_passes_two_percent_everywhere() {
    let problem = Problem::new(Format::F32, 2, 64, 32);
    let Right { standard, outputs, .. } = right(&problem, Distribution::Symmetric, false);
    let scaled = |factor: f64| Outputs {
        output: support::map(&outputs.output, |it| it * factor),
        lse: None,
    };
    assert_eq!(said(&standard, "ggml NMSE", &scaled(1.02), None), Opinion::Accepts);
    assert_eq!(said(&standard, "ggml NMSE", &scaled(1.03), None), Opinion::Rejects);
}

#[test]
fn ninety_nine_percent_matched_passes_no_output_at_all() {
    let problem = Problem { query_len: 4, ..Problem::new(Format::Bf16, 1, 1 << 16, 16) };
    // Near-uniform attention: small queries. Outputs are means of 2^16 numbers of variance 1/3, so of
    // standard deviation 1/443.
    let Inputs { query, key, value, .. } = Distribution::Symmetric.inputs(&problem, SEED);
    let inputs = Inputs::new(support::map(&query, |it| it / 8.0), key, value);
    let standard = Standard::new(&problem, &inputs, None);
    let none = Tensor::rounded(Format::Bf16, &ArrayD::zeros(problem.output_shape().to_vec()));
    let none = Outputs { output: none, lse: None };
    assert_eq!(said(&standard, "SOL-ExecBench", &none, None), Opinion::Accepts);
    assert_eq!(said(&standard, "assert_close", &none, None), Opinion::Rejects);
}
