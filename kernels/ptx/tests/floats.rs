//! Floating-point instructions against exact rational arithmetic and the tables of the PTX ISA.

mod kernel;

use flashproof_ptx::{Approximation, Options, Policy};
use half::{bf16, f16};
use kernel::{Result3, evaluate};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use rug::Rational;

const SEED: u64 = 0x5eed_0306;
const NAN: u32 = 0x7fff_ffff;

/// Triples of `f32`: special numbers with each other, and random bits of all and of near exponents.
fn operands() -> Vec<[f32; 3]> {
    let tiny = f32::from_bits(1);
    let special = [
        0.0,
        1.0,
        1.5,
        0.1,
        3.0,
        tiny,
        f32::MIN_POSITIVE,
        f32::MAX,
        f32::INFINITY,
        f32::NAN,
        f32::from_bits(0x007f_ffff),
        16_777_216.0,
        1.0 + f32::EPSILON,
        2.5,
        1e-30,
        1e30,
    ];
    let all: Vec<f32> = special.iter().flat_map(|x| [*x, -x]).collect();
    let mut random = ChaCha8Rng::seed_from_u64(SEED);
    let mut triples = Vec::new();
    for a in &all {
        for b in &all {
            triples.push([*a, *b, all[random.random_range(0..all.len())]]);
        }
    }
    for _ in 0..2000 {
        triples.push(std::array::from_fn(|_| f32::from_bits(random.random())));
        let near = |random: &mut ChaCha8Rng| {
            f32::from_bits(0x3f00_0000 | random.random::<u32>() & 0x80ff_ffff)
        };
        triples.push(std::array::from_fn(|_| near(&mut random)));
    }
    triples
}

fn bits(triple: &[f32; 3]) -> [u64; 3] {
    triple.map(|x| u64::from(x.to_bits()))
}

fn run(body: &str, operands: &[[f32; 3]]) -> Vec<Result3> {
    let operands: Vec<[u64; 3]> = operands.iter().map(bits).collect();
    evaluate(body, &operands, &Options::default())
}

/// Whether `r` is what `x` rounds to.
fn is_rounding(x: &Rational, r: f32, mode: &str) -> bool {
    let at_most = |r: f32, x: &Rational| match Rational::from_f32(r) {
        Some(r) => r <= *x,
        None => r < 0.0,
    };
    let at_least = |r: f32, x: &Rational| match Rational::from_f32(r) {
        Some(r) => r >= *x,
        None => r > 0.0,
    };
    let is_down = at_most(r, x) && !at_most(r.next_up(), x) && r < f32::INFINITY;
    let is_up = at_least(r, x) && !at_least(r.next_down(), x) && r > f32::NEG_INFINITY;
    match mode {
        "rm" => is_down,
        "rz" if *x >= 0 => is_down,
        "rp" | "rz" => is_up,
        // The nearest of the two neighbours, or the even one.
        _ if r.is_infinite() => {
            let limit = Rational::from_f64(2f64.powi(128) - 2f64.powi(103)).expect("finite");
            x.clone().abs() >= limit && (r > 0.0) == (*x > 0)
        }
        _ => {
            let distance = |r: f32| Rational::from_f32(r).map(|r| (r - x).abs());
            let mine = distance(r).expect("finite");
            [r.next_up(), r.next_down()].into_iter().all(|other| match distance(other) {
                None => true,
                Some(theirs) if theirs == mine => r.to_bits() & 1 == 0,
                Some(theirs) => mine < theirs,
            })
        }
    }
}

type Unary = fn(f64) -> f64;
type Binary = fn(f64, f64) -> f64;

const MODES: [&str; 4] = ["rn", "rz", "rm", "rp"];

/// Checks a rounded instruction: exact results by `is_rounding`, the others by IEEE arithmetic of the
/// host, which is the same in every mode where the result is no rounded number.
fn check(
    opcode: &str,
    sources: &str,
    exact: impl Fn([Rational; 3]) -> Option<Rational>,
    host: impl Fn([f32; 3]) -> f32,
) {
    let operands = operands();
    let arity = sources.split(',').count();
    for mode in MODES {
        let body = format!("{opcode}.{mode}.f32 %wd, {sources};");
        for (triple, result) in operands.iter().zip(run(&body, &operands)) {
            let r = f32::from_bits(result.word);
            // What the instruction does not read must not matter.
            let used = |at: usize| if at < arity { triple[at] } else { 1.0 };
            let numbers = [0, 1, 2].map(|at| Rational::from_f32(used(at)));
            let x = match numbers {
                [Some(a), Some(b), Some(c)] => exact([a, b, c]),
                _ => None,
            };
            match x {
                Some(x) if x != 0 => {
                    assert!(is_rounding(&x, r, mode), "{body} of {triple:?} gives {r:e}");
                }
                _ => {
                    let expected = host(*triple);
                    if expected.is_nan() {
                        assert_eq!(result.word, NAN, "{body} of {triple:?}");
                    } else if expected == 0.0 && mode == "rm" {
                        assert_eq!(r, 0.0, "{body} of {triple:?}");
                    } else {
                        assert_eq!(r.to_bits(), expected.to_bits(), "{body} of {triple:?}");
                    }
                }
            }
        }
    }
}

