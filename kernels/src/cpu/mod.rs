//! Kernels in plain Rust.
