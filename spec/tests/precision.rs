//! The generic clauses in rounding arithmetics stay within an error that is derived here.
//!
//! Let every operation multiply its exact result by a factor in `[1/(1+u), 1+u]`, which is what
//! rounding to nearest does, and let the exponential do so up to `e^t`, `|t| <= x`. Write `G` for
//! the spread `m - min_i s_i` of the scores, `n` for the number of keys, `R` for the number of
//! times a state is rescaled. Each term of normalizer and numerator then carries a factor `e^t`
//! with
//!
//! ```text
//! |t| <= T = u G + (1 + R) x + (1 + R + n) u
//! ```
//!
//! because subtracting the reference multiplies the exponent, whose parts (the difference to the
//! reference when absorbed, and each move of the reference since) add up to `m - s_i`, by `1 + u`
//! at most; there are `1 + R` exponentials, `1 + R` products and at most `n` additions; and
//! `ln(1 + u) <= u`. Hence
//!
//! ```text
//! |o^_j - o_j| <= (e^(2T + u) - 1) max_i |v_ij|
//! |L^ - L|     <= T + y (ln n + T) + u (|m| + (1 + y)(ln n + T))
//! ```
//!
//! where the computed logarithm errs by a factor `1 + y` at most. Scores here lie within 100 of 0,
//! so no weight leaves the normal range of binary64.

mod support;

use flashproof_spec::arithmetic::{Arithmetic, F64, Mpfr};
use flashproof_spec::attention::{blocks_row, dense_row};
use flashproof_spec::format::Format;
use flashproof_spec::online::{Key, KeyOf, Row};
use flashproof_spec::profile::{EXP_ULP, LOG_ERROR};
use proptest::prelude::*;
use rug::Float;
use rug::float::Round;
use support::{divide, settings, sizes};

/// Bits of the row that the others are compared with; its own error is part of the comparison.
const REFERENCE_BITS: u32 = 512;

/// The data of one row: scores and value entries, exact in binary64.
type Data = Vec<(f64, f64)>;

/// Error factors of an arithmetic: one operation, the exponential, the logarithm.
#[derive(Clone, Copy)]
struct Errors {
    operation: f64,
    exponential: f64,
    logarithm: f64,
}

impl Errors {
    /// MPFR rounds every function correctly.
    fn mpfr(bits: u32) -> Self {
        let u = 0.5_f64.powi(bits.try_into().expect("a small precision"));
        Self { operation: u, exponential: u, logarithm: u }
    }

    /// The standard library's functions err by less than what profiles grant a kernel. One unit in
    /// the last place is a relative `2u` at most, and `|ln(1 + t)| <= 2|t|` for small `t`.
    fn f64() -> Self {
        let u = Format::F64.unit_roundoff();
        Self { operation: u, exponential: 4.0 * EXP_ULP * u, logarithm: 4.0 * LOG_ERROR.ulp * u }
    }
}

/// Bounds on the errors of an output entry and of the LSE, rounded up.
fn bounds(data: &Data, rescalings: usize, errors: Errors) -> [Float; 2] {
    let up = |value: f64| Float::with_val(64, value);
    let add = |a: &Float, b: &Float| Float::with_val_round(64, a + b, Round::Up).0;
    let mul = |a: &Float, b: &Float| Float::with_val_round(64, a * b, Round::Up).0;
    let scores = || data.iter().map(|(score, _)| *score);
    let max = scores().fold(f64::NEG_INFINITY, f64::max);
    let min = scores().fold(f64::INFINITY, f64::min);
    let spread = Float::with_val_round(64, &up(max) - &up(min), Round::Up).0;
    let [u, x, y] = [errors.operation, errors.exponential, errors.logarithm].map(up);

    let exponentials = up(1.0 + rescalings as f64);
    let operations = up(1.0 + rescalings as f64 + data.len() as f64);
    let t = add(&add(&mul(&u, &spread), &mul(&exponentials, &x)), &mul(&operations, &u));

    let mut growth = add(&add(&t, &t), &u);
    growth.exp_m1_round(Round::Up);
    let largest = data.iter().map(|(_, value)| value.abs()).fold(0.0, f64::max);
    let output = mul(&growth, &up(largest));

    let mut ln_n = up(data.len() as f64);
    ln_n.ln_round(Round::Up);
    let logarithm = add(&ln_n, &t);
    let sum = add(&up(max.abs()), &mul(&add(&up(1.0), &y), &logarithm));
    let lse = add(&t, &add(&mul(&y, &logarithm), &mul(&u, &sum)));
    [output, lse]
}