#[test]
fn arithmetic_rounds_correctly_in_every_direction() {
    check("add", "%wa, %wb", |[a, b, _]| Some(a + b), |[a, b, _]| a + b);
    check("sub", "%wa, %wb", |[a, b, _]| Some(a - b), |[a, b, _]| a - b);
    check("mul", "%wa, %wb", |[a, b, _]| Some(a * b), |[a, b, _]| a * b);
    check("fma", "%wa, %wb, %wc", |[a, b, c]| Some(a * b + c), |[a, b, c]| a.mul_add(b, c));
    check("div", "%wa, %wb", |[a, b, _]| (b != 0).then(|| a / b), |[a, b, _]| a / b);
    check("rcp", "%wa", |[a, ..]| (a != 0).then(|| a.recip()), |[a, ..]| 1.0 / a);
}

#[test]
fn square_roots_round_correctly_in_every_direction() {
    let operands = operands();
    for mode in MODES {
        let body = format!("sqrt.{mode}.f32 %wd, %wa;");
        for (triple, result) in operands.iter().zip(run(&body, &operands)) {
            let (x, r) = (triple[0], f32::from_bits(result.word));
            if !(x > 0.0 && x.is_finite()) {
                let expected = x.sqrt();
                let expected = if expected.is_nan() { NAN } else { expected.to_bits() };
                assert_eq!(result.word, expected, "{body} of {x:e}");
                continue;
            }
            let x = Rational::from_f32(x).expect("finite");
            // How a number compares with the root.
            let compare = |r: f64| Rational::from_f64(r).map(|r| r.square().cmp(&x));
            let (below, above) = (f64::from(r.next_down()), f64::from(r.next_up()));
            let r = f64::from(r);
            let is_below = |r: f64| compare(r).is_some_and(std::cmp::Ordering::is_lt);
            let is_above = |r: f64| compare(r).is_none_or(std::cmp::Ordering::is_gt);
            let is_right = match mode {
                "rp" => !is_below(r) && is_below(below),
                "rn" => is_below(f64::midpoint(below, r)) && is_above(f64::midpoint(r, above)),
                _ => !is_above(r) && is_above(above),
            };
            assert!(is_right, "{body} of {triple:?} gives {r:e}");
        }
    }
}

#[test]
fn zeros_of_exact_sums_have_the_sign_of_the_rounding() {
    for (mode, expected) in [("rn", 0), ("rz", 0), ("rp", 0), ("rm", 0x8000_0000)] {
        for body in [
            format!("add.{mode}.f32 %wd, %wa, %wb;"),
            format!("fma.{mode}.f32 %wd, %wa, 0f3f800000, %wb;"),
        ] {
            assert_eq!(run(&body, &[[1.5, -1.5, 0.0]])[0].word, expected, "{body}");
            assert_eq!(run(&body, &[[0.0, -0.0, 0.0]])[0].word, expected, "{body}");
        }
    }
}

#[test]
fn subnormals_are_kept_or_flushed() {
    let small = f32::from_bits(0x0000_1000);
    let one = |body: &str, a: f32, b: f32| run(body, &[[a, b, 0.0]])[0].word;
    assert_eq!(one("add.f32 %wd, %wa, %wb;", small, -0.0), small.to_bits());
    assert_eq!(one("add.ftz.f32 %wd, %wa, %wb;", small, -0.0), 0);
    assert_eq!(one("mul.ftz.f32 %wd, %wa, %wb;", -small, 2.0), 0x8000_0000);
    // A result that is subnormal, of operands that are not.
    assert_eq!(one("mul.ftz.f32 %wd, %wa, %wb;", f32::MIN_POSITIVE, 0.5), 0);
    assert_eq!(one("mul.f32 %wd, %wa, %wb;", f32::MIN_POSITIVE, 0.5), 0x0040_0000);
    assert_eq!(one("setp.eq.ftz.f32 %p1, %wa, %wb; selp.u32 %wd, 1, 0, %p1;", small, 0.0), 1);
    assert_eq!(one("setp.eq.f32 %p1, %wa, %wb; selp.u32 %wd, 1, 0, %p1;", small, 0.0), 0);
    assert_eq!(one("ex2.approx.ftz.f32 %wd, %wa;", -127.0, 0.0), 0);
    assert_eq!(one("ex2.approx.f32 %wd, %wa;", -127.0, 0.0), 0x0040_0000);
    assert_eq!(one("max.ftz.f32 %wd, %wa, %wb;", small, -1.0), 0);
}

