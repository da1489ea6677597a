//! What arithmetic gives: rounding as IEEE 754 and the PTX ISA have it, and a *policy* where they
//! leave a choice.

pub(crate) mod approximate;
pub(crate) mod half;
pub(crate) mod rounding;
pub(crate) mod single;
pub(crate) mod tensor;

pub use approximate::Approximation;
pub use tensor::TensorCore;

/// How results are chosen that the PTX ISA does not fix.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Policy {
    /// Results of `.approx` and `.full` instructions.
    pub approximation: Approximation,
    /// Sums of matrix instructions.
    pub tensor_core: TensorCore,
}
