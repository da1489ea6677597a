//! Whether the answers to two related problems are related as they should be.

use flashproof_oracle::error::OracleError;
use flashproof_oracle::forward::{Options, Oracle};
use flashproof_oracle::row::RowIndex;
use flashproof_spec::bound::{Bound, ForwardBounds};
use flashproof_spec::tensor::{Gradients, Tensor};
use ndarray::Dimension;
use rayon::prelude::*;

use super::{Other, Relation};
use crate::judge::sample::{MOST_PAIRS, sample};
use crate::verdict::{
    Answer, Compared, Convention, Element, Location, Quantity, Standing, Tally, Want,
};

/// Two answers and how they are related.
#[derive(Clone, Copy, Debug)]
pub struct Pair<'a> {
    /// The relation.
    pub relation: Relation,
    /// Whether it holds to the bit.
    pub exact: bool,
    /// The answer to the first problem.
    pub first: Answer<'a>,
    /// The answer to the other.
    pub other: Answer<'a>,
    /// How the rows of the other follow from those of the first.
    pub how: &'a Other,
}

/// A row of the first problem, the row of the other that follows from it, and the bounds of both where
/// they are not compared bit for bit.
#[derive(Clone, Copy, Debug)]
pub struct RowPair<'b> {
    first: RowIndex,
    other: RowIndex,
    bounds: Option<&'b (ForwardBounds, ForwardBounds)>,
}

/// The rows that are compared: all, or a sample of them where computing the conditions of their
/// bounds would take long.
#[must_use]
pub fn sampled(answer: &Answer<'_>, seed: u64) -> Vec<RowIndex> {
    let rows = answer.every_row();
    sample(&rows, (MOST_PAIRS / answer.problem.key_len.max(1)).max(1), seed)
}

/// Compares these rows of the first with those of the other that follow from them. `visit` is shown
/// each pair of rows, from any thread and in no particular order.
///
/// # Errors
/// [`OracleError`] when problem, inputs and rows do not belong together.
pub fn compare(
    pair: &Pair<'_>,
    rows: &[RowIndex],
    visit: impl Fn(&RowPair<'_>) + Sync,
) -> Result<Tally, OracleError> {
    let oracle = |answer: &Answer<'_>| Options::new(answer.profile.lse_format);
    let first = Oracle::new(pair.first.problem, pair.first.inputs, oracle(&pair.first))?;
    let other = Oracle::new(pair.other.problem, pair.other.inputs, oracle(&pair.other))?;
    let compare_row = |&row: &RowIndex| {
        let Some(moved) = pair.how.rows.of(row) else { return Ok(Tally::default()) };
        let bounds = if pair.exact {
            None
        } else {
            Some((pair.first.bounds(&first.row(row)?), pair.other.bounds(&other.row(moved)?)))
        };
        let rows = RowPair { first: row, other: moved, bounds: bounds.as_ref() };
        visit(&rows);
        Ok(Tally::of_row(row, &pair.elements(&rows)))
    };
    rows.par_iter().map(compare_row).try_reduce(Tally::default, |a, b| Ok(a.merged(b)))
}

impl Pair<'_> {
    /// Whether the answers are proven not to be related as they should be, in these rows.
    #[must_use]
    pub fn differ_in(&self, rows: &RowPair<'_>) -> bool {
        self.elements(rows).iter().any(|it| matches!(it.standing, Standing::Wrong(_)))
    }

    fn elements(&self, rows: &RowPair<'_>) -> Vec<Compared> {
        let RowPair { first: row, other: moved, bounds } = *rows;
        let RowIndex { batch, head, query } = row;
        let Answer { problem, inputs, .. } = self.first;
        let sees_keys = !inputs.visible_keys(problem, batch, head, query).is_empty();
        let entry =
            |tensor: &Tensor, row: RowIndex, j| tensor.view4()[[row.batch, row.head, row.query, j]];
        let (first, other) = (&self.first.outputs, &self.other.outputs);
        let mut compared: Vec<_> = (0..self.first.problem.value_dim)
            .map(|j| {
                let values = (entry(&first.output, row, j), entry(&other.output, moved, j));
                let bounds = bounds.map(|(a, b)| (a.output[j], b.output[j]));
                let location = Location::of_row(row, Some(j));
                let shift = self.how.output_shift;
                self.element(Quantity::Output, location, values, shift, bounds, sees_keys)
            })
            .collect();
        if let Some((first, other)) = first.lse.as_ref().zip(other.lse.as_ref()) {
            let at = |lse: &Tensor, row: RowIndex| {
                let written = lse.view3()[[row.batch, row.head, row.query]];
                Convention::of_lse(self.first.choices).nats(written)
            };
            let bounds = bounds.map(|(a, b)| (a.lse, b.lse));
            let location = Location::of_row(row, None);
            let values = (at(first, row), at(other, moved));
            compared.push(self.element(
                Quantity::Lse,
                location,
                values,
                self.how.lse_shift,
                bounds,
                sees_keys,
            ));
        }
        compared
    }

    /// One element: `values` in the first answer and in the other.
    fn element(
        &self,
        quantity: Quantity,
        location: Location,
        (first, got): (f64, f64),
        shift: f64,
        bounds: Option<(Bound, Bound)>,
        sees_keys: bool,
    ) -> Compared {
        /// Of each of the two: three for a change of base, one for sum and difference.
        const UNITS: f64 = 4.0;
        let clause = self.relation.clause();
        let expected = first + shift;
        let compared = |want, measure: Option<(f64, f64)>, standing| {
            let (error, bound) = measure.unzip();
            let ratio = match (measure, standing) {
                (Some((error, bound)), _) if error > 0.0 => error / bound,
                (None, Standing::Wrong(_)) => f64::INFINITY,
                _ => 0.0,
            };
            let element = Element { location, got, want, error, bound, ratio };
            Compared { quantity, element, standing, strict: None }
        };
        // The inputs are numbers: a NaN that is repeated was not written in either run.
        if sees_keys && (expected.is_nan() || got.is_nan()) {
            let standing = Standing::Wrong("FAS:fwd.output.written");
            return compared(Want::Unchanged(expected), None, standing);
        }
        // RowPair without keys, and infinities that follow from the inputs, are the same in both.
        if bounds.is_none() || !expected.is_finite() || !got.is_finite() {
            let want = Want::Unchanged(expected);
            let same = got.to_bits() == expected.to_bits() || (got.is_nan() && expected.is_nan());
            let standing = if same { Standing::Right } else { Standing::Wrong(clause) };
            return compared(want, None, standing);
        }
        let want = Want::Number(expected);
        let Some((Bound::Within(a), Bound::Within(b))) = bounds else {
            // No condition where the row has no keys: then both are exactly the same.
            let standing = if got == expected { Standing::Right } else { Standing::Unbounded };
            return compared(want, None, standing);
        };
        let unit = |x: f64| x.abs().next_up() - x.abs();
        let rounding = UNITS * (unit(expected) + unit(got));
        let error = ((got - expected).abs() - rounding).max(0.0);
        let bound = (a + b).next_up();
        let standing = if error > bound { Standing::Wrong(clause) } else { Standing::Right };
        compared(want, Some((error, bound)), standing)
    }
}

