//! A forward kernel that rounds weights and outputs to nearest, and all else adversarially, passes the
//! strict gate; one that rounds weights otherwise, or relative to another maximum, does not.

#[path = "support/exact_row.rs"]
mod exact_row;
#[path = "support/simulated_forward.rs"]
mod simulated_forward;
#[path = "support/simulated_rows.rs"]
mod simulated_rows;
mod support;

use exact_row::ExactRow;
use flashproof_spec::bound::strict::{self, Admitted};
use flashproof_spec::format::Format;
use flashproof_spec::problem::Problem;
use flashproof_spec::profile::{MaxPolicy, Profile, Schedule};
use proptest::prelude::*;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use rug::Float;
use simulated_forward::{
    Addition, BITS, Capping, DropoutPlace, Inputs, Keeping, Kernel, KeyValue, Roundings, SinkPlace,
    Style,
};
use simulated_rows::{Row, rows};
use support::settings;

/// A row under a profile that declares its schedule, in a style that keeps to it.
fn declared(row: Row) -> Row {
    let Row { problem, inputs, profile, style } = row;
    let policy = match profile.schedule {
        Schedule::Dense => MaxPolicy::Row,
        _ => MaxPolicy::Running,
    };
    let carried_format = profile.arithmetic;
    let profile =
        Profile { max_policy: Some(policy), merged_parts: None, carried_format, ..profile };
    let style = Style { sink: SinkPlace::First, split: 0, ..style };
    Row { problem, inputs, profile, style }
}

fn admitted(problem: &Problem, profile: &Profile, inputs: &Inputs) -> Vec<Option<Admitted>> {
    let ExactRow { condition, values, .. } = ExactRow::new(problem, inputs);
    let keys: Vec<usize> = (0..inputs.keys.len()).filter(|&i| inputs.keys[i].is_some()).collect();
    strict::forward(problem, profile, &condition, &keys, &values.view())
}

/// Whether a result is accepted.
fn accepts(admitted: &Admitted, found: &Float, problem: &Problem, profile: &Profile) -> bool {
    if !found.is_finite() {
        return false;
    }
    if problem.format == profile.arithmetic || problem.format == Format::F64 {
        let (lo, hi) = admitted.ends();
        return *found >= lo && *found <= hi;
    }
    let (error, bound) = admitted.departure(found.to_f64());
    error <= bound
}

/// The entries that a run of the kernel gives outside of what is admitted.
fn escapes(row: &Row, admitted: &[Option<Admitted>], roundings: &mut Roundings<'_>) -> Vec<usize> {
    let Row { problem, inputs, profile, style } = row;
    let found = Kernel { problem, profile, style: *style }.run(inputs, roundings);
    let entries = admitted.iter().zip(&found).enumerate();
    let escaped = entries.filter(|(_, (admitted, found))| {
        admitted.as_ref().is_some_and(|it| !accepts(it, found, problem, profile))
    });
    escaped.map(|(entry, _)| entry).collect()
}

fn sign(x: &Float) -> f64 {
    if x.is_zero() { 0.0 } else { f64::from(x.is_sign_positive()) * 2.0 - 1.0 }
}

/// For each entry, the direction in which each rounding alone moves it, with all numbers kept as they
/// come.
fn effects(row: &Row) -> Vec<Vec<f64>> {
    let Row { problem, inputs, profile, style } = row;
    let wide = Profile { weight_format: profile.arithmetic, ..profile.clone() };
    let kernel = Kernel { problem, profile: &wide, style: *style };
    let mut plain = Roundings::keeping(&[], Keeping::Nearest);
    let unrounded = kernel.run(inputs, &mut plain);
    let count = plain.taken();
    let mut effects = vec![vec![0.0; count]; unrounded.len() - 1];
    let mut alone = vec![0.0; count];
    for k in 0..count {
        alone[k] = 1.0;
        let moved = kernel.run(inputs, &mut Roundings::keeping(&alone, Keeping::Nearest));
        alone[k] = 0.0;
        for (effect, (moved, plain)) in effects.iter_mut().zip(moved.iter().zip(&unrounded)) {
            effect[k] = sign(&Float::with_val(BITS, moved - plain));
        }
    }
    effects
}

