//! What is kept of the elements that were compared: counts, the worst one, and the violations.

use std::cmp::Ordering;
use std::fmt;

use flashproof_oracle::row::RowIndex;
use serde::Serialize;

use super::element::{Compared, Standing, Want};
use crate::report::number;

/// Which of the kernel's outputs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Quantity {
    /// The attention output.
    Output,
    /// The LSE.
    Lse,
}

impl fmt::Display for Quantity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Output => "output",
            Self::Lse => "LSE",
        })
    }
}

/// Where an element stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Location {
    /// Batch member, from 0.
    pub batch: usize,
    /// Query head, from 0.
    pub head: usize,
    /// Query position, from 0.
    pub query: usize,
    /// Output entry, from 0; absent for an LSE.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub entry: Option<usize>,
}

impl Location {
    pub(super) const fn new(row: RowIndex, entry: Option<usize>) -> Self {
        Self { batch: row.batch, head: row.head, query: row.query, entry }
    }
}

impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "batch {}, head {}, query {}", self.batch, self.head, self.query)?;
        self.entry.map_or(Ok(()), |entry| write!(f, ", entry {entry}"))
    }
}

/// One element and how it compares.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Element {
    /// Where it stands.
    #[serde(flatten)]
    pub location: Location,
    /// What the kernel gave.
    #[serde(serialize_with = "number::serialize")]
    pub got: f64,
    /// What it should be; a number is the exact answer rounded to the output's format.
    pub want: Want,
    /// The smallest distance from the exact answer that its enclosure leaves possible, in nats for
    /// an LSE; absent where the element is required exactly.
    #[serde(serialize_with = "number::serialize_option", skip_serializing_if = "Option::is_none")]
    pub error: Option<f64>,
    /// The largest error of a kernel that keeps the declared profile.
    #[serde(serialize_with = "number::serialize_option", skip_serializing_if = "Option::is_none")]
    pub bound: Option<f64>,
    /// Error over bound; infinite for an element that is required exactly and is another.
    #[serde(serialize_with = "number::serialize")]
    pub ratio: f64,
}

/// Elements of one output that violate one clause.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Violation {
    /// The clause's id.
    pub clause: &'static str,
    /// Which output.
    pub quantity: Quantity,
    /// How many elements violate it.
    pub elements: usize,
    /// The worst of them.
    pub worst: Element,
}

/// The elements of one output.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Measured {
    /// Elements compared.
    pub elements: usize,
    /// Elements proven wrong.
    pub wrong: usize,
    /// Elements for which no bound exists.
    pub unbounded: usize,
    /// The element of the largest ratio; absent where none was compared with a bound and none is
    /// wrong.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub worst: Option<Element>,
}

/// Everything kept of the rows judged so far. Tallies of disjoint rows merge in any order to the
/// same tally.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Tally {
    /// The attention output.
    pub output: Measured,
    /// The LSE; no elements where the kernel offers none.
    pub lse: Measured,
    /// In ascending order of clause and output, each pair once.
    pub violations: Vec<Violation>,
    /// Rows with an element proven wrong, ascending.
    pub failing: Vec<RowIndex>,
}

impl Tally {
    /// The tally of one row.
    #[must_use]
    pub fn of_row(row: RowIndex, elements: &[Compared]) -> Self {
        let mut tally = Self::default();
        for compared in elements {
            tally.add(compared);
        }
        if tally.output.wrong + tally.lse.wrong > 0 {
            tally.failing.push(row);
        }
        tally
    }

    fn add(&mut self, compared: &Compared) {
        let Compared { quantity, element, standing } = compared;
        let wrong = matches!(standing, Standing::Wrong(_));
        self.measured_mut(*quantity).merge(Measured {
            elements: 1,
            wrong: usize::from(wrong),
            unbounded: usize::from(*standing == Standing::Unbounded),
            worst: (wrong || element.bound.is_some()).then(|| element.clone()),
        });
        if let Standing::Wrong(clause) = standing {
            let worst = element.clone();
            self.add_violation(Violation { clause, quantity: *quantity, elements: 1, worst });
        }
    }

