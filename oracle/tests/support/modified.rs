//! Cases with any masks and score modifications, drawn by proptest.

use flashproof_spec::format::Format;
use flashproof_spec::mask::Alignment;
use flashproof_spec::pattern::Pattern;
use flashproof_spec::score::{Alibi, Bias, Dropout, Sink, Slopes, Softcap, SoftcapOrder};
use proptest::prelude::*;

use super::inputs::{Case, Entries, case, entries, entry, tensor};

/// One query and a few keys as in [`case`], with score modifications: each of them present or absent. The
/// first key is visible.
pub fn modified() -> impl Strategy<Value = Case> {
    (case(), softcap(), with_bias(), alibi(), with_sink(), any::<bool>()).prop_flat_map(
        |(case, softcap, bias, alibi, sink, drops)| {
            let key_len = case.problem.key_len;
            let dropout = if drops { dropout(case.problem.format, key_len) } else { none() };
            let bias =
                bias.map_or_else(none, |(format, entries)| bias_of(format, entries, key_len));
            let sink = sink.map_or_else(none, sink_of);
            (Just(case), bias, sink, dropout).prop_map(move |(case, bias, sink, dropout)| {
                let mut case = case;
                case.problem.softcap = softcap;
                case.problem.alibi.clone_from(&alibi);
                case.problem.dropout = dropout;
                if let Some((format, values)) = bias {
                    let shape = [1, 1, 1, values.len()];
                    case.problem.bias = Some(Bias { shape, format });
                    case.inputs.bias = Some(tensor(format, &shape, values));
                }
                if let Some((sink, logits)) = sink {
                    case.problem.sink = Some(sink);
                    if let Sink::Logits(format) = sink {
                        case.inputs.sink = Some(tensor(format, &[1], logits));
                    }
                }
                case
            })
        },
    )
}

/// As [`modified`], without a softcap: scores are algebraic numbers.
pub fn algebraic() -> impl Strategy<Value = Case> {
    modified().prop_map(|mut case| {
        case.problem.softcap = None;
        case
    })
}

fn none<T: Clone + std::fmt::Debug + 'static>() -> BoxedStrategy<Option<T>> {
    Just(None).boxed()
}

fn softcap() -> impl Strategy<Value = Option<Softcap>> {
    let cap = prop_oneof![
        3 => prop::sample::select(vec![0.5, 1.0, 30.0, 50.0]),
        1 => 0.01..100.0_f64,
        1 => prop::sample::select(vec![1e-30, 1e30, f64::MAX, f64::MIN_POSITIVE]),
    ];
    let order = prop_oneof![Just(SoftcapOrder::BeforeBias), Just(SoftcapOrder::AfterBias)];
    prop::option::of((cap, order).prop_map(|(cap, order)| Softcap { cap, order }))
}

fn format() -> impl Strategy<Value = Format> {
    prop::sample::select(Format::ALL.to_vec())
}

fn with_bias() -> impl Strategy<Value = Option<(Format, Entries)>> {
    prop::option::of((format(), entries()))
}

/// A bias over the keys or broadcast to them, its first entry finite.
fn bias_of(
    format: Format,
    entries: Entries,
    key_len: usize,
) -> BoxedStrategy<Option<(Format, Vec<f64>)>> {
    let hidden = if format.has_infinity() { f64::NEG_INFINITY } else { -format.max_finite() };
    let entry = prop_oneof![
        6 => entry(format, entries),
        1 => Just(-format.max_finite()),
        1 => Just(hidden),
    ];
    let values = prop_oneof![
        1 => prop::collection::vec(entry.clone(), 1),
        3 => prop::collection::vec(entry, key_len),
    ];
    let first_is_finite = move |mut values: Vec<f64>| {
        values[0] = values[0].max(-format.max_finite());
        values
    };
    values.prop_map(move |values| Some((format, first_is_finite(values)))).boxed()
}

fn alibi() -> impl Strategy<Value = Option<Alibi>> {
    let slopes = prop_oneof![
        Just(Slopes::Standard),
        (-4.0..4.0_f32).prop_map(|slope| Slopes::Given(vec![f64::from(slope)])),
        Just(Slopes::Given(vec![f64::from(f32::MAX)])),
    ];
    let alignment = prop_oneof![Just(Alignment::TopLeft), Just(Alignment::BottomRight)];
    let alibi = (slopes, alignment).prop_map(|(slopes, alignment)| Alibi { slopes, alignment });
    prop::option::of(alibi)
}

fn with_sink() -> impl Strategy<Value = Option<Option<(Format, Entries)>>> {
    prop_oneof![
        2 => Just(None),
        1 => Just(Some(None)),
        2 => (format(), entries()).prop_map(|logits| Some(Some(logits))),
    ]
}

fn sink_of(logits: Option<(Format, Entries)>) -> BoxedStrategy<Option<(Sink, Vec<f64>)>> {
    match logits {
        None => Just(Some((Sink::Zero, vec![]))).boxed(),
        Some((format, entries)) => {
            let logits = prop::collection::vec(entry(format, entries), 1);
            logits.prop_map(move |logits| Some((Sink::Logits(format), logits))).boxed()
        }
    }
}

fn dropout(format: Format, key_len: usize) -> BoxedStrategy<Option<Dropout>> {
    let scale = match format {
        Format::F64 => prop::sample::select(vec![1.0, 2.0, 4.0]).boxed(),
        _ => prop_oneof![Just(1.25), (0.1..10.0_f32).prop_map(f64::from)].boxed(),
    };
    (scale, prop::collection::vec(any::<bool>(), key_len))
        .prop_map(move |(scale, bits)| {
            let keep = Pattern::new([1, 1, 1, key_len], bits).expect("one truth value a key");
            Some(Dropout { scale, keep })
        })
        .boxed()
}
