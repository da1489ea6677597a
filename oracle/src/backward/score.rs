//! Scores of either kind: dot products to which nothing is added, and any others.
//!
//! The first kind needs no more than an integer for each key and one multiplication for each weight.

use rug::float::Round;
use rug::{Float, Integer};

use super::group::Group;
use super::weight::Exponential;
use crate::enclosure::Enclosure;
use crate::score::{Gaps, Parts};

/// The score of a key or a sink, exactly.
#[derive(Clone, Debug)]
pub(crate) enum Score {
    /// Scale times this dot product, in units of the group's.
    Dot(Integer),
    /// Of these parts.
    Parts(Parts),
}

/// A [`Score`] that stands somewhere else.
#[derive(Clone, Copy, Debug)]
pub(crate) enum ScoreRef<'s> {
    /// [`Score::Dot`].
    Dot(&'s Integer),
    /// [`Score::Parts`].
    Parts(&'s Parts),
}

impl Score {
    pub(crate) const fn as_ref(&self) -> ScoreRef<'_> {
        match self {
            Self::Dot(dot) => ScoreRef::Dot(dot),
            Self::Parts(parts) => ScoreRef::Parts(parts),
        }
    }
}

impl ScoreRef<'_> {
    pub(crate) fn to_owned(self) -> Score {
        match self {
            Self::Dot(dot) => Score::Dot(dot.clone()),
            Self::Parts(parts) => Score::Parts(parts.clone()),
        }
    }
}

/// Takes the scores of a row to weights `e^(s - m)`, from the largest score.
#[derive(Debug)]
pub(crate) enum Weigher<'s> {
    /// From a dot product, in units of `2^exponent`.
    Dots { exponential: &'s Exponential, largest: &'s Integer, exponent: i32 },
    /// From any other score.
    Parts { exponential: &'s Exponential, largest: &'s Parts, gaps: Gaps<'s> },
}

impl<'s> Weigher<'s> {
    pub(crate) fn new(
        group: &'s Group<'_>,
        largest: ScoreRef<'s>,
        exponential: &'s Exponential,
    ) -> Self {
        match largest {
            ScoreRef::Dot(largest) => {
                Self::Dots { exponential, largest, exponent: group.dot_exponent() }
            }
            ScoreRef::Parts(largest) => {
                let gaps = group.rule.gaps_from(largest, exponential.gap_bits());
                Self::Parts { exponential, largest, gaps }
            }
        }
    }

    /// The weight of a score of the same row.
    pub(crate) fn weight(&self, score: ScoreRef<'_>) -> Enclosure {
        match (self, score) {
            (Self::Dots { exponential, largest, exponent }, ScoreRef::Dot(dot)) => {
                exponential.weight(&Integer::from(*largest - dot).abs(), *exponent)
            }
            (Self::Parts { exponential, largest, gaps }, ScoreRef::Parts(parts)) => {
                // A distance of other parts that rounds up to zero need not be zero.
                if parts == *largest {
                    exponential.one()
                } else {
                    exponential.weight_at(&gaps.hi(parts))
                }
            }
            _ => unreachable!("the scores of a problem are all of one kind"),
        }
    }

    /// How far a score of the same row lies below the largest.
    pub(crate) fn gap(&self, score: ScoreRef<'_>) -> Enclosure {
        match (self, score) {
            (Self::Dots { exponential, largest, exponent }, ScoreRef::Dot(dot)) => {
                exponential.gap(&Integer::from(*largest - dot).abs(), *exponent)
            }
            (Self::Parts { exponential, largest, gaps }, ScoreRef::Parts(parts)) => {
                let hi = gaps.hi(parts);
                if parts == *largest {
                    return Enclosure::point(hi);
                }
                let slack = Float::with_val(hi.prec(), 1) >> exponential.gap_bits();
                let lo = Float::with_val_round(hi.prec(), &hi - slack, Round::Down).0;
                Enclosure::new(lo, hi)
            }
            _ => unreachable!("the scores of a problem are all of one kind"),
        }
    }
}
