//! Numbers in reports: JSON has no infinities and no NaN, and people want few digits.

use flashproof_spec::format::Format;
use serde::Serializer;

/// A finite number as a JSON number, others as the strings `"NaN"`, `"inf"` and `"-inf"`.
///
/// # Errors
/// The serializer's.
pub fn serialize<S: Serializer>(value: &f64, serializer: S) -> Result<S::Ok, S::Error> {
    if value.is_finite() {
        serializer.serialize_f64(*value)
    } else {
        serializer.serialize_str(&show(*value))
    }
}

/// As [`serialize`], and `null` for no number.
///
/// # Errors
/// The serializer's.
#[allow(clippy::ref_option)] // the signature that serde asks for
pub fn serialize_option<S: Serializer>(
    value: &Option<f64>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    match value {
        Some(value) => serialize(value, serializer),
        None => serializer.serialize_none(),
    }
}

/// Whether a count is left out.
#[allow(clippy::trivially_copy_pass_by_ref)] // the signature that serde asks for
#[must_use]
pub const fn is_zero(count: &usize) -> bool {
    *count == 0
}

/// The shortest decimal number that reads back as `value`, in scientific notation where it is very
/// large or small.
#[must_use]
pub fn show(value: f64) -> String {
    /// Magnitudes written without an exponent.
    const PLAIN: std::ops::Range<f64> = 1e-4..1e7;
    if value == 0.0 || !value.is_finite() || PLAIN.contains(&value.abs()) {
        value.to_string()
    } else {
        format!("{value:e}")
    }
}

/// As [`show`], with the fewest digits that read back as `value` in `format`, of which it is a value.
#[must_use]
pub fn show_in(format: Format, value: f64) -> String {
    if format == Format::F64 || value == 0.0 || !value.is_finite() {
        return show(value);
    }
    // Every other format is one whose values `f32` holds.
    let shortest = (value as f32).to_string();
    shortest.parse().map_or_else(|_| show(value), show)
}

/// A number as a JSON value, as [`serialize`] has it.
#[must_use]
pub fn json(value: f64) -> serde_json::Value {
    if value.is_finite() { value.into() } else { show(value).into() }
}

/// A number that is itself an estimate, in three significant digits.
#[must_use]
pub fn show_rough(value: f64) -> String {
    /// Magnitudes written without an exponent.
    const PLAIN: std::ops::Range<f64> = 1e-2..1e4;
    if value == 0.0 || !value.is_finite() {
        value.to_string()
    } else if PLAIN.contains(&value.abs()) {
        let digits = (2 - value.abs().log10().floor() as i32).max(0) as usize;
        format!("{value:.digits$}")
    } else {
        format!("{value:.2e}")
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_number_shown_reads_back(value in any::<f64>()) {
            prop_assert_eq!(show(value).parse::<f64>().unwrap().to_bits(), value.to_bits());
        }
    }

    proptest! {
        #[test]
        fn a_number_shown_in_its_format_reads_back(
            value in any::<f64>(),
            format in prop::sample::select(vec![Format::F64, Format::F32, Format::F16, Format::Bf16]),
        ) {
            let value = format.round(value);
            let read: f64 = show_in(format, value).parse().unwrap();
            let same = format.round(read).to_bits() == value.to_bits();
            prop_assert!(same || value.is_nan());
        }
    }

    #[test]
    fn rough_numbers_have_three_digits() {
        for (value, text) in [
            (0.0, "0"),
            (0.123_45, "0.123"),
            (12.345, "12.3"),
            (123.45, "123"),
            (1234.5, "1234"),
            (1.2345e-7, "1.23e-7"),
            (f64::INFINITY, "inf"),
        ] {
            assert_eq!(show_rough(value), text);
        }
    }
}