#[test]
fn saturation_clamps_to_the_unit_interval() {
    for (a, expected) in [(0.5, 0.5_f32), (2.0, 1.0), (-1.0, 0.0), (f32::NAN, 0.0), (-0.0, 0.0)] {
        let result = run("add.sat.f32 %wd, %wa, %wb;", &[[a, -0.0, 0.0]])[0];
        assert_eq!(result.word, expected.to_bits(), "{a}");
    }
}

#[test]
fn minimum_and_maximum_follow_the_isa() {
    let (nan, inf) = (f32::NAN, f32::INFINITY);
    for (body, a, b, expected) in [
        ("min.f32 %wd, %wa, %wb;", 1.0, nan, 1.0_f32.to_bits()),
        ("max.f32 %wd, %wa, %wb;", nan, -inf, (-inf).to_bits()),
        ("max.f32 %wd, %wa, %wb;", nan, nan, NAN),
        ("max.NaN.f32 %wd, %wa, %wb;", 1.0, nan, NAN),
        ("min.f32 %wd, %wa, %wb;", 0.0, -0.0, 0x8000_0000),
        ("max.f32 %wd, %wa, %wb;", -0.0, 0.0, 0),
        ("max.xorsign.abs.f32 %wd, %wa, %wb;", -3.0, 2.0, (-3.0_f32).to_bits()),
        ("min.xorsign.abs.f32 %wd, %wa, %wb;", -3.0, -2.0, 2.0_f32.to_bits()),
    ] {
        assert_eq!(run(body, &[[a, b, 0.0]])[0].word, expected, "{body} of {a}, {b}");
    }
}

#[test]
fn comparisons_with_nan() {
    let holds = |name: &str, a: f32, b: f32| {
        let body = format!("setp.{name}.f32 %p1, %wa, %wb; selp.u32 %wd, 1, 0, %p1;");
        run(&body, &[[a, b, 0.0]])[0].word == 1
    };
    for name in ["eq", "ne", "lt", "le", "gt", "ge", "num"] {
        assert!(!holds(name, f32::NAN, 1.0), "{name}");
    }
    for name in ["equ", "neu", "ltu", "leu", "gtu", "geu", "nan"] {
        assert!(holds(name, f32::NAN, 1.0), "{name}");
    }
    assert!(holds("ltu", 1.0, 2.0) && !holds("ltu", 2.0, 1.0) && holds("num", 1.0, 2.0));
}

#[test]
fn conversions_to_narrow_formats_agree_with_half() {
    let operands = operands();
    let pair = "cvt.rn.f16x2.f32 %wd, %wa, %wb;";
    for (triple, result) in operands.iter().zip(run(pair, &operands)) {
        let of = |x: f32| u32::from(if x.is_nan() { 0x7fff } else { f16::from_f32(x).to_bits() });
        assert_eq!(result.word, of(triple[0]) << 16 | of(triple[1]), "{triple:?}");
    }
    let one = "cvt.rn.bf16.f32 %hd, %wa;";
    for (triple, result) in operands.iter().zip(run(one, &operands)) {
        let x = triple[0];
        let expected = if x.is_nan() { 0x7fff } else { bf16::from_f32(x).to_bits() };
        assert_eq!(result.half, expected, "{x:e}");
    }
    // Toward zero, bf16 is the upper half of the bits.
    let pair = "cvt.rz.bf16x2.f32 %wd, %wa, %wb;";
    for (triple, result) in operands.iter().zip(run(pair, &operands)) {
        let of = |x: f32| if x.is_nan() { 0x7fff } else { x.to_bits() >> 16 };
        assert_eq!(result.word, of(triple[0]) << 16 | of(triple[1]), "{triple:?}");
    }
    // Ties away from zero: adding half a unit to the bits.
    for (triple, result) in operands.iter().zip(run("cvt.rna.tf32.f32 %wd, %wa;", &operands)) {
        let x = triple[0];
        let expected = match x {
            x if x.is_nan() => NAN,
            x if x.is_infinite() => x.to_bits(),
            x => (x.to_bits() + 0x1000) & !0x1fff,
        };
        assert_eq!(result.word, expected, "{x:e}");
    }
}

