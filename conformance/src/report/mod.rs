//! Reports: one model of what a run found, and its renderers.

pub mod json;
pub mod model;
pub mod number;
pub mod text;

pub use model::{CaseReport, NoAnswer, Outcome, Report, Summary};
