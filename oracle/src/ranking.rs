//! The scores of a row in order: groups, their distances from the first one, and its score.

use std::borrow::Cow;

use rug::float::Round;
use rug::{Float, Integer, Rational};

use crate::condition::score_hi;
use crate::enclosure::Enclosure;
use crate::groups::{Groups, Member};
use crate::scale::{ExactScale, dyadic};
use crate::score::{Parts, ScoreRule};
use crate::weights::{Weights, gap_bits};

/// Bits of the bounds on scores in `f64`.
const MAGNITUDE_BITS: u32 = 64;

/// The exact scores of a row's keys, at least one, and of its sink.
#[derive(Debug)]
pub(crate) struct RowScores {
    pub(crate) rule: ScoreRule,
    /// Dot product with each key, in units of `2^exponent`; zero in the place of an infinite one.
    pub(crate) dots: Vec<Integer>,
    pub(crate) exponent: i32,
    /// The parts of each key's score; empty where the rule is plain and dot products say it all.
    pub(crate) keys: Vec<Parts>,
    /// The parts of the sink's score.
    pub(crate) sink: Option<Parts>,
}

/// Scores in order. The first group's is the reference of distances and weights.
#[derive(Debug)]
pub(crate) struct Ranking<'r> {
    pub(crate) groups: Groups,
    scores: Scores<'r>,
}

/// How scores are known.
#[derive(Debug)]
enum Scores<'r> {
    Linear(Linear<'r>),
    /// By their parts.
    General(&'r RowScores),
}

/// Scores that are integers, in units of `2^exponent`, times one factor.
#[derive(Debug)]
struct Linear<'r> {
    factor: ExactScale,
    exponent: i32,
    keys: Cow<'r, [Integer]>,
    sink: Option<Integer>,
    /// The distance of each group from the first one.
    gaps: Vec<Integer>,
}

impl<'r> Ranking<'r> {
    pub(crate) fn new(scores: &'r RowScores) -> Self {
        let RowScores { rule, dots, exponent, keys, sink } = scores;
        if rule.is_plain() {
            Self::linear(*rule, *exponent, Cow::Borrowed(dots), None)
        } else if rule.is_linear() {
            let exponents = keys.iter().chain(sink).filter_map(|parts| last_exponent(&parts.inner));
            let exponent = exponents.min().unwrap_or(0);
            let integer = |parts: &Parts| integer(&parts.inner, exponent);
            let integers = keys.iter().map(integer).collect();
            Self::linear(*rule, exponent, Cow::Owned(integers), sink.as_ref().map(integer))
        } else {
            let groups = Groups::of_scores(rule, keys, sink.as_ref());
            Self { groups, scores: Scores::General(scores) }
        }
    }

    fn linear(
        rule: ScoreRule,
        exponent: i32,
        keys: Cow<'r, [Integer]>,
        sink: Option<Integer>,
    ) -> Self {
        let factor = rule.linear_factor();
        let groups = Groups::with_sink(&keys, sink.as_ref(), factor.sign());
        let gaps = groups.gaps(&keys, sink.as_ref());
        Self { groups, scores: Scores::Linear(Linear { factor, exponent, keys, sink, gaps }) }
    }

    /// The weights of all groups.
    pub(crate) fn weights(&self, precision: u32) -> Weights {
        match &self.scores {
            Scores::Linear(Linear { factor, exponent, gaps, .. }) => {
                Weights::new(gaps, *exponent, *factor, precision)
            }
            Scores::General(_) => {
                let groups: Vec<usize> = (0..self.groups.len()).collect();
                self.weights_among(&groups, precision)
            }
        }
    }

