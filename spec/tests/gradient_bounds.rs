//! The bounds on the gradients: evaluated a second way, and their qualitative properties.
//!
//! [`Exact`] evaluates the equations a second time. The crate's `f64` evaluation must lie above it,
//! and not far above.

#[path = "support/gradient_equations.rs"]
mod gradient_equations;
mod support;

use flashproof_spec::bound::gradient::{
    Contribution, GradientCondition, GradientRow, QueryEntry, SinkGradientCondition, bias_gradient,
    key_gradient, query_gradient, sink_gradient, value_gradient,
};
use flashproof_spec::bound::{Bound, NoBound};
use flashproof_spec::format::Format;
use flashproof_spec::mask::Alignment;
use flashproof_spec::pattern::Pattern;
use flashproof_spec::problem::{Problem, Scale};
use flashproof_spec::profile::{Accumulation, Carried, CarriedGradients, Profile};
use flashproof_spec::score::{Alibi, Bias, Dropout, Sink, Slopes, Softcap, SoftcapOrder};
use gradient_equations::{BITS, Data, Exact, big};
use proptest::prelude::*;
use rug::Float;
use support::settings;

/// The crate's evaluation is some thousand operations, each off by an ulp at most, of positive
/// terms, with exponentials tight to `2^-42`.
const EVALUATION_SLACK: f64 = 1.0 / (1_u64 << 35) as f64;

/// Where the bound is subnormal, each of those operations steps by the smallest subnormal at most.
const EVALUATION_STEPS: f64 = (1_u64 << 13) as f64;

fn magnitudes(count: usize, largest: f64) -> impl Strategy<Value = Vec<f64>> {
    prop::collection::vec(0.0..largest, count)
}

fn sinks() -> impl Strategy<Value = SinkGradientCondition> {
    (-30.0..30.0_f64, 0.0..1.0_f64, 0.0..9.0_f64).prop_map(|(logit, probability, centred)| {
        SinkGradientCondition { logit, probability_hi: probability, centred_magnitude_hi: centred }
    })
}

/// What score modifications add to a row: magnitudes of addends, slopes, how far beyond the cap,
/// and factors of dropout.
fn modified(keys: usize) -> impl Strategy<Value = [Vec<f64>; 4]> {
    let dropout = prop_oneof![1 => Just(0.0), 2 => Just(DROPOUT_SCALE)];
    (
        magnitudes(keys, 30.0),
        magnitudes(keys, 1.0),
        magnitudes(keys, 9.0),
        prop::collection::vec(dropout, keys),
    )
        .prop_map(|(addends, slopes, arguments, mut dropout)| {
            // The first key is that of the sums over rows: without it nothing would be left of dV.
            dropout[0] = DROPOUT_SCALE;
            [addends, slopes, arguments, dropout]
        })
}

/// Magnitudes that need not belong to any row: the equations hold for all.
fn condition(keys: usize) -> impl Strategy<Value = GradientCondition> {
    let vectors = (magnitudes(keys, 30.0), magnitudes(keys, 30.0), magnitudes(keys, 30.0));
    let more = (magnitudes(keys, 60.0), magnitudes(keys, 9.0), magnitudes(keys, 1.0));
    let small = prop_oneof![Just(0.0), 0.0..1e-3_f64];
    let scalars = (0.0..30.0_f64, 0.0..9.0_f64, 0.0..9.0_f64, small.clone(), small);
    let lse_gradient = prop_oneof![Just(0.0), 0.0..4.0_f64];
    let rest = (magnitudes(keys, 30.0), modified(keys), lse_gradient, sinks());
    (vectors, more, scalars, rest).prop_map(|(vectors, more, scalars, rest)| {
        let (product, cancelled, dp) = vectors;
        let (centred, dp_cancelled, probability) = more;
        let (lse, delta, delta_cancelled, delta_shift, lse_shift) = scalars;
        let (score, [addend, slope, cap_argument, dropout], lse_gradient, sink) = rest;
        let sum = |x: &[f64], y: &[f64]| x.iter().zip(y).map(|(x, y)| x + y).collect();
        GradientCondition {
            dot_mass_hi: sum(&product, &cancelled),
            score_magnitude_hi: score,
            product_magnitude_hi: product,
            addend_magnitude_hi: addend,
            cap_argument_lo: cap_argument,
            cap_slope_hi: slope,
            dropout,
            log_probability_hi: probability.iter().map(|p| p.ln()).collect(),
            probability_hi: probability,
            lse_magnitude_hi: lse,
            dp_mass_hi: sum(&dp, &dp_cancelled),
            dp_magnitude_hi: dp,
            centred_magnitude_hi: centred,
            lse_gradient_magnitude_hi: lse_gradient,
            delta_magnitude_hi: delta,
            delta_mass_hi: delta + delta_cancelled,
            delta_shift_hi: delta_shift,
            lse_shift_hi: lse_shift,
            sink: Some(sink),
        }
    })
}

