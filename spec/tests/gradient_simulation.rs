//! A kernel with adversarial roundings stays within the bounds on its gradients, and a kernel with a
//! fault does not: with every score modification, and with none.
//!
//! To first order an output moves by a fixed amount for each rounding, so the worst roundings are
//! known once each has been tried alone: its largest error in whichever direction moves the output
//! away from the exact gradient. Those, and random ones, must stay within the bound.

#[path = "support/exact_gradients.rs"]
mod exact_gradients;
#[path = "support/simulated.rs"]
mod simulated;
#[path = "support/simulated_cases.rs"]
mod simulated_cases;
mod support;

use exact_gradients::{ExactHead, hi};
use flashproof_spec::bound::Bound;
use flashproof_spec::bound::gradient::{
    Contribution, GradientRow, QueryEntry, bias_gradient, key_gradient, query_gradient,
    sink_gradient, value_gradient,
};
use flashproof_spec::format::Format;
use flashproof_spec::problem::Problem;
use flashproof_spec::profile::Profile;
use flashproof_spec::score::{Slopes, Softcap, SoftcapOrder};
use proptest::prelude::*;
use rug::Float;
use rug::float::Round;
use simulated::{
    BITS, Fault, Inputs, Kernel, Outputs, Roundings, RowInputs, SlopeForm, Style, bias_entry, big,
};
use simulated_cases::{
    Case, HEAD_DIM, KeyData, Modifications, RowData, VALUE_DIM, modified_runs, plain_runs,
};
use support::settings;

/// Exact gradients and the bounds around them, entry by entry, in the order of
/// [`Outputs::entries`].
struct Allowed {
    exact: Vec<Float>,
    bounds: Vec<f64>,
}

impl Allowed {
    fn new(case: &Case, profile: &Profile) -> Self {
        let Case { problem, inputs } = case;
        let head = ExactHead::new(problem, inputs);
        let gradients = head.gradients();
        let rows: Vec<Option<GradientRow>> = (0..inputs.rows.len())
            .map(|r| head.condition(r, &inputs.rows[r]))
            .map(|row| row.map(|row| GradientRow::new(problem, profile, &row)))
            .collect();
        let sums = Sums { problem, profile, inputs, head: &head, rows: &rows };
        let bounds = [
            sums.query(&gradients),
            sums.key(&gradients),
            sums.value(&gradients),
            sums.bias(&gradients),
            sums.sink(&gradients),
        ];
        let bounds = bounds.concat().into_iter().map(within).collect();
        Self { exact: gradients.entries(), bounds }
    }

    /// `|found - exact| / bound` of each entry.
    fn ratios(&self, found: Outputs) -> Vec<f64> {
        let found = found.entries().into_iter();
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
    head: &'a ExactHead<'a>,
    rows: &'a [Option<GradientRow>],
}

impl Sums<'_> {
    fn query(&self, gradients: &Outputs) -> Vec<Bound> {
        let mut bounds = Vec::new();
        for (r, row) in self.rows.iter().enumerate() {
            for j in 0..HEAD_DIM {
                bounds.push(match row {
                    Some(row) => self.query_entry(row, r, j, &gradients.query[r][j]),
                    // Exactly zero.
                    None => Bound::Within(0.0),
                });
            }
        }
        bounds
    }

    fn query_entry(&self, row: &GradientRow, r: usize, j: usize, exact: &Float) -> Bound {
        let pairs = &self.head.rows[r].as_ref().expect("a row with a condition").pairs;
        let mut keys = Vec::new();
        let mut mean = big(0.0);
        for (pair, key) in pairs.iter().zip(&self.inputs.keys) {
            let Some(pair) = pair else { continue };
            keys.push(key[j]);
            mean += Float::with_val(BITS, &pair.probability * pair.slope()) * key[j];
        }
        let entry = QueryEntry { keys: &keys, gradient_hi: hi(exact), mean_key_hi: hi(&mean) };
        query_gradient(self.problem, self.profile, row, entry)
    }

