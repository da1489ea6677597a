//! Rounding into each format agrees with MPFR, with Rust's casts, and with the format crates.

#[path = "support/patterns.rs"]
mod patterns;
mod support;

use flashproof_spec::format::Format;
use half::{bf16, f16};
use patterns::{LISTED, finite_values};
use proptest::prelude::*;
use rug::Float;
use rug::float::Round;
use support::settings;

/// Whether both are the same number, signs of zero told apart, or both NaN.
fn same(a: f64, b: f64) -> bool {
    a.to_bits() == b.to_bits() || (a.is_nan() && b.is_nan())
}

/// Rounding by MPFR: to the format's precision, then into its subnormal range without rounding
/// twice.
fn round_by_mpfr(format: Format, x: f64) -> f64 {
    let (mut rounded, direction) = Float::with_val_round(format.precision(), x, Round::Nearest);
    // MPFR's significands lie in [1/2, 1), so its exponents are one above IEEE 754's.
    rounded.subnormalize_round(format.min_exponent() + 1, direction, Round::Nearest);
    let rounded = rounded.to_f64();
    if rounded.abs() <= format.max_finite() {
        rounded
    } else if format.has_infinity() && !x.is_nan() {
        f64::INFINITY.copysign(x)
    } else {
        f64::NAN
    }
}

/// Any `f64`: special values and all exponents alike.
fn any_bits() -> impl Strategy<Value = f64> {
    any::<u64>().prop_map(f64::from_bits)
}

/// Numbers about the range of a format: its subnormals, its overflow, and half a binade around.
fn near(format: Format) -> impl Strategy<Value = f64> {
    let low = format.min_quantum() - 3;
    let high = format.max_finite().log2().ceil() as i32 + 2;
    (any::<bool>(), 1.0..2.0, low.max(-1022)..=high.min(1023)).prop_map(
        |(sign, fraction, exponent)| {
            let x: f64 = fraction * 2.0_f64.powi(exponent);
            if sign { -x } else { x }
        },
    )
}

proptest! {
    #![proptest_config(settings(
        "format_rounding",
        "tests/proptest-regressions/format_rounding.txt"
    ))]

    #[test]
    fn random_numbers_round_as_mpfr_does(
        (format, x) in prop::sample::select(&Format::ALL[..]).prop_flat_map(|format| {
            (Just(format), prop_oneof![near(format), any_bits()])
        }),
    ) {
        let expected = round_by_mpfr(format, x);
        prop_assert!(same(format.round(x), expected), "{} {:e} {:e}", format, x, expected);
    }

    #[test]
    fn f32_rounds_as_the_cast_does(x in prop_oneof![near(Format::F32), any_bits()]) {
        prop_assert!(same(Format::F32.round(x), f64::from(x as f32)));
    }

    #[test]
    fn f64_is_left_as_it_is(x in any_bits()) {
        prop_assert!(same(Format::F64.round(x), x));
    }

    #[test]
    fn half_precision_rounds_as_the_crate_does(x in any::<u32>().prop_map(f32::from_bits)) {
        let wide = f64::from(x);
        prop_assert!(same(Format::F16.round(wide), f16::from_f32(x).to_f64()));
        prop_assert!(same(Format::Bf16.round(wide), bf16::from_f32(x).to_f64()));
    }

    /// The crate saturates where the formats overflow, so only numbers in range are compared.
    #[test]
    fn eight_bit_formats_round_as_the_crate_does(x in near(Format::E4m3), y in near(Format::E5m2)) {
        if x.abs() <= Format::E4m3.max_finite() {
            prop_assert!(same(Format::E4m3.round(x), float8::F8E4M3::from_f64(x).to_f64()));
        }
        if y.abs() <= Format::E5m2.max_finite() {
            prop_assert!(same(Format::E5m2.round(y), float8::F8E5M2::from_f64(y).to_f64()));
        }
    }

    /// No number outside of a value's interval rounds to it, and what rounds to it lies inside.
    #[test]
    fn the_preimage_of_a_value_is_what_rounds_to_it(
        (format, x) in prop::sample::select(&Format::ALL[1..])
            .prop_flat_map(|format| (Just(format), near(format))),
    ) {
        let value = format.round(x);
        prop_assume!(value.is_finite());
        let (lo, hi) = format.preimage(value);
        prop_assert!(lo <= x && x <= hi, "{x} in {lo}..{hi}");
        prop_assert_ne!(format.round(lo.next_down()), value);
        prop_assert_ne!(format.round(hi.next_up()), value);
        let within = |x: f64| format.round(x) == value;
        prop_assert!(within(lo.next_up()) && within(hi.next_down()));
    }

    #[test]
    fn rounding_is_odd_monotone_and_idempotent(
        format in prop::sample::select(&Format::ALL[..]),
        x in any_bits(),
        y in any_bits(),
    ) {
        let (rounded_x, rounded_y) = (format.round(x), format.round(y));
        prop_assert!(same(format.round(-x), -rounded_x));
        prop_assert!(same(format.round(rounded_x), rounded_x));
        prop_assert!(format.represents(rounded_x));
        if x <= y {
            prop_assert!(rounded_x <= rounded_y || rounded_x.is_nan() || rounded_y.is_nan());
        }
    }
}

