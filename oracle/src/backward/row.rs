//! One query row: what its pairs with keys share, and each pair's part of the gradients.
//!
//! Let `c` be the `dP_i` of a key of the largest score and `x_i = dP_i - c`, exact. Then
//! `D = c + X / l` with `X = sum_i w_i x_i`, and
//!
//! ```text
//! T_i = dP_i - D + g = x_i - shift,   shift = X / l - g
//! dS_i = p_i T_i
//! ```
//!
//! Two things follow from counting from `c`. Where all `dP_i` are equal, as for one visible key or
//! for constant values, every `x_i` and `X` are zero without any rounding, and `T_i = g` exactly:
//! with `g = 0` all of `dS` is exactly zero. And where one key has almost all the weight, its
//! `T_i = -X / l + g` comes from the small weights of the other keys with all its digits.
//!
//! Keys of equal score have one weight, so their `x_i` are added up before they meet it; those that
//! cancel leave nothing.

use rug::{Float, Integer, Rational};

use super::group::Group;
use super::weight::Exponential;
use crate::enclosure::Enclosure;
use crate::groups::Groups;
use crate::scale::dyadic;

/// What the pairs of a row share.
#[derive(Debug)]
pub(crate) struct Summary {
    /// The place among the visible keys of one of the largest score.
    pub(crate) top: usize,
    /// Its dot product.
    pub(crate) largest: Integer,
    /// `c`, in units of the group's `dP`.
    pub(crate) reference: Integer,
    /// `l`.
    pub(crate) normalizer: Enclosure,
    /// `D - c`.
    pub(crate) mean: Enclosure,
    /// `D - c - g`.
    shift: Enclosure,
    lse_gradient: f64,
    uniform: Option<Uniform>,
}

/// A row of equal scores, where every weight is 1.
#[derive(Debug)]
struct Uniform {
    /// How many keys, `l`.
    keys: usize,
    /// `X`, in units of the group's `dP`.
    sum: Integer,
}

/// A query row and a key that it sees.
#[derive(Debug)]
pub(crate) struct Pair {
    /// `<q, k_i>`, in units of the group's dot products.
    pub(crate) dot: Integer,
    /// `dP_i`, in units of the group's `dP`.
    pub(crate) dp: Integer,
    /// `p_i`.
    pub(crate) probability: Enclosure,
    /// `T_i`.
    pub(crate) centred: Enclosure,
    /// `dS_i`.
    pub(crate) ds: Enclosure,
}

/// A row with the weights of all its visible keys, at least one.
#[derive(Debug)]
pub(crate) struct WeighedRow {
    dots: Vec<Integer>,
    dps: Vec<Integer>,
    groups: Groups,
    /// One for each group.
    weights: Vec<Enclosure>,
}

/// The exact products of a query row with a key and its value.
#[derive(Debug)]
pub(crate) struct Products {
    pub(crate) dot: Integer,
    pub(crate) dp: Integer,
}

/// Many pairs, as the coefficients of sums.
#[derive(Debug, Default)]
pub(crate) struct Pairs {
    /// `p` of each pair.
    pub(crate) probabilities: Vec<Enclosure>,
    /// `dS` of each pair.
    pub(crate) ds: Vec<Enclosure>,
}

impl FromIterator<Pair> for Pairs {
    fn from_iter<I: IntoIterator<Item = Pair>>(pairs: I) -> Self {
        let (probabilities, ds) = pairs.into_iter().map(|pair| (pair.probability, pair.ds)).unzip();
        Self { probabilities, ds }
    }
}

/// `p_i` and `dS_i`, where both are rational.
#[derive(Clone, Debug)]
pub(crate) struct RationalPair {
    pub(crate) probability: Rational,
    pub(crate) ds: Rational,
}

impl WeighedRow {
    pub(crate) fn new(
        group: &Group<'_>,
        products: impl Iterator<Item = Products>,
        exponential: &Exponential,
    ) -> Self {
        let (dots, dps): (Vec<_>, Vec<_>) =
            products.map(|products| (products.dot, products.dp)).unzip();
        let groups = Groups::new(&dots, group.scale.sign());
        let weight = |gap| exponential.weight(gap, group.dot_exponent());
        let weights = groups.gaps().iter().map(weight).collect();
        Self { dots, dps, groups, weights }
    }

    /// What the row's pairs share.
    pub(crate) fn summary(&self, group: &Group<'_>, lse_gradient: f64, precision: u32) -> Summary {
        let Self { dots, dps, groups, weights } = self;
        let top = groups.members(0)[0];
        let reference = &dps[top];
        let mut normalizer = Enclosure::point(Float::new(precision));
        let mut total = normalizer.clone();
        let mut sum = Integer::new();
        for (index, weight) in weights.iter().enumerate() {
            let members = groups.members(index);
            let count = Enclosure::point(Float::with_val(usize::BITS, members.len()));
            sum = members.iter().map(|&key| Integer::from(&dps[key] - reference)).sum();
            let part = Enclosure::point(dyadic(&sum, group.dp_exponent()));
            normalizer = normalizer.add(&weight.mul(&count, precision), precision);
            total = total.add(&weight.mul(&part, precision), precision);
        }
        let mean = total.div(&normalizer, precision);
        let gradient = Enclosure::point(Float::with_val(f64::MANTISSA_DIGITS, lse_gradient));
        Summary {
            top,
            largest: dots[top].clone(),
            reference: reference.clone(),
            normalizer,
            shift: mean.sub(&gradient, precision),
            mean,
            lse_gradient,
            uniform: (groups.len() == 1).then_some(Uniform { keys: dots.len(), sum }),
        }
    }

    /// The row's pairs with its visible keys, in their order.
    pub(crate) fn pairs(self, group: &Group<'_>, summary: &Summary, precision: u32) -> Vec<Pair> {
        let Self { dots, dps, groups, weights } = self;
        let mut of_key = vec![0; dots.len()];
        groups.keys().for_each(|(key, group)| of_key[key] = group);
        dots.into_iter()
            .zip(dps)
            .zip(of_key)
            .map(|((dot, dp), of_key)| {
                summary.pair(group, Products { dot, dp }, &weights[of_key], precision)
            })
            .collect()
    }
}

impl Summary {
    /// The row's pair with a key.
    pub(crate) fn pair(
        &self,
        group: &Group<'_>,
        products: Products,
        weight: &Enclosure,
        precision: u32,
    ) -> Pair {
        let Products { dot, dp } = products;
        let probability = weight.div(&self.normalizer, precision);
        let x = dyadic(&Integer::from(&dp - &self.reference), group.dp_exponent());
        let centred = Enclosure::point(x).sub(&self.shift, precision);
        let ds = probability.mul(&centred, precision);
        Pair { dot, dp, probability, centred, ds }
    }

    /// The row's pair with a key, in a row of equal scores.
    pub(crate) fn rational_pair(&self, group: &Group<'_>, dp: &Integer) -> Option<RationalPair> {
        let Uniform { keys, sum } = self.uniform.as_ref()?;
        let probability = Rational::from((1, *keys));
        let mean = Rational::from(sum) * &probability;
        let x = Rational::from(dp - &self.reference);
        let centred = ((x - mean) << group.dp_exponent()) + Rational::from_f64(self.lse_gradient)?;
        let ds = centred * &probability;
        Some(RationalPair { probability, ds })
    }
}