fn data() -> impl Strategy<Value = Data> {
    (1_usize..12, 1_usize..12).prop_flat_map(|(rows, keys)| {
        let signed = |count| prop::collection::vec(-8.0..8.0_f64, count);
        (
            prop::collection::vec(condition(keys), rows),
            signed(keys),
            signed(rows),
            0.0..9.0_f64,
            0.0..9.0_f64,
        )
            .prop_map(|(rows, keys, factors, gradient, mean_key)| Data {
                rows,
                keys,
                factors,
                gradient,
                mean_key,
            })
    })
}

fn accumulations() -> impl Strategy<Value = Option<Accumulation>> {
    prop_oneof![
        Just(None),
        (2_usize..9)
            .prop_map(|depth| Some(Accumulation::Ieee { format: Format::F32, depth: Some(depth) })),
        (2_u32..17).prop_map(|chunk| Some(Accumulation::TensorCore {
            chunk,
            fraction_bits: 24,
            output_bits: 23,
        })),
    ]
}

/// None, or blocks of any size.
fn carried_gradients() -> impl Strategy<Value = CarriedGradients> {
    let carried = || {
        prop::option::of((1_usize..20).prop_map(|block| Carried { format: Format::Bf16, block }))
    };
    (carried(), carried(), carried()).prop_map(|(query, key, value)| CarriedGradients {
        query,
        key,
        value,
    })
}

fn profiles() -> impl Strategy<Value = (Format, Profile)> {
    let formats = prop::sample::select(vec![Format::F64, Format::F32, Format::F16, Format::Bf16]);
    let narrow = (any::<(bool, bool)>(), carried_gradients());
    (formats, narrow, accumulations(), accumulations()).prop_map(
        |(format, narrow, score_accumulation, value_accumulation)| {
            let ((carried, scores), carried_gradients) = narrow;
            let base = Profile::standard(format);
            let profile = Profile {
                score_accumulation: score_accumulation.unwrap_or(base.score_accumulation),
                value_accumulation: value_accumulation.unwrap_or(base.value_accumulation),
                carried_format: if carried { base.weight_format } else { base.arithmetic },
                score_format: if scores { base.weight_format } else { base.arithmetic },
                carried_gradients,
                ..base
            };
            (format, profile)
        },
    )
}

/// Every gradient in bf16, rounded with every term.
fn with_every_term(profile: &Profile) -> CarriedGradients {
    let coarser = |declared: Option<Carried>| {
        let format = declared.map_or(profile.carried_format, |it| it.format);
        let narrower = format.precision() > Format::Bf16.precision();
        Some(Carried { format: if narrower { Format::Bf16 } else { format }, block: 1 })
    };
    let CarriedGradients { query, key, value } = profile.carried_gradients;
    CarriedGradients { query: coarser(query), key: coarser(key), value: coarser(value) }
}

fn problem(format: Format) -> Problem {
    Problem { value_dim: 8, ..Problem::new(format, 1, 12, 16) }
}

/// A number of f32, as any dropout's scale.
const DROPOUT_SCALE: f64 = 1.25;

fn softcaps() -> impl Strategy<Value = Softcap> {
    let orders = prop::sample::select(vec![SoftcapOrder::BeforeBias, SoftcapOrder::AfterBias]);
    (0.25..50.0_f64, orders).prop_map(|(cap, order)| Softcap { cap, order })
}

/// Problems with any score modifications, or none.
fn problems(format: Format) -> impl Strategy<Value = Problem> {
    let formats = prop::sample::select(vec![Format::F64, Format::F32, Format::F16, Format::Bf16]);
    let slopes = prop::sample::select(vec![Slopes::Standard, Slopes::Given(vec![0.5])]);
    (
        prop::option::of(softcaps()),
        prop::option::of(formats.clone()),
        prop::option::of(slopes),
        prop::option::of(formats),
        any::<bool>(),
    )
        .prop_map(move |(softcap, bias, slopes, sink, dropout)| Problem {
            softcap,
            bias: bias.map(|format| Bias { shape: [1; 4], format }),
            alibi: slopes.map(|slopes| Alibi { slopes, alignment: Alignment::BottomRight }),
            sink: sink.map(Sink::Logits),
            dropout: dropout.then(|| Dropout {
                scale: DROPOUT_SCALE,
                keep: Pattern::from_fn([1; 4], |_| true),
            }),
            ..problem(format)
        })
}

