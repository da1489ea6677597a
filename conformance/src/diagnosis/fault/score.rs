//! Faults of scores: what is done, or not done, to a product before the softmax.

use flashproof_oracle::row::RowIndex;
use flashproof_spec::format::Format;
use flashproof_spec::problem::Scale;
use flashproof_spec::score::{Alibi, Slopes, Softcap, SoftcapOrder};

use super::mask::opposite;
use super::{Fault, Variant, Variants, none, only, readings};
use crate::diagnosis::prediction::Term;
use crate::diagnosis::reading::{Reading, Score};
use crate::diagnosis::row::RowModel;

pub(super) const FAULTS: &[Fault] = &[
    Fault {
        name: "scale-sign",
        clause: "FAS:score.scale.sign",
        explanation: "a scale that is not positive is taken for another",
        same_variant: true,
        variants: scale_sign,
    },
    Fault {
        name: "bias-ignored",
        clause: "FAS:score.bias.add",
        explanation: "the bias is not added",
        same_variant: true,
        variants: bias_ignored,
    },
    Fault {
        name: "bias-head0",
        clause: "FAS:score.bias.broadcast",
        explanation: "every head has the bias of head 0",
        same_variant: true,
        variants: |row| bias_of(row, vec![("", RowIndex { head: 0, ..row.index })]),
    },
    Fault {
        name: "bias-broadcast",
        clause: "FAS:score.bias.broadcast",
        explanation: "the bias is not that of the row's place",
        same_variant: true,
        variants: bias_elsewhere,
    },
    Fault {
        name: "bias-scaled",
        clause: "FAS:score.bias.add",
        explanation: "the bias is not added as it is",
        same_variant: true,
        variants: bias_scaled,
    },
    Fault {
        name: "alibi-ignored",
        clause: "FAS:score.alibi.distance",
        explanation: "no ALiBi term is added",
        same_variant: true,
        variants: alibi_ignored,
    },
    Fault {
        name: "alibi-exponent",
        clause: "FAS:score.alibi.slopes",
        explanation: "the ALiBi slopes are others",
        same_variant: true,
        variants: other_slopes,
    },
    Fault {
        name: "alibi-alignment",
        clause: "FAS:score.alibi.distance",
        explanation: "the ALiBi distance is counted from another position than the query's own",
        same_variant: true,
        variants: alibi_alignment,
    },
    Fault {
        name: "alibi-signed",
        clause: "FAS:score.alibi.distance",
        explanation: "the ALiBi distance of a later key is negative",
        same_variant: true,
        variants: alibi_signed,
    },
    Fault {
        name: "softcap-ignored",
        clause: "FAS:score.softcap.tanh",
        explanation: "the softcap is not applied",
        same_variant: true,
        variants: softcap_ignored,
    },
    Fault {
        name: "softcap-order",
        clause: "FAS:choice.softcap.order",
        explanation: "the softcap is applied on the other side of bias and ALiBi",
        same_variant: true,
        variants: softcap_order,
    },
    Fault {
        name: "softcap-after-mask",
        clause: "FAS:score.softcap.before-mask",
        explanation: "keys that are hidden score -cap, as the cap of minus infinity",
        same_variant: true,
        variants: softcap_after_mask,
    },
    Fault {
        name: "uniform-weights",
        clause: "FAS:fwd.softmax.definition",
        explanation: "every visible key has the same weight",
        same_variant: true,
        variants: uniform,
    },
    Fault {
        name: "wrong-scale",
        clause: "FAS:fwd.score.scale",
        explanation: "the scores are scaled by another factor",
        same_variant: true,
        variants: rescaled,
    },
];

fn with_scale<'r, 'a>(row: &'r RowModel<'a>, scale: f64) -> Reading<'r, 'a> {
    Reading::with(row, |problem| problem.scale = Scale::Value(scale))
}

/// Absolute values, and defaults for what is false in languages where zero is.
fn scale_sign<'r>(row: &'r RowModel<'_>) -> Variants<'r> {
    let scale = row.problem.scale_f64();
    let usual = 1.0 / (row.problem.head_dim as f64).sqrt();
    if scale < 0.0 {
        let of_zero = with_scale(row, 0.0);
        readings(vec![("its magnitude", with_scale(row, -scale)), ("zero", of_zero)])
    } else if scale == 0.0 {
        readings(vec![("1/sqrt(head_dim)", with_scale(row, usual)), ("1", with_scale(row, 1.0))])
    } else {
        none()
    }
}

