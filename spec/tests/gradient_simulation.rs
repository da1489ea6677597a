//! A kernel with adversarial roundings stays within the bounds on its gradients, and a kernel with a
//! fault does not.
//!
//! To first order an output moves by a fixed amount for each rounding, so the worst roundings are
//! known once each has been tried alone: its largest error in whichever direction moves the output
//! away from the exact gradient. Those, and random ones, must stay within the bound.

#[path = "support/simulated.rs"]
mod simulated;
mod support;

use flashproof_spec::arithmetic::Mpfr;
use flashproof_spec::attention::dense_row;
use flashproof_spec::bound::Bound;
use flashproof_spec::bound::gradient::{
    Contribution, GradientCondition, GradientRow, QueryEntry, key_gradient, query_gradient,
    value_gradient,
};
use flashproof_spec::format::Format;
use flashproof_spec::gradient::{Gradient, Head, HeadOf, KeyValue, Query, attention_gradient};
use flashproof_spec::online::{Key, Row};
use flashproof_spec::problem::Problem;
use flashproof_spec::profile::Profile;
use proptest::prelude::*;
use rug::Float;
use rug::float::Round;
use simulated::{BITS, Fault, Inputs, Kernel, Outputs, Roundings, RowInputs, Style, big};
use support::settings;

const HEAD_DIM: usize = 3;
const VALUE_DIM: usize = 2;

fn arithmetic() -> Mpfr {
    Mpfr::new(BITS).expect("a precision that MPFR has")
}

fn problem(format: Format, inputs: &Inputs) -> Problem {
    Problem {
        query_len: inputs.rows.len(),
        value_dim: VALUE_DIM,
        ..Problem::new(format, 1, inputs.keys.len(), HEAD_DIM)
    }
}

/// `|x|` from above.
fn hi(x: &Float) -> f64 {
    Float::with_val(BITS, x.abs_ref()).to_f64_round(Round::Up)
}

fn dot(x: &[Float], y: &[Float]) -> Float {
    x.iter().zip(y).fold(big(0.0), |sum, (x, y)| sum + Float::with_val(BITS, x * y))
}

/// `sum |x_j y_j|`.
fn mass(x: &[Float], y: &[Float]) -> Float {
    x.iter().zip(y).fold(big(0.0), |sum, (x, y)| sum + Float::with_val(BITS, x * y).abs())
}

fn exact(x: &[f64]) -> Vec<Float> {
    x.iter().copied().map(big).collect()
}

/// The problem's exact head: its rows are those of the definition, not the kernel's.
fn head(inputs: &Inputs) -> HeadOf<Mpfr> {
    let keys = inputs.keys.iter().zip(&inputs.values);
    let keys: Vec<_> = keys.map(|(k, v)| KeyValue { key: exact(k), value: exact(v) }).collect();
    let scale = big(HEAD_DIM as f64).sqrt().recip();
    let queries = inputs
        .rows
        .iter()
        .map(|row| {
            let query = exact(&row.query);
            let visible = row.visible.iter().zip(&keys);
            let scores: Vec<_> =
                visible.map(|(sees, kv)| sees.then(|| dot(&query, &kv.key) * &scale)).collect();
            let row_keys = scores.iter().zip(&keys);
            let row_keys: Vec<_> = row_keys
                .map(|(score, kv)| Key { score: score.clone(), value: kv.value.clone() })
                .collect();
            Query {
                row: dense_row(&arithmetic(), &row_keys),
                query,
                scores,
                output_gradient: exact(&row.output_gradient),
                lse_gradient: big(row.lse_gradient),
            }
        })
        .collect();
    Head { scale, queries, keys }
}