/// Compares the gradients of two runs bit for bit. The inputs are numbers: a NaN is wrong though it is
/// repeated.
#[must_use]
pub fn compare_gradients(relation: Relation, first: &Gradients, other: &Gradients) -> Tally {
    let tensors = [
        (Quantity::QueryGradient, Some(&first.query), Some(&other.query)),
        (Quantity::KeyGradient, Some(&first.key), Some(&other.key)),
        (Quantity::ValueGradient, Some(&first.value), Some(&other.value)),
        (Quantity::BiasGradient, first.bias.as_ref(), other.bias.as_ref()),
        (Quantity::SinkGradient, first.sink.as_ref(), other.sink.as_ref()),
    ];
    let compared: Vec<_> = tensors
        .into_iter()
        .filter_map(|(quantity, first, other)| Some((quantity, first?, other?)))
        .flat_map(|(quantity, first, other)| unchanged(relation, quantity, first, other))
        .collect();
    Tally::of_gradients(&compared)
}

fn unchanged(
    relation: Relation,
    quantity: Quantity,
    first: &Tensor,
    other: &Tensor,
) -> Vec<Compared> {
    let pairs = first.values().indexed_iter().zip(other.values());
    pairs
        .map(|((at, &first), &got)| {
            let want = Want::Unchanged(first);
            let (ratio, standing) = if got.is_nan() {
                (f64::INFINITY, Standing::Wrong("FAS:bwd.output.written"))
            } else if want.admits(got) {
                (0.0, Standing::Right)
            } else {
                (f64::INFINITY, Standing::Wrong(relation.clause()))
            };
            let location = Location::of_element(quantity, at.slice());
            let element = Element { location, got, want, error: None, bound: None, ratio };
            Compared { quantity, element, standing, strict: None }
        })
        .collect()
}