#[test]
fn conversions_to_and_from_integers() {
    let operands = operands();
    let of = |x: f64, low: f64, high: f64| if x.is_nan() { 0.0 } else { x.clamp(low, high) };
    let rounds: [(&str, Unary); 4] = [
        ("rni", f64::round_ties_even),
        ("rzi", f64::trunc),
        ("rmi", f64::floor),
        ("rpi", f64::ceil),
    ];
    for (mode, round) in rounds {
        let body = format!("cvt.{mode}.s32.f32 %wd, %wa;");
        for (triple, result) in operands.iter().zip(run(&body, &operands)) {
            let x = round(triple[0].into());
            let expected = of(x, i32::MIN.into(), i32::MAX.into()) as i32;
            assert_eq!(result.word.cast_signed(), expected, "{body} of {triple:?}");
        }
        let body = format!("cvt.{mode}.u32.f32 %wd, %wa;");
        for (triple, result) in operands.iter().zip(run(&body, &operands)) {
            let x = round(triple[0].into());
            assert_eq!(result.word, of(x, 0.0, u32::MAX.into()) as u32, "{body} of {triple:?}");
        }
        let body = format!("cvt.{mode}.f32.f32 %wd, %wa;");
        for (triple, result) in operands.iter().zip(run(&body, &operands)) {
            let x = round(triple[0].into()) as f32;
            let expected = if x.is_nan() { NAN } else { x.to_bits() };
            assert_eq!(result.word, expected, "{body} of {triple:?}");
        }
    }
    let mut random = ChaCha8Rng::seed_from_u64(SEED);
    let integers: Vec<[u64; 3]> = (0..2000)
        .map(|_| [random.random::<u64>() >> random.random_range(0..64_u32), 0, 0])
        .collect();
    for mode in MODES {
        let body = format!("cvt.{mode}.f32.s64 %wd, %xa;");
        for (triple, result) in integers.iter().zip(evaluate(&body, &integers, &Options::default()))
        {
            let x = Rational::from(triple[0].cast_signed());
            let r = f32::from_bits(result.word);
            assert!(x == 0 && r == 0.0 || is_rounding(&x, r, mode), "{body} of {triple:?}");
        }
    }
}

#[test]
fn conversions_of_nan_to_integers() {
    let nan = [[f64::NAN.to_bits(), 0, 0]];
    let one = |body: &str, operands: &[[u64; 3]]| evaluate(body, operands, &Options::default())[0];
    assert_eq!(one("cvt.rzi.s32.f64 %wd, %xa;", &nan).word, 1 << 31);
    assert_eq!(one("cvt.rzi.u64.f64 %xd, %xa;", &nan).long, 1 << 63);
    let nan = [[u64::from(NAN), 0, 0]];
    assert_eq!(one("cvt.rzi.s32.f32 %wd, %wa;", &nan).word, 0);
    assert_eq!(one("cvt.rzi.s64.f32 %xd, %wa;", &nan).long, 1 << 63);
}

#[test]
fn sixteen_bit_arithmetic_rounds_once() {
    let mut random = ChaCha8Rng::seed_from_u64(SEED);
    let operands: Vec<[u64; 3]> =
        (0..5000).map(|_| std::array::from_fn(|_| random.random::<u64>() & 0xffff)).collect();
    // f16 sums and products are exact in f64, and so is their fused sum where nothing is far apart.
    let f = |bits: u64| f16::from_bits(bits as u16).to_f64();
    let expected = |x: f64| if x.is_nan() { 0x7fff } else { f16::from_f64(x).to_bits() };
    for (triple, result) in
        operands.iter().zip(evaluate("add.f16 %hd, %ha, %hb;", &operands, &Options::default()))
    {
        assert_eq!(result.half, expected(f(triple[0]) + f(triple[1])), "{triple:x?}");
    }
    let body = "mul.rn.f16x2 %wd, %wa, %wb;";
    for (triple, result) in operands.iter().zip(evaluate(body, &operands, &Options::default())) {
        assert_eq!(result.word as u16, expected(f(triple[0]) * f(triple[1])), "{triple:x?}");
    }
    let body = "fma.rn.bf16 %hd, %ha, %hb, %hc;";
    for (triple, result) in operands.iter().zip(evaluate(body, &operands, &Options::default())) {
        let [a, b, c] = triple.map(|x| bf16::from_bits(x as u16).to_f32());
        let numbers = [a, b, c].map(Rational::from_f32);
        let r = bf16::from_bits(result.half);
        let [Some(a), Some(b), Some(c)] = numbers else { continue };
        let x = a * b + c;
        if !r.is_finite() || x == 0 {
            continue;
        }
        // No other number of the format is nearer.
        let distance =
            |bits: u16| Rational::from_f32(bf16::from_bits(bits).to_f32()).map(|r| (r - &x).abs());
        let mine = distance(result.half).expect("finite");
        for other in [result.half.wrapping_add(1), result.half.wrapping_sub(1)] {
            assert!(distance(other).is_none_or(|theirs| mine <= theirs), "{triple:x?}");
        }
    }
}

