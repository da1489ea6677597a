//! Inputs whose exact answer is a formula, at any length.
//!
//! The answer is known from the way the inputs are made, with no oracle, and enclosed in `f64`; the
//! bound's conditions come from the oracle. So kernels are checked on sequences of which an oracle
//! would compute only rows, by a second way that shares nothing with it.

mod forms;

use std::fmt;

use flashproof_oracle::error::OracleError;
use flashproof_oracle::forward::{Options, Oracle};
use flashproof_oracle::row::RowIndex;
use flashproof_spec::bound::Bound;
use flashproof_spec::problem::Problem;
use flashproof_spec::tensor::Inputs;
use rayon::prelude::*;
use serde::{Deserialize, Serialize};

pub use forms::{Interval, posed};

use crate::verdict::{
    Answer, Compared, Convention, Element, Location, Quantity, Standing, Tally, Want,
};

/// A pattern of inputs with a known answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ClosedForm {
    /// All scores equal: the output is the mean of the values, the LSE the logarithm of the number of
    /// keys.
    Uniform,
    /// One score far above the others, in each row another's: the output is that value.
    OneHot,
    /// Scores falling by equal steps: the output is a quotient of geometric sums.
    Geometric,
}

impl ClosedForm {
    /// Every pattern.
    pub const ALL: [Self; 3] = [Self::Uniform, Self::OneHot, Self::Geometric];

    /// The name, as in a case's name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Uniform => "closed-uniform",
            Self::OneHot => "closed-one-hot",
            Self::Geometric => "closed-geometric",
        }
    }

    /// The clause that states it.
    #[must_use]
    pub const fn clause(self) -> &'static str {
        match self {
            Self::Uniform => "FAS:closed.uniform",
            Self::OneHot => "FAS:closed.one-hot",
            Self::Geometric => "FAS:closed.geometric",
        }
    }

    /// What it is for, in a sentence.
    #[must_use]
    pub const fn purpose(self) -> &'static str {
        match self {
            Self::Uniform => {
                "Equal scores: every key counts alike, so one dropped or doubled shows in mean and LSE."
            }
            Self::OneHot => {
                "One score above all: reads keys at the ends and at the edges of tiles, by number."
            }
            Self::Geometric => {
                "Scores falling by equal steps: weights over the whole range of the format, summed by \
                    formula."
            }
        }
    }
}

impl fmt::Display for ClosedForm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Compares these rows of an answer with the formula. `visit` is shown each row's elements, from any
/// thread and in no particular order.
///
/// # Errors
/// [`OracleError`] when problem, inputs and rows do not belong together.
pub fn judge_closed(
    form: ClosedForm,
    answer: &Answer<'_>,
    rows: &[RowIndex],
    visit: impl Fn(&[Compared]) + Sync,
) -> Result<Tally, OracleError> {
    let options = Options::new(answer.profile.lse_format);
    let oracle = Oracle::new(answer.problem, answer.inputs, options)?;
    let judge_row = |&row: &RowIndex| {
        let bounds = answer.bounds(&oracle.row(row)?);
        let expected = forms::answer(form, answer.problem, answer.inputs, row);
        let RowIndex { batch, head, query } = row;
        let output = answer.outputs.output.view4();
        let mut compared: Vec<_> = (expected.output.iter().zip(&bounds.output).enumerate())
            .map(|(j, (&exact, &bound))| {
                let got = output[[batch, head, query, j]];
                let location = Location::of_row(row, Some(j));
                element(form, Quantity::Output, location, (got, got), exact, bound)
            })
            .collect();
        if let Some(lse) = &answer.outputs.lse {
            let written = lse.view3()[[batch, head, query]];
            let nats = Convention::of_lse(answer.choices).nats(written);
            let location = Location::of_row(row, None);
            let got = (written, nats);
            compared.push(element(form, Quantity::Lse, location, got, expected.lse, bounds.lse));
        }
        visit(&compared);
        Ok(Tally::of_row(row, &compared))
    };
    rows.par_iter().map(judge_row).try_reduce(Tally::default, |a, b| Ok(a.merged(b)))
}

/// One element: as the kernel wrote it, and in nats where that differs.
fn element(
    form: ClosedForm,
    quantity: Quantity,
    location: Location,
    (got, nats): (f64, f64),
    exact: Interval,
    bound: Bound,
) -> Compared {
    /// Units in the last place that a change of base costs.
    const UNITS: f64 = 3.0;
    let slack = if got.to_bits() == nats.to_bits() {
        0.0
    } else {
        UNITS * (nats.abs().next_up() - nats.abs())
    };
    let want = Want::Number(exact.middle());
    let error = (exact.distance(nats) - slack).max(0.0);
    let (standing, measure) = match bound {
        _ if !nats.is_finite() => (Standing::Wrong(form.clause()), None),
        Bound::Within(bound) if error <= bound => (Standing::Right, Some((error, bound))),
        Bound::Within(bound) => (Standing::Wrong(form.clause()), Some((error, bound))),
        Bound::None(_) => (Standing::Unbounded, None),
    };
    let ratio = match measure {
        Some((error, bound)) if error > 0.0 => error / bound,
        None if matches!(standing, Standing::Wrong(_)) => f64::INFINITY,
        _ => 0.0,
    };
    let (error, bound) = measure.unzip();
    let element = Element { location, got, want, error, bound, ratio };
    Compared { quantity, element, standing, strict: None }
}

/// A problem with its inputs.
#[derive(Clone, Debug, PartialEq)]
pub struct Posed {
    /// What is computed.
    pub problem: Problem,
    /// From what.
    pub inputs: Inputs,
}
