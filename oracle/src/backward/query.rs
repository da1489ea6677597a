//! The gradient of a query: `dQ_j = scale * sum_i dS_i k_ij`.
//!
//! `sum_i dS_i = g`, since the `p_i` sum to 1 and `D` is the mean of `dP_i` under them. So with a key
//! of the largest score as origin `o`, `dQ_j = scale * ( sum_i dS_i (k_ij - k_oj) + g k_oj )`. Where
//! all visible keys agree in column `j`, as a single one does, every difference is zero, and the
//! exact product `scale * g k_oj` is left.

use rug::{Float, Rational};

use super::group::Group;
use super::row::Pairs;
use super::settle::Entries;
use super::sum::{Coefficients, Terms, rational_sum};
use super::{RESULT_BITS, weight::Exponential};
use crate::enclosure::Enclosure;
use crate::scale::dyadic;

/// The gradient of a query whose row is [`super::group::RowKind::Finite`].
#[derive(Debug)]
pub(crate) struct QueryEntries<'r, 'a> {
    pub(crate) group: &'r Group<'a>,
    pub(crate) member: usize,
    /// The keys that the row sees.
    pub(crate) visible: &'r [usize],
}

/// The pairs of a row with its keys, and the origin that keys are counted from.
#[derive(Debug)]
pub(crate) struct RowPairs {
    pairs: Pairs,
    origin: usize,
    precision: u32,
}

impl QueryEntries<'_, '_> {
    /// The row's pairs, enclosed at a working precision.
    pub(crate) fn pairs(&self, precision: u32) -> RowPairs {
        let exponential = Exponential::new(self.group.scale, precision);
        let (summary, pairs) = self.group.pairs(self.member, self.visible, &exponential);
        let pairs = pairs.into_iter().collect();
        RowPairs { pairs, origin: self.visible[summary.top], precision }
    }

    /// `dQ_j` in these columns.
    pub(crate) fn gradient(&self, row: &RowPairs, columns: &[usize]) -> Vec<Enclosure> {
        let digits = row.precision + RESULT_BITS;
        let scale = self.group.scale.enclose(digits);
        let g = Float::with_val(f64::MANTISSA_DIGITS, self.group.lse_gradient(self.member));
        self.sums(&row.pairs.ds, row, columns)
            .into_iter()
            .zip(self.origin(row, columns))
            .map(|(sum, origin)| {
                let bits = origin.prec() + g.prec();
                let at_origin = Enclosure::point(Float::with_val(bits, &origin * &g));
                sum.add(&at_origin, digits).mul(&scale, digits)
            })
            .collect()
    }

    /// `sum_i p_i k_ij` in these columns.
    pub(crate) fn mean_key(&self, row: &RowPairs, columns: &[usize]) -> Vec<Enclosure> {
        self.sums(&row.pairs.probabilities, row, columns)
            .into_iter()
            .zip(self.origin(row, columns))
            .map(|(sum, origin)| sum.add(&Enclosure::point(origin), row.precision + RESULT_BITS))
            .collect()
    }

    /// The coefficients' sums with `k_ij - k_oj`.
    fn sums(
        &self,
        coefficients: &[Enclosure],
        row: &RowPairs,
        columns: &[usize],
    ) -> Vec<Enclosure> {
        let grid = &self.group.head.keys.grid;
        let terms = Terms { grid, rows: self.visible, origin: Some(row.origin) };
        Coefficients::new(coefficients, row.precision).sums(terms, columns)
    }

    /// `k_oj`, with all digits.
    fn origin(&self, row: &RowPairs, columns: &[usize]) -> impl Iterator<Item = Float> {
        let grid = &self.group.head.keys.grid;
        columns
            .iter()
            .map(move |&column| dyadic(&grid.row(row.origin).entry(column), grid.exponent()))
    }
}

impl Entries for QueryEntries<'_, '_> {
    fn enclose(&self, precision: u32, columns: &[usize]) -> Vec<Enclosure> {
        self.gradient(&self.pairs(precision), columns)
    }

    fn rational(&self, columns: &[usize]) -> Option<Vec<Rational>> {
        let Self { group, member, visible } = *self;
        let pairs: Option<Vec<Rational>> =
            visible.iter().map(|&key| Some(group.rational_pair(member, key)?.ds)).collect();
        let pairs = pairs?;
        let terms = Terms { grid: &group.head.keys.grid, rows: visible, origin: None };
        columns
            .iter()
            .map(|&column| group.scale.rational_product(rational_sum(&pairs, terms, column)))
            .collect()
    }
}
