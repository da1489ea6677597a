//! Integer instructions against evaluations in wider integers and bit by bit.

mod kernel;

use flashproof_ptx::Options;
use kernel::{Result3, evaluate};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

const SEED: u64 = 0x5eed_0206;

/// Triples of edge cases and of random numbers, many of them short.
fn operands() -> Vec<[u64; 3]> {
    let edges = [0, 1, 2, 31, 32, 33, 63, 64, 0x7fff, 0x8000, 0xffff, 1 << 31, (1 << 31) - 1];
    let more = [u64::from(u32::MAX), 1 << 63, (1 << 63) - 1, u64::MAX];
    let mut random = ChaCha8Rng::seed_from_u64(SEED);
    let all: Vec<u64> = edges.into_iter().chain(more).collect();
    let mut triples = Vec::new();
    for a in &all {
        for b in &all {
            triples.push([*a, *b, all[random.random_range(0..all.len())]]);
        }
    }
    for _ in 0..1000 {
        triples.push(std::array::from_fn(|_| {
            random.random::<u64>() >> random.random_range(0..64_u32)
        }));
    }
    triples
}

/// A type of integers: its name, width, and whether it is signed.
#[derive(Clone, Copy)]
struct Ty(&'static str, u32, bool);

const TYPES: [Ty; 6] = [
    Ty("u16", 16, false),
    Ty("s16", 16, true),
    Ty("u32", 32, false),
    Ty("s32", 32, true),
    Ty("u64", 64, false),
    Ty("s64", 64, true),
];

impl Ty {
    fn prefix(self) -> &'static str {
        match self.1 {
            16 => "h",
            32 => "w",
            _ => "x",
        }
    }

    fn value(self, bits: u64) -> i128 {
        let shift = 128 - self.1;
        let top = i128::from(bits) << shift;
        if self.2 { top >> shift } else { (top.cast_unsigned() >> shift).cast_signed() }
    }

    fn result(self, result: Result3) -> u64 {
        match self.1 {
            16 => result.half.into(),
            32 => result.word.into(),
            _ => result.long,
        }
    }

    fn bits(self, value: i128) -> u64 {
        let mask = if self.1 == 64 { u64::MAX } else { (1 << self.1) - 1 };
        value as u64 & mask
    }
}

/// Checks an instruction of three operands in every type against an evaluation in `i128`.
fn check(
    opcode: &str,
    operand_count: usize,
    types: &[Ty],
    f: impl Fn(Ty, [i128; 3]) -> Option<i128>,
) {
    for ty in types {
        let triples: Vec<[u64; 3]> = operands()
            .into_iter()
            .filter(|triple| f(*ty, triple.map(|x| ty.value(x))).is_some())
            .collect();
        let p = ty.prefix();
        let sources: Vec<String> =
            ["a", "b", "c"][..operand_count].iter().map(|name| format!("%{p}{name}")).collect();
        let body = format!("{opcode}.{} %{p}d, {};", ty.0, sources.join(", "));
        let results = evaluate(&body, &triples, &Options::default());
        for (triple, result) in triples.iter().zip(results) {
            let expected = f(*ty, triple.map(|x| ty.value(x))).map(|value| ty.bits(value));
            assert_eq!(Some(ty.result(result)), expected, "{body} of {triple:x?}");
        }
    }
}

fn signed() -> Vec<Ty> {
    TYPES.into_iter().filter(|ty| ty.2).collect()
}

