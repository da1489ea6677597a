//! The rules, as the projects' own tests had them in 2026.
//!
//! Where a project has several numbers, the strictest that its tests use for a whole kernel. Every
//! rule is given more than its project asks: problems with features that its own tests lack.

use flashproof_spec::format::Format;

use super::drawn::Distribution;
use super::tolerance::{Tolerance, Want};
use super::{Looked, Rule};
use crate::verdict::Quantity;

/// Every rule.
pub const RULES: [Rule; 19] = [
    FLASH_ATTENTION_2,
    FLASH_ATTENTION_3,
    PYTORCH_OLDER,
    PYTORCH_NEWER,
    FLEX_ATTENTION,
    ASSERT_CLOSE,
    XFORMERS,
    TRANSFORMER_ENGINE,
    JAX_SPLASH,
    FLASH_INFER,
    VLLM,
    CUTLASS,
    THUNDER_KITTENS,
    TRITON,
    GGML,
    MLX,
    ONNX,
    KERNEL_BENCH,
    SOL_EXEC_BENCH,
];

/// The rule of that name.
#[must_use]
pub fn find(name: &str) -> Option<&'static Rule> {
    RULES.iter().find(|rule| rule.name == name)
}

const fn is_gradient(quantity: Quantity) -> bool {
    matches!(quantity, Quantity::QueryGradient | Quantity::KeyGradient | Quantity::ValueGradient)
}

const FLASH_ATTENTION_2: Rule = Rule {
    name: "FlashAttention-2",
    project: "FlashAttention-2, tests/test_flash_attn.py",
    requires: "max|o - ref| <= 2 max|pt - ref|; gradients 3x; ref rounded; LSE not compared",
    inputs: Distribution::Normal,
    states_inputs: true,
    tolerance: |looked| {
        let factor = match looked.quantity {
            Quantity::Output => 2.0,
            quantity if is_gradient(quantity) => 3.0,
            _ => return None,
        };
        matches!(looked.format, Format::F16 | Format::Bf16)
            .then_some(Tolerance::PeerMaximum { factor, slack: 0.0 })
    },
};

const FLASH_ATTENTION_3: Rule = Rule {
    name: "FlashAttention-3",
    project: "FlashAttention-3 and its CuTe version, hopper/test_flash_attn.py",
    requires: "max|o - ref| <= 2 max|pt - ref| + 2 max|(ref + 0.3 - 0.3) - ref|, 3x with a softcap; gradients + 3e-4",
    inputs: Distribution::Normal,
    states_inputs: true,
    tolerance: |looked| {
        let factor = if looked.softcap { 3.0 } else { 2.0 };
        let slack = match looked.quantity {
            Quantity::Output => 0.0,
            quantity if is_gradient(quantity) => 3e-4,
            _ => return None,
        };
        matches!(looked.format, Format::F16 | Format::Bf16)
            .then_some(Tolerance::PeerMaximumAndRoundings { factor, slack })
    },
};

const PYTORCH_OLDER: Rule = Rule {
    name: "PyTorch (older)",
    project: "PyTorch, scaled_dot_product_attention against its math backend until 2024, test/test_transformers.py",
    requires: "allclose with atol and rtol the largest absolute and largest relative error of pt, at least the defaults; dQ 4x, dK and dV 2x",
    inputs: Distribution::Unit,
    states_inputs: true,
    tolerance: |looked| {
        let factor = match looked.quantity {
            Quantity::Output => 1.0,
            Quantity::QueryGradient => 4.0,
            Quantity::KeyGradient | Quantity::ValueGradient => 2.0,
            _ => return None,
        };
        (looked.format != Format::F64).then_some(Tolerance::PeerClose { factor })
    },
};

const PYTORCH_NEWER: Rule = Rule {
    name: "PyTorch (newer)",
    project: "PyTorch, scaled_dot_product_attention against its math backend, test/test_transformers.py",
    requires: "max|o - ref| <= max(1e-5, 4 max|pt - ref|); dQ 180x, dK 16x, dV 4x",
    inputs: Distribution::Unit,
    states_inputs: true,
    tolerance: |looked| {
        let factor = match looked.quantity {
            Quantity::Output | Quantity::ValueGradient => 4.0,
            Quantity::QueryGradient => 180.0,
            Quantity::KeyGradient => 16.0,
            _ => return None,
        };
        (looked.format != Format::F64)
            .then_some(Tolerance::PeerMaximumAtLeast { factor, least: 1e-5 })
    },
};

