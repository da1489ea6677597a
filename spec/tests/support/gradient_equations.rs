//! The equations of `FAS:bound.bwd.*` at 300 bits, with no outward rounding.

use flashproof_spec::bound::gradient::GradientCondition;
use flashproof_spec::format::Format;
use flashproof_spec::problem::Problem;
use flashproof_spec::profile::{Accumulation, Carried, Profile};
use flashproof_spec::score::{Sink, Softcap, SoftcapOrder};
use rug::Float;

#[path = "score_equations.rs"]
mod score_equations;

pub use score_equations::{BITS, big};
use score_equations::{
    Score, aligned, and, compound, narrow, sum_error, tiny, tiny_sum, tiny_ulps,
};

/// Query rows, each with as many visible keys, and the entries that one gradient of each kind
/// combines them with.
#[derive(Clone, Debug)]
pub struct Data {
    pub rows: Vec<GradientCondition>,
    /// `k_ij` for the first row's keys.
    pub keys: Vec<f64>,
    /// `q_rj` or `dO_rj`.
    pub factors: Vec<f64>,
    /// `|dQ_j|`, `|dK_j|`, `|dV_j|`, `|dBias|` or `|dSink|`.
    pub gradient: f64,
    /// `|sum_i p_i c_i k_ij|`.
    pub mean_key: f64,
}

/// The equations, term by term.
pub struct Exact<'a> {
    problem: &'a Problem,
    profile: &'a Profile,
    data: &'a Data,
    u: f64,
    tiny: f64,
    scale: Float,
}

/// A probability and the most that the kernel's differs, apart from the row's common factor.
struct Probability {
    exact: Float,
    error: Float,
}

/// What a softcap multiplies `dS` by.
struct Slope {
    exact: Float,
    error: Float,
    roundings: usize,
}

/// A score gradient.
struct ScoreGradient {
    exact: Float,
    pull: Float,
    /// Before it is rounded to the weight format.
    computed: Float,
    /// What no common factor explains.
    error: Float,
}

/// A sum of terms from several rows.
struct Terms {
    error: Float,
    mass: Float,
}

impl<'a> Exact<'a> {
    pub fn new(problem: &'a Problem, profile: &'a Profile, data: &'a Data) -> Self {
        let u = profile.arithmetic.unit_roundoff();
        let scale = big(problem.head_dim as f64).sqrt().recip();
        Self { problem, profile, data, u, tiny: tiny(profile), scale }
    }

    /// So many ulps of the smallest subnormal.
    fn tiny_exponential(&self) -> Float {
        tiny_ulps(self.profile, self.profile.exp_ulp)
    }

    /// Dropout's two roundings.
    fn dropout_rounding(&self) -> Float {
        compound(self.u, if self.problem.dropout.is_some() { 2 } else { 0 })
    }

    /// Dropout's scale where it is above 1.
    fn growth(&self) -> f64 {
        self.problem.dropout.as_ref().map_or(1.0, |dropout| dropout.scale.max(1.0))
    }

    /// `e^|L^ - L|`.
    fn common(&self, r: usize) -> Float {
        big(self.data.rows[r].lse_shift_hi).exp()
    }

    /// `|b|`.
    fn delta(&self, r: usize) -> Float {
        let row = &self.data.rows[r];
        let terms = self.problem.value_dim;
        let ieee = Accumulation::Ieee { format: self.profile.arithmetic, depth: None };
        let (mass, total) = (big(row.delta_mass_hi), big(row.delta_magnitude_hi));
        let g = row.lse_gradient_magnitude_hi;
        let folded = if g == 0.0 { big(0.0) } else { (total.clone() + g) * self.u };
        let underflow = big(self.tiny) * (2 * terms) as u32;
        let none = big(0.0);
        let sum = sum_error(ieee, terms, |chunk| terms.div_ceil(chunk), &mass, &total, &none);
        let divided = self.dropout_rounding() * (total + &sum);
        sum + row.delta_shift_hi + folded + underflow + divided
    }

