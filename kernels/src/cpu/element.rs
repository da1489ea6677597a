//! The number types that the kernels compute in: storage for tensors, accumulators for sums.

use std::iter::Sum;

use flashproof_spec::format::Format;
use half::{bf16, f16};
use num_traits::{Float, NumAssign};

/// A number as tensors store it.
///
/// Kernels compute only in the [accumulator](Element::Accumulator) and round once, when they store.
pub trait Element: Copy {
    /// The type's number format.
    const FORMAT: Format;

    /// The type in which sums of such numbers are kept; holds every value of this one.
    type Accumulator: Accumulator;

    /// The number equal to `value`, which must be a value of [`Element::FORMAT`]: so the values of
    /// a [tensor](flashproof_spec::tensor::Tensor) become elements without rounding.
    fn from_exact(value: f64) -> Self;

    /// The same number as an `f64`, without rounding.
    fn to_exact(self) -> f64;

    /// The same number as an accumulator, without rounding.
    fn load(self) -> Self::Accumulator;

    /// The nearest number to an accumulator's, ties to even; infinity past the largest.
    fn store(value: Self::Accumulator) -> Self;
}

/// A number as kernels compute with it: `f32` or `f64`, in IEEE arithmetic.
pub trait Accumulator: Element<Accumulator = Self> + Float + NumAssign + Sum {
    /// The nearest number to `value`, ties to even; infinity past the largest.
    fn nearest(value: f64) -> Self;
}

impl Element for f64 {
    const FORMAT: Format = Format::F64;
    type Accumulator = Self;

    fn from_exact(value: f64) -> Self {
        value
    }

    fn to_exact(self) -> f64 {
        self
    }

    fn load(self) -> Self {
        self
    }

    fn store(value: Self) -> Self {
        value
    }
}

impl Accumulator for f64 {
    fn nearest(value: f64) -> Self {
        value
    }
}

impl Element for f32 {
    const FORMAT: Format = Format::F32;
    type Accumulator = Self;

    fn from_exact(value: f64) -> Self {
        value as Self
    }

    fn to_exact(self) -> f64 {
        f64::from(self)
    }

    fn load(self) -> Self {
        self
    }

    fn store(value: Self) -> Self {
        value
    }
}

impl Accumulator for f32 {
    fn nearest(value: f64) -> Self {
        value as Self
    }
}

impl Element for f16 {
    const FORMAT: Format = Format::F16;
    type Accumulator = f32;

    fn from_exact(value: f64) -> Self {
        Self::from_f32(value as f32)
    }

    fn to_exact(self) -> f64 {
        f64::from(self)
    }

    fn load(self) -> f32 {
        self.to_f32()
    }

    fn store(value: f32) -> Self {
        Self::from_f32(value)
    }
}

impl Element for bf16 {
    const FORMAT: Format = Format::Bf16;
    type Accumulator = f32;

    fn from_exact(value: f64) -> Self {
        Self::from_f32(value as f32)
    }

    fn to_exact(self) -> f64 {
        f64::from(self)
    }

    fn load(self) -> f32 {
        self.to_f32()
    }

    fn store(value: f32) -> Self {
        Self::from_f32(value)
    }
}

/// An `e4m3` number, held as the equal `f32`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct E4m3(f32);

/// An `e5m2` number, held as the equal `f32`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct E5m2(f32);

impl Element for E4m3 {
    const FORMAT: Format = Format::E4m3;
    type Accumulator = f32;

    fn from_exact(value: f64) -> Self {
        Self(value as f32)
    }

    fn to_exact(self) -> f64 {
        f64::from(self.0)
    }

    fn load(self) -> f32 {
        self.0
    }

    /// NaN past the largest: the format has no infinity.
    fn store(value: f32) -> Self {
        Self(Self::FORMAT.round(f64::from(value)) as f32)
    }
}

impl Element for E5m2 {
    const FORMAT: Format = Format::E5m2;
    type Accumulator = f32;

    fn from_exact(value: f64) -> Self {
        Self(value as f32)
    }

    fn to_exact(self) -> f64 {
        f64::from(self.0)
    }

    fn load(self) -> f32 {
        self.0
    }

    fn store(value: f32) -> Self {
        Self(Self::FORMAT.round(f64::from(value)) as f32)
    }
}