/// A problem and a profile for its format.
fn contracts() -> impl Strategy<Value = (Problem, Profile)> {
    profiles().prop_flat_map(|(format, profile)| (problems(format), Just(profile)))
}

/// The bounds on one entry of `dQ`, `dK` and `dV`, and of the gradients of bias and sink where the
/// problem has them.
fn all_bounds_of(problem: &Problem, profile: &Profile, data: &Data) -> Vec<Bound> {
    let rows: Vec<_> =
        data.rows.iter().map(|row| GradientRow::new(problem, profile, row)).collect();
    let sites: Vec<_> = rows.iter().map(|row| Contribution { row, key: 0, factor: 1.0 }).collect();
    let rows: Vec<_> = rows.iter().collect();
    let bias = problem.bias.map(|_| bias_gradient(problem, profile, &sites, data.gradient));
    let sink = matches!(problem.sink, Some(Sink::Logits(_)))
        .then(|| sink_gradient(problem, profile, &rows, data.gradient));
    bounds_of(problem, profile, data).into_iter().chain(bias).chain(sink).collect()
}

/// The bounds on one entry of `dQ`, `dK` and `dV`.
fn bounds_of(problem: &Problem, profile: &Profile, data: &Data) -> [Bound; 3] {
    let rows: Vec<_> =
        data.rows.iter().map(|row| GradientRow::new(problem, profile, row)).collect();
    let entry =
        QueryEntry { keys: &data.keys, gradient_hi: data.gradient, mean_key_hi: data.mean_key };
    let contributions: Vec<_> = rows
        .iter()
        .zip(&data.factors)
        .map(|(row, &factor)| Contribution { row, key: 0, factor })
        .collect();
    [
        query_gradient(problem, profile, &rows[0], entry),
        key_gradient(problem, profile, &contributions, data.gradient),
        value_gradient(problem, profile, &contributions, data.gradient),
    ]
}

fn within(bound: Bound) -> f64 {
    match bound {
        Bound::Within(bound) => bound,
        Bound::None(reason) => panic!("no bound: {reason:?}"),
    }
}

/// Where both are bounded, `loose` is no smaller.
fn assert_no_smaller(strict: Bound, loose: Bound) {
    if let (Bound::Within(strict), Bound::Within(loose)) = (strict, loose) {
        assert!(loose >= strict, "{loose} < {strict}");
    }
}

proptest! {
    #![proptest_config(settings("gradient_bounds", "tests/proptest-regressions/gradient_bounds.txt"))]

    #[test]
    fn the_evaluation_is_just_above_the_equations(
        data in data(),
        (problem, profile) in contracts(),
    ) {
        let exact = Exact::new(&problem, &profile, &data);
        let truths = [exact.query(), exact.key_sum(), exact.value()];
        let truths: Vec<_> =
            truths.into_iter().chain(exact.bias()).chain(exact.sink()).collect();
        let bounds = all_bounds_of(&problem, &profile, &data);
        prop_assert_eq!(bounds.len(), truths.len());
        for (bound, truth) in bounds.into_iter().zip(truths) {
            let bound = big(within(bound));
            prop_assert!(bound >= truth, "{bound} is below {truth}");
            let allowed = Float::with_val(BITS, &truth * (1.0 + EVALUATION_SLACK))
                + EVALUATION_STEPS * f64::from_bits(1);
            prop_assert!(bound <= allowed, "{bound} is far above {truth}");
        }
    }

    /// Whatever a kernel declares more generously bounds it more loosely.
    #[test]
    fn a_looser_profile_never_tightens(data in data(), (problem, profile) in contracts()) {
        let coarse = Accumulation::TensorCore { chunk: 4, fraction_bits: 10, output_bits: 10 };
        let looser = [
            Profile { exp_ulp: profile.exp_ulp * 2.0, ..profile.clone() },
            Profile { tanh_ulp: profile.tanh_ulp * 2.0, ..profile.clone() },
            Profile { scale_roundings: profile.scale_roundings + 1, ..profile.clone() },
            Profile { score_format: Format::Bf16, ..profile.clone() },
            Profile { weight_format: Format::Bf16, ..profile.clone() },
            Profile { carried_format: Format::Bf16, ..profile.clone() },
            Profile { carried_gradients: with_every_term(&profile), ..profile.clone() },
            Profile { flush_to_zero: true, ..profile.clone() },
            Profile { score_accumulation: coarse, ..profile.clone() },
            Profile { value_accumulation: coarse, ..profile.clone() },
        ];
        let strict = all_bounds_of(&problem, &profile, &data);
        for profile in &looser {
            let loose = all_bounds_of(&problem, profile, &data);
            for (&strict, loose) in strict.iter().zip(loose) {
                assert_no_smaller(strict, loose);
            }
        }
    }

    /// A forward pass further off, greater scores or more cancellation leave more room.
    #[test]
    fn a_harder_row_never_tightens(data in data(), (problem, profile) in contracts()) {
        let strict = all_bounds_of(&problem, &profile, &data);
        let moved = |change: &dyn Fn(&mut GradientCondition)| {
            let mut moved = data.clone();
            moved.rows.iter_mut().for_each(change);
            all_bounds_of(&problem, &profile, &moved)
        };
        let harder = [
            moved(&|row| row.lse_shift_hi += 0.5),
            moved(&|row| row.delta_shift_hi += 0.5),
            moved(&|row| row.lse_magnitude_hi += 100.0),
            moved(&|row| row.dot_mass_hi.iter_mut().for_each(|mass| *mass *= 2.0)),
            moved(&|row| row.dp_mass_hi.iter_mut().for_each(|mass| *mass *= 2.0)),
            moved(&|row| row.addend_magnitude_hi.iter_mut().for_each(|addend| *addend += 9.0)),
            moved(&|row| row.cap_slope_hi.iter_mut().for_each(|slope| *slope += 0.5)),
            moved(&|row| row.cap_argument_lo.iter_mut().for_each(|argument| *argument = 0.0)),
        ];
        for loose in harder {
            for (&strict, loose) in strict.iter().zip(loose) {
                assert_no_smaller(strict, loose);
            }
        }
    }
}

