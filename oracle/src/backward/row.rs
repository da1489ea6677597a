//! One query row: what its pairs with keys share, and each pair's part of the gradients.
//!
//! With `y_i = z_i dP_i`, what dropout leaves of `dP_i`, let `c` be the `y` of the largest score and
//! `x_i = y_i - c`, exact. A sink is one more term of the softmax, whose value is zero, so that its `y` is.
//! Over keys and sink the weights add up to `l`, so `D = c + X / l` with `X = sum_i w_i x_i`, and
//!
//! ```text
//! T_i = y_i - D + g = x_i - shift,   shift = X / l - g
//! dS_i = p_i T_i
//! ```
//!
//! with the gradient of the sink's logit the `dS` of its term, `p (0 - D + g)`.
//!
//! Two things follow from counting from `c`. Where all `y` are equal, every `x_i` and `X` are zero
//! without any rounding, and `T_i = g` exactly: with `g = 0` all of `dS` is exactly zero. Without a sink
//! this is so for one visible key; without dropout and sink, or with a sink if they are zero, for
//! constant values; and for any values where dropout drops all keys, since their `y` are zero, like that
//! of a sink. And where one term has almost all the weight, its `T_i = -X / l + g` comes
//! from the small weights of the others with all its digits.
//!
//! Terms of equal score have one weight, so their `x_i` are added up before they meet it; those that
//! cancel leave nothing.

use rug::{Float, Integer, Rational};

use super::group::Group;
use super::score::{Score, ScoreRef, Weigher};
use super::weight::Exponential;
use crate::enclosure::Enclosure;
use crate::groups::{Groups, Member};
use crate::scale::dyadic;
use crate::score::Parts;

/// What the pairs of a row share.
#[derive(Debug)]
pub(crate) struct Summary {
    /// The place among the visible keys of one of the largest score.
    pub(crate) top_key: usize,
    /// The largest score, that of a sink included.
    pub(crate) largest: Score,
    /// `c`, in units of the group's `y`.
    pub(crate) reference: Integer,
    /// `l`.
    pub(crate) normalizer: Enclosure,
    /// `D - c`.
    pub(crate) mean: Enclosure,
    /// The term of the sink, where the row has one that is not minus infinity.
    pub(crate) sink: Option<SinkTerm>,
    /// `D - c - g`.
    shift: Enclosure,
    lse_gradient: f64,
    uniform: Option<Uniform>,
}

/// The sink's term of a row.
#[derive(Debug)]
pub(crate) struct SinkTerm {
    /// `p`.
    pub(crate) probability: Enclosure,
    /// `g - D`.
    pub(crate) centred: Enclosure,
    /// `p (g - D)`.
    pub(crate) ds: Enclosure,
}

/// A row of equal scores, where every weight is 1.
#[derive(Debug)]
struct Uniform {
    /// How many keys and sinks, `l`.
    terms: usize,
    /// `X`, in units of the group's `y`.
    sum: Integer,
}

/// A query row and a key that it sees.
#[derive(Debug)]
pub(crate) struct Pair {
    pub(crate) score: Score,
    pub(crate) kept: Kept,
    /// `p_i`.
    pub(crate) probability: Enclosure,
    /// `T_i`.
    pub(crate) centred: Enclosure,
    /// `dS_i`.
    pub(crate) ds: Enclosure,
    /// The slope of the softcap, where there is one.
    pub(crate) slope: Option<Enclosure>,
}

/// A row with the weights of all its visible keys, at least one.
#[derive(Debug)]
pub(crate) struct WeighedRow {
    scores: Scores,
    values: Vec<Kept>,
    groups: Groups,
    /// One for each group.
    weights: Vec<Enclosure>,
}

/// The scores of a row's keys.
#[derive(Debug)]
pub(crate) enum Scores {
    /// Scale times these dot products, in units of the group's.
    Dots(Vec<Integer>),
    /// Of these parts, and of that of a sink.
    Parts(Vec<Parts>, Option<Parts>),
}

/// `y_i = z_i dP_i` of a key.
#[derive(Debug)]
pub(crate) struct Kept {
    /// `y_i`, in units of the group's.
    pub(crate) product: Integer,
    /// `z_i`.
    pub(crate) dropout: f64,
}

