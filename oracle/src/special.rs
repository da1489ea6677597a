//! Rows that meet NaN or an infinity: what IEEE 754 arithmetic makes of them.
//!
//! The answer is what the defining equations give in IEEE arithmetic (clauses `FAS:fwd.special.*`):
//! products `0 * inf` and differences `inf - inf` are NaN, and NaN goes into every sum that it meets.
//! Finite entries never overflow here, since their products and sums are exact.
//!
//! A softcap makes an infinity finite: `tanh` of it is 1 in magnitude, so the score is the cap, its sign
//! taken over, and what is added after it. A bias of plus infinity or NaN is one more term of the score,
//! and a sink of plus infinity or NaN one more score; a sink of minus infinity is no sink. A bias of minus
//! infinity never comes here, as it hides its key. ALiBi terms are finite.
//!
//! Whether a weight that dropout drops is multiplied with its value, and `0 * NaN` is NaN, or the value
//! is never read, is not specified.

use std::cmp::Ordering;

use flashproof_spec::score::SoftcapOrder;
use ndarray::ArrayView1;

use crate::row::Expected;

/// The part of a score, or of a weighted value, that is not finite.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Special {
    /// Nothing: the number is finite.
    Finite,
    /// An infinity.
    Infinite {
        /// Its sign.
        negative: bool,
    },
    /// Not a number.
    Nan,
}

impl Special {
    const PLUS_INFINITY: Self = Self::Infinite { negative: false };
    const MINUS_INFINITY: Self = Self::Infinite { negative: true };

    pub(crate) fn of(x: f64) -> Self {
        if x.is_nan() {
            Self::Nan
        } else if x.is_infinite() {
            Self::Infinite { negative: x < 0.0 }
        } else {
            Self::Finite
        }
    }

    /// The special part of a sum of terms with these parts.
    fn plus(self, other: Self) -> Self {
        match (self, other) {
            (Self::Finite, part) | (part, Self::Finite) => part,
            (Self::Infinite { negative }, Self::Infinite { negative: other })
                if negative == other =>
            {
                self
            }
            _ => Self::Nan,
        }
    }
}

/// The special part of a scaled dot product. Products of finite entries count as finite.
pub(crate) fn product(
    query: &ArrayView1<'_, f64>,
    key: &ArrayView1<'_, f64>,
    scale_sign: Ordering,
) -> Special {
    let product = |(&q, &k): (&f64, &f64)| {
        if q.is_finite() && k.is_finite() { Special::Finite } else { Special::of(q * k) }
    };
    let dot = query.iter().zip(key).map(product).fold(Special::Finite, Special::plus);
    match (dot, scale_sign) {
        (Special::Infinite { .. }, Ordering::Equal) => Special::Nan,
        (Special::Infinite { negative }, Ordering::Less) => {
            Special::Infinite { negative: !negative }
        }
        _ => dot,
    }
}

/// The special part of a score, and whether it took an infinite argument to the cap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ScorePart {
    pub(crate) special: Special,
    /// The sign of the cap.
    pub(crate) saturated: Option<Saturated>,
}

/// A score whose argument of the softcap is infinite.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Saturated {
    pub(crate) negative: bool,
}

/// The special part of a score from that of its scaled dot product and its bias, with a softcap in this
/// order or none.
pub(crate) fn score(product: Special, bias: f64, softcap: Option<SoftcapOrder>) -> ScorePart {
    let bias = Special::of(bias);
    let (within, after) = match softcap {
        Some(SoftcapOrder::BeforeBias) => (product, bias),
        Some(SoftcapOrder::AfterBias) | None => (product.plus(bias), Special::Finite),
    };
    match (within, softcap) {
        (Special::Infinite { negative }, Some(_)) => {
            ScorePart { special: after, saturated: Some(Saturated { negative }) }
        }
        _ => ScorePart { special: within.plus(after), saturated: None },
    }
}

/// A row's output and LSE as far as its scores alone decide them.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Scores {
    /// Output and LSE, in every entry, are this.
    Decided {
        /// Every output entry.
        output: Expected,
        /// The LSE.
        lse: Expected,
    },
    /// These keys, ascending, have a finite score and weight; the others' score is minus infinity and
    /// their weight zero. None of them: the sink has all the weight.
    Weighted(Vec<usize>),
}

/// Sorts out the visible keys, ascending, by the special parts of their scores, next to a sink of this
/// logit.
pub(crate) fn classify(
    visible: &[usize],
    part: impl Fn(usize) -> Special,
    sink: Option<f64>,
) -> Scores {
    let sink = sink.map(Special::of).filter(|&sink| sink != Special::MINUS_INFINITY);
    let keys: Vec<Special> = visible.iter().map(|&key| part(key)).collect();
    let has = |part: Special| keys.contains(&part) || sink == Some(part);
    let decided = |output, lse| Scores::Decided { output, lse };
    let infinite = |negative| Expected::InfinityOrNan { negative };
    if visible.is_empty() && sink.is_none() {
        decided(Expected::EmptyRow, Expected::MinusInfinity)
    } else if has(Special::Nan) {
        decided(nan_unless_empty(visible), Expected::Nan)
    } else if has(Special::PLUS_INFINITY) {
        decided(nan_unless_empty(visible), infinite(false))
    } else if !has(Special::Finite) {
        decided(Expected::EmptyRowOrNan, infinite(true))
    } else {
        let finite = visible.iter().zip(keys).filter(|(_, part)| *part == Special::Finite);
        Scores::Weighted(finite.map(|(&key, _)| key).collect())
    }
}

/// The output of a row whose normalizer is NaN: without keys a kernel may never divide by it.
fn nan_unless_empty(visible: &[usize]) -> Expected {
    if visible.is_empty() { Expected::EmptyRowOrNan } else { Expected::Nan }
}

/// A value entry at a visible key.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ValueEntry {
    pub(crate) value: f64,
    /// Whether the score of the key is finite.
    pub(crate) weighted: bool,
    /// Whether dropout keeps the weight of the key.
    pub(crate) kept: bool,
}

/// What an output entry is by the special parts of the values that its row sees; `None`: a number.
pub(crate) fn output(entries: impl Iterator<Item = ValueEntry>) -> Option<Expected> {
    let mut sum = Special::Finite;
    let mut dropped = false;
    for ValueEntry { value, weighted, kept } in entries {
        match Special::of(value) {
            part if !kept => dropped |= part != Special::Finite,
            // Zero times infinity.
            Special::Infinite { .. } if !weighted => sum = Special::Nan,
            part => sum = sum.plus(part),
        }
    }
    match sum {
        Special::Nan => Some(Expected::Nan),
        _ if dropped => Some(Expected::Unspecified),
        Special::Finite => None,
        Special::Infinite { negative } => Some(Expected::InfinityOrNan { negative }),
    }
}