/// One row that sees one key, with score 0 and every other magnitude 1.
fn one_pair() -> GradientCondition {
    GradientCondition {
        score_magnitude_hi: vec![0.0],
        product_magnitude_hi: vec![0.0],
        addend_magnitude_hi: vec![0.0],
        cap_argument_lo: vec![0.0],
        cap_slope_hi: vec![1.0],
        dropout: vec![1.0],
        log_probability_hi: vec![0.0],
        sink: None,
        dot_mass_hi: vec![0.0],
        probability_hi: vec![1.0],
        lse_magnitude_hi: 0.0,
        dp_magnitude_hi: vec![1.0],
        dp_mass_hi: vec![1.0],
        centred_magnitude_hi: vec![0.0],
        lse_gradient_magnitude_hi: 0.0,
        delta_magnitude_hi: 1.0,
        delta_mass_hi: 1.0,
        delta_shift_hi: 0.0,
        lse_shift_hi: 0.0,
    }
}

fn one_pair_data() -> Data {
    let rows = vec![one_pair()];
    Data { rows, keys: vec![1.0], factors: vec![1.0], gradient: 1.0, mean_key: 1.0 }
}

/// One pair of weight 1 in bf16: a value gradient is rounded as a weight and as an output, and
/// everything else is of the order of `f32`.
#[test]
fn one_value_gradient_costs_two_roundings() {
    let profile = Profile::standard(Format::Bf16);
    let [_, _, value] = bounds_of(&problem(Format::Bf16), &profile, &one_pair_data());
    let u = Format::Bf16.unit_roundoff();
    assert!(within(value) >= 2.0 * u + u * u);
    // The exponential's five, the product, and what each brings on top of the others.
    let of_f32 = 16.0 * Format::F32.unit_roundoff();
    assert!(within(value) <= 2.0 * u + u * u + of_f32, "{value:?}");
}

/// Where `dS` is 0 and the forward pass was exact, what is left is the rounding of `D` and `dP`.
#[test]
fn an_exact_forward_pass_leaves_only_roundings() {
    let profile = Profile::standard(Format::F32);
    let problem = Problem { scale: Scale::Value(1.0), ..problem(Format::F32) };
    let u = Format::F32.unit_roundoff();
    let data = Data { gradient: 0.0, ..one_pair_data() };
    let [query, key, _] = bounds_of(&problem, &profile, &data);
    // dP and D: a product and seven sums each, of mass 1; and what they bring on top of each other.
    for bound in [query, key] {
        assert!(within(bound) <= (8.0 + 8.0 + 1.0) * u, "{bound:?}");
    }
}