    /// The tally of both.
    #[must_use]
    pub fn merged(mut self, other: Self) -> Self {
        self.output.merge(other.output);
        self.lse.merge(other.lse);
        for violation in other.violations {
            self.add_violation(violation);
        }
        self.failing.extend(other.failing);
        self.failing.sort_unstable();
        self.failing.dedup();
        self
    }

    const fn measured_mut(&mut self, quantity: Quantity) -> &mut Measured {
        match quantity {
            Quantity::Output => &mut self.output,
            Quantity::Lse => &mut self.lse,
        }
    }

    fn add_violation(&mut self, new: Violation) {
        let key = |it: &Violation| (it.clause, it.quantity);
        match self.violations.binary_search_by_key(&key(&new), key) {
            Ok(at) => {
                let held = &mut self.violations[at];
                held.elements += new.elements;
                if new.worst.worse_than(&held.worst) {
                    held.worst = new.worst;
                }
            }
            Err(at) => self.violations.insert(at, new),
        }
    }
}

impl Measured {
    fn merge(&mut self, other: Self) {
        self.elements += other.elements;
        self.wrong += other.wrong;
        self.unbounded += other.unbounded;
        self.worst = match (self.worst.take(), other.worst) {
            (Some(a), Some(b)) => Some(if b.worse_than(&a) { b } else { a }),
            (a, b) => a.or(b),
        };
    }
}

impl Element {
    /// Whether this has the larger ratio, or the same one at an earlier place.
    pub(crate) fn worse_than(&self, other: &Self) -> bool {
        match self.ratio.total_cmp(&other.ratio) {
            Ordering::Greater => true,
            Ordering::Less => false,
            Ordering::Equal => self.location < other.location,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn compared(row: RowIndex, quantity: Quantity, wrong: Option<bool>, ratio: u8) -> Compared {
        let entry = (quantity == Quantity::Output).then_some(0);
        let standing = match wrong {
            None => Standing::Right,
            Some(false) => Standing::Wrong("FAS:bound.fwd.output"),
            Some(true) => Standing::Wrong("FAS:fwd.output.finite"),
        };
        let element = Element {
            location: Location::new(row, entry),
            got: 0.0,
            want: Want::Number(0.0),
            error: Some(f64::from(ratio)),
            bound: Some(1.0),
            ratio: f64::from(ratio),
        };
        Compared { quantity, element, standing }
    }

    /// Tallies of distinct rows, in ascending order.
    fn tallies() -> impl Strategy<Value = Vec<Tally>> {
        let element = (any::<bool>(), any::<Option<bool>>(), 0..4_u8);
        let rows = prop::collection::vec(prop::collection::vec(element, 0..4), 0..12);
        rows.prop_map(|rows| {
            let row_of = |(query, elements): (usize, Vec<(bool, Option<bool>, u8)>)| {
                let row = RowIndex { batch: 0, head: 0, query };
                let compared: Vec<_> = elements
                    .into_iter()
                    .map(|(lse, wrong, ratio)| {
                        let quantity = if lse { Quantity::Lse } else { Quantity::Output };
                        compared(row, quantity, wrong, ratio)
                    })
                    .collect();
                Tally::of_row(row, &compared)
            };
            rows.into_iter().enumerate().map(row_of).collect()
        })
    }

    fn merged(tallies: impl IntoIterator<Item = Tally>) -> Tally {
        tallies.into_iter().fold(Tally::default(), Tally::merged)
    }

    proptest! {
        #[test]
        fn any_order_and_grouping_of_rows_give_the_same_tally(
            tallies in tallies(),
            cut in any::<prop::sample::Index>(),
        ) {
            let whole = merged(tallies.clone());
            prop_assert_eq!(&merged(tallies.iter().rev().cloned()), &whole);
            let (left, right) = tallies.split_at(cut.index(tallies.len() + 1));
            let halves = merged(left.to_vec()).merged(merged(right.to_vec()));
            prop_assert_eq!(&halves, &whole);
        }
    }
}
