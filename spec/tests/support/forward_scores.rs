//! The scores of the simulated forward kernel.
//!
//! A score is kept in some unit; what is still to multiply it, where the scaling is fused with the
//! subtraction of the maximum, is the row's pending factor.

use flashproof_spec::mask::Site;
use flashproof_spec::problem::{Problem, Scale};
use flashproof_spec::profile::Profile;
use flashproof_spec::score::{Slopes, SoftcapOrder};
use rug::Float;

use super::{BITS, Inputs, Kernel, KeyValue, Roundings, accumulator, big};

/// Where bias and ALiBi term join the product.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Addition {
    /// In nats; a change of base multiplies the sum.
    Nats,
    /// Each after a change of base of its own.
    Converted,
    /// Divided by the scale; the factor multiplies the sum.
    Unscaled,
}

/// How a softcap divides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Capping {
    /// `x / cap`.
    Quotient,
    /// `x` times the reciprocal.
    Reciprocal,
    /// The product times `scale / cap`, where nothing is added before.
    Folded,
}

/// The softmax scale, exactly.
pub fn exact_scale(problem: &Problem) -> Float {
    match problem.scale {
        Scale::Value(scale) => big(scale),
        Scale::InverseSqrtHeadDim => big(problem.head_dim as f64).sqrt().recip(),
    }
}

/// The site of a key in the only query row.
pub fn site(key: usize) -> Site {
    Site { batch: 0, head: 0, query: 0, key }
}

/// What makes the scores of one run.
pub struct Scoring<'r> {
    kernel: &'r Kernel<'r>,
    /// What multiplies a product.
    factor: Float,
    /// What multiplies a score in nats; 1 without a change of base.
    base: Float,
    /// What multiplies an addend.
    conversion: Float,
    /// What multiplies a score when the maximum is subtracted.
    pub pending: Option<Float>,
    /// The cap of the softcap, which need not be a number of the arithmetic.
    cap: Option<Float>,
}

