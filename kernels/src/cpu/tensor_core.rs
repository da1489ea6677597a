//! The dot product of a tensor core: aligned, truncated, summed exactly, truncated again
//! (MMA-Sim, arXiv 2511.10909).

use flashproof_spec::format::Format;
use flashproof_spec::profile::Accumulation;

/// Exponent of the smallest normal `f32`: results keep its range, and zeros are aligned by it.
const LEAST_EXPONENT: i32 = -126;

/// Exponent of the largest `f32`.
const GREATEST_EXPONENT: i32 = 127;

/// One factor of a product, as it is aligned.
#[derive(Clone, Copy, Debug)]
pub struct Operand {
    value: f64,
    exponent: i32,
}

impl Operand {
    /// A value of `format`, which has at most 24 bits, so that products are exact in `f64`.
    #[must_use]
    pub fn new(format: Format, value: f64) -> Self {
        Self { value, exponent: exponent(value, format.min_exponent()) }
    }

    /// The exact product with another factor.
    #[must_use]
    pub fn times(self, other: Self) -> Product {
        Product { value: self.value * other.value, exponent: self.exponent + other.exponent }
    }
}

/// An exact product, below `2^(exponent + 2)` in magnitude.
#[derive(Clone, Copy, Debug)]
pub struct Product {
    value: f64,
    exponent: i32,
}

impl Product {
    /// The product.
    #[must_use]
    pub const fn value(self) -> f64 {
        self.value
    }
}

/// The summing part of a tensor core.
#[derive(Clone, Copy, Debug)]
pub struct Adder {
    chunk: usize,
    fraction_bits: i32,
    output_bits: i32,
}

impl Adder {
    /// The adder of an accumulation that is a tensor core's; `None` for an IEEE one.
    #[must_use]
    pub fn new(accumulation: Accumulation) -> Option<Self> {
        match accumulation {
            Accumulation::Ieee { .. } => None,
            Accumulation::TensorCore { chunk, fraction_bits, output_bits } => Some(Self {
                chunk: chunk.max(1) as usize,
                fraction_bits: fraction_bits as i32,
                output_bits: output_bits as i32,
            }),
        }
    }

    /// How many products a step takes.
    #[must_use]
    pub const fn chunk(self) -> usize {
        self.chunk
    }

    /// The sum of any number of products, in steps from the first on, from an accumulator of zero.
    ///
    /// Clause: `FAS:num.accumulation.tensor-core`.
    pub fn dot(self, products: impl IntoIterator<Item = Product>) -> f64 {
        let mut sum = 0.0;
        let mut pending = Vec::with_capacity(self.chunk);
        for product in products {
            pending.push(product);
            if pending.len() == self.chunk {
                sum = self.step(sum, &pending);
                pending.clear();
            }
        }
        if pending.is_empty() { sum } else { self.step(sum, &pending) }
    }

    /// One step: an accumulator, which is an `f32` number, and at most `chunk` products. The result is
    /// an `f32` number too.
    ///
    /// Clause: `FAS:num.accumulation.tensor-core`.
    #[must_use]
    pub fn step(self, accumulator: f64, products: &[Product]) -> f64 {
        let values = products.iter().map(|product| product.value);
        if !(accumulator.is_finite() && values.clone().all(f64::is_finite)) {
            return values.sum::<f64>() + accumulator;
        }
        let exponents = products.iter().map(|product| product.exponent);
        let greatest = exponents.fold(exponent(accumulator, LEAST_EXPONENT), i32::max);
        let shift = self.fraction_bits - greatest;
        // Below 2^(fraction_bits + 2), so a sum of fewer than 2^30 of them is exact.
        let aligned = |value: f64| scaled(value, shift).trunc() as i64;
        let sum = aligned(accumulator) + values.map(aligned).sum::<i64>();
        truncated(scaled(sum as f64, -shift), self.output_bits)
    }
}

/// `x` without what lies below `bits` fraction bits, or below the smallest subnormal `f32` with as
/// many; infinity where that is past the largest `f32`.
fn truncated(x: f64, bits: i32) -> f64 {
    let exponent = exponent(x, LEAST_EXPONENT);
    if exponent > GREATEST_EXPONENT {
        return f64::INFINITY.copysign(x);
    }
    let shift = bits - exponent;
    scaled(scaled(x, shift).trunc(), -shift)
}

