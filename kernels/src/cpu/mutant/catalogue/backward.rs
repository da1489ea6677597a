//! Faults of the backward pass.

use super::Change::{AnswersBackward, Backward, ReadsBackward, Storage};
use super::{Mutant, backward_fault as fault};
use crate::cpu::mutant::answer;
use crate::cpu::mutant::arithmetic::BackwardFault;
use crate::cpu::mutant::misreading::backward;
use crate::cpu::mutant::storage::StorageFault;

/// Weights and the gradients of scores.
pub(super) const SCORE_GRADIENTS: &[Mutant] = &[
    fault(
        "no-delta",
        Backward(BackwardFault::NoDelta),
        &["FAS:bwd.score.gradient", "FAS:bwd.delta.rowsum"],
        "dS is P dP, without D",
    ),
    fault(
        "delta-stale",
        ReadsBackward(backward::delta_of_another_row),
        &["FAS:bwd.delta.rowsum"],
        "D is of the output of the row before",
    ),
    fault(
        "delta-do-do",
        ReadsBackward(backward::delta_of_gradient),
        &["FAS:bwd.delta.rowsum"],
        "D is the row sum of the output's gradient squared",
    ),
    fault(
        "dlse-ignored",
        ReadsBackward(backward::lse_gradient_ignored),
        &["FAS:bwd.lse.gradient"],
        "the gradient of the LSE is ignored",
    ),
    fault(
        "dlse-sign",
        ReadsBackward(backward::lse_gradient_negated),
        &["FAS:bwd.lse.gradient"],
        "the gradient of the LSE has the wrong sign",
    ),
    fault(
        "lse-read-base2",
        ReadsBackward(backward::lse_from_base_2),
        &["FAS:bwd.probability.recompute"],
        "the LSE is read as if it were in binary logarithm",
    ),
    fault(
        "bwd-pad-zero",
        Backward(BackwardFault::PadZero),
        &["FAS:bwd.probability.mask"],
        "positions past the last key have a score of 0, whose weight overflows where the LSE is low",
    ),
    fault(
        "bwd-mask-wider",
        Backward(BackwardFault::MaskWider),
        &["FAS:bwd.probability.mask"],
        "the key after the last that a query sees has a weight",
    ),
    fault(
        "bwd-unmasked",
        Backward(BackwardFault::Unmasked),
        &["FAS:bwd.probability.mask"],
        "hidden keys have a weight",
    ),
];

/// The sums that gradients are.
pub(super) const SUMS: &[Mutant] = &[
    fault(
        "dk-unscaled",
        Backward(BackwardFault::KeyUnscaled),
        &["FAS:bwd.key.scale"],
        "dK is not multiplied by the softmax scale",
    ),
    fault(
        "dq-scale-twice",
        Backward(BackwardFault::QueryScaledTwice),
        &["FAS:bwd.query.scale"],
        "dQ is multiplied by the softmax scale twice",
    ),
    fault(
        "dq-zero",
        AnswersBackward(answer::query_gradient_zero),
        &["FAS:bwd.query.gradient", "FAS:bwd.output.written"],
        "dQ is zero",
    ),
    fault(
        "dq-overwrite",
        Backward(BackwardFault::QueryOverwrite),
        &["FAS:bwd.query.gradient", "FAS:bwd.tiled.order"],
        "each block of keys overwrites dQ",
    ),
    fault(
        "dkv-overwrite",
        Backward(BackwardFault::GroupOverwrite),
        &["FAS:bwd.head.group-sum"],
        "each query head of a group overwrites dK and dV",
    ),
    fault(
        "dkv-group-mod",
        Backward(BackwardFault::WrongGroup),
        &["FAS:bwd.head.group-sum", "FAS:head.group.block"],
        "dK and dV of key head h are summed over query heads h mod key_heads",
    ),
    fault(
        "drop-query",
        Backward(BackwardFault::DropQuery),
        &["FAS:bwd.key.scale", "FAS:bwd.value.gradient", "FAS:bwd.tiled.order"],
        "the last query brings nothing to dK and dV",
    ),
    fault(
        "dv-bf16-acc",
        Backward(BackwardFault::ValueBf16),
        &["FAS:bwd.accumulator.precision", "FAS:bound.bwd.value", "FAS:num.profile.standard"],
        "dV is rounded to bf16 after each block of queries",
    ),
    fault(
        "dk-bf16-acc",
        Backward(BackwardFault::KeyBf16),
        &["FAS:bwd.accumulator.precision", "FAS:bound.bwd.key", "FAS:num.profile.standard"],
        "dK is rounded to bf16 after each block of queries",
    ),
    fault(
        "dq-order",
        Backward(BackwardFault::QueryOrder),
        &["FAS:repeat.deterministic"],
        "blocks of keys add to dQ in an order that changes from call to call",
    )
    .in_tiles(16, 16),
    fault(
        "skip-zero-len-store",
        Storage(StorageFault::SkipEmpty),
        &["FAS:bwd.output.written", "FAS:layout.ownership"],
        "dK and dV of a batch member without queries are not written",
    ),
];

/// Gradients of what modifies scores, and through it.
pub(super) const MODIFIED: &[Mutant] = &[
    fault(
        "dropout-post-p",
        Backward(BackwardFault::DropoutPostWeight),
        &["FAS:bwd.dropout.keep"],
        "dS is of the weights after dropout and of dP before it",
    ),
    fault(
        "mask-shift",
        ReadsBackward(backward::kept_shifted),
        &["FAS:bwd.dropout.keep"],
        "what dropout keeps is looked up one key too far",
    ),
    fault(
        "dropout-unscaled-bwd",
        ReadsBackward(backward::dropout_unscaled),
        &["FAS:bwd.dropout.keep"],
        "the scale of dropout is left out",
    ),
    fault(
        "no-tanh-prime",
        Backward(BackwardFault::NoSlope),
        &["FAS:bwd.softcap.slope"],
        "the slope of the softcap is left out",
    ),
    fault(
        "softcap-slope-argument",
        Backward(BackwardFault::SlopeOfScore),
        &["FAS:bwd.softcap.slope"],
        "the slope of the softcap is taken at the capped score",
    ),
    fault(
        "dbias-no-reduce",
        Backward(BackwardFault::BiasNoReduce),
        &["FAS:bwd.bias.reduce"],
        "the gradient of a shared bias is that of one of the scores that share it",
    ),
    fault(
        "dbias-scaled",
        AnswersBackward(answer::bias_gradient_scaled),
        &["FAS:bwd.bias.gradient"],
        "the gradient of the bias is multiplied by the softmax scale",
    ),
    fault(
        "dsink-no-batch-sum",
        Backward(BackwardFault::SinkOfLastMember),
        &["FAS:bwd.sink.gradient"],
        "the gradient of a sink is the last batch member's part of it",
    ),
];
