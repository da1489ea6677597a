//! What is kept of the elements that were compared: counts, the worst one, and the violations.

use std::cmp::Ordering;

use flashproof_oracle::row::RowIndex;
use serde::Serialize;

use super::element::{Compared, Standing, Want};
use super::place::{Location, Position, Quantity};
use super::strict::StrictMeasured;
use crate::diagnosis::gradient::{FailingGradient, GradientOf};
use crate::report::number;

/// One element and how it compares.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Element {
    /// Where it stands.
    #[serde(flatten)]
    pub location: Location,
    /// What the kernel gave.
    #[serde(serialize_with = "number::serialize")]
    pub got: f64,
    /// What it should be; a number is the exact answer rounded to the output's format, in the
    /// conventions that the kernel declares.
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
    /// Elements that were not compared: the specification does not say what they should be.
    #[serde(skip_serializing_if = "number::is_zero")]
    pub not_compared: usize,
    /// The element of the largest ratio; absent where none was compared with a bound and none is
    /// wrong.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub worst: Option<Element>,
    /// The strict gate; absent where it concerns no element.
    #[serde(skip_serializing_if = "StrictMeasured::is_empty")]
    pub strict: StrictMeasured,
}

/// Everything kept of the rows judged so far. Tallies of disjoint rows merge in any order to the
/// same tally.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Tally {
    /// The attention output.
    pub output: Measured,
    /// The LSE; no elements where the kernel offers none.
    pub lse: Measured,
    /// `dQ`; no elements in a forward pass.
    pub query_gradient: Measured,
    /// `dK`; no elements in a forward pass.
    pub key_gradient: Measured,
    /// `dV`; no elements in a forward pass.
    pub value_gradient: Measured,
    /// `dBias`; no elements in a forward pass, or without a bias.
    pub bias_gradient: Measured,
    /// `dSink`; no elements in a forward pass, or without logits of sinks.
    pub sink_gradient: Measured,
    /// In ascending order of clause and output, each pair once.
    pub violations: Vec<Violation>,
    /// Query rows with an element of output or LSE proven wrong, ascending.
    pub failing: Vec<RowIndex>,
    /// Elements of gradients proven wrong, at most a few of a row, ascending.
    pub failing_gradients: Vec<FailingGradient>,
}

