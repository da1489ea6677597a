//! Gradients through softcap, bias, sink and dropout.
//!
//! With `z_i` what dropout multiplies the weight of key `i` by, `c_i` the derivative of its score by
//! the scaled product (the softcap's slope), and `t` the logit of the sink:
//!
//! ```text
//! dS_i = P_i (z_i dP_i - D + g)      the gradient of a bias that is added to the score
//! dX_i = c_i dS_i                    in place of dS_i in dQ and dK
//! dV_i = sum_r P_ri z_ri dO_r
//! dt   = P_t (g - D)                 P_t = e^(t - L): a key whose value is 0
//! ```
//!
//! The row's own output and LSE hold dropout and sink already, so `D = sum_j dO_j o_j` stays as it
//! is.

use super::{Query, QueryOf, delta, dot, probability, score_gradient};
use crate::arithmetic::Arithmetic;

/// What lies between one key's scaled product and its part of the output.
#[derive(Clone, Debug, PartialEq)]
pub struct Factors<N> {
    /// `z_i`.
    pub dropout: N,
    /// `c_i`.
    pub slope: N,
}

/// What one query and one key that it sees bring to the gradients.
#[derive(Clone, Debug, PartialEq)]
pub struct ModifiedPair<N> {
    /// `P_i z_i`: multiplies `dO` in `dV_i` (`FAS:bwd.dropout.keep`).
    pub kept_probability: N,
    /// `dS_i`: the gradient of a bias at this place (`FAS:bwd.bias.gradient`).
    pub score_gradient: N,
    /// `dX_i = c_i dS_i`: multiplies key and query in `dQ` and `dK` (`FAS:bwd.softcap.slope`).
    pub product_gradient: N,
}

/// The pair of a query and its key number `index`, given the row's `D`; `None` where it does not see
/// the key.
///
/// # Panics
/// When the query sees the key without having a row, or when rows of values, outputs and output
/// gradients differ in length.
pub fn modified_pair<A: Arithmetic>(
    a: &A,
    query: &QueryOf<A>,
    index: usize,
    value: &[A::Number],
    factors: &Factors<A::Number>,
) -> Option<ModifiedPair<A::Number>> {
    let score = query.scores[index].as_ref()?;
    let row = query.row.as_ref().expect("a query that sees a key has a row");
    let delta = delta(a, &query.output_gradient, &row.output);
    let probability = probability(a, Some(score), &row.lse);
    let kept = a.mul(&factors.dropout, &dot(a, &query.output_gradient, value));
    let score_gradient = score_gradient(a, &probability, &kept, &delta, &query.lse_gradient);
    Some(ModifiedPair {
        kept_probability: a.mul(&probability, &factors.dropout),
        product_gradient: a.mul(&factors.slope, &score_gradient),
        score_gradient,
    })
}

/// What one row brings to the gradient of its sink's logit, `P_t (g - D)` (`FAS:bwd.sink.gradient`).
///
/// # Panics
/// When the query has no row: with a sink, every row has one.
pub fn sink_gradient<A: Arithmetic>(a: &A, query: &QueryOf<A>, logit: &A::Score) -> A::Number {
    let Query { row, output_gradient, lse_gradient, .. } = query;
    let row = row.as_ref().expect("a row with a sink");
    let delta = delta(a, output_gradient, &row.output);
    a.mul(&probability(a, Some(logit), &row.lse), &a.sub(lse_gradient, &delta))
}