const FLEX_ATTENTION: Rule = Rule {
    name: "FlexAttention",
    project: "PyTorch FlexAttention, test/inductor/test_flex_attention.py",
    requires: "mean|o - ref| <= 1.1 mean|pt - ref|; f32 10x",
    inputs: Distribution::Normal,
    states_inputs: true,
    tolerance: |looked| {
        let compared = looked.quantity == Quantity::Output || is_gradient(looked.quantity);
        let factor = match looked.format {
            Format::F16 | Format::Bf16 => 1.1,
            Format::F32 => 10.0,
            _ => return None,
        };
        compared.then_some(Tolerance::PeerMean { factor })
    },
};

const ASSERT_CLOSE: Rule = Rule {
    name: "assert_close",
    project: "torch.testing.assert_close with its defaults",
    requires: "rtol/atol: f32 1.3e-6/1e-5, f16 1e-3/1e-5, bf16 1.6e-2/1e-5, f64 1e-7/1e-7",
    inputs: Distribution::Normal,
    states_inputs: false,
    tolerance: |looked| {
        let is_lse = looked.quantity == Quantity::Lse;
        Some(match looked.format {
            Format::F64 => Tolerance::close(1e-7, 1e-7),
            // The LSE of a kernel of narrow inputs is f32, and its tolerance that of f32.
            Format::F16 if !is_lse => Tolerance::close(1e-5, 1e-3),
            Format::Bf16 if !is_lse => Tolerance::close(1e-5, 1.6e-2),
            Format::F32 | Format::F16 | Format::Bf16 => Tolerance::close(1e-5, 1.3e-6),
            _ => return None,
        })
    },
};

const XFORMERS: Rule = Rule {
    name: "xFormers",
    project: "xFormers, tests/test_mem_eff_attention.py",
    requires: "atol: f32 3e-4, f16 4e-3, bf16 2e-2; gradients 5e-4, 9e-2, 0.7; LSE 2e-4",
    inputs: Distribution::Normal,
    states_inputs: false,
    tolerance: |looked| {
        let of_output = match looked.format {
            Format::F32 => (3e-4, 2e-5),
            Format::F16 => (4e-3, 4e-4),
            Format::Bf16 => (2e-2, 5e-3),
            _ => return None,
        };
        let of_gradients = match looked.format {
            Format::F32 => (5e-4, 1e-4),
            Format::F16 => (9e-2, 2e-2),
            _ => (0.7, 0.1),
        };
        let (absolute, relative) = match looked.quantity {
            Quantity::Output => of_output,
            Quantity::Lse => (2e-4, 1e-5),
            Quantity::SinkGradient => return None,
            _ => of_gradients,
        };
        Some(Tolerance::close(absolute, relative))
    },
};

const TRANSFORMER_ENGINE: Rule = Rule {
    name: "Transformer Engine",
    project: "Transformer Engine, fused against unfused attention, tests/pytorch/attention",
    requires: "allclose between two backends, atol = rtol: f16 1e-3, bf16 1.5e-2",
    inputs: Distribution::TransformerEngine,
    states_inputs: true,
    tolerance: |looked| {
        let tolerance = match looked.format {
            Format::F16 => 1e-3,
            Format::Bf16 => 1.5e-2,
            _ => return None,
        };
        let compared = looked.quantity == Quantity::Output || is_gradient(looked.quantity);
        compared.then_some(Tolerance::Close {
            absolute: tolerance,
            relative: tolerance,
            matched: 1.0,
            want: Want::Peer,
        })
    },
};

const JAX_SPLASH: Rule = Rule {
    name: "JAX splash",
    project: "JAX splash attention, tests/pallas",
    requires: "atol = rtol: output 3e-3, LSE 1e-3, dQ and dK 0.05, dV 3e-3 (bf16 4e-3)",
    inputs: Distribution::Unit,
    states_inputs: true,
    tolerance: |looked| {
        let tolerance = match (looked.quantity, looked.format) {
            (_, Format::F64 | Format::F16) => return None,
            (Quantity::Lse, _) => 1e-3,
            (Quantity::QueryGradient | Quantity::KeyGradient, _) => 0.05,
            (Quantity::ValueGradient, Format::Bf16) => 4e-3,
            (Quantity::Output | Quantity::ValueGradient, _) => 3e-3,
            _ => return None,
        };
        Some(Tolerance::close(tolerance, tolerance))
    },
};

const FLASH_INFER: Rule = Rule {
    name: "FlashInfer",
    project: "FlashInfer, tests/attention",
    requires: "atol = rtol: f16 1e-3, bf16 1e-2; output alone",
    inputs: Distribution::Normal,
    states_inputs: true,
    tolerance: |looked| {
        let tolerance = match looked.format {
            Format::F16 => 1e-3,
            Format::Bf16 => 1e-2,
            _ => return None,
        };
        of_output(looked, Tolerance::close(tolerance, tolerance))
    },
};

