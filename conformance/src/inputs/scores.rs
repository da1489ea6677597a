//! Patterns of scores: how query and key are drawn.

use flashproof_spec::problem::Problem;
use ndarray::{Array2, Array4, s};
use rand::RngExt;
use rand_chacha::ChaCha8Rng;

use super::draw::{self, Stream};
use super::{Family, Misfit};

/// How query and key are drawn, and so which scores they give.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Scores {
    /// Query and key standard normal.
    Normal,
    /// Query normal of deviation 10, key standard normal.
    Large,
    /// Query and key normal of deviation 3.
    Tripled,
    /// Query and key from `N(0, 1) + N(0, 100) * Bernoulli(0.001)`.
    Outliers,
    /// Query standard normal; every key is one of three.
    Ties,
    /// About half of the keys tie at a score near 200, the others lie 10 below.
    TiesHigh,
    /// About half of the keys tie at a score near -200, the others lie 10 below.
    TiesLow,
    /// Scores climb along the keys.
    Rising,
    /// Scores fall along the keys.
    Falling,
    /// The first key far above the others.
    Peak,
    /// Every score near -200.
    Negative,
    /// Every score near -120.
    Minus120,
    /// Every score near -60000.
    DeepNegative,
    /// Every key entry below the smallest normal number, every query entry large in return.
    Subnormal,
    /// Every query and key entry 133120.
    All133120,
    /// Query and key standard normal, but one entry of each is 133120.
    One133120,
    /// Every query and key entry 48.
    All48,
    /// Query and key entries whole numbers from -3 to 3.
    Integers,
    /// Query zero.
    Zero,
    /// Query and key standard normal, but one query entry is NaN.
    NanQuery,
    /// Query and key standard normal, but one entry of key 0 is NaN.
    NanKey,
}

/// Standard deviation of the query where scores are ten times their usual size.
const LARGE: f64 = 10.0;
/// Standard deviation of query and key where both are three times their usual size.
const TRIPLED: f64 = 3.0;
/// Distinct keys where scores tie.
const DISTINCT_KEYS: usize = 3;
/// Size of the scores that tie: `e^200` overflows `f32`, `e^-200` is zero in it.
const TIED_SCORE: f64 = 200.0;
/// How far the others lie below.
const BELOW_TIE: f64 = 10.0;
/// Climb of the scores from one key to the next. A block of 64 then raises the maximum by about
/// 6.4 nats, less than the factor `2^8 ... 2^10` up to which lazily rescaling kernels keep theirs.
const SLOPE: f64 = 0.1;
/// Climb over all keys where they are few.
const LEAST_CLIMB: f64 = 8.0;
/// `e^-200` underflows in `f32`, as does any weight taken relative to a maximum of 0.
const NEGATIVE_SCORE: f64 = -200.0;
/// `e^120` overflows `f32` and `e^-120` is zero in it (pytorch#196678).
const SCORE_MINUS_120: f64 = -120.0;
/// Below the finite numbers from which kernels have started a running maximum (-1e4, -5e4).
const DEEP_SCORE: f64 = -60_000.0;
/// What the score of one key exceeds the others by: `e^-8` is below what `e4m3` holds.
const PEAK: f64 = 8.0;
/// Spread of the scores about their pattern, in nats.
const SPREAD: f64 = 0.5;
/// Spread of query entries about 1 where the pattern is the keys'.
const QUERY_SPREAD: f64 = 1.0 / 64.0;
/// `2^17 + 2^11`: a value of bf16 whose square times a rounded scale leaves a residue of whole nats
/// when a fused multiply-add subtracts the rounded maximum (pytorch#121558).
const RESIDUE_ENTRY: f64 = 133_120.0;
/// `64 * 48 * 48 = 147456` overflows `f16`, and its scaled value does not.
const OVERFLOWING_ENTRY: f64 = 48.0;
/// Dot products of up to 2^20 such entries are exact in `f32`, in any order.
const LARGEST_INTEGER: i32 = 3;

impl Scores {
    /// Every pattern.
    pub const ALL: [Self; 21] = [
        Self::Normal,
        Self::Large,
        Self::Tripled,
        Self::Outliers,
        Self::Ties,
        Self::TiesHigh,
        Self::TiesLow,
        Self::Rising,
        Self::Falling,
        Self::Peak,
        Self::Negative,
        Self::Minus120,
        Self::DeepNegative,
        Self::Subnormal,
        Self::All133120,
        Self::One133120,
        Self::All48,
        Self::Integers,
        Self::Zero,
        Self::NanQuery,
        Self::NanKey,
    ];

