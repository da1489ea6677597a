//! The CPU kernels against answers worked out by hand, and against themselves where two ways of
//! computing must agree to the last bit. No oracle, and no mask but their own loop bounds.

mod accumulator;
mod backward;
mod dropout;
mod hand_computed;
mod merge;
mod mutant;
mod rounding;
mod scores;
mod sinks;
mod special;
mod support;
mod tiling;
mod unseen;
mod visibility;
