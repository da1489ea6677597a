//! The forward bounds under score modifications, sinks, dropout and merges: what each may cost, and
//! what it must not.

mod support;

use flashproof_spec::bound::{self, Bound, ForwardBounds, NoBound, RowCondition, SinkCondition};
use flashproof_spec::format::Format;
use flashproof_spec::mask::Alignment;
use flashproof_spec::pattern::Pattern;
use flashproof_spec::problem::{Problem, Scale};
use flashproof_spec::profile::{Profile, Schedule};
use flashproof_spec::score::{Alibi, Bias, Dropout, Sink, Slopes, Softcap, SoftcapOrder};
use ndarray::Array2;
use proptest::prelude::*;
use support::settings;

/// A product `x`, what is added to it, and a value.
#[derive(Clone, Copy, Debug)]
struct Key {
    product: f64,
    addend: f64,
    value: f64,
}

const fn key(product: f64, addend: f64, value: f64) -> Key {
    Key { product, addend, value }
}

/// `sum |q_t k_t|` over `|<q, k>|`.
const MASS: f64 = 2.0;

/// The row of these keys and this sink, in `f64`: near enough for properties of bounds.
fn condition(problem: &Problem, keys: &[Key], sink: Option<f64>) -> RowCondition {
    let argument = |key: &Key| match problem.softcap {
        None => 0.0,
        Some(Softcap { cap, order: SoftcapOrder::BeforeBias }) => key.product / cap,
        Some(Softcap { cap, order: SoftcapOrder::AfterBias }) => (key.product + key.addend) / cap,
    };
    let score = |key: &Key| match problem.softcap {
        None => key.product + key.addend,
        Some(Softcap { cap, order: SoftcapOrder::BeforeBias }) => {
            cap * argument(key).tanh() + key.addend
        }
        Some(Softcap { cap, order: SoftcapOrder::AfterBias }) => cap * argument(key).tanh(),
    };
    let scores: Vec<f64> = keys.iter().map(score).collect();
    let key_max = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let m = sink.map_or(key_max, |logit| logit.max(key_max));
    let weight = |score: f64| (score - m).exp();
    let l: f64 = scores.iter().copied().chain(sink).map(weight).sum();
    let p: Vec<f64> = scores.iter().map(|&score| weight(score) / l).collect();
    let output: f64 = keys.iter().zip(&p).map(|(key, p)| key.value * p).sum();
    let gaps: Vec<f64> = scores.iter().map(|score| m - score).collect();
    let of = |part: fn(&Key) -> f64| keys.iter().map(part).collect::<Vec<f64>>();
    RowCondition {
        gap_lo: gaps.clone(),
        gap_hi: gaps,
        product_magnitude_hi: of(|key| key.product.abs()),
        addend_magnitude_hi: of(|key| key.addend.abs()),
        cap_argument_lo: keys.iter().map(|key| argument(key).abs()).collect(),
        score_magnitude_hi: scores.iter().map(|score| score.abs()).collect(),
        dot_mass_hi: of(|key| MASS * key.product.abs()),
        probability_lo: p.clone(),
        probability_hi: p.iter().map(|p| p.max(f64::from_bits(1))).collect(),
        max_magnitude_hi: m.abs(),
        normalizer_lo: l,
        normalizer_hi: l,
        lse_magnitude_hi: (m + l.ln()).abs(),
        output_lo: vec![output],
        output_hi: vec![output],
        sink: sink.map(|logit| SinkCondition {
            logit,
            gap_lo: m - logit,
            gap_hi: m - logit,
            key_gap_hi: (logit - key_max).abs(),
            probability_lo: weight(logit) / l,
            probability_hi: (weight(logit) / l).max(f64::from_bits(1)),
        }),
        product_unit_hi: 1.0,
        value_unit_hi: 1.0,
    }
}

fn bounds(problem: &Problem, profile: &Profile, keys: &[Key], sink: Option<f64>) -> ForwardBounds {
    let condition = condition(problem, keys, sink);
    let values = keys.iter().map(|key| key.value).collect();
    let values = Array2::from_shape_vec((keys.len(), 1), values).expect("a column");
    bound::forward(problem, profile, &condition, &values.view())
}

fn within(bound: Bound) -> f64 {
    match bound {
        Bound::Within(bound) => bound,
        Bound::None(reason) => panic!("no bound: {reason:?}"),
    }
}

/// That of the only output.
fn output(problem: &Problem, profile: &Profile, keys: &[Key], sink: Option<f64>) -> f64 {
    within(bounds(problem, profile, keys, sink).output[0])
}

