//! Enclosures of scores against exact and wider arithmetic.

use super::*;
use flashproof_spec::format::Format;
use flashproof_spec::problem::Scale;
use flashproof_spec::score::{Bias, Sink};
use proptest::prelude::*;

/// Bits of the reference values.
const PRECISION: u32 = 4000;

/// A rule with a bias, and a sink where there is no softcap.
fn rule(scale: Scale, head_dim: usize, softcap: Option<Softcap>, exponent: i32) -> ScoreRule {
    let problem = Problem {
        scale,
        softcap,
        bias: Some(Bias { shape: [1; 4], format: Format::F64 }),
        sink: Some(Sink::Zero),
        ..Problem::new(Format::F64, 1, 1, head_dim)
    };
    ScoreRule::new(&problem, exponent)
}

fn rules() -> impl Strategy<Value = ScoreRule> {
    let scale = prop_oneof![
        2 => Just(Scale::InverseSqrtHeadDim),
        1 => (-4.0..4.0_f64).prop_map(Scale::Value),
        1 => Just(Scale::Value(0.0)),
    ];
    let order = prop_oneof![Just(SoftcapOrder::BeforeBias), Just(SoftcapOrder::AfterBias)];
    let cap = prop_oneof![0.1..100.0_f64, Just(1e-20), Just(1e20)];
    let softcap = prop::option::of((cap, order).prop_map(|(cap, order)| Softcap { cap, order }));
    (scale, prop::sample::select(vec![1, 2, 9, 12, 64]), softcap, -40..10_i32)
        .prop_map(|(scale, head_dim, softcap, exponent)| rule(scale, head_dim, softcap, exponent))
}

/// A dot product and what is added to its score.
fn key() -> impl Strategy<Value = (i64, Addends)> {
    let addend = prop_oneof![
        3 => -8.0..8.0_f64,
        2 => (-3_i8..3).prop_map(f64::from),
        1 => Just(f64::from(f32::MIN)),
        1 => -1e-30..1e-30_f64,
    ];
    let dot = prop_oneof![-1000_i64..1000, -(1_i64 << 50)..1 << 50];
    (dot, addend.clone(), addend).prop_map(|(dot, bias, alibi)| (dot, Addends { bias, alibi }))
}

/// The score by its definition, rounded at many bits.
fn reference(rule: &ScoreRule, (dot, addends): (i64, Addends)) -> Float {
    let float = |x: f64| Float::with_val(PRECISION, x);
    let product = (rule.scale.rounded(PRECISION, Round::Down) * dot) << rule.exponent;
    let addend = float(addends.bias) + float(addends.alibi);
    let capped = |t: Float, cap: f64| Float::with_val(PRECISION, t / cap).tanh() * cap;
    match rule.softcap {
        None => product + addend,
        Some(Softcap { cap, order: SoftcapOrder::BeforeBias }) => capped(product, cap) + addend,
        Some(Softcap { cap, order: SoftcapOrder::AfterBias }) => capped(product + addend, cap),
    }
}

fn parts(rule: &ScoreRule, (dot, addends): (i64, Addends)) -> Parts {
    rule.key(Integer::from(dot), addends)
}

/// What a reference value can be off by.
fn slack() -> Float {
    Float::with_val(PRECISION, 1) >> (PRECISION - 300)
}

fn unit(bits: u32) -> Float {
    Float::with_val(PRECISION, 1) >> bits
}