/// What the bounds need of one row; `None` where it sees no key.
fn condition(head: &HeadOf<Mpfr>, r: usize, own: &RowInputs) -> Option<GradientCondition> {
    let query = &head.queries[r];
    let Row { output, lse } = query.row.as_ref()?;
    let seen = || {
        let pairs = query.scores.iter().zip(&head.keys);
        pairs.filter_map(|(score, key)| Some((score.as_ref()?, key)))
    };
    let d_o = &query.output_gradient;
    let delta = dot(d_o, output);
    let own_output = exact(&own.output);
    let own_delta = dot(d_o, &own_output);
    let centred = |value: &[Float]| dot(d_o, value) - &delta + &query.lse_gradient;
    Some(GradientCondition {
        score_magnitude_hi: seen().map(|(score, _)| hi(score)).collect(),
        dot_mass_hi: seen()
            .map(|(_, kv)| hi(&(mass(&query.query, &kv.key) * &head.scale)))
            .collect(),
        probability_hi: seen()
            .map(|(score, _)| hi(&Float::with_val(BITS, score - lse).exp()))
            .collect(),
        lse_magnitude_hi: hi(lse),
        dp_magnitude_hi: seen().map(|(_, kv)| hi(&dot(d_o, &kv.value))).collect(),
        dp_mass_hi: seen().map(|(_, kv)| hi(&mass(d_o, &kv.value))).collect(),
        centred_magnitude_hi: seen().map(|(_, kv)| hi(&centred(&kv.value))).collect(),
        lse_gradient_magnitude_hi: own.lse_gradient.abs(),
        delta_magnitude_hi: hi(&own_delta),
        delta_mass_hi: hi(&mass(d_o, &own_output)),
        delta_shift_hi: hi(&(own_delta.clone() - delta)),
        lse_shift_hi: hi(&(big(own.lse) - lse)),
    })
}

/// Exact gradients and the bounds around them, entry by entry: `dQ`, then `dK`, then `dV`.
struct Allowed {
    exact: Vec<Float>,
    bounds: Vec<f64>,
}

impl Allowed {
    fn new(problem: &Problem, profile: &Profile, inputs: &Inputs) -> Self {
        let head = head(inputs);
        let gradient = attention_gradient(&arithmetic(), &head);
        let rows: Vec<Option<GradientRow>> = (0..inputs.rows.len())
            .map(|r| condition(&head, r, &inputs.rows[r]))
            .map(|row| row.map(|row| GradientRow::new(problem, profile, &row)))
            .collect();
        let sums = Sums { problem, profile, inputs, head: &head, rows: &rows };
        let bounds = [sums.query(&gradient), sums.key(&gradient), sums.value(&gradient)].concat();
        Self { exact: flat(gradient), bounds: bounds.into_iter().map(within).collect() }
    }

    /// `|found - exact| / bound` of each entry.
    fn ratios(&self, found: Outputs) -> Vec<f64> {
        let found = entries(found).into_iter();
        found
            .zip(&self.exact)
            .zip(&self.bounds)
            .map(|((found, exact), &bound)| {
                let error = (found - exact).abs();
                if error.is_zero() { 0.0 } else { (error / bound).to_f64_round(Round::Up) }
            })
            .collect()
    }
}

fn flat(gradient: Gradient<Float>) -> Vec<Float> {
    let (keys, values): (Vec<_>, Vec<_>) =
        gradient.keys.into_iter().map(|kv| (kv.key, kv.value)).unzip();
    gradient.query.into_iter().chain(keys).chain(values).flatten().collect()
}

fn within(bound: Bound) -> f64 {
    match bound {
        Bound::Within(bound) => bound,
        Bound::None(reason) => panic!("no bound: {reason:?}"),
    }
}

/// The bounds on the sums over keys or rows.
struct Sums<'a> {
    problem: &'a Problem,
    profile: &'a Profile,
    inputs: &'a Inputs,
    head: &'a HeadOf<Mpfr>,
    rows: &'a [Option<GradientRow>],
}

