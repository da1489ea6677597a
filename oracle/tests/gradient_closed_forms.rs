//! Gradients that are known exactly: zeros, single keys, equal scores, and a midpoint out of reach.

#[path = "support/gradient.rs"]
mod gradient;
mod support;

use flashproof_oracle::backward::{ExpectedGradient, KeyIndex};
use flashproof_oracle::enclosure::Enclosure;
use flashproof_oracle::round::nearest;
use flashproof_oracle::row::{Exact, RowIndex};
use flashproof_spec::format::Format;
use flashproof_spec::mask::Mask;
use flashproof_spec::problem::{Problem, Scale};
use flashproof_spec::tensor::{Cotangents, Inputs, Tensor};
use gradient::{GradientCase, all_keys, gradient_case, tensor};
use proptest::prelude::*;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};
use rug::{Float, Rational};
use support::inputs::{ONLY_ROW, all_rows};
use support::settings;

/// Bits that hold the products of four `f64` entries, and tell a quotient of small integers from
/// every midpoint.
const PRECISION: u32 = 6000;

fn exact(entry: &ExpectedGradient) -> &Exact {
    entry.exact().expect("a gradient of finite inputs")
}

fn is_exactly_zero(entry: &ExpectedGradient) -> bool {
    let Exact { enclosure, rounded } = exact(entry);
    *enclosure.lo() == 0 && *enclosure.hi() == 0 && rounded.map(f64::to_bits) == Some(0)
}

/// Asserts that the answer is this number, rounded once. One that is not dyadic is no midpoint, and
/// `PRECISION` bits of it show on which side of each it lies.
fn assert_is(entry: &ExpectedGradient, value: &Rational, format: Format) {
    let Exact { enclosure, rounded } = exact(entry);
    assert!(enclosure.lo() <= value && value <= enclosure.hi(), "{enclosure:?} misses {value}");
    let expected = nearest(&Float::with_val(PRECISION, value), format);
    let rounded = rounded.expect("a decided entry");
    assert!(rounded == expected || (rounded.is_nan() && expected.is_nan()), "{rounded}: {value}");
}

fn rational(x: f64) -> Rational {
    Rational::from_f64(x).expect("a finite number")
}

/// The case with every value row equal to the first of its head.
fn with_constant_values(case: GradientCase) -> GradientCase {
    let GradientCase { problem, mut inputs, .. } = case.clone();
    let mut values = inputs.value.values().clone();
    for mut member in values.outer_iter_mut() {
        for mut head in member.outer_iter_mut() {
            let first = head.outer_iter().next().expect("a key").to_owned();
            head.outer_iter_mut().for_each(|mut row| row.assign(&first));
        }
    }
    inputs.value = Tensor::exact(problem.format, values).expect("entries of the same tensor");
    GradientCase { inputs, ..case }
}

