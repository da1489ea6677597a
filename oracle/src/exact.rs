//! Arithmetic without rounding, on numbers that are integers times powers of two.

use rug::Float;

/// A finite `f64`.
pub(crate) fn number(x: f64) -> Float {
    Float::with_val(f64::MANTISSA_DIGITS, x)
}

/// Zero.
pub(crate) fn zero() -> Float {
    Float::new(rug::float::prec_min())
}

/// The sum of two finite numbers.
pub(crate) fn sum(a: &Float, b: &Float) -> Float {
    let (Some(a_top), Some(b_top)) = (a.get_exp(), b.get_exp()) else {
        return if a.is_zero() { b.clone() } else { a.clone() };
    };
    Float::with_val(sum_bits((a, a_top), (b, b_top)), a + b)
}

/// The difference of two finite numbers.
pub(crate) fn difference(a: &Float, b: &Float) -> Float {
    let (Some(a_top), Some(b_top)) = (a.get_exp(), b.get_exp()) else {
        return if b.is_zero() { a.clone() } else { -b.clone() };
    };
    Float::with_val(sum_bits((a, a_top), (b, b_top)), a - b)
}

/// The product of two finite numbers.
pub(crate) fn product(a: &Float, b: &Float) -> Float {
    Float::with_val(a.prec() + b.prec(), a * b)
}

/// Bits from the first one that a sum can have to the last one that a term can have.
fn sum_bits((a, a_top): (&Float, i32), (b, b_top): (&Float, i32)) -> u32 {
    let last = |x: &Float, top: i32| i64::from(top) - i64::from(x.prec());
    let first = i64::from(a_top.max(b_top)) + 1;
    (first - last(a, a_top).min(last(b, b_top))) as u32
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use rug::Rational;

    fn rational(x: &Float) -> Rational {
        Rational::try_from(x).expect("a finite number")
    }

    proptest! {
        #[test]
        fn nothing_is_rounded(a in any::<f64>(), b in any::<f64>()) {
            let finite = |x: f64| number(if x.is_finite() { x } else { 0.0 });
            let (a, b) = (finite(a), finite(b));
            prop_assert_eq!(rational(&sum(&a, &b)), rational(&a) + rational(&b));
            prop_assert_eq!(rational(&difference(&a, &b)), rational(&a) - rational(&b));
            prop_assert_eq!(rational(&product(&a, &b)), rational(&a) * rational(&b));
            prop_assert_eq!(difference(&a, &a), 0);
            prop_assert_eq!(sum(&zero(), &b), b.clone());
            prop_assert_eq!(difference(&zero(), &b), -b);
        }
    }
}
