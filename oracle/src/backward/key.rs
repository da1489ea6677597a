//! The gradients of a key and its value, summed over the query rows `r` that see it:
//! `dK_j = scale * sum_r c_r dS_r q_rj`, with `c` the slope of the softcap, and
//! `dV_j = sum_r z_r p_r dO_rj`, with `z` the factor of dropout.

use rug::Rational;

use super::RESULT_BITS;
use super::group::{Group, Stack};
use super::row::RationalPair;
use super::settle::Entries;
use super::sum::{Coefficients, Terms, rational_sum};
use super::weight::Exponential;
use crate::enclosure::Enclosure;

/// A key that only rows of [`super::group::RowKind::Finite`] see.
#[derive(Clone, Copy, Debug)]
pub(crate) struct KeyEntries<'r, 'a> {
    pub(crate) group: &'r Group<'a>,
    pub(crate) key: usize,
    /// The rows that see it.
    pub(crate) rows: &'r [usize],
}

/// The gradient of the key itself.
#[derive(Clone, Copy, Debug)]
pub(crate) struct KeyGradient<'r, 'a>(pub(crate) KeyEntries<'r, 'a>);

/// The gradient of its value.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ValueGradient<'r, 'a>(pub(crate) KeyEntries<'r, 'a>);

/// What each row's pair with the key brings to the sums.
#[derive(Debug)]
pub(crate) struct KeyPairs {
    /// `c_r dS_r`.
    by_product: Vec<Enclosure>,
    /// `z_r p_r`.
    kept: Vec<Enclosure>,
}

impl KeyEntries<'_, '_> {
    /// The key's pairs, enclosed at a working precision.
    pub(crate) fn pairs(&self, precision: u32) -> KeyPairs {
        let exponential = Exponential::new(self.group.scale, precision);
        let pair = |&member: &usize| {
            let summary = self.group.summary(member, &exponential);
            self.group.pair(member, self.key, &summary, &exponential).into_key_terms(precision)
        };
        let (by_product, kept) = self.rows.iter().map(pair).unzip();
        KeyPairs { by_product, kept }
    }

    fn terms<'t>(&'t self, stack: &'t Stack<'_>) -> Terms<'t> {
        Terms { grid: &stack.grid, rows: self.rows, origin: None }
    }

    /// The sums of rational coefficients, where all pairs are rational.
    fn rational(
        &self,
        coefficient: impl Fn(RationalPair) -> Option<Rational>,
        stack: &Stack<'_>,
        columns: &[usize],
    ) -> Option<Vec<Rational>> {
        let pair =
            |&member: &usize| self.group.rational_pair(member, self.key).and_then(&coefficient);
        let coefficients: Option<Vec<Rational>> = self.rows.iter().map(pair).collect();
        let (coefficients, terms) = (coefficients?, self.terms(stack));
        Some(columns.iter().map(|&column| rational_sum(&coefficients, terms, column)).collect())
    }
}

impl KeyGradient<'_, '_> {
    /// `dK_j` in these columns.
    pub(crate) fn gradient(
        &self,
        pairs: &KeyPairs,
        precision: u32,
        columns: &[usize],
    ) -> Vec<Enclosure> {
        let Self(entries) = self;
        let digits = precision + RESULT_BITS;
        let scale = entries.group.scale.enclose(digits);
        Coefficients::new(&pairs.by_product, precision)
            .sums(entries.terms(&entries.group.queries), columns)
            .into_iter()
            .map(|sum| sum.mul(&scale, digits))
            .collect()
    }
}

impl ValueGradient<'_, '_> {
    /// `dV_j` in these columns.
    pub(crate) fn gradient(
        &self,
        pairs: &KeyPairs,
        precision: u32,
        columns: &[usize],
    ) -> Vec<Enclosure> {
        let Self(entries) = self;
        Coefficients::new(&pairs.kept, precision)
            .sums(entries.terms(&entries.group.cotangents), columns)
            .into_iter()
            .map(|sum| sum.rounded(precision + RESULT_BITS))
            .collect()
    }
}

impl Entries for KeyGradient<'_, '_> {
    fn enclose(&self, precision: u32, columns: &[usize]) -> Vec<Enclosure> {
        self.gradient(&self.0.pairs(precision), precision, columns)
    }

    fn rational(&self, columns: &[usize]) -> Option<Vec<Rational>> {
        let Self(entries) = self;
        entries
            .rational(|pair| pair.by_product, &entries.group.queries, columns)?
            .into_iter()
            .map(|sum| entries.group.scale.rational_product(sum))
            .collect()
    }
}

impl Entries for ValueGradient<'_, '_> {
    fn enclose(&self, precision: u32, columns: &[usize]) -> Vec<Enclosure> {
        self.gradient(&self.0.pairs(precision), precision, columns)
    }

    fn rational(&self, columns: &[usize]) -> Option<Vec<Rational>> {
        let Self(entries) = self;
        entries.rational(|pair| Some(pair.kept), &entries.group.cotangents, columns)
    }
}
