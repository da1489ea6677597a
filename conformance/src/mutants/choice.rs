//! Which of the cases where a specimen differs are judged.

use std::collections::BTreeMap;

use super::plan::{Extent, Sample};
use super::specimen::Specimen;
use super::survey::Survey;
use crate::case::Case;

/// Specimens to judge, by case; both are indices.
pub(super) type Chosen = BTreeMap<usize, Vec<usize>>;

/// Judged are first cases that reproduce a report of the fault's own clause, then cases that put such a
/// clause to the test, then others; of each kind about a third of the number, spread evenly.
pub(super) fn choose(
    specimens: &[Specimen],
    suite: &Sample,
    survey: &Survey,
    extent: &Extent,
) -> Chosen {
    let mut chosen = Chosen::new();
    for (index, specimen) in specimens.iter().enumerate() {
        let most = if specimen.is_fault { extent.judged } else { extent.controls_judged };
        for case in of_specimen(specimen, suite, &survey.of_specimen(index).differing, most) {
            chosen.entry(case).or_default().push(index);
        }
    }
    chosen
}

fn of_specimen(
    specimen: &Specimen,
    suite: &Sample,
    differing: &[usize],
    most: usize,
) -> Vec<usize> {
    let of_own = |clause: &&'static str| specimen.clauses.contains(clause);
    let kind = |case: &Case| match case.clause {
        Some(clause) if of_own(&clause) => 0,
        _ if case.clauses().iter().any(of_own) => 1,
        _ => 2,
    };
    let mut kinds: [Vec<usize>; 3] = Default::default();
    for &index in differing {
        kinds[kind(&suite.cases[index])].push(index);
    }
    let mut chosen = Vec::new();
    for (n, cases) in kinds.iter().enumerate() {
        let kinds_left = kinds.len() - n;
        let left = most - chosen.len();
        // What later kinds can not fill is this one's.
        let later: usize = kinds[n + 1..].iter().map(Vec::len).sum();
        chosen.extend(spread(cases, left.div_ceil(kinds_left).max(left.saturating_sub(later))));
    }
    chosen
}

/// At most so many of the items, evenly spread, the first and the last among them.
pub(super) fn spread(items: &[usize], most: usize) -> Vec<usize> {
    let taken = items.len().min(most);
    match taken {
        0 => Vec::new(),
        1 => vec![items[0]],
        _ => (0..taken).map(|k| items[k * (items.len() - 1) / (taken - 1)]).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_spread_has_both_ends_and_no_item_twice() {
        let items: Vec<usize> = (10..20).collect();
        assert_eq!(spread(&items, 3), [10, 14, 19]);
        assert_eq!(spread(&items, 1), [10]);
        assert_eq!(spread(&items, 99), items);
        assert_eq!(spread(&[], 3), [0_usize; 0]);
    }
}
