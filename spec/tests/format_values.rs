//! The values of each format are those that independent decoders list, and no others.

#[path = "support/patterns.rs"]
mod patterns;

use std::str::FromStr;

use flashproof_spec::format::Format;
use patterns::{LISTED, finite_values, values};

/// Whether both are the same number, signs of zero told apart, or both NaN.
fn same(a: f64, b: f64) -> bool {
    a.to_bits() == b.to_bits() || (a.is_nan() && b.is_nan())
}

fn assert_values_are_fixed_points(formats: &[Format]) {
    for &format in formats {
        for value in values(format).into_iter().flat_map(|value| [value, -value]) {
            assert!(same(format.round(value), value), "{format} {value:e}");
            assert!(format.represents(value), "{format} {value:e}");
        }
    }
}

#[test]
fn half_crate_values_are_fixed_points() {
    assert_values_are_fixed_points(&[Format::F16, Format::Bf16]);
}

#[test]
fn float8_crate_values_are_fixed_points() {
    assert_values_are_fixed_points(&[Format::E4m3, Format::E5m2]);
}

#[test]
fn tf32_values_are_fixed_points() {
    assert_values_are_fixed_points(&[Format::Tf32]);
}

#[test]
fn nothing_between_neighbouring_values_is_represented() {
    for format in LISTED {
        let finite = finite_values(format);
        assert_eq!(finite[0], 0.0);
        for pair in finite.windows(2) {
            assert!(pair[0] < pair[1], "{format} {pair:?}");
            for between in [pair[0].next_up(), f64::midpoint(pair[0], pair[1]), pair[1].next_down()]
            {
                assert!(!format.represents(between), "{format} {between:e}");
                assert!(!format.represents(-between), "{format} {between:e}");
            }
        }
    }
}

#[test]
fn limits_are_the_listed_extremes() {
    for format in LISTED {
        let finite = finite_values(format);
        assert_eq!(format.max_finite(), *finite.last().expect("a value"), "{format}");
        assert_eq!(format.smallest_subnormal(), finite[1], "{format}");
        let normal = finite.iter().position(|v| *v == format.smallest_normal()).expect("listed");
        assert_eq!(normal, 1 << (format.precision() - 1), "{format}: subnormal values before it");
        let infinite = values(format).contains(&f64::INFINITY);
        assert_eq!(format.has_infinity(), infinite, "{format}");
        assert_eq!(format.represents(f64::INFINITY), infinite, "{format}");
    }
}

#[test]
fn limits_of_the_native_formats_are_the_standard_librarys() {
    assert_eq!(Format::F64.max_finite(), f64::MAX);
    assert_eq!(Format::F64.smallest_normal(), f64::MIN_POSITIVE);
    assert_eq!(Format::F64.smallest_subnormal(), f64::from_bits(1));
    assert_eq!(Format::F64.unit_roundoff(), f64::EPSILON / 2.0);
    assert_eq!(Format::F32.max_finite(), f64::from(f32::MAX));
    assert_eq!(Format::F32.smallest_normal(), f64::from(f32::MIN_POSITIVE));
    assert_eq!(Format::F32.smallest_subnormal(), f64::from(f32::from_bits(1)));
    assert_eq!(Format::F32.unit_roundoff(), f64::from(f32::EPSILON) / 2.0);
}

#[test]
fn one_unit_above_one_is_twice_the_unit_roundoff() {
    for format in LISTED {
        let finite = finite_values(format);
        let one = finite.iter().position(|value| *value == 1.0).expect("every format has 1");
        assert_eq!(finite[one + 1] - 1.0, 2.0 * format.unit_roundoff(), "{format}");
        assert_eq!(format.unit_roundoff(), 0.5_f64.powi(format.precision() as i32));
    }
}

#[test]
fn sizes_are_the_native_types() {
    assert_eq!(Format::F64.bytes(), size_of::<f64>());
    assert_eq!(Format::F32.bytes(), size_of::<f32>());
    assert_eq!(Format::Tf32.bytes(), size_of::<f32>());
    assert_eq!(Format::F16.bytes(), size_of::<half::f16>());
    assert_eq!(Format::Bf16.bytes(), size_of::<half::bf16>());
    assert_eq!(Format::E4m3.bytes(), size_of::<float8::F8E4M3>());
    assert_eq!(Format::E5m2.bytes(), size_of::<float8::F8E5M2>());
}

#[test]
fn names_round_trip_and_others_are_refused() {
    for format in Format::ALL {
        assert_eq!(Format::from_str(format.name()), Ok(format));
        let json = serde_json::to_string(&format).expect("a name");
        assert_eq!(json, format!("\"{format}\""));
        assert_eq!(serde_json::from_str::<Format>(&json).expect("the same name"), format);
    }
    for name in ["", "F32", "fp16", "f32 ", "float"] {
        let error = Format::from_str(name).expect_err("no format");
        assert!(error.to_string().contains(&format!("'{name}'")), "{error}");
    }
    assert_eq!(format!("{:>5}|{:<5}", Format::F16, Format::Bf16), "  f16|bf16 ");
}
