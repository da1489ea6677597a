//! Faults in how scores and weights come about.

use super::Change::{Forward, ReadsForward, Splits};
use super::{Mutant, forward_fault as fault};
use crate::cpu::mutant::arithmetic::ForwardFault;
use crate::cpu::mutant::merge::MergeFault;
use crate::cpu::mutant::misreading::score;

/// As many splits as the split kernel has by default.
const SPLITS: usize = 4;

/// Scale, softcap, bias, ALiBi, sinks and dropout.
pub(super) const SCORES: &[Mutant] = &[
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
];
