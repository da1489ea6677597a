//! A backward kernel that rounds `P`, `dX` and its results to nearest, and all else adversarially, passes
//! the strict gate on the gradients of queries, keys and values; one that truncates does not.

#[path = "support/exact_gradients.rs"]
mod exact_gradients;
#[path = "support/simulated.rs"]
mod simulated;
#[path = "support/simulated_cases.rs"]
mod simulated_cases;
mod support;

use exact_gradients::ExactHead;
use flashproof_spec::bound::strict::{
    Admitted, StrictContribution, StrictRow, key_gradient, query_gradient, value_gradient,
};
use flashproof_spec::format::Format;
use flashproof_spec::problem::Problem;
use flashproof_spec::profile::{MaxPolicy, Profile, Schedule};
use proptest::prelude::*;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use rug::Float;
use simulated::{
    BITS, Fault, Inputs, Keeping, Kernel, Outputs, Roundings, RowInputs, SlopeForm, Style,
};
use simulated_cases::{
    Case, HEAD_DIM, KeyData, Modifications, RowData, VALUE_DIM, modified_runs, plain_runs,
};
use support::settings;

/// What is admitted of each entry of `dQ`, `dK` and `dV`, in the order of [`entries`].
fn admitted(case: &Case, profile: &Profile) -> Vec<Option<Admitted>> {
    let Case { problem, inputs } = case;
    let head = ExactHead::new(problem, inputs);
    let rows: Vec<Option<StrictRow>> = inputs
        .rows
        .iter()
        .enumerate()
        .map(|(r, row)| {
            let (condition, centre) = (head.condition(r, row)?, head.centre(r, row)?);
            StrictRow::new(problem, profile, &condition, &centre)
        })
        .collect();
    let mut admitted = Vec::new();
    for (row, own) in rows.iter().zip(&inputs.rows) {
        for j in 0..HEAD_DIM {
            let seen = inputs.keys.iter().zip(&own.visible).filter(|(_, visible)| **visible);
            let keys: Vec<f64> = seen.map(|(key, _)| key[j]).collect();
            let of_row = |row| query_gradient(problem, profile, row, &keys);
            admitted.push(row.as_ref().and_then(of_row));
        }
    }
    for i in 0..inputs.keys.len() {
        for j in 0..HEAD_DIM {
            let terms = contributions(inputs, &rows, i, |row| row.query[j]);
            admitted.push(terms.and_then(|terms| key_gradient(problem, profile, &terms)));
        }
    }
    for i in 0..inputs.keys.len() {
        for j in 0..VALUE_DIM {
            let terms = contributions(inputs, &rows, i, |row| row.output_gradient[j]);
            admitted.push(terms.and_then(|terms| value_gradient(problem, profile, &terms)));
        }
    }
    admitted
}

/// What the rows bring that see a key; `None` where one has no strict bound.
fn contributions<'a>(
    inputs: &Inputs,
    rows: &'a [Option<StrictRow>],
    key: usize,
    factor: impl Fn(&RowInputs) -> f64,
) -> Option<Vec<StrictContribution<'a>>> {
    let seeing = rows.iter().zip(&inputs.rows).filter(|(_, own)| own.visible[key]);
    seeing
        .map(|(row, own)| {
            let key = own.visible[..key].iter().filter(|visible| **visible).count();
            Some(StrictContribution { row: row.as_ref()?, key, factor: factor(own) })
        })
        .collect()
}

fn entries(outputs: Outputs) -> Vec<Float> {
    let Outputs { query, key, value, .. } = outputs;
    query.into_iter().chain(key).chain(value).flatten().collect()
}

fn accepts(admitted: &Admitted, found: &Float, problem: &Problem) -> bool {
    if problem.format == Format::F32 {
        let (lo, hi) = admitted.ends();
        return *found >= lo && *found <= hi;
    }
    let (error, bound) = admitted.departure(found.to_f64());
    error <= bound
}

type Run = (Case, Profile, Style);

/// The same run under a profile that declares its schedule.
fn declared((case, profile, style): Run) -> Run {
    let profile = Profile {
        schedule: Schedule::Blocks(2),
        max_policy: Some(MaxPolicy::Running),
        carried_format: profile.arithmetic,
        ..profile
    };
    (case, profile, style)
}

fn run_of((case, profile, style): &Run, roundings: &mut Roundings<'_>) -> Vec<Float> {
    let kernel = Kernel { problem: &case.problem, profile, style: *style, fault: Fault::None };
    entries(kernel.run(&case.inputs, roundings))
}

/// The entries that a run of the kernel gives outside of what is admitted.
fn escapes(run: &Run, admitted: &[Option<Admitted>], roundings: &mut Roundings<'_>) -> Vec<usize> {
    let found = run_of(run, roundings);
    let all = admitted.iter().zip(&found).enumerate();
    let escaped = all.filter(|(_, (admitted, found))| {
        admitted.as_ref().is_some_and(|it| !accepts(it, found, &run.0.problem))
    });
    escaped.map(|(entry, _)| entry).collect()
}

