//! What the bounds on gradients need of a query row, rounded outward to `f64`.

use flashproof_spec::bound::gradient::{GradientCondition, SinkGradientCondition};
use flashproof_spec::bound::strict::Centre;
use flashproof_spec::score::Addends;
use flashproof_spec::tensor::Outputs;
use ndarray::Axis;
use rug::float::Round;
use rug::{Float, Integer};

use super::group::Group;
use super::row::{Pair, Summary};
use super::score::{ScoreRef, Weigher};
use super::weight::Exponential;
use crate::condition::{scaled_mass_hi, score_hi};
use crate::dot::{Query, mass_hi};
use crate::enclosure::Enclosure;
use crate::error::OracleError;
use crate::exact;
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
    /// What the row is with the kernel's own LSE and output.
    pub centre: Centre,
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

/// The kernel's `D = <dO, O^>`.
struct Delta {
    /// Upper bounds on it.
    magnitude: f64,
    mass: f64,
    /// Its distance from the exact one.
    shift: Enclosure,
}

/// What the entries of a condition are computed from, key by key.
struct KeyBounds<'m, 'a> {
    group: &'m Group<'a>,
    member: usize,
    precision: u32,
    /// `|scale|`.
    scale_hi: Float,
    query: Vec<f64>,
    cotangent: Vec<f64>,
    weigher: Weigher<'m>,
    /// A lower bound on `ln l`.
    log_normalizer_lo: f64,
    /// `e^(L - L^)`, with the kernel's `L^`.
    of_lse: Enclosure,
    /// `D^ - D`, with the kernel's `D^`.
    of_delta: Enclosure,
}

impl Measured<'_, '_> {
    /// The condition over these of the visible keys, at least one.
    pub(crate) fn condition(
        &self,
        keys: &[usize],
        visible: &[usize],
    ) -> Result<(GradientCondition, Centre), OracleError> {
        let Self { group, member, precision, .. } = *self;
        let exponential = Exponential::new(group.scale, precision);
        let (summary, pairs) = group.pairs_with(member, keys, visible, &exponential);
        let reference = Enclosure::point(dyadic(&summary.reference, group.kept_exponent()));
        let delta = self.delta(&reference.add(&summary.mean, precision));
        let lse = self.lse(&summary);
        let mut condition = self.of_row(&lse, &delta)?;
        condition.sink = self.sink(&summary);
        let mut centre = Centre::default();
        let of_lse = self.lse_shift(&lse)?.neg().exp(precision);
        let bounds = KeyBounds::new(self, &summary, &exponential, (of_lse, delta.shift));
        for (&key, pair) in keys.iter().zip(pairs) {
            bounds.push(&mut condition, key, &pair);
            bounds.push_centre(&mut centre, &pair);
        }
        Ok((condition, centre))
    }

    /// The condition of a row that sees no key, where its sink gives all there is: `p = 1`, `L` is its
    /// logit and `D = 0`. `None` where it has no sink, or one that gets no real number.
    pub(crate) fn condition_of_sink(&self) -> Result<Option<GradientCondition>, OracleError> {
        let Some(logit) = self.group.logit(self.member) else { return Ok(None) };
        if !self.group.passes_on(self.member) {
            return Ok(None);
        }
        let lse = Enclosure::point(exact::number(logit));
        let delta = if self.group.cotangents.grid.is_finite(self.member) {
            self.delta(&Enclosure::point(exact::zero()))
        } else {
            // Whatever `dO` is, it does not matter.
            Delta { magnitude: 0.0, mass: 0.0, shift: Enclosure::point(exact::zero()) }
        };
        let mut condition = self.of_row(&lse, &delta)?;
        let centred_magnitude_hi = condition.lse_gradient_magnitude_hi;
        let sink = SinkGradientCondition { logit, probability_hi: 1.0, centred_magnitude_hi };
        condition.sink = Some(sink);
        Ok(Some(condition))
    }