impl<'r> Scoring<'r> {
    pub fn new(kernel: &'r Kernel<'r>, roundings: &mut Roundings<'_>) -> Self {
        let Kernel { problem, profile, style } = kernel;
        let format = profile.arithmetic;
        let constant = |exact: Float, count: u32, roundings: &mut Roundings<'_>| {
            (0..count).fold(exact, |x, _| roundings.round(x, format))
        };
        let cap = problem.softcap.map(|softcap| roundings.round(big(softcap.cap), format));
        let base = if style.base_two { big(2.0).ln().recip() } else { big(1.0) };
        let base_roundings = u32::from(style.base_two);
        let scale = exact_scale(problem);
        let whole = Float::with_val(BITS, &scale * &base);
        let n = profile.scale_roundings;
        let fused = !profile.scaled_score_rounded;
        let adds = problem.bias.is_some() || problem.alibi.is_some();
        if problem.softcap.is_some() || (adds && style.addition == Addition::Nats) {
            // Scores in nats; what follows changes the base.
            let factor = constant(scale, n, roundings);
            let base = constant(base, base_roundings, roundings);
            let converted = problem.softcap.is_some_and(|s| s.order == SoftcapOrder::BeforeBias)
                && style.addition == Addition::Converted;
            let conversion = if converted { base.clone() } else { big(1.0) };
            let pending = (fused && style.base_two && !converted).then(|| base.clone());
            return Self { kernel, factor, base, conversion, pending, cap };
        }
        if adds && style.addition == Addition::Unscaled {
            let computed = constant(scale, n, roundings);
            let conversion = roundings.round(computed.recip(), format);
            let base = constant(whole, n, roundings);
            let pending = fused.then(|| base.clone());
            return Self { kernel, factor: big(1.0), base, conversion, pending, cap };
        }
        let factor = constant(whole, n, roundings);
        let conversion = if adds { constant(base, base_roundings, roundings) } else { big(1.0) };
        let pending = (fused && !adds && !style.folded_scale).then(|| factor.clone());
        Self { kernel, factor, base: big(1.0), conversion, pending, cap }
    }

    fn profile(&self) -> &Profile {
        self.kernel.profile
    }

    fn round(&self, x: Float, roundings: &mut Roundings<'_>) -> Float {
        roundings.round(x, self.profile().arithmetic)
    }

    /// A product with a constant; with 1 there is nothing to round.
    fn times(&self, x: Float, constant: &Float, roundings: &mut Roundings<'_>) -> Float {
        if *constant == 1 { x } else { self.round(x * constant, roundings) }
    }

    fn stored(&self, x: Float, roundings: &mut Roundings<'_>) -> Float {
        roundings.narrow(x, self.profile().score_format, self.profile())
    }

    /// Scores as they meet the maximum. One that is minus infinity is as if invisible.
    pub fn scores(&self, inputs: &Inputs, roundings: &mut Roundings<'_>) -> Vec<Option<Float>> {
        let format = accumulator(self.profile().score_accumulation);
        let folded = self.kernel.style.folded_scale;
        let query: Vec<Float> = inputs
            .query
            .iter()
            .map(|&q| if folded { roundings.round(big(q) * &self.factor, format) } else { big(q) })
            .collect();
        let keys = inputs.keys.iter().enumerate();
        keys.map(|(position, key)| {
            let key = key.as_ref()?;
            let score = self.score(&query, (position, key), roundings);
            (score != f64::NEG_INFINITY).then_some(score)
        })
        .collect()
    }

    fn score(
        &self,
        query: &[Float],
        key: (usize, &KeyValue),
        roundings: &mut Roundings<'_>,
    ) -> Float {
        let dot = self.dot(query, &key.1.key, roundings);
        let (Some(softcap), Some(cap)) = (self.kernel.problem.softcap, self.cap.clone()) else {
            let product = self.scaled(dot, roundings);
            let score = self.add(product, key, roundings);
            return self.finished(score, roundings);
        };
        match softcap.order {
            SoftcapOrder::AfterBias => {
                let product = self.scaled(dot, roundings);
                let sum = self.add(product, key, roundings);
                let argument = self.divided(sum, &cap, roundings);
                let capped = self.capped(argument, &cap, roundings);
                self.finished(capped, roundings)
            }
            SoftcapOrder::BeforeBias => {
                let argument = self.argument(dot, &cap, roundings);
                let converted = self.conversion != 1;
                let factor = if converted { Float::with_val(BITS, &cap * &self.base) } else { cap };
                let factor = if converted { self.round(factor, roundings) } else { factor };
                let capped = self.capped(argument, &factor, roundings);
                let score = self.add(capped, key, roundings);
                if converted { score } else { self.finished(score, roundings) }
            }
        }
    }

    fn dot(&self, query: &[Float], key: &[f64], roundings: &mut Roundings<'_>) -> Float {
        let format = accumulator(self.profile().score_accumulation);
        let mut dot: Option<Float> = None;
        for (q, &k) in query.iter().zip(key) {
            let product = roundings.round(big(k) * q, format);
            dot = Some(match dot {
                None => product,
                Some(sum) => roundings.round(sum + product, format),
            });
        }
        dot.expect("a head of at least one entry")
    }

    /// The product times the factor, unless that is pending or folded into the query.
    fn scaled(&self, dot: Float, roundings: &mut Roundings<'_>) -> Float {
        let kept = self.kernel.style.folded_scale || self.pending.as_ref() == Some(&self.factor);
        let scaled = if kept { dot } else { self.times(dot, &self.factor, roundings) };
        self.stored(scaled, roundings)
    }

    /// What the softcap's `tanh` is taken of, from a product.
    fn argument(&self, dot: Float, cap: &Float, roundings: &mut Roundings<'_>) -> Float {
        let style = self.kernel.style;
        if style.capping != Capping::Folded || style.folded_scale {
            let product = self.scaled(dot, roundings);
            return self.divided(product, cap, roundings);
        }
        let ratio = Float::with_val(BITS, &self.factor / cap);
        let ratio = roundings.ulps(ratio, self.profile().division_ulp, self.profile());
        let argument = self.round(dot * ratio, roundings);
        self.stored(argument, roundings)
    }

    fn divided(&self, x: Float, cap: &Float, roundings: &mut Roundings<'_>) -> Float {
        let quotient = if self.kernel.style.capping == Capping::Reciprocal {
            let reciprocal = self.round(Float::with_val(BITS, cap.recip_ref()), roundings);
            self.round(x * reciprocal, roundings)
        } else {
            roundings.ulps(x / cap, self.profile().division_ulp, self.profile())
        };
        self.stored(quotient, roundings)
    }

    fn capped(&self, argument: Float, cap: &Float, roundings: &mut Roundings<'_>) -> Float {
        let profile = self.profile();
        let tanh = roundings.ulps(argument.tanh(), profile.tanh_ulp, profile);
        let tanh = self.stored(tanh, roundings);
        let capped = self.round(tanh * cap, roundings);
        self.stored(capped, roundings)
    }

    /// `x + b + a`, or `x + (b + a)`.
    fn add(&self, x: Float, key: (usize, &KeyValue), roundings: &mut Roundings<'_>) -> Float {
        let addends = self.addends(key, roundings);
        if self.kernel.style.addends_first && addends.len() == 2 {
            let [bias, alibi] = &addends[..] else { unreachable!("two") };
            let sum = self.sum(bias.clone(), alibi, roundings);
            return self.sum(x, &sum, roundings);
        }
        addends.iter().fold(x, |sum, addend| self.sum(sum, addend, roundings))
    }

    fn sum(&self, x: Float, y: &Float, roundings: &mut Roundings<'_>) -> Float {
        let sum = self.round(x + y, roundings);
        self.stored(sum, roundings)
    }

    fn addends(
        &self,
        (position, key): (usize, &KeyValue),
        roundings: &mut Roundings<'_>,
    ) -> Vec<Float> {
        let problem = self.kernel.problem;
        let mut addends = Vec::new();
        if problem.bias.is_some() {
            addends.push(self.times(big(key.bias), &self.conversion, roundings));
        }
        if let Some(alibi) = &problem.alibi {
            /// An ulp of an f32 is at most this much of it.
            const ULP: f64 = 1.0 / (1_u32 << 23) as f64;
            let term = big(problem.alibi_at(site(position)));
            let term = match alibi.slopes {
                Slopes::Given(_) => term,
                Slopes::Standard => {
                    let ulp = Float::with_val(BITS, &term * ULP);
                    roundings.shift(term, &ulp)
                }
            };
            let term = self.round(term, roundings);
            addends.push(self.times(term, &self.conversion, roundings));
        }
        addends
    }

    /// A score in the unit that it meets the maximum in.
    fn finished(&self, score: Float, roundings: &mut Roundings<'_>) -> Float {
        if self.pending.is_some() {
            return score;
        }
        let score = self.times(score, &self.base, roundings);
        if self.base == 1 { score } else { self.stored(score, roundings) }
    }

    /// A sink's logit in the unit of weights' arguments.
    pub fn sink(&self, logit: f64, roundings: &mut Roundings<'_>) -> Float {
        let logit = if self.kernel.style.base_two && logit != 0.0 {
            let base = self.round(big(2.0).ln().recip(), roundings);
            self.round(big(logit) * base, roundings)
        } else {
            big(logit)
        };
        self.stored(logit, roundings)
    }
}