impl Sums<'_> {
    fn query(&self, gradient: &Gradient<Float>) -> Vec<Bound> {
        let mut bounds = Vec::new();
        for (r, row) in self.rows.iter().enumerate() {
            for j in 0..HEAD_DIM {
                bounds.push(match row {
                    Some(row) => self.query_entry(row, r, j, &gradient.query[r][j]),
                    // Exactly zero.
                    None => Bound::Within(0.0),
                });
            }
        }
        bounds
    }

    fn query_entry(&self, row: &GradientRow, r: usize, j: usize, exact: &Float) -> Bound {
        let query = &self.head.queries[r];
        let lse = &query.row.as_ref().expect("a row with keys").lse;
        let mut keys = Vec::new();
        let mut mean = big(0.0);
        for (score, key) in query.scores.iter().zip(&self.inputs.keys) {
            let Some(score) = score else { continue };
            keys.push(key[j]);
            mean += Float::with_val(BITS, score - lse).exp() * key[j];
        }
        let entry = QueryEntry { keys: &keys, gradient_hi: hi(exact), mean_key_hi: hi(&mean) };
        query_gradient(self.problem, self.profile, row, entry)
    }

    fn key(&self, gradient: &Gradient<Float>) -> Vec<Bound> {
        self.columns(HEAD_DIM, |i, j| {
            let rows = self.contributions(i, |row| row.query[j]);
            key_gradient(self.problem, self.profile, &rows, hi(&gradient.keys[i].key[j]))
        })
    }

    fn value(&self, gradient: &Gradient<Float>) -> Vec<Bound> {
        self.columns(VALUE_DIM, |i, j| {
            let rows = self.contributions(i, |row| row.output_gradient[j]);
            value_gradient(self.problem, self.profile, &rows, hi(&gradient.keys[i].value[j]))
        })
    }

    fn columns(&self, entries: usize, bound: impl Fn(usize, usize) -> Bound) -> Vec<Bound> {
        let keys = 0..self.inputs.keys.len();
        keys.flat_map(|i| (0..entries).map(move |j| (i, j))).map(|(i, j)| bound(i, j)).collect()
    }

    fn contributions(&self, i: usize, factor: impl Fn(&RowInputs) -> f64) -> Vec<Contribution<'_>> {
        let rows = self.rows.iter().zip(&self.inputs.rows);
        rows.filter(|(_, inputs)| inputs.visible[i])
            .map(|(row, inputs)| Contribution {
                row: row.as_ref().expect("a row that sees a key"),
                key: inputs.visible[..i].iter().filter(|&&sees| sees).count(),
                factor: factor(inputs),
            })
            .collect()
    }
}

/// The largest ratio of each entry over the worst roundings of every entry.
fn worst_ratios(kernel: &Kernel<'_>, inputs: &Inputs, allowed: &Allowed) -> Vec<f64> {
    let mut plain = Roundings::new(&[]);
    let unrounded = entries(kernel.run(inputs, &mut plain));
    let count = plain.taken();
    let mut effects = vec![vec![0.0; count]; unrounded.len()];
    for k in 0..count {
        let mut alone = vec![0.0; count];
        alone[k] = 1.0;
        let moved = entries(kernel.run(inputs, &mut Roundings::new(&alone)));
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

fn sign(x: &Float) -> f64 {
    if x.is_zero() { 0.0 } else { f64::from(x.is_sign_positive()) * 2.0 - 1.0 }
}

fn entries(outputs: Outputs) -> Vec<Float> {
    outputs.query.into_iter().chain(outputs.key).chain(outputs.value).flatten().collect()
}

/// A row before its forward pass: query, visible keys, upstream gradients, and by what share of
/// themselves the kernel's own outputs and LSE are off.
type RowData = (Vec<f64>, Vec<bool>, Vec<f64>, f64, (Vec<f64>, f64));

fn inputs_of(format: Format, rows: &[RowData], keys: &[(Vec<f64>, Vec<f64>)]) -> Inputs {
    let rounded = |x: &[f64]| x.iter().map(|&x| format.round(x)).collect::<Vec<_>>();
    let (keys, values): (Vec<_>, Vec<_>) =
        keys.iter().map(|(key, value)| (rounded(key), rounded(value))).unzip();
    let plain = rows
        .iter()
        .map(|(query, visible, output_gradient, lse_gradient, _)| RowInputs {
            query: rounded(query),
            visible: visible.clone(),
            output_gradient: rounded(output_gradient),
            lse_gradient: Format::F32.round(*lse_gradient),
            output: vec![0.0; VALUE_DIM],
            lse: 0.0,
        })
        .collect();
    let mut inputs = Inputs { rows: plain, keys, values };
    let head = head(&inputs);
    for ((row, query), (.., (output_share, lse_shift))) in
        inputs.rows.iter_mut().zip(&head.queries).zip(rows)
    {
        let Some(exact) = &query.row else { continue };
        row.lse = Format::F32.round(exact.lse.to_f64() + lse_shift);
        let output = exact.output.iter().zip(output_share);
        row.output = output.map(|(o, share)| format.round(o.to_f64() * (1.0 + share))).collect();
    }
    inputs
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

/// Inputs with the kernel's own outputs and LSE, which may be wrong by a large part of themselves:
/// what the forward pass was off by is measured, not bounded.
fn cases() -> impl Strategy<Value = (Format, Inputs)> {
    let formats = prop::sample::select(vec![Format::F32, Format::F16, Format::Bf16]);
    (formats, 1_usize..3, 1_usize..4).prop_flat_map(|(format, rows, keys)| {
        let row = (
            calm_vector(HEAD_DIM, 4.0),
            prop::collection::vec(prop::bool::weighted(0.8), keys),
            vector(VALUE_DIM, 4.0),
            share(4.0),
            (prop::collection::vec(share(0.25), VALUE_DIM), share(8.0)),
        );
        let key = (vector(HEAD_DIM, 4.0), calm_vector(VALUE_DIM, 4.0));
        (prop::collection::vec(row, rows), prop::collection::vec(key, keys))
            .prop_map(move |(rows, keys)| (format, inputs_of(format, &rows, &keys)))
    })
}

fn styles() -> impl Strategy<Value = Style> {
    any::<(bool, bool, bool)>().prop_map(|(base_two, folded_lse_gradient, folded_scale)| Style {
        base_two,
        folded_lse_gradient,
        folded_scale,
    })
}

/// The standard profile, and some that say so where they compute in less.
fn profile(format: Format) -> impl Strategy<Value = Profile> {
    let standard = Profile::standard(format);
    let carried = Profile { carried_format: Format::Bf16, ..standard.clone() };
    let scores = Profile { score_format: Format::F16, ..standard.clone() };
    prop::sample::select(vec![standard, carried, scores])
}

/// Everything that a run needs.
fn runs() -> impl Strategy<Value = (Format, Inputs, Profile, Style)> {
    (cases(), styles()).prop_flat_map(|((format, inputs), style)| {
        (Just(format), Just(inputs), profile(format), Just(style))
    })
}

proptest! {
    #![proptest_config(settings(
        "gradient_simulation",
        "tests/proptest-regressions/gradient_simulation.txt",
    ))]

    #[test]
    fn adversarial_roundings_stay_within_the_bounds((format, inputs, profile, style) in runs()) {
        let problem = problem(format, &inputs);
        let allowed = Allowed::new(&problem, &profile, &inputs);
        let kernel = Kernel { problem: &problem, profile: &profile, style, fault: Fault::None };
        for ratio in worst_ratios(&kernel, &inputs, &allowed) {
            prop_assert!(ratio <= 1.0, "{ratio}");
        }
    }

    #[test]
    fn random_roundings_stay_within_the_bounds(
        (format, inputs, profile, style) in runs(),
        plan in prop::collection::vec(-1.0..=1.0_f64, 500),
    ) {
        let problem = problem(format, &inputs);
        let allowed = Allowed::new(&problem, &profile, &inputs);
        let kernel = Kernel { problem: &problem, profile: &profile, style, fault: Fault::None };
        for ratio in allowed.ratios(kernel.run(&inputs, &mut Roundings::new(&plan))) {
            prop_assert!(ratio <= 1.0, "{ratio}");
        }
    }
}

