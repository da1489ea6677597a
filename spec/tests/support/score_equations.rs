//! The equations of `FAS:bound.score` at 300 bits, with no outward rounding.
#![allow(dead_code)] // each test program uses a part of it

use flashproof_spec::format::Format;
use flashproof_spec::problem::Problem;
use flashproof_spec::profile::{Accumulation, Profile};
use flashproof_spec::score::{Slopes, SoftcapOrder};
use rug::Float;

/// Bits of every number here.
pub const BITS: u32 = 300;

pub fn big(x: f64) -> Float {
    Float::with_val(BITS, x)
}

/// `n x / (1 - n x)`.
pub fn compound(x: impl Into<f64>, n: usize) -> Float {
    let first: Float = big(x.into()) * n as u32;
    Float::with_val(BITS, &first / (big(1.0) - &first))
}

/// `(1 + x)(1 + y) - 1`.
pub fn and(x: &Float, y: &Float) -> Float {
    Float::with_val(BITS, x + y) + Float::with_val(BITS, x * y)
}

/// Unit roundoff and half the smallest subnormal of a format that rounding takes place to.
pub fn narrow(profile: &Profile, to: Format) -> (f64, f64) {
    if to == profile.arithmetic || to == Format::F64 {
        (0.0, 0.0)
    } else {
        (to.unit_roundoff(), to.smallest_subnormal() / 2.0)
    }
}

/// Half the smallest subnormal of the arithmetic.
pub fn tiny(profile: &Profile) -> f64 {
    (profile.arithmetic.smallest_subnormal() / 2.0).max(f64::from_bits(1))
}

/// What a sum loses where it underflows in its accumulator.
pub fn tiny_sum(profile: &Profile, accumulation: Accumulation) -> f64 {
    match accumulation {
        Accumulation::Ieee { format, .. } => tiny(profile).max(format.smallest_subnormal() / 2.0),
        Accumulation::TensorCore { .. } => tiny(profile),
    }
}

/// So many ulps of the smallest subnormal, at least one half.
pub fn tiny_ulps(profile: &Profile, ulp: f64) -> Float {
    (big(ulp) * profile.arithmetic.smallest_subnormal()).max(&big(tiny(profile)))
}

/// The half-mass lemma, for terms that a tensor core takes in at most `touched` chunks.
pub fn sum_error(
    accumulation: Accumulation,
    terms: usize,
    touched: impl Fn(usize) -> usize,
    mass: &Float,
    total: &Float,
    aligned: &Float,
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
            let truncated = power(fraction_bits) * (chunk + 1) * steps;
            let g = power(output_bits) * steps + &truncated;
            let half: Float = Float::with_val(BITS, mass + total) / 2;
            let aligned = truncated * aligned;
            Float::with_val(BITS, &g / (big(1.0) - &g)) * (half + &aligned) + aligned
        }
    }
}

/// The smallest normal number of one format times the largest of the other, whichever way is more.
pub fn aligned(one: Format, other: Format) -> Float {
    let reach = |a: Format, b: Format| big(a.smallest_normal()) * b.max_finite();
    reach(one, other).max(&reach(other, one))
}

/// One score.
pub struct Score<'a> {
    pub problem: &'a Problem,
    pub profile: &'a Profile,
    /// `|scale| sum |q_t k_t|`, `|x|`, `|b| + |a|`, `|s|`, and `|y| / cap`.
    pub mass: f64,
    pub product: f64,
    pub addend: f64,
    pub magnitude: f64,
    pub cap_argument: f64,
}

