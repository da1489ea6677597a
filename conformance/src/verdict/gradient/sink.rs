//! `dSink`: one query head's sink, over every row of the head.

use flashproof_oracle::error::OracleError;
use flashproof_spec::bound::gradient::sink_gradient;
use flashproof_spec::tensor::TensorError;

use super::NO_BOUND;
use super::element::Judge;
use super::row_errors::Errors;
use crate::verdict::element::Compared;
use crate::verdict::place::{Location, Quantity};
use crate::verdict::rows::Answer;

/// The gradient of one head's sink.
pub(super) fn compare(errors: &Errors<'_>, head: usize) -> Result<Vec<Compared>, OracleError> {
    let Answer { problem, profile, .. } = errors.answer.forward;
    let gradient = errors.answer.gradients.sink.as_ref();
    let got =
        gradient.ok_or_else(|| TensorError::Missing { tensor: "sink_gradient".to_owned() })?;
    let expected = errors.backward.sink_gradient(head)?;
    let terms = || expected.contributors.iter().chain(&expected.without_keys);
    let of_rows =
        terms().map(|&row| errors.of_row(row, Some(&[]))).collect::<Result<Option<Vec<_>>, _>>()?;
    let bound = || {
        let Some(of_rows) = &of_rows else { return NO_BOUND };
        let of_rows: Vec<_> = of_rows.iter().map(|it| &it.errors).collect();
        sink_gradient(problem, profile, &of_rows, expected.sink.magnitude_hi())
    };
    let judge = Judge {
        quantity: Quantity::SinkGradient,
        location: Location::of_sink(head),
        got: got.values()[[head]],
    };
    Ok(vec![judge.compare(&expected.sink, terms().next().is_none(), bound)])
}
