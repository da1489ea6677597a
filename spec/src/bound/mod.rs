//! The stated error bounds: how far a correct kernel's output can lie from the exact answer.
//!
//! A bound is a function of the kernel's declared [`Profile`](crate::profile::Profile) and of the
//! exact data of one query row, the [`RowCondition`]. Nothing is fitted. Every evaluation rounds
//! outward, so that evaluating the bound can not make it smaller than the mathematics says.

mod accumulation;
mod forward;
pub mod gradient;
mod lse;
mod outward;
mod weight;

pub use forward::{ForwardBounds, forward};

/// An upper bound on an absolute error, or the statement that none exists.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Bound {
    /// A correct kernel's output differs from the exact answer by at most this much.
    Within(f64),
    /// The profile admits any error here; a verdict can not be drawn.
    None(NoBound),
}

/// Why a profile bounds nothing on some data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoBound {
    /// The accumulator's error coefficient reaches 1: rounding errors can be as large as the sum.
    Accumulation,
    /// A score or a partial sum can exceed the largest number of its format.
    Overflow,
}

/// The exact data of one query row that its bounds depend on, rounded outward to `f64`.
///
/// Vectors run over the row's *visible* keys, in ascending key order; `m = max s_i`,
/// `l = sum e^(s_i - m)`, `p_i = e^(s_i - m) / l`. At least one key is visible and every score is
/// finite. Suffix `_hi`: at least the exact value; `_lo`: at most.
#[derive(Clone, Debug, PartialEq)]
pub struct RowCondition {
    /// `m - s_i`.
    pub gap_hi: Vec<f64>,
    /// `|s_i|`.
    pub score_magnitude_hi: Vec<f64>,
    /// `|scale| * sum_t |q_t k_it|`.
    pub dot_mass_hi: Vec<f64>,
    /// `p_i`.
    pub probability_lo: Vec<f64>,
    /// `p_i`.
    pub probability_hi: Vec<f64>,
    /// `|m|`.
    pub max_magnitude_hi: f64,
    /// `l`, at least 1.
    pub normalizer_lo: f64,
    /// `l`.
    pub normalizer_hi: f64,
    /// `|m + ln l|`.
    pub lse_magnitude_hi: f64,
    /// `o_j = sum_i p_i v_ij`, for each output entry `j`.
    pub output_lo: Vec<f64>,
    /// `o_j`.
    pub output_hi: Vec<f64>,
}