const VLLM: Rule = Rule {
    name: "vLLM",
    project: "vLLM, tests/kernels/attention",
    requires: "atol 1.5e-2, rtol 1e-2; output alone",
    inputs: Distribution::Normal,
    states_inputs: true,
    tolerance: |looked| match looked.format {
        Format::F16 | Format::Bf16 => of_output(looked, Tolerance::close(1.5e-2, 1e-2)),
        _ => None,
    },
};

const CUTLASS: Rule = Rule {
    name: "CUTLASS",
    project: "CUTLASS, examples 77 and 88",
    requires: "max|o - ref| < 1e-2 and mean|o - ref| < 1e-3; LSE and gradients as well",
    inputs: Distribution::Normal,
    states_inputs: false,
    tolerance: |looked| {
        let compared = matches!(looked.quantity, Quantity::Output | Quantity::Lse)
            || is_gradient(looked.quantity);
        (compared && looked.format != Format::F64)
            .then_some(Tolerance::MaximumAndMean { maximum: 1e-2, mean: 1e-3 })
    },
};

const THUNDER_KITTENS: Rule = Rule {
    name: "ThunderKittens",
    project: "ThunderKittens, kernels/attn",
    requires: "|o - ref| <= 0.01, gradients 0.015, unless the mean error is below 1e-3",
    inputs: Distribution::Normal,
    states_inputs: true,
    tolerance: |looked| {
        let maximum = match looked.quantity {
            Quantity::Output => 0.01,
            quantity if is_gradient(quantity) => 0.015,
            _ => return None,
        };
        (looked.format == Format::Bf16).then_some(Tolerance::MaximumOrMean { maximum, mean: 1e-3 })
    },
};

const TRITON: Rule = Rule {
    name: "Triton tutorial",
    project: "Triton, tutorial 06-fused-attention",
    requires: "atol 1e-2, rtol 0",
    inputs: Distribution::Triton,
    states_inputs: true,
    tolerance: |looked| {
        let compared = looked.quantity == Quantity::Output || is_gradient(looked.quantity);
        (compared && looked.format == Format::F16).then_some(Tolerance::close(1e-2, 0.0))
    },
};

const GGML: Rule = Rule {
    name: "ggml NMSE",
    project: "ggml, tests/test-backend-ops.cpp, test_flash_attn_ext",
    requires: "sum (o - ref)^2 <= 5e-4 sum ref^2 over the whole output",
    inputs: Distribution::Symmetric,
    states_inputs: true,
    tolerance: |looked| match looked.format {
        Format::F64 => None,
        _ => of_output(looked, Tolerance::MeanSquare { limit: 5e-4 }),
    },
};

const MLX: Rule = Rule {
    name: "MLX",
    project: "MLX, python/tests/test_fast_sdpa.py",
    requires: "atol = rtol: f32 1e-5, f16 3e-4, bf16 5e-3; output alone",
    inputs: Distribution::Mlx,
    states_inputs: true,
    tolerance: |looked| {
        let tolerance = match looked.format {
            Format::F32 => 1e-5,
            Format::F16 => 3e-4,
            Format::Bf16 => 5e-3,
            _ => return None,
        };
        of_output(looked, Tolerance::close(tolerance, tolerance))
    },
};

const ONNX: Rule = Rule {
    name: "ONNX",
    project: "ONNX backend node tests of Attention",
    requires: "rtol 1e-3, atol 1e-7; output alone",
    inputs: Distribution::Unit,
    states_inputs: true,
    tolerance: |looked| match looked.format {
        Format::F32 | Format::F16 => of_output(looked, Tolerance::close(1e-7, 1e-3)),
        _ => None,
    },
};

const KERNEL_BENCH: Rule = Rule {
    name: "KernelBench",
    project: "KernelBench, src/eval.py",
    requires: "atol = rtol: f32 1e-4, f16 and bf16 1e-2; output alone",
    inputs: Distribution::Unit,
    states_inputs: false,
    tolerance: |looked| {
        let tolerance = match looked.format {
            Format::F32 => 1e-4,
            Format::F16 | Format::Bf16 => 1e-2,
            _ => return None,
        };
        of_output(looked, Tolerance::close(tolerance, tolerance))
    },
};

const SOL_EXEC_BENCH: Rule = Rule {
    name: "SOL-ExecBench",
    project: "SOL-ExecBench",
    requires: "atol = rtol = 1e-2 in 99% of the elements; output alone",
    inputs: Distribution::Normal,
    states_inputs: false,
    tolerance: |looked| match looked.format {
        Format::F64 => None,
        _ => of_output(
            looked,
            Tolerance::Close { absolute: 1e-2, relative: 1e-2, matched: 0.99, want: Want::Rounded },
        ),
    },
};

fn of_output(looked: Looked, tolerance: Tolerance) -> Option<Tolerance> {
    (looked.quantity == Quantity::Output).then_some(tolerance)
}
