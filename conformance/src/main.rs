//! The `flashproof` program.
fn main() {}
