//! The weighted sums of values, `N_j = sum_i w_i v_ij`, enclosed.
//!
//! With weights in `[floor_i, floor_i + slack]` units (the first group's exactly its floor), the sum
//! lies within `slack * sum_i |v_ij|`, over the other groups, of the exact integer
//! `sum_i floor_i v_ij`. No other error exists.
//!
//! Rising precision shrinks this enclosure: from precision `p` to `2p`, a floor grows by at most
//! `1 + 2^-7` coarse units ([`crate::weights`]) and the new slack is at most half a coarse unit, so
//! the sum moves, and widens anew, by no more than two coarse units times `sum_i |v_ij|`.
//!
//! Dropout multiplies every term that it keeps by one number, so kept terms are summed and the sum is
//! multiplied ([`Kept`]). A sink has no value and no term here.

use rug::Integer;

use crate::grid::{Grid, GridRow, split};
use crate::groups::Groups;
use crate::weights::{WEIGHT_SLACK, Weights};

/// Largest weight precision whose integers fit an `i64`.
pub(crate) const NARROW_PRECISION: u32 = 62;

/// Values of the keys that a row gives weight to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Values<'a> {
    /// Values of every key of the head.
    pub(crate) grid: &'a Grid,
    /// The keys with weight; groups index this list.
    pub(crate) keys: &'a [usize],
    /// What dropout keeps, where there is dropout.
    pub(crate) kept: Option<&'a Kept>,
}

/// What dropout keeps of a row.
#[derive(Debug)]
pub(crate) struct Kept {
    /// Whether the weight of each key of the head is kept.
    pub(crate) of_key: Vec<bool>,
    /// What it is multiplied by.
    pub(crate) scale: f64,
}

impl Values<'_> {
    /// Whether the weight of a key of the list is kept.
    pub(crate) fn keeps(&self, key: usize) -> bool {
        self.kept.is_none_or(|kept| kept.of_key[self.keys[key]])
    }

    /// What kept values are multiplied by, as an integer times a power of two.
    pub(crate) fn factor(&self) -> (i64, i32) {
        self.kept.map_or((1, 0), |kept| split(kept.scale))
    }

    /// Exponent of the unit of sums of values multiplied by the factor.
    pub(crate) fn exponent(&self) -> i32 {
        self.grid.exponent() + self.factor().1
    }
}

/// Bounds `(lo, hi)` on the weighted sums in these columns, in units of [`Values::exponent`] times the
/// weights' grid.
pub(crate) fn numerators(
    values: Values<'_>,
    groups: &Groups,
    weights: &Weights,
    columns: &[usize],
) -> Vec<(Integer, Integer)> {
    let sums = if fits_machine_words(values, weights.precision) {
        narrow_sums(values, groups, weights, columns)
    } else {
        wide_sums(values, groups, weights, columns)
    };
    let (factor, _) = values.factor();
    sums.into_iter()
        .map(|(sum, mass)| {
            let slack = mass * WEIGHT_SLACK;
            ((Integer::from(&sum - &slack)) * factor, (sum + slack) * factor)
        })
        .collect()
}

/// Whether a sum of all keys' products stays below `2^126` in magnitude.
fn fits_machine_words(values: Values<'_>, precision: u32) -> bool {
    let count_bits = usize::BITS - values.keys.len().leading_zeros();
    precision <= NARROW_PRECISION && values.grid.width() + precision + count_bits < i128::BITS - 1
}

/// Weighted sum, and sum of magnitudes outside the first group, for each column.
fn narrow_sums(
    values: Values<'_>,
    groups: &Groups,
    weights: &Weights,
    columns: &[usize],
) -> Vec<(Integer, Integer)> {
    let mut sums = vec![(0_i128, 0_i128); columns.len()];
    for (key, group) in groups.keys().filter(|&(key, _)| values.keeps(key)) {
        let GridRow::Narrow(row) = values.grid.row(values.keys[key]) else {
            return wide_sums(values, groups, weights, columns);
        };
        let weight = i128::from(weights.floors[group].to_i64_wrapping());
        let inexact = i128::from(group != 0);
        for ((sum, mass), &column) in sums.iter_mut().zip(columns) {
            *sum += weight * i128::from(row[column]);
            *mass += inexact * i128::from(row[column].unsigned_abs());
        }
    }
    sums.into_iter().map(|(sum, mass)| (Integer::from(sum), Integer::from(mass))).collect()
}

/// As [`narrow_sums`], for entries and weights of any size.
fn wide_sums(
    values: Values<'_>,
    groups: &Groups,
    weights: &Weights,
    columns: &[usize],
) -> Vec<(Integer, Integer)> {
    let mut sums = vec![(Integer::new(), Integer::new()); columns.len()];
    for (key, group) in groups.keys().filter(|&(key, _)| values.keeps(key)) {
        let row = values.grid.row(values.keys[key]);
        for ((sum, mass), &column) in sums.iter_mut().zip(columns) {
            row.add_product(sum, &weights.floors[group], column);
            if group != 0 {
                row.add_magnitude(mass, column);
            }
        }
    }
    sums
}