fn sign(x: &Float) -> f64 {
    if x.is_zero() { 0.0 } else { f64::from(x.is_sign_positive()) * 2.0 - 1.0 }
}

/// For each entry, the direction in which each rounding alone moves it, with all numbers kept as they
/// come.
fn effects((case, profile, style): &Run) -> Vec<Vec<f64>> {
    let wide = Profile { weight_format: profile.arithmetic, ..profile.clone() };
    let wide = (case.clone(), wide, *style);
    let mut plain = Roundings::keeping(&[], Keeping::Nearest);
    let unrounded = run_of(&wide, &mut plain);
    let count = plain.taken();
    let mut effects = vec![vec![0.0; count]; unrounded.len()];
    let mut alone = vec![0.0; count];
    for k in 0..count {
        alone[k] = 1.0;
        let moved = run_of(&wide, &mut Roundings::keeping(&alone, Keeping::Nearest));
        alone[k] = 0.0;
        for (effect, (moved, plain)) in effects.iter_mut().zip(moved.iter().zip(&unrounded)) {
            effect[k] = sign(&Float::with_val(BITS, moved - plain));
        }
    }
    effects
}

fn assert_worst_accepted(run: Run) {
    let run = declared(run);
    let admitted = admitted(&run.0, &run.1);
    for plan in effects(&run) {
        for direction in [1.0, -1.0] {
            let plan: Vec<f64> = plan.iter().map(|sign| sign * direction).collect();
            let mut roundings = Roundings::keeping(&plan, Keeping::Nearest);
            let escaped = escapes(&run, &admitted, &mut roundings);
            assert!(escaped.is_empty(), "entries {escaped:?} of {admitted:?}");
        }
    }
}

fn assert_accepted(run: Run, plan: &[f64]) {
    let run = declared(run);
    let admitted = admitted(&run.0, &run.1);
    let escaped = escapes(&run, &admitted, &mut Roundings::keeping(plan, Keeping::Nearest));
    assert!(escaped.is_empty(), "entries {escaped:?} of {admitted:?}");
}

proptest! {
    #![proptest_config(settings(
        "strict_gradient_simulation",
        "tests/proptest-regressions/strict_gradient_simulation.txt",
    ))]

    #[test]
    fn adversarial_roundings_stay_within_the_strict_gate(
        run in prop_oneof![plain_runs(), modified_runs()],
    ) {
        assert_worst_accepted(run);
    }

    #[test]
    fn random_roundings_stay_within_the_strict_gate(
        run in prop_oneof![plain_runs(), modified_runs()],
        plan in prop::collection::vec(-1.0..=1.0_f64, 500),
    ) {
        assert_accepted(run, &plan);
    }
}

const STYLE: Style = Style {
    base_two: false,
    folded_lse_gradient: false,
    folded_scale: false,
    late_dropout: false,
    narrow_bias_terms: false,
    slope: SlopeForm::Square,
};

/// A head of uniform entries, with outputs and LSE as right as they can be stored.
fn uniform_head(format: Format, seed: u64) -> Run {
    const ROWS: usize = 16;
    const KEYS: usize = 16;
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let mut vector = |entries: usize| -> Vec<f64> {
        (0..entries).map(|_| rng.random_range(-2.0..2.0)).collect()
    };
    let rows: Vec<RowData> = (0..ROWS)
        .map(|_| {
            let (query, output_gradient) = (vector(HEAD_DIM), vector(VALUE_DIM));
            (query, vec![true; KEYS], output_gradient, 0.0, (vec![0.0; VALUE_DIM], 0.0))
        })
        .collect();
    let keys: Vec<KeyData> = (0..KEYS).map(|_| (vector(HEAD_DIM), vector(VALUE_DIM))).collect();
    let case = Case::new(format, &rows, &keys, &Modifications::default());
    declared((case, Profile::standard(format), STYLE))
}

/// Not a statistic: the same heads every time.
#[test]
fn truncated_weights_leave_it() {
    const HEADS: u64 = 16;
    const FIRST_SEED: u64 = 20_261_129;
    for format in [Format::F16, Format::Bf16] {
        let mut escaped = 0;
        for seed in FIRST_SEED..FIRST_SEED + HEADS {
            let run = uniform_head(format, seed);
            let admitted = admitted(&run.0, &run.1);
            assert!(admitted.iter().all(Option::is_some), "seed {seed}");
            let found =
                |keeping| escapes(&run, &admitted, &mut Roundings::keeping(&[], keeping)).len();
            assert_eq!(found(Keeping::Nearest), 0, "seed {seed}");
            escaped += usize::from(found(Keeping::TruncatedWeights) > 0);
        }
        println!(
            "{format}, seeds from {FIRST_SEED}: {escaped} of {HEADS} heads with an entry outside"
        );
        assert_eq!(escaped as u64, HEADS, "{format}");
    }
}
