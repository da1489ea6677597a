//! A second evaluation of attention, in double-word arithmetic, that shares nothing with the first
//! one but its inputs.
//!
//! Its enclosures and those of [`crate::forward`] contain the same exact numbers, so they must meet;
//! tests hold them to that. It has its own dot products, exponential, logarithm and hyperbolic tangent,
//! and floats where the first has integers.
//!
//! Scores, weights and the normalizer carry their error bounds with them, operation by operation
//! (`ball`); sums over many terms are bounded at once (`sum`). Score modifications are applied in the order
//! of their definition, to one score after the other; nothing is regrouped or simplified.

mod ball;
mod functions;
mod sum;
mod word;

use flashproof_spec::mask::Site;
use flashproof_spec::problem::{Problem, Scale};
use flashproof_spec::score::{Addends, Softcap, SoftcapOrder};
use flashproof_spec::tensor::{Inputs, Tensor};
use ndarray::{ArrayView1, ArrayView2, Axis};

use crate::error::OracleError;
use crate::row::{RowEnclosures, RowIndex};
use ball::{Ball, power_of_two};
use functions::{VANISHING_GAP, VANISHING_WEIGHT, exp, inverse_sqrt, ln, tanh};
use sum::{LONGEST_SUM, Sum, dot};

/// Least and greatest magnitude of an entry, and of every other number of the problem: far from under- and overflow in a product of three.
const ENTRIES: std::ops::RangeInclusive<f64> = power_of_two(-400)..=power_of_two(200);

/// The numbers of one query row, enclosed; `None` for a row that has none, or that holds entries, biases or
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
    let visible = inputs.visible_keys(problem, batch, head, query);
    let site = |key| Site { batch, head, query, key };
    let row = Row {
        query: of(&inputs.query, head).index_axis_move(Axis(0), query),
        keys: of(&inputs.key, key_head),
        values: of(&inputs.value, key_head),
        scale: problem.scale,
        softcap: problem.softcap,
        addends: visible.iter().map(|&key| inputs.addends_at(problem, site(key))).collect(),
        factors: visible.iter().map(|&key| problem.dropout_at(site(key))).collect(),
        sink: inputs.sink_at(problem, head).filter(|&logit| logit != f64::NEG_INFINITY),
        visible,
    };
    Ok(if row.is_within_reach() { row.enclose() } else { None })
}

/// What one query row reads. What runs over keys runs over the visible ones.
struct Row<'a> {
    query: ArrayView1<'a, f64>,
    keys: ArrayView2<'a, f64>,
    values: ArrayView2<'a, f64>,
    visible: Vec<usize>,
    scale: Scale,
    softcap: Option<Softcap>,
    addends: Vec<Addends>,
    /// What dropout multiplies the weights by.
    factors: Vec<f64>,
    sink: Option<f64>,
}

impl Row<'_> {
    fn is_within_reach(&self) -> bool {
        let reachable = |x: &f64| *x == 0.0 || ENTRIES.contains(&x.abs());
        let factor = match self.scale {
            Scale::InverseSqrtHeadDim => 1.0,
            Scale::Value(scale) => scale,
        };
        let entries = |(&key, factor): (&usize, &f64)| {
            let values = self.values.row(key);
            self.keys.row(key).iter().chain(values).all(reachable)
                && values.iter().all(|value| reachable(&(value * factor)))
        };
        let cap = self.softcap.map(|softcap| softcap.cap);
        let addends = self.addends.iter().flat_map(|addends| [addends.bias, addends.alibi]);
        let mut others = [Some(factor), cap, self.sink].into_iter().flatten().chain(addends);
        let terms = self.visible.len() + usize::from(self.sink.is_some());
        (1..=LONGEST_SUM).contains(&terms)
            && (1..=LONGEST_SUM).contains(&self.query.len())
            && others.all(|x| reachable(&x))
            && self.query.iter().all(reachable)
            && self.visible.iter().zip(&self.factors).all(entries)
    }

    /// `o_j = sum_i w_i z_i v_ij / l` and `L = m + ln l`, with weights taken against any score `m` near the
    /// largest one, and the sink's weight in `l` alone.
    fn enclose(&self) -> Option<RowEnclosures> {
        let scores = self.scores()?;
        let sink = self.sink.map(Ball::exact);
        let highest = |a: &Ball, b: &Ball| a.value.hi.total_cmp(&b.value.hi);
        let reference = scores.iter().copied().chain(sink).max_by(highest)?;
        let weights: Option<Vec<Ball>> =
            scores.iter().map(|&score| weight(score, reference)).collect();
        let weights = weights?;
        let of_sink = match sink {
            None => Ball::exact(0.0),
            Some(logit) => weight(logit, reference)?,
        };
        let normalizer = weights.iter().fold(of_sink, |sum, &weight| sum + weight);
        let lse = (reference + ln(normalizer)?).enclosure();
        let outputs = self
            .numerators(&weights)
            .into_iter()
            .map(|numerator| (numerator / normalizer).enclosure())
            .collect();
        Some(RowEnclosures { outputs, lse })
    }

    /// The scores of the visible keys.
    fn scores(&self) -> Option<Vec<Ball>> {
        let scale = match self.scale {
            Scale::InverseSqrtHeadDim => inverse_sqrt(self.query.len() as f64),
            Scale::Value(value) => Ball::exact(value),
        };
        let score = |(&key, addends): (&usize, &Addends)| {
            let product = scale * dot(&self.query, &self.keys.row(key));
            let added = |score| score + Ball::exact(addends.bias) + Ball::exact(addends.alibi);
            match self.softcap {
                None => Some(added(product)),
                Some(Softcap { cap, order: SoftcapOrder::BeforeBias }) => {
                    capped(product, cap).map(added)
                }
                Some(Softcap { cap, order: SoftcapOrder::AfterBias }) => {
                    capped(added(product), cap)
                }
            }
        };
        self.visible.iter().zip(&self.addends).map(score).collect()
    }

    /// The weighted sum of each column of the values.
    fn numerators(&self, weights: &[Ball]) -> Vec<Ball> {
        let mut sums = vec![Sum::ZERO; self.values.ncols()];
        for ((&key, &weight), &factor) in self.visible.iter().zip(weights).zip(&self.factors) {
            for (sum, &value) in sums.iter_mut().zip(self.values.row(key)) {
                // Exact: a dropout scale has few enough bits beside a value (`Dropout::scale`).
                let kept = value * factor;
                if kept != 0.0 {
                    sum.add_product(weight, kept);
                }
            }
        }
        sums.into_iter().map(|sum| sum.ball(weights.len())).collect()
    }
}

/// `cap * tanh(score / cap)`; `None` for scores so large that their errors say nothing of it.
fn capped(score: Ball, cap: f64) -> Option<Ball> {
    let cap = Ball::exact(cap);
    Some(cap * tanh(score / cap)?)
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
