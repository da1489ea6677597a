//! The equations of `FAS:bound.bwd.*` at 300 bits, with no outward rounding.

use flashproof_spec::bound::gradient::GradientCondition;
use flashproof_spec::format::Format;
use flashproof_spec::problem::Problem;
use flashproof_spec::profile::{Accumulation, Profile};
use rug::Float;

/// Bits of every number here.
pub const BITS: u32 = 300;

pub fn big(x: f64) -> Float {
    Float::with_val(BITS, x)
}

fn compound(u: f64, n: usize) -> Float {
    let first: Float = big(u) * n as u32;
    Float::with_val(BITS, &first / (big(1.0) - &first))
}

/// Query rows, each with as many visible keys, and the entries that one gradient of each kind
/// combines them with.
#[derive(Clone, Debug)]
pub struct Data {
    pub rows: Vec<GradientCondition>,
    /// `k_ij` for the first row's keys.
    pub keys: Vec<f64>,
    /// `q_rj` or `dO_rj`.
    pub factors: Vec<f64>,
    /// `|dQ_j|`, `|dK_j|` or `|dV_j|`.
    pub gradient: f64,
    /// `|sum_i p_i k_ij|`.
    pub mean_key: f64,
}

/// Unit roundoff and half the smallest subnormal of a format that rounding takes place to.
fn narrow(profile: &Profile, to: Format) -> (f64, f64) {
    if to == profile.arithmetic || to == Format::F64 {
        (0.0, 0.0)
    } else {
        (to.unit_roundoff(), to.smallest_subnormal() / 2.0)
    }
}

