//! One element of a gradient against its exact answer.

use flashproof_oracle::backward::ExpectedGradient;
use flashproof_oracle::row::Exact;
use flashproof_spec::bound::Bound;

use crate::verdict::element::{Compared, Standing, Want, best_guess, bound_clause, ratio};
use crate::verdict::place::{Location, Quantity};
use crate::verdict::tally::Element;

/// One element of a gradient.
#[derive(Clone, Copy)]
pub(super) struct Judge {
    pub(super) quantity: Quantity,
    pub(super) location: Location,
    /// What the kernel gave.
    pub(super) got: f64,
}

impl Judge {
    /// `without_terms`: the gradient is a sum over no pair of query and key.
    pub(super) fn compare(
        &self,
        expected: &ExpectedGradient,
        without_terms: bool,
        bound: impl FnOnce() -> Bound,
    ) -> Compared {
        match expected {
            _ if without_terms => self.compare_with_zero(),
            ExpectedGradient::Unspecified => {
                self.compared(Want::Unspecified, Standing::Unspecified, None)
            }
            ExpectedGradient::Exact(exact) => self.compare_with_number(exact, bound()),
        }
    }

    fn compare_with_zero(&self) -> Compared {
        let standing = if Want::Zero.admits(self.got) {
            Standing::Right
        } else if self.quantity == Quantity::QueryGradient {
            Standing::Wrong("FAS:bwd.empty-row.zero")
        } else if self.got.is_nan() {
            Standing::Wrong("FAS:bwd.output.written")
        } else {
            Standing::Wrong(match self.quantity {
                Quantity::BiasGradient => "FAS:bwd.bias.gradient",
                Quantity::SinkGradient => "FAS:bwd.sink.gradient",
                _ => "FAS:bwd.probability.mask",
            })
        };
        self.compared(Want::Zero, standing, None)
    }

    fn compare_with_number(&self, exact: &Exact, bound: Bound) -> Compared {
        let want = Want::Number(best_guess(exact));
        let Bound::Within(bound) = bound else {
            return self.compared(want, Standing::Unbounded, None);
        };
        if self.got.is_nan() {
            return self.compared(want, Standing::Wrong("FAS:bwd.output.written"), None);
        }
        let outside = Standing::Wrong(bound_clause(self.quantity));
        if self.got.is_infinite() {
            return self.compared(want, outside, None);
        }
        let error = exact.enclosure.error_of(self.got).0;
        let standing = if error > bound { outside } else { Standing::Right };
        self.compared(want, standing, Some((error, bound)))
    }

    fn compared(&self, want: Want, standing: Standing, measure: Option<(f64, f64)>) -> Compared {
        let Self { quantity, location, got } = *self;
        let ratio = match (standing, measure) {
            (_, Some((error, bound))) => ratio(error, bound),
            (Standing::Wrong(_), None) => f64::INFINITY,
            (Standing::Unspecified, None) => f64::NAN,
            (_, None) => 0.0,
        };
        let (error, bound) = measure.unzip();
        Compared {
            quantity,
            element: Element { location, got, want, error, bound, ratio },
            standing,
            strict: None,
        }
    }
}