impl Score<'_> {
    fn scale(&self) -> Float {
        big(self.problem.head_dim as f64).sqrt().recip()
    }

    fn u(&self) -> f64 {
        self.profile.arithmetic.unit_roundoff()
    }

    fn stored(&self) -> (f64, f64) {
        narrow(self.profile, self.profile.score_format)
    }

    /// What the score is off by.
    pub fn error(&self) -> Float {
        let error = self.uncapped_error();
        match self.problem.softcap {
            None => error,
            Some(softcap) if softcap.order == SoftcapOrder::AfterBias => {
                self.capped(&big(self.magnitude), error)
            }
            Some(softcap) => {
                let magnitude = big(self.product.min(softcap.cap));
                let error = self.capped(&magnitude, error);
                self.sum(&magnitude, error, &big(self.magnitude), 0)
            }
        }
    }

    /// What that is off by which the softcap is taken of.
    pub fn uncapped_error(&self) -> Float {
        let product = self.product_error();
        let order = self.problem.softcap.map(|softcap| softcap.order);
        if order == Some(SoftcapOrder::BeforeBias) || self.additions() == 0 {
            return product;
        }
        let magnitude = big(self.product);
        // The factor of the product is common to all keys, and left out; one product with it is not.
        let taken_out = self.profile.scale_roundings as usize;
        let error = product.clone() + (magnitude.clone() + &product) * self.u();
        let total = match order {
            None => big(self.magnitude),
            Some(_) => magnitude.clone() + self.addend,
        };
        self.sum(&magnitude, error, &total, taken_out)
    }

    fn product_error(&self) -> Float {
        let (profile, terms) = (self.profile, self.problem.head_dim);
        let (mass, product) = (big(self.mass), big(self.product));
        let folded = match profile.score_accumulation {
            Accumulation::Ieee { format, .. } => {
                let u = big(format.unit_roundoff());
                let others = profile.operand_roundings.saturating_sub(1);
                mass.clone() * and(&u, &compound(format.unit_roundoff(), others as usize))
            }
            Accumulation::TensorCore { .. } => big(0.0),
        };
        let growth = self.scale().max(&big(1.0));
        let tiny = tiny_sum(profile, profile.score_accumulation);
        let underflow: Float = big(tiny) * &growth * (2 * terms) as u32;
        let touched = |chunk| terms.div_ceil(chunk);
        let format = self.problem.format;
        let aligned = self.scale() * aligned(format, format);
        let sum = sum_error(profile.score_accumulation, terms, touched, &mass, &product, &aligned);
        let dot = sum + folded + underflow;
        let (u_s, xi_s) = self.stored();
        dot.clone() + (dot + product) * u_s + growth * xi_s
    }

    fn additions(&self) -> usize {
        usize::from(self.problem.bias.is_some()) + usize::from(self.problem.alibi.is_some())
    }

    /// What `value` and what is added to it are off by together, where so many roundings of a common
    /// factor are left out.
    fn sum(&self, value: &Float, error: Float, total: &Float, taken_out: usize) -> Float {
        let additions = self.additions();
        if additions == 0 {
            return error;
        }
        let slope = match &self.problem.alibi {
            Some(alibi) if alibi.slopes == Slopes::Standard => 2.0 * Format::F32.unit_roundoff(),
            _ => 0.0,
        };
        let roundings = compound(self.u(), taken_out + 3);
        let terms = error + and(&roundings, &big(slope)) * self.addend;
        let (u_s, xi_s) = self.stored();
        let once = and(&big(self.u()), &big(u_s)) * additions as u32;
        let each = Float::with_val(BITS, &once / (big(1.0) - &once));
        let half: Float = (big(self.addend) + value + total) / 2;
        let lost =
            big(tiny(self.profile)) * (3 + additions) as u32 + big(xi_s) * (1 + additions) as u32;
        let sum = terms.clone() + each.clone() * half + each * terms;
        sum.clone() + (sum + total) * u_s + lost * self.scale().max(&big(1.0))
    }

    /// What `cap tanh(y / cap)` of this magnitude is off by, where `y` is by `error`.
    fn capped(&self, magnitude: &Float, error: Float) -> Float {
        let profile = self.profile;
        let cap = self.problem.softcap.expect("a softcap").cap;
        let inside = Float::with_val(BITS, &error / cap);
        let near = (big(self.cap_argument) - inside).max(&big(0.0));
        let slope = (near * -2.0_f64).exp() * 4_u32;
        let moved = error.clone().min(&big(2.0 * cap)).min(&(slope * error));
        let (u_s, xi_s) = self.stored();
        let u = self.u();
        let relative = [
            big(2.0 * profile.division_ulp) * u,
            big(2.0 * profile.tanh_ulp) * u,
            compound(u_s, 4),
        ]
        .iter()
        .fold(compound(u, profile.scale_roundings as usize + 7), |all, more| and(&all, more));
        let small = tiny_ulps(profile, profile.division_ulp)
            + tiny_ulps(profile, profile.tanh_ulp)
            + 2.0 * xi_s;
        let products = (big(tiny(profile)) + 2.0 * xi_s) * self.scale().max(&big(1.0));
        moved.clone() + relative * (moved + magnitude) + small * cap + products
    }
}