/// Every midpoint of every format that can be listed: a tie goes to the value whose pattern is
/// even, and the nearest `f64` on either side to its own neighbour.
#[test]
fn midpoints_and_their_neighbours_round_as_mpfr_does() {
    for format in LISTED {
        for (bits, pair) in finite_values(format).windows(2).enumerate() {
            let midpoint = f64::midpoint(pair[0], pair[1]);
            let even = pair[bits % 2];
            let expected =
                [(midpoint, even), (midpoint.next_down(), pair[0]), (midpoint.next_up(), pair[1])];
            for (x, rounded) in expected {
                assert!(same(format.round(x), rounded), "{format} {x:e}");
                assert!(same(format.round(-x), -rounded), "{format} -{x:e}");
                assert!(same(round_by_mpfr(format, x), rounded), "MPFR, {format} {x:e}");
            }
        }
    }
}

#[test]
fn overflow_begins_half_a_unit_above_the_largest_value() {
    for format in [Format::F32, Format::Tf32, Format::F16, Format::Bf16, Format::E5m2] {
        let max = format.max_finite();
        let half_unit = max * format.unit_roundoff() / (2.0 - 2.0 * format.unit_roundoff());
        assert_eq!(format.round((max + half_unit).next_down()), max, "{format}");
        assert_eq!(format.round(max + half_unit), f64::INFINITY, "{format}");
        assert_eq!(format.round(-max - half_unit), f64::NEG_INFINITY, "{format}");
    }
}

/// The largest `e4m3` value is even, so the tie above it goes down; past it there is only NaN.
#[test]
fn e4m3_overflows_to_nan_past_464() {
    assert_eq!(Format::E4m3.round(464.0), 448.0);
    assert_eq!(Format::E4m3.round(-464.0), -448.0);
    assert!(Format::E4m3.round(464.0_f64.next_up()).is_nan());
    assert!(Format::E4m3.round(f64::INFINITY).is_nan());
    assert!(Format::E4m3.round(f64::NEG_INFINITY).is_nan());
}

#[test]
fn numbers_below_half_the_smallest_become_zero_of_their_sign() {
    for format in LISTED.into_iter().chain([Format::F32]) {
        let half = format.smallest_subnormal() / 2.0;
        for (x, rounded) in [
            (half, 0.0),
            (half.next_up(), format.smallest_subnormal()),
            (f64::from_bits(1), 0.0),
            (0.0, 0.0),
        ] {
            assert!(same(format.round(x), rounded), "{format} {x:e}");
            assert!(same(format.round(-x), -rounded), "{format} -{x:e}");
        }
    }
}
