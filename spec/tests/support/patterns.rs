//! The values of the narrow formats, decoded by code that is not this project's.
#![allow(dead_code)] // each test program uses a part of it

use flashproof_spec::format::Format;
use float8::{F8E4M3, F8E5M2};
use half::{bf16, f16};

/// Formats whose bit patterns are few enough to be listed.
pub const LISTED: [Format; 5] =
    [Format::Tf32, Format::F16, Format::Bf16, Format::E4m3, Format::E5m2];

/// The value of a bit pattern, sign bit 0.
///
/// The crates `half` and `float8` decode their formats; a `tf32` is an `f32` whose last 13 bits are
/// 0.
pub fn decode(format: Format, bits: u32) -> f64 {
    let byte = || u8::try_from(bits).expect("8 bits");
    let word = || u16::try_from(bits).expect("16 bits");
    match format {
        Format::Tf32 => f64::from(f32::from_bits(bits << 13)),
        Format::F16 => f16::from_bits(word()).to_f64(),
        Format::Bf16 => bf16::from_bits(word()).to_f64(),
        Format::E4m3 => F8E4M3::from_bits(byte()).to_f64(),
        Format::E5m2 => F8E5M2::from_bits(byte()).to_f64(),
        Format::F32 => f64::from(f32::from_bits(bits)),
        Format::F64 => unreachable!("not listed"),
    }
}

/// Bits of a pattern, sign excluded.
pub const fn pattern_bits(format: Format) -> u32 {
    match format {
        Format::F64 => 63,
        Format::F32 => 31,
        Format::Tf32 => 18,
        Format::F16 | Format::Bf16 => 15,
        Format::E4m3 | Format::E5m2 => 7,
    }
}

/// Every value of sign 0 in the order of its bits: finite ascending from 0, then infinity where
/// there is one, then NaN.
pub fn values(format: Format) -> Vec<f64> {
    (0..1 << pattern_bits(format)).map(|bits| decode(format, bits)).collect()
}

/// The finite ones among [`values`].
pub fn finite_values(format: Format) -> Vec<f64> {
    values(format).into_iter().take_while(|value| value.is_finite()).collect()
}
