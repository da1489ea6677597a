//! The known faults of backward kernels, each as a change to the right computation.

use std::f64::consts::{LN_2, LOG2_E};

use flashproof_spec::format::Format;

use super::change::{Axis, Change, EndOfAxis, Misplaced};
use super::element::{explains, within_carry};
use super::model::Model;
use super::{FailingGradient, GradientOf};
use crate::diagnosis::Finding;

/// A way in which a backward kernel can be wrong.
pub struct GradientFault {
    /// Short name, as in the list of mutants.
    pub name: &'static str,
    /// The clause that is violated.
    pub clause: &'static str,
    /// What a kernel with this fault does.
    pub explanation: &'static str,
    kind: Kind,
}

enum Kind {
    /// One of these changes, the same for all elements, with its particulars.
    OneOf(&'static [(Change, &'static str)]),
    /// One gradient alone, off by what a narrower format than is declared explains.
    Narrow(Format),
}

/// Every fault, the most specific first.
pub static GRADIENT_FAULTS: &[GradientFault] = &[
    GradientFault {
        name: "dq-zero",
        clause: "FAS:bwd.query.gradient",
        explanation: "dQ is zero: it is never computed",
        kind: Kind::OneOf(&[(Change::Times(GradientOf::Query, 0.0), "")]),
    },
    GradientFault {
        name: "dk-zero",
        clause: "FAS:bwd.key.scale",
        explanation: "dK is zero: it is never computed",
        kind: Kind::OneOf(&[(Change::Times(GradientOf::Key, 0.0), "")]),
    },
    GradientFault {
        name: "dv-zero",
        clause: "FAS:bwd.value.gradient",
        explanation: "dV is zero: it is never computed",
        kind: Kind::OneOf(&[(Change::Times(GradientOf::Value, 0.0), "")]),
    },
    GradientFault {
        name: "dbias-zero",
        clause: "FAS:bwd.bias.gradient",
        explanation: "dBias is zero: it is never computed",
        kind: Kind::OneOf(&[(Change::Times(GradientOf::Bias, 0.0), "")]),
    },
    GradientFault {
        name: "dbias-no-reduce",
        clause: "FAS:bwd.bias.reduce",
        explanation: "dBias is not summed over all that share an entry of the bias",
        kind: Kind::OneOf(&[
            (Change::OneOfAxis(Axis::Batch, EndOfAxis::Last), "it holds the last batch member"),
            (Change::OneOfAxis(Axis::Batch, EndOfAxis::First), "it holds the first batch member"),
            (Change::OneOfAxis(Axis::Head, EndOfAxis::Last), "it holds the last head"),
            (Change::OneOfAxis(Axis::Head, EndOfAxis::First), "it holds the first head"),
            (Change::OneOfAxis(Axis::Query, EndOfAxis::Last), "it holds the last query"),
            (Change::OneOfAxis(Axis::Query, EndOfAxis::First), "it holds the first query"),
            (Change::OneOfAxis(Axis::Key, EndOfAxis::Last), "it holds the last key"),
            (Change::OneOfAxis(Axis::Key, EndOfAxis::First), "it holds the first key"),
        ]),
    },
    GradientFault {
        name: "dbias-scaled",
        clause: "FAS:bwd.bias.gradient",
        explanation: "dBias is not the gradient of the score",
        kind: Kind::OneOf(&[
            (Change::Scale(GradientOf::Bias, 1), "it is scaled"),
            (Change::Times(GradientOf::Bias, -1.0), "it has the wrong sign"),
        ]),
    },
    GradientFault {
        name: "dsink-zero",
        clause: "FAS:bwd.sink.gradient",
        explanation: "dSink is zero: it is never computed",
        kind: Kind::OneOf(&[(Change::Times(GradientOf::Sink, 0.0), "")]),
    },
    GradientFault {
        name: "dsink-sign",
        clause: "FAS:bwd.sink.gradient",
        explanation: "dSink has the wrong sign",
        kind: Kind::OneOf(&[(Change::Times(GradientOf::Sink, -1.0), "")]),
    },
    GradientFault {
        name: "no-tanh-prime",
        clause: "FAS:bwd.softcap.slope",
        explanation: "dS is not multiplied by the softcap's slope",
        kind: Kind::OneOf(&[(Change::NoSlope, "")]),
    },
    GradientFault {
        name: "dropout-post-p",
        clause: "FAS:bwd.dropout.keep",
        explanation: "dropout is not applied to dP, and to P in dV alone",
        kind: Kind::OneOf(&[
            (Change::Dropout(Misplaced::OnWeights), "in dS it is applied to P instead"),
            (Change::Dropout(Misplaced::OnBoth), "in dS it is applied to P as well"),
            (Change::Dropout(Misplaced::NotOnDp), "in dS it is not applied"),
            (Change::Dropout(Misplaced::NotOnValue), "in dV it is not applied"),
            (Change::Dropout(Misplaced::Nowhere), "it is not applied at all"),
        ]),
    },
    GradientFault {
        name: "dlse-ignored",
        clause: "FAS:bwd.lse.gradient",
        explanation: "the upstream gradient of the LSE does not enter as declared",
        kind: Kind::OneOf(&[
            (Change::LseGradient(0.0), "it is taken for zero"),
            (Change::LseGradient(-1.0), "it has the wrong sign"),
        ]),
    },
    GradientFault {
        name: "no-delta",
        clause: "FAS:bwd.score.gradient",
        explanation: "dS = P dP: D is not subtracted",
        kind: Kind::OneOf(&[(Change::NoDelta, "")]),
    },
    GradientFault {
        name: "delta-stale",
        clause: "FAS:bwd.delta.rowsum",
        explanation: "D comes from the output of another row",
        kind: Kind::OneOf(&[
            (Change::DeltaOfNeighbour(-1), "the one before"),
            (Change::DeltaOfNeighbour(1), "the one after"),
        ]),
    },
    GradientFault {
        name: "delta-do-do",
        clause: "FAS:bwd.delta.rowsum",
        explanation: "D is the row sum of dO squared, not of dO times the output",
        kind: Kind::OneOf(&[(Change::DeltaOfGradient, "")]),
    },
    GradientFault {
        name: "lse-read-base2",
        clause: "FAS:bwd.probability.recompute",
        explanation: "P is recomputed from an LSE in another base than it is stored in",
        kind: Kind::OneOf(&[
            (Change::LseUnit(LN_2), "it is read as a binary logarithm"),
            (Change::LseUnit(LOG2_E), "it is converted from nats where a natural one is expected"),
        ]),
    },
    GradientFault {
        name: "dk-unscaled",
        clause: "FAS:bwd.key.scale",
        explanation: "dK is not scaled exactly once",
        kind: Kind::OneOf(&[
            (Change::Scale(GradientOf::Key, -1), "not at all"),
            (Change::Scale(GradientOf::Key, 1), "twice"),
        ]),
    },
    GradientFault {
        name: "dq-unscaled",
        clause: "FAS:bwd.query.scale",
        explanation: "dQ is not scaled exactly once",
        kind: Kind::OneOf(&[
            (Change::Scale(GradientOf::Query, -1), "not at all"),
            (Change::Scale(GradientOf::Query, 1), "twice"),
        ]),
    },
    GradientFault {
        name: "dkv-overwrite",
        clause: "FAS:bwd.head.group-sum",
        explanation: "dK and dV hold one query head of the group, not the sum over it",
        kind: Kind::OneOf(&[
            (Change::OneHead(EndOfAxis::Last), "the last"),
            (Change::OneHead(EndOfAxis::First), "the first"),
        ]),
    },
    GradientFault {
        name: "mask-shift",
        clause: "FAS:bwd.probability.mask",
        explanation: "the backward mask is not the forward one",
        kind: Kind::OneOf(&[
            (Change::MaskEnd(1), "it ends one key later"),
            (Change::MaskEnd(-1), "it ends one key earlier"),
            (Change::Unmasked, "it is missing"),
        ]),
    },
    GradientFault {
        name: "bwd-pad-zero",
        clause: "FAS:bwd.probability.mask",
        explanation: "positions that the row does not see score 0, and weigh e^(0 - LSE)",
        kind: Kind::OneOf(&[
            (Change::TileScoresZero(16), "to the end of tiles of 16"),
            (Change::TileScoresZero(32), "to the end of tiles of 32"),
            (Change::TileScoresZero(64), "to the end of tiles of 64"),
            (Change::TileScoresZero(128), "to the end of tiles of 128"),
        ]),
    },
    GradientFault {
        name: "bf16-accumulator",
        clause: "FAS:bwd.accumulator.precision",
        explanation: "a gradient is carried in bf16 where a wider accumulator is declared",
        kind: Kind::Narrow(Format::Bf16),
    },
];

