//! Each fault of scores, sinks and dropout is found under its own name first, and not in a right
//! answer.

mod support;

use flashproof_spec::format::Format;
use flashproof_spec::mask::{Alignment, Mask, Rule, Site};
use flashproof_spec::pattern::Pattern;
use flashproof_spec::problem::{Problem, Scale};
use flashproof_spec::score::{
    Alibi, Bias, Dropout, Sink, Slopes, Softcap, SoftcapOrder, standard_slopes,
};
use flashproof_spec::tensor::{Inputs, Tensor};
use support::diagnosed::{assert_found, assert_found_with};
use support::simulated::{Committed, NONE, Parts};

/// Six query heads on two key heads: not a power of two, and no square group.
fn base(format: Format) -> Problem {
    Problem { key_heads: 2, query_len: 7, key_len: 12, ..Problem::new(format, 6, 12, 16) }
}

fn biased(format: Format) -> Problem {
    Problem { bias: Some(Bias { shape: [1, 6, 7, 12], format }), ..base(format) }
}

#[test]
fn a_negative_scale_taken_for_its_magnitude() {
    let shape = |format| Problem { scale: Scale::Value(-0.25), ..base(format) };
    let fault = Committed { score: |it| Parts { scale: it.scale.abs(), ..it }.score(), ..NONE };
    assert_found(shape, fault, "scale-sign", "FAS:score.scale.sign");
}

#[test]
fn a_scale_of_zero_taken_for_none() {
    let shape = |format| Problem { scale: Scale::Value(0.0), ..base(format) };
    let fault = Committed { score: |it| Parts { scale: 0.25, ..it }.score(), ..NONE };
    assert_found(shape, fault, "scale-sign", "FAS:score.scale.sign");
}

#[test]
fn a_wrong_scale_is_found_beside_a_bias() {
    let fault = Committed { score: |it| Parts { scale: 1.0, ..it }.score(), ..NONE };
    assert_found(biased, fault, "wrong-scale", "FAS:fwd.score.scale");
}

#[test]
fn a_bias_ignored() {
    let fault = Committed { score: |it| Parts { bias: 0.0, ..it }.score(), ..NONE };
    assert_found(biased, fault, "bias-ignored", "FAS:score.bias.add");
}

#[test]
fn a_bias_scaled_with_the_product() {
    let fault = Committed { score: |it| Parts { bias: it.scale * it.bias, ..it }.score(), ..NONE };
    assert_found(biased, fault, "bias-scaled", "FAS:score.bias.add");
}

#[test]
fn the_bias_of_head_0_for_every_head() {
    let fault = Committed { bias_site: |_, site| Site { head: 0, ..site }, ..NONE };
    assert_found(biased, fault, "bias-head0", "FAS:score.bias.broadcast");
}

#[test]
fn a_bias_that_is_broadcast_wrongly() {
    let clause = "FAS:score.bias.broadcast";
    let of_key_head =
        Committed { bias_site: |_, site| Site { head: site.head / 3, ..site }, ..NONE };
    assert_found(biased, of_key_head, "bias-broadcast", clause);
    let of_query_0 = Committed { bias_site: |_, site| Site { query: 0, ..site }, ..NONE };
    assert_found(biased, of_query_0, "bias-broadcast", clause);
    let of_member_0 = Committed { bias_site: |_, site| Site { batch: 0, ..site }, ..NONE };
    let shape = |format| Problem {
        batch: 2,
        bias: Some(Bias { shape: [2, 1, 7, 12], format }),
        ..base(format)
    };
    assert_found(shape, of_member_0, "bias-broadcast", clause);
}

fn with_alibi(format: Format) -> Problem {
    let alibi = Alibi { slopes: Slopes::Standard, alignment: Alignment::BottomRight };
    Problem { alibi: Some(alibi), ..base(format) }
}

