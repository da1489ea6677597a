//! A second evaluation of attention, in double-word arithmetic, that shares nothing with the first
//! one but its inputs.
//!
//! Its enclosures and those of [`crate::forward`] contain the same exact numbers, so they must meet;
//! tests hold them to that. It has its own dot products, exponential and logarithm, and floats where
//! the first has integers.
//!
//! Scores, weights and the normalizer carry their error bounds with them, operation by operation
//! (`ball`); sums over many terms are bounded at once (`sum`).

mod ball;
mod functions;
mod sum;
mod word;

use flashproof_spec::problem::{Problem, Scale};
use flashproof_spec::tensor::{Inputs, Tensor};
use ndarray::{ArrayView1, ArrayView2, Axis};

use crate::error::OracleError;
use crate::row::{RowEnclosures, RowIndex};
use ball::{Ball, power_of_two};
use functions::{VANISHING_GAP, VANISHING_WEIGHT, exp, inverse_sqrt, ln};
use sum::{LONGEST_SUM, Sum, dot};

/// Least and greatest magnitude of an entry: far from under- and overflow in a product of three.
const ENTRIES: std::ops::RangeInclusive<f64> = power_of_two(-400)..=power_of_two(200);

/// The numbers of one query row, enclosed; `None` for a row that has none, or that holds entries or
/// scores beyond the reach of this evaluation (magnitudes outside `2^-400 ..= 2^200`, a million keys).
///
/// # Errors
/// As [`crate::forward::Oracle`]: a problem that can not be posed, inputs that are not its own,
/// a row that it lacks.
pub fn enclose_row(
    problem: &Problem,
    inputs: &Inputs,
    index: RowIndex,
) -> Result<Option<RowEnclosures>, OracleError> {
    problem.validate()?;
    inputs.check(problem)?;
    index.check(problem)?;
    let RowIndex { batch, head, query } = index;
    let key_head = problem.key_head_of(head);
    let of = |tensor, head| {
        Tensor::view4(tensor).index_axis_move(Axis(0), batch).index_axis_move(Axis(0), head)
    };
    let row = Row {
        query: of(&inputs.query, head).index_axis_move(Axis(0), query),
        keys: of(&inputs.key, key_head),
        values: of(&inputs.value, key_head),
        visible: problem.visible_keys(batch, head, query),
    };
    Ok(if row.is_within_reach(problem.scale) { row.enclose(problem.scale) } else { None })
}

/// What one query row reads.
struct Row<'a> {
    query: ArrayView1<'a, f64>,
    keys: ArrayView2<'a, f64>,
    values: ArrayView2<'a, f64>,
    visible: Vec<usize>,
}

impl Row<'_> {
    fn is_within_reach(&self, scale: Scale) -> bool {
        let reachable = |x: &f64| *x == 0.0 || ENTRIES.contains(&x.abs());
        let scale = match scale {
            Scale::InverseSqrtHeadDim => true,
            Scale::Value(scale) => reachable(&scale),
        };
        let entries =
            |&key: &usize| self.keys.row(key).iter().chain(self.values.row(key)).all(reachable);
        let lengths = [self.visible.len(), self.query.len()];
        scale
            && lengths.iter().all(|length| (1..=LONGEST_SUM).contains(length))
            && self.query.iter().all(reachable)
            && self.visible.iter().all(entries)
    }

    /// `o_j = sum_i w_i v_ij / l` and `L = m + ln l`, with weights taken against any score `m` near the
    /// largest one.
    fn enclose(&self, scale: Scale) -> Option<RowEnclosures> {
        let scale = match scale {
            Scale::InverseSqrtHeadDim => inverse_sqrt(self.query.len() as f64),
            Scale::Value(value) => Ball::exact(value),
        };
        let scores: Vec<Ball> =
            self.visible.iter().map(|&key| scale * dot(&self.query, &self.keys.row(key))).collect();
        let highest = |a: &Ball, b: &Ball| a.value.hi.total_cmp(&b.value.hi);
        let reference = scores.iter().copied().max_by(highest)?;
        let weights: Option<Vec<Ball>> =
            scores.iter().map(|&score| weight(score, reference)).collect();
        let weights = weights?;
        let normalizer = weights.iter().fold(Ball::exact(0.0), |sum, &weight| sum + weight);
        let lse = (reference + ln(normalizer)?).enclosure();
        let outputs = self
            .numerators(&weights)
            .into_iter()
            .map(|numerator| (numerator / normalizer).enclosure())
            .collect();
        Some(RowEnclosures { outputs, lse })
    }

    /// The weighted sum of each column of the values.
    fn numerators(&self, weights: &[Ball]) -> Vec<Ball> {
        let mut sums = vec![Sum::ZERO; self.values.ncols()];
        for (&key, &weight) in self.visible.iter().zip(weights) {
            for (sum, &value) in sums.iter_mut().zip(self.values.row(key)) {
                if value != 0.0 {
                    sum.add_product(weight, value);
                }
            }
        }
        sums.into_iter().map(|sum| sum.ball(weights.len())).collect()
    }
}

/// `e^(score - reference)`; `None` for scores so large that their errors say nothing of it.
fn weight(score: Ball, reference: Ball) -> Option<Ball> {
    let exponent = score - reference;
    let gap_lo = (-exponent.value.hi).next_down() - exponent.radius;
    if gap_lo.next_down() > VANISHING_GAP {
        Some(Ball::exact(0.0).widened(VANISHING_WEIGHT))
    } else {
        exp(exponent)
    }
}
