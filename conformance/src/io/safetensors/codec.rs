//! Elements of each number format as little-endian bytes.
//!
//! Decoding is exact: `f64` contains every other format. Encoding is exact on the values that the
//! format represents, which is all that a [`Tensor`](flashproof_spec::tensor::Tensor) holds. NaN
//! stays NaN, without its payload.

use flashproof_spec::format::Format;
use half::{bf16, f16};
use safetensors::Dtype;

/// The element type that holds `format` in a file; `tf32` has none.
#[must_use]
pub const fn dtype_of(format: Format) -> Option<Dtype> {
    match format {
        Format::F64 => Some(Dtype::F64),
        Format::F32 => Some(Dtype::F32),
        Format::Tf32 => None,
        Format::F16 => Some(Dtype::F16),
        Format::Bf16 => Some(Dtype::BF16),
        Format::E4m3 => Some(Dtype::F8_E4M3),
        Format::E5m2 => Some(Dtype::F8_E5M2),
    }
}

/// The number format that an element type holds, if it is one of those of attention kernels.
#[must_use]
pub fn format_of(dtype: Dtype) -> Option<Format> {
    Format::ALL.into_iter().find(|&format| dtype_of(format) == Some(dtype))
}

/// The values of whole elements; a partial element at the end is left out.
pub(crate) fn decode(format: Format, bytes: &[u8]) -> Vec<f64> {
    match format {
        Format::F64 => elements(bytes, f64::from_le_bytes),
        Format::F32 | Format::Tf32 => elements(bytes, |b| f64::from(f32::from_le_bytes(b))),
        Format::F16 => elements(bytes, |b| f16::from_le_bytes(b).to_f64()),
        Format::Bf16 => elements(bytes, |b| bf16::from_le_bytes(b).to_f64()),
        Format::E4m3 => elements(bytes, |[code]| decode_e4m3(code)),
        // e5m2 is the upper half of f16
        Format::E5m2 => elements(bytes, |[code]| f16::from_le_bytes([0, code]).to_f64()),
    }
}

/// The bytes of values that `format` represents.
pub(crate) fn encode(format: Format, values: impl Iterator<Item = f64>) -> Vec<u8> {
    match format {
        Format::F64 => values.flat_map(f64::to_le_bytes).collect(),
        Format::F32 | Format::Tf32 => values.flat_map(|x| (x as f32).to_le_bytes()).collect(),
        Format::F16 => values.flat_map(|x| f16::from_f64(x).to_le_bytes()).collect(),
        Format::Bf16 => values.flat_map(|x| bf16::from_f64(x).to_le_bytes()).collect(),
        Format::E4m3 => values.map(encode_e4m3).collect(),
        Format::E5m2 => values.map(|x| f16::from_f64(x).to_le_bytes()[1]).collect(),
    }
}

/// The bytes of a NaN that no arithmetic gives: a signalling one with a payload, but in `e4m3`, which has
/// one NaN. Where it still stands, nothing was written.
#[must_use]
pub const fn poison(format: Format) -> &'static [u8] {
    const F64: [u8; 8] = 0x7ff5_a5a5_a5a5_a5a5_u64.to_le_bytes();
    const F32: [u8; 4] = 0x7fa5_a5a5_u32.to_le_bytes();
    const F16: [u8; 2] = 0x7d5a_u16.to_le_bytes();
    const BF16: [u8; 2] = 0x7fa5_u16.to_le_bytes();
    match format {
        Format::F64 => &F64,
        Format::F32 | Format::Tf32 => &F32,
        Format::F16 => &F16,
        Format::Bf16 => &BF16,
        Format::E4m3 => &[E4M3_NAN],
        Format::E5m2 => &[0x7d],
    }
}

/// The values of 64-bit or 32-bit integers.
pub(super) fn decode_integers(dtype: Dtype, bytes: &[u8]) -> Option<Vec<i64>> {
    match dtype {
        Dtype::I64 => Some(elements(bytes, i64::from_le_bytes)),
        Dtype::I32 => Some(elements(bytes, |b| i64::from(i32::from_le_bytes(b)))),
        _ => None,
    }
}

fn elements<T, const N: usize>(bytes: &[u8], decode: impl Fn([u8; N]) -> T) -> Vec<T> {
    bytes.as_chunks::<N>().0.iter().map(|&element| decode(element)).collect()
}

