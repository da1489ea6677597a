//! Bounds that hold with high probability, and the mean of signed errors: asked for, never implied
//! (`FAS:bound.fwd.statistical`, `FAS:bound.fwd.mean-error`).
//!
//! The null hypothesis is that the kernel keeps its declared profile and that its roundings to nearest
//! are independent, each with mean zero given those before it. Under it an element is rejected with a
//! probability below `10^-9`, and so is the mean of a case's output or LSE. The variances are not
//! estimated: the 2-norms behind both tests are upper bounds from the declared formats and the exact
//! data ([`flashproof_spec::bound::statistical`]).
//!
//! So it applies only where roundings are as good as independent: to inputs that are drawn
//! independently, without equal keys, and to profiles that round to nearest. Every other case is
//! counted, with the reason.

mod applicability;
mod sample;

use flashproof_oracle::error::OracleError;
use flashproof_oracle::forward::{Options, Oracle};
use rayon::prelude::*;
use serde::Serialize;

pub use applicability::{NotApplicable, not_applicable};
pub use sample::{MeanTest, Sample};

use self::sample::RowErrors;
use crate::report::number;
use crate::verdict::{Answer, Quantity, Violation};

/// What the statistical tests made of a case.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Statistics {
    /// Nothing was tested.
    NotApplicable(NotApplicable),
    /// Output and LSE were.
    Tested(Box<Tested>),
}

/// The tests of one case.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Tested {
    /// The attention output.
    pub output: Sample,
    /// The LSE; absent where the kernel offers none in nats.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lse: Option<Sample>,
}

impl Tested {
    /// What was rejected.
    #[must_use]
    pub fn violations(&self) -> Vec<Violation> {
        let samples = [(Quantity::Output, Some(&self.output)), (Quantity::Lse, self.lse.as_ref())];
        let of = |(quantity, sample): (Quantity, Option<&Sample>)| {
            sample.map_or_else(Vec::new, |sample| sample.violations(quantity))
        };
        samples.into_iter().flat_map(of).collect()
    }
}

/// Tests an answer to inputs that are drawn independently; [`not_applicable`] tells whether they are.
///
/// # Errors
/// [`OracleError`] when problem and inputs do not belong together.
pub fn test(answer: &Answer<'_>) -> Result<Tested, OracleError> {
    let options = Options::new(answer.profile.lse_format);
    let oracle = Oracle::new(answer.problem, answer.inputs, options)?;
    // In order, so that sums of errors do not depend on the threads.
    let rows = answer
        .every_row()
        .into_par_iter()
        .map(|row| Ok(RowErrors::of(answer, &oracle.row(row)?)))
        .collect::<Result<Vec<_>, OracleError>>()?;
    let mut tested = Tested { output: Sample::default(), lse: None };
    for errors in rows.into_iter().flatten() {
        tested.output.add(&errors.output);
        if let Some(errors) = errors.lse {
            tested.lse.get_or_insert_default().add(&errors);
        }
    }
    Ok(tested)
}

/// The tests over all cases of a run.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Summary {
    /// Cases that were tested.
    pub cases: usize,
    /// Cases that were not, by the reason.
    pub not_applicable: Vec<Untested>,
    /// Elements that were compared with a bound of high probability.
    pub elements: usize,
    /// Those of them that were rejected.
    pub rejected: usize,
    /// The largest error over bound of an element.
    #[serde(serialize_with = "number::serialize")]
    pub worst_ratio: f64,
    /// Means that were compared with their bound.
    pub means: usize,
    /// Those of them that were rejected.
    pub means_rejected: usize,
    /// The largest mean error over its bound.
    #[serde(serialize_with = "number::serialize")]
    pub worst_mean_ratio: f64,
}

/// Why cases were not tested.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Untested {
    /// The reason.
    pub reason: NotApplicable,
    /// How many cases.
    pub cases: usize,
}

impl Summary {
    /// Adds a case.
    pub fn add(&mut self, statistics: &Statistics) {
        let tested = match statistics {
            Statistics::Tested(tested) => tested,
            Statistics::NotApplicable(reason) => return self.leave_out(*reason),
        };
        self.cases += 1;
        for sample in [Some(&tested.output), tested.lse.as_ref()].into_iter().flatten() {
            self.elements += sample.elements;
            self.rejected += sample.rejected;
            let worst = sample.worst.as_ref().map_or(0.0, |worst| worst.ratio);
            self.worst_ratio = self.worst_ratio.max(worst);
            if let Some(mean) = sample.mean() {
                self.means += 1;
                self.means_rejected += usize::from(mean.is_rejected());
                self.worst_mean_ratio = self.worst_mean_ratio.max(mean.ratio);
            }
        }
    }

    fn leave_out(&mut self, reason: NotApplicable) {
        match self.not_applicable.binary_search_by_key(&reason, |it| it.reason) {
            Ok(at) => self.not_applicable[at].cases += 1,
            Err(at) => self.not_applicable.insert(at, Untested { reason, cases: 1 }),
        }
    }
}
