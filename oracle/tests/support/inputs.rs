//! Problems and their inputs: given, random from a printed seed, and drawn by proptest.

use flashproof_oracle::row::RowIndex;
use flashproof_spec::format::Format;
use flashproof_spec::mask::{Mask, Rule};
use flashproof_spec::problem::{Problem, Scale};
use flashproof_spec::tensor::{Inputs, Tensor};
use proptest::prelude::*;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::SeedableRng;
use rand_distr::{Distribution, StandardNormal};

/// The one row of a problem with one query.
pub const ONLY_ROW: RowIndex = RowIndex { batch: 0, head: 0, query: 0 };

/// A problem with its inputs.
#[derive(Clone, Debug)]
pub struct Case {
    pub problem: Problem,
    pub inputs: Inputs,
}

/// A tensor of these values, rounded to `format`.
pub fn tensor(format: Format, shape: &[usize], values: Vec<f64>) -> Tensor {
    Tensor::rounded_from(format, shape, values).expect("as many values as the shape has")
}

/// One query row against some keys, all entries representable in `format`.
///
/// # Panics
/// When the rows differ in length, or an entry is not representable.
pub fn one_query(format: Format, query: &[f64], keys: &[Vec<f64>], values: &[Vec<f64>]) -> Case {
    let entries: Vec<f64> = [query, &keys.concat(), &values.concat()].concat();
    assert!(entries.iter().all(|&entry| format.represents(entry)), "{entries:?} in {format}");
    let problem = Problem {
        query_len: 1,
        head_dim: query.len(),
        value_dim: values[0].len(),
        ..Problem::new(format, 1, keys.len(), 1)
    };
    let inputs = Inputs::new(
        tensor(format, &problem.query_shape(), query.to_vec()),
        tensor(format, &problem.key_shape(), keys.concat()),
        tensor(format, &problem.value_shape(), values.concat()),
    );
    Case { problem, inputs }
}

/// Standard normal inputs, rounded to the problem's format.
pub fn normal_inputs(problem: &Problem, seed: u64) -> Inputs {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let mut normal = |shape: [usize; 4]| {
        let count = shape.iter().product();
        let values = (0..count).map(|_| StandardNormal.sample(&mut rng)).collect();
        tensor(problem.format, &shape, values)
    };
    let query = normal(problem.query_shape());
    let key = normal(problem.key_shape());
    let value = normal(problem.value_shape());
    Inputs::new(query, key, value)
}

/// Every row of a problem.
pub fn all_rows(problem: &Problem) -> Vec<RowIndex> {
    let mut rows = Vec::new();
    for batch in 0..problem.batch {
        for head in 0..problem.query_heads {
            rows.extend((0..problem.query_len).map(|query| RowIndex { batch, head, query }));
        }
    }
    rows
}

/// The kinds of entries that cases are drawn from.
#[derive(Clone, Copy, Debug)]
pub enum Entries {
    /// Moderate, with all bits in use.
    Moderate,
    /// -2, -1, 0, 1, 2: many equal scores.
    Small,
    /// Large enough for scores far apart.
    Large,
    /// Any exponent that the format has.
    AnyExponent,
    /// Multiples of the smallest positive number.
    Subnormal,
}

/// Any kind of entries.
pub fn entries() -> impl Strategy<Value = Entries> {
    prop_oneof![
        4 => Just(Entries::Moderate),
        2 => Just(Entries::Small),
        2 => Just(Entries::Large),
        1 => Just(Entries::AnyExponent),
        1 => Just(Entries::Subnormal),
    ]
}

/// An entry of this kind.
pub fn entry(format: Format, entries: Entries) -> BoxedStrategy<f64> {
    let least = format.min_exponent() - format.precision() as i32;
    let most = format.max_finite().log2() as i32 - 1;
    let scaled = (-2.0..2.0_f64, least..=most).prop_map(|(x, e)| x * f64::from(e).exp2());
    let raw = match entries {
        Entries::Moderate => (-4.0..4.0_f64).boxed(),
        Entries::Small => (-2_i8..=2).prop_map(f64::from).boxed(),
        Entries::Large => (-40.0..40.0_f64).boxed(),
        Entries::AnyExponent => scaled.boxed(),
        Entries::Subnormal => {
            (-9_i8..=9).prop_map(move |k| f64::from(k) * format.smallest_subnormal()).boxed()
        }
    };
    raw.prop_map(move |x| format.round(x)).boxed()
}

fn scale() -> impl Strategy<Value = Scale> {
    prop_oneof![
        5 => Just(Scale::InverseSqrtHeadDim),
        2 => (-2.0..2.0_f64).prop_map(Scale::Value),
        1 => prop_oneof![Just(0.0), Just(1.0), Just(-0.125), Just(f64::from_bits(1))]
            .prop_map(Scale::Value),
    ]
}

fn mask(key_len: usize) -> impl Strategy<Value = Mask> {
    prop_oneof![
        3 => Just(Mask::full()),
        1 => (1..=key_len).prop_map(|length| Mask::only(Rule::KeyLengths(vec![length]))),
    ]
}

fn problem() -> impl Strategy<Value = Problem> {
    let head_dim = prop::sample::select(vec![1_usize, 2, 3, 4, 5, 8, 9, 16]);
    let format = prop::sample::select(Format::ALL.to_vec());
    (format, 1_usize..=8, head_dim, 1_usize..=3, scale()).prop_flat_map(
        |(format, key_len, head_dim, value_dim, scale)| {
            mask(key_len).prop_map(move |mask| Problem {
                query_len: 1,
                value_dim,
                scale,
                mask,
                ..Problem::new(format, 1, key_len, head_dim)
            })
        },
    )
}

/// One query and a few keys of any format, scale and kind of entries; no infinities or NaN.
pub fn case() -> impl Strategy<Value = Case> {
    (problem(), entries(), entries()).prop_flat_map(|(problem, scores, values)| {
        let drawn = |shape: [usize; 4], entries| {
            let count = shape.iter().product::<usize>();
            let format = problem.format;
            prop::collection::vec(entry(format, entries), count)
                .prop_map(move |values| tensor(format, &shape, values))
        };
        let query = drawn(problem.query_shape(), scores);
        let key = drawn(problem.key_shape(), scores);
        let value = drawn(problem.value_shape(), values);
        (query, key, value).prop_map(move |(query, key, value)| Case {
            problem: problem.clone(),
            inputs: Inputs::new(query, key, value),
        })
    })
}