impl GradientFault {
    /// The finding, if this fault explains every one of the elements. `off`: some of them are
    /// further from the right computation than roundings take it.
    pub(super) fn finding(
        &self,
        model: &Model<'_>,
        failing: &[FailingGradient],
        off: bool,
    ) -> Option<Finding> {
        let detail = match &self.kind {
            Kind::OneOf(changes) => changes
                .iter()
                .find(|(change, _)| off && failing.iter().all(|at| explains(*change, model, at)))
                .map(|(_, detail)| *detail)?,
            Kind::Narrow(format) => carried_in(*format, model, failing)?,
        };
        let explanation = if detail.is_empty() {
            self.explanation.to_owned()
        } else {
            format!("{} ({detail})", self.explanation)
        };
        Some(Finding { fault: self.name, clause: self.clause, explanation })
    }
}

/// How one gradient shows that it was carried in `format` between blocks: by elements that are all
/// numbers of it, where its own format is wider; or else by the size of its errors.
fn carried_in(
    format: Format,
    model: &Model<'_>,
    failing: &[FailingGradient],
) -> Option<&'static str> {
    let quantity = failing.first()?.quantity;
    if failing.iter().any(|at| at.quantity != quantity) {
        return None;
    }
    let gradient = model.of(quantity)?;
    let wider = gradient.format().precision() > format.precision();
    if wider && gradient.values().iter().all(|&x| format.represents(x)) {
        Some("its every element is a number of that format")
    } else if failing.iter().all(|at| within_carry(format, model, at)) {
        Some("its errors have that size")
    } else {
        None
    }
}