fn plain(format: Format, keys: usize) -> Problem {
    Problem { query_len: 1, value_dim: 1, ..Problem::new(format, 1, keys, 16) }
}

fn biased(format: Format, keys: usize) -> Problem {
    Problem { bias: Some(Bias { shape: [1, 1, 1, keys], format }), ..plain(format, keys) }
}

fn capped(format: Format, keys: usize, cap: f64, order: SoftcapOrder) -> Problem {
    Problem { softcap: Some(Softcap { cap, order }), ..plain(format, keys) }
}

fn with_sink(problem: Problem) -> Problem {
    Problem { sink: Some(Sink::Logits(Format::F32)), ..problem }
}

const ORDERS: [SoftcapOrder; 2] = [SoftcapOrder::BeforeBias, SoftcapOrder::AfterBias];

/// Formats whose lowest number is beyond any score: a bias of it hides a key.
const WIDE: [Format; 3] = [Format::F64, Format::F32, Format::Bf16];

/// A key hidden by the lowest number costs what one hidden by a bias of a thousand does: its own
/// error of 1e32 reaches no other key.
#[test]
fn a_hidden_key_leaves_the_others_alone() {
    for format in WIDE {
        let (problem, profile) = (biased(format, 3), Profile::standard(format));
        let hidden_by = |bias| {
            let keys = [key(1.0, 0.5, 2.0), key(-2.0, 0.25, 3.0), key(0.5, bias, -7.0)];
            bounds(&problem, &profile, &keys, None)
        };
        let (lowest, thousand) = (hidden_by(-format.max_finite()), hidden_by(-1000.0));
        assert!(within(lowest.output[0]) <= within(thousand.output[0]), "{format:?}");
        assert!(within(lowest.lse) <= within(thousand.lse), "{format:?}");
    }
}

/// Where every key is biased by the lowest number, weights may be any, and are weights all the same
/// (pytorch#109517): the mean of values lies among them, and a kernel that loses all keys does not
/// give it.
#[test]
fn a_row_of_lowest_biases_is_still_a_mean() {
    for format in WIDE {
        let (problem, profile) = (biased(format, 3), Profile::standard(format));
        let values = [2.0, 2.5, 2.25];
        let keys = values.map(|value| key(0.5, -format.max_finite(), value));
        let bounds = bounds(&problem, &profile, &keys, None);
        let mean = 2.25;
        let bound = within(bounds.output[0]);
        assert!((0.25..mean / 2.0).contains(&bound), "{bound} in {format:?}");
        assert!(within(bounds.lse) < format.max_finite(), "{format:?}");
    }
}

/// A product that is more than half an ulp of the largest number takes the sum out of range.
#[test]
fn a_sum_past_the_largest_number_has_no_bound() {
    let (format, lowest) = (Format::F32, -Format::F32.max_finite());
    let (problem, profile) = (biased(format, 1), Profile::standard(format));
    let of = |product| bounds(&problem, &profile, &[key(product, lowest, 1.0)], None);
    assert!(matches!(of(-1.0).output[0], Bound::Within(_)));
    let past = of(-(104.0_f64.exp2()));
    assert_eq!(past.output, [Bound::None(NoBound::Overflow)]);
    assert_eq!(past.lse, Bound::None(NoBound::Overflow));
    // Hidden by another, it is a weight of 0 either way.
    let problem = biased(format, 2);
    let keys = [key(-(104.0_f64.exp2()), lowest, 1.0), key(-(104.0_f64.exp2()), 0.0, 2.0)];
    assert!(matches!(bounds(&problem, &profile, &keys, None).output[0], Bound::Within(_)));
}

/// Scores kept in a format that can not hold the bias are minus infinity there.
#[test]
fn a_narrow_score_format_may_lose_hidden_keys_only() {
    let profile = Profile { score_format: Format::F16, ..Profile::standard(Format::Bf16) };
    let problem = biased(Format::Bf16, 2);
    let hidden = key(0.5, -1e6, 4.0);
    let live = output(&problem, &profile, &[key(0.5, 0.0, 2.0), hidden], None);
    assert!(live <= 4.0 * Format::Bf16.unit_roundoff() * 2.0, "{live}");
    let all = bounds(&problem, &profile, &[hidden, hidden], None);
    assert_eq!(all.output, [Bound::None(NoBound::Overflow)]);
}

