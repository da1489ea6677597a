//! Central differences of the loss approach the gradients at the second order, in interval
//! arithmetic of 300 bits.
//!
//! Let `f(t)` be the loss with one input moved by `t` times a direction, and `C(h) = (f(h) -
//! f(-h)) / 2h`. By Taylor's theorem, with `M_n` a bound on the magnitude of the `n`-th derivative,
//!
//! ```text
//! E(h) = C(h) - f'(0) = (h^2/6) f'''(0) + r(h),  |r(h)| <= (h^4/120) M_5,  |E(h)| <= (h^2/6) M_3
//! |E(h) - 4 E(h/2)| = |r(h) - 4 r(h/2)| <= (h^4/120) (1 + 1/4) M_5
//! ```
//!
//! The second says that halving `h` quarters the error, up to a known amount of higher order.
//!
//! # The derivatives
//! Queries move scores linearly, `s_i + t c_i`, and so do keys. `L` is the cumulant generating
//! function of `c` under the row's probabilities, so its `n`-th derivative is the `n`-th cumulant of
//! `c`; `o_j` is the mean of `v_j` under the same, and its `n`-th derivative the joint cumulant of
//! `v_j` and `n` times `c`. A joint cumulant is the sum over all partitions of its `N` variables of
//! `(-1)^(b-1) (b-1)!` times the product of the `b` blocks' moments. With `S(N, b)` partitions into
//! `b` blocks (Stirling numbers of the second kind) its magnitude is therefore at most
//!
//! ```text
//! K_N = sum_b S(N, b) (b - 1)!
//! ```
//!
//! times the product of the variables' largest magnitudes, which gives for one row
//!
//! ```text
//! M_n = (max_i |c_i|)^n ( K_(n+1) sum_j |dO_j| max_i |v_ij| + K_n |g| )
//! ```

#[path = "support/interval.rs"]
mod interval;
mod support;

use flashproof_spec::arithmetic::Arithmetic;
use flashproof_spec::attention::dense_row;
use flashproof_spec::gradient::{Head, HeadOf, KeyValue, Query, attention_gradient};
use flashproof_spec::online::Key;
use interval::{Interval, Intervals};
use proptest::prelude::*;
use support::settings;

const A: Intervals = Intervals;

/// The step. Its inverse is a power of two, so that moved inputs are exact.
const STEP: f64 = 1.0 / (1_u64 << 20) as f64;

/// Inputs and upstream gradients of one head, and the direction in which one input moves.
#[derive(Clone, Debug)]
struct Data {
    queries: Vec<Vec<f64>>,
    keys: Vec<Vec<f64>>,
    values: Vec<Vec<f64>>,
    visible: Vec<Vec<bool>>,
    output_gradients: Vec<Vec<f64>>,
    lse_gradients: Vec<f64>,
    direction: Vec<f64>,
}

/// The input that moves.
#[derive(Clone, Copy, Debug)]
enum Moved {
    Query(usize),
    Key(usize),
    Value(usize),
}

const HEAD_DIM: usize = 2;

/// Exactly `1/sqrt(16)`, as if the head had 16 entries.
const SCALE: f64 = 0.25;

impl Data {
    /// The data at `t`.
    fn at(&self, moved: Moved, t: f64) -> Self {
        let mut data = self.clone();
        let vector = match moved {
            Moved::Query(r) => &mut data.queries[r],
            Moved::Key(i) => &mut data.keys[i],
            Moved::Value(i) => &mut data.values[i],
        };
        // Inputs are multiples of 2^-4 below 2^4 and directions of 2^-2 below 2^2: exact.
        vector.iter_mut().zip(&self.direction).for_each(|(x, d)| *x += t * d);
        data
    }

    fn head(&self) -> HeadOf<Intervals> {
        let exact = |x: &[f64]| x.iter().copied().map(Interval::exact).collect::<Vec<_>>();
        let keys = self.keys.iter().zip(&self.values);
        let keys: Vec<_> = keys.map(|(k, v)| KeyValue { key: exact(k), value: exact(v) }).collect();
        let scale = Interval::exact(SCALE);
        let queries = (0..self.queries.len())
            .map(|r| {
                let query = exact(&self.queries[r]);
                let score = |kv: &KeyValue<Interval>| A.mul(&scale, &dot(&query, &kv.key));
                let visible = self.visible[r].iter().zip(&keys);
                let scores: Vec<_> = visible.map(|(sees, kv)| sees.then(|| score(kv))).collect();
                let row_keys = scores.iter().zip(&keys);
                let row_keys: Vec<_> = row_keys
                    .map(|(score, kv)| Key { score: score.clone(), value: kv.value.clone() })
                    .collect();
                Query {
                    row: dense_row(&A, &row_keys),
                    query,
                    scores,
                    output_gradient: exact(&self.output_gradients[r]),
                    lse_gradient: Interval::exact(self.lse_gradients[r]),
                }
            })
            .collect();
        Head { scale, queries, keys }
    }

