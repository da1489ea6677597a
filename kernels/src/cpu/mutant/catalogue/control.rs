//! Controls: other correct kernels, which no suite may mind.

use super::Change::{Backward, Forward, Splits, Unchanged};
use super::{Mutant, backward_control as backward, forward_control as forward};
use crate::cpu::mutant::arithmetic::{BackwardFault, ForwardFault};

/// Other orders, tiles, splits and roundings, declared where the profile has a word for them.
pub(super) const CONTROLS: &[Mutant] = &[
    forward(
        "unchanged",
        Unchanged,
        &["FAS:fwd.softmax.definition"],
        "the copy of the passes that faults are put into, without a fault: tiled, bit for bit",
    ),
    forward(
        "other-tiles",
        Unchanged,
        &["FAS:fwd.tiled.partition"],
        "tiles of 16 queries by 48 keys",
    )
    .in_tiles(16, 48),
    forward(
        "other-splits",
        Splits(3, None),
        &["FAS:fwd.split.merge"],
        "keys in three splits, declared as such",
    ),
    forward(
        "keys-reversed",
        Forward(ForwardFault::KeysReversed),
        &["FAS:meta.key-permutation", "FAS:fwd.tiled.partition"],
        "blocks of keys, and keys within them, are taken last to first",
    )
    .in_tiles(16, 16),
    // A constant on every score of a row moves its LSE by as much and nothing else: the kernel
    // adds it back to its LSE, which so is the one that is asked for.
    forward(
        "alibi-shifted",
        Forward(ForwardFault::AlibiShifted),
        &["FAS:meta.score-shift", "FAS:fwd.lse.shift"],
        "ALiBi counts distances from 1, and the LSE is corrected by the slope",
    ),
    forward(
        "lazy-rescale",
        Forward(ForwardFault::LazyRescale),
        &["FAS:fwd.softmax.shift", "FAS:fwd.online.rescale"],
        "a small rise of the maximum changes nothing: weights up to 256 are measured from the old one",
    )
    .in_tiles(16, 16),
    forward(
        "l-rounded-declared",
        Forward(ForwardFault::DeclaredRoundedNormalizer),
        &["FAS:num.profile.standard"],
        "the normalizer sums weights as they were rounded for the values, and declares it",
    ),
    forward(
        "weights-unrounded",
        Forward(ForwardFault::DeclaredWideWeights),
        &["FAS:num.profile.standard"],
        "weights meet the values in the accumulator's format, and that is declared",
    ),
    forward(
        "reciprocal",
        Forward(ForwardFault::Reciprocal),
        &["FAS:num.profile.standard"],
        "the output is multiplied by the reciprocal of the normalizer, and declares it",
    ),
    forward(
        "exp-one-ulp",
        Forward(ForwardFault::ExpOneUlp),
        &["FAS:bound.weight"],
        "the exponential is the number after the right one, which the profile allows",
    ),
    backward(
        "blocks-reversed-bwd",
        Backward(BackwardFault::Reversed),
        &["FAS:bwd.tiled.order"],
        "blocks of keys and of queries are taken last to first",
    )
    .in_tiles(16, 16),
    backward(
        "exp-one-ulp-bwd",
        Backward(BackwardFault::ExpOneUlp),
        &["FAS:bwd.probability.recompute"],
        "the exponential is the number after the right one, which the profile allows",
    ),
];