    /// The weights of some groups, against the first of these.
    pub(crate) fn weights_among(&self, groups: &[usize], precision: u32) -> Weights {
        match &self.scores {
            Scores::Linear(Linear { factor, exponent, gaps, .. }) => {
                let first = &gaps[groups[0]];
                let gaps: Vec<Integer> =
                    groups.iter().map(|&group| Integer::from(&gaps[group] - first)).collect();
                Weights::new(&gaps, *exponent, *factor, precision)
            }
            Scores::General(scores) => {
                let parts = |group| self.parts(scores, group);
                let gaps = scores.rule.gaps_from(parts(groups[0]), gap_bits(precision));
                Weights::of_gaps(groups.iter().map(|&group| gaps.hi(parts(group))), precision)
            }
        }
    }

    /// Whether the theorem that decides ties speaks of these scores ([`crate::tie`]).
    pub(crate) const fn is_algebraic(&self) -> bool {
        match &self.scores {
            Scores::Linear(_) => true,
            Scores::General(scores) => scores.rule.is_algebraic(),
        }
    }

    /// The first group's score: in `digits` significant bits, or within `2^-digits`.
    pub(crate) fn reference(&self, digits: u32) -> Enclosure {
        match &self.scores {
            Scores::Linear(linear) => {
                let top = Enclosure::point(linear.top(&self.groups));
                linear.factor.enclose(digits).mul(&top, digits)
            }
            Scores::General(scores) => scores.rule.enclose(self.parts(scores, 0), digits),
        }
    }

    /// The first group's score, where it is known to be rational.
    pub(crate) fn rational_reference(&self) -> Option<Rational> {
        match &self.scores {
            Scores::Linear(linear) => linear.factor.rational_score(&linear.top(&self.groups)),
            Scores::General(scores) => scores.rule.rational(self.parts(scores, 0)),
        }
    }

    /// How many terms the normalizer has.
    pub(crate) fn terms(&self) -> usize {
        (0..self.groups.len()).map(|group| self.groups.terms(group)).sum()
    }

    /// Upper bounds on the magnitude of each key's score.
    pub(crate) fn magnitudes_hi(&self) -> Vec<f64> {
        match &self.scores {
            Scores::Linear(Linear { factor, exponent, keys, .. }) => {
                let factor_hi = factor.magnitude_hi(f64::MANTISSA_DIGITS);
                keys.iter().map(|key| score_hi(&factor_hi, key, *exponent)).collect()
            }
            Scores::General(scores) => {
                let enclose = |parts| scores.rule.enclose(parts, MAGNITUDE_BITS);
                scores.keys.iter().map(|parts| enclose(parts).magnitude_hi()).collect()
            }
        }
    }

    /// Lower bounds on the magnitude of each key's argument of the softcap; 0 without one.
    pub(crate) fn cap_arguments_lo(&self, keys: usize) -> Vec<f64> {
        match &self.scores {
            Scores::Linear(_) => vec![0.0; keys],
            Scores::General(scores) => {
                scores.keys.iter().map(|parts| scores.rule.cap_argument_lo(parts)).collect()
            }
        }
    }

    fn parts(&self, scores: &'r RowScores, group: usize) -> &'r Parts {
        match self.groups.representative(group) {
            Member::Key(key) => &scores.keys[key],
            Member::Sink => scores.sink.as_ref().expect("a group without keys is the sink's"),
        }
    }
}

impl Linear<'_> {
    /// The first group's integer, with its unit.
    fn top(&self, groups: &Groups) -> Float {
        let integer = match groups.representative(0) {
            Member::Key(key) => &self.keys[key],
            Member::Sink => self.sink.as_ref().expect("a group without keys is the sink's"),
        };
        dyadic(integer, self.exponent)
    }
}

/// Exponent of the last bit that a number is stored with; zero has none.
fn last_exponent(x: &Float) -> Option<i32> {
    x.get_exp().map(|top| top - x.prec() as i32)
}

/// The number in units of `2^exponent`, which is no more than its [`last_exponent`].
fn integer(x: &Float, exponent: i32) -> Integer {
    let units = Float::with_val(x.prec(), x >> exponent);
    units.to_integer_round(Round::Down).map_or_else(Integer::new, |(integer, _)| integer)
}
