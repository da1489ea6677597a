//! The gradient of a query: `dQ_j = scale * sum_i c_i dS_i k_ij`, with `c` the slope of the softcap.
//!
//! Over keys and sink `sum dS = g`, since their `p` add up to 1 and `D` is the mean of `y`
//! under them ([`super::row`]). So without a softcap, and with a key of the largest score as origin `o`,
//!
//! ```text
//! dQ_j = scale * ( sum_i dS_i (k_ij - k_oj) + (g - dS of the sink) k_oj )
//! ```
//!
//! Where all visible keys agree in column `j`, as a single one does, every difference is zero, and
//! what is left is exactly `scale * g k_oj` without a sink. A softcap gives each key a factor of its
//! own, and there no such sum is known.

use rug::{Float, Rational};

use super::group::Group;
use super::row::Summary;
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

/// What a row's pairs bring to the sums, and where keys are counted from.
#[derive(Debug)]
pub(crate) struct RowPairs {
    /// `c_i dS_i`.
    by_product: Vec<Enclosure>,
    /// `c_i p_i`.
    sloped: Vec<Enclosure>,
    origin: Option<Origin>,
    precision: u32,
}

/// A key that others are counted from, and what that takes from the sums.
#[derive(Debug)]
struct Origin {
    key: usize,
    /// `sum_i dS_i`.
    ds: Enclosure,
    /// `sum_i p_i`.
    probability: Enclosure,
}

impl Origin {
    fn new(key: usize, g: f64, summary: &Summary, precision: u32) -> Self {
        let exactly = |x: f64| Enclosure::point(Float::with_val(f64::MANTISSA_DIGITS, x));
        let (ds, probability) = (exactly(g), exactly(1.0));
        match &summary.sink {
            None => Self { key, ds, probability },
            Some(sink) => Self {
                key,
                ds: ds.sub(&sink.ds, precision),
                probability: probability.sub(&sink.probability, precision),
            },
        }
    }
}

impl QueryEntries<'_, '_> {
    /// The row's pairs, enclosed at a working precision.
    pub(crate) fn pairs(&self, precision: u32) -> RowPairs {
        let Self { group, member, visible } = *self;
        let exponential = Exponential::new(group.scale, precision);
        let (summary, pairs) = group.pairs(member, visible, &exponential);
        let (by_product, sloped) =
            pairs.into_iter().map(|pair| pair.into_query_terms(precision)).unzip();
        let origin = group.problem.softcap.is_none().then(|| {
            let g = group.lse_gradient(member);
            Origin::new(visible[summary.top_key], g, &summary, precision)
        });
        RowPairs { by_product, sloped, origin, precision }
    }

    /// `dQ_j` in these columns.
    pub(crate) fn gradient(&self, row: &RowPairs, columns: &[usize]) -> Vec<Enclosure> {
        let digits = row.precision + RESULT_BITS;
        let scale = self.group.scale.enclose(digits);
        self.sums(&row.by_product, row, |origin| &origin.ds, columns)
            .into_iter()
            .map(|sum| sum.mul(&scale, digits))
            .collect()
    }

    /// `sum_i c_i p_i k_ij` in these columns.
    pub(crate) fn mean_key(&self, row: &RowPairs, columns: &[usize]) -> Vec<Enclosure> {
        self.sums(&row.sloped, row, |origin| &origin.probability, columns)
    }

    /// The coefficients' sums with `k_ij`, given the sum of the coefficients themselves.
    fn sums(
        &self,
        coefficients: &[Enclosure],
        row: &RowPairs,
        coefficients_sum: impl Fn(&Origin) -> &Enclosure,
        columns: &[usize],
    ) -> Vec<Enclosure> {
        let digits = row.precision + RESULT_BITS;
        let grid = &self.group.head.keys.grid;
        let key = row.origin.as_ref().map(|origin| origin.key);
        let terms = Terms { grid, rows: self.visible, origin: key };
        let sums = Coefficients::new(coefficients, row.precision).sums(terms, columns);
        let Some(origin) = &row.origin else { return sums };
        let at_origin = |column| {
            let entry =
                Enclosure::point(dyadic(&grid.row(origin.key).entry(column), grid.exponent()));
            let sum = coefficients_sum(origin);
            // Enough bits for nothing to be rounded.
            sum.mul(&entry, sum.lo().prec().max(sum.hi().prec()) + entry.lo().prec())
        };
        sums.iter().zip(columns).map(|(sum, &column)| sum.add(&at_origin(column), digits)).collect()
    }
}

impl Entries for QueryEntries<'_, '_> {
    fn enclose(&self, precision: u32, columns: &[usize]) -> Vec<Enclosure> {
        self.gradient(&self.pairs(precision), columns)
    }

    fn rational(&self, columns: &[usize]) -> Option<Vec<Rational>> {
        let Self { group, member, visible } = *self;
        let pairs: Option<Vec<Rational>> =
            visible.iter().map(|&key| group.rational_pair(member, key)?.by_product).collect();
        let pairs = pairs?;
        let terms = Terms { grid: &group.head.keys.grid, rows: visible, origin: None };
        columns
            .iter()
            .map(|&column| group.scale.rational_product(rational_sum(&pairs, terms, column)))
            .collect()
    }
}