/// Sixty-four rows, each with one key of weight 1: `dV` is the sum of their output gradients, and a
/// sum carried in bf16 loses the last bits of each.
#[test]
fn a_narrow_accumulator_needs_declaring() {
    const ROWS: usize = 64;
    const OUTPUT_GRADIENT: f64 = 1.0 + 1.0 / 64.0;
    let exact = ROWS as f64 * OUTPUT_GRADIENT;
    let data = Data {
        rows: vec![one_pair(); ROWS],
        factors: vec![OUTPUT_GRADIENT; ROWS],
        gradient: exact,
        ..one_pair_data()
    };
    let carried = (0..ROWS).fold(0.0, |sum, _| Format::Bf16.round(sum + OUTPUT_GRADIENT));
    let error = (Format::F16.round(carried) - exact).abs();
    let standard = Profile::standard(Format::F16);
    let declared = Profile { carried_format: Format::Bf16, ..standard.clone() };
    let bound = |profile| within(bounds_of(&problem(Format::F16), profile, &data)[2]);
    assert!(error > bound(&standard), "{error} within {}", bound(&standard));
    assert!(error <= bound(&declared), "{error} above {}", bound(&declared));
}

/// Such a sum, carried in bf16 between blocks of 4 rows: each adds 7.25, of which half a unit can be lost,
/// once a block and no oftener.
#[test]
fn a_narrow_accumulator_between_blocks_is_rounded_once_a_block() {
    const ROWS: usize = 64;
    const BLOCK: usize = 4;
    const OUTPUT_GRADIENT: f64 = 1.0 + 13.0 / 16.0;
    let exact = ROWS as f64 * OUTPUT_GRADIENT;
    let data = Data {
        rows: vec![one_pair(); ROWS],
        factors: vec![OUTPUT_GRADIENT; ROWS],
        gradient: exact,
        ..one_pair_data()
    };
    let block = BLOCK as f64 * OUTPUT_GRADIENT;
    let carried = (0..ROWS / BLOCK).fold(0.0, |sum, _| Format::Bf16.round(sum + block));
    let error = (Format::F16.round(carried) - exact).abs();
    let of_value = |block| CarriedGradients {
        value: Some(Carried { format: Format::Bf16, block }),
        ..CarriedGradients::default()
    };
    let standard = Profile::standard(Format::F16);
    let problem = Problem { query_len: ROWS, ..problem(Format::F16) };
    let bound = |block| {
        let profile = Profile { carried_gradients: of_value(block), ..standard.clone() };
        within(bounds_of(&problem, &profile, &data)[2])
    };
    let undeclared = within(bounds_of(&problem, &standard, &data)[2]);
    assert!(error > undeclared, "{error} within {undeclared}");
    assert!(error <= bound(BLOCK), "{error} above {}", bound(BLOCK));
    assert!(bound(BLOCK) < bound(1), "fewer roundings leave less room");
    let others = |profile| bounds_of(&problem, profile, &data);
    let declared = Profile { carried_gradients: of_value(BLOCK), ..standard.clone() };
    assert_eq!(others(&declared)[..2], others(&standard)[..2], "dQ and dK are carried as before");
}

#[test]
fn an_accumulator_that_bounds_nothing_says_so() {
    let coarse = Accumulation::TensorCore { chunk: 4, fraction_bits: 2, output_bits: 2 };
    let profile = Profile { value_accumulation: coarse, ..Profile::standard(Format::F16) };
    let bounds = bounds_of(&problem(Format::F16), &profile, &one_pair_data());
    assert_eq!(bounds, [Bound::None(NoBound::Accumulation); 3]);
}

#[test]
fn sums_beyond_the_accumulator_have_no_bound() {
    let profile = Profile::standard(Format::F32);
    let data = Data { keys: vec![3e38], factors: vec![3e38], ..one_pair_data() };
    let mut rows = data.rows.clone();
    rows[0].centred_magnitude_hi = vec![8.0];
    let bounds = bounds_of(&problem(Format::F32), &profile, &Data { rows, ..data });
    assert_eq!(bounds, [Bound::None(NoBound::Overflow); 3]);
}

/// The binary16 `dS` of an ordinary gradient can be infinite (`dS` = 1e5), and so can what it is
/// stored as (`dQ`, `dK` and `dV` of 1e5).
#[test]
fn gradients_beyond_their_formats_have_no_bound() {
    let (problem, profile) = (problem(Format::F16), Profile::standard(Format::F16));
    let mut rows = vec![one_pair()];
    rows[0].centred_magnitude_hi = vec![1e5];
    let [query, key, value] = bounds_of(&problem, &profile, &Data { rows, ..one_pair_data() });
    assert_eq!([query, key], [Bound::None(NoBound::Overflow); 2]);
    assert!(matches!(value, Bound::Within(_)), "{value:?}");
    let large = Data { gradient: 1e5, ..one_pair_data() };
    assert_eq!(bounds_of(&problem, &profile, &large), [Bound::None(NoBound::Overflow); 3]);
}
