//! A forward kernel with adversarial roundings stays within the bounds on its outputs and its LSE.
//!
//! To first order an output moves by a fixed amount for each rounding, so the worst roundings are
//! known once each has been tried alone: its largest error in whichever direction moves the output
//! away from the exact one. Those, and random ones, must stay within the bound.

#[path = "support/simulated_forward.rs"]
mod simulated_forward;
mod support;

use flashproof_spec::bound::{Bound, RowCondition, forward};
use flashproof_spec::format::Format;
use flashproof_spec::problem::{Problem, Scale};
use flashproof_spec::profile::{Accumulation, LogError, Normalizer, Profile, Schedule};
use ndarray::Array2;
use proptest::prelude::*;
use rug::Float;
use rug::float::Round;
use simulated_forward::{BITS, Inputs, Kernel, KeyValue, Roundings, Style, big, exact_scale};
use support::settings;

/// `|x|` from above.
fn hi(x: &Float) -> f64 {
    Float::with_val(BITS, x.abs_ref()).to_f64_round(Round::Up)
}

/// What is exact of one row.
struct Exact {
    condition: RowCondition,
    values: Array2<f64>,
    /// Outputs, then the LSE.
    row: Vec<Float>,
}

impl Exact {
    fn new(problem: &Problem, inputs: &Inputs) -> Self {
        let keys: Vec<&KeyValue> = inputs.keys.iter().flatten().collect();
        let scale = exact_scale(problem);
        let products = |key: &KeyValue| -> Vec<Float> {
            inputs.query.iter().zip(&key.key).map(|(&q, &k)| big(q) * k * &scale).collect()
        };
        let total = |xs: Vec<Float>| xs.iter().fold(big(0.0), |sum, x| sum + x);
        let scores: Vec<Float> = keys.iter().map(|key| total(products(key))).collect();
        let masses =
            keys.iter().map(|key| total(products(key).into_iter().map(Float::abs).collect()));
        let m = scores.iter().max_by(|a, b| a.total_cmp(b)).expect("a visible key");
        let gaps: Vec<Float> = scores.iter().map(|s| Float::with_val(BITS, m - s)).collect();
        let weights: Vec<Float> =
            gaps.iter().map(|gap| Float::with_val(BITS, -gap).exp()).collect();
        let l = total(weights.clone());
        let p: Vec<Float> = weights.iter().map(|w| Float::with_val(BITS, w / &l)).collect();
        let lse = Float::with_val(BITS, l.ln_ref()) + m;
        let output: Vec<Float> = (0..problem.value_dim)
            .map(|j| total(p.iter().zip(&keys).map(|(p, key)| big(key.value[j]) * p).collect()))
            .collect();
        let condition = RowCondition {
            gap_hi: gaps.iter().map(hi).collect(),
            score_magnitude_hi: scores.iter().map(hi).collect(),
            dot_mass_hi: masses.map(|mass| hi(&mass)).collect(),
            probability_lo: p.iter().map(|p| p.to_f64_round(Round::Down)).collect(),
            probability_hi: p.iter().map(hi).collect(),
            max_magnitude_hi: hi(m),
            normalizer_lo: l.to_f64_round(Round::Down),
            normalizer_hi: hi(&l),
            lse_magnitude_hi: hi(&lse),
            output_lo: output.iter().map(|o| o.to_f64_round(Round::Down)).collect(),
            output_hi: output.iter().map(|o| o.to_f64_round(Round::Up)).collect(),
        };
        let values = keys.iter().flat_map(|key| key.value.iter().copied()).collect();
        let values = Array2::from_shape_vec((keys.len(), problem.value_dim), values)
            .expect("value rows of one length");
        Self { condition, values, row: output.into_iter().chain([lse]).collect() }
    }
}

/// A row and the bounds around its outputs and its LSE; no bound is infinite.
struct Allowed {
    exact: Vec<Float>,
    bounds: Vec<f64>,
}

impl Allowed {
    fn new(problem: &Problem, profile: &Profile, inputs: &Inputs) -> Self {
        let Exact { condition, values, row } = Exact::new(problem, inputs);
        let bounds = forward(problem, profile, &condition, &values.view());
        let bounds = bounds.output.into_iter().chain([bounds.lse]);
        let bounds = bounds.map(|bound| match bound {
            Bound::Within(bound) => bound,
            Bound::None(_) => f64::INFINITY,
        });
        Self { exact: row, bounds: bounds.collect() }
    }

    /// `|found - exact| / bound` of each entry.
    fn ratios(&self, found: Vec<Float>) -> Vec<f64> {
        let entries = found.into_iter().zip(&self.exact).zip(&self.bounds);
        entries
            .map(|((found, exact), &bound)| {
                let error = if found.is_finite() {
                    Float::with_val(BITS, &found - exact).abs()
                } else {
                    big(f64::INFINITY)
                };
                if error.is_zero() || bound == f64::INFINITY {
                    0.0
                } else {
                    (error / bound).to_f64_round(Round::Up)
                }
            })
            .collect()
    }
}

fn sign(x: &Float) -> f64 {
    if x.is_zero() { 0.0 } else { f64::from(x.is_sign_positive()) * 2.0 - 1.0 }
}