#[test]
fn no_alibi() {
    let fault = Committed { alibi: |_, _| 0.0, ..NONE };
    assert_found(with_alibi, fault, "alibi-ignored", "FAS:score.alibi.distance");
}

fn distance(problem: &Problem, site: Site) -> f64 {
    let lengths = problem.used_lengths(site.batch);
    (Alignment::BottomRight.position(site.query, lengths) - site.key as i128) as f64
}

#[test]
fn alibi_slopes_of_another_exponent() {
    let clause = "FAS:score.alibi.slopes";
    // 2^(-8 (h + 1) / n) with n the number of heads, or the next power of two, for any of them.
    let all_alike: fn(&Problem, Site) -> f64 = |problem, site| {
        let exponent = -8.0 * (site.head as f64 + 1.0) / problem.query_heads as f64;
        -exponent.exp2() * distance(problem, site).abs()
    };
    let next_power: fn(&Problem, Site) -> f64 =
        |problem, site| -standard_slopes(8)[site.head] * distance(problem, site).abs();
    let from_zero: fn(&Problem, Site) -> f64 = |problem, site| {
        let exponent = -8.0 * site.head as f64 / problem.query_heads as f64;
        -exponent.exp2() * distance(problem, site).abs()
    };
    for alibi in [all_alike, next_power, from_zero] {
        assert_found(with_alibi, Committed { alibi, ..NONE }, "alibi-exponent", clause);
    }
}

#[test]
fn alibi_of_another_alignment() {
    let alibi: fn(&Problem, Site) -> f64 = |problem, site| {
        let distance = site.query as f64 - site.key as f64;
        -standard_slopes(problem.query_heads)[site.head] * distance.abs()
    };
    let fault = Committed { alibi, ..NONE };
    assert_found(with_alibi, fault, "alibi-alignment", "FAS:score.alibi.distance");
}

#[test]
fn alibi_with_signed_distances() {
    let alibi: fn(&Problem, Site) -> f64 =
        |problem, site| -standard_slopes(problem.query_heads)[site.head] * distance(problem, site);
    let fault = Committed { alibi, ..NONE };
    assert_found(with_alibi, fault, "alibi-signed", "FAS:score.alibi.distance");
}

fn capped(format: Format, order: SoftcapOrder) -> Problem {
    Problem { softcap: Some(Softcap { cap: 1.0, order }), ..biased(format) }
}

#[test]
fn a_softcap_ignored() {
    let fault = Committed { score: |it| Parts { softcap: None, ..it }.score(), ..NONE };
    let shape = |format| capped(format, SoftcapOrder::BeforeBias);
    assert_found(shape, fault, "softcap-ignored", "FAS:score.softcap.tanh");
}

#[test]
fn a_softcap_on_the_other_side_of_the_bias() {
    let clause = "FAS:choice.softcap.order";
    let after = Committed {
        score: |it| {
            let order = SoftcapOrder::AfterBias;
            Parts { softcap: it.softcap.map(|softcap| Softcap { order, ..softcap }), ..it }.score()
        },
        ..NONE
    };
    assert_found(|it| capped(it, SoftcapOrder::BeforeBias), after, "softcap-order", clause);
    let before = Committed {
        score: |it| {
            let order = SoftcapOrder::BeforeBias;
            Parts { softcap: it.softcap.map(|softcap| Softcap { order, ..softcap }), ..it }.score()
        },
        ..NONE
    };
    assert_found(|it| capped(it, SoftcapOrder::AfterBias), before, "softcap-order", clause);
}

/// llama.cpp PR#29034: the cap of minus infinity is minus the cap.
#[test]
fn a_softcap_after_the_mask() {
    let hidden = |problem: &Problem| problem.softcap.map(|softcap| -softcap.cap);
    let shape = |format| Problem {
        mask: Mask::only(Rule::CausalBottomRight),
        ..capped(format, SoftcapOrder::BeforeBias)
    };
    let fault = Committed { hidden, ..NONE };
    assert_found(shape, fault, "softcap-after-mask", "FAS:score.softcap.before-mask");
}