fn bias_ignored<'r>(row: &'r RowModel<'_>) -> Variants<'r> {
    if row.problem.bias.is_none() {
        return none();
    }
    readings(vec![
        ("", Reading::with(row, |problem| problem.bias = None)),
        ("but where it is minus infinity", Reading { bias_factor: 0.0, ..row.reading() }),
    ])
}

/// The bias of other rows, each in words.
fn bias_of<'r>(row: &'r RowModel<'_>, mut rows: Vec<(&'static str, RowIndex)>) -> Variants<'r> {
    rows.retain(|(_, bias_row)| row.problem.bias.is_some() && *bias_row != row.index);
    let other = |(detail, bias_row)| (detail, Reading { bias_row, ..row.reading() });
    readings(rows.into_iter().map(other).collect())
}

fn bias_elsewhere<'r>(row: &'r RowModel<'_>) -> Variants<'r> {
    let RowIndex { head, .. } = row.index;
    let group = row.problem.query_heads / row.problem.key_heads;
    bias_of(
        row,
        vec![
            ("that of its key head", RowIndex { head: head / group, ..row.index }),
            ("that of batch member 0", RowIndex { batch: 0, ..row.index }),
            ("that of query 0", RowIndex { query: 0, ..row.index }),
        ],
    )
}

fn bias_scaled<'r>(row: &'r RowModel<'_>) -> Variants<'r> {
    if row.problem.bias.is_none() {
        return none();
    }
    let factors = [
        ("scaled with the product", row.problem.scale_f64()),
        ("subtracted", -1.0),
        ("times ln 2: without the change of base", std::f64::consts::LN_2),
        ("times log2(e): the change of base with base e", std::f64::consts::LOG2_E),
    ];
    let scaled = |(detail, bias_factor)| (detail, Reading { bias_factor, ..row.reading() });
    readings(factors.into_iter().map(scaled).collect())
}

fn alibi_ignored<'r>(row: &'r RowModel<'_>) -> Variants<'r> {
    if row.problem.alibi.is_none() {
        return none();
    }
    readings(vec![("", Reading::with(row, |problem| problem.alibi = None))])
}

/// Other alibis of the same problem.
fn other_alibis<'r>(row: &'r RowModel<'_>, others: Vec<(&'static str, Alibi)>) -> Variants<'r> {
    let other =
        |(detail, alibi)| (detail, Reading::with(row, |problem| problem.alibi = Some(alibi)));
    readings(others.into_iter().map(other).collect())
}

/// The exponents that kernels mistake for `-8 (h + 1) / n`, with `n` the greatest power of two up to
/// the number of heads, and the further half for other heads.
fn other_slopes<'r>(row: &'r RowModel<'_>) -> Variants<'r> {
    let Some(alibi) = &row.problem.alibi else { return none() };
    let heads = row.problem.query_heads;
    let geometric = |first: f64, count: f64| {
        let slope = |head: usize| (-8.0 * (head as f64 + first) / count).exp2();
        let slopes = (0..heads).map(|head| Format::F32.round(slope(head))).collect();
        Alibi { slopes: Slopes::Given(slopes), alignment: alibi.alignment }
    };
    let (count, next) = (heads as f64, heads.next_power_of_two() as f64);
    let below = (heads + 1).next_power_of_two() as f64 / 2.0;
    let negative = (0..heads).map(|head| -alibi.slope(head, heads)).collect();
    let mut others = vec![
        ("2^(-8 h / n)", geometric(0.0, count)),
        ("2^(-8 (h + 1) / n), n the number of heads", geometric(1.0, count)),
        ("2^(-8 (h + 1) / n), n the next power of two", geometric(1.0, next)),
        ("2^(-8 (h + 1) / n), n the power of two before", geometric(1.0, below)),
        ("negative", Alibi { slopes: Slopes::Given(negative), alignment: alibi.alignment }),
    ];
    let slope = |alibi: &Alibi| alibi.slope(row.index.head, heads);
    others.retain(|(_, other)| slope(other) != slope(alibi));
    other_alibis(row, others)
}

