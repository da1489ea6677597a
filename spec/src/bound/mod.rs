//! The stated error bounds: how far a correct kernel's output can lie from the exact answer.
//!
//! A bound is a function of the kernel's declared [`Profile`](crate::profile::Profile) and of the
//! exact data of one query row, the [`RowCondition`]. Nothing is fitted. Every evaluation rounds
//! outward, so that evaluating the bound can not make it smaller than the mathematics says.

mod accumulation;
mod exponential;
mod forward;
pub mod gradient;
mod lse;
mod merge;
mod outward;
mod range;
mod score;
mod sink;
mod statistical;
pub mod strict;
mod weight;

pub use forward::{ForwardBounds, forward};
pub use statistical::{
    LAMBDA, MeanError, NotApplicable, Spread, Spreads, not_applicable, statistical,
};

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
/// Vectors run over the row's *visible* keys, in ascending key order. `m` is the greatest score, that of
/// a sink included; `l = sum e^(s_i - m)`, over keys and sink; `p_i = e^(s_i - m) / l`. At least one key
/// is visible and every score is finite. Suffix `_hi`: at least the exact value; `_lo`: at most.
#[derive(Clone, Debug, PartialEq)]
pub struct RowCondition {
    /// `m - s_i`.
    pub gap_lo: Vec<f64>,
    /// `m - s_i`.
    pub gap_hi: Vec<f64>,
    /// `|scale * <q, k_i>|`, before softcap, bias and ALiBi.
    pub product_magnitude_hi: Vec<f64>,
    /// The magnitudes of the bias and of the ALiBi term, added.
    pub addend_magnitude_hi: Vec<f64>,
    /// `|y_i| / cap`, with `y_i` what the softcap is taken of; 0 without softcap, and where nothing
    /// is known of it: it serves scores so far beyond the cap that their own error is large.
    pub cap_argument_lo: Vec<f64>,
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
    /// The sink, where the row has one.
    pub sink: Option<SinkCondition>,
    /// What the product of an entry of the query and one of a key is multiplied by beside the scale:
    /// the largest product of their descales; 1 without.
    pub product_unit_hi: f64,
    /// What an entry of a value is multiplied by: the largest descale; 1 without.
    pub value_unit_hi: f64,
}

/// The exact data of a sink in one query row, rounded outward to `f64`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SinkCondition {
    /// Its logit.
    pub logit: f64,
    /// `m - logit`.
    pub gap_lo: f64,
    /// `m - logit`.
    pub gap_hi: f64,
    /// `|logit - max s_i|`, over the keys alone.
    pub key_gap_hi: f64,
    /// `e^(logit - m) / l`.
    pub probability_lo: f64,
    /// `e^(logit - m) / l`.
    pub probability_hi: f64,
}
