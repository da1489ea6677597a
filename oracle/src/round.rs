//! Correct rounding: which value of a format is nearest to a number that is known by its enclosure.
//!
//! A finite value of a [`Format`] is `k * 2^q` with `|k| < 2^precision` and a quantum exponent
//! `q >= min_quantum`. The value nearest to `x` is found on integers: `x / 2^q` is rounded to
//! nearest, ties to even. Rounding is monotone, so when both endpoints of an enclosure round to one
//! value, the enclosed number does too (Ziv, ACM TOMS 17(3), 1991, doi:10.1145/114697.116813).

use flashproof_spec::format::Format;
use rug::Float;
use rug::float::Round;

use crate::enclosure::Enclosure;

/// Bits that hold any value of any format, and the midpoint of any two neighbours.
const VALUE_BITS: u32 = f64::MANTISSA_DIGITS + 1;

/// What an enclosure says of the nearest value.
#[derive(Clone, Debug, PartialEq)]
pub enum Decision {
    /// Every number in the enclosure rounds to this value.
    Value(f64),
    /// The enclosure contains this midpoint of two neighbouring values, and no other.
    Midpoint(Float),
    /// The enclosure contains more than one midpoint.
    Open,
}

/// The value of `format` nearest to `x`, ties to even, overflow as
/// [`Format::round`](flashproof_spec::format::Format::round) has it.
///
/// NaN gives NaN. Infinities, which no finite format value is near, overflow.
#[must_use]
pub fn nearest(x: &Float, format: Format) -> f64 {
    if x.is_nan() {
        return f64::NAN;
    }
    if x.is_infinite() {
        return overflow(x.is_sign_negative(), format);
    }
    finish(&nearest_unbounded(x, format), format)
}

/// Which value the enclosed number rounds to, as far as the enclosure tells.
#[must_use]
pub fn decide(enclosure: &Enclosure, format: Format) -> Decision {
    if enclosure.lo().is_infinite() || enclosure.hi().is_infinite() {
        return Decision::Open;
    }
    let below = nearest_unbounded(enclosure.lo(), format);
    let above = nearest_unbounded(enclosure.hi(), format);
    let value = finish(&below, format);
    // Past both of its largest values, a format without infinity has one NaN.
    let same_side = below.is_sign_negative() == above.is_sign_negative();
    if below == above || (same_side && value.to_bits() == finish(&above, format).to_bits()) {
        return Decision::Value(value);
    }
    if are_neighbours(&below, &above, format) {
        let mut midpoint = Float::with_val(VALUE_BITS, &below + &above);
        midpoint >>= 1;
        Decision::Midpoint(midpoint)
    } else {
        Decision::Open
    }
}

/// The value just above a midpoint of two neighbours.
#[must_use]
pub fn above(midpoint: &Float, format: Format) -> f64 {
    let mut beyond = midpoint.clone();
    beyond.next_up();
    nearest(&beyond, format)
}

/// The value just below a midpoint of two neighbours.
#[must_use]
pub fn below(midpoint: &Float, format: Format) -> f64 {
    let mut beyond = midpoint.clone();
    beyond.next_down();
    nearest(&beyond, format)
}

/// Exponent of the spacing of the format's values from `x` on, away from zero.
fn quantum(x: &Float, format: Format) -> i32 {
    // `get_exp` is one more than the exponent of the leading bit; zero has none.
    x.get_exp().map_or(format.min_quantum(), |exponent| {
        (exponent - format.precision() as i32).max(format.min_quantum())
    })
}

/// Rounds as if the format had no largest exponent.
fn nearest_unbounded(x: &Float, format: Format) -> Float {
    let quantum = quantum(x, format);
    let mut quotient = x.clone();
    quotient >>= quantum;
    // MPFR's rounding to nearest takes ties to even, of integers too.
    let mut value = Float::with_val(VALUE_BITS, 0);
    if let Some((integer, _)) = quotient.to_integer_round(Round::Nearest) {
        value = Float::with_val(VALUE_BITS, integer) << quantum;
    }
    value.copysign(x)
}

/// Applies the format's largest value.
fn finish(value: &Float, format: Format) -> f64 {
    let rounded = value.to_f64();
    if rounded.abs() > format.max_finite() {
        overflow(rounded.is_sign_negative(), format)
    } else {
        rounded
    }
}

fn overflow(negative: bool, format: Format) -> f64 {
    match (format.has_infinity(), negative) {
        (true, false) => f64::INFINITY,
        (true, true) => f64::NEG_INFINITY,
        (false, _) => f64::NAN,
    }
}

/// Whether no value of the format lies between `below` and `above`.
fn are_neighbours(below: &Float, above: &Float, format: Format) -> bool {
    let (inner, outer) = if *below >= 0 { (below, above) } else { (above, below) };
    if !inner.is_zero() && inner.is_sign_negative() != outer.is_sign_negative() {
        return false;
    }
    let spacing = Float::with_val(VALUE_BITS, 1) << quantum(inner, format);
    Float::with_val(VALUE_BITS, &*inner.as_abs() + spacing) == *outer.as_abs()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_enclosure_that_overflows_at_both_ends_says_nothing() {
        for format in Format::ALL {
            let beyond: Float = Float::with_val(VALUE_BITS, format.max_finite()) << 2;
            let across = Enclosure::new(-beyond.clone(), beyond.clone());
            assert_eq!(decide(&across, format), Decision::Open, "{format}");
            let further: Float = beyond.clone() << 1;
            let Decision::Value(value) = decide(&Enclosure::new(beyond, further), format) else {
                panic!("{format} is exceeded by every number of the enclosure");
            };
            assert!(!value.is_finite());
        }
    }
}