    /// The name, as in a case's name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Normal => "normal",
            Self::Large => "large",
            Self::Tripled => "tripled",
            Self::Outliers => "outliers",
            Self::Ties => "ties",
            Self::TiesHigh => "ties-high",
            Self::TiesLow => "ties-low",
            Self::Rising => "rising",
            Self::Falling => "falling",
            Self::Peak => "peak",
            Self::Negative => "negative",
            Self::Minus120 => "minus-120",
            Self::DeepNegative => "deep-negative",
            Self::Subnormal => "subnormal",
            Self::All133120 => "all-133120",
            Self::One133120 => "one-133120",
            Self::All48 => "all-48",
            Self::Integers => "integers",
            Self::Zero => "zero",
            Self::NanQuery => "nan-query",
            Self::NanKey => "nan-key",
        }
    }

    /// What the pattern is for and which fault it exposes.
    #[must_use]
    pub const fn purpose(self) -> &'static str {
        match self {
            Self::Normal => "Normal scores: what most testers draw.",
            Self::Large => {
                "Scores ten times larger: few keys carry a row, and errors of scores show, such as a scale rounded to a narrow format."
            }
            Self::Tripled => "Scores nine times larger, from inputs three times larger.",
            Self::Outliers => {
                "Outlier channels, as FlashAttention-3 draws them: a few entries dominate their dot products."
            }
            Self::Ties => {
                "Exact ties: several keys share the maximum, where a rounded weight of 1 and an unrounded sum disagree."
            }
            Self::TiesHigh => {
                "Ties near 200: a maximum that is shifted or left at 0 overflows the weights."
            }
            Self::TiesLow => {
                "Ties near -200: a maximum that is shifted or left at 0 loses every weight."
            }
            Self::Rising => {
                "A maximum that moves in every block: numerator and normalizer must both be rescaled each time, or neither."
            }
            Self::Peak => {
                "One key eight above the others: their weights, a quarter of a long row together, are each what a narrow format flushes."
            }
            Self::Falling => {
                "The first key holds the maximum: no later block may rescale, nor drop, what came before."
            }
            Self::Negative => {
                "Every score near -200: a block whose maximum is taken as 0 where it is minus infinity, or whose padded keys score 0, drowns the row."
            }
            Self::Minus120 => {
                "Every score near -120: padding that scores 0 outweighs every key in the forward pass, and overflows when a backward pass recomputes it."
            }
            Self::DeepNegative => {
                "Every score near -60000: a running maximum that starts at a finite number is never replaced, and the row becomes zero."
            }
            Self::Subnormal => {
                "Subnormal keys under large queries: scores are ordinary, unless subnormal inputs are read as zero."
            }
            Self::All133120 => {
                "Huge equal scores: a fused scale-and-subtract against a rounded maximum is not 0 at the maximum."
            }
            Self::One133120 => {
                "One huge entry in query and key: one score is far above all others."
            }
            Self::All48 => {
                "Dot products beyond the range of f16 whose scaled values are within it: the sum must be kept in a wider format."
            }
            Self::Integers => {
                "Whole entries: dot products are exact in every order, so what error there is comes later."
            }
            Self::Zero => "A zero query: equal weights, so the output is the mean of the values.",
            Self::NanQuery => "NaN in a live query: its row is NaN, and must not become numbers.",
            Self::NanKey => "NaN in a live key: the rows that see it are NaN.",
        }
    }

    /// The score that every key is given, before its place in the pattern, where the pattern sets
    /// scores.
    pub(crate) const fn level(self) -> Option<f64> {
        match self {
            Self::TiesHigh => Some(TIED_SCORE),
            Self::TiesLow => Some(-TIED_SCORE - BELOW_TIE),
            Self::Rising | Self::Falling | Self::Peak => Some(0.0),
            Self::Negative => Some(NEGATIVE_SCORE),
            Self::Minus120 => Some(SCORE_MINUS_120),
            Self::DeepNegative => Some(DEEP_SCORE),
            _ => None,
        }
    }
}

pub(super) fn fits(family: Family, problem: &Problem) -> Result<(), Misfit> {
    let format = problem.format;
    let constant = match family.scores {
        Scores::All133120 | Scores::One133120 => Some(RESIDUE_ENTRY),
        Scores::All48 => Some(OVERFLOWING_ENTRY),
        _ => None,
    };
    if let Some(value) = constant.filter(|value| format.round(*value) != *value) {
        return Err(Misfit::Value { family: family.to_string(), format, value });
    }
    if let Some(level) = family.scores.level() {
        if problem.scale_f64() == 0.0 {
            return Err(Misfit::ZeroScale(family.to_string()));
        }
        let value = key_entry(level, problem);
        if value.abs() > format.max_finite() {
            return Err(Misfit::Value { family: family.to_string(), format, value });
        }
    }
    Ok(())
}

