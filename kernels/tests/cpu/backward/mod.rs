//! The backward passes, by exact answers, by where they round, and by what must not change a bit.

mod finite_differences;
mod hand_computed;
mod integers;
mod linear;
mod order;
mod reductions;
mod rounding;
mod special;
mod unseen;
