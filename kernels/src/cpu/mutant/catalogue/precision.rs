//! Roundings of the forward pass that the declared profile does not have.

use super::Change::{Forward, ReadsForward};
use super::{Mutant, forward_fault as fault};
use crate::cpu::mutant::arithmetic::ForwardFault;
use crate::cpu::mutant::misreading::score;

/// Narrower sums, scales and exponentials.
pub(super) const PRECISION: &[Mutant] = &[
    fault(
        "scale-fma-residue",
        Forward(ForwardFault::FusedResidue),
        &["FAS:fwd.softmax.shift", "FAS:bound.weight", "FAS:num.profile.standard"],
        "exponents in base 2 are a fused product less a rounded maximum, and not 0 at the maximum",
    ),
    fault(
        "qk-f16",
        Forward(ForwardFault::ProductF16),
        &[
            "FAS:fwd.score.scale",
            "FAS:num.profile.standard",
            "FAS:bound.fwd.output",
            "FAS:bound.fwd.lse",
        ],
        "products of query and key are summed in f16",
    ),
    fault(
        "acc-bf16",
        Forward(ForwardFault::NumeratorBf16),
        &["FAS:num.profile.standard", "FAS:bound.fwd.output"],
        "the numerator is rounded to bf16 after each block of keys",
    ),
    fault(
        "l-bf16",
        Forward(ForwardFault::NormalizerBf16),
        &["FAS:num.profile.standard", "FAS:bound.fwd.lse", "FAS:bound.fwd.output"],
        "the normalizer is rounded to bf16 after each block of keys",
    ),
    fault(
        "scale-bf16",
        ReadsForward(score::scale_bf16),
        &["FAS:fwd.score.scale", "FAS:num.profile.standard"],
        "the softmax scale is rounded to bf16",
    ),
    fault(
        "exp-12bit",
        Forward(ForwardFault::Exp12Bit),
        &[
            "FAS:num.profile.standard",
            "FAS:bound.weight",
            "FAS:bound.fwd.lse",
            "FAS:bound.fwd.output",
        ],
        "the exponential is rounded to 12 significant bits",
    ),
    fault(
        "exp-cut",
        Forward(ForwardFault::ExpCut),
        &[
            "FAS:num.profile.standard",
            "FAS:bound.weight",
            "FAS:bound.fwd.lse",
            "FAS:bound.fwd.output",
        ],
        "the exponential is cut off after 16 significant bits, towards zero",
    ),
    fault(
        "l-rounded",
        Forward(ForwardFault::RoundedNormalizer),
        &["FAS:num.profile.standard", "FAS:bound.fwd.lse"],
        "the normalizer sums weights as they were rounded for the values, which is not declared",
    ),
];
