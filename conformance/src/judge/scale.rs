//! The softmax scale as text: `0.125`, `1/sqrt(d)` or `1/sqrt(64)`.

use flashproof_spec::problem::Scale;

/// A text that is no softmax scale for the problem.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs)] // each variant's message is its documentation
pub enum ScaleError {
    #[error(
        "'{0}' is no softmax scale: expected a number, 1/sqrt(d), or 1/sqrt(64) for head_dim 64"
    )]
    Syntax(String),
    #[error(
        "the scale is 1/sqrt({found}) and head_dim is {head_dim}: expected the same number, or the scale as a decimal number"
    )]
    HeadDim { found: usize, head_dim: usize },
}

/// The scale that the text names for heads of `head_dim` entries.
///
/// A decimal number stands for the `f64` nearest to it; `1/sqrt(d)` for the real number.
///
/// # Errors
/// [`ScaleError`] quotes the text.
pub fn parse(text: &str, head_dim: usize) -> Result<Scale, ScaleError> {
    let syntax = || ScaleError::Syntax(text.to_owned());
    let compact: String = text.chars().filter(|c| !c.is_whitespace()).collect();
    let Some(of) = compact.strip_prefix("1/sqrt(").and_then(|rest| rest.strip_suffix(')')) else {
        let value: f64 = compact.parse().map_err(|_| syntax())?;
        return if value.is_finite() { Ok(Scale::Value(value)) } else { Err(syntax()) };
    };
    if matches!(of, "d" | "head_dim") {
        return Ok(Scale::InverseSqrtHeadDim);
    }
    match of.parse().map_err(|_| syntax())? {
        found if found == head_dim => Ok(Scale::InverseSqrtHeadDim),
        found => Err(ScaleError::HeadDim { found, head_dim }),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_scale_is_a_number_or_the_square_root() {
        assert_eq!(parse("0.125", 64), Ok(Scale::Value(0.125)));
        assert_eq!(parse("1/sqrt(d)", 64), Ok(Scale::InverseSqrtHeadDim));
        assert_eq!(parse(" 1 / sqrt(32) ", 32), Ok(Scale::InverseSqrtHeadDim));
        let other = ScaleError::HeadDim { found: 32, head_dim: 64 };
        assert_eq!(parse("1/sqrt(32)", 64), Err(other));
        for text in ["", "1/sqrt(", "1/sqrt(x)", "nan", "inf", "1/8", "1/sqrt(-1)"] {
            assert_eq!(parse(text, 64), Err(ScaleError::Syntax(text.to_owned())));
        }
    }

    proptest! {
        #[test]
        fn any_text_is_a_finite_scale_or_an_error(text in ".{0,20}", head_dim in 1..300_usize) {
            if let Ok(Scale::Value(value)) = parse(&text, head_dim) {
                prop_assert!(value.is_finite());
            }
        }
    }
}