proptest! {
    #![proptest_config(
        settings("gradient_closed_forms", "tests/proptest-regressions/gradient_closed_forms.txt")
    )]

    #[test]
    fn constant_values_have_no_query_and_key_gradients(case in gradient_case()) {
        let mut case = with_constant_values(case);
        case.cotangents.lse = None;
        let backward = case.backward();
        for row in backward.query_gradient_rows(&all_rows(&case.problem), || ()).unwrap() {
            prop_assert!(row.query.iter().all(is_exactly_zero), "{:?}", row);
        }
        for row in backward.key_gradient_rows(&all_keys(&case.problem), || ()).unwrap() {
            prop_assert!(row.key.iter().all(is_exactly_zero), "{:?}", row);
        }
    }

    #[test]
    fn rows_and_keys_without_terms_have_exactly_no_gradient(case in gradient_case()) {
        let backward = case.backward();
        for row in backward.query_gradient_rows(&all_rows(&case.problem), || ()).unwrap() {
            let RowIndex { batch, head, query } = row.index;
            if case.problem.visible_keys(batch, head, query).is_empty() {
                prop_assert!(row.query.iter().all(is_exactly_zero));
                prop_assert!(row.mean_key_hi.iter().all(|&mean| mean == 0.0));
            }
        }
        for row in backward.key_gradient_rows(&all_keys(&case.problem), || ()).unwrap() {
            if row.contributors.is_empty() {
                prop_assert!(row.key.iter().chain(&row.value).all(is_exactly_zero));
            }
        }
    }

    #[test]
    fn a_scale_of_zero_leaves_only_value_gradients(case in gradient_case()) {
        let mut case = case;
        case.problem.scale = Scale::Value(0.0);
        let backward = case.backward();
        for row in backward.query_gradient_rows(&all_rows(&case.problem), || ()).unwrap() {
            prop_assert!(row.query.iter().all(is_exactly_zero));
        }
        for row in backward.key_gradient_rows(&all_keys(&case.problem), || ()).unwrap() {
            prop_assert!(row.key.iter().all(is_exactly_zero));
        }
    }

    #[test]
    fn one_key_passes_gradients_on(case in gradient_case(), scale in -2.0..2.0_f64) {
        let mut case = case;
        case.problem = Problem {
            batch: 1,
            query_heads: 1,
            key_heads: 1,
            query_len: 1,
            key_len: 1,
            scale: Scale::Value(scale),
            mask: Mask::full(),
            ..case.problem
        };
        let first = |tensor: &Tensor, shape: &[usize]| {
            let values = tensor.values().iter().take(shape.iter().product()).copied().collect();
            tensor_of(tensor.format(), shape, values)
        };
        let (inputs, cotangents) = (&case.inputs, &case.cotangents);
        case.inputs = Inputs {
            query: first(&inputs.query, &case.problem.query_shape()),
            key: first(&inputs.key, &case.problem.key_shape()),
            value: first(&inputs.value, &case.problem.value_shape()), bias: None, sink: None, descale: None };
        case.cotangents = Cotangents {
            output: first(&cotangents.output, &case.problem.output_shape()),
            lse: cotangents.lse.as_ref().map(|lse| first(lse, &case.problem.lse_shape())),
        };
        // p = 1, D = dP, dS = g.
        let g = case.cotangents.lse.as_ref().map_or(0.0, |lse| lse.values()[[0, 0, 0]]);
        let factor = rational(scale) * rational(g);
        let format = case.problem.format;
        let backward = case.backward();
        let row = backward.query_gradient_row(ONLY_ROW).unwrap();
        for (entry, &key) in row.query.iter().zip(case.inputs.key.values()) {
            assert_is(entry, &(factor.clone() * rational(key)), format);
        }
        let row = backward.key_gradient_row(KeyIndex { batch: 0, key_head: 0, key: 0 }).unwrap();
        for (entry, &query) in row.key.iter().zip(case.inputs.query.values()) {
            assert_is(entry, &(factor.clone() * rational(query)), format);
        }
        for (entry, &upstream) in row.value.iter().zip(case.cotangents.output.values()) {
            assert_is(entry, &rational(upstream), format);
        }
    }
}

fn tensor_of(format: Format, shape: &[usize], values: Vec<f64>) -> Tensor {
    Tensor::exact(format, ndarray::ArrayD::from_shape_vec(shape, values).expect("its shape"))
        .expect("entries of the same format")
}

/// Queries of zero, so that every score is, and small integers elsewhere.
fn equal_scores(format: Format, rng: &mut ChaCha8Rng) -> GradientCase {
    let problem = Problem {
        query_len: 1 + (rng.next_u32() % 4) as usize,
        key_len: 1 + (rng.next_u32() % 6) as usize,
        head_dim: 1,
        value_dim: 1,
        scale: Scale::Value(0.5),
        ..Problem::new(format, 1, 1, 1)
    };
    let mut integers = |shape: &[usize]| {
        let count = shape.iter().product();
        let values = (0..count).map(|_| f64::from(rng.next_u32() % 17) - 8.0).collect();
        tensor(format, shape, values)
    };
    let zeros = vec![0.0; problem.query_len];
    GradientCase {
        inputs: Inputs {
            query: tensor(format, &problem.query_shape(), zeros),
            key: integers(&problem.key_shape()),
            value: integers(&problem.value_shape()),
            bias: None,
            sink: None,
            descale: None,
        },
        cotangents: Cotangents {
            output: integers(&problem.output_shape()),
            lse: Some(integers(&problem.lse_shape())),
        },
        lse_format: format,
        problem,
    }
}

