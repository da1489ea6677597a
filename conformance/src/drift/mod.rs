//! Drift: how a kernel's answers change between versions, compilers and machines, though every one of
//! them is right.
//!
//! [`record()`] keeps a kernel's answers to a suite as a [`Snapshot`]: for each format and group of
//! cases the digests of the bits, the verdicts, and how far the errors are from their bounds.
//! [`compare()`] tells two apart, and [`History`] keeps which changes were accepted and why. Whether
//! bits are the same and whether answers are within their bounds are two questions, and are never
//! answered as one. `DRIFT.md` documents the files.

mod compare;
mod digest;
mod environment;
mod error;
mod figure;
mod group;
mod histogram;
mod history;
mod measure;
mod moments;
mod read;
mod record;
mod snapshot;
pub mod text;
mod trend;
mod written;
mod zone;

pub use compare::{
    Apart, BIAS_DEVIATIONS, Bits, BitsOf, Comparison, HeadroomOf, Lean, Place, VerdictsOf, compare,
};
pub use digest::Digest;
pub use environment::math_digest;
pub use error::DriftError;
pub use figure::{Figure, Span};
pub use history::{Accepted, HISTORY_VERSION, History, accept};
pub use record::{RUNS, Request, record};
pub use snapshot::{
    Answers, Asked, Elements, Group, Mean, Ratios, SNAPSHOT_VERSION, Sizes, Snapshot, Values, Worst,
};
pub use trend::{LARGE_STEP, Trend, is_large, trends};
pub use zone::Zone;
