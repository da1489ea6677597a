//! The conformance suite for attention kernels, and the library behind the `flashproof` program.

pub mod adapter;
