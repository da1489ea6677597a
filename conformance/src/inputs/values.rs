//! Patterns of values.

use flashproof_spec::problem::Problem;
use ndarray::{Array4, s};

use super::draw::{self, Stream};

/// How the values are drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Values {
    /// Standard normal.
    Normal,
    /// `N(0, 1) + N(0, 100) * Bernoulli(0.001)`.
    Outliers,
    /// Every entry 1: the output is 1 whatever the scores.
    Ones,
    /// Entry `j` of value `i` is 1 where `j = i mod value_dim`, else 0: outputs are sums of weights.
    OneHot,
    /// Keys come in equal pairs whose values nearly cancel: the output is small beside
    /// `sum_i p_i |v_ij|`.
    Cancelling,
    /// Uniform on `[1, 2)`.
    Positive,
    /// Whole numbers from -8 to 8.
    Integers,
    /// Below the smallest normal number of the format.
    Subnormal,
    /// Standard normal, but one entry of the value of key 0 is plus infinity.
    Infinity,
    /// Standard normal, but one entry of the value of key 0 is NaN.
    Nan,
}

/// Fraction of a value that its partner leaves standing.
const RESIDUE: f64 = 1.0 / 64.0;
/// Sums of 2^16 products of a weight and such a number are exact in `f32`.
const LARGEST_INTEGER: i32 = 8;

impl Values {
    /// Every pattern.
    pub const ALL: [Self; 10] = [
        Self::Normal,
        Self::Outliers,
        Self::Ones,
        Self::OneHot,
        Self::Cancelling,
        Self::Positive,
        Self::Integers,
        Self::Subnormal,
        Self::Infinity,
        Self::Nan,
    ];

    /// The name, as in a case's name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Normal => "normal",
            Self::Outliers => "outliers",
            Self::Ones => "ones",
            Self::OneHot => "one-hot",
            Self::Cancelling => "cancelling",
            Self::Positive => "positive",
            Self::Integers => "integers",
            Self::Subnormal => "subnormal",
            Self::Infinity => "infinity",
            Self::Nan => "nan",
        }
    }

    /// The entry that is no number, where the pattern has one.
    const fn special(self) -> Option<f64> {
        match self {
            Self::Infinity => Some(f64::INFINITY),
            Self::Nan => Some(f64::NAN),
            _ => None,
        }
    }

    /// What the pattern is for and which fault it exposes.
    #[must_use]
    pub const fn purpose(self) -> &'static str {
        match self {
            Self::Normal => "Normal values: every key moves every output entry.",
            Self::Outliers => {
                "Outlier values: a few entries dominate; an accumulator with too few bits loses the rest."
            }
            Self::Ones => {
                "Values of 1: the output is 1, so a numerator and a denominator that use different weights disagree in the open."
            }
            Self::OneHot => {
                "One-hot values: outputs are sums of weights, so one key dropped or added changes one entry alone."
            }
            Self::Cancelling => {
                "Values that cancel in pairs: the output is small beside the sum of magnitudes, where a tolerance relative to the output would be wrong and a narrow accumulator shows."
            }
            Self::Positive => {
                "Positive values: partial sums only grow, so a narrow accumulator stagnates."
            }
            Self::Integers => "Whole values: sums of equal weights are exact in every format.",
            Self::Subnormal => {
                "Subnormal values: a kernel that flushes them to zero without declaring it loses the output."
            }
            Self::Infinity => {
                "One infinite value entry: it belongs in its own output column, in the rows that see it, and nowhere else."
            }
            Self::Nan => {
                "One NaN value entry: it belongs in its own output column, in the rows that see it, and nowhere else."
            }
        }
    }
}

pub(super) fn draw(problem: &Problem, values: Values, seed: u64) -> Array4<f64> {
    let shape = problem.value_shape();
    let rng = &mut draw::generator(seed, Stream::Value);
    let drawn = match values {
        Values::Outliers => draw::outliers(shape, rng),
        Values::Ones => Array4::ones(shape),
        Values::OneHot => one_hot(shape),
        Values::Cancelling => cancelling(draw::normal(shape, 1.0, rng)),
        Values::Positive => draw::uniform(shape, 1.0, 2.0, rng),
        Values::Integers => draw::integers(shape, LARGEST_INTEGER, rng),
        Values::Subnormal => draw::subnormal(shape, problem.format, rng),
        Values::Normal | Values::Infinity | Values::Nan => draw::normal(shape, 1.0, rng),
    };
    let mut value = draw::within_range(drawn, problem.format);
    if let Some(special) = values.special()
        && let Some(first) = value.first_mut()
    {
        *first = special;
    }
    value
}

fn one_hot(shape: [usize; 4]) -> Array4<f64> {
    let value_dim = shape[3];
    Array4::from_shape_fn(
        shape,
        |(_, _, key, entry)| {
            if entry == key % value_dim { 1.0 } else { 0.0 }
        },
    )
}

/// Each value of odd position becomes the negative of the one before it, less a residue.
fn cancelling(mut value: Array4<f64>) -> Array4<f64> {
    for odd in (1..value.dim().2).step_by(2) {
        let pair = (s![.., .., odd - 1, ..], s![.., .., odd, ..]);
        let (even, mut odd) = value.multi_slice_mut(pair);
        odd.zip_mut_with(&even, |entry, partner| *entry = -partner * (1.0 - RESIDUE));
    }
    value
}
