//! Answers in `f64` whatever the format of the problem, and the format that is next in width.
//!
//! Not the oracle's: rows of that cost more than all trivial answers together. A correct kernel in
//! `f64` errs by far less than the rounding to a narrower format that follows.

use flashproof_kernels::Kernel;
use flashproof_kernels::cpu::Naive;
use flashproof_spec::format::Format;
use flashproof_spec::layout::Layout;
use flashproof_spec::problem::Problem;
use flashproof_spec::score::{Bias, Sink};
use flashproof_spec::tensor::{Cotangents, Gradients, Inputs, Outputs, Tensor};

/// The format that a result may have been rounded to on its way into one of `format`: less precise, and
/// the most precise such one that is in use. None is less precise than `e5m2`.
pub(super) const fn narrower(format: Format) -> Option<Format> {
    match format {
        Format::F64 => Some(Format::F32),
        Format::F32 | Format::Tf32 | Format::F16 => Some(Format::Bf16),
        Format::Bf16 => Some(Format::E4m3),
        Format::E4m3 => Some(Format::E5m2),
        Format::E5m2 => None,
    }
}

/// The tensor in `format`, with values of the narrower format, saturating.
pub(super) fn rounded(format: Format, tensor: &Tensor) -> Tensor {
    let Some(narrow) = narrower(format) else { return Tensor::rounded(format, tensor.values()) };
    let largest = narrow.max_finite();
    let round = |value: f64| narrow.round(value).clamp(-largest, largest);
    let saturated = |value: f64| {
        if value.is_nan() { value } else { round(value.clamp(-largest, largest)) }
    };
    Tensor::rounded(format, &tensor.values().mapv(saturated))
}

/// Output and LSE in `f64`.
pub(super) fn outputs(problem: &Problem, inputs: &Inputs) -> Outputs {
    let inputs = inputs.dequantized(problem);
    let wide = Naive.forward(&widened(problem), &widened_inputs(&inputs));
    wide.expect("the kernel takes every problem in f64")
}

/// Gradients in `f64`.
pub(super) fn gradients(problem: &Problem, inputs: &Inputs, cotangents: &Cotangents) -> Gradients {
    let outputs = outputs(problem, inputs);
    let cotangents = Cotangents {
        output: widened_tensor(&cotangents.output),
        lse: cotangents.lse.as_ref().map(widened_tensor),
    };
    let inputs = inputs.dequantized(problem);
    let wide = Naive.backward(&widened(problem), &widened_inputs(&inputs), &outputs, &cotangents);
    wide.expect("the kernel takes every problem in f64")
}

/// The problem in `f64`, its tensors dense.
fn widened(problem: &Problem) -> Problem {
    let format = Format::F64;
    Problem {
        format,
        bias: problem.bias.map(|bias| Bias { format, ..bias }),
        sink: problem.sink.map(|sink| match sink {
            Sink::Zero => Sink::Zero,
            Sink::Logits(_) => Sink::Logits(format),
        }),
        layout: Layout::Contiguous,
        ..problem.dequantized()
    }
}

fn widened_inputs(inputs: &Inputs) -> Inputs {
    Inputs {
        query: widened_tensor(&inputs.query),
        key: widened_tensor(&inputs.key),
        value: widened_tensor(&inputs.value),
        bias: inputs.bias.as_ref().map(widened_tensor),
        sink: inputs.sink.as_ref().map(widened_tensor),
        descale: None,
    }
}

fn widened_tensor(tensor: &Tensor) -> Tensor {
    Tensor::rounded(Format::F64, tensor.values())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn narrower_formats_are_less_precise() {
        for format in Format::ALL {
            let narrow = narrower(format);
            assert!(narrow.is_none_or(|it| it.precision() < format.precision()), "{format}");
        }
    }

    #[test]
    fn rounding_saturates_and_keeps_nan() {
        let values =
            ndarray::arr1(&[1.0 + 2f64.powi(-7), 1e6, f64::NEG_INFINITY, f64::NAN]).into_dyn();
        let tensor = rounded(Format::Bf16, &Tensor::rounded(Format::Bf16, &values));
        let values: Vec<_> = tensor.values().iter().copied().collect();
        assert_eq!(values[..3], [1.0, 448.0, -448.0]);
        assert!(values[3].is_nan());
    }
}