#[test]
fn approximate_instructions_stay_within_the_documented_error() {
    let mut random = ChaCha8Rng::seed_from_u64(SEED);
    let mut operands: Vec<[f32; 3]> = (0..2000)
        .map(|_| [random.random_range(-20.0..20.0), random.random_range(0.01..20.0), 0.0])
        .collect();
    operands.extend([[0.0, 1.0, 0.0], [1.0, 1.0, 0.0]]);
    let bits: Vec<[u64; 3]> = operands.iter().map(bits).collect();
    let ulp = |x: f64| f64::from((x as f32).abs().next_up()) - f64::from((x as f32).abs());
    // The correctly rounded result lies half a unit from the exact one.
    let cases: [(&str, Binary, Binary); 8] = [
        ("ex2.approx.f32 %wd, %wa;", |a, _| a.exp2(), |_, ulp| 2.5 * ulp),
        ("rcp.approx.f32 %wd, %wb;", |_, b| 1.0 / b, |_, ulp| 1.5 * ulp),
        ("div.full.f32 %wd, %wa, %wb;", |a, b| a / b, |_, ulp| 2.5 * ulp),
        ("div.approx.f32 %wd, %wa, %wb;", |a, b| a / b, |_, ulp| 2.5 * ulp),
        ("sqrt.approx.f32 %wd, %wb;", |_, b| b.sqrt(), |x, _| x.abs() * 2f64.powi(-23)),
        ("rsqrt.approx.f32 %wd, %wb;", |_, b| 1.0 / b.sqrt(), |x, _| x.abs() * 2f64.powf(-22.9)),
        ("lg2.approx.f32 %wd, %wb;", |_, b| b.log2(), |x, _| 2f64.powi(-22) * x.abs().max(1.0)),
        ("tanh.approx.f32 %wd, %wa;", |a, _| a.tanh(), |x, _| x.abs() * 2f64.powi(-11)),
    ];
    for (body, exact, error) in cases {
        let with = |approximation| {
            let policy = Policy { approximation, ..Policy::default() };
            evaluate(body, &bits, &Options { policy, ..Options::default() })
        };
        let results =
            [Approximation::Lowest, Approximation::Accurate, Approximation::Highest].map(with);
        let mut spread = 0;
        for (at, [a, b, _]) in operands.iter().enumerate() {
            let x = exact((*a).into(), (*b).into());
            let values =
                [0, 1, 2].map(|policy: usize| f64::from(f32::from_bits(results[policy][at].word)));
            assert!(
                values[0] <= values[1] && values[1] <= values[2],
                "{body} of {a}, {b}: {values:?}"
            );
            for value in values {
                assert!(
                    (value - x).abs() <= error(x, ulp(x)),
                    "{body} of {a}, {b}: {value} for {x}"
                );
            }
            spread += usize::from(values[0] < values[1] && values[1] < values[2]);
        }
        // Policies differ wherever the error has room for it.
        assert!(spread > operands.len() / 4, "{body}: {spread}");
    }
    // Exact under every policy.
    for approximation in [Approximation::Lowest, Approximation::Highest] {
        let policy = Policy { approximation, ..Policy::default() };
        let options = Options { policy, ..Options::default() };
        for (body, x, expected) in [
            ("ex2.approx.ftz.f32 %wd, %wa;", 0.0_f32, 1.0_f32),
            ("ex2.approx.f32 %wd, %wa;", f32::NEG_INFINITY, 0.0),
            ("lg2.approx.f32 %wd, %wa;", 0.0, f32::NEG_INFINITY),
            ("rcp.approx.f32 %wd, %wa;", f32::INFINITY, 0.0),
            ("tanh.approx.f32 %wd, %wa;", f32::INFINITY, 1.0),
        ] {
            let operands = [[u64::from(x.to_bits()), 0, 0]];
            let found = f32::from_bits(evaluate(body, &operands, &options)[0].word);
            assert_eq!(found, expected, "{body} of {x}");
        }
    }
}