/// Floor of the binary logarithm of `|x|`, but at least `least`; -126 for zero.
fn exponent(x: f64, least: i32) -> i32 {
    if x == 0.0 {
        return LEAST_EXPONENT;
    }
    // All numbers here are normal in f64.
    (((x.to_bits() >> 52) & 0x7ff) as i32 - 1023).max(least)
}

/// `x * 2^n`, exact within the range of `f64`.
fn scaled(x: f64, n: i32) -> f64 {
    x * f64::from(n).exp2()
}

#[cfg(test)]
mod tests {
    use flashproof_spec::tensor_core::TensorCore;
    use proptest::prelude::*;

    use super::*;

    /// Numbers are whole multiples of `2^-UNIT` here: of products of two `f16` numbers, all.
    const UNIT: i32 = 48;

    fn whole(x: f64) -> i128 {
        let whole = x * f64::from(UNIT).exp2();
        assert_eq!(whole.trunc(), whole);
        whole as i128
    }

    /// Floor of the binary logarithm of `x * 2^-UNIT`.
    fn log2(x: i128) -> i32 {
        127 - x.unsigned_abs().leading_zeros() as i32 - UNIT
    }

    /// `x` toward zero to a multiple of `2^exponent`.
    fn cut(x: i128, exponent: i32) -> i128 {
        match exponent + UNIT {
            ..=0 => x,
            bits => (x >> bits.min(126)) * (1 << bits.min(126)) + round_up(x, bits.min(126)),
        }
    }

    /// What a shift took too much from a negative number that it cut.
    fn round_up(x: i128, bits: i32) -> i128 {
        if x < 0 && x & ((1 << bits) - 1) != 0 { 1 << bits } else { 0 }
    }

    /// The exponent that an `f16` number is aligned by.
    fn aligned_by(x: f64) -> i32 {
        if x == 0.0 { -126 } else { log2(whole(x)).max(-14) }
    }

    fn adders() -> impl Strategy<Value = (Adder, i32, i32)> {
        prop_oneof![
            prop::sample::select(TensorCore::ALL.to_vec()).prop_map(|core| {
                let accumulation = core.accumulation(Format::F16).expect("all take f16");
                let Accumulation::TensorCore { fraction_bits, output_bits, .. } = accumulation
                else {
                    unreachable!("a tensor core")
                };
                let adder = Adder::new(accumulation).expect("a tensor core");
                (adder, fraction_bits as i32, output_bits as i32)
            }),
            Just((Adder { chunk: 32, fraction_bits: 13, output_bits: 13 }, 13, 13)),
            Just((Adder { chunk: 3, fraction_bits: 5, output_bits: 7 }, 5, 7)),
        ]
    }

    /// An `f16` number of any magnitude: subnormal ones and zero among them.
    fn number() -> impl Strategy<Value = f64> {
        (-2047_i32..=2047, -24_i32..=4).prop_map(|(m, q)| f64::from(m) * f64::from(q).exp2())
    }

    fn normal() -> impl Strategy<Value = f64> {
        (1024_i32..=2047, -24_i32..=4, any::<bool>()).prop_map(|(m, q, negative)| {
            let x = f64::from(m) * f64::from(q).exp2();
            if negative { -x } else { x }
        })
    }

    /// An `f32` number that is a multiple of `2^-UNIT`.
    fn accumulator() -> impl Strategy<Value = f64> {
        (-(1_i32 << 24) + 1..1 << 24, -48_i32..=8)
            .prop_map(|(m, q)| f64::from(m) * f64::from(q).exp2())
    }

    fn step(adder: Adder, accumulator: f64, factors: &[(f64, f64)]) -> f64 {
        let products: Vec<_> = factors
            .iter()
            .map(|&(a, b)| Operand::new(Format::F16, a).times(Operand::new(Format::F16, b)))
            .collect();
        adder.step(accumulator, &products)
    }

