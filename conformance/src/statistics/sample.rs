//! The errors of many elements, against what they may be one by one and on average.

use flashproof_oracle::row::{Exact, Row};
use flashproof_spec::bound::{self, Bound, MeanError, Spread};
use ndarray::s;
use serde::Serialize;

use crate::adapter::{LseBase, LseSign};
use crate::report::number;
use crate::verdict::{Answer, Element, Location, Quantity, Violation, Want};

/// The errors of one row.
pub(super) struct RowErrors {
    pub(super) output: Errors,
    pub(super) lse: Option<Errors>,
}

/// Errors of elements of one row that are all numbers and all have a bound.
pub(super) struct Errors {
    elements: Vec<Element>,
    /// Signed, in the direction of the exact value for outputs.
    signed: f64,
    /// What rounding the sum may have lost.
    lost: f64,
    mean: MeanError,
}

impl RowErrors {
    /// `None` where the row has no numbers, or no bounds.
    pub(super) fn of(answer: &Answer<'_>, row: &Row) -> Option<Self> {
        let condition = row.condition.as_ref()?;
        let values = answer.kept_values(row);
        let Answer { problem, profile, outputs, choices, .. } = *answer;
        let spreads = bound::statistical(problem, profile, condition, &values.view()).ok()?;
        let index = row.index;
        let exact: Vec<_> = row.outputs.iter().map(|it| it.exact()).collect::<Option<_>>()?;
        let got = outputs.output.view4();
        let got = got.slice(s![index.batch, index.head, index.query, ..]).to_vec();
        let places = (0..got.len()).map(|entry| Location::of_row(index, Some(entry)));
        let output = Errors::of(places, &got, &exact, &spreads.output, outward)?;
        let plain = choices.lse_base == LseBase::Natural && choices.lse_sign == LseSign::Plus;
        let lse = outputs.lse.as_ref().filter(|_| plain).and_then(|lse| {
            let got = lse.view3()[[index.batch, index.head, index.query]];
            let place = [Location::of_row(index, None)].into_iter();
            Errors::of(place, &[got], &[row.lse.exact()?], &[spreads.lse], |_| 1.0)
        });
        Some(Self { output, lse })
    }
}

/// The sign of an exact value, which does not depend on any rounding.
fn outward(exact: &Exact) -> f64 {
    if exact.enclosure.to_f64().1 < 0.0 { -1.0 } else { 1.0 }
}

impl Errors {
    fn of(
        places: impl Iterator<Item = Location>,
        got: &[f64],
        exact: &[&Exact],
        spreads: &[Spread],
        sign: impl Fn(&Exact) -> f64,
    ) -> Option<Self> {
        let mut errors = Self {
            elements: Vec::with_capacity(got.len()),
            signed: 0.0,
            lost: 0.0,
            mean: MeanError::of_row(spreads),
        };
        for (((location, &got), exact), spread) in places.zip(got).zip(exact).zip(spreads) {
            let Bound::Within(bound) = spread.bound else { return None };
            // NaN and infinity are for the worst-case bound.
            if !got.is_finite() {
                return None;
            }
            let error = exact.enclosure.error_of(got).0;
            let above = if *exact.enclosure.hi() < got { error } else { -error };
            errors.add_signed(sign(exact) * above);
            let want = Want::Number(exact.rounded.unwrap_or(exact.enclosure.to_f64().0));
            let ratio = if error == 0.0 { 0.0 } else { error / bound };
            let (error, bound) = (Some(error), Some(bound));
            errors.elements.push(Element { location, got, want, error, bound, ratio });
        }
        Some(errors)
    }

    fn add_signed(&mut self, error: f64) {
        self.signed += error;
        self.lost += f64::EPSILON * (self.signed.abs() + error.abs());
    }
}

/// The tested elements of one output of a case.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Sample {
    /// How many.
    pub elements: usize,
    /// Those that exceed the bound of high probability.
    pub rejected: usize,
    /// The one of the largest error over bound; absent where there are none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub worst: Option<Element>,
    /// The mean of their signed errors; absent where there are none.
    #[serde(serialize_with = "serialize_mean", rename = "mean_error")]
    sums: Sums,
}

/// Sums over elements.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Sums {
    signed: f64,
    lost: f64,
    allowed: MeanError,
}

/// A mean error, and what it exceeds with a probability below `10^-9`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct MeanTest {
    /// The mean of signed errors: of outputs positive where they are too large in magnitude, of an LSE
    /// where it is too large.
    #[serde(serialize_with = "number::serialize")]
    pub mean: f64,
    /// The bound on its magnitude.
    #[serde(serialize_with = "number::serialize")]
    pub bound: f64,
    /// Magnitude over bound.
    #[serde(serialize_with = "number::serialize")]
    pub ratio: f64,
}

impl MeanTest {
    /// Whether the hypothesis of independent roundings of mean zero is rejected.
    #[must_use]
    pub fn is_rejected(&self) -> bool {
        self.ratio > 1.0
    }
}

fn serialize_mean<S: serde::Serializer>(sums: &Sums, serializer: S) -> Result<S::Ok, S::Error> {
    sums.test().serialize(serializer)
}

impl Sums {
    fn test(&self) -> Option<MeanTest> {
        let count = self.allowed.elements();
        if count == 0 {
            return None;
        }
        // Twice: what is lost is itself a sum that was rounded.
        let least = (self.signed.abs() - 2.0 * self.lost).max(0.0);
        let (allowed, count) = (self.allowed.bound(), count as f64);
        let ratio = if least == 0.0 { 0.0 } else { least / allowed };
        Some(MeanTest { mean: self.signed / count, bound: allowed / count, ratio })
    }
}

impl Sample {
    /// The test of the mean; `None` without elements.
    #[must_use]
    pub fn mean(&self) -> Option<MeanTest> {
        self.sums.test()
    }

    pub(super) fn add(&mut self, errors: &Errors) {
        self.elements += errors.elements.len();
        for element in &errors.elements {
            self.rejected += usize::from(element.ratio > 1.0);
            if self.worst.as_ref().is_none_or(|worst| element.worse_than(worst)) {
                self.worst = Some(element.clone());
            }
        }
        self.sums.signed += errors.signed;
        self.sums.lost += errors.lost + f64::EPSILON * self.sums.signed.abs();
        self.sums.allowed = self.sums.allowed.and(errors.mean);
    }

    /// What was rejected.
    pub(super) fn violations(&self, quantity: Quantity) -> Vec<Violation> {
        let Some(worst) = &self.worst else { return Vec::new() };
        let of_elements = (self.rejected > 0).then(|| Violation {
            clause: "FAS:bound.fwd.statistical",
            quantity,
            elements: self.rejected,
            worst: worst.clone(),
        });
        let of_mean = self.mean().filter(MeanTest::is_rejected).map(|mean| Violation {
            clause: "FAS:bound.fwd.mean-error",
            quantity,
            elements: self.elements,
            // A mean has no place: that of the worst element stands for it.
            worst: Element {
                location: worst.location,
                got: mean.mean,
                want: Want::Number(0.0),
                error: Some(mean.mean.abs()),
                bound: Some(mean.bound),
                ratio: mean.ratio,
            },
        });
        of_mean.into_iter().chain(of_elements).collect()
    }
}
