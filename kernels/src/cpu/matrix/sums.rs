//! How products are summed: as a tensor core does, or in f32.

use flashproof_spec::profile::Accumulation;

use crate::cpu::tensor_core::{Adder, Product};

/// A way of summing.
#[derive(Clone, Copy, Debug)]
pub(in crate::cpu) enum Sums {
    /// Each product and each addition rounded to f32, in order.
    Single,
    /// The steps of a tensor core.
    TensorCore(Adder),
}

impl Sums {
    /// The way of an accumulation: an IEEE one is in f32.
    pub(in crate::cpu) fn new(accumulation: Accumulation) -> Self {
        Adder::new(accumulation).map_or(Self::Single, Self::TensorCore)
    }

    /// In which step from `start` on the product at `position` is.
    pub(super) const fn step_of(self, position: usize) -> usize {
        match self {
            Self::Single => 0,
            Self::TensorCore(adder) => position / adder.chunk(),
        }
    }

    /// The sum of any number of products, from zero.
    pub(super) fn dot(self, products: impl IntoIterator<Item = Product>) -> f64 {
        match self {
            Self::Single => products.into_iter().fold(0.0, single),
            Self::TensorCore(adder) => adder.dot(products),
        }
    }

    /// What the products of one step make of an accumulator.
    pub(super) fn add(self, accumulator: f64, products: &[Product]) -> f64 {
        match self {
            Self::Single => products.iter().copied().fold(accumulator, single),
            Self::TensorCore(adder) => adder.step(accumulator, products),
        }
    }
}

fn single(sum: f64, product: Product) -> f64 {
    f64::from(sum as f32 + product.value() as f32)
}