/// The half-mass lemma, for terms that a tensor core takes in at most `touched` chunks.
fn sum_error(
    accumulation: Accumulation,
    terms: usize,
    touched: impl Fn(usize) -> usize,
    mass: &Float,
    total: &Float,
) -> Float {
    match accumulation {
        Accumulation::Ieee { format, depth } => {
            let u = format.unit_roundoff();
            let products = Float::with_val(BITS, mass * u);
            let rounded = Float::with_val(BITS, mass + &products);
            let half: Float = (rounded.clone() + total + &products) / 2;
            let any_order = compound(u, terms.saturating_sub(1)) * half;
            let chain = depth.map(|depth| compound(u, depth) * &rounded);
            products + chain.map_or_else(|| any_order.clone(), |chain| chain.min(&any_order))
        }
        Accumulation::TensorCore { chunk, fraction_bits, output_bits } => {
            let power = |bits: u32| big(2.0).recip() >> (bits - 1);
            let steps = touched(chunk as usize) as u32;
            let g = (power(fraction_bits) * (chunk + 1) + power(output_bits)) * steps;
            let half: Float = Float::with_val(BITS, mass + total) / 2;
            Float::with_val(BITS, &g / (big(1.0) - &g)) * half
        }
    }
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

/// One key of one row.
struct Key {
    /// `p_i`, `E_i`, `|dS_i|`.
    p: Float,
    weight: Float,
    ds: Float,
    /// The computed `|dS_i|`, before it is rounded to the weight format.
    computed: Float,
    /// What no common factor explains.
    error: Float,
}

impl<'a> Exact<'a> {
    pub fn new(problem: &'a Problem, profile: &'a Profile, data: &'a Data) -> Self {
        let u = profile.arithmetic.unit_roundoff();
        let tiny = (profile.arithmetic.smallest_subnormal() / 2.0).max(f64::from_bits(1));
        let scale = big(problem.head_dim as f64).sqrt().recip();
        Self { problem, profile, data, u, tiny, scale }
    }

    /// So many ulps of the smallest subnormal.
    fn tiny_exponential(&self) -> Float {
        big(self.profile.exp_ulp) * self.profile.arithmetic.smallest_subnormal()
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
        sum_error(ieee, terms, |chunk| terms.div_ceil(chunk), &mass, &total)
            + row.delta_shift_hi
            + folded
            + underflow
    }

    /// `E_i`.
    fn weight(&self, r: usize, i: usize) -> Float {
        let (row, profile) = (&self.data.rows[r], self.profile);
        let terms = self.problem.head_dim;
        let (mass, s) = (big(row.dot_mass_hi[i]), big(row.score_magnitude_hi[i]));
        let folded = match profile.score_accumulation {
            Accumulation::Ieee { format, .. } => mass.clone() * format.unit_roundoff(),
            Accumulation::TensorCore { .. } => big(0.0),
        };
        let underflow: Float = big(self.tiny) * &self.scale * (2 * terms) as u32;
        let touched = |chunk| terms.div_ceil(chunk);
        let sum = sum_error(profile.score_accumulation, terms, touched, &mass, &s);
        let dot = sum + folded + underflow;
        let (u_s, xi_s) = narrow(profile, profile.score_format);
        let score = dot.clone() + (dot + &s) * u_s + xi_s;
        let own_lse = big(row.lse_magnitude_hi) + row.lse_shift_hi;
        let magnitude: Float = s + &score + own_lse;
        let argument = compound(self.u, profile.scale_roundings as usize + 2) * magnitude;
        let eps: Float = big(profile.exp_ulp) * 2 * self.u;
        (score + argument + eps.clone() / (big(1.0) - eps)).exp_m1()
    }

    fn key(&self, r: usize, i: usize) -> Key {
        let (row, profile) = (&self.data.rows[r], self.profile);
        let (p, t) = (big(row.probability_hi[i]), big(row.centred_magnitude_hi[i]));
        let terms = self.problem.value_dim;
        let sum = sum_error(
            profile.score_accumulation,
            terms,
            |chunk| terms.div_ceil(chunk),
            &big(row.dp_mass_hi[i]),
            &big(row.dp_magnitude_hi[i]),
        );
        let dp = sum + big(self.tiny) * (2 * terms) as u32;
        let difference = dp + big(row.lse_gradient_magnitude_hi) * self.u;
        let weight = self.weight(r, i);
        // 1 + F = (1 + E) (1 + u)^3
        let grown: Float = (weight.clone() + 1) * (compound(self.u, 3) + 1);
        let b = self.delta(r);
        let centre = t.clone() + &b;
        let own = p.clone()
            * (centre.clone() * (grown.clone() - 1) + Float::with_val(BITS, &difference * &grown));
        let lost =
            (centre + difference) * self.tiny_exponential() + (p.clone() * 2 + 1) * self.tiny;
        let ds = p.clone() * &t;
        let common = self.common(r);
        let computed: Float = common.clone() * (ds.clone() + b * &p + &own) + &lost;
        let (u_p, xi_p) = narrow(profile, profile.weight_format);
        let error = common * own + lost + computed.clone() * u_p + xi_p;
        Key { p, weight, ds, computed, error }
    }

    pub fn query(&self) -> Float {
        let (mut own, mut mass) = (big(0.0), big(0.0));
        for (i, k) in self.data.keys.iter().enumerate() {
            let key = self.key(0, i);
            mass += (key.computed + &key.error) * k.abs();
            own += key.error * k.abs();
        }
        let common = self.common(0);
        let shared = (common.clone() - 1) * self.data.gradient
            + common * &self.scale * self.delta(0) * self.data.mean_key;
        let terms = self.data.keys.len();
        // Masked keys may lie between, and a block may begin and end inside a chunk.
        let key_len = self.problem.key_len;
        let blocks = 1 + self.profile.schedule.rescalings(key_len);
        let touched = |chunk| terms.min(key_len.div_ceil(chunk) + 2 * blocks);
        self.stored(terms, touched, Some(&self.scale), mass, shared + own * &self.scale)
    }

    pub fn key_sum(&self) -> Float {
        let (mut own, mut mass) = (big(0.0), big(0.0));
        for (r, q) in self.data.factors.iter().enumerate() {
            let key = self.key(r, 0);
            let common = self.common(r);
            let shared = key.ds * (common.clone() - 1) + common * self.delta(r) * key.p;
            mass += (key.computed + &key.error) * q.abs();
            own += (key.error + shared) * q.abs();
        }
        let terms = self.data.factors.len();
        self.stored(terms, |_| terms, Some(&self.scale), mass, own * &self.scale)
    }

    pub fn value(&self) -> Float {
        let (u_p, xi_p) = narrow(self.profile, self.profile.weight_format);
        let (mut own, mut mass) = (big(0.0), big(0.0));
        for (r, d_o) in self.data.factors.iter().enumerate() {
            let key = self.key(r, 0);
            let computed: Float = (key.weight + 1) * self.common(r) * (1.0 + big(u_p));
            let lost = big(xi_p) + self.tiny_exponential();
            mass += (key.p.clone() * &computed + &lost) * d_o.abs();
            own += (key.p * (computed - 1) + lost) * d_o.abs();
        }
        let terms = self.data.factors.len();
        self.stored(terms, |_| terms, None, mass, own)
    }

    /// Summation, carried accumulators, scale and storing.
    fn stored(
        &self,
        terms: usize,
        touched: impl Fn(usize) -> usize,
        scale: Option<&Float>,
        mass: Float,
        error: Float,
    ) -> Float {
        let (profile, gradient) = (self.profile, self.data.gradient);
        let factor = scale.cloned().unwrap_or_else(|| big(1.0));
        let mass = mass * &factor;
        let total = (error.clone() + gradient).min(&mass);
        let sums = sum_error(profile.value_accumulation, terms, touched, &mass, &total)
            + big(self.tiny) * factor.clone().max(&big(1.0)) * (2 * terms) as u32;
        let (u_c, xi_c) = narrow(profile, profile.carried_format);
        let carried = compound(u_c, terms) * (mass.clone() + &sums) + factor * xi_c * terms as u32;
        let unscaled = error + sums + carried;
        let scaling = if scale.is_some() {
            let roundings = compound(self.u, profile.scale_roundings as usize + 1);
            mass * self.u + roundings * (unscaled.clone() + gradient)
        } else {
            big(0.0)
        };
        let scaled = unscaled + scaling + self.tiny;
        let (u_out, xi_out) = narrow(profile, self.problem.format);
        scaled.clone() + (scaled + gradient) * u_out + xi_out
    }
}