    /// The condition without any keys.
    fn of_row(&self, lse: &Enclosure, delta: &Delta) -> Result<GradientCondition, OracleError> {
        Ok(GradientCondition {
            score_magnitude_hi: vec![],
            product_magnitude_hi: vec![],
            addend_magnitude_hi: vec![],
            cap_argument_lo: vec![],
            cap_slope_hi: vec![],
            dropout: vec![],
            dot_mass_hi: vec![],
            probability_hi: vec![],
            log_probability_hi: vec![],
            lse_magnitude_hi: lse.magnitude_hi(),
            dp_magnitude_hi: vec![],
            dp_mass_hi: vec![],
            centred_magnitude_hi: vec![],
            lse_gradient_magnitude_hi: self.group.lse_gradient(self.member).abs(),
            delta_magnitude_hi: delta.magnitude,
            delta_mass_hi: delta.mass,
            delta_shift_hi: delta.shift.magnitude_hi(),
            lse_shift_hi: self.lse_shift_hi(lse)?,
            sink: None,
        })
    }

    fn sink(&self, summary: &Summary) -> Option<SinkGradientCondition> {
        let sink = summary.sink.as_ref()?;
        Some(SinkGradientCondition {
            logit: self.group.logit(self.member)?,
            probability_hi: sink.probability.magnitude_hi(),
            centred_magnitude_hi: sink.centred.magnitude_hi(),
        })
    }

    /// The exact LSE, `m + ln l`.
    fn lse(&self, summary: &Summary) -> Enclosure {
        let Self { group, precision, .. } = *self;
        let max = match summary.largest.as_ref() {
            ScoreRef::Dot(dot) => {
                let dot = Enclosure::point(dyadic(dot, group.dot_exponent()));
                group.scale.enclose(precision).mul(&dot, precision)
            }
            ScoreRef::Parts(parts) => group.rule.enclose(parts, precision),
        };
        max.add(&summary.normalizer.ln(precision), precision)
    }

    /// `L^ - L`.
    fn lse_shift(&self, lse: &Enclosure) -> Result<Enclosure, OracleError> {
        let number = |x: f64| Float::with_val(f64::MANTISSA_DIGITS, x);
        match self.lse {
            LseKnowledge::Within(bound) => Ok(Enclosure::new(number(-bound), number(bound))),
            LseKnowledge::Measured => {
                let computed = self.computed_lse()?;
                if !computed.is_finite() {
                    return Ok(Enclosure::whole_line());
                }
                Ok(Enclosure::point(number(computed)).sub(lse, self.precision))
            }
        }
    }

    /// The LSE that the kernel gives.
    fn computed_lse(&self) -> Result<f64, OracleError> {
        let RowIndex { batch, head, query } = self.group.index(self.member);
        let computed = self.outputs.lse.as_ref().ok_or(OracleError::NoLse)?;
        Ok(computed.view3()[[batch, head, query]])
    }

    fn lse_shift_hi(&self, lse: &Enclosure) -> Result<f64, OracleError> {
        match self.lse {
            LseKnowledge::Within(bound) => Ok(bound),
            LseKnowledge::Measured => Ok(lse.error_of(self.computed_lse()?).1),
        }
    }

    /// The kernel's `D` against the exact one. Nothing is known of it where its output is not finite.
    fn delta(&self, exact: &Enclosure) -> Delta {
        let Self { group, member, precision, .. } = *self;
        let RowIndex { batch, head, query } = group.index(member);
        let output = self.outputs.output.view4().index_axis_move(Axis(0), batch);
        let output = output.index_axis_move(Axis(0), head).index_axis_move(Axis(0), query);
        let computed = Query::new(&output);
        if !computed.is_finite() {
            let none = f64::INFINITY;
            return Delta { magnitude: none, mass: none, shift: Enclosure::whole_line() };
        }
        let grid = &group.cotangents.grid;
        let product = computed.dot(grid, member);
        let shift = Enclosure::point(dyadic(&product, computed.exponent(grid)));
        let cotangent = group.cotangents.entries.row(member);
        Delta {
            magnitude: magnitude_hi(&product, computed.exponent(grid)),
            mass: mass_hi(&contiguous(&cotangent.view()), &contiguous(&output)),
            shift: shift.sub(exact, precision),
        }
    }
}

