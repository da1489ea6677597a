//! Faults in which keys a query sees.

use super::Change::{Forward, ReadsForward};
use super::{Mutant, forward_fault as fault};
use crate::cpu::mutant::arithmetic::ForwardFault;
use crate::cpu::mutant::misreading::mask;

/// Masks that are read as others, and what they hide.
pub(super) const MASKS: &[Mutant] = &[
    fault(
        "causal-top-left",
        ReadsForward(mask::causal_top_left),
        &["FAS:mask.causal.bottom-right"],
        "a causal mask aligned at the last key is aligned at the first",
    ),
    fault(
        "causal-strict",
        ReadsForward(mask::causal_strict),
        &["FAS:mask.causal.top-left", "FAS:mask.causal.bottom-right"],
        "a causal mask hides the key at the query's own position",
    ),
    fault(
        "causal-loop-short",
        Forward(ForwardFault::CausalLoopShort),
        &[
            "FAS:mask.causal.top-left",
            "FAS:mask.causal.bottom-right",
            "FAS:fwd.tiled.partition",
            "FAS:fwd.softmax.every-key",
        ],
        "the loop over blocks of keys ends at the last whole one below the causal bound",
    )
    .in_tiles(16, 64),
    fault(
        "window-plus-one",
        ReadsForward(mask::window_plus_one),
        &["FAS:mask.window.inclusive"],
        "a window reaches one key further to the left",
    ),
    fault(
        "window-right-open",
        ReadsForward(mask::window_right_open),
        &["FAS:mask.window.inclusive"],
        "a window has no end on the right",
    ),
    fault(
        "window-top-left",
        ReadsForward(mask::window_top_left),
        &["FAS:mask.window.inclusive"],
        "a window aligned at the last key is aligned at the first",
    ),
    fault(
        "prefix-plus-one",
        ReadsForward(mask::prefix_plus_one),
        &["FAS:mask.prefix.bidirectional"],
        "a prefix has one key more",
    ),
    fault(
        "chunk-boundary",
        ReadsForward(mask::chunk_boundary),
        &["FAS:mask.chunk.local"],
        "the first query of a chunk is counted to the chunk before it",
    ),
    fault(
        "dilated-from-zero",
        ReadsForward(mask::dilated_from_first),
        &["FAS:mask.dilated.step"],
        "every so many keys are counted from the first, not from the query's own position",
    ),
    fault(
        "document-of-tile",
        ReadsForward(mask::document_of_first),
        &["FAS:mask.document.same"],
        "the document of the first key of a tile is taken for that of all of its keys",
    ),
    fault(
        "left-padding-seen",
        ReadsForward(mask::left_padding_seen),
        &["FAS:mask.length.left-padding", "FAS:fwd.special.invisible"],
        "keys before the start of a sequence are seen",
    ),
    fault(
        "read-past-length",
        Forward(ForwardFault::ReadPastLength),
        &["FAS:mask.length.padding", "FAS:fwd.special.invisible"],
        "the key after the last in use is seen",
    ),
    fault(
        "length-of-batch-0",
        ReadsForward(mask::length_of_first),
        &["FAS:mask.length.padding", "FAS:meta.batch-independence"],
        "the key length of the first batch member is taken for that of all",
    ),
    fault(
        "block-sparse-transposed",
        ReadsForward(mask::blocks_transposed),
        &["FAS:mask.block-sparse.pattern"],
        "a pattern of blocks is read with its axes swapped",
    ),
    fault(
        "mask-head0",
        ReadsForward(mask::boolean_on_first_head),
        &["FAS:mask.boolean.broadcast"],
        "a mask for all heads is applied to the first alone",
    ),
    fault(
        "mask-of-head-0",
        ReadsForward(mask::boolean_of_first_head),
        &["FAS:mask.boolean.broadcast", "FAS:meta.head-independence"],
        "the mask of the first head is applied to all",
    ),
    fault(
        "masked-v-multiply",
        Forward(ForwardFault::MaskedValueMultiply),
        &["FAS:fwd.special.invisible"],
        "hidden values are multiplied by 0 and added",
    ),
];