#[test]
fn sums_and_products() {
    check("add", 2, &TYPES, |_, [a, b, _]| Some(a + b));
    check("sub", 2, &TYPES, |_, [a, b, _]| Some(a - b));
    check("mul.lo", 2, &TYPES, |_, [a, b, _]| Some(a.wrapping_mul(b)));
    check("mul.hi", 2, &TYPES, |ty, [a, b, _]| {
        Some(if ty.2 {
            (a * b) >> ty.1
        } else {
            ((a.cast_unsigned() * b.cast_unsigned()) >> ty.1).cast_signed()
        })
    });
    check("mad.lo", 3, &TYPES, |_, [a, b, c]| Some(a.wrapping_mul(b).wrapping_add(c)));
    check("sad", 3, &TYPES, |_, [a, b, c]| Some((a - b).abs() + c));
    check("neg", 1, &signed(), |_, [a, ..]| Some(-a));
    check("abs", 1, &signed(), |_, [a, ..]| Some(a.abs()));
    check("min", 2, &TYPES, |_, [a, b, _]| Some(a.min(b)));
    check("max", 2, &TYPES, |_, [a, b, _]| Some(a.max(b)));
}

#[test]
fn quotients_truncate() {
    check("div", 2, &TYPES, |_, [a, b, _]| (b != 0).then(|| a / b));
    check("rem", 2, &TYPES, |_, [a, b, _]| (b != 0).then(|| a % b));
}

#[test]
fn saturating_sums_stay_in_range() {
    let clamp = |x: i128| x.clamp(i128::from(i32::MIN), i128::from(i32::MAX));
    check("add.sat", 2, &TYPES[3..4], |_, [a, b, _]| Some(clamp(a + b)));
    check("sub.sat", 2, &TYPES[3..4], |_, [a, b, _]| Some(clamp(a - b)));
}

/// Checks an instruction given as text against an evaluation of the operands' bits.
fn check_bits(body: &str, f: impl Fn([u64; 3]) -> u64, of: impl Fn(Result3) -> u64) {
    let operands = operands();
    for (triple, result) in operands.iter().zip(evaluate(body, &operands, &Options::default())) {
        assert_eq!(of(result), f(*triple), "{body} of {triple:x?}");
    }
}

fn word(result: Result3) -> u64 {
    result.word.into()
}

fn long(result: Result3) -> u64 {
    result.long
}

#[test]
fn wide_products() {
    check_bits(
        "mul.wide.u32 %xd, %wa, %wb;",
        |[a, b, _]| u64::from(a as u32) * u64::from(b as u32),
        long,
    );
    check_bits(
        "mad.wide.s32 %xd, %wa, %wb, %xc;",
        |[a, b, c]| (i64::from(a as i32) * i64::from(b as i32)).wrapping_add(c as i64) as u64,
        long,
    );
    check_bits(
        "mul.wide.s16 %wd, %ha, %hb;",
        |[a, b, _]| u64::from((i32::from(a as i16) * i32::from(b as i16)) as u32),
        word,
    );
}

#[test]
fn shifts_past_the_width() {
    check_bits(
        "shl.b32 %wd, %wa, %wb;",
        |[a, b, _]| if b as u32 > 31 { 0 } else { u64::from((a as u32) << b as u32) },
        word,
    );
    check_bits(
        "shr.u64 %xd, %xa, %wb;",
        |[a, b, _]| if b as u32 > 63 { 0 } else { a >> b as u32 },
        long,
    );
    check_bits(
        "shr.s32 %wd, %wa, %wb;",
        |[a, b, _]| u64::from((a as i32 >> (b as u32).min(31)) as u32),
        word,
    );
    check_bits(
        "shl.b16 %hd, %ha, %wb;",
        |[a, b, _]| if b as u32 > 15 { 0 } else { u64::from((a as u16) << b as u32) },
        |r| r.half.into(),
    );
    check_bits(
        "shr.s16 %hd, %ha, %wb;",
        |[a, b, _]| u64::from((a as i16 >> (b as u32).min(15)) as u16),
        |r| r.half.into(),
    );
}

/// A field read bit by bit: past the top, the sign of the field.
fn field(a: u64, position: u64, length: u64, width: u64, signed: bool) -> u64 {
    let (position, length) = (position & 0xff, length & 0xff);
    let bit = |at: u64| if at < width { a >> at & 1 } else { 0 };
    let sign = match (signed, length) {
        (false, _) | (_, 0) => 0,
        (true, _) => bit((position + length - 1).min(width - 1)),
    };
    (0..width)
        .map(|at| {
            let is_inside = at < length && position + at < width;
            (if is_inside { bit(position + at) } else { sign }) << at
        })
        .sum()
}

