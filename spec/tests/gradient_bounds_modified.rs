//! What score modifications do to the bounds on the gradients, each alone.

use flashproof_spec::bound::gradient::{
    Contribution, GradientCondition, GradientRow, QueryEntry, SinkGradientCondition, bias_gradient,
    key_gradient, query_gradient, sink_gradient, value_gradient,
};
use flashproof_spec::bound::{Bound, NoBound};
use flashproof_spec::format::Format;
use flashproof_spec::pattern::Pattern;
use flashproof_spec::problem::{Problem, Scale};
use flashproof_spec::profile::Profile;
use flashproof_spec::score::{Bias, Dropout, Sink, Softcap, SoftcapOrder};

/// Some tens of operations, each off by an ulp of `f64` at most.
const EVALUATION_SLACK: f64 = 1.0 / (1_u64 << 40) as f64;

/// A key of score 0, and whatever else is 1.
#[derive(Clone, Copy)]
struct Key {
    score: f64,
    addend: f64,
    cap_argument: f64,
    slope: f64,
    dropout: f64,
    probability: f64,
    log_probability: f64,
    dp_mass: f64,
}

const KEY: Key = Key {
    score: 0.0,
    addend: 0.0,
    cap_argument: 0.0,
    slope: 1.0,
    dropout: 1.0,
    probability: 1.0,
    log_probability: 0.0,
    dp_mass: 1.0,
};

/// A row of such keys, with `|L| = 0`, `|D| = 1`, `g = 0` and an exact forward pass.
fn row(keys: &[Key]) -> GradientCondition {
    let each = |of: fn(&Key) -> f64| keys.iter().map(of).collect::<Vec<_>>();
    GradientCondition {
        score_magnitude_hi: each(|key| key.score),
        product_magnitude_hi: each(|_| 0.0),
        addend_magnitude_hi: each(|key| key.addend),
        cap_argument_lo: each(|key| key.cap_argument),
        cap_slope_hi: each(|key| key.slope),
        dropout: each(|key| key.dropout),
        dot_mass_hi: each(|_| 0.0),
        probability_hi: each(|key| key.probability),
        log_probability_hi: each(|key| key.log_probability),
        lse_magnitude_hi: 0.0,
        dp_magnitude_hi: each(|_| 1.0),
        dp_mass_hi: each(|key| key.dp_mass),
        centred_magnitude_hi: each(|_| 1.0),
        lse_gradient_magnitude_hi: 0.0,
        delta_magnitude_hi: 1.0,
        delta_mass_hi: 1.0,
        delta_shift_hi: 0.0,
        lse_shift_hi: 0.0,
        sink: None,
    }
}

fn problem(format: Format) -> Problem {
    Problem { value_dim: 1, scale: Scale::Value(1.0), ..Problem::new(format, 1, 64, 1) }
}

fn with_bias(format: Format, stored: Format) -> Problem {
    Problem { bias: Some(Bias { shape: [1; 4], format: stored }), ..problem(format) }
}

fn with_softcap(cap: f64, order: SoftcapOrder) -> Problem {
    Problem { softcap: Some(Softcap { cap, order }), ..with_bias(Format::F32, Format::F32) }
}

fn with_sink(format: Format) -> Problem {
    Problem { sink: Some(Sink::Logits(format)), ..problem(format) }
}

fn with_dropout(format: Format, scale: f64) -> Problem {
    let keep = Pattern::from_fn([1; 4], |_| true);
    Problem { dropout: Some(Dropout { scale, keep }), ..problem(format) }
}

fn within(bound: Bound) -> f64 {
    match bound {
        Bound::Within(bound) => bound,
        Bound::None(reason) => panic!("no bound: {reason:?}"),
    }
}

fn unit_roundoff(format: Format) -> f64 {
    Profile::standard(format).arithmetic.unit_roundoff()
}

/// The bound on an entry of `dQ` that is 0, over keys of entries 1.
fn of_query(problem: &Problem, row: &GradientCondition) -> Bound {
    let profile = Profile::standard(problem.format);
    let keys = vec![1.0; row.probability_hi.len()];
    let entry = QueryEntry { keys: &keys, gradient_hi: 0.0, mean_key_hi: 0.0 };
    query_gradient(problem, &profile, &GradientRow::new(problem, &profile, row), entry)
}

