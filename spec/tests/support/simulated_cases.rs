//! Heads, score modifications and kernels for the simulated backward pass.

use flashproof_spec::format::Format;
use flashproof_spec::mask::Alignment;
use flashproof_spec::pattern::Pattern;
use flashproof_spec::problem::Problem;
use flashproof_spec::profile::Profile;
use flashproof_spec::score::{Alibi, Bias, Dropout, Sink, Slopes, Softcap, SoftcapOrder};
use proptest::prelude::*;

use crate::exact_gradients::ExactHead;
use crate::simulated::{Inputs, RowInputs, SlopeForm, Style};

pub const HEAD_DIM: usize = 3;
pub const VALUE_DIM: usize = 2;

/// A row before its forward pass: query, visible keys, upstream gradients, and by what share of
/// themselves the kernel's own outputs and LSE are off.
pub type RowData = (Vec<f64>, Vec<bool>, Vec<f64>, f64, (Vec<f64>, f64));

/// A key and its value.
pub type KeyData = (Vec<f64>, Vec<f64>);

/// What a problem has besides queries, keys and values; numbers before they are rounded to their
/// format.
#[derive(Clone, Debug, Default)]
pub struct Modifications {
    pub softcap: Option<Softcap>,
    /// Which axes are broadcast, the format, and the entries, as many as may be needed.
    pub bias: Option<([bool; 2], Format, Vec<f64>)>,
    pub alibi: Option<Slopes>,
    pub sink: Option<(f64, Format)>,
    /// Dropout's scale, and which weights are kept, as many as may be needed.
    pub dropout: Option<(f64, Vec<bool>)>,
}

/// A problem with what a kernel reads.
#[derive(Clone, Debug)]
pub struct Case {
    pub problem: Problem,
    pub inputs: Inputs,
}

impl Case {
    pub fn new(
        format: Format,
        rows: &[RowData],
        keys: &[KeyData],
        modifications: &Modifications,
    ) -> Self {
        let problem = problem(format, rows.len(), keys.len(), modifications);
        let rounded = |x: &[f64]| x.iter().map(|&x| format.round(x)).collect::<Vec<_>>();
        let (keys, values): (Vec<_>, Vec<_>) =
            keys.iter().map(|(key, value)| (rounded(key), rounded(value))).unzip();
        let plain =
            rows.iter().map(|(query, visible, output_gradient, lse_gradient, _)| RowInputs {
                query: rounded(query),
                visible: visible.clone(),
                output_gradient: rounded(output_gradient),
                lse_gradient: Format::F32.round(*lse_gradient),
                output: vec![0.0; VALUE_DIM],
                lse: 0.0,
            });
        let bias = modifications.bias.as_ref().zip(problem.bias);
        let bias = bias.map_or(Vec::new(), |((_, format, entries), bias)| {
            let count = bias.shape.iter().product();
            entries.iter().take(count).map(|&entry| format.round(entry)).collect()
        });
        let sink = modifications.sink.map(|(logit, format)| format.round(logit));
        let mut inputs = Inputs { rows: plain.collect(), keys, values, bias, sink };
        let exact = ExactHead::new(&problem, &inputs).rows;
        for ((row, exact), (.., (output_share, lse_shift))) in
            inputs.rows.iter_mut().zip(&exact).zip(rows)
        {
            let Some(exact) = exact else { continue };
            row.lse = Format::F32.round(exact.lse.to_f64() + lse_shift);
            let output = exact.output.iter().zip(output_share);
            row.output =
                output.map(|(o, share)| format.round(o.to_f64() * (1.0 + share))).collect();
        }
        Self { problem, inputs }
    }
}

fn problem(format: Format, rows: usize, keys: usize, modifications: &Modifications) -> Problem {
    let Modifications { softcap, bias, alibi, sink, dropout } = modifications;
    let extent = |broadcast: bool, full: usize| if broadcast { 1 } else { full };
    Problem {
        query_len: rows,
        value_dim: VALUE_DIM,
        softcap: *softcap,
        bias: bias.as_ref().map(|([queries_broadcast, keys_broadcast], format, _)| Bias {
            shape: [1, 1, extent(*queries_broadcast, rows), extent(*keys_broadcast, keys)],
            format: *format,
        }),
        alibi: alibi.clone().map(|slopes| Alibi { slopes, alignment: Alignment::BottomRight }),
        sink: sink.map(|(_, format)| Sink::Logits(format)),
        dropout: dropout.as_ref().map(|(scale, keep)| Dropout {
            scale: *scale,
            keep: Pattern::from_fn([1, 1, rows, keys], |[_, _, q, k]| keep[q * keys + k]),
        }),
        ..Problem::new(format, 1, keys, HEAD_DIM)
    }
}

fn vector(entries: usize, largest: f64) -> impl Strategy<Value = Vec<f64>> {
    prop::collection::vec(-largest..largest, entries)
}

/// Nothing, or so much of a number, up or down.
fn share(largest: f64) -> impl Strategy<Value = f64> {
    prop_oneof![2 => Just(0.0), 1 => -largest..largest]
}

/// Entries of one size, or all zero: then every score is, and other roundings than theirs decide.
fn calm_vector(entries: usize, largest: f64) -> impl Strategy<Value = Vec<f64>> {
    prop_oneof![2 => vector(entries, largest), 1 => Just(vec![0.0; entries])]
}

const ROWS: usize = 2;
const KEYS: usize = 3;

