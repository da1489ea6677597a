//! Covering arrays of strength two: few rows in which every allowed pair of levels meets.
//!
//! Faults of attention kernels come from a meeting of two conditions far more often than of three
//! (a tail *and* a causal mask, grouped heads *and* padding), so all pairs of levels are worth
//! having, and all combinations are not. The construction is the greedy one of AETG (Cohen, Dalal,
//! Fredman, Patton 1997, doi:10.1109/32.605761), made deterministic: a row starts from the first
//! pair not yet covered, and each further dimension takes the level that covers most new pairs.

use std::collections::HashSet;

/// A row with some dimensions still open.
pub type Partial = [Option<usize>];

/// One level of one dimension, as `(dimension, level)`.
type Choice = (usize, usize);

/// Rows, one level for each dimension, such that every two levels of different dimensions that can
/// meet in an allowed row do meet in one of the rows.
///
/// Dimension `d` has levels `0..levels[d]`. `completable` says whether some allowed row extends a
/// partial one; for a complete row, whether it is allowed.
#[must_use]
pub fn cover(levels: &[usize], completable: impl Fn(&Partial) -> bool) -> Vec<Vec<usize>> {
    let mut open = allowed_pairs(levels, &completable);
    let mut rows = Vec::new();
    let in_order = open.clone();
    let mut uncovered: HashSet<(Choice, Choice)> = open.drain(..).collect();
    for pair in in_order {
        if uncovered.contains(&pair) {
            let row = complete(levels, pair, &uncovered, &completable);
            for covered in pairs_of(&row) {
                uncovered.remove(&covered);
            }
            rows.push(row);
        }
    }
    rows
}

fn allowed_pairs(
    levels: &[usize],
    completable: &impl Fn(&Partial) -> bool,
) -> Vec<(Choice, Choice)> {
    let mut partial = vec![None; levels.len()];
    let mut pairs = Vec::new();
    for (first, second) in
        (0..levels.len()).flat_map(|f| (f + 1..levels.len()).map(move |s| (f, s)))
    {
        for (a, b) in (0..levels[first]).flat_map(|a| (0..levels[second]).map(move |b| (a, b))) {
            (partial[first], partial[second]) = (Some(a), Some(b));
            if completable(&partial) {
                pairs.push(((first, a), (second, b)));
            }
        }
        (partial[first], partial[second]) = (None, None);
    }
    pairs
}

/// A complete row that holds `pair` and, greedily, many uncovered ones.
fn complete(
    levels: &[usize],
    pair: (Choice, Choice),
    uncovered: &HashSet<(Choice, Choice)>,
    completable: &impl Fn(&Partial) -> bool,
) -> Vec<usize> {
    let mut partial = vec![None; levels.len()];
    partial[pair.0.0] = Some(pair.0.1);
    partial[pair.1.0] = Some(pair.1.1);
    for dimension in 0..levels.len() {
        if partial[dimension].is_none() {
            partial[dimension] = best_level(levels, dimension, &partial, uncovered, completable);
        }
    }
    partial.into_iter().map(|level| level.expect("a completable row has a level left")).collect()
}

fn best_level(
    levels: &[usize],
    dimension: usize,
    partial: &Partial,
    uncovered: &HashSet<(Choice, Choice)>,
    completable: &impl Fn(&Partial) -> bool,
) -> Option<usize> {
    let gain = |level: usize| {
        let fixed = partial.iter().enumerate().filter_map(|(d, l)| l.map(|l| (d, l)));
        fixed.filter(|&other| uncovered.contains(&ordered(other, (dimension, level)))).count()
    };
    let mut trial = partial.to_vec();
    (0..levels[dimension])
        .filter(|&level| {
            trial[dimension] = Some(level);
            completable(&trial)
        })
        // The first of the best, so that the order of levels is an order of preference.
        .rev()
        .max_by_key(|&level| gain(level))
}

fn pairs_of(row: &[usize]) -> impl Iterator<Item = (Choice, Choice)> {
    row.iter().copied().enumerate().flat_map(move |first| {
        row.iter().copied().enumerate().skip(first.0 + 1).map(move |second| (first, second))
    })
}

fn ordered(a: Choice, b: Choice) -> (Choice, Choice) {
    if a.0 < b.0 { (a, b) } else { (b, a) }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Every complete row of a small grid.
    fn all_rows(levels: &[usize]) -> Vec<Vec<usize>> {
        levels.iter().fold(vec![Vec::new()], |rows, &count| {
            rows.iter()
                .flat_map(|row| (0..count).map(move |level| [row.as_slice(), &[level]].concat()))
                .collect()
        })
    }

    fn extends(row: &[usize], partial: &Partial) -> bool {
        row.iter().zip(partial).all(|(level, fixed)| fixed.is_none_or(|fixed| fixed == *level))
    }

    proptest! {
        #[test]
        fn every_pair_that_can_meet_meets(
            levels in prop::collection::vec(1..5_usize, 2..5),
            forbidden in prop::collection::vec(any::<u64>(), 0..40),
        ) {
            let every = all_rows(&levels);
            let barred: HashSet<usize> =
                forbidden.iter().map(|n| (n % every.len() as u64) as usize).collect();
            let allowed: Vec<_> =
                every.iter().enumerate().filter(|(n, _)| !barred.contains(n)).map(|(_, r)| r).collect();
            let rows = cover(&levels, |partial| allowed.iter().any(|row| extends(row, partial)));

            let expected: HashSet<_> = allowed.iter().flat_map(|row| pairs_of(row)).collect();
            let found: HashSet<_> = rows.iter().flat_map(|row| pairs_of(row)).collect();
            prop_assert_eq!(expected, found);
            prop_assert!(rows.iter().all(|row| allowed.contains(&row)));
        }
    }

    #[test]
    fn far_fewer_rows_than_combinations() {
        let levels = [4, 4, 4, 4, 4, 4];
        let rows = cover(&levels, |_| true);
        // 16 rows are the least possible; 4096 the combinations.
        assert!((16..40).contains(&rows.len()), "{} rows", rows.len());
    }
}