    fn key(&self, gradients: &Outputs) -> Vec<Bound> {
        self.columns(HEAD_DIM, |i, j| {
            let rows = self.contributions(|_, key| key == i, |row| row.query[j]);
            key_gradient(self.problem, self.profile, &rows, hi(&gradients.key[i][j]))
        })
    }

    fn value(&self, gradients: &Outputs) -> Vec<Bound> {
        self.columns(VALUE_DIM, |i, j| {
            let rows = self.contributions(|_, key| key == i, |row| row.output_gradient[j]);
            value_gradient(self.problem, self.profile, &rows, hi(&gradients.value[i][j]))
        })
    }

    fn columns(&self, entries: usize, bound: impl Fn(usize, usize) -> Bound) -> Vec<Bound> {
        let keys = 0..self.inputs.keys.len();
        keys.flat_map(|i| (0..entries).map(move |j| (i, j))).map(|(i, j)| bound(i, j)).collect()
    }

    fn bias(&self, gradients: &Outputs) -> Vec<Bound> {
        let bound = |(entry, exact): (usize, &Float)| {
            let is_entry = |r, i| bias_entry(self.problem, (r, i)) == Some(entry);
            let sites = self.contributions(is_entry, |_| 1.0);
            bias_gradient(self.problem, self.profile, &sites, hi(exact))
        };
        gradients.bias.iter().enumerate().map(bound).collect()
    }

    fn sink(&self, gradients: &Outputs) -> Vec<Bound> {
        let rows: Vec<_> = self.rows.iter().flatten().collect();
        let bound = |exact| sink_gradient(self.problem, self.profile, &rows, hi(exact));
        gradients.sink.iter().map(bound).collect()
    }

    /// Those of the pairs of a row and a key it sees that `chosen` names.
    fn contributions(
        &self,
        chosen: impl Fn(usize, usize) -> bool,
        factor: impl Fn(&RowInputs) -> f64,
    ) -> Vec<Contribution<'_>> {
        let mut contributions = Vec::new();
        for (r, (row, inputs)) in self.rows.iter().zip(&self.inputs.rows).enumerate() {
            let seen = (0..self.inputs.keys.len()).filter(|&i| inputs.visible[i]);
            for (key, i) in seen.enumerate() {
                if chosen(r, i) {
                    let row = row.as_ref().expect("a row that sees a key");
                    contributions.push(Contribution { row, key, factor: factor(inputs) });
                }
            }
        }
        contributions
    }
}

/// The largest ratio of each entry over the worst roundings of every entry.
fn worst_ratios(kernel: &Kernel<'_>, inputs: &Inputs, allowed: &Allowed) -> Vec<f64> {
    let mut plain = Roundings::new(&[]);
    let unrounded = kernel.run(inputs, &mut plain).entries();
    let count = plain.taken();
    let mut effects = vec![vec![0.0; count]; unrounded.len()];
    for k in 0..count {
        let mut alone = vec![0.0; count];
        alone[k] = 1.0;
        let moved = kernel.run(inputs, &mut Roundings::new(&alone)).entries();
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

fn assert_worst_within((case, profile, style): &(Case, Profile, Style)) {
    let allowed = Allowed::new(case, profile);
    let kernel = Kernel { problem: &case.problem, profile, style: *style, fault: Fault::None };
    for (entry, ratio) in worst_ratios(&kernel, &case.inputs, &allowed).into_iter().enumerate() {
        assert!(ratio <= 1.0, "entry {entry}: {ratio}");
    }
}

fn assert_within((case, profile, style): &(Case, Profile, Style), plan: &[f64]) {
    let allowed = Allowed::new(case, profile);
    let kernel = Kernel { problem: &case.problem, profile, style: *style, fault: Fault::None };
    let found = kernel.run(&case.inputs, &mut Roundings::new(plan));
    for (entry, ratio) in allowed.ratios(found).into_iter().enumerate() {
        assert!(ratio <= 1.0, "entry {entry}: {ratio}");
    }
}

fn plans() -> impl Strategy<Value = Vec<f64>> {
    prop::collection::vec(-1.0..=1.0_f64, 500)
}

proptest! {
    #![proptest_config(settings(
        "gradient_simulation",
        "tests/proptest-regressions/gradient_simulation.txt",
    ))]

    #[test]
    fn adversarial_roundings_stay_within_the_bounds(run in plain_runs()) {
        assert_worst_within(&run);
    }

    #[test]
    fn random_roundings_stay_within_the_bounds(run in plain_runs(), plan in plans()) {
        assert_within(&run, &plan);
    }

    #[test]
    fn adversarial_roundings_of_modified_scores_stay_within_the_bounds(run in modified_runs()) {
        assert_worst_within(&run);
    }

    #[test]
    fn random_roundings_of_modified_scores_stay_within_the_bounds(
        run in modified_runs(),
        plan in plans(),
    ) {
        assert_within(&run, &plan);
    }
}

