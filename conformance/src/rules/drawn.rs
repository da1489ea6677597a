//! How the projects draw the inputs that they try their rules on.

use flashproof_spec::format::Format;
use flashproof_spec::problem::Problem;
use flashproof_spec::quantization::Descales;
use flashproof_spec::score::Sink;
use flashproof_spec::tensor::{Cotangents, Inputs, Tensor};
use ndarray::ArrayD;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use rand_distr::{Distribution as _, StandardNormal};
use serde::Serialize;

/// A way to draw query, key, value and the gradient of the output. Bias and logits of sinks, where a
/// problem has them, are drawn like the query.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Distribution {
    /// All from N(0, 1): `torch.randn`.
    Normal,
    /// All uniform on [0, 1): `torch.rand`, `jax.random.uniform`.
    Unit,
    /// All uniform on [-1, 1): ggml.
    Symmetric,
    /// Query, key and value from N(0, 1/4), the gradient from N(0, 1): Triton's tutorial.
    Triton,
    /// 0.1 times N(0, 1), the gradient 0.001 times a whole number from 0 to 199: Transformer Engine.
    TransformerEngine,
    /// Query and key uniform on [0, 1/2), values on [0, 1/sqrt(head entries)): MLX.
    Mlx,
}

/// The tensor that numbers are drawn for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Part {
    Query,
    Key,
    Value,
    Bias,
    Sink,
    Gradient,
}

impl Distribution {
    /// Every distribution.
    pub const ALL: [Self; 6] = [
        Self::Normal,
        Self::Unit,
        Self::Symmetric,
        Self::Triton,
        Self::TransformerEngine,
        Self::Mlx,
    ];

    /// In a few words.
    #[must_use]
    pub const fn describe(self) -> &'static str {
        match self {
            Self::Normal => "N(0, 1)",
            Self::Unit => "uniform [0, 1)",
            Self::Symmetric => "uniform [-1, 1)",
            Self::Triton => "N(0, 0.5^2), dO N(0, 1)",
            Self::TransformerEngine => "0.1 N(0, 1), dO 0.001 randint(0, 200)",
            Self::Mlx => "q, k uniform [0, 0.5), v uniform [0, 1/sqrt(d))",
        }
    }

    /// Inputs of the problem, the same for the same seed.
    #[must_use]
    pub fn inputs(self, problem: &Problem, seed: u64) -> Inputs {
        let draw = |part, format, shape: &[usize]| self.tensor(problem, part, format, shape, seed);
        let format = problem.format;
        Inputs {
            query: draw(Part::Query, format, &problem.query_shape()),
            key: draw(Part::Key, format, &problem.key_shape()),
            value: draw(Part::Value, format, &problem.value_shape()),
            bias: problem.bias.map(|bias| draw(Part::Bias, bias.format, &bias.shape)),
            sink: match problem.sink {
                Some(Sink::Logits(format)) => Some(draw(Part::Sink, format, &problem.sink_shape())),
                Some(Sink::Zero) | None => None,
            },
            descale: Descales::ones(problem),
        }
    }

    /// A gradient of the output, and none of the LSE.
    #[must_use]
    pub fn cotangents(self, problem: &Problem, seed: u64) -> Cotangents {
        let shape = problem.output_shape();
        let output = self.tensor(problem, Part::Gradient, problem.format, &shape, seed);
        Cotangents { output, lse: None }
    }

    fn tensor(
        self,
        problem: &Problem,
        part: Part,
        format: Format,
        shape: &[usize],
        seed: u64,
    ) -> Tensor {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        rng.set_stream(part as u64);
        let values = ArrayD::from_shape_simple_fn(shape, || self.number(problem, part, &mut rng));
        Tensor::rounded(format, &values)
    }

    fn number(self, problem: &Problem, part: Part, rng: &mut ChaCha8Rng) -> f64 {
        /// Transformer Engine draws its gradients from this many whole numbers, and scales them.
        const TE_GRADIENTS: u32 = 200;
        const TE_GRADIENT_SCALE: f64 = 0.001;
        const TE_SCALE: f64 = 0.1;
        const TRITON_DEVIATION: f64 = 0.5;
        let is_gradient = part == Part::Gradient;
        match self {
            Self::Normal => normal(rng),
            Self::Triton if is_gradient => normal(rng),
            Self::Triton => TRITON_DEVIATION * normal(rng),
            Self::Unit => rng.random(),
            Self::Symmetric => rng.random_range(-1.0..1.0),
            Self::TransformerEngine if is_gradient => {
                TE_GRADIENT_SCALE * f64::from(rng.random_range(0..TE_GRADIENTS))
            }
            Self::TransformerEngine => TE_SCALE * normal(rng),
            Self::Mlx if part == Part::Value => {
                rng.random::<f64>() / (problem.head_dim as f64).sqrt()
            }
            Self::Mlx if is_gradient => rng.random(),
            Self::Mlx => 0.5 * rng.random::<f64>(),
        }
    }
}

fn normal(rng: &mut ChaCha8Rng) -> f64 {
    StandardNormal.sample(rng)
}
