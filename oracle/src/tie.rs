//! On which side of a midpoint of two format values an output entry lies, decided for certain.
//!
//! With groups `g` of keys of equal score, `o - r = sum_g e^(s_g - m) A_g / l` for any rational `r`,
//! where `A_g = sum_(i in g) (v_i - r)` is rational and exact. Scores are algebraic numbers and
//! differ between groups, so by the Lindemann-Weierstrass theorem (A. Baker, Transcendental Number
//! Theory, 1975, theorem 1.4: exponentials of distinct algebraic numbers are linearly independent
//! over the algebraic numbers) the sum is zero only if every `A_g` is. Otherwise its sign shows at
//! some finite precision. Groups with `A_g = 0` are dropped and the first of those that remain
//! becomes the reference, so that a group far below the largest score decides without a precision
//! in proportion to its distance.

use std::cmp::Ordering;

use rug::{Float, Integer};

use crate::grid::Grid;
use crate::groups::Groups;
use crate::numerator::{NARROW_PRECISION, Values};
use crate::scale::ExactScale;
use crate::weights::{WEIGHT_SLACK, Weights};

/// How an output entry compares with `midpoint`; `None` when `max_precision` does not tell.
///
/// `exponent` is that of the dot products' grid.
pub(crate) fn compare_output(
    midpoint: &Float,
    column: usize,
    values: Values<'_>,
    groups: &Groups,
    scores: (ExactScale, i32),
    max_precision: u32,
) -> Option<Ordering> {
    let excess = excesses(midpoint, column, values, groups);
    let (gaps, excess): (Vec<_>, Vec<_>) =
        groups.gaps().iter().zip(excess).filter(|(_, excess)| *excess != 0).unzip();
    let Some(reference) = gaps.first() else { return Some(Ordering::Equal) };
    let gaps: Vec<Integer> = gaps.iter().map(|gap| Integer::from(*gap - *reference)).collect();
    let (scale, exponent) = scores;
    std::iter::successors(Some(NARROW_PRECISION), |precision| precision.checked_mul(2))
        .take_while(|&precision| precision <= max_precision.max(NARROW_PRECISION))
        .find_map(|precision| sign(&excess, &Weights::new(&gaps, exponent, scale, precision)))
}

/// `A_g` of each group, in units of a grid that holds both the values and the midpoint.
fn excesses(midpoint: &Float, column: usize, values: Values<'_>, groups: &Groups) -> Vec<Integer> {
    let (mantissa, at) = midpoint.to_integer_exp().unwrap_or_default();
    let exponent = values.grid.exponent().min(at);
    let midpoint = mantissa << (at - exponent) as u32;
    (0..groups.len())
        .map(|group| {
            let members = groups.members(group);
            let mut sum =
                sum_values(values.grid, members.iter().map(|&key| values.keys[key]), column);
            sum <<= (values.grid.exponent() - exponent) as u32;
            sum - Integer::from(&midpoint * members.len() as u64)
        })
        .collect()
}

fn sum_values(grid: &Grid, keys: impl Iterator<Item = usize>, column: usize) -> Integer {
    let mut sum = Integer::new();
    keys.for_each(|key| grid.row(key).add(&mut sum, column));
    sum
}

/// The sign of `sum_g w_g A_g`, unless its enclosure contains zero.
fn sign(excess: &[Integer], weights: &Weights) -> Option<Ordering> {
    let mut lo = Integer::new();
    let mut hi = Integer::new();
    for (group, (excess, floor)) in excess.iter().zip(&weights.floors).enumerate() {
        let product = Integer::from(floor * excess);
        let slack = if group == 0 { Integer::new() } else { Integer::from(excess * WEIGHT_SLACK) };
        let zero = Integer::new();
        lo += Integer::from((&slack).min(&zero)) + &product;
        hi += Integer::from((&slack).max(&zero)) + product;
    }
    match (lo.cmp0(), hi.cmp0()) {
        (Ordering::Greater, _) => Some(Ordering::Greater),
        (_, Ordering::Less) => Some(Ordering::Less),
        _ => None,
    }
}
