//! Patterns of additive bias.

use flashproof_spec::format::Format;
use flashproof_spec::problem::Problem;
use flashproof_spec::score::Bias;
use flashproof_spec::tensor::Tensor;
use ndarray::Array4;
use rand::seq::SliceRandom;
use rand_chacha::ChaCha8Rng;
use serde::{Deserialize, Serialize};

use super::draw::{self, Stream};

/// How the bias is drawn.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum BiasValues {
    /// Standard normal.
    #[default]
    Normal,
    /// Climbs along the keys and falls along the queries, heads apart.
    Ramp,
    /// Standard normal, but three in ten entries are minus infinity.
    MinusInfinity,
    /// Zero up to the diagonal from the last query and key, minus infinity past it: a causal mask
    /// as many frameworks pass it.
    Causal,
    /// Standard normal, but every third row is minus infinity.
    MinusInfinityRows,
    /// Standard normal, but three in ten entries are the lowest finite number of the format.
    Lowest,
    /// Standard normal, but every third row is the lowest finite number of the format.
    LowestRows,
    /// Every entry is the lowest finite number of the format.
    AllLowest,
    /// Standard normal, but the first entry is plus infinity.
    Infinity,
    /// Standard normal, but the first entry is NaN.
    Nan,
}

/// Of the entries that a pattern sets apart.
const SHARE_SET_APART: f64 = 0.3;
/// One row in so many is set apart.
const ROWS: usize = 3;
/// Climb along the keys, and fall along the queries.
const SLOPE: f64 = 0.125;
/// Step from one head to the next.
const HEAD_STEP: f64 = 0.25;

impl BiasValues {
    /// Every pattern.
    pub const ALL: [Self; 10] = [
        Self::Normal,
        Self::Ramp,
        Self::MinusInfinity,
        Self::Causal,
        Self::MinusInfinityRows,
        Self::Lowest,
        Self::LowestRows,
        Self::AllLowest,
        Self::Infinity,
        Self::Nan,
    ];

    /// The name, as in a case's name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Normal => "normal",
            Self::Ramp => "ramp",
            Self::MinusInfinity => "minus-infinity",
            Self::Causal => "causal",
            Self::MinusInfinityRows => "minus-infinity-rows",
            Self::Lowest => "lowest",
            Self::LowestRows => "lowest-rows",
            Self::AllLowest => "all-lowest",
            Self::Infinity => "infinity",
            Self::Nan => "nan",
        }
    }

    /// What the pattern is for and which fault it exposes.
    #[must_use]
    pub const fn purpose(self) -> &'static str {
        match self {
            Self::Normal => "A normal bias: every entry moves the rows it is broadcast to.",
            Self::Ramp => {
                "A bias that climbs along the keys and falls along the queries: an index that is swapped or shifted shows."
            }
            Self::MinusInfinity => {
                "A bias with entries of minus infinity: their keys are invisible, and not merely unlikely."
            }
            Self::Causal => "A causal mask passed as a bias of minus infinity.",
            Self::MinusInfinityRows => {
                "A bias with rows of minus infinity: rows without keys, that no rule of the mask tells of."
            }
            Self::Lowest => {
                "A bias with entries of the lowest finite number: their keys are unlikely, and adding to them must not overflow."
            }
            Self::LowestRows | Self::AllLowest => {
                "A bias with rows of the lowest finite number: the keys are visible, and the row is not empty."
            }
            Self::Infinity | Self::Nan => {
                "A bias with one entry that is no number: it belongs in the rows that see its key, and nowhere else."
            }
        }
    }

    /// Whether some keys are hidden.
    #[must_use]
    pub const fn hides(self) -> bool {
        matches!(self, Self::MinusInfinity | Self::Causal | Self::MinusInfinityRows)
    }

    /// Whether the pattern says nothing without both queries and keys in the bias's shape.
    #[must_use]
    pub const fn needs_rows(self) -> bool {
        matches!(self, Self::Causal | Self::MinusInfinityRows | Self::LowestRows)
    }
}

/// The bias of a problem.
pub(super) fn draw(problem: &Problem, bias: Bias, values: BiasValues, seed: u64) -> Tensor {
    let Bias { shape, format } = bias;
    let rng = &mut draw::generator(seed, Stream::Bias);
    let lowest = -format.max_finite();
    let drawn = match values {
        BiasValues::Normal => draw::normal(shape, 1.0, rng),
        BiasValues::Ramp => Array4::from_shape_fn(shape, |(_, head, query, key)| {
            SLOPE * (key as f64 - query as f64) + HEAD_STEP * head as f64
        }),
        BiasValues::MinusInfinity => {
            with_entries(draw::normal(shape, 1.0, rng), f64::NEG_INFINITY, rng)
        }
        BiasValues::Lowest => with_entries(draw::normal(shape, 1.0, rng), lowest, rng),
        BiasValues::Causal => causal(problem, shape),
        BiasValues::MinusInfinityRows => {
            with_rows(draw::normal(shape, 1.0, rng), f64::NEG_INFINITY)
        }
        BiasValues::LowestRows => with_rows(draw::normal(shape, 1.0, rng), lowest),
        BiasValues::AllLowest => Array4::from_elem(shape, lowest),
        BiasValues::Infinity => with_first(draw::normal(shape, 1.0, rng), f64::INFINITY),
        BiasValues::Nan => with_first(draw::normal(shape, 1.0, rng), f64::NAN),
    };
    rounded(format, drawn)
}

fn rounded(format: Format, values: Array4<f64>) -> Tensor {
    Tensor::rounded(format, &values.into_dyn())
}

/// Puts `entry` at a share of the places, but not at all of them.
fn with_entries(mut values: Array4<f64>, entry: f64, rng: &mut ChaCha8Rng) -> Array4<f64> {
    let count = values.len();
    let apart = ((SHARE_SET_APART * count as f64).ceil() as usize).min(count.saturating_sub(1));
    let mut chosen: Vec<_> = (0..count).map(|place| place < apart).collect();
    chosen.shuffle(rng);
    for (value, _) in values.iter_mut().zip(chosen).filter(|(_, chosen)| *chosen) {
        *value = entry;
    }
    values
}

/// Fills every third row, the first one included.
fn with_rows(mut values: Array4<f64>, entry: f64) -> Array4<f64> {
    for mut row in values.rows_mut().into_iter().step_by(ROWS) {
        row.fill(entry);
    }
    values
}

fn with_first(mut values: Array4<f64>, entry: f64) -> Array4<f64> {
    if let Some(first) = values.first_mut() {
        *first = entry;
    }
    values
}

fn causal(problem: &Problem, shape: [usize; 4]) -> Array4<f64> {
    let last = |query: usize| query as i128 + problem.key_len as i128 - problem.query_len as i128;
    Array4::from_shape_fn(
        shape,
        |(_, _, query, key)| {
            if key as i128 <= last(query) { 0.0 } else { f64::NEG_INFINITY }
        },
    )
}
