//! The scores of the simulated backward kernel, and the slope of its softcap.

use flashproof_spec::score::{Slopes, Softcap, SoftcapOrder};
use rug::Float;

use super::{BITS, Inputs, Kernel, Roundings, SlopeForm, bias_entry, big, site};

/// A computed score.
pub struct Score {
    pub value: Float,
    /// The kernel's `tanh` where it has a softcap, as the slope is taken of it.
    tanh: Option<Float>,
}

/// Twice the unit roundoff of f32: what an ulp is of a number at most.
const F32_ULP: f64 = 1.0 / (1_u32 << 23) as f64;

impl Kernel<'_> {
    pub fn score(
        &self,
        inputs: &Inputs,
        pair: (usize, usize),
        scale: &Float,
        roundings: &mut Roundings<'_>,
    ) -> Score {
        let dot = self.dot(&inputs.rows[pair.0].query, &inputs.keys[pair.1], roundings);
        let product = self.product(&dot, scale, roundings);
        let product = self.kept(product, roundings);
        let Some(softcap) = self.problem.softcap else {
            let value = self.with_addends(product, inputs, pair, roundings);
            return Score { value, tanh: None };
        };
        match softcap.order {
            SoftcapOrder::BeforeBias => {
                let (capped, tanh) = self.capped(&product, softcap, roundings);
                let value = self.with_addends(capped, inputs, pair, roundings);
                Score { value, tanh: Some(tanh) }
            }
            SoftcapOrder::AfterBias => {
                let sum = self.with_addends(product, inputs, pair, roundings);
                let (value, tanh) = self.capped(&sum, softcap, roundings);
                Score { value, tanh: Some(tanh) }
            }
        }
    }

    /// `x` in the format that scores are kept in.
    fn kept(&self, x: Float, roundings: &mut Roundings<'_>) -> Float {
        roundings.narrow(x, self.profile.score_format, self.profile)
    }

    /// `cap tanh(x / cap)`, and `tanh`.
    fn capped(&self, x: &Float, softcap: Softcap, roundings: &mut Roundings<'_>) -> (Float, Float) {
        let format = self.profile.arithmetic;
        let reciprocal = roundings.round(big(softcap.cap).recip(), format);
        let argument = self.product(x, &reciprocal, roundings);
        let argument = self.kept(argument, roundings);
        let tanh = roundings.ulps(argument.tanh(), self.profile.tanh_ulp, self.profile);
        let tanh = self.kept(tanh, roundings);
        let cap = self.in_base(big(softcap.cap), roundings);
        let capped = self.product(&tanh, &cap, roundings);
        let capped = self.kept(capped, roundings);
        if self.style.slope != SlopeForm::Capped {
            return (capped, tanh);
        }
        let reciprocal = self.in_base(cap.recip(), roundings);
        let reciprocal = roundings.round(reciprocal, format);
        let tanh = self.product(&capped, &reciprocal, roundings);
        (capped, tanh)
    }

    /// `x + b + a`.
    fn with_addends(
        &self,
        x: Float,
        inputs: &Inputs,
        pair: (usize, usize),
        roundings: &mut Roundings<'_>,
    ) -> Float {
        let format = self.profile.arithmetic;
        let mut sum = x;
        if let Some(entry) = bias_entry(self.problem, pair) {
            let bias = self.in_base(big(inputs.bias[entry]), roundings);
            sum = roundings.round(sum + bias, format);
            sum = self.kept(sum, roundings);
        }
        if let Some(alibi) = &self.problem.alibi {
            let term = big(self.problem.alibi_at(site(pair)));
            let ulp = if alibi.slopes == Slopes::Standard { F32_ULP } else { 0.0 };
            let largest = Float::with_val(BITS, &term * ulp);
            let term = roundings.shift(term, &largest);
            let term = roundings.round(term, format);
            let term = self.in_base(term, roundings);
            sum = roundings.round(sum + term, format);
            sum = self.kept(sum, roundings);
        }
        sum
    }

    /// `dS (1 - tanh^2)`.
    pub fn with_slope(&self, ds: Float, score: &Score, roundings: &mut Roundings<'_>) -> Float {
        let Some(t) = &score.tanh else { return ds };
        let format = self.profile.arithmetic;
        let from_one = |t: Float, roundings: &mut Roundings<'_>| roundings.round(1 - t, format);
        match self.style.slope {
            SlopeForm::Square | SlopeForm::Capped => {
                let square = self.product(t, t, roundings);
                let slope = from_one(square, roundings);
                self.product(&ds, &slope, roundings)
            }
            SlopeForm::Factors => {
                let difference = from_one(t.clone(), roundings);
                let sum = roundings.round(t.clone() + 1, format);
                let slope = self.product(&difference, &sum, roundings);
                self.product(&ds, &slope, roundings)
            }
            SlopeForm::Distributed => {
                let difference = from_one(t.clone(), roundings);
                let part = self.product(&ds, &difference, roundings);
                let rest = self.product(&part, t, roundings);
                roundings.round(part + rest, format)
            }
        }
    }
}
