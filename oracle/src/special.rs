//! Rows that meet NaN or an infinity: what IEEE 754 arithmetic makes of them.
//!
//! The answer is what the defining equations give in IEEE arithmetic (clauses `FAS:fwd.special.*`):
//! products `0 * inf` and differences `inf - inf` are NaN, and NaN goes into every sum that it meets.
//! Finite entries never overflow here, since their products and sums are exact.

use std::cmp::Ordering;

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
    fn of(x: f64) -> Self {
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

/// The special part of a score. Products of finite entries count as finite.
pub(crate) fn score(
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
    /// their weight zero.
    Weighted(Vec<usize>),
}

/// Sorts out the visible keys, ascending, by the special parts of their scores.
pub(crate) fn classify(visible: &[usize], part: impl Fn(usize) -> Special) -> Scores {
    const PLUS_INFINITY: Special = Special::Infinite { negative: false };
    let parts: Vec<Special> = visible.iter().map(|&key| part(key)).collect();
    let decided = |output, lse| Scores::Decided { output, lse };
    if visible.is_empty() {
        decided(Expected::EmptyRow, Expected::MinusInfinity)
    } else if parts.contains(&Special::Nan) {
        decided(Expected::Nan, Expected::Nan)
    } else if parts.contains(&PLUS_INFINITY) {
        decided(Expected::Nan, Expected::InfinityOrNan { negative: false })
    } else if !parts.contains(&Special::Finite) {
        decided(Expected::EmptyRowOrNan, Expected::InfinityOrNan { negative: true })
    } else {
        let finite = visible.iter().zip(parts).filter(|(_, part)| *part == Special::Finite);
        Scores::Weighted(finite.map(|(&key, _)| key).collect())
    }
}

/// What an output entry is by the special parts of the values that its row sees; `None`: a number.
///
/// `entries` are the column's values at the visible keys, each with whether its key has weight.
pub(crate) fn output(entries: impl Iterator<Item = (f64, bool)>) -> Option<Expected> {
    let part = |(value, weighted): (f64, bool)| match Special::of(value) {
        // Zero times infinity.
        Special::Infinite { .. } if !weighted => Special::Nan,
        part => part,
    };
    match entries.map(part).fold(Special::Finite, Special::plus) {
        Special::Finite => None,
        Special::Infinite { negative } => Some(Expected::InfinityOrNan { negative }),
        Special::Nan => Some(Expected::Nan),
    }
}