/// The addend and the product cancel in the score, and not in its error.
#[test]
fn cancelling_addends_cost_their_magnitudes() {
    let (format, u) = (Format::F32, Format::F32.unit_roundoff());
    let profile = Profile::standard(format);
    let lse = |x: f64| {
        let keys = [key(x, -x, 1.0), key(0.0, 0.0, 2.0)];
        within(bounds(&biased(format, 2), &profile, &keys, None).lse)
    };
    // One key of two, whose score is the sum of two roundings of 1000 each.
    assert!(lse(1000.0) >= 0.5 * 2.0 * 1000.0 * u);
    assert!(lse(1000.0) >= 100.0 * lse(1.0));
}

/// A kernel computes the slopes of ALiBi in f32 by itself, whatever its arithmetic; given ones are as
/// they are.
#[test]
fn standard_slopes_are_an_ulp_of_f32_off() {
    let lse = |slopes| {
        let alibi = Some(Alibi { slopes, alignment: Alignment::BottomRight });
        let problem = Problem { alibi, ..plain(Format::F64, 2) };
        let keys = [key(0.0, -8.0, 1.0), key(0.0, -8.0, 2.0)];
        within(bounds(&problem, &Profile::standard(Format::F64), &keys, None).lse)
    };
    let ulp = 8.0 * 2.0 * Format::F32.unit_roundoff();
    let (standard, given) = (lse(Slopes::Standard), lse(Slopes::Given(vec![0.5])));
    assert!(standard >= ulp && standard <= 2.0 * ulp, "{standard}");
    assert!(given <= 1e3 * 8.0 * Format::F64.unit_roundoff(), "{given}");
}

/// Far beyond the cap, an error of the product changes nothing.
#[test]
fn a_saturated_softcap_forgets_the_product() {
    for order in ORDERS {
        let (cap, u) = (30.0, Format::F32.unit_roundoff());
        let problem = capped(Format::F32, 2, cap, order);
        let profile = Profile::standard(Format::F32);
        let lse = |x: f64| {
            let keys = [key(x, 0.0, 1.0), key(-x, 0.0, 2.0)];
            within(bounds(&problem, &profile, &keys, None).lse)
        };
        // The error of a product of a million is of the order of 1.
        assert!(lse(1e6) <= lse(1e3));
        assert!(lse(1e6) <= 100.0 * u * cap, "{}", lse(1e6));
    }
}

/// Even where nothing is known of the argument, a capped score lies within the cap.
#[test]
fn a_softcap_bounds_any_error() {
    let problem = capped(Format::F32, 2, 0.5, SoftcapOrder::AfterBias);
    let profile = Profile::standard(Format::F32);
    let mut condition = condition(&problem, &[key(1e30, 0.0, 1.0), key(1e30, 0.0, 2.0)], None);
    condition.cap_argument_lo = vec![0.0; 2];
    let values = Array2::from_shape_vec((2, 1), vec![1.0, 2.0]).expect("a column");
    let lse = within(bound::forward(&problem, &profile, &condition, &values.view()).lse);
    assert!((1.0..1.001).contains(&lse), "{lse}");
}

/// `tanh` errs relatively, so a cap far above the scores costs them a few roundings of their own.
#[test]
fn a_softcap_errs_relative_to_small_scores() {
    let profile = Profile { schedule: Schedule::Dense, ..Profile::standard(Format::F32) };
    let keys = [key(1.0, 0.0, 1.0), key(-1.0, 0.0, 2.0)];
    let without = within(bounds(&plain(Format::F32, 2), &profile, &keys, None).lse);
    for order in ORDERS {
        let problem = capped(Format::F32, 2, 1e6, order);
        let with = within(bounds(&problem, &profile, &keys, None).lse);
        let roundings = (with - without) / Format::F32.unit_roundoff();
        // Tangent and quotient, each 5; the factor and seven more.
        assert!((10.0..30.0).contains(&roundings), "{roundings}");
    }
}

/// A sink has no value, so constant values do not cancel the error of its weight.
#[test]
fn a_sink_pulls_constant_values() {
    let (format, v) = (Format::F32, 4.0);
    let profile = Profile::standard(format);
    let keys = [key(1000.0, 0.0, v), key(999.0, 0.0, v)];
    let alone = output(&plain(format, 2), &profile, &keys, None);
    let sunk = output(&with_sink(plain(format, 2)), &profile, &keys, Some(1000.0));
    // Half of the weight, uncertain by a rounding of 1000.
    assert!(sunk >= 0.25 * v * 1000.0 * format.unit_roundoff());
    assert!(sunk >= 10.0 * alone, "{sunk} against {alone}");
}