/// The largest ratio of each entry over the worst roundings of every entry.
fn worst_ratios(kernel: &Kernel<'_>, inputs: &Inputs, allowed: &Allowed) -> Vec<f64> {
    let mut plain = Roundings::new(&[]);
    let unrounded = kernel.run(inputs, &mut plain);
    let count = plain.taken();
    let mut effects = vec![vec![0.0; count]; unrounded.len()];
    let mut alone = vec![0.0; count];
    for k in 0..count {
        alone[k] = 1.0;
        let moved = kernel.run(inputs, &mut Roundings::new(&alone));
        alone[k] = 0.0;
        for (effect, (moved, plain)) in effects.iter_mut().zip(moved.iter().zip(&unrounded)) {
            effect[k] = sign(&Float::with_val(BITS, moved - plain));
        }
    }
    let mut worst = vec![0.0_f64; unrounded.len()];
    for plan in &effects {
        for direction in [1.0, -1.0] {
            let plan: Vec<f64> = plan.iter().map(|sign| sign * direction).collect();
            let found = kernel.run(inputs, &mut Roundings::new(&plan));
            for (worst, ratio) in worst.iter_mut().zip(allowed.ratios(found)) {
                *worst = worst.max(ratio);
            }
        }
    }
    worst
}

/// Magnitudes of query and key entries: their products are scores of about 1, of hundreds, of up to
/// a million, so large that weights leave the range of f32, and so small that f16 loses them.
fn magnitudes() -> impl Strategy<Value = (f64, f64)> {
    let one = || prop::sample::select(vec![0.0, 1.0, 4.0, 12.0, 30.0, 300.0, 1000.0]);
    prop_oneof![
        8 => (one(), one()),
        1 => Just((50_000.0, 50_000.0)),
        1 => Just((1.0 / 1024.0, 1.0 / 1024.0)),
    ]
}

fn vector(entries: usize, largest: f64) -> impl Strategy<Value = Vec<f64>> {
    prop::collection::vec(-1.0..=1.0_f64, entries)
        .prop_map(move |xs| xs.into_iter().map(|x| x * largest).collect())
}

/// Values of one column: of one size, nearly constant, cancelling, or subnormal.
fn column(format: Format, keys: usize) -> impl Strategy<Value = Vec<f64>> {
    let subnormal = format.smallest_subnormal();
    prop_oneof![
        2 => vector(keys, 4.0),
        1 => (-4.0..4.0_f64, vector(keys, 1.0 / 64.0))
            .prop_map(|(c, xs)| xs.into_iter().map(|x| c * (1.0 + x)).collect()),
        1 => (-4.0..4.0_f64, prop::collection::vec(any::<bool>(), keys))
            .prop_map(|(c, up)| up.into_iter().map(|up| if up { c } else { -c }).collect()),
        1 => vector(keys, 60_000.0),
        1 => vector(keys, 20.0)
            .prop_map(move |xs| xs.into_iter().map(|x| x.round() * subnormal).collect()),
    ]
}

fn inputs(format: Format) -> impl Strategy<Value = Inputs> {
    let sizes = (
        prop_oneof![3 => 1_usize..5, 1 => 5_usize..13],
        prop_oneof![3 => 1_usize..4, 1 => 4_usize..9],
    );
    (sizes, 1_usize..4, magnitudes()).prop_flat_map(move |((keys, dim), columns, (q, k))| {
        (
            vector(dim, q),
            prop::collection::vec(vector(dim, k), keys),
            // From which of the keys each is copied, if at all: ties.
            prop::collection::vec(prop::option::weighted(0.3, 0..keys), keys),
            prop::collection::vec(prop::bool::weighted(0.9), keys),
            0..keys,
            prop::collection::vec(column(format, keys), columns),
        )
            .prop_map(move |(query, keys, copies, mut visible, seen, columns)| {
                visible[seen] = true;
                let rounded = |x: f64| format.round(x);
                let keys = (0..keys.len())
                    .map(|i| {
                        visible[i].then(|| KeyValue {
                            key: keys[copies[i].unwrap_or(i)]
                                .iter()
                                .copied()
                                .map(rounded)
                                .collect(),
                            value: columns.iter().map(|column| rounded(column[i])).collect(),
                        })
                    })
                    .collect();
                Inputs { query: query.into_iter().map(rounded).collect(), keys }
            })
    })
}

fn styles() -> impl Strategy<Value = Style> {
    (any::<(bool, bool, bool, bool)>(), prop::bool::weighted(0.25), 0_usize..4).prop_map(
        |((base_two, rounded_references, reciprocal, separate_blocks), folded_scale, split)| {
            Style { base_two, folded_scale, rounded_references, reciprocal, separate_blocks, split }
        },
    )
}