/// A bound on a sum over rows.
type OverRows = fn(&Problem, &Profile, &[Contribution<'_>], f64) -> Bound;

/// The bound on an entry that is summed over rows, each with its first key and a factor of 1.
fn of_rows(bound: OverRows, problem: &Problem, rows: &[GradientCondition], gradient: f64) -> Bound {
    let profile = Profile::standard(problem.format);
    let rows: Vec<_> = rows.iter().map(|row| GradientRow::new(problem, &profile, row)).collect();
    let contributions: Vec<_> =
        rows.iter().map(|row| Contribution { row, key: 0, factor: 1.0 }).collect();
    bound(problem, &profile, &contributions, gradient)
}

/// A bias of the lowest number of the format hides nothing and weighs nothing. Its score has an
/// error of a quintillion and more, which must not reach the gradients of the other keys.
#[test]
fn a_key_of_the_lowest_bias_does_not_spoil_its_row() {
    for format in [Format::F64, Format::F32] {
        let lowest = -format.max_finite();
        let light = Key { probability: f64::from_bits(1), log_probability: -1000.0, ..KEY };
        let key = Key { score: -lowest, addend: -lowest, log_probability: lowest, ..light };
        let unknown = Key { log_probability: 0.0, ..key };
        let problem = with_bias(format, format);
        let bound = |key| of_query(&problem, &row(&[KEY, key]));
        let beside_nothing = within(bound(light));
        let beside_lowest = within(bound(key));
        assert!(beside_lowest <= beside_nothing * (1.0 + EVALUATION_SLACK), "{format}");
        // That it is so light must be known.
        assert!(matches!(bound(unknown), Bound::None(_)), "{format}");
    }
}

/// A softcap after the bias gives such a key the weight of the lowest score it has, and a slope of
/// nothing: what is left of `dX` are the roundings of `1 - t^2`.
#[test]
fn a_softcap_far_exceeded_leaves_the_roundings_of_its_slope() {
    let (cap, lowest) = (2.0, Format::F32.max_finite());
    let problem = with_softcap(cap, SoftcapOrder::AfterBias);
    let key = Key {
        score: cap,
        addend: lowest,
        cap_argument: lowest / cap,
        slope: f64::from_bits(1),
        ..KEY
    };
    let bound = within(of_rows(key_gradient, &problem, &[row(&[key])], 0.0));
    let u = unit_roundoff(Format::F32);
    // t twice: 2.5 ulp of the tangent, as many of the division, six roundings; t^2 and its product.
    // On top come what they bring on top of each other, and |b| times them.
    let slope = (2.0 * (5.0 + 5.0 + 6.0) + 2.0) * u;
    assert!(bound <= slope * (1.0 + 256.0 * u), "{bound} above {slope}");
    // Without knowing how far beyond the cap it is, the slope might be anything.
    let unknown = Key { cap_argument: 0.0, ..key };
    assert!(within(of_rows(key_gradient, &problem, &[row(&[unknown])], 0.0)) >= 1.0);
}

/// Where a softcap is nearly saturated, `1 - t^2` in f32 has no correct digit.
#[test]
fn a_saturated_slope_errs_absolutely() {
    const ARGUMENT: f64 = 8.5;
    let problem = with_softcap(1.0, SoftcapOrder::BeforeBias);
    let slope = ARGUMENT.cosh().powi(2).recip();
    let tanh = (ARGUMENT as f32).tanh();
    let error = (f64::from(1.0 - tanh * tanh) - slope).abs();
    let key = Key { score: 1.0, cap_argument: ARGUMENT, slope, ..KEY };
    let mut row = row(&[key]);
    row.product_magnitude_hi = vec![ARGUMENT];
    row.dot_mass_hi = vec![ARGUMENT];
    let bound = within(of_rows(key_gradient, &problem, &[row], slope));
    assert!(error > 0.1 * slope, "{error} is small beside {slope}");
    assert!(error <= bound, "{error} above {bound}");
    assert!(bound < 64.0 * unit_roundoff(Format::F32), "{bound}");
}

/// Before a softcap that follows the bias, `dS` of the bias has the slope as well; before one that
/// the bias follows, it has not.
#[test]
fn the_gradient_of_a_bias_has_the_slope_of_a_softcap_after_it() {
    let key = Key { score: 1.0, slope: 0.0, cap_argument: 1e3, ..KEY };
    let bound = |order| {
        let problem = with_softcap(1.0, order);
        let mut row = row(&[key]);
        row.delta_shift_hi = 0.5;
        within(of_rows(bias_gradient, &problem, &[row], 0.0))
    };
    // The error of D times p, and that times a slope of nothing.
    assert!(bound(SoftcapOrder::BeforeBias) >= 0.5);
    assert!(bound(SoftcapOrder::AfterBias) < 64.0 * unit_roundoff(Format::F32));
}

/// A dropped weight is zero, however its probability is rounded.
#[test]
fn a_dropped_weight_leaves_nothing_of_a_value_gradient() {
    let problem = with_dropout(Format::F32, 2.0);
    let dropped = row(&[Key { dropout: 0.0, ..KEY }]);
    let bound = within(of_rows(value_gradient, &problem, &[dropped], 0.0));
    // The sum and the last product may underflow.
    assert!(bound <= 8.0 * Format::F32.smallest_subnormal(), "{bound}");
    let kept = within(of_rows(value_gradient, &problem, &[row(&[KEY])], 0.0));
    assert!(kept >= 2.0 * unit_roundoff(Format::F32), "{kept}");
}

/// `dS` of a dropped key has no part of `dP` in it.
#[test]
fn a_dropped_weight_forgets_the_error_of_its_probability_gradient() {
    let bound = |dropout, dp_mass| {
        let key = Key { dropout, dp_mass, ..KEY };
        within(of_query(&with_dropout(Format::F32, 2.0), &row(&[key])))
    };
    assert_eq!(bound(0.0, 1.0).to_bits(), bound(0.0, 1e6).to_bits());
    assert!(bound(2.0, 1e6) > bound(2.0, 1.0));
}

/// The product with dropout's scale, and the scale's own rounding; once more where both come last.
#[test]
fn dropout_costs_a_value_gradient_four_roundings() {
    let u = unit_roundoff(Format::F32);
    let bound = |problem: &Problem, scale| {
        let kept = row(&[Key { dropout: scale, ..KEY }]);
        within(of_rows(value_gradient, problem, &[kept], scale)) / scale
    };
    let more = bound(&with_dropout(Format::F32, 1.25), 1.25) - bound(&problem(Format::F32), 1.0);
    assert!(more >= 4.0 * u && more <= 4.0 * u * (1.0 + 256.0 * u), "{more}");
}

/// 64 rows that each bring 1 + 2^-20 to one entry: f32 loses the last bits of the sum, and a bias
/// stored in bf16 all of them.
#[test]
fn the_gradient_of_a_bias_is_a_sum_of_the_arithmetic_stored_in_its_format() {
    const ROWS: u16 = 64;
    let term = 1.0 + f64::from(f32::EPSILON) * 8.0;
    let mut row = row(&[KEY]);
    row.centred_magnitude_hi = vec![term];
    row.delta_magnitude_hi = 0.0;
    row.delta_mass_hi = 0.0;
    row.dp_mass_hi = vec![0.0];
    row.dp_magnitude_hi = vec![0.0];
    let rows = vec![row; usize::from(ROWS)];
    let exact = term * f64::from(ROWS);
    let sum = (0..ROWS).fold(0.0_f64, |sum, _| Format::F32.round(sum + term));
    let bound = |stored| {
        let problem = with_bias(Format::F32, stored);
        within(of_rows(bias_gradient, &problem, &rows, exact))
    };
    for stored in [Format::F32, Format::Bf16] {
        let error = (stored.round(sum) - exact).abs();
        assert!(error <= bound(stored), "{stored}: {error} above {}", bound(stored));
        // A row left out is seen.
        assert!(term > bound(stored), "{stored}: {}", bound(stored));
    }
    assert!(bound(Format::F32) < Format::Bf16.unit_roundoff() * exact);
    assert!(bound(Format::Bf16) >= Format::Bf16.unit_roundoff() * exact);
}

/// A row that sees no key: the sink has all the weight, and `g` goes to it.
fn empty_row(logit: f64, lse_gradient: f64) -> GradientCondition {
    let sink = SinkGradientCondition {
        logit,
        probability_hi: 1.0,
        centred_magnitude_hi: lse_gradient.abs(),
    };
    GradientCondition {
        lse_magnitude_hi: logit.abs(),
        lse_gradient_magnitude_hi: lse_gradient.abs(),
        delta_magnitude_hi: 0.0,
        delta_mass_hi: 0.0,
        sink: Some(sink),
        ..row(&[])
    }
}

fn of_sink(problem: &Problem, rows: &[GradientCondition], gradient: f64) -> Bound {
    let profile = Profile::standard(problem.format);
    let rows: Vec<_> = rows.iter().map(|row| GradientRow::new(problem, &profile, row)).collect();
    let rows: Vec<_> = rows.iter().collect();
    sink_gradient(problem, &profile, &rows, gradient)
}

#[test]
fn a_row_without_keys_brings_its_sink_the_gradient_of_the_lse() {
    let u = unit_roundoff(Format::F32);
    let bound = |logit| within(of_sink(&with_sink(Format::F32), &[empty_row(logit, 1.0)], 1.0));
    // The exponential, D - g, difference and product, and the product in the sum.
    let roundings = (5.0 + 1.0 + 2.0 + 1.0) * u;
    assert!(bound(0.0) >= roundings && bound(0.0) <= roundings * (1.0 + 256.0 * u));
    // The factor's roundings and two more of logit and LSE.
    let argument = 5.0 * u * 2.0 * 3.0;
    assert!(bound(3.0) >= roundings + argument);
    assert!(bound(3.0) <= (roundings + argument) * (1.0 + 256.0 * u));
    assert!(bound(-3.0) >= roundings + argument);
}

/// A sink of the lowest number of the format weighs nothing where there are keys.
#[test]
fn a_sink_of_the_lowest_logit_has_next_to_no_gradient() {
    for format in [Format::F64, Format::F32] {
        let lowest = -format.max_finite();
        let sink = SinkGradientCondition {
            logit: lowest,
            probability_hi: f64::from_bits(1),
            centred_magnitude_hi: 1.0,
        };
        let row = GradientCondition { sink: Some(sink), ..row(&[KEY]) };
        let bound = within(of_sink(&with_sink(format), &[row], 0.0));
        assert!(bound < format.smallest_normal(), "{format}: {bound}");
    }
}

/// `dS` of 1e5 may be rounded to binary16 before it is summed; `D` may leave the range of f32, and
/// so may a kept `dP`.
#[test]
fn sums_beyond_their_formats_have_no_bound() {
    let mut large = row(&[KEY]);
    large.centred_magnitude_hi = vec![1e5];
    let problem = with_bias(Format::F16, Format::F32);
    let overflow = Bound::None(NoBound::Overflow);
    assert_eq!(of_rows(bias_gradient, &problem, &[large], 0.0), overflow);
    let stored = with_bias(Format::F32, Format::F16);
    assert_eq!(of_rows(bias_gradient, &stored, &[row(&[KEY])], 1e5), overflow);
    let mut outputs = empty_row(0.0, 1.0);
    outputs.delta_mass_hi = 3e38;
    assert_eq!(of_sink(&with_sink(Format::F32), &[outputs], 0.0), overflow);
    let kept = Key { dropout: 8.0, dp_mass: 1e38, ..KEY };
    assert_eq!(of_query(&with_dropout(Format::F32, 8.0), &row(&[kept])), overflow);
    assert!(matches!(of_query(&problem, &row(&[KEY])), Bound::Within(_)));
}
