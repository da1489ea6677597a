//! What the bounds on gradients need of a query row, rounded outward to `f64`.

use flashproof_spec::bound::gradient::GradientCondition;
use flashproof_spec::tensor::Outputs;
use ndarray::Axis;
use rug::Integer;
use rug::float::Round;

use super::group::Group;
use super::row::Summary;
use super::weight::Exponential;
use crate::condition::{scaled_mass_hi, score_hi};
use crate::dot::{Query, mass_hi};
use crate::enclosure::Enclosure;
use crate::error::OracleError;
use crate::head::contiguous;
use crate::row::RowIndex;
use crate::scale::dyadic;

/// How far the LSE that a kernel works with lies from the exact one.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum LseKnowledge {
    /// The kernel gives it, in natural logarithm, and its error is measured.
    Measured,
    /// The kernel keeps it to itself, and this bounds its error: the row's forward bound, passed on as
    /// it is.
    Within(f64),
}

/// A query row whose condition is wanted.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ConditionRequest<'k> {
    /// Which row.
    pub index: RowIndex,
    /// What is known of the kernel's LSE.
    pub lse: LseKnowledge,
    /// The keys, in any order, that the condition is to cover, where the row sees them; `None` for all.
    /// The bound on `dQ` needs all, those on `dK` and `dV` of some keys only these.
    pub keys: Option<&'k [usize]>,
}

/// The condition of one query row.
#[derive(Clone, Debug, PartialEq)]
pub struct ConditionedRow {
    /// Which row.
    pub index: RowIndex,
    /// The keys, ascending, that the vectors of `condition` run over.
    pub keys: Vec<usize>,
    /// What the bounds depend on.
    pub condition: GradientCondition,
}

impl ConditionedRow {
    /// Where a key stands in the vectors of the condition; `None` when they do not cover it.
    #[must_use]
    pub fn position(&self, key: usize) -> Option<usize> {
        self.keys.binary_search(&key).ok()
    }
}

/// A row with real numbers, and what a kernel made of it.
#[derive(Debug)]
pub(crate) struct Measured<'r, 'a> {
    pub(crate) group: &'r Group<'a>,
    pub(crate) member: usize,
    pub(crate) outputs: &'r Outputs,
    pub(crate) lse: LseKnowledge,
    pub(crate) precision: u32,
}

/// Upper bounds on the kernel's `D = <dO, O^>` and on its distance from the exact one.
struct Delta {
    magnitude: f64,
    mass: f64,
    shift: f64,
}

impl Measured<'_, '_> {
    /// The condition over these of the visible keys.
    pub(crate) fn condition(
        &self,
        keys: &[usize],
        visible: &[usize],
    ) -> Result<GradientCondition, OracleError> {
        let Self { group, member, precision, .. } = *self;
        let exponential = Exponential::new(group.scale, precision);
        let (summary, pairs) = if keys.len() == visible.len() {
            group.pairs(member, visible, &exponential)
        } else {
            let summary = group.summary(member, &exponential);
            let pair = |&key: &usize| group.pair(member, key, &summary, &exponential);
            let pairs = keys.iter().map(pair).collect();
            (summary, pairs)
        };
        let lse = self.lse(&summary);
        let delta = self.delta(&summary);
        let scale_hi = group.scale.magnitude_hi(f64::MANTISSA_DIGITS);
        let query = contiguous(&group.queries.entries.row(member)).into_owned();
        let cotangent = contiguous(&group.cotangents.entries.row(member)).into_owned();
        let mut condition = GradientCondition {
            score_magnitude_hi: Vec::with_capacity(keys.len()),
            dot_mass_hi: Vec::with_capacity(keys.len()),
            probability_hi: Vec::with_capacity(keys.len()),
            lse_magnitude_hi: lse.magnitude_hi(),
            dp_magnitude_hi: Vec::with_capacity(keys.len()),
            dp_mass_hi: Vec::with_capacity(keys.len()),
            centred_magnitude_hi: Vec::with_capacity(keys.len()),
            lse_gradient_magnitude_hi: group.lse_gradient(member).abs(),
            delta_magnitude_hi: delta.magnitude,
            delta_mass_hi: delta.mass,
            delta_shift_hi: delta.shift,
            lse_shift_hi: self.lse_shift_hi(&lse)?,
        };
        for (&key, pair) in keys.iter().zip(pairs) {
            let dot_mass_hi = mass_hi(&query, &contiguous(&group.head.keys.entries.row(key)));
            let dp_mass_hi = mass_hi(&cotangent, &contiguous(&group.head.values.entries.row(key)));
            condition.score_magnitude_hi.push(score_hi(&scale_hi, &pair.dot, group.dot_exponent()));
            condition.dot_mass_hi.push(scaled_mass_hi(&scale_hi, dot_mass_hi));
            condition.probability_hi.push(pair.probability.magnitude_hi());
            condition.dp_magnitude_hi.push(magnitude_hi(&pair.dp, group.dp_exponent()));
            condition.dp_mass_hi.push(dp_mass_hi);
            condition.centred_magnitude_hi.push(pair.centred.magnitude_hi());
        }
        Ok(condition)
    }

    /// The exact LSE, `m + ln l`.
    fn lse(&self, summary: &Summary) -> Enclosure {
        let Self { group, precision, .. } = *self;
        let largest = Enclosure::point(dyadic(&summary.largest, group.dot_exponent()));
        let max = group.scale.enclose(precision).mul(&largest, precision);
        max.add(&summary.normalizer.ln(precision), precision)
    }

    fn lse_shift_hi(&self, lse: &Enclosure) -> Result<f64, OracleError> {
        match self.lse {
            LseKnowledge::Within(bound) => Ok(bound),
            LseKnowledge::Measured => {
                let RowIndex { batch, head, query } = self.group.index(self.member);
                let computed = self.outputs.lse.as_ref().ok_or(OracleError::NoLse)?;
                Ok(lse.error_of(computed.view3()[[batch, head, query]]).1)
            }
        }
    }

    /// Nothing is known of the kernel's `D` where its output is not finite.
    fn delta(&self, summary: &Summary) -> Delta {
        let Self { group, member, precision, .. } = *self;
        let RowIndex { batch, head, query } = group.index(member);
        let output = self.outputs.output.view4().index_axis_move(Axis(0), batch);
        let output = output.index_axis_move(Axis(0), head).index_axis_move(Axis(0), query);
        let computed = Query::new(&output);
        if !computed.is_finite() {
            let none = f64::INFINITY;
            return Delta { magnitude: none, mass: none, shift: none };
        }
        let grid = &group.cotangents.grid;
        let product = computed.dot(grid, member);
        let reference = Enclosure::point(dyadic(&summary.reference, group.dp_exponent()));
        let exact = reference.add(&summary.mean, precision);
        let shift = Enclosure::point(dyadic(&product, computed.exponent(grid)));
        let cotangent = group.cotangents.entries.row(member);
        Delta {
            magnitude: magnitude_hi(&product, computed.exponent(grid)),
            mass: mass_hi(&contiguous(&cotangent.view()), &contiguous(&output)),
            shift: shift.sub(&exact, precision).magnitude_hi(),
        }
    }
}

/// `|integer| * 2^exponent`, rounded up.
fn magnitude_hi(integer: &Integer, exponent: i32) -> f64 {
    dyadic(integer, exponent).abs().to_f64_round(Round::Up)
}