#[test]
fn fields() {
    check_bits("bfe.u32 %wd, %wa, %wb, %wc;", |[a, b, c]| field(a, b, c, 32, false), word);
    check_bits("bfe.s32 %wd, %wa, %wb, %wc;", |[a, b, c]| field(a, b, c, 32, true), word);
    check_bits("bfe.u64 %xd, %xa, %wb, %wc;", |[a, b, c]| field(a, b, c, 64, false), long);
    check_bits("bfe.s64 %xd, %xa, %wb, %wc;", |[a, b, c]| field(a, b, c, 64, true), long);
    // The last operand doubles as length and position.
    let insert = |a: u64, b: u64, position: u64, length: u64, width: u64| -> u64 {
        let (position, length) = (position & 0xff, length & 0xff);
        (0..width)
            .map(|at| {
                let is_field = at >= position && at < position + length;
                (if is_field { a >> (at - position) } else { b >> at }) << 63 >> (63 - at)
            })
            .fold(0, |all, bit| all | bit)
    };
    check_bits("bfi.b32 %wd, %wa, %wb, %wc, 9;", |[a, b, c]| insert(a, b, c, 9, 32), word);
    check_bits("bfi.b32 %wd, %wa, %wb, 5, %wc;", |[a, b, c]| insert(a, b, 5, c, 32), word);
    check_bits("bfi.b64 %xd, %xa, %xb, %wc, 40;", |[a, b, c]| insert(a, b, c, 40, 64), long);
}

#[test]
fn bits_are_counted_and_found() {
    check_bits("popc.b64 %wd, %xa;", |[a, ..]| (0..64).map(|at| a >> at & 1).sum(), word);
    let leading =
        |a: u64, width: u64| (0..width).rev().take_while(|at| a >> at & 1 == 0).count() as u64;
    check_bits("clz.b32 %wd, %wa;", |[a, ..]| leading(a, 32), word);
    check_bits("clz.b64 %wd, %xa;", |[a, ..]| leading(a, 64), word);
    check_bits(
        "brev.b32 %wd, %wa;",
        |[a, ..]| (0..32).map(|at| (a >> at & 1) << (31 - at)).sum(),
        word,
    );
    let none = u64::from(u32::MAX);
    let highest = |a: u64, width: u64| (0..width).rev().find(|at| a >> at & 1 == 1).unwrap_or(none);
    check_bits("bfind.u32 %wd, %wa;", |[a, ..]| highest(a & none, 32), word);
    let unsigned = |a: u64| if a >> 31 & 1 == 1 { !a & none } else { a & none };
    check_bits("bfind.s32 %wd, %wa;", |[a, ..]| highest(unsigned(a), 32), word);
    check_bits(
        "bfind.shiftamt.u64 %wd, %xa;",
        |[a, ..]| if a == 0 { none } else { 63 - highest(a, 64) },
        word,
    );
}

#[test]
fn functions_of_three_bits_and_bytes() {
    for table in [0x00_u64, 0x80, 0xe8, 0x96, 0xca, 0xff] {
        check_bits(
            &format!("lop3.b32 %wd, %wa, %wb, %wc, {table};"),
            |[a, b, c]| {
                (0..32)
                    .map(|at| {
                        let row = (a >> at & 1) << 2 | (b >> at & 1) << 1 | (c >> at & 1);
                        (table >> row & 1) << at
                    })
                    .sum()
            },
            word,
        );
    }
    check_bits(
        "prmt.b32 %wd, %wa, %wb, %wc;",
        |[a, b, c]| {
            let bytes = u64::from(a as u32) | u64::from(b as u32) << 32;
            (0..4)
                .map(|at| {
                    let selector = c >> (4 * at) & 15;
                    let byte = bytes >> (8 * (selector & 7)) & 255;
                    let spread = if byte > 127 { 255 } else { 0 };
                    (if selector > 7 { spread } else { byte }) << (8 * at)
                })
                .sum()
        },
        word,
    );
    check_bits(
        "shf.l.wrap.b32 %wd, %wa, %wb, %wc;",
        |[a, b, c]| {
            let (a, b, n) = (a as u32, b as u32, c as u32 % 32);
            u64::from(if n == 0 { b } else { b << n | a >> (32 - n) })
        },
        word,
    );
    check_bits(
        "shf.r.clamp.b32 %wd, %wa, %wb, %wc;",
        |[a, b, c]| {
            let (a, b, n) = (a as u32, b as u32, (c as u32).min(32));
            u64::from(match n {
                0 => a,
                32 => b,
                n => a >> n | b << (32 - n),
            })
        },
        word,
    );
}