/// Failing elements kept of one row of a gradient.
const KEPT_OF_A_ROW: usize = 4;

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

    /// The tally of one row of `dQ` or `dBias`, of one key's rows of `dK` and `dV`, or of an entry of
    /// `dSink`.
    #[must_use]
    pub fn of_gradients(elements: &[Compared]) -> Self {
        let mut tally = Self::default();
        for compared in elements {
            tally.add(compared);
        }
        for quantity in Quantity::ALL {
            let failing: Vec<_> = elements
                .iter()
                .filter(|compared| compared.quantity == quantity)
                .filter_map(Compared::failing_gradient)
                .collect();
            tally.failing_gradients.extend(spread(&failing, KEPT_OF_A_ROW).copied());
        }
        tally
    }

    /// What was measured of one output.
    #[must_use]
    pub const fn of(&self, quantity: Quantity) -> &Measured {
        match quantity {
            Quantity::Output => &self.output,
            Quantity::Lse => &self.lse,
            Quantity::QueryGradient => &self.query_gradient,
            Quantity::KeyGradient => &self.key_gradient,
            Quantity::ValueGradient => &self.value_gradient,
            Quantity::BiasGradient => &self.bias_gradient,
            Quantity::SinkGradient => &self.sink_gradient,
        }
    }

    fn add(&mut self, compared: &Compared) {
        let Compared { quantity, element, standing, .. } = compared;
        let wrong = matches!(standing, Standing::Wrong(_));
        let unspecified = *standing == Standing::Unspecified;
        self.measured_mut(*quantity).merge(Measured {
            elements: usize::from(!unspecified),
            wrong: usize::from(wrong),
            unbounded: usize::from(*standing == Standing::Unbounded),
            not_compared: usize::from(unspecified),
            worst: (wrong || element.bound.is_some()).then(|| element.clone()),
            strict: StrictMeasured::of(compared),
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
        self.query_gradient.merge(other.query_gradient);
        self.key_gradient.merge(other.key_gradient);
        self.value_gradient.merge(other.value_gradient);
        self.bias_gradient.merge(other.bias_gradient);
        self.sink_gradient.merge(other.sink_gradient);
        for violation in other.violations {
            self.add_violation(violation);
        }
        self.failing.extend(other.failing);
        self.failing.sort_unstable();
        self.failing.dedup();
        self.failing_gradients.extend(other.failing_gradients);
        self.failing_gradients.sort_unstable_by_key(place);
        self
    }

    const fn measured_mut(&mut self, quantity: Quantity) -> &mut Measured {
        match quantity {
            Quantity::Output => &mut self.output,
            Quantity::Lse => &mut self.lse,
            Quantity::QueryGradient => &mut self.query_gradient,
            Quantity::KeyGradient => &mut self.key_gradient,
            Quantity::ValueGradient => &mut self.value_gradient,
            Quantity::BiasGradient => &mut self.bias_gradient,
            Quantity::SinkGradient => &mut self.sink_gradient,
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

/// By gradient, then by place.
const fn place(failing: &FailingGradient) -> (GradientOf, usize, usize, usize, usize) {
    let FailingGradient { quantity, batch, head, position, entry, .. } = *failing;
    (quantity, batch, head, position, entry)
}

impl Compared {
    /// The element as one of a gradient that is proven wrong, where it is.
    fn failing_gradient(&self) -> Option<FailingGradient> {
        let (quantity, location) = (self.quantity.gradient()?, self.element.location);
        let Location { batch, head, .. } = location;
        let entry = location.entry.unwrap_or(0);
        let (position, entry) = match location.position {
            Position::Query(position) | Position::Key(position) => (position, entry),
            Position::Pair { query, key } => (query, key),
            Position::Head => (0, 0),
        };
        let bound = self.element.bound.unwrap_or(0.0);
        matches!(self.standing, Standing::Wrong(_)).then_some(FailingGradient {
            quantity,
            batch,
            head,
            position,
            entry,
            bound,
        })
    }
}

/// At most `count` of the items, evenly spread, the first and the last among them.
fn spread<T>(items: &[T], count: usize) -> impl Iterator<Item = &T> {
    let taken = items.len().min(count);
    (0..taken).map(move |k| &items[if taken > 1 { k * (items.len() - 1) / (taken - 1) } else { 0 }])
}

impl Measured {
    fn merge(&mut self, other: Self) {
        self.elements += other.elements;
        self.wrong += other.wrong;
        self.unbounded += other.unbounded;
        self.not_compared += other.not_compared;
        self.worst = match (self.worst.take(), other.worst) {
            (Some(a), Some(b)) => Some(if b.worse_than(&a) { b } else { a }),
            (a, b) => a.or(b),
        };
        self.strict.merge(other.strict);
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
        let entry = (quantity != Quantity::Lse).then_some(0);
        let standing = match wrong {
            None => Standing::Right,
            Some(false) => Standing::Wrong("FAS:bound.fwd.output"),
            Some(true) => Standing::Wrong("FAS:fwd.output.finite"),
        };
        let element = Element {
            location: Location::of_row(row, entry),
            got: 0.0,
            want: Want::Number(0.0),
            error: Some(f64::from(ratio)),
            bound: Some(1.0),
            ratio: f64::from(ratio),
        };
        Compared { quantity, element, standing, strict: None }
    }

    /// Tallies of distinct rows, in ascending order.
    fn tallies() -> impl Strategy<Value = Vec<Tally>> {
        let element = (0..Quantity::ALL.len(), any::<Option<bool>>(), 0..4_u8);
        let rows = prop::collection::vec(prop::collection::vec(element, 0..6), 0..12);
        rows.prop_map(|rows| {
            let row_of = |(query, elements): (usize, Vec<(usize, Option<bool>, u8)>)| {
                let row = RowIndex { batch: 0, head: 0, query };
                let (forward, backward): (Vec<_>, Vec<_>) = elements
                    .into_iter()
                    .map(|(at, wrong, ratio)| compared(row, Quantity::ALL[at], wrong, ratio))
                    .partition(|it| it.quantity.gradient().is_none());
                Tally::of_row(row, &forward).merged(Tally::of_gradients(&backward))
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