/// Checks that both rows differ by no more than the sums of their bounds.
fn compare(
    row: &Row<Float, Float>,
    bound: &[Float; 2],
    reference: &Row<Float, Float>,
    reference_bound: &[Float; 2],
) -> Result<(), TestCaseError> {
    let found = [&row.output[0], &row.lse];
    let exact = [&reference.output[0], &reference.lse];
    for i in 0..2 {
        // The difference is exact: both operands fit twice the bits of the longer one.
        let error = Float::with_val(8 * REFERENCE_BITS, found[i] - exact[i]).abs();
        let limit = Float::with_val_round(64, &bound[i] + &reference_bound[i], Round::Up).0;
        prop_assert!(error <= limit, "error {error:e} above {limit:e}");
    }
    Ok(())
}

/// The row of `data` in some arithmetic, all at once and block by block.
fn rows<A: Arithmetic>(
    a: &A,
    data: &Data,
    sizes: &[usize],
    number: impl Fn(f64) -> A::Number,
    score: impl Fn(f64) -> A::Score,
) -> [Row<A::Score, A::Number>; 2] {
    let keys: Vec<KeyOf<A>> =
        data.iter().map(|&(s, v)| Key { score: Some(score(s)), value: vec![number(v)] }).collect();
    [dense_row(a, &keys), blocks_row(a, divide(&keys, sizes), 1)]
        .map(|row| row.expect("a visible key"))
}

fn mpfr(bits: u32, data: &Data, sizes: &[usize]) -> [Row<Float, Float>; 2] {
    let a = Mpfr::new(bits).expect("a small precision");
    rows(&a, data, sizes, |x| a.number(x), |x| a.number(x))
}

proptest! {
    #![proptest_config(settings("precision", "tests/proptest-regressions/precision.txt"))]

    #[test]
    fn rows_stay_within_their_derived_error(
        data in prop::collection::vec((-100.0..100.0, -9.0..9.0), 1..=20),
        sizes in sizes(),
    ) {
        let rescalings = [0, sizes.len()];
        let reference = &mpfr(REFERENCE_BITS, &data, &[])[0];
        let reference_bound = bounds(&data, 0, Errors::mpfr(REFERENCE_BITS));
        for bits in [64, 128] {
            for (row, rescalings) in mpfr(bits, &data, &sizes).iter().zip(rescalings) {
                let bound = bounds(&data, rescalings, Errors::mpfr(bits));
                compare(row, &bound, reference, &reference_bound)?;
            }
        }
        let exact = |x: &f64| Float::with_val(53, *x);
        let binary64 = rows(&F64, &data, &sizes, |x| x, |x| x);
        for (row, rescalings) in binary64.iter().zip(rescalings) {
            let row = Row { output: row.output.iter().map(exact).collect(), lse: exact(&row.lse) };
            let bound = bounds(&data, rescalings, Errors::f64());
            compare(&row, &bound, reference, &reference_bound)?;
        }
    }
}

#[test]
fn precisions_that_mpfr_lacks_are_refused() {
    let error = Mpfr::new(0).expect_err("no bits at all");
    assert!(error.to_string().starts_with("a precision of 0 bits: expected 1 to "), "{error}");
    assert_eq!(Mpfr::new(53).expect("binary64's").precision(), 53);
}
