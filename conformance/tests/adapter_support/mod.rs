//! What the tests of the adapters share.
#![allow(dead_code)] // each test program uses a part of it

pub mod conduct;
pub mod derivative;
pub mod masks;
pub mod messages;
pub mod paired;
pub mod placed;
pub mod pointed;
pub mod property;
pub mod python;
pub mod scored;

/// The built-in kernels that have both passes, in every format but the 8-bit ones.
pub const COMPLETE: [&str; 3] = ["naive", "tiled", "split"];