/// Parts in the gradients, where they are rational.
#[derive(Clone, Debug)]
pub(crate) struct RationalPair {
    /// `z_i p_i`.
    pub(crate) kept: Rational,
    /// `dS_i`.
    pub(crate) ds: Rational,
    /// `dS_i` times the slope of the softcap; `None` where that is not rational.
    pub(crate) by_product: Option<Rational>,
}

impl Scores {
    /// The score of a term.
    fn of(&self, term: Member) -> ScoreRef<'_> {
        match (self, term) {
            (Self::Dots(dots), Member::Key(key)) => ScoreRef::Dot(&dots[key]),
            (Self::Parts(keys, _), Member::Key(key)) => ScoreRef::Parts(&keys[key]),
            (Self::Parts(_, Some(sink)), Member::Sink) => ScoreRef::Parts(sink),
            (_, Member::Sink) => unreachable!("only a sink makes a group without keys"),
        }
    }

    /// The scores of the keys, in their order.
    fn into_keys(self) -> impl Iterator<Item = Score> {
        let (dots, parts) = match self {
            Self::Dots(dots) => (dots, vec![]),
            Self::Parts(parts, _) => (vec![], parts),
        };
        dots.into_iter().map(Score::Dot).chain(parts.into_iter().map(Score::Parts))
    }

    /// The terms in order of falling score.
    fn groups(&self, group: &Group<'_>) -> Groups {
        match self {
            Self::Dots(dots) => Groups::new(dots, group.scale.sign()),
            Self::Parts(keys, sink) => Groups::of_scores(&group.rule, keys, sink.as_ref()),
        }
    }
}

impl WeighedRow {
    pub(crate) fn new(
        group: &Group<'_>,
        scores: Scores,
        values: Vec<Kept>,
        exponential: &Exponential,
    ) -> Self {
        let groups = scores.groups(group);
        let largest = scores.of(groups.representative(0));
        let weigher = Weigher::new(group, largest, exponential);
        let of_group = |index| weigher.weight(scores.of(groups.representative(index)));
        let weights = (0..groups.len()).map(of_group).collect();
        Self { scores, values, groups, weights }
    }

    /// What the row's pairs share.
    pub(crate) fn summary(&self, group: &Group<'_>, lse_gradient: f64, precision: u32) -> Summary {
        let Self { scores, values, groups, weights } = self;
        let top = groups.representative(0);
        let reference = match top {
            Member::Key(key) => values[key].product.clone(),
            Member::Sink => Integer::new(),
        };
        let mut normalizer = Enclosure::point(Float::new(precision));
        let mut total = normalizer.clone();
        let mut sum = Integer::new();
        for (index, weight) in weights.iter().enumerate() {
            let members = groups.members(index);
            let count = Enclosure::point(Float::with_val(usize::BITS, groups.terms(index)));
            sum = members.iter().map(|&key| Integer::from(&values[key].product - &reference)).sum();
            if groups.sink() == Some(index) {
                sum -= &reference;
            }
            let part = Enclosure::point(dyadic(&sum, group.kept_exponent()));
            normalizer = normalizer.add(&weight.mul(&count, precision), precision);
            total = total.add(&weight.mul(&part, precision), precision);
        }
        let mean = total.div(&normalizer, precision);
        let gradient = Enclosure::point(Float::with_val(f64::MANTISSA_DIGITS, lse_gradient));
        let shift = mean.sub(&gradient, precision);
        let sink = groups.sink().map(|index| {
            let probability = weights[index].div(&normalizer, precision);
            let x = Enclosure::point(-dyadic(&reference, group.kept_exponent()));
            let centred = x.sub(&shift, precision);
            SinkTerm { ds: probability.mul(&centred, precision), probability, centred }
        });
        let terms = (0..groups.len()).map(|index| groups.terms(index)).sum();
        Summary {
            top_key: self.top_key(),
            largest: scores.of(top).to_owned(),
            reference,
            normalizer,
            shift,
            mean,
            sink,
            lse_gradient,
            uniform: (groups.len() == 1).then_some(Uniform { terms, sum }),
        }
    }