fn formats() -> impl Strategy<Value = Format> {
    prop::sample::select(vec![Format::F32, Format::F16, Format::Bf16])
}

fn softcaps() -> impl Strategy<Value = Option<Softcap>> {
    let orders = prop::sample::select(vec![SoftcapOrder::BeforeBias, SoftcapOrder::AfterBias]);
    // Scores of a few units are linear, bent and saturated under these.
    let caps = prop::sample::select(vec![0.25, 1.0, 3.0, 50.0]);
    prop::option::of((caps, orders).prop_map(|(cap, order)| Softcap { cap, order }))
}

/// Ordinary entries, and the lowest number of the format, which hides nothing.
fn biases() -> impl Strategy<Value = Option<([bool; 2], Format, Vec<f64>)>> {
    let bias = (any::<[bool; 2]>(), formats()).prop_flat_map(|(broadcast, format)| {
        let lowest = -format.max_finite();
        let entry = prop_oneof![6 => -4.0..4.0_f64, 1 => Just(lowest)];
        (Just(broadcast), Just(format), prop::collection::vec(entry, ROWS * KEYS))
    });
    prop::option::of(bias)
}

fn modifications() -> impl Strategy<Value = Modifications> {
    let slopes = vec![Slopes::Standard, Slopes::Given(vec![0.75])];
    let alibi = prop::option::of(prop::sample::select(slopes));
    let sink = prop::option::of((-4.0..4.0_f64, formats()));
    // Probabilities of 1/2, 1/5, 1/10 and 7/8.
    let scales = [2.0, 1.25, 1.0 / 0.9, 8.0].map(|scale| Format::F32.round(scale));
    let keep = prop::collection::vec(prop::bool::weighted(0.7), ROWS * KEYS);
    let dropout = prop::option::of((prop::sample::select(scales.to_vec()), keep));
    (softcaps(), biases(), alibi, sink, dropout).prop_map(
        |(softcap, bias, alibi, sink, dropout)| Modifications {
            softcap,
            bias,
            alibi,
            sink,
            dropout,
        },
    )
}

/// With a first key of ordinary bias, which every row sees that sees any: a row of lowest scores alone
/// has no bound, for its LSE is as inexact as they are.
fn with_a_normal_key(
    mut modifications: Modifications,
    rows: &mut [RowData],
    keys: usize,
) -> Modifications {
    if let Some(([_, keys_broadcast], format, entries)) = &mut modifications.bias {
        let stride = if *keys_broadcast { 1 } else { keys };
        let firsts = entries.iter_mut().step_by(stride);
        firsts.filter(|entry| **entry == -format.max_finite()).for_each(|entry| *entry = 0.0);
        for (_, visible, ..) in rows {
            visible[0] |= visible.contains(&true);
        }
    }
    modifications
}

/// A head with the kernel's own outputs and LSE, which may be wrong by a large part of themselves:
/// what the forward pass was off by is measured, not bounded.
fn cases(
    modifications: impl Strategy<Value = Modifications>,
    lse_shift: f64,
) -> impl Strategy<Value = (Format, Case)> {
    let sizes = (formats(), 1..=ROWS, 1..=KEYS, modifications);
    sizes.prop_flat_map(move |(format, rows, keys, modifications)| {
        let row = (
            calm_vector(HEAD_DIM, 4.0),
            prop::collection::vec(prop::bool::weighted(0.8), keys),
            vector(VALUE_DIM, 4.0),
            share(4.0),
            (prop::collection::vec(share(0.25), VALUE_DIM), share(lse_shift)),
        );
        let key = (vector(HEAD_DIM, 4.0), calm_vector(VALUE_DIM, 4.0));
        (prop::collection::vec(row, rows), prop::collection::vec(key, keys)).prop_map(
            move |(mut rows, keys)| {
                let modifications = with_a_normal_key(modifications.clone(), &mut rows, keys.len());
                (format, Case::new(format, &rows, &keys, &modifications))
            },
        )
    })
}

fn styles() -> impl Strategy<Value = Style> {
    (any::<[bool; 5]>(), prop::sample::select(SlopeForm::ALL.to_vec())).prop_map(
        |(
            [base_two, folded_lse_gradient, folded_scale, late_dropout, narrow_bias_terms],
            slope,
        )| {
            Style {
                base_two,
                folded_lse_gradient,
                folded_scale,
                late_dropout,
                narrow_bias_terms,
                slope,
            }
        },
    )
}

/// The standard profile, and some that say so where they compute in less.
fn profile(format: Format) -> impl Strategy<Value = Profile> {
    let standard = Profile::standard(format);
    let carried = Profile { carried_format: Format::Bf16, ..standard.clone() };
    let scores = Profile { score_format: Format::F16, ..standard.clone() };
    prop::sample::select(vec![standard, carried, scores])
}

fn runs_of(
    modifications: impl Strategy<Value = Modifications>,
    lse_shift: f64,
) -> impl Strategy<Value = (Case, Profile, Style)> {
    (cases(modifications, lse_shift), styles())
        .prop_flat_map(|((format, case), style)| (Just(case), profile(format), Just(style)))
}

/// Everything that a run without score modifications needs.
pub fn plain_runs() -> impl Strategy<Value = (Case, Profile, Style)> {
    runs_of(Just(Modifications::default()), 8.0)
}

/// Everything that a run with any of them needs.
pub fn modified_runs() -> impl Strategy<Value = (Case, Profile, Style)> {
    // Dropout's scale and e^8 together would leave the range of binary16.
    runs_of(modifications(), 2.0)
}
