//! What a case asks of a kernel beyond plain attention.

use std::fmt;

use flashproof_spec::mask::Rule;
use serde::{Deserialize, Serialize};

use crate::case::Case;

/// A feature that kernels have or lack.
#[derive(
    Clone,
    Copy,
    Debug,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    Serialize,
    Deserialize,
    clap::ValueEnum,
)]
#[serde(rename_all = "kebab-case")]
pub enum Feature {
    /// A rule of the mask that is neither causal nor a key length.
    Mask,
    /// An additive bias.
    Bias,
    /// Linear biases by distance.
    Alibi,
    /// A softcap.
    Softcap,
    /// A sink, or the off-by-one softmax.
    Sink,
    /// Dropout.
    Dropout,
    /// A layout that is not contiguous.
    Layout,
    /// Inputs in 8 bits with descales.
    Descale,
}

impl Feature {
    /// Every feature.
    pub const ALL: [Self; 8] = [
        Self::Mask,
        Self::Bias,
        Self::Alibi,
        Self::Softcap,
        Self::Sink,
        Self::Dropout,
        Self::Layout,
        Self::Descale,
    ];

    /// Whether the case asks for it.
    #[must_use]
    pub fn occurs_in(self, case: &Case) -> bool {
        let problem = &case.problem;
        match self {
            Self::Mask => !problem.mask.rules.iter().all(is_plain),
            Self::Bias => problem.bias.is_some(),
            Self::Alibi => problem.alibi.is_some(),
            Self::Softcap => problem.softcap.is_some(),
            Self::Sink => problem.sink.is_some(),
            Self::Dropout => problem.dropout.is_some(),
            Self::Layout => !problem.layout.is_contiguous(),
            Self::Descale => problem.quantization.is_some(),
        }
    }
}

const fn is_plain(rule: &Rule) -> bool {
    matches!(rule, Rule::CausalTopLeft | Rule::CausalBottomRight | Rule::KeyLengths(_))
}

impl fmt::Display for Feature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Mask => "mask",
            Self::Bias => "bias",
            Self::Alibi => "alibi",
            Self::Softcap => "softcap",
            Self::Sink => "sink",
            Self::Dropout => "dropout",
            Self::Layout => "layout",
            Self::Descale => "descale",
        })
    }
}

/// Those cases that ask for one of the features; all of them without a feature.
#[must_use]
pub fn with_features(mut cases: Vec<Case>, features: &[Feature]) -> Vec<Case> {
    if !features.is_empty() {
        cases.retain(|case| features.iter().any(|feature| feature.occurs_in(case)));
    }
    cases
}