    /// `sum_r ( sum_j dO_rj o_rj + g_r L_r )`.
    fn loss(&self) -> Interval {
        let head = self.head();
        A.sum(head.queries.iter().filter_map(|query| {
            let row = query.row.as_ref()?;
            let of_lse = A.mul(&query.lse_gradient, &row.lse);
            Some(A.add(&of_lse, &dot(&query.output_gradient, &row.output)))
        }))
    }

    /// `E(h)`.
    fn error(&self, moved: Moved, h: f64) -> Interval {
        let difference = A.sub(&self.at(moved, h).loss(), &self.at(moved, -h).loss());
        let quotient = A.div(&difference, &Interval::exact(2.0 * h));
        A.sub(&quotient, &self.derivative(moved))
    }

    /// `f'(0)`, from the gradients.
    fn derivative(&self, moved: Moved) -> Interval {
        let gradient = attention_gradient(&A, &self.head());
        let direction: Vec<_> = self.direction.iter().copied().map(Interval::exact).collect();
        match moved {
            Moved::Query(r) => dot(&gradient.query[r], &direction),
            Moved::Key(i) => dot(&gradient.keys[i].key, &direction),
            Moved::Value(i) => dot(&gradient.keys[i].value, &direction),
        }
    }

    /// `M_n`, for a moved query or key.
    fn derivative_bound(&self, moved: Moved, n: usize) -> Interval {
        A.sum((0..self.queries.len()).map(|r| self.row_derivative_bound(moved, r, n)))
    }

    fn row_derivative_bound(&self, moved: Moved, r: usize, n: usize) -> Interval {
        let visible = || (0..self.keys.len()).filter(|&i| self.visible[r][i]);
        let speed = |i: usize| match moved {
            Moved::Query(moved) if moved == r => dot_f64(&self.direction, &self.keys[i]),
            Moved::Key(moved) if moved == i => dot_f64(&self.direction, &self.queries[r]),
            _ => 0.0,
        };
        // Exact in binary64, as the inputs are short.
        let largest = |f: &dyn Fn(usize) -> f64| visible().map(|i| f(i).abs()).fold(0.0, f64::max);
        let speed = Interval::exact(SCALE * largest(&speed));
        let outputs = self.output_gradients[r].iter().enumerate().map(|(j, d_o)| {
            let value = largest(&|i| self.values[i][j]);
            A.mul(&Interval::exact(d_o.abs()), &Interval::exact(value))
        });
        let outputs = A.mul(&cumulant_coefficient(n + 1), &A.sum(outputs));
        let lse = Interval::exact(self.lse_gradients[r].abs());
        let magnitude = A.add(&outputs, &A.mul(&cumulant_coefficient(n), &lse));
        (0..n).fold(magnitude, |bound, _| A.mul(&bound, &speed))
    }
}

fn dot(x: &[Interval], y: &[Interval]) -> Interval {
    A.sum(x.iter().zip(y).map(|(x, y)| A.mul(x, y)))
}

fn dot_f64(x: &[f64], y: &[f64]) -> f64 {
    x.iter().zip(y).map(|(x, y)| x * y).sum()
}

/// `K_N`.
fn cumulant_coefficient(variables: usize) -> Interval {
    // Row by row, S(N, b) = b S(N - 1, b) + S(N - 1, b - 1).
    let mut stirling = vec![0.0; variables + 1];
    stirling[0] = 1.0;
    for _ in 0..variables {
        for b in (0..=variables).rev() {
            stirling[b] = b as f64 * stirling[b] + if b > 0 { stirling[b - 1] } else { 0.0 };
        }
    }
    let mut factorial = 1.0;
    let mut sum = 0.0;
    for (b, partitions) in stirling.iter().enumerate().skip(1) {
        sum += partitions * factorial;
        factorial *= b as f64;
    }
    Interval::exact(sum)
}

/// `h^power`, exactly.
fn step_power(power: i32) -> Interval {
    Interval::exact(STEP.powi(power))
}

/// `(h^2/6) M_3`.
fn first_order(data: &Data, moved: Moved) -> Interval {
    let bound = A.mul(&step_power(2), &data.derivative_bound(moved, 3));
    A.div(&bound, &Interval::exact(6.0))
}

