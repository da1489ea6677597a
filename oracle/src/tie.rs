//! On which side of a midpoint of two format values an output entry lies, decided for certain.
//!
//! With groups `g` of keys of equal score, `o - r = sum_g e^(s_g - m) A_g / l` for any rational `r`,
//! where `A_g = sum_(i in g) (z_i v_i - r)` is rational and exact. `z_i` is the factor of dropout, and a
//! sink is one more member of a group, the value zero: `o` is the mean of the values and of this zero by
//! their weights. Scores are algebraic numbers and
//! differ between groups, so by the Lindemann-Weierstrass theorem (A. Baker, Transcendental Number
//! Theory, 1975, theorem 1.4: exponentials of distinct algebraic numbers are linearly independent
//! over the algebraic numbers) the sum is zero only if every `A_g` is. Otherwise its sign shows at
//! some finite precision. Groups with `A_g = 0` are dropped and the first of those that remain
//! becomes the reference, so that a group far below the largest score decides without a precision
//! in proportion to its distance.
//!
//! So an output is rational only if every group has the same mean. With a sink alone in its group that
//! mean is zero; a sink whose logit equals the score of some keys is one more zero among their values.
//!
//! With a softcap, scores are transcendental as soon as they are not zero within it, and no theorem at
//! hand says whether `sum_g e^(s_g - m) A_g` can be zero by chance. Only what needs no theorem is
//! decided here: all `A_g` zero, or all of one sign. Otherwise the enclosure must leave the midpoint
//! behind on its own.

use std::cmp::Ordering;

use rug::{Float, Integer};

use crate::grid::Grid;
use crate::numerator::{NARROW_PRECISION, Values};
use crate::ranking::Ranking;
use crate::weights::{WEIGHT_SLACK, Weights};

/// How an output entry compares with `midpoint`; `None` when `max_precision` does not tell, or the
/// theorem does not speak of the scores.
pub(crate) fn compare_output(
    midpoint: &Float,
    column: usize,
    values: Values<'_>,
    ranking: &Ranking<'_>,
    max_precision: u32,
) -> Option<Ordering> {
    let excess = excesses(midpoint, column, values, ranking);
    let (groups, excess): (Vec<usize>, Vec<Integer>) =
        excess.into_iter().enumerate().filter(|(_, excess)| *excess != 0).unzip();
    if let Some(side) = common_sign(&excess) {
        return Some(side);
    }
    if !ranking.is_algebraic() {
        return None;
    }
    std::iter::successors(Some(NARROW_PRECISION), |precision| precision.checked_mul(2))
        .take_while(|&precision| precision <= max_precision.max(NARROW_PRECISION))
        .find_map(|precision| sign(&excess, &ranking.weights_among(&groups, precision)))
}

/// `A_g` of each group, in units of a grid that holds both the values and the midpoint.
fn excesses(
    midpoint: &Float,
    column: usize,
    values: Values<'_>,
    ranking: &Ranking<'_>,
) -> Vec<Integer> {
    let (mantissa, at) = midpoint.to_integer_exp().unwrap_or_default();
    let exponent = values.exponent().min(at);
    let midpoint = mantissa << (at - exponent) as u32;
    let (factor, _) = values.factor();
    let groups = &ranking.groups;
    (0..groups.len())
        .map(|group| {
            let kept = groups.members(group).iter().filter(|&&key| values.keeps(key));
            let mut sum = sum_values(values.grid, kept.map(|&key| values.keys[key]), column);
            sum *= factor;
            sum <<= (values.exponent() - exponent) as u32;
            sum - Integer::from(&midpoint * groups.terms(group) as u64)
        })
        .collect()
}

/// The sign that all of these have; equal where there are none.
fn common_sign(excess: &[Integer]) -> Option<Ordering> {
    let first = excess.first().map_or(Ordering::Equal, Integer::cmp0);
    excess.iter().all(|excess| excess.cmp0() == first).then_some(first)
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