fn alibi_alignment<'r>(row: &'r RowModel<'_>) -> Variants<'r> {
    let Some(alibi) = &row.problem.alibi else { return none() };
    let other = Alibi { alignment: opposite(alibi.alignment), ..alibi.clone() };
    other_alibis(row, vec![("", other)])
}

fn alibi_signed<'r>(row: &'r RowModel<'_>) -> Variants<'r> {
    if row.problem.alibi.is_none() {
        return none();
    }
    readings(vec![("", Reading { alibi_signed: true, ..row.reading() })])
}

fn softcap_ignored<'r>(row: &'r RowModel<'_>) -> Variants<'r> {
    if row.problem.softcap.is_none() {
        return none();
    }
    readings(vec![("", Reading::with(row, |problem| problem.softcap = None))])
}

fn softcap_order<'r>(row: &'r RowModel<'_>) -> Variants<'r> {
    let (Some(Softcap { cap, order }), true) = (row.problem.softcap, has_addends(row)) else {
        return none();
    };
    let order = match order {
        SoftcapOrder::BeforeBias => SoftcapOrder::AfterBias,
        SoftcapOrder::AfterBias => SoftcapOrder::BeforeBias,
    };
    readings(vec![("", Reading::with(row, |it| it.softcap = Some(Softcap { cap, order })))])
}

const fn has_addends(row: &RowModel<'_>) -> bool {
    row.problem.bias.is_some() || row.problem.alibi.is_some()
}

/// Every hidden key, or those in use alone, at `-cap`.
fn softcap_after_mask<'r>(row: &'r RowModel<'_>) -> Variants<'r> {
    let Some(Softcap { cap, .. }) = row.problem.softcap else { return none() };
    let visible = row.visible();
    let hidden = |key: &usize| visible.binary_search(key).is_err();
    let floor = Score { value: -cap, ..Score::default() };
    let extents = [("all of them", row.problem.key_len), ("those in use", row.used_keys())];
    let variant = |(detail, extent): (&str, usize)| {
        let reading = row.reading();
        let mut terms = reading.terms();
        terms.extend((0..extent).filter(hidden).map(|key| {
            let Term { factor, .. } = reading.term(key);
            Term { factor, ..Term::of(key, floor) }
        }));
        let changed = terms.len() > visible.len();
        let prediction = reading.prediction_of(terms);
        changed.then(|| Variant { prediction, detail: detail.to_owned() })
    };
    let variants: Vec<_> = extents.into_iter().filter_map(variant).collect();
    Box::new(variants.into_iter())
}

fn uniform<'r>(row: &'r RowModel<'_>) -> Variants<'r> {
    let reading = row.reading();
    let alike = |term: Term| Term {
        score: Score::default(),
        log_numerator: 0.0,
        log_normalizer: 0.0,
        ..term
    };
    only(reading.prediction_of(reading.terms().into_iter().map(alike).collect()))
}

/// The factors that kernels mistake for the scale.
fn rescaled<'r>(row: &'r RowModel<'_>) -> Variants<'r> {
    let problem = row.problem;
    let (d, d_v) = (problem.head_dim as f64, problem.value_dim as f64);
    let scale = problem.scale_f64();
    let mistakes = [
        ("1: not scaled", 1.0),
        ("scale squared: scaled twice", scale * scale),
        ("1/head_dim", 1.0 / d),
        ("1/sqrt(head_dim)", 1.0 / d.sqrt()),
        ("1/sqrt(value_dim)", 1.0 / d_v.sqrt()),
        ("scale * ln 2: base two without the change of base", scale * std::f64::consts::LN_2),
        ("scale * log2(e): the change of base with base e", scale * std::f64::consts::LOG2_E),
        ("-scale", -scale),
        ("scale rounded to bf16", Format::Bf16.round(scale)),
        ("scale rounded to f16", Format::F16.round(scale)),
    ];
    let others = mistakes.into_iter().filter(|(_, used)| *used != scale);
    readings(others.map(|(detail, used)| (detail, with_scale(row, used))).collect())
}