/// Three keys, and two rows that see them, with a gradient of the LSE.
fn plain_data() -> (Vec<RowData>, Vec<KeyData>) {
    let row = |query: [f64; 3], output_gradient: [f64; 2], lse_gradient| {
        (query.to_vec(), vec![true; 3], output_gradient.to_vec(), lse_gradient, (vec![0.0; 2], 0.0))
    };
    let rows =
        vec![row([1.0, -0.5, 2.0], [1.5, -1.0], 0.75), row([0.5, 1.5, -1.0], [0.25, 2.0], -1.25)];
    let key = |key: [f64; 3], value: [f64; 2]| (key.to_vec(), value.to_vec());
    let keys = vec![
        key([1.0, 0.25, -0.5], [2.0, 1.0]),
        key([-0.75, 1.0, 0.5], [-1.0, 0.5]),
        key([0.5, -1.5, 1.0], [0.25, -3.0]),
    ];
    (rows, keys)
}

const STYLE: Style = Style {
    base_two: false,
    folded_lse_gradient: false,
    folded_scale: false,
    late_dropout: false,
    narrow_bias_terms: false,
    slope: SlopeForm::Square,
};

/// A kernel without a fault stays within the bounds, and one with any of these does not.
fn assert_faults_found(case: &Case, faults: &[Fault]) {
    let format = case.problem.format;
    let profile = Profile::standard(format);
    let allowed = Allowed::new(case, &profile);
    let largest = |fault| {
        let kernel = Kernel { problem: &case.problem, profile: &profile, style: STYLE, fault };
        let found = kernel.run(&case.inputs, &mut Roundings::new(&[]));
        allowed.ratios(found).into_iter().fold(0.0, f64::max)
    };
    assert!(largest(Fault::None) <= 1.0, "{format}");
    for &fault in faults {
        assert!(largest(fault) > 1.0, "{format}: {fault:?}");
    }
}

const FORMATS: [Format; 3] = [Format::F32, Format::F16, Format::Bf16];

#[test]
fn kernels_with_a_fault_leave_the_bounds() {
    let (rows, keys) = plain_data();
    for format in FORMATS {
        let case = Case::new(format, &rows, &keys, &Modifications::default());
        assert_faults_found(&case, &Fault::PLAIN);
    }
}

/// The same, with every modification, and a row that sees nothing but the sink.
#[test]
fn kernels_with_a_fault_in_a_modification_leave_the_bounds() {
    let (mut rows, keys) = plain_data();
    rows.push((vec![1.0; 3], vec![false; 3], vec![1.0; 2], 0.5, (vec![0.0; 2], 0.0)));
    let keep = [true, false, true, true, true, false, true, true, true];
    for order in [SoftcapOrder::BeforeBias, SoftcapOrder::AfterBias] {
        for format in FORMATS {
            let modifications = Modifications {
                softcap: Some(Softcap { cap: 1.0, order }),
                bias: Some(([true, false], format, vec![0.5, -0.25, 1.0])),
                alibi: Some(Slopes::Given(vec![0.5])),
                sink: Some((0.5, format)),
                dropout: Some((1.25, keep.to_vec())),
            };
            let case = Case::new(format, &rows, &keys, &modifications);
            assert_faults_found(&case, &Fault::OF_MODIFICATIONS);
        }
    }
}
