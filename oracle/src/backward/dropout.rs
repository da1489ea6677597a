//! The scale of dropout, exactly: it takes the products `dP` of kept keys to `y = z dP`.

use flashproof_spec::problem::Problem;
use rug::Integer;

use crate::exact::number;

/// A scale as `factor * 2^exponent`.
#[derive(Debug)]
pub(crate) struct KeptScale {
    /// `None` for 1.
    factor: Option<Integer>,
    exponent: i32,
}

impl KeptScale {
    /// The scale of a problem's dropout: a finite number; 1 without dropout.
    pub(crate) fn of(problem: &Problem) -> Self {
        let scale = problem.dropout.as_ref().map_or(1.0, |dropout| dropout.scale);
        let (mantissa, exponent) = number(scale).to_integer_exp().unwrap_or_default();
        let zeros = mantissa.find_one(0).unwrap_or_default();
        let factor = mantissa >> zeros;
        Self { factor: (factor != 1).then_some(factor), exponent: exponent + zeros as i32 }
    }

    /// The unit of `y` is `2^exponent` times that of `dP`.
    pub(crate) const fn exponent(&self) -> i32 {
        self.exponent
    }

    /// `z dP`, in its unit.
    pub(crate) fn multiply(&self, dp: Integer) -> Integer {
        match &self.factor {
            None => dp,
            Some(factor) => dp * factor,
        }
    }
}