/// Two rows on three keys, with a gradient of the LSE.
fn plain_inputs(format: Format) -> Inputs {
    let row = |query: [f64; 3], output_gradient: [f64; 2], lse_gradient| {
        (query.to_vec(), vec![true; 3], output_gradient.to_vec(), lse_gradient, (vec![0.0; 2], 0.0))
    };
    let rows =
        vec![row([1.0, -0.5, 2.0], [1.5, -1.0], 0.75), row([0.5, 1.5, -1.0], [0.25, 2.0], -1.25)];
    let key = |key: [f64; 3], value: [f64; 2]| (key.to_vec(), value.to_vec());
    let keys = [
        key([1.0, 0.25, -0.5], [2.0, 1.0]),
        key([-0.75, 1.0, 0.5], [-1.0, 0.5]),
        key([0.5, -1.5, 1.0], [0.25, -3.0]),
    ];
    inputs_of(format, &rows, &keys)
}

#[test]
fn kernels_with_a_fault_leave_the_bounds() {
    let style = Style { base_two: false, folded_lse_gradient: false, folded_scale: false };
    for format in [Format::F32, Format::F16, Format::Bf16] {
        let inputs = plain_inputs(format);
        let (problem, profile) = (problem(format, &inputs), Profile::standard(format));
        let allowed = Allowed::new(&problem, &profile, &inputs);
        let largest = |fault| {
            let kernel = Kernel { problem: &problem, profile: &profile, style, fault };
            let found = kernel.run(&inputs, &mut Roundings::new(&[]));
            allowed.ratios(found).into_iter().fold(0.0, f64::max)
        };
        assert!(largest(Fault::None) <= 1.0, "{format}");
        for fault in Fault::ALL {
            assert!(largest(fault) > 1.0, "{format}: {fault:?}");
        }
    }
}