/// The sink is added to the normalizer once, and is one more rescaling.
#[test]
fn a_sink_of_no_weight_costs_roundings_only() {
    let format = Format::F32;
    let profile = Profile::standard(format);
    let keys = [key(1.0, 0.0, 2.0), key(0.5, 0.0, 3.0)];
    let alone = output(&plain(format, 2), &profile, &keys, None);
    let sunk = output(&with_sink(plain(format, 2)), &profile, &keys, Some(-1000.0));
    assert!(sunk > alone);
    assert!(sunk - alone <= 20.0 * 3.0 * format.unit_roundoff(), "{}", sunk - alone);
}

/// `e^(t - m')` overflows where a kernel takes its reference from the keys alone: its output is 0 and
/// its LSE infinite. An output of the size of values stays wrong.
#[test]
fn a_sink_that_overflows_leaves_outputs_near_zero() {
    let format = Format::F32;
    let (problem, profile) = (with_sink(plain(format, 2)), Profile::standard(format));
    let keys = [key(1.0, 0.0, 2.0), key(0.5, 0.0, 3.0)];
    let near = bounds(&problem, &profile, &keys, Some(80.0));
    assert!(within(near.lse) <= 1e4 * format.unit_roundoff());
    let far = bounds(&problem, &profile, &keys, Some(200.0));
    assert_eq!(far.lse, Bound::None(NoBound::Overflow));
    let exact = condition(&problem, &keys, Some(200.0)).output_hi[0];
    let bound = within(far.output[0]);
    assert!(bound >= exact && bound < format.smallest_normal(), "{bound}");
}

/// All keys hidden beside a sink: the output is 0 and not a mean of values.
#[test]
fn a_sink_outweighs_hidden_keys() {
    for format in WIDE {
        let (problem, profile) = (with_sink(biased(format, 2)), Profile::standard(format));
        let keys = [2.0, 3.0].map(|value| key(0.5, -format.max_finite(), value));
        let bound = output(&problem, &profile, &keys, Some(0.0));
        assert!(bound < 2.0 * Format::F32.smallest_normal(), "{bound} in {format:?}");
    }
}

/// One key of weight 1: rounded, multiplied by a rounded factor, rounded again, and the output once.
#[test]
fn dropout_rounds_each_weight_again() {
    let format = Format::Bf16;
    let profile = Profile { schedule: Schedule::Blocks(64), ..Profile::standard(format) };
    let keep = Pattern::new([1; 4], vec![true]).expect("one key");
    let dropout = Some(Dropout { scale: 1.0, keep });
    let problem = Problem { dropout, ..plain(format, 1) };
    let (u, of_f32) = (format.unit_roundoff(), 32.0 * Format::F32.unit_roundoff());
    let bound = output(&problem, &profile, &[key(3.0, 0.0, 1.0)], None);
    assert!(bound >= (1.0 + u).powi(3) - 1.0, "{bound}");
    assert!(bound <= (1.0 + u).powi(3) - 1.0 + of_f32, "{bound}");
}

/// A factor of dropout below 1 that comes in the end lets raw values into the numerator.
#[test]
fn dropout_that_shrinks_counts_raw_values() {
    let format = Format::F16;
    let profile = Profile { carried_format: format, ..Profile::standard(format) };
    let keys = [key(0.0, 0.0, 10_000.0); 2];
    let bound = |scale: f64| {
        let keep = Pattern::new([1, 1, 1, 2], vec![true; 2]).expect("two keys");
        let problem = Problem { dropout: Some(Dropout { scale, keep }), ..plain(format, 2) };
        bounds(&problem, &profile, &keys, None).output[0]
    };
    assert!(matches!(bound(1.0), Bound::Within(_)));
    // The same products of values of 40,000, two of which are past the largest number of f16.
    assert_eq!(bound(0.25), Bound::None(NoBound::Overflow));
}

/// An LSE of a part is rounded, and its error does not cancel between parts.
#[test]
fn merged_parts_cost_the_roundings_of_their_lses() {
    let format = Format::F32;
    let profile = Profile { schedule: Schedule::Dense, ..Profile::standard(format) };
    let merged = Profile { merged_parts: Some(2), ..profile.clone() };
    let keys = |x: f64| [key(x, 0.0, 1.0), key(x, 0.0, -1.0)];
    let problem = plain(format, 2);
    let extra = |x: f64| {
        let whole = output(&problem, &profile, &keys(x), None);
        output(&problem, &merged, &keys(x), None) - whole
    };
    let u = format.unit_roundoff();
    assert!(extra(1000.0) >= 1000.0 * u);
    assert!(extra(1000.0) <= 20.0 * 1000.0 * u);
    assert!(extra(0.0) >= u && extra(0.0) <= 100.0 * u, "{}", extra(0.0));
}