/// Dense and standard profiles, and some that say so where they compute in less.
fn profiles(format: Format) -> impl Strategy<Value = Profile> {
    let booleans = any::<(bool, bool, bool, bool)>();
    let narrow = prop::sample::select(vec![
        Narrow::Nothing,
        Narrow::Nothing,
        Narrow::Scores,
        Narrow::Carried,
        Narrow::Weights,
        Narrow::ScoreAccumulator,
        Narrow::ValueAccumulator,
    ]);
    let ulps = prop::sample::select(vec![(2.5, 2.5, 3.0), (0.5, 2.5, 0.5), (40.0, 40.0, 300.0)]);
    (booleans, 1_usize..5, narrow, ulps).prop_map(
        move |((dense, rounded, fused, flush), block, narrow, (exp_ulp, division_ulp, log_ulp))| {
            let base = if dense { Profile::dense(format) } else { Profile::standard(format) };
            let half = Format::F16;
            let plain = Profile {
                normalizer: if rounded { Normalizer::Rounded } else { Normalizer::Unrounded },
                scaled_score_rounded: !fused,
                schedule: if dense { Schedule::Dense } else { Schedule::Blocks(block) },
                flush_to_zero: flush && format != Format::F64,
                exp_ulp,
                division_ulp,
                log: LogError { ulp: log_ulp, ..base.log },
                ..base
            };
            let accumulator = Accumulation::Ieee { format: half, depth: None };
            match narrow {
                Narrow::Nothing => plain,
                Narrow::Scores => Profile { score_format: half, ..plain },
                Narrow::Carried => Profile { carried_format: half, ..plain },
                Narrow::Weights => Profile { weight_format: half, ..plain },
                Narrow::ScoreAccumulator => Profile { score_accumulation: accumulator, ..plain },
                Narrow::ValueAccumulator => Profile { value_accumulation: accumulator, ..plain },
            }
        },
    )
}

#[derive(Clone, Copy, Debug)]
enum Narrow {
    Nothing,
    Scores,
    Carried,
    Weights,
    ScoreAccumulator,
    ValueAccumulator,
}

fn problem(format: Format, scale: Scale, inputs: &Inputs) -> Problem {
    let values = inputs.keys.iter().flatten().next().expect("a visible key").value.len();
    Problem {
        query_len: 1,
        value_dim: values,
        scale,
        ..Problem::new(format, 1, inputs.keys.len(), inputs.query.len())
    }
}

/// The usual scale, some others, and one so small that scores become subnormal.
fn scales() -> impl Strategy<Value = Scale> {
    prop_oneof![
        4 => Just(Scale::InverseSqrtHeadDim),
        1 => prop::sample::select(vec![1.0, 0.7, 12.5, 0.5_f64.powi(100)])
            .prop_map(Scale::Value),
    ]
}

/// Whether the scaled query loses digits to underflow, which the bounds do not allow for.
fn folding_underflows(scale: Scale, inputs: &Inputs, profile: &Profile) -> bool {
    let scale = match scale {
        Scale::Value(scale) => scale,
        Scale::InverseSqrtHeadDim => (inputs.query.len() as f64).sqrt().recip(),
    };
    let Accumulation::Ieee { format, .. } = profile.score_accumulation else { return true };
    // The computed factor may be slightly less.
    let smallest = 2.0 * format.smallest_normal();
    inputs.query.iter().map(|q| (q * scale).abs()).any(|q| q > 0.0 && q < smallest)
}

/// Everything that a run needs.
fn runs() -> impl Strategy<Value = (Format, Scale, Inputs, Profile, Style)> {
    let formats = vec![Format::F64, Format::F32, Format::F16, Format::Bf16];
    prop::sample::select(formats).prop_flat_map(|format| {
        (Just(format), scales(), inputs(format), profiles(format), styles()).prop_map(
            |(format, scale, inputs, profile, mut style)| {
                if profile.schedule == Schedule::Dense {
                    style.split = 0;
                }
                style.folded_scale &= !folding_underflows(scale, &inputs, &profile);
                (format, scale, inputs, profile, style)
            },
        )
    })
}

proptest! {
    #![proptest_config(settings(
        "forward_simulation",
        "tests/proptest-regressions/forward_simulation.txt",
    ))]

    #[test]
    fn adversarial_roundings_stay_within_the_bounds((format, scale, inputs, profile, style) in runs()) {
        let problem = problem(format, scale, &inputs);
        let allowed = Allowed::new(&problem, &profile, &inputs);
        let kernel = Kernel { problem: &problem, profile: &profile, style };
        for (entry, ratio) in worst_ratios(&kernel, &inputs, &allowed).into_iter().enumerate() {
            prop_assert!(ratio <= 1.0, "entry {entry}: {ratio} of {}", allowed.bounds[entry]);
        }
    }

    #[test]
    fn random_roundings_stay_within_the_bounds(
        (format, scale, inputs, profile, style) in runs(),
        plan in prop::collection::vec(-1.0..=1.0_f64, 500),
    ) {
        let problem = problem(format, scale, &inputs);
        let allowed = Allowed::new(&problem, &profile, &inputs);
        let kernel = Kernel { problem: &problem, profile: &profile, style };
        for (entry, ratio) in
            allowed.ratios(kernel.run(&inputs, &mut Roundings::new(&plan))).into_iter().enumerate()
        {
            prop_assert!(ratio <= 1.0, "entry {entry}: {ratio} of {}", allowed.bounds[entry]);
        }
    }
}
