//! Faults of the forward pass.

use super::Change::{AnswersForward, Forward, ReadsForward, Splits, Storage};
use super::{Change, Mutant, Pass};
use crate::cpu::mutant::answer;
use crate::cpu::mutant::arithmetic::ForwardFault;
use crate::cpu::mutant::merge::MergeFault;
use crate::cpu::mutant::misreading::{heads, mask, score};
use crate::cpu::mutant::storage::StorageFault;

const fn fault(
    name: &'static str,
    change: Change,
    clauses: &'static [&'static str],
    summary: &'static str,
) -> Mutant {
    Mutant::fault(Pass::Forward, name, change, clauses, summary)
}

pub(super) fn faults() -> Vec<Mutant> {
    [softmax(), precision(), masks(), scores(), lse(), placed()].into_iter().flatten().collect()
}

/// The online softmax.
fn softmax() -> Vec<Mutant> {
    vec![
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
            &["FAS:fwd.online.rescale"],
            "the numerator is not rescaled when the maximum rises; the normalizer is",
        ),
        fault(
            "skip-l-rescale",
            Forward(ForwardFault::SkipNormalizerRescale),
            &["FAS:fwd.online.rescale"],
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
    ]
}

/// As many splits as the split kernel has by default.
const SPLITS: usize = 4;

/// Roundings that the declared profile does not have.
fn precision() -> Vec<Mutant> {
    vec![
        fault(
            "scale-fma-residue",
            Forward(ForwardFault::FusedResidue),
            &["FAS:fwd.softmax.shift", "FAS:bound.weight", "FAS:num.profile.standard"],
            "weights are of a fused product less a rounded maximum, which is not 0 at the maximum",
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
    ]
}

/// Which keys a query sees.
fn masks() -> Vec<Mutant> {
    vec![
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
    ]
}

/// How scores and weights come about.
fn scores() -> Vec<Mutant> {
    vec![
        fault(
            "scale-twice",
            ReadsForward(score::scale_twice),
            &["FAS:fwd.score.scale"],
            "the softmax scale is applied twice",
        ),
        fault(
            "scale-of-value-dim",
            ReadsForward(score::scale_of_value_dim),
            &["FAS:fwd.score.scale"],
            "the softmax scale is taken from the entries of a value, not of a query",
        ),
        fault(
            "first-64-entries",
            Forward(ForwardFault::First64Entries),
            &["FAS:fwd.score.scale", "FAS:problem.shape"],
            "only the first 64 entries of query and key are multiplied",
        ),
        fault(
            "softcap-after-mask",
            Forward(ForwardFault::SoftcapAfterMask),
            &["FAS:score.softcap.before-mask"],
            "a softcap makes the minus infinity of a hidden key finite",
        ),
        fault(
            "softcap-order",
            ReadsForward(score::softcap_order),
            &["FAS:choice.softcap.order"],
            "a softcap is applied on the other side of the bias",
        ),
        fault(
            "bias-scaled",
            ReadsForward(score::bias_scaled),
            &["FAS:score.bias.add"],
            "the bias is added before the softmax scale is applied",
        ),
        fault(
            "bias-of-head-0",
            ReadsForward(score::bias_of_first_head),
            &["FAS:score.bias.broadcast", "FAS:meta.head-independence"],
            "the bias of the first head is added in all",
        ),
        fault(
            "bias-of-query-0",
            ReadsForward(score::bias_of_first_query),
            &["FAS:score.bias.broadcast"],
            "the bias of the first query is added for all",
        ),
        fault(
            "bias-not-broadcast",
            ReadsForward(score::bias_not_broadcast),
            &["FAS:score.bias.broadcast"],
            "a bias with shared axes is read as if it had none",
        ),
        fault(
            "alibi-exponent",
            ReadsForward(score::alibi_exponent),
            &["FAS:score.alibi.slopes"],
            "the exponent of ALiBi's slopes starts from 0",
        ),
        fault(
            "alibi-power-of-two",
            ReadsForward(score::alibi_power_of_two),
            &["FAS:score.alibi.slopes"],
            "ALiBi's slopes of a power of two heads are used for any number of them",
        ),
        fault(
            "alibi-sign",
            ReadsForward(score::alibi_sign),
            &["FAS:score.alibi.distance"],
            "scores rise with ALiBi's distance",
        ),
        fault(
            "sink-dropped",
            ReadsForward(score::sink_dropped),
            &["FAS:score.sink.normalizer"],
            "sinks are ignored",
        ),
        fault(
            "sink-not-in-l",
            Forward(ForwardFault::SinkNotInNormalizer),
            &["FAS:score.sink.normalizer"],
            "a sink counts in the maximum and not in the normalizer",
        ),
        fault(
            "sink-per-split",
            Splits(SPLITS, Some(MergeFault::SinkPerSplit)),
            &["FAS:score.sink.once", "FAS:fwd.split.merge"],
            "every split of the keys counts the sink",
        ),
        fault(
            "dropout-unscaled",
            ReadsForward(score::dropout_unscaled),
            &["FAS:score.dropout.keep"],
            "weights that dropout keeps are not multiplied by its scale",
        ),
        fault(
            "dropout-in-l",
            Forward(ForwardFault::DropoutInNormalizer),
            &["FAS:score.dropout.keep"],
            "weights that dropout leaves out are left out of the normalizer too",
        ),
    ]
}

/// The LSE.
fn lse() -> Vec<Mutant> {
    vec![
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
    ]
}

/// Which elements are read and written.
fn placed() -> Vec<Mutant> {
    vec![
        fault(
            "gqa-head-mod",
            ReadsForward(heads::modulo),
            &["FAS:head.group.block"],
            "query head h reads key head h mod key_heads",
        ),
        fault(
            "output-transposed",
            AnswersForward(answer::heads_and_queries_swapped),
            &["FAS:problem.shape", "FAS:meta.head-independence"],
            "the output is written with the axes of heads and queries swapped",
        ),
        fault(
            "last-query-unwritten",
            AnswersForward(answer::last_query_unwritten),
            &["FAS:fwd.output.written"],
            "the last query is not written where queries do not fill a store of four",
        ),
        fault(
            "assume-packed",
            Storage(StorageFault::AssumePacked),
            &["FAS:layout.strided"],
            "query, key and value are read without their strides",
        ),
        fault(
            "offset-i32",
            Storage(StorageFault::Offset32),
            &["FAS:layout.offset"],
            "offsets are 32-bit integers, and wrap",
        ),
        fault(
            "pages-of-batch-0",
            Storage(StorageFault::PagesOfFirst),
            &["FAS:layout.paged", "FAS:meta.batch-independence"],
            "the pages of the first batch member are read for all",
        ),
        fault(
            "write-past-tail",
            Storage(StorageFault::WritePastTail),
            &["FAS:layout.ownership"],
            "the store of a sequence's last queries goes one row further",
        ),
    ]
}