fn rows() -> impl Strategy<Value = (Vec<Key>, Option<f64>)> {
    let keys = (-40.0..40.0_f64, -20.0..20.0_f64, -8.0..8.0_f64)
        .prop_map(|(product, addend, value)| key(product, addend, value));
    // So near to every key that no weight overflows.
    let sinks = prop::option::of(-20.0..20.0_f64);
    (prop::collection::vec(keys, 1..8), sinks)
}

fn softcaps() -> impl Strategy<Value = Option<Softcap>> {
    let caps = (0.5..60.0_f64, prop::sample::select(ORDERS.to_vec()));
    prop::option::of(caps.prop_map(|(cap, order)| Softcap { cap, order }))
}

proptest! {
    #![proptest_config(settings(
        "modified_bounds",
        "tests/proptest-regressions/modified_bounds.txt",
    ))]

    /// Whatever a kernel declares more generously, or the problem asks for besides, bounds it more
    /// loosely.
    #[test]
    fn more_freedom_never_tightens((keys, sink) in rows(), softcap in softcaps()) {
        let format = Format::F16;
        let sunk = sink.map(|_| Sink::Logits(Format::F32));
        let problem = Problem { softcap, sink: sunk, ..biased(format, keys.len()) };
        let profile = Profile::standard(format);
        let keep = Pattern::new([1, 1, 1, keys.len()], vec![true; keys.len()]).expect("keys");
        let slopes = Slopes::Standard;
        let looser = [
            (problem.clone(), Profile { tanh_ulp: 4096.0, ..profile.clone() }),
            (problem.clone(), Profile { scale_roundings: 4, ..profile.clone() }),
            (problem.clone(), Profile { score_format: Format::Bf16, ..profile.clone() }),
            (problem.clone(), Profile { merged_parts: Some(3), ..profile.clone() }),
            (
                Problem { dropout: Some(Dropout { scale: 1.0, keep }), ..problem.clone() },
                profile.clone(),
            ),
            (
                Problem {
                    alibi: Some(Alibi { slopes, alignment: Alignment::BottomRight }),
                    ..problem.clone()
                },
                profile.clone(),
            ),
        ];
        let strict = bounds(&problem, &profile, &keys, sink);
        for (problem, profile) in looser {
            let loose = bounds(&problem, &profile, &keys, sink);
            prop_assert!(within(loose.output[0]) >= within(strict.output[0]), "{profile:?}");
            prop_assert!(within(loose.lse) >= within(strict.lse), "{profile:?}");
        }
    }

    /// A bias that is zero everywhere costs no more than the roundings of its addition, a few of each
    /// product's magnitude.
    #[test]
    fn nothing_added_costs_little((keys, _) in rows()) {
        let format = Format::F32;
        let keys: Vec<Key> = keys.into_iter().map(|k| key(k.product, 0.0, k.value)).collect();
        let profile = Profile::standard(format);
        let lse = |problem: &Problem| within(bounds(problem, &profile, &keys, None).lse);
        let n = keys.len();
        let extra = lse(&biased(format, n)) - lse(&plain(format, n));
        // Four of the factor and product, one of the addition.
        prop_assert!(extra <= 8.0 * 40.0 * format.unit_roundoff(), "{extra}");
    }

    /// Any scale, no panic and no NaN.
    #[test]
    fn extremes_bound_or_say_why(
        product in prop_oneof![-1e40..1e40_f64, Just(0.0)],
        addend in prop_oneof![Just(f64::MIN), Just(f64::MAX), -1e300..1e300_f64],
        cap in prop_oneof![Just(f64::MAX), Just(f64::from_bits(1)), 1e-40..1e40_f64],
        scale in prop_oneof![Just(0.0), Just(-3.0), Just(1e-300)],
        order in prop::sample::select(ORDERS.to_vec()),
    ) {
        let problem = Problem {
            scale: Scale::Value(scale),
            softcap: Some(Softcap { cap, order }),
            ..with_sink(biased(Format::F64, 2))
        };
        let keys = [key(product, addend, 1.0), key(0.0, 0.0, 2.0)];
        let bounds = bounds(&problem, &Profile::standard(Format::F64), &keys, Some(1.0));
        for bound in bounds.output.into_iter().chain([bounds.lse]) {
            if let Bound::Within(bound) = bound {
                prop_assert!(bound >= 0.0 && bound.is_finite());
            }
        }
    }
}