/// Bits of the fraction of e4m3.
const E4M3_FRACTION_BITS: u8 = 3;
/// What the exponent field of e4m3 adds to the exponent (OCP 8-bit Floating Point Specification).
const E4M3_BIAS: i32 = 7;
/// The one NaN of e4m3, whatever its sign.
const E4M3_NAN: u8 = 0x7f;
const SIGN: u8 = 0x80;

fn decode_e4m3(code: u8) -> f64 {
    let magnitude = code & !SIGN;
    if magnitude == E4M3_NAN {
        return f64::NAN;
    }
    let field = i32::from(magnitude >> E4M3_FRACTION_BITS);
    let fraction = f64::from(magnitude & ((1 << E4M3_FRACTION_BITS) - 1));
    // eighths, with the hidden one unless the number is subnormal
    let significand = if field == 0 { fraction } else { fraction + 8.0 };
    let quantum = field.max(1) - E4M3_BIAS - i32::from(E4M3_FRACTION_BITS);
    let value = significand * f64::from(quantum).exp2();
    if code & SIGN == 0 { value } else { -value }
}

/// The codes of e4m3 order as their values do, so that the last one not above `|x|` is its code.
fn encode_e4m3(x: f64) -> u8 {
    if x.is_nan() {
        return E4M3_NAN;
    }
    let above = (0..E4M3_NAN).find(|&code| decode_e4m3(code) > x.abs()).unwrap_or(E4M3_NAN);
    (above - 1) | if x.is_sign_negative() { SIGN } else { 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NARROW: [Format; 2] = [Format::E4m3, Format::E5m2];

    /// An independent decoder.
    fn elsewhere(format: Format, code: u8) -> f64 {
        match format {
            Format::E4m3 => float8::F8E4M3::from_bits(code).to_f64(),
            Format::E5m2 => float8::F8E5M2::from_bits(code).to_f64(),
            _ => panic!("{format} is not a format of eight bits"),
        }
    }

    fn same(a: f64, b: f64) -> bool {
        a.to_bits() == b.to_bits() || (a.is_nan() && b.is_nan())
    }

    #[test]
    fn every_code_of_eight_bits_decodes_as_elsewhere() {
        for format in NARROW {
            for code in 0..=u8::MAX {
                let value = decode(format, &[code])[0];
                assert!(same(value, elsewhere(format, code)), "{format} {code:#04x}: {value}");
                assert!(format.represents(value), "{format} {code:#04x}: {value}");
            }
        }
    }

    #[test]
    fn every_code_of_eight_bits_survives_a_round_trip() {
        for format in NARROW {
            for code in 0..=u8::MAX {
                let value = decode(format, &[code])[0];
                let bytes = encode(format, std::iter::once(value));
                assert!(bytes == [code] || value.is_nan(), "{format} {code:#04x} -> {bytes:?}");
                assert!(same(decode(format, &bytes)[0], value), "{format} {code:#04x}");
            }
        }
    }

    #[test]
    fn every_code_of_sixteen_bits_survives_a_round_trip() {
        for format in [Format::F16, Format::Bf16] {
            for code in 0..=u16::MAX {
                let value = decode(format, &code.to_le_bytes())[0];
                assert!(format.represents(value), "{format} {code:#06x}: {value}");
                let bytes = encode(format, std::iter::once(value));
                assert!(bytes == code.to_le_bytes() || value.is_nan(), "{format} {code:#06x}");
                assert!(same(decode(format, &bytes)[0], value), "{format} {code:#06x}");
            }
        }
    }

    #[test]
    fn poison_is_a_nan_that_is_not_encoded() {
        for format in Format::ALL {
            let poison = poison(format);
            assert_eq!(poison.len(), format.bytes());
            assert!(decode(format, poison)[0].is_nan(), "{format}");
            let quiet = encode(format, std::iter::once(f64::NAN));
            assert_eq!(quiet == poison, format == Format::E4m3, "{format}");
        }
    }

    #[test]
    fn types_and_formats_correspond() {
        for format in Format::ALL {
            match dtype_of(format) {
                Some(dtype) => assert_eq!(format_of(dtype), Some(format)),
                None => assert_eq!(format, Format::Tf32),
            }
        }
        assert_eq!(format_of(Dtype::I32), None);
    }
}