#[test]
fn comparisons_and_selections() {
    let holds = |name: &str, ordering: std::cmp::Ordering| match name {
        "eq" => ordering.is_eq(),
        "ne" => ordering.is_ne(),
        "lt" | "lo" => ordering.is_lt(),
        "le" | "ls" => ordering.is_le(),
        "gt" | "hi" => ordering.is_gt(),
        _ => ordering.is_ge(),
    };
    for name in ["eq", "ne", "lt", "le", "gt", "ge"] {
        for ty in TYPES {
            let p = ty.prefix();
            let body = format!("setp.{name}.{} %p1, %{p}a, %{p}b; selp.u32 %wd, 1, 0, %p1;", ty.0);
            let f = |[a, b, _]: [u64; 3]| holds(name, ty.value(a).cmp(&ty.value(b))).into();
            check_bits(&body, f, word);
        }
    }
    for name in ["lo", "ls", "hi", "hs"] {
        let body = format!("setp.{name}.u32 %p1, %wa, %wb; selp.u32 %wd, 1, 0, %p1;");
        check_bits(&body, |[a, b, _]| holds(name, (a as u32).cmp(&(b as u32))).into(), word);
    }
    // Both results of a combined comparison.
    check_bits(
        "setp.ne.u32 %p3, %wc, 0; setp.lt.and.s32 %p1|%p2, %wa, %wb, !%p3;
         selp.u32 %wd, 1, 0, %p1; selp.u64 %xd, 1, 0, %p2;",
        |[a, b, c]| u64::from((a as i32) < (b as i32) && c as u32 == 0),
        word,
    );
    check_bits(
        "setp.ne.u32 %p3, %wc, 0; setp.lt.and.s32 %p1|%p2, %wa, %wb, !%p3; selp.u64 %xd, 1, 0, %p2;",
        |[a, b, c]| u64::from((a as i32) >= (b as i32) && c as u32 == 0),
        long,
    );
}

#[test]
fn conversions_between_integers() {
    check_bits("cvt.s64.s32 %xd, %wa;", |[a, ..]| i64::from(a as i32) as u64, long);
    check_bits("cvt.u64.u16 %xd, %ha;", |[a, ..]| a & 0xffff, long);
    check_bits("cvt.s32.s8 %wd, %wa;", |[a, ..]| u64::from(i32::from(a as i8) as u32), word);
    check_bits(
        "cvt.sat.s32.s64 %wd, %xa;",
        |[a, ..]| u64::from((a as i64).clamp(i32::MIN.into(), i32::MAX.into()) as i32 as u32),
        word,
    );
    check_bits(
        "cvt.sat.u16.s32 %hd, %wa;",
        |[a, ..]| (a as i32).clamp(0, 0xffff) as u64,
        |r| r.half.into(),
    );
    check_bits(
        "mov.b32 %wd, {%hb, %ha}; mov.b64 {%r3, %r4}, %xc; mov.b64 %xd, {%r4, %r3};",
        |[.., c]| c.rotate_left(32),
        long,
    );
    check_bits("mov.b32 %wd, {%hb, %ha};", |[a, b, _]| (a & 0xffff) << 16 | b & 0xffff, word);
}