/// `(h^4/120) (1 + 1/4) M_5`.
fn second_order(data: &Data, moved: Moved) -> Interval {
    let bound = A.mul(&step_power(4), &data.derivative_bound(moved, 5));
    A.div(&bound, &Interval::exact(96.0))
}

fn short(magnitude: i32, fraction: f64) -> impl Strategy<Value = f64> {
    let steps = (f64::from(magnitude) / fraction) as i32;
    (-steps..=steps).prop_map(move |k| f64::from(k) * fraction)
}

fn vectors(count: usize, entries: usize) -> impl Strategy<Value = Vec<Vec<f64>>> {
    prop::collection::vec(prop::collection::vec(short(4, 0.0625), entries), count)
}

fn data() -> impl Strategy<Value = Data> {
    (1_usize..4, 1_usize..6).prop_flat_map(|(queries, keys)| {
        let visible =
            prop::collection::vec(prop::collection::vec(prop::bool::weighted(0.8), keys), queries);
        (
            (vectors(queries, HEAD_DIM), vectors(keys, HEAD_DIM), vectors(keys, HEAD_DIM)),
            (visible, vectors(queries, HEAD_DIM)),
            prop::collection::vec(short(4, 0.0625), queries),
            prop::collection::vec(short(2, 0.25), HEAD_DIM),
        )
            .prop_map(
                |(
                    (queries, keys, values),
                    (visible, output_gradients),
                    lse_gradients,
                    direction,
                )| {
                    Data {
                        queries,
                        keys,
                        values,
                        visible,
                        output_gradients,
                        lse_gradients,
                        direction,
                    }
                },
            )
    })
}

/// Whether every number of the interval is within the limit; where the limit is 0, whether 0 is one.
fn within(error: &Interval, limit: &Interval) -> bool {
    let limit = limit.magnitude();
    if limit.is_zero() { error.mignitude().is_zero() } else { error.magnitude() <= limit }
}

/// Checks both inequalities for one moved query or key.
fn check(data: &Data, moved: Moved) -> Result<(), TestCaseError> {
    let (whole, half) = (data.error(moved, STEP), data.error(moved, STEP / 2.0));
    prop_assert!(within(&whole, &first_order(data, moved)), "{moved:?}: {whole:?}");
    let quartered = A.sub(&whole, &A.mul(&Interval::exact(4.0), &half));
    prop_assert!(within(&quartered, &second_order(data, moved)), "{moved:?}: {quartered:?}");
    Ok(())
}

proptest! {
    #![proptest_config(settings(
        "gradient_difference",
        "tests/proptest-regressions/gradient_difference.txt",
    ))]

    #[test]
    fn halving_the_step_of_a_query_quarters_the_error(data in data()) {
        for query in 0..data.queries.len() {
            check(&data, Moved::Query(query))?;
        }
    }

    #[test]
    fn halving_the_step_of_a_key_quarters_the_error(data in data()) {
        for key in 0..data.keys.len() {
            check(&data, Moved::Key(key))?;
        }
    }

    /// Outputs are linear in the values, so any difference is the derivative.
    #[test]
    fn differences_along_a_value_are_exact(data in data()) {
        for key in 0..data.keys.len() {
            let error = data.error(Moved::Value(key), STEP);
            prop_assert!(error.mignitude().is_zero(), "{error:?}");
        }
    }
}

/// On this row the error is no smaller than its order says, so that its quartering is seen: the
/// ratio `E(h) / E(h/2)` differs from 4 by less than 1, where an error of the first order has 2 and
/// one of the third 8.
#[test]
fn the_error_is_of_the_second_order() {
    let data = Data {
        queries: vec![vec![1.0, -0.5]],
        keys: vec![vec![0.5, 1.0], vec![-1.0, 2.0], vec![2.0, 0.25]],
        values: vec![vec![1.0, 0.0], vec![-2.0, 1.0], vec![0.5, 3.0]],
        visible: vec![vec![true; 3]],
        output_gradients: vec![vec![1.0, -0.75]],
        lse_gradients: vec![0.5],
        direction: vec![1.0, 0.5],
    };
    for moved in [Moved::Query(0), Moved::Key(1)] {
        let half = data.error(moved, STEP / 2.0).mignitude();
        assert!(half > second_order(&data, moved).magnitude(), "{moved:?}");
    }
}

/// The sequence 1, 2, 6, 26, 150, 1082 (OEIS A000629).
#[test]
fn cumulant_coefficients_are_those_of_set_partitions() {
    for (variables, coefficient) in (1..).zip([1.0, 2.0, 6.0, 26.0, 150.0, 1082.0]) {
        assert_eq!(cumulant_coefficient(variables), Interval::exact(coefficient));
    }
}
