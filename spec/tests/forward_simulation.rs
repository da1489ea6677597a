//! A forward kernel with adversarial roundings stays within the bounds on its outputs and its LSE.
//!
//! To first order an output moves by a fixed amount for each rounding, so the worst roundings are
//! known once each has been tried alone: its largest error in whichever direction moves the output
//! away from the exact one. Those, and random ones, must stay within the bound.

#[path = "support/exact_row.rs"]
mod exact_row;
#[path = "support/simulated_forward.rs"]
mod simulated_forward;
#[path = "support/simulated_rows.rs"]
mod simulated_rows;
mod support;

use exact_row::ExactRow;
use flashproof_spec::bound::{Bound, forward};
use flashproof_spec::problem::Problem;
use flashproof_spec::profile::Profile;
use proptest::prelude::*;
use rug::Float;
use rug::float::Round;
use simulated_forward::{BITS, Inputs, Kernel, Roundings, big};
use simulated_rows::{Row, rows};
use support::settings;

/// A row and the bounds around its outputs and its LSE; no bound is infinite.
struct Allowed {
    exact: Vec<Float>,
    bounds: Vec<f64>,
}

impl Allowed {
    fn new(problem: &Problem, profile: &Profile, inputs: &Inputs) -> Self {
        let ExactRow { condition, values, row } = ExactRow::new(problem, inputs);
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

proptest! {
    #![proptest_config(settings(
        "forward_simulation",
        "tests/proptest-regressions/forward_simulation.txt",
    ))]

    #[test]
    fn adversarial_roundings_stay_within_the_bounds(row in rows()) {
        let Row { problem, inputs, profile, style } = &row;
        let allowed = Allowed::new(problem, profile, inputs);
        let kernel = Kernel { problem, profile, style: *style };
        for (entry, ratio) in worst_ratios(&kernel, inputs, &allowed).into_iter().enumerate() {
            prop_assert!(ratio <= 1.0, "entry {entry}: {ratio} of {}", allowed.bounds[entry]);
        }
    }

    #[test]
    fn random_roundings_stay_within_the_bounds(
        row in rows(),
        plan in prop::collection::vec(-1.0..=1.0_f64, 500),
    ) {
        let Row { problem, inputs, profile, style } = &row;
        let allowed = Allowed::new(problem, profile, inputs);
        let kernel = Kernel { problem, profile, style: *style };
        for (entry, ratio) in
            allowed.ratios(kernel.run(inputs, &mut Roundings::new(&plan))).into_iter().enumerate()
        {
            prop_assert!(ratio <= 1.0, "entry {entry}: {ratio} of {}", allowed.bounds[entry]);
        }
    }
}