pub(super) fn draw(problem: &Problem, scores: Scores, seed: u64) -> (Array4<f64>, Array4<f64>) {
    let (query_shape, key_shape) = (problem.query_shape(), problem.key_shape());
    let rng_query = &mut draw::generator(seed, Stream::Query);
    let rng_key = &mut draw::generator(seed, Stream::Key);
    let normal_query = |rng: &mut ChaCha8Rng| draw::normal(query_shape, 1.0, rng);
    let normal_key = |rng: &mut ChaCha8Rng| draw::normal(key_shape, 1.0, rng);
    let (query, key) = match scores {
        Scores::Normal => (normal_query(rng_query), normal_key(rng_key)),
        Scores::Large => (draw::normal(query_shape, LARGE, rng_query), normal_key(rng_key)),
        Scores::Tripled => (
            draw::normal(query_shape, TRIPLED, rng_query),
            draw::normal(key_shape, TRIPLED, rng_key),
        ),
        Scores::Outliers => {
            (draw::outliers(query_shape, rng_query), draw::outliers(key_shape, rng_key))
        }
        Scores::Ties => (normal_query(rng_query), few_keys(key_shape, rng_key)),
        Scores::TiesHigh
        | Scores::TiesLow
        | Scores::Rising
        | Scores::Falling
        | Scores::Peak
        | Scores::Negative
        | Scores::Minus120
        | Scores::DeepNegative => {
            let query = 1.0 + draw::normal(query_shape, QUERY_SPREAD, rng_query);
            (query, keys_of_scores(problem, scores, rng_key))
        }
        Scores::Subnormal => {
            let query = draw::normal(query_shape, large_query(problem), rng_query);
            (query, draw::subnormal(key_shape, problem.format, rng_key))
        }
        Scores::All133120 => (
            Array4::from_elem(query_shape, RESIDUE_ENTRY),
            Array4::from_elem(key_shape, RESIDUE_ENTRY),
        ),
        Scores::One133120 => (
            with_first(normal_query(rng_query), RESIDUE_ENTRY),
            with_first(normal_key(rng_key), RESIDUE_ENTRY),
        ),
        Scores::All48 => (
            Array4::from_elem(query_shape, OVERFLOWING_ENTRY),
            Array4::from_elem(key_shape, OVERFLOWING_ENTRY),
        ),
        Scores::Integers => (
            draw::integers(query_shape, LARGEST_INTEGER, rng_query),
            draw::integers(key_shape, LARGEST_INTEGER, rng_key),
        ),
        Scores::Zero => (Array4::zeros(query_shape), normal_key(rng_key)),
        Scores::NanQuery => (with_last_row_nan(normal_query(rng_query)), normal_key(rng_key)),
        Scores::NanKey => (normal_query(rng_query), with_first(normal_key(rng_key), f64::NAN)),
    };
    (draw::within_range(query, problem.format), draw::within_range(key, problem.format))
}

/// Each key is one of [`DISTINCT_KEYS`], the same in every batch member and head.
fn few_keys(shape: [usize; 4], rng: &mut ChaCha8Rng) -> Array4<f64> {
    let distinct =
        Array2::from_shape_simple_fn((DISTINCT_KEYS, shape[3]), || draw::standard_normal(rng));
    let mut key = Array4::zeros(shape);
    for mut row in key.rows_mut() {
        row.assign(&distinct.row(rng.random_range(0..DISTINCT_KEYS)));
    }
    key
}

/// Keys that, under a query of ones, have the scores of the pattern.
fn keys_of_scores(problem: &Problem, scores: Scores, rng: &mut ChaCha8Rng) -> Array4<f64> {
    let mut key = Array4::zeros(problem.key_shape());
    let (batch, heads, len, _) = key.dim();
    for (b, h, position) in ndarray::indices((batch, heads, len)) {
        let entry = key_entry(score_at(scores, position, len, rng), problem);
        key.slice_mut(s![b, h, position, ..]).fill(entry);
    }
    key
}

fn score_at(scores: Scores, position: usize, len: usize, rng: &mut ChaCha8Rng) -> f64 {
    let slope = SLOPE.max(LEAST_CLIMB / len as f64);
    let spread = SPREAD * draw::standard_normal(rng);
    let tied = rng.random_bool(0.5);
    match scores {
        Scores::TiesHigh if tied => TIED_SCORE,
        Scores::TiesHigh => TIED_SCORE - BELOW_TIE + spread,
        Scores::TiesLow if tied => -TIED_SCORE,
        Scores::TiesLow => -TIED_SCORE - BELOW_TIE + spread,
        Scores::Rising => slope * position as f64 + spread,
        Scores::Falling => -slope * position as f64 + spread,
        Scores::Peak if position == 0 => PEAK + spread,
        Scores::Peak => spread,
        Scores::Minus120 => SCORE_MINUS_120 + spread,
        Scores::DeepNegative => DEEP_SCORE + spread,
        _ => NEGATIVE_SCORE + spread,
    }
}

/// The entry, repeated along a key, that gives `score` under a query of ones.
fn key_entry(score: f64, problem: &Problem) -> f64 {
    score / (problem.scale_f64() * problem.head_dim as f64)
}

/// Query entries whose products with subnormal keys are about 1/4, four deviations below overflow
/// and below a factor `log2(e)` of it.
fn large_query(problem: &Problem) -> f64 {
    0.25 / problem.format.smallest_normal()
}

fn with_first(mut values: Array4<f64>, entry: f64) -> Array4<f64> {
    if let Some(first) = values.first_mut() {
        *first = entry;
    }
    values
}

/// The first entry of the last query of the last head of the last batch member becomes NaN.
fn with_last_row_nan(mut query: Array4<f64>) -> Array4<f64> {
    if let Some(mut row) = query.rows_mut().into_iter().last() {
        row[0] = f64::NAN;
    }
    query
}