    proptest! {
        /// The definition in whole numbers of 128 bits, which round nothing.
        #[test]
        fn a_step_is_the_truncated_sum_in_integers(
            (adder, fraction_bits, output_bits) in adders(),
            accumulator in accumulator(),
            factors in prop::collection::vec((number(), number()), 1..=32),
        ) {
            let products = factors.iter().map(|&(a, b)| whole(a * b));
            let exponents = factors.iter().map(|&(a, b)| aligned_by(a) + aligned_by(b));
            let own = if accumulator == 0.0 { -126 } else { log2(whole(accumulator)) };
            let greatest = exponents.fold(own, i32::max);
            let addends = products.chain([whole(accumulator)]);
            let sum: i128 = addends.map(|x| cut(x, greatest - fraction_bits)).sum();
            let expected = if sum == 0 { 0 } else { cut(sum, log2(sum) - output_bits) };
            prop_assert_eq!(whole(step(adder, accumulator, &factors)), expected);
        }

        /// `((k + 1) 2^-F + 2^-ob) (mass + |sum|)/2` for normal operands, by whole numbers too.
        #[test]
        fn a_step_stays_within_its_stated_error(
            (adder, fraction_bits, output_bits) in adders(),
            accumulator in accumulator(),
            factors in prop::collection::vec((normal(), normal()), 1..=32),
        ) {
            let addends = || {
                let products = factors.iter().map(|&(a, b)| whole(a * b));
                products.chain([whole(accumulator)])
            };
            let sum: i128 = addends().sum();
            let mass: i128 = addends().map(i128::abs).sum();
            let error = (whole(step(adder, accumulator, &factors)) - sum).abs();
            // Both sides times 2^(F + ob + 1).
            let per_step = (factors.len() as i128 + 1) * (1 << output_bits) + (1 << fraction_bits);
            prop_assert!(error << (fraction_bits + output_bits + 1) <= per_step * (mass + sum.abs()));
        }

        /// Steps begin at the first product, and a last one may be short.
        #[test]
        fn a_dot_product_is_its_steps_in_order(
            (adder, ..) in adders(),
            factors in prop::collection::vec((number(), number()), 0..=80),
        ) {
            let by_steps = factors.chunks(adder.chunk()).fold(0.0, |sum, it| step(adder, sum, it));
            let product =
                |&(a, b): &(f64, f64)| Operand::new(Format::F16, a).times(Operand::new(Format::F16, b));
            prop_assert_eq!(adder.dot(factors.iter().map(product)).to_bits(), by_steps.to_bits());
        }
    }

    #[test]
    fn what_is_no_finite_number_is_summed_as_ieee_says() {
        let adder = Adder { chunk: 8, fraction_bits: 24, output_bits: 23 };
        let infinity = f64::INFINITY;
        assert_eq!(step(adder, 1.0, &[(infinity, 2.0), (3.0, 1.0)]), infinity);
        assert_eq!(step(adder, 1.0, &[(infinity, -2.0)]), -infinity);
        assert!(step(adder, infinity, &[(infinity, -2.0)]).is_nan());
        assert!(step(adder, 0.0, &[(f64::NAN, 0.0)]).is_nan());
        assert!(step(adder, 0.0, &[(infinity, 0.0)]).is_nan());
    }

    /// Truncation goes toward zero however close the next number is.
    #[test]
    fn a_sum_is_truncated_and_not_rounded() {
        let adder = Adder { chunk: 4, fraction_bits: 24, output_bits: 23 };
        // Three quarters of the distance between 1 and the next number.
        let most = [(f64::from(-12).exp2(), 1.5 * f64::from(-12).exp2())];
        assert_eq!(step(adder, 1.0, &most), 1.0);
        let [(a, b)] = most;
        assert_eq!(step(adder, -1.0, &[(-a, b)]), -1.0);
    }

    #[test]
    fn a_sum_past_the_largest_number_is_infinite() {
        let adder = Adder { chunk: 8, fraction_bits: 24, output_bits: 23 };
        let large = Operand::new(Format::Bf16, f64::from(127).exp2());
        let product = large.times(Operand::new(Format::Bf16, 1.0));
        assert_eq!(adder.step(0.0, &[product]), f64::from(127).exp2());
        assert_eq!(adder.step(0.0, &[product, product]), f64::INFINITY);
    }
}