impl<'m, 'a> KeyBounds<'m, 'a> {
    fn new(
        of: &Measured<'m, 'a>,
        summary: &'m Summary,
        exponential: &'m Exponential,
        (of_lse, of_delta): (Enclosure, Enclosure),
    ) -> Self {
        let Measured { group, member, precision, .. } = *of;
        Self {
            group,
            member,
            precision,
            scale_hi: group.scale.magnitude_hi(f64::MANTISSA_DIGITS),
            query: group.queries.entries.row(member).to_vec(),
            cotangent: group.cotangents.entries.row(member).to_vec(),
            weigher: Weigher::new(group, summary.largest.as_ref(), exponential),
            log_normalizer_lo: summary.normalizer.ln(precision).to_f64().0,
            of_lse,
            of_delta,
        }
    }

    /// Adds what the bounds need of one more key.
    fn push(&self, condition: &mut GradientCondition, key: usize, pair: &Pair) {
        let Self { group, member, scale_hi, query, cotangent, .. } = self;
        let member = *member;
        let dot_mass_hi = mass_hi(query, &contiguous(&group.head.keys.entries.row(key)));
        let dp_mass_hi = mass_hi(cotangent, &contiguous(&group.head.values.entries.row(key)));
        let dp = match group.problem.dropout {
            None => magnitude_hi(&pair.kept.product, group.kept_exponent()),
            Some(_) => magnitude_hi(&group.dp(member, key), group.dp_exponent()),
        };
        condition.dot_mass_hi.push(scaled_mass_hi(scale_hi, dot_mass_hi));
        condition.probability_hi.push(pair.probability.magnitude_hi());
        condition.dp_magnitude_hi.push(dp);
        condition.dp_mass_hi.push(dp_mass_hi);
        condition.centred_magnitude_hi.push(pair.centred.magnitude_hi());
        condition.cap_slope_hi.push(pair.slope.as_ref().map_or(1.0, Enclosure::magnitude_hi));
        condition.dropout.push(pair.kept.dropout);
        self.push_score(condition, key, pair.score.as_ref());
    }

    /// Adds what one more key is with the kernel's own LSE and `D`.
    fn push_centre(&self, centre: &mut Centre, pair: &Pair) {
        let Self { precision, of_lse, of_delta, .. } = self;
        let probability = pair.probability.mul(of_lse, *precision);
        let centred = pair.centred.sub(of_delta, *precision);
        let score = probability.mul(&centred, *precision);
        let argument = match &pair.slope {
            None => score,
            Some(slope) => slope.mul(&score, *precision),
        };
        centre.probability.push(probability.to_f64());
        centre.argument.push(argument.to_f64());
        centre.centred_magnitude_hi.push(centred.magnitude_hi());
    }

    fn push_score(&self, condition: &mut GradientCondition, key: usize, score: ScoreRef<'_>) {
        let Self { group, member, precision, .. } = *self;
        let product_hi = |dot: &Integer| score_hi(&self.scale_hi, dot, group.dot_exponent());
        let (product, addend, magnitude, cap_argument) = match score {
            ScoreRef::Dot(dot) => {
                let product = product_hi(dot);
                (product, 0.0, product, 0.0)
            }
            ScoreRef::Parts(parts) => (
                product_hi(&group.dot(member, key)),
                magnitudes_hi(group.addends(member, key)),
                group.rule.enclose(parts, precision).magnitude_hi(),
                group.rule.cap_argument_lo(parts),
            ),
        };
        condition.score_magnitude_hi.push(magnitude);
        condition.product_magnitude_hi.push(product);
        condition.addend_magnitude_hi.push(addend);
        condition.cap_argument_lo.push(cap_argument);
        condition.log_probability_hi.push(self.log_probability_hi(score));
    }

    /// An upper bound on `ln p = s - m - ln l`, at most 0.
    fn log_probability_hi(&self, score: ScoreRef<'_>) -> f64 {
        let (gap_lo, _) = self.weigher.gap(score).to_f64();
        0.0 - (gap_lo + self.log_normalizer_lo).next_down().max(0.0)
    }
}

/// The magnitudes of what is added to a score, added and rounded up.
fn magnitudes_hi(Addends { bias, alibi }: Addends) -> f64 {
    exact::sum(&exact::number(bias.abs()), &exact::number(alibi.abs())).to_f64_round(Round::Up)
}

/// `|integer| * 2^exponent`, rounded up.
fn magnitude_hi(integer: &Integer, exponent: i32) -> f64 {
    dyadic(integer, exponent).abs().to_f64_round(Round::Up)
}
