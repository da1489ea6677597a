//! Plainer values: zeros, ones, whole numbers, fewer bits.

use flashproof_spec::tensor::{Cotangents, Inputs, Tensor};

use crate::run::Instance;

/// A tensor of an instance whose values can be changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// The query.
    Query,
    /// The key.
    Key,
    /// The value.
    Value,
    /// The bias.
    Bias,
    /// The logits of sinks.
    Sink,
    /// The upstream gradient of the output.
    OutputGradient,
    /// The upstream gradient of the LSE.
    LseGradient,
}

impl Part {
    /// Every tensor.
    pub const ALL: [Self; 7] = [
        Self::Query,
        Self::Key,
        Self::Value,
        Self::Bias,
        Self::Sink,
        Self::OutputGradient,
        Self::LseGradient,
    ];

    /// The name, as in a file.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Query => "query",
            Self::Key => "key",
            Self::Value => "value",
            Self::Bias => "bias",
            Self::Sink => "sink",
            Self::OutputGradient => "output_gradient",
            Self::LseGradient => "lse_gradient",
        }
    }

    /// The tensor; `None` where the instance has none.
    #[must_use]
    pub fn of(self, instance: &Instance) -> Option<&Tensor> {
        let Inputs { query, key, value, bias, sink, .. } = &instance.inputs;
        let upstream = instance.cotangents.as_ref();
        match self {
            Self::Query => Some(query),
            Self::Key => Some(key),
            Self::Value => Some(value),
            Self::Bias => bias.as_ref(),
            Self::Sink => sink.as_ref(),
            Self::OutputGradient => upstream.map(|it| &it.output),
            Self::LseGradient => upstream.and_then(|it| it.lse.as_ref()),
        }
    }

    /// The instance with another tensor in this place, of the same shape and format.
    #[must_use]
    pub fn replaced(self, instance: &Instance, tensor: Tensor) -> Instance {
        let mut instance = instance.clone();
        let inputs = &mut instance.inputs;
        match (self, &mut instance.cotangents) {
            (Self::Query, _) => inputs.query = tensor,
            (Self::Key, _) => inputs.key = tensor,
            (Self::Value, _) => inputs.value = tensor,
            (Self::Bias, _) => inputs.bias = Some(tensor),
            (Self::Sink, _) => inputs.sink = Some(tensor),
            (Self::OutputGradient, Some(Cotangents { output, .. })) => *output = tensor,
            (Self::LseGradient, Some(Cotangents { lse, .. })) => *lse = Some(tensor),
            (Self::OutputGradient | Self::LseGradient, None) => {}
        }
        instance
    }
}

/// A way to make a value plainer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Plainer {
    /// To zero.
    Zero,
    /// To one.
    One,
    /// To the nearest whole number.
    Whole,
    /// To a significand of so many bits.
    Bits(u32),
}

impl Plainer {
    /// The plainest first.
    pub const ALL: [Self; 6] =
        [Self::Zero, Self::One, Self::Whole, Self::Bits(1), Self::Bits(3), Self::Bits(8)];

    fn of(self, value: f64) -> f64 {
        match self {
            Self::Zero => 0.0,
            Self::One => 1.0,
            Self::Whole => value.round_ties_even(),
            Self::Bits(bits) => of_bits(value, bits),
        }
    }
}

/// The nearest number of a significand of `bits` bits; the same where the value is not finite.
fn of_bits(value: f64, bits: u32) -> f64 {
    if !value.is_finite() || value == 0.0 {
        return value;
    }
    // Adding and taking away the bits that are dropped rounds to nearest, away from zero on ties.
    let dropped = f64::MANTISSA_DIGITS - bits;
    let half = 1_u64 << (dropped - 1);
    f64::from_bits((value.to_bits() + half) >> dropped << dropped)
}

/// How far a value is from the plainest, 0: a whole number by its size, others by the bits that they
/// take, infinities and NaN last.
#[must_use]
pub fn cost(value: f64) -> u64 {
    /// Whole numbers up to this count as plain.
    const WHOLE: f64 = 1024.0;
    let sign = u64::from(value.is_sign_negative());
    if !value.is_finite() {
        return 1 << 20;
    }
    if value.fract() == 0.0 && value.abs() <= WHOLE {
        return 2 * value.abs() as u64 + sign;
    }
    let bits = u64::from(f64::MANTISSA_DIGITS - (value.to_bits() | 1 << 52).trailing_zeros());
    1 << 12 | bits << 1 | sign
}

/// The tensor with these elements made plainer, where that lowers their cost; `None` where it lowers
/// none.
#[must_use]
pub fn plainer(tensor: &Tensor, range: std::ops::Range<usize>, how: Plainer) -> Option<Tensor> {
    let format = tensor.format();
    let mut values = tensor.values().clone();
    let mut changed = false;
    for value in values.iter_mut().skip(range.start).take(range.len()) {
        let new = format.round(how.of(*value));
        if cost(new) < cost(*value) {
            (*value, changed) = (new, true);
        }
    }
    changed.then(|| Tensor::rounded(format, &values))
}

#[cfg(test)]
mod tests {
    use flashproof_spec::format::Format;
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn plain_values_cost_least() {
        let rising = [0.0, -0.0, 1.0, -1.0, 2.0, 1000.0, 0.5, 0.75, 0.1, 1e-300, f64::INFINITY];
        let costs = rising.map(cost);
        assert!(costs.is_sorted(), "{costs:?}");
        assert_eq!(cost(f64::NAN), cost(f64::INFINITY));
    }

    proptest! {
        #[test]
        fn fewer_bits_are_the_nearest(value in -1e30..1e30_f64, bits in 1..52_u32) {
            let plain = of_bits(value, bits);
            let unit = (value.abs().log2().floor() + 1.0 - f64::from(bits)).exp2();
            prop_assert!((plain - value).abs() <= unit / 2.0);
            prop_assert_eq!(of_bits(plain, bits), plain);
        }

        #[test]
        fn what_is_plainer_costs_less(value in any::<f64>(), at in 0..Plainer::ALL.len()) {
            let one = |value| Tensor::rounded_from(Format::F64, &[1], vec![value]).unwrap();
            if let Some(new) = plainer(&one(value), 0..1, Plainer::ALL[at]) {
                prop_assert!(cost(new.values()[0]) < cost(value));
            }
        }
    }
}
