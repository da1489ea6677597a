//! `dBias`: one row of the bias, over every row of the scores that shares it.

use std::collections::BTreeMap;

use flashproof_oracle::backward::{BiasGradientRow, BiasRowIndex};
use flashproof_oracle::error::OracleError;
use flashproof_oracle::row::RowIndex;
use flashproof_spec::bound::gradient::{Contribution, bias_gradient};
use flashproof_spec::tensor::TensorError;

use super::NO_BOUND;
use super::element::Judge;
use super::row_errors::{Errors, RowErrors};
use crate::verdict::element::Compared;
use crate::verdict::place::{Location, Quantity};
use crate::verdict::rows::Answer;

/// Every element of one row of `dBias`.
pub(super) fn compare(
    errors: &Errors<'_>,
    index: BiasRowIndex,
) -> Result<Vec<Compared>, OracleError> {
    let Answer { problem, profile, .. } = errors.answer.forward;
    let gradient = errors.answer.gradients.bias.as_ref();
    let got =
        gradient.ok_or_else(|| TensorError::Missing { tensor: "bias_gradient".to_owned() })?;
    let got = got.view4();
    let row = errors.backward.bias_gradient_row(index)?;
    let sums = Sums::new(errors, &row)?;
    let compare = |(key, expected)| {
        let judge = Judge {
            quantity: Quantity::BiasGradient,
            location: Location::of_bias(index, key),
            got: got[[index.batch, index.head, index.query, key]],
        };
        let bound = || {
            let terms = sums.terms(key);
            let magnitude = row.bias[key].magnitude_hi();
            terms.map_or(NO_BOUND, |terms| bias_gradient(problem, profile, &terms, magnitude))
        };
        judge.compare(expected, sums.without_terms(key), bound)
    };
    Ok(row.bias.iter().enumerate().map(compare).collect())
}

/// The rows that the entries of one row of the bias are sums over.
struct Sums {
    /// The keys that each row sees, ascending.
    visible: BTreeMap<RowIndex, Vec<usize>>,
    /// The errors of those rows that have a bound.
    errors: BTreeMap<RowIndex, RowErrors>,
    /// Whether an entry sums over all keys.
    over_keys: bool,
}

impl Sums {
    fn new(errors: &Errors<'_>, row: &BiasGradientRow) -> Result<Self, OracleError> {
        let Answer { problem, inputs, .. } = errors.answer.forward;
        let over_keys = problem.bias.is_some_and(|bias| bias.shape[3] == 1);
        let mut sums = Self { visible: BTreeMap::new(), errors: BTreeMap::new(), over_keys };
        for &row in &row.contributors {
            let RowIndex { batch, head, query } = row;
            sums.visible.insert(row, inputs.visible_keys(problem, batch, head, query));
            if let Some(of_row) = errors.of_row(row, None)? {
                sums.errors.insert(row, of_row);
            }
        }
        Ok(sums)
    }

    fn without_terms(&self, key: usize) -> bool {
        !self.visible.values().any(|keys| self.over_keys || keys.binary_search(&key).is_ok())
    }

    /// The terms of an entry; `None` where some row has no bound.
    fn terms(&self, key: usize) -> Option<Vec<Contribution<'_>>> {
        let mut terms = Vec::new();
        for (row, visible) in &self.visible {
            if self.over_keys {
                let RowErrors { keys, errors, .. } = self.errors.get(row)?;
                let term = |key| Contribution { row: errors, key, factor: 1.0 };
                terms.extend((0..keys.len()).map(term));
            } else if visible.binary_search(&key).is_ok() {
                let RowErrors { keys, errors, .. } = self.errors.get(row)?;
                let key = keys.binary_search(&key).ok()?;
                terms.push(Contribution { row: errors, key, factor: 1.0 });
            }
        }
        Some(terms)
    }
}