fn sunk(format: Format) -> Problem {
    Problem { sink: Some(Sink::Logits(format)), ..base(format) }
}

#[test]
fn a_sink_ignored() {
    let fault = Committed { sinks: |_| Vec::new(), ..NONE };
    assert_found(sunk, fault, "sink-ignored", "FAS:score.sink.normalizer");
    let of_zero = |format| Problem { sink: Some(Sink::Zero), ..base(format) };
    assert_found(of_zero, fault, "sink-ignored", "FAS:score.sink.normalizer");
}

#[test]
fn a_sink_counted_more_than_once() {
    let clause = "FAS:score.sink.once";
    let twice: fn(Option<f64>) -> Vec<f64> = |sink| sink.into_iter().cycle().take(2).collect();
    let per_split: fn(Option<f64>) -> Vec<f64> = |sink| sink.into_iter().cycle().take(16).collect();
    for sinks in [twice, per_split] {
        assert_found(sunk, Committed { sinks, ..NONE }, "sink-per-split", clause);
    }
}

#[test]
fn an_lse_without_the_sink() {
    let fault = Committed {
        row: |row, sinks, value, d_v| {
            let (output, _) = support::simulated::right(row, sinks, value, d_v);
            let (_, lse) = support::simulated::right(row, &[], value, d_v);
            (output, lse)
        },
        ..NONE
    };
    assert_found(sunk, fault, "lse-sink", "FAS:choice.lse.sink");
}

fn dropped(format: Format) -> Problem {
    let keep = Pattern::from_fn([1, 6, 7, 12], |[_, head, query, key]| {
        (head + 2 * query + 3 * key) % 5 > 1
    });
    Problem { dropout: Some(Dropout { scale: 2.0, keep }), ..base(format) }
}

const DROPOUT: &str = "FAS:score.dropout.keep";

#[test]
fn dropout_ignored() {
    let fault = Committed { kept: |_, _| (1.0, true), ..NONE };
    assert_found(dropped, fault, "dropout-ignored", DROPOUT);
}

#[test]
fn dropout_without_its_scale() {
    let fault = Committed {
        kept: |problem, site| (if problem.dropout_at(site) == 0.0 { 0.0 } else { 1.0 }, true),
        ..NONE
    };
    assert_found(dropped, fault, "dropout-unscaled", DROPOUT);
}

#[test]
fn dropout_inverted() {
    let fault = Committed {
        kept: |problem, site| (if problem.dropout_at(site) == 0.0 { 2.0 } else { 0.0 }, true),
        ..NONE
    };
    assert_found(dropped, fault, "dropout-inverted", DROPOUT);
}

#[test]
fn dropout_in_the_normalizer() {
    let fault = Committed {
        kept: |problem, site| {
            let kept = problem.dropout_at(site);
            (kept, kept != 0.0)
        },
        ..NONE
    };
    assert_found(dropped, fault, "dropout-normalizer", DROPOUT);
}

/// The inputs with the bias of one query minus infinity throughout.
fn with_masked_row(inputs: Inputs) -> Inputs {
    let bias = inputs.bias.as_ref().expect("a bias");
    let mut values = bias.values().clone();
    values.index_axis_mut(ndarray::Axis(2), 3).fill(f64::NEG_INFINITY);
    let bias = Tensor::rounded(bias.format(), &values);
    Inputs { bias: Some(bias), ..inputs }
}

#[test]
fn a_row_of_minus_infinity_as_nan() {
    let fault = Committed { empty: (f64::NAN, f64::NAN), ..NONE };
    let clause = "FAS:choice.masked-row.output";
    assert_found_with(biased, with_masked_row, fault, "masked-row-nan", clause);
    let shape = |format| Problem { mask: Mask::only(Rule::QueryLengths(vec![4])), ..base(format) };
    assert_found(shape, fault, "empty-row-nan", "FAS:fwd.softmax.empty-row");
}
