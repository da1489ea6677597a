//! Faults of the online softmax and of the LSE.

use super::Change::{AnswersForward, Forward, Splits};
use super::{Mutant, forward_fault as fault};
use crate::cpu::mutant::answer;
use crate::cpu::mutant::arithmetic::ForwardFault;
use crate::cpu::mutant::merge::MergeFault;

/// As many splits as the split kernel has by default.
const SPLITS: usize = 4;

/// What a row keeps between blocks of keys, and how parts of it are merged.
pub(super) const SOFTMAX: &[Mutant] = &[
    fault(
        "max-init-finite",
        Forward(ForwardFault::MaxInitFinite),
        &["FAS:fwd.online.identity", "FAS:score.bias.finite", "FAS:fwd.softmax.shift"],
        "the running maximum starts at -50000, so that lower scores weigh nothing",
    ),
    fault(
        "dead-block-max-zero",
        Forward(ForwardFault::DeadBlockMaxZero),
        &["FAS:fwd.online.masked-block"],
        "a block without visible keys leaves a maximum of 0, so that later low scores underflow",
    ),
    fault(
        "no-inf-guard",
        Forward(ForwardFault::NoInfGuard),
        &["FAS:fwd.online.masked-block", "FAS:fwd.special.infinity", "FAS:fwd.output.finite"],
        "a block without visible keys subtracts minus infinity from itself",
    ),
    fault(
        "empty-row-mean",
        Forward(ForwardFault::EmptyRowMean),
        &["FAS:fwd.softmax.empty-row"],
        "a row without visible keys is the mean of all values",
    ),
    fault(
        "skip-acc-rescale",
        Forward(ForwardFault::SkipNumeratorRescale),
        &["FAS:fwd.online.rescale", "FAS:fwd.online.merge"],
        "the numerator is not rescaled when the maximum rises; the normalizer is",
    ),
    fault(
        "skip-l-rescale",
        Forward(ForwardFault::SkipNormalizerRescale),
        &["FAS:fwd.online.rescale", "FAS:fwd.online.merge"],
        "the normalizer is not rescaled when the maximum rises; the numerator is",
    ),
    fault(
        "lazy-rescale-frame",
        Forward(ForwardFault::LazyRescaleFrame),
        &["FAS:fwd.online.rescale"],
        "a small rise of the maximum rescales nothing, but new weights are measured from it",
    ),
    fault(
        "tie-shift-underflow",
        Forward(ForwardFault::TieShift),
        &["FAS:fwd.softmax.shift"],
        "where scores tie, the maximum is doubled, or 0 if it is negative, and weights underflow",
    ),
    fault(
        "stale-max",
        Forward(ForwardFault::StaleMaximum),
        &["FAS:fwd.online.identity", "FAS:fwd.softmax.shift"],
        "a row starts from the maximum of the row before it, and low scores underflow",
    ),
    fault(
        "drop-key",
        Forward(ForwardFault::DropKey),
        &["FAS:fwd.softmax.every-key"],
        "the last query of each head misses the first key that it sees",
    ),
    fault(
        "drop-tail-block",
        Forward(ForwardFault::DropTailBlock),
        &["FAS:fwd.softmax.every-key", "FAS:fwd.tiled.partition", "FAS:fwd.tiled.tail"],
        "the last block of keys is not entered where it is shorter than a tile",
    ),
    fault(
        "tail-score-zero",
        Forward(ForwardFault::TailScoreZero),
        &["FAS:fwd.tiled.tail"],
        "positions between the last key and the end of its tile have a score of 0",
    ),
    fault(
        "nan-to-zero",
        AnswersForward(answer::nan_to_zero),
        &["FAS:fwd.special.nan", "FAS:fwd.special.score"],
        "a NaN in the output is replaced by 0",
    ),
    fault(
        "merge-empty-nan",
        Splits(SPLITS, Some(MergeFault::EmptyNan)),
        &["FAS:fwd.split.merge", "FAS:fwd.merge.partials", "FAS:fwd.softmax.empty-row"],
        "the merge of splits does not leave out those without keys",
    ),
    fault(
        "merge-unweighted",
        Splits(SPLITS, Some(MergeFault::Unweighted)),
        &["FAS:fwd.split.merge", "FAS:fwd.merge.partials"],
        "the merge of splits averages their outputs without weights",
    ),
    fault(
        "merge-without-max",
        Splits(SPLITS, Some(MergeFault::WithoutMaximum)),
        &["FAS:fwd.split.merge", "FAS:fwd.merge.partials", "FAS:fwd.softmax.shift"],
        "the merge of splits exponentiates LSEs without taking their maximum off",
    ),
];

/// The LSE.
pub(super) const LSE: &[Mutant] = &[
    fault(
        "lse-base2",
        AnswersForward(answer::lse_in_base_2),
        &["FAS:fwd.lse.definition", "FAS:choice.lse.base"],
        "the LSE is in binary logarithm, undeclared",
    ),
    fault(
        "empty-lse-plus-inf",
        AnswersForward(answer::empty_lse_plus_infinity),
        &["FAS:fwd.softmax.empty-row"],
        "the LSE of a row without visible keys is plus infinity",
    ),
    fault(
        "lse-without-max",
        Forward(ForwardFault::LseWithoutMaximum),
        &["FAS:fwd.lse.definition"],
        "the LSE is the logarithm of the normalizer, without the maximum",
    ),
    fault(
        "lse-from-rounded",
        Forward(ForwardFault::LseFromRounded),
        &["FAS:fwd.lse.definition", "FAS:num.profile.standard", "FAS:bound.fwd.lse"],
        "the LSE is of the weights as they were rounded for the values",
    ),
];