    /// One of the keys of the largest score among keys.
    fn top_key(&self) -> usize {
        let mut keys = (0..self.groups.len()).flat_map(|group| self.groups.members(group));
        *keys.next().expect("a row with weights sees a key")
    }

    /// The row's pairs with its visible keys, in their order.
    pub(crate) fn pairs(self, group: &Group<'_>, summary: &Summary, precision: u32) -> Vec<Pair> {
        let Self { scores, values, groups, weights } = self;
        let mut of_key = vec![0; values.len()];
        groups.keys().for_each(|(key, group)| of_key[key] = group);
        scores
            .into_keys()
            .zip(values)
            .zip(of_key)
            .map(|((score, kept), of_key)| {
                summary.pair(group, score, kept, &weights[of_key], precision)
            })
            .collect()
    }
}

impl Summary {
    /// The row's pair with a key.
    pub(crate) fn pair(
        &self,
        group: &Group<'_>,
        score: Score,
        kept: Kept,
        weight: &Enclosure,
        precision: u32,
    ) -> Pair {
        let probability = weight.div(&self.normalizer, precision);
        let x = dyadic(&Integer::from(&kept.product - &self.reference), group.kept_exponent());
        let centred = Enclosure::point(x).sub(&self.shift, precision);
        let ds = probability.mul(&centred, precision);
        let slope = group.slope(score.as_ref(), precision);
        Pair { score, kept, probability, centred, ds, slope }
    }

    /// The row's pair with a key, in a row of equal scores.
    pub(crate) fn rational_pair(
        &self,
        group: &Group<'_>,
        score: ScoreRef<'_>,
        value: &Kept,
    ) -> Option<RationalPair> {
        let probability = self.rational_probability()?;
        let ds = self.rational_ds(group, &value.product)?;
        let kept = Rational::from_f64(value.dropout)? * probability;
        let by_product = group.has_slope_one(score).then(|| ds.clone());
        Some(RationalPair { kept, ds, by_product })
    }

    /// What the row brings to the gradient of its sink: of equal scores something rational, of a
    /// sink without weight nothing.
    pub(crate) fn rational_sink(&self, group: &Group<'_>) -> Option<Rational> {
        match self.sink {
            None => Some(Rational::new()),
            Some(_) => self.rational_ds(group, &Integer::new()),
        }
    }

    fn rational_probability(&self) -> Option<Rational> {
        Some(Rational::from((1, self.uniform.as_ref()?.terms)))
    }

    /// `dS` of a term with this `y`.
    fn rational_ds(&self, group: &Group<'_>, kept: &Integer) -> Option<Rational> {
        let probability = self.rational_probability()?;
        let mean = Rational::from(&self.uniform.as_ref()?.sum) * &probability;
        let x = Rational::from(kept - &self.reference);
        let centred =
            ((x - mean) << group.kept_exponent()) + Rational::from_f64(self.lse_gradient)?;
        Some(centred * probability)
    }
}

impl Pair {
    /// `dS_i` and `p_i`, each times the slope of the softcap.
    pub(crate) fn into_query_terms(self, precision: u32) -> (Enclosure, Enclosure) {
        match &self.slope {
            None => (self.ds, self.probability),
            Some(slope) => {
                (slope.mul(&self.ds, precision), slope.mul(&self.probability, precision))
            }
        }
    }

    /// `dS_i` times the slope of the softcap, and `z_i p_i`.
    pub(crate) fn into_key_terms(self, precision: u32) -> (Enclosure, Enclosure) {
        let by_product = match &self.slope {
            None => self.ds,
            Some(slope) => slope.mul(&self.ds, precision),
        };
        (by_product, scaled(self.probability, self.kept.dropout, precision))
    }

    /// `dS_i`, times the slope of the softcap where that is taken `within` it.
    pub(crate) fn into_addend_term(self, within: bool, precision: u32) -> Enclosure {
        match &self.slope {
            Some(slope) if within => slope.mul(&self.ds, precision),
            _ => self.ds,
        }
    }
}

fn scaled(x: Enclosure, factor: f64, precision: u32) -> Enclosure {
    if factor == 1.0 {
        return x;
    }
    x.mul(&Enclosure::point(Float::with_val(f64::MANTISSA_DIGITS, factor)), precision)
}