    fn score(&self, r: usize, i: usize) -> Score<'_> {
        let row = &self.data.rows[r];
        Score {
            problem: self.problem,
            profile: self.profile,
            mass: row.dot_mass_hi[i],
            product: row.product_magnitude_hi[i],
            addend: row.addend_magnitude_hi[i],
            magnitude: row.score_magnitude_hi[i],
            cap_argument: row.cap_argument_lo[i],
        }
    }

    /// A probability of this logarithm, from a score of magnitude `score`.
    fn recomputed(&self, r: usize, of: (f64, f64), score: Float, error: Float) -> Probability {
        let (row, profile) = (&self.data.rows[r], self.profile);
        let own_lse = big(row.lse_magnitude_hi) + row.lse_shift_hi;
        let magnitude: Float = score + &error + own_lse;
        let argument = compound(self.u, profile.scale_roundings as usize + 2) * magnitude;
        let eps: Float = big(profile.exp_ulp) * 2 * self.u;
        let d = error + argument + eps.clone() / (big(1.0) - eps);
        let (exact, log) = of;
        let relative = big(exact) * d.clone().exp_m1();
        Probability { exact: big(exact), error: relative.min(&(d + log).exp()) }
    }

    fn probability(&self, r: usize, i: usize) -> Probability {
        let row = &self.data.rows[r];
        let of = (row.probability_hi[i], row.log_probability_hi[i]);
        self.recomputed(r, of, big(row.score_magnitude_hi[i]), self.score(r, i).error())
    }

    fn slope(&self, r: usize, i: usize, Softcap { cap, order }: Softcap) -> Slope {
        let (row, profile, score) = (&self.data.rows[r], self.profile, self.score(r, i));
        let division = big(2.0 * profile.division_ulp) * self.u;
        let (u_s, xi_s) = narrow(profile, profile.score_format);
        let addend = if order == SoftcapOrder::AfterBias { score.addend } else { 0.0 };
        let magnitude = big(score.product) + addend;
        let relative = compound(self.u, profile.scale_roundings as usize + 4);
        let relative = and(&and(&relative, &division), &big(u_s));
        let error = score.uncapped_error();
        let moved = error.clone() + relative * (magnitude.clone() + &error);
        let lost_quotient = tiny_ulps(profile, profile.division_ulp) + self.tiny + xi_s;
        let eta = moved / cap + &lost_quotient;
        let exact = big(row.cap_slope_hi[i]);
        // 4 / (3 sqrt 3)
        let linear = eta.clone() * 4_u32 / 3_u32 / big(3.0).sqrt();
        let near = (big(row.cap_argument_lo[i]) - &eta).max(&big(0.0));
        let saturated = ((near * -2.0_f64).exp() * 4_u32).min(&big(1.0)).max(&exact);
        let slope = linear.min(&(exact.clone() * (eta.clone() * 2_u32).exp_m1())).min(&saturated);
        let tanh = (magnitude / cap + eta).min(&big(1.0));
        let tangent = and(&(big(2.0 * profile.tanh_ulp) * self.u), &compound(self.u, 6));
        let h = and(&and(&tangent, &division), &compound(u_s, 3));
        let grown = h.clone() + 1_u32;
        let lost =
            tiny_ulps(profile, profile.tanh_ulp) + tiny_ulps(profile, profile.division_ulp) + xi_s;
        let square = tanh.clone() * &tanh * ((grown.clone() * &grown) - 1_u32);
        let products = tanh * 2_u32 * self.u * grown.clone() * grown;
        Slope { exact, error: slope + square + products + lost * 4_u32, roundings: 4 }
    }

    /// `P^ (centre + difference) c^`, in so many roundings besides those of the slope.
    fn product(
        &self,
        r: usize,
        probability: Probability,
        (centred, difference): (f64, Float),
        slope: &Slope,
        roundings: usize,
    ) -> ScoreGradient {
        let Probability { exact: p, error } = probability;
        let (b, common) = (self.delta(r), self.common(r));
        let centre = b.clone() + centred;
        // p^ (1 + u)^n and c^, each with its error.
        let relative = compound(self.u, roundings + slope.roundings);
        let grown: Float = (p.clone() + error) * (relative + 1_u32);
        let steep = slope.exact.clone() + &slope.error;
        let whole = Float::with_val(BITS, &grown * &steep);
        let pull = Float::with_val(BITS, &p * &slope.exact);
        let own = centre.clone() * (whole.clone() - &pull) + difference.clone() * whole;
        let lost = (centre + difference) * self.tiny_exponential() * &steep
            + (p * steep * 2_u32 + (1 + slope.roundings) as u32) * self.tiny;
        let lost = lost * self.growth();
        let exact = pull.clone() * centred;
        let computed = common.clone() * (exact.clone() + b * &pull + &own) + &lost;
        ScoreGradient { exact, pull, computed, error: common * own + lost }
    }

    /// What `z dP - D + g` is off by, apart from `b` and the roundings of differences.
    fn difference(&self, r: usize, i: usize) -> Float {
        let (row, terms) = (&self.data.rows[r], self.problem.value_dim);
        let (mass, dp) = (big(row.dp_mass_hi[i]), big(row.dp_magnitude_hi[i]));
        let touched = |chunk| terms.div_ceil(chunk);
        let format = self.problem.format;
        let aligned = aligned(format, format);
        let sum = sum_error(self.profile.score_accumulation, terms, touched, &mass, &dp, &aligned);
        let tiny = tiny_sum(self.profile, self.profile.score_accumulation);
        let error = sum + big(tiny) * (2 * terms) as u32;
        let twice = self.dropout_rounding();
        let product = if self.problem.dropout.is_some() { self.tiny } else { 0.0 };
        let error = (error.clone() + twice.clone() * (dp + error)) * row.dropout[i] + product;
        error + (twice + self.u) * row.lse_gradient_magnitude_hi
    }

    /// `dS`, or `dX`.
    fn term(&self, r: usize, i: usize, capped: bool) -> ScoreGradient {
        let slope = match self.problem.softcap.filter(|_| capped) {
            None => Slope { exact: big(1.0), error: big(0.0), roundings: 0 },
            Some(softcap) => self.slope(r, i, softcap),
        };
        let centre = (self.data.rows[r].centred_magnitude_hi[i], self.difference(r, i));
        let product = self.product(r, self.probability(r, i), centre, &slope, 3);
        let (u_p, xi_p) = narrow(self.profile, self.profile.weight_format);
        let rounding = product.computed.clone() * u_p + big(xi_p) * self.growth();
        ScoreGradient { error: product.error + rounding, ..product }
    }

    pub fn query(&self) -> Float {
        let (mut own, mut mass) = (big(0.0), big(0.0));
        for (i, k) in self.data.keys.iter().enumerate() {
            let term = self.term(0, i, true);
            mass += (term.computed + &term.error) * k.abs();
            own += term.error * k.abs();
        }
        let common = self.common(0);
        let shared = (common.clone() - 1) * self.data.gradient
            + common * &self.scale * self.delta(0) * self.data.mean_key;
        let terms = self.data.keys.len();
        // Masked keys may lie between, and a block may begin and end inside a chunk.
        let key_len = self.problem.key_len;
        let blocks = 1 + self.profile.schedule.rescalings(key_len);
        let touched = |chunk| terms.min(key_len.div_ceil(chunk) + 2 * blocks);
        let error = shared + own * &self.scale;
        let accumulation = self.profile.value_accumulation;
        let carry = self.carry(self.profile.carried_gradients.query, terms, key_len);
        let sum = Sum { terms, accumulation, carry, scale: Some(&self.scale), mass };
        self.stored(&sum, touched, error, self.problem.format)
    }

    /// The sum of a multiple of a score gradient of each row.
    fn over_rows(
        &self,
        term: impl Fn(usize) -> ScoreGradient,
        factor: impl Fn(usize) -> f64,
    ) -> Terms {
        let mut terms = Terms { error: big(0.0), mass: big(0.0) };
        for r in 0..self.data.rows.len() {
            let ScoreGradient { exact, pull, computed, error } = term(r);
            let common = self.common(r);
            let factor = factor(r).abs();
            let shared = exact * (common.clone() - 1) + common * self.delta(r) * pull;
            terms.mass += (computed + &error) * factor;
            terms.error += (error + shared) * factor;
        }
        terms
    }

    pub fn key_sum(&self) -> Float {
        let Terms { error, mass } =
            self.over_rows(|r| self.term(r, 0, true), |r| self.data.factors[r]);
        let accumulation = self.profile.value_accumulation;
        let terms = self.data.rows.len();
        let carry = self.carry(self.profile.carried_gradients.key, terms, self.problem.query_len);
        let sum = Sum { terms, accumulation, carry, scale: Some(&self.scale), mass };
        self.stored(&sum, |_| sum.terms, error * &self.scale, self.problem.format)
    }

    pub fn value(&self) -> Float {
        let (u_p, xi_p) = narrow(self.profile, self.profile.weight_format);
        let rounding = and(&self.dropout_rounding(), &big(u_p));
        let (mut error, mut mass) = (big(0.0), big(0.0));
        for (r, d_o) in self.data.factors.iter().enumerate() {
            let z = self.data.rows[r].dropout[0];
            let Probability { exact, error: own } = self.probability(r, 0);
            let computed = (exact.clone() + own) * self.common(r) * (rounding.clone() + 1_u32);
            let product = if self.problem.dropout.is_some() { self.tiny } else { 0.0 };
            let lost = (big(xi_p) + self.tiny_exponential() + product) * self.growth();
            let lost = if z == 0.0 { big(0.0) } else { lost };
            mass += (computed.clone() * z + &lost) * d_o.abs();
            error += ((computed - exact) * z + lost) * d_o.abs();
        }
        let accumulation = self.profile.value_accumulation;
        let terms = self.data.factors.len();
        let carry = self.carry(self.profile.carried_gradients.value, terms, self.problem.query_len);
        let sum = Sum { terms, accumulation, carry, scale: None, mass };
        self.stored(&sum, |_| sum.terms, error, self.problem.format)
    }

    /// Over the first key of every row.
    pub fn bias(&self) -> Option<Float> {
        let order = self.problem.softcap.map(|softcap| softcap.order);
        let capped = order == Some(SoftcapOrder::AfterBias);
        let terms = self.over_rows(|r| self.term(r, 0, capped), |_| 1.0);
        Some(self.in_arithmetic(terms, self.problem.bias?.format))
    }

    pub fn sink(&self) -> Option<Float> {
        let Some(Sink::Logits(format)) = self.problem.sink else { return None };
        let term = |r: usize| {
            let row = &self.data.rows[r];
            let sink = row.sink.expect("a row with a sink");
            let log = (sink.logit + row.lse_magnitude_hi).min(0.0);
            let of = (sink.probability_hi, log);
            let probability = self.recomputed(r, of, big(sink.logit.abs()), big(0.0));
            let slope = Slope { exact: big(1.0), error: big(0.0), roundings: 0 };
            let centre = (sink.centred_magnitude_hi, big(0.0));
            self.product(r, probability, centre, &slope, 2)
        };
        Some(self.in_arithmetic(self.over_rows(term, |_| 1.0), format))
    }

    fn in_arithmetic(&self, Terms { error, mass }: Terms, format: Format) -> Float {
        let accumulation = Accumulation::Ieee { format: self.profile.arithmetic, depth: None };
        let terms = self.data.rows.len();
        let carry = (self.profile.carried_format, terms);
        let sum = Sum { terms, accumulation, carry, scale: None, mass };
        self.stored(&sum, |_| sum.terms, error, format)
    }

    /// The format in which a sum over one head's positions is carried, and how often it is rounded.
    fn carry(&self, carried: Option<Carried>, terms: usize, positions: usize) -> (Format, usize) {
        match carried {
            None => (self.profile.carried_format, terms),
            Some(Carried { format, block }) => (format, positions.div_ceil(block).min(terms)),
        }
    }

    /// Summation, carried accumulators, scale and storing.
    fn stored(
        &self,
        sum: &Sum<'_>,
        touched: impl Fn(usize) -> usize,
        error: Float,
        format: Format,
    ) -> Float {
        let (profile, gradient, terms) = (self.profile, self.data.gradient, sum.terms);
        let factor = sum.scale.cloned().unwrap_or_else(|| big(1.0));
        let mass = sum.mass.clone() * &factor;
        let total = (error.clone() + gradient).min(&mass);
        let growth = self.growth();
        let aligned = aligned(profile.weight_format, self.problem.format) * &factor * growth;
        let sums = sum_error(sum.accumulation, terms, touched, &mass, &total, &aligned)
            + big(tiny_sum(profile, sum.accumulation))
                * growth
                * factor.clone().max(&big(1.0))
                * (2 * terms) as u32;
        let (format_c, roundings) = sum.carry;
        let (u_c, xi_c) = narrow(profile, format_c);
        let carried = compound(u_c, roundings) * (mass.clone() + &sums)
            + factor * growth * xi_c * roundings as u32;
        let unscaled = error + sums + carried;
        let late = self.dropout_rounding();
        let result = unscaled.clone() + gradient;
        let scaling = if sum.scale.is_some() {
            let roundings = compound(self.u, profile.scale_roundings as usize + 1);
            mass * self.u + and(&roundings, &late) * result
        } else {
            late * result
        };
        let scaled = unscaled + scaling + self.tiny;
        let (u_out, xi_out) = narrow(profile, format);
        scaled.clone() + (scaled + gradient) * u_out + xi_out
    }
}

/// A sum as the kernel forms it.
struct Sum<'a> {
    terms: usize,
    accumulation: Accumulation,
    /// The format that it is carried in, and how often it is rounded to that.
    carry: (Format, usize),
    scale: Option<&'a Float>,
    mass: Float,
}