/// Whether the format has two neighbours with this number halfway between them.
fn is_midpoint(x: &Rational, format: Format) -> bool {
    let at = |x: &Float| nearest(x, format);
    let mut below = Float::with_val(PRECISION, x);
    let mut above = below.clone();
    let exact = below == *x;
    below.next_down();
    above.next_up();
    exact && at(&below) != at(&above)
}

#[test]
fn equal_scores_have_rational_gradients() {
    const SEED: u64 = 26;
    const CASES: usize = 300;
    println!("ChaCha8 seed {SEED}, {CASES} cases for each format");
    let mut rng = ChaCha8Rng::seed_from_u64(SEED);
    for format in Format::ALL {
        let mut midpoints = 0;
        for _ in 0..CASES {
            let case = equal_scores(format, &mut rng);
            let backward = case.backward();
            let flat = |tensor: &Tensor| -> Vec<Rational> {
                tensor.values().iter().map(|&x| rational(x)).collect()
            };
            let (keys, values) = (flat(&case.inputs.key), flat(&case.inputs.value));
            let upstream = flat(&case.cotangents.output);
            let gradients = flat(case.cotangents.lse.as_ref().expect("an LSE gradient"));
            let n = Rational::from(keys.len());
            let mean = values.iter().sum::<Rational>() / &n;
            for index in all_rows(&case.problem) {
                // dQ = scale / n * sum_i (dO (v_i - mean v) + g) k_i
                let (d_o, g) = (&upstream[index.query], &gradients[index.query]);
                let term =
                    |(v, k): (&Rational, &Rational)| (Rational::from(v - &mean) * d_o + g) * k;
                let sum: Rational = values.iter().zip(&keys).map(term).sum();
                let expected = sum / &n / 2;
                midpoints += usize::from(is_midpoint(&expected, format));
                assert_is(&backward.query_gradient_row(index).unwrap().query[0], &expected, format);
            }
            let expected = upstream.iter().sum::<Rational>() / &n;
            for index in all_keys(&case.problem) {
                let row = backward.key_gradient_row(index).unwrap();
                assert!(is_exactly_zero(&row.key[0]), "queries are zero");
                midpoints += usize::from(is_midpoint(&expected, format));
                assert_is(&row.value[0], &expected, format);
            }
        }
        // Formats of few bits have midpoints among quotients of small integers.
        assert!(midpoints > 0 || format.precision() > 4, "{format} met no midpoint");
    }
}

#[test]
fn a_midpoint_that_rows_make_together_is_left_undecided() {
    // Queries q and -q give key 0 the weights p and 1 - p, so four rows add up to
    // 16 (p + 1 - p) + (p + 1 - p) = 17, halfway between the e4m3 values 16 and 18.
    let format = Format::E4m3;
    let problem = Problem { query_len: 4, key_len: 2, ..Problem::new(format, 1, 1, 1) };
    let of = |shape: [usize; 4], values: [f64; 4]| tensor(format, &shape, values.to_vec());
    let keys = tensor(format, &problem.key_shape(), vec![1.0, -1.0]);
    let case = GradientCase {
        inputs: Inputs {
            query: of(problem.query_shape(), [1.0, -1.0, 1.0, -1.0]),
            key: keys.clone(),
            value: keys,
            bias: None,
            sink: None,
            descale: None,
        },
        cotangents: Cotangents {
            output: of(problem.output_shape(), [16.0, 16.0, 1.0, 1.0]),
            lse: None,
        },
        lse_format: Format::F32,
        problem,
    };
    let row = case.backward().key_gradient_row(KeyIndex { batch: 0, key_head: 0, key: 0 }).unwrap();
    let Exact { enclosure, rounded } = exact(&row.value[0]);
    assert_eq!(*rounded, None);
    assert!(enclosure.contains(&Enclosure::point(Float::with_val(5, 17))));
    // Narrower than any precision before the last below the cap of 4,096 could make it: that is 62
    // bits, doubled six times.
    let width = Float::with_val(64, enclosure.hi() - enclosure.lo());
    assert!(width > 0 && width.get_exp() < Some(-(62 << 5)), "a width of {width}");
}