proptest! {
    #[test]
    fn scores_lie_in_their_enclosures(rule in rules(), key in key(), bits in 1_u32..200) {
        let (score, parts) = (reference(&rule, key), parts(&rule, key));
        let enclosure = rule.enclose(&parts, bits);
        prop_assert!(*enclosure.lo() <= Float::with_val(PRECISION, &score + slack()));
        prop_assert!(*enclosure.hi() >= Float::with_val(PRECISION, &score - slack()));
        prop_assert!(Float::with_val(PRECISION, enclosure.hi() - enclosure.lo()) < unit(bits));
        prop_assert!(enclosure.contains(&rule.enclose(&parts, 2 * bits)));
        if let Some(rational) = rule.rational(&parts) {
            prop_assert!(*enclosure.lo() <= rational && rational <= *enclosure.hi());
        }
    }

    #[test]
    fn gaps_are_rounded_up_by_little(
        rule in rules(), top in key(), other in key(), bits in 1_u32..200,
    ) {
        let exact = Float::with_val(PRECISION, reference(&rule, top) - reference(&rule, other));
        let (top, other) = (parts(&rule, top), parts(&rule, other));
        let gap = rule.gaps_from(&top, bits).hi(&other);
        prop_assert!(gap >= Float::with_val(PRECISION, &exact - slack()));
        prop_assert!(Float::with_val(PRECISION, &gap - &exact) < unit(bits) + slack());
        prop_assert!(rule.gaps_from(&top, 2 * bits).hi(&other) <= gap);
        prop_assert_eq!(rule.gaps_from(&top, bits).hi(&top), 0);
    }

    #[test]
    fn slopes_lie_in_their_enclosures(rule in rules(), key in key(), bits in 8_u32..200) {
        let parts = parts(&rule, key);
        let slope = rule.slope(&parts, bits);
        prop_assert!(slope.contains(&rule.slope(&parts, 2 * bits)));
        let Some(Softcap { cap, .. }) = rule.softcap else {
            prop_assert!(*slope.lo() == 1 && *slope.hi() == 1);
            return Ok(());
        };
        let argument = rule.argument(&parts, PRECISION, Round::Down);
        let exact = Float::with_val(PRECISION, argument / cap).sech().square();
        let tiny = Float::with_val(PRECISION, &exact * slack());
        prop_assert!(*slope.lo() <= Float::with_val(PRECISION, &exact + &tiny));
        prop_assert!(*slope.hi() >= Float::with_val(PRECISION, &exact - &tiny));
        let width = Float::with_val(PRECISION, slope.hi() - slope.lo());
        prop_assert!(width <= Float::with_val(PRECISION, slope.lo() * unit(bits - 2)) || *slope.lo() == 0);
    }

    #[test]
    fn arguments_of_the_softcap_are_bounded_below(rule in rules(), key in key()) {
        let parts = parts(&rule, key);
        let bound = rule.cap_argument_lo(&parts);
        let cap = rule.softcap.map_or(f64::INFINITY, |softcap| softcap.cap);
        let argument = rule.argument(&parts, PRECISION, Round::Down) / cap;
        prop_assert!(bound <= argument.clone().abs() + slack());
        let close = 2.0_f64.powi(-63) / cap;
        prop_assert!(bound >= argument.abs() * (1.0 - f64::EPSILON) - close);
    }
}

#[test]
fn scores_that_are_equal_have_equal_parts_without_a_softcap() {
    let key = |rule: &ScoreRule, dot: i32, bias: f64| {
        rule.key(Integer::from(dot), Addends { bias, alibi: 0.0 })
    };
    // 6/3 - 1 = 3/3 + 0 = 1, and 4 * 3/4 - 2 = 0 * 3/4 + 1 = 1.
    for (scale, head_dim, pairs) in [
        (Scale::InverseSqrtHeadDim, 9, [(6, -1.0), (3, 0.0)]),
        (Scale::Value(0.75), 2, [(4, -2.0), (0, 1.0)]),
    ] {
        let rule = rule(scale, head_dim, None, 0);
        assert!(rule.is_linear());
        let [one, other] = pairs.map(|(dot, bias)| key(&rule, dot, bias));
        assert_eq!(one, other);
        assert_eq!(rule.sink(1.0), other);
        assert_eq!(rule.rational(&other), Some(Rational::from(1)));
    }
    let irrational = rule(Scale::InverseSqrtHeadDim, 2, None, 0);
    assert!(!irrational.is_linear() && irrational.is_algebraic());
    assert_eq!(irrational.sink(1.5), key(&irrational, 0, 1.5));
    assert_ne!(irrational.sink(1.5), key(&irrational, 1, 1.5));
    assert_eq!(irrational.rational(&key(&irrational, 1, 1.5)), None);
}

#[test]
fn a_softcap_of_zero_is_zero_and_of_infinity_the_cap() {
    for order in [SoftcapOrder::BeforeBias, SoftcapOrder::AfterBias] {
        let rule = rule(Scale::Value(0.5), 2, Some(Softcap { cap: 3.0, order }), 0);
        let nothing = Addends::default();
        assert_eq!(rule.rational(&rule.key(Integer::new(), nothing)), Some(Rational::new()));
        assert_eq!(rule.rational(&rule.key(Integer::from(4), nothing)), None);
        let top = rule.saturated(Saturated { negative: false }, nothing);
        assert_eq!(rule.rational(&top), Some(Rational::from(3)));
        let bottom = rule.saturated(Saturated { negative: true }, nothing);
        assert_eq!(rule.gaps_from(&top, 64).hi(&bottom), 6);
    }
}