proptest! {
    #![proptest_config(settings(
        "strict_simulation",
        "tests/proptest-regressions/strict_simulation.txt",
    ))]

    #[test]
    fn adversarial_roundings_stay_within_the_strict_gate(row in rows()) {
        let row = declared(row);
        let admitted = admitted(&row.problem, &row.profile, &row.inputs);
        for plan in effects(&row) {
            for direction in [1.0, -1.0] {
                let plan: Vec<f64> = plan.iter().map(|sign| sign * direction).collect();
                let mut roundings = Roundings::keeping(&plan, Keeping::Nearest);
                let escaped = escapes(&row, &admitted, &mut roundings);
                prop_assert!(escaped.is_empty(), "entries {escaped:?} of {admitted:?}");
            }
        }
    }

    #[test]
    fn random_roundings_stay_within_the_strict_gate(
        row in rows(),
        plan in prop::collection::vec(-1.0..=1.0_f64, 500),
    ) {
        let row = declared(row);
        let admitted = admitted(&row.problem, &row.profile, &row.inputs);
        let escaped = escapes(&row, &admitted, &mut Roundings::keeping(&plan, Keeping::Nearest));
        prop_assert!(escaped.is_empty(), "entries {escaped:?} of {admitted:?}");
    }
}

const STYLE: Style = Style {
    base_two: false,
    folded_scale: false,
    rounded_references: false,
    reciprocal: false,
    separate_blocks: false,
    split: 0,
    addition: Addition::Nats,
    addends_first: false,
    capping: Capping::Quotient,
    sink: SinkPlace::First,
    dropout: DropoutPlace::Output,
};

/// A row of uniform entries: scores of a few units, which rise along the keys, so that the running
/// maximum is below that of the row for a while.
fn uniform_row(format: Format, seed: u64) -> Row {
    const KEYS: usize = 24;
    const DIM: usize = 4;
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let mut vector = |largest: f64| -> Vec<f64> {
        (0..DIM).map(|_| format.round(rng.random_range(-largest..largest))).collect()
    };
    let query = vector(2.0);
    let keys =
        (0..KEYS).map(|_| Some(KeyValue { key: vector(2.0), value: vector(1.0), bias: 0.0 }));
    let inputs = Inputs { keys: keys.collect(), query, sink: None };
    let problem = Problem { query_len: 1, value_dim: DIM, ..Problem::new(format, 1, KEYS, DIM) };
    let profile = Profile {
        schedule: Schedule::Blocks(8),
        max_policy: Some(MaxPolicy::Running),
        ..Profile::standard(format)
    };
    Row { problem, inputs, profile, style: STYLE }
}

/// Not a statistic: the same rows every time. A row of few keys rounds few weights, so not each of them
/// shows.
#[test]
fn truncated_weights_and_other_maxima_leave_it() {
    const ROWS: u64 = 64;
    const FIRST_SEED: u64 = 20_261_129;
    for format in [Format::F16, Format::Bf16] {
        let (mut truncated, mut other_maximum) = (0, 0);
        for seed in FIRST_SEED..FIRST_SEED + ROWS {
            let row = uniform_row(format, seed);
            let admitted = admitted(&row.problem, &row.profile, &row.inputs);
            assert!(admitted.iter().all(Option::is_some), "seed {seed}");
            let found = |row: &Row, keeping| {
                escapes(row, &admitted, &mut Roundings::keeping(&[], keeping)).len()
            };
            assert_eq!(found(&row, Keeping::Nearest), 0, "seed {seed}");
            truncated += usize::from(found(&row, Keeping::TruncatedWeights) > 0);
            let whole = Profile { schedule: Schedule::Dense, ..row.profile.clone() };
            let dense = Row { profile: whole, ..row.clone() };
            other_maximum += usize::from(found(&dense, Keeping::Nearest) > 0);
        }
        println!(
            "{format}, seeds {FIRST_SEED} to {}: rows with an entry outside: truncated {truncated}, \
             maximum of the row {other_maximum}",
            FIRST_SEED + ROWS - 1
        );
        assert!(2 * truncated > ROWS as usize, "{format}: {truncated} of {ROWS}");
        assert!(4 * other_maximum > ROWS as usize, "{format}: {other_maximum} of {ROWS}");
    }
}
