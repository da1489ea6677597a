//! Identities between gradients, and whole problems against the same rows as problems of their own.

#[path = "support/gradient.rs"]
mod gradient;
#[path = "support/gradient_definition.rs"]
mod gradient_definition;
mod support;

use flashproof_oracle::backward::{Backward, ExpectedGradient, KeyIndex};
use flashproof_oracle::enclosure::Enclosure;
use flashproof_oracle::row::RowIndex;
use flashproof_spec::format::Format;
use flashproof_spec::mask::{Mask, Rule};
use flashproof_spec::problem::{Problem, Scale};
use flashproof_spec::tensor::{Cotangents, Inputs, Tensor};
use gradient::{GradientCase, all_keys, gradient_case, normal_cotangents};
use gradient_definition::number;
use ndarray::Axis;
use proptest::prelude::*;
use rug::{Float, Rational};
use support::definition::certain;
use support::inputs::{ONLY_ROW, all_rows, normal_inputs};
use support::settings;

const SEED: u64 = 26;

/// Working precision of the enclosures, and of their sums.
const PRECISION: u32 = 400;

fn sum(terms: impl Iterator<Item = Enclosure>) -> Enclosure {
    terms.fold(Enclosure::point(number(0.0)), |sum, term| sum.add(&term, PRECISION))
}

fn times(x: &Enclosure, factor: f64) -> Enclosure {
    x.mul(&Enclosure::point(number(factor)), PRECISION)
}

/// The gradients of a query, zeros where it sees no key.
fn query_gradient(backward: &Backward<'_>, index: RowIndex, head_dim: usize) -> Vec<Enclosure> {
    let row = backward.enclose_query_gradient(index, PRECISION).expect("a row");
    row.unwrap_or_else(|| vec![Enclosure::point(number(0.0)); head_dim])
}

/// The gradients of a key and its value, in one list, zeros where no query sees it.
fn key_gradient(backward: &Backward<'_>, index: KeyIndex, problem: &Problem) -> Vec<Enclosure> {
    let zeros = vec![Enclosure::point(number(0.0)); problem.head_dim + problem.value_dim];
    backward
        .enclose_key_gradient(index, PRECISION)
        .expect("a key")
        .map_or(zeros, |row| row.key.into_iter().chain(row.value).collect())
}

/// The scale in many bits, from its definition.
fn scale(problem: &Problem) -> Float {
    match problem.scale {
        Scale::Value(scale) => number(scale),
        Scale::InverseSqrtHeadDim => number(problem.head_dim as f64).sqrt().recip(),
    }
}

proptest! {
    #![proptest_config(
        settings("gradient_identities", "tests/proptest-regressions/gradient_identities.txt")
    )]

    /// `sum_i dS_ri = g_r` and `sum_i p_ri = 1` in each row that sees a key.
    #[test]
    fn gradients_of_all_keys_add_up_to_those_passed_on(case in gradient_case()) {
        let GradientCase { problem, inputs, cotangents, .. } = &case;
        let backward = case.backward();
        let (query, upstream) = (inputs.query.view4(), cotangents.output.view4());
        let keys: Vec<(KeyIndex, Vec<Enclosure>)> = all_keys(problem)
            .into_iter()
            .map(|index| (index, key_gradient(&backward, index, problem)))
            .collect();
        let columns = problem.head_dim + problem.value_dim;
        for (batch, head) in (0..problem.batch).flat_map(|b| (0..problem.key_heads).map(move |h| (b, h))) {
            let of_head = |index: &KeyIndex| (index.batch, index.key_head) == (batch, head);
            let rows = all_rows(problem).into_iter().filter(|row| {
                (row.batch, problem.key_head_of(row.head)) == (batch, head)
                    && !problem.visible_keys(row.batch, row.head, row.query).is_empty()
            });
            let rows: Vec<RowIndex> = rows.collect();
            for column in 0..columns {
                let of_keys = keys.iter().filter(|(index, _)| of_head(index));
                let total = sum(of_keys.map(|(_, gradient)| gradient[column].clone()));
                let passed_on = |row: &RowIndex| {
                    let RowIndex { batch, head, query: at } = *row;
                    if let Some(column) = column.checked_sub(problem.head_dim) {
                        number(upstream[[batch, head, at, column]])
                    } else {
                        let lse = cotangents.lse.as_ref();
                        let g = lse.map_or(0.0, |lse| lse.view3()[[batch, head, at]]);
                        scale(problem) * g * query[[batch, head, at, column]]
                    }
                };
                let expected = rows.iter().map(passed_on).fold(number(0.0), |sum, term| sum + term);
                prop_assert!(total.intersects(&certain(&expected)), "{total:?} misses {expected}");
            }
        }
    }

    /// Scores are linear in queries and in keys, so `sum_r q_r dQ_r = sum_i k_i dK_i`: both are the
    /// sum of `dS s` over all pairs.
    #[test]
    fn queries_and_keys_share_the_gradient_of_the_scores(case in gradient_case()) {
        let GradientCase { problem, inputs, .. } = &case;
        let backward = case.backward();
        let (query, key) = (inputs.query.view4(), inputs.key.view4());
        let of_queries = sum(all_rows(problem).into_iter().flat_map(|index| {
            let RowIndex { batch, head, query: at } = index;
            let gradient = query_gradient(&backward, index, problem.head_dim);
            let term = move |(j, entry): (usize, Enclosure)| times(&entry, query[[batch, head, at, j]]);
            gradient.into_iter().enumerate().map(term)
        }));
        let of_keys = sum(all_keys(problem).into_iter().flat_map(|index| {
            let KeyIndex { batch, key_head, key: at } = index;
            let gradient = key_gradient(&backward, index, problem);
            let term = move |(j, entry): (usize, Enclosure)| times(&entry, key[[batch, key_head, at, j]]);
            gradient.into_iter().take(problem.head_dim).enumerate().map(term)
        }));
        prop_assert!(of_queries.intersects(&of_keys), "{of_queries:?} misses {of_keys:?}");
    }

    #[test]
    fn the_order_of_keys_does_not_matter(case in gradient_case(), turn in 0_usize..8) {
        let mut case = case;
        case.problem.mask = Mask::full();
        let mut order: Vec<usize> = (0..case.problem.key_len).collect();
        order.rotate_left(turn % case.problem.key_len);
        order.reverse();
        let mut permuted = case.clone();
        permuted.inputs.key = select(&case.inputs.key, 2, &order);
        permuted.inputs.value = select(&case.inputs.value, 2, &order);
        let (backward, other) = (case.backward(), permuted.backward());
        for index in all_rows(&case.problem) {
            let row = backward.query_gradient_row(index).unwrap();
            let other = other.query_gradient_row(index).unwrap();
            prop_assert!(agree(&row.query, &other.query), "{row:?} and {other:?}");
        }
        for index in all_keys(&permuted.problem) {
            let other = other.key_gradient_row(index).unwrap();
            let row = backward.key_gradient_row(KeyIndex { key: order[index.key], ..index }).unwrap();
            prop_assert!(agree(&row.key, &other.key), "{row:?} and {other:?}");
            prop_assert!(agree(&row.value, &other.value), "{row:?} and {other:?}");
        }
    }

    #[test]
    fn a_layout_in_memory_does_not_matter(case in gradient_case()) {
        let reversed = |tensor: &Tensor| {
            let axes = tensor.values().view().reversed_axes();
            let values = axes.as_standard_layout().into_owned().reversed_axes();
            Tensor::exact(tensor.format(), values).expect("its own entries")
        };
        let other = GradientCase {
            inputs: Inputs {
                query: reversed(&case.inputs.query),
                key: reversed(&case.inputs.key),
                value: reversed(&case.inputs.value), bias: None, sink: None, descale: None },
            cotangents: Cotangents {
                output: reversed(&case.cotangents.output),
                lse: case.cotangents.lse.as_ref().map(reversed),
            },
            ..case.clone()
        };
        let (backward, other) = (case.backward(), other.backward());
        for index in all_rows(&case.problem) {
            let row = backward.query_gradient_row(index).unwrap();
            prop_assert!(agree(&row.query, &other.query_gradient_row(index).unwrap().query));
        }
        for index in all_keys(&case.problem) {
            let row = backward.key_gradient_row(index).unwrap();
            let other = other.key_gradient_row(index).unwrap();
            prop_assert!(agree(&row.key, &other.key) && agree(&row.value, &other.value));
        }
    }
}

/// Whether two answers are the same number: enclosures of it that meet, and one rounded value.
fn agree(x: &[ExpectedGradient], y: &[ExpectedGradient]) -> bool {
    x.len() == y.len()
        && x.iter().zip(y).all(|(x, y)| match (x.exact(), y.exact()) {
            (Some(x), Some(y)) => {
                let bits = |rounded: Option<f64>| rounded.map(|value| (value + 0.0).to_bits());
                x.enclosure.intersects(&y.enclosure) && bits(x.rounded) == bits(y.rounded)
            }
            _ => false,
        })
}

/// The tensor with its entries along an axis taken in this order.
fn select(tensor: &Tensor, axis: usize, order: &[usize]) -> Tensor {
    Tensor::exact(tensor.format(), tensor.values().select(Axis(axis), order))
        .expect("its own entries")
}

/// Grouped heads, two batch members of different lengths, under both alignments of a causal mask.
fn grouped_cases() -> [GradientCase; 2] {
    [Rule::CausalTopLeft, Rule::CausalBottomRight].map(|causal| {
        let problem = Problem {
            batch: 2,
            query_heads: 6,
            key_heads: 2,
            query_len: 5,
            key_len: 7,
            head_dim: 8,
            value_dim: 3,
            mask: Mask { rules: vec![Rule::KeyLengths(vec![7, 4]), causal] },
            ..Problem::new(Format::Bf16, 6, 5, 8)
        };
        GradientCase {
            inputs: normal_inputs(&problem, SEED),
            cotangents: normal_cotangents(&problem, Format::F32, SEED),
            lse_format: Format::F32,
            problem,
        }
    })
}

/// The keys that a row of [`grouped_cases`] sees, by its own reckoning.
fn sees(case: &GradientCase, row: RowIndex, key: usize) -> bool {
    let used = [7, 4][row.batch];
    let diagonal = match case.problem.mask.rules[1] {
        Rule::CausalTopLeft => key <= row.query,
        _ => key + 5 <= row.query + used,
    };
    key < used && diagonal
}

/// One row of a case with the keys that it sees, cut out as a problem of its own.
fn cut_out(case: &GradientCase, row: RowIndex, visible: &[usize]) -> GradientCase {
    let GradientCase { problem, inputs, cotangents, .. } = case;
    let RowIndex { batch, head, query } = row;
    let cut = |tensor: &Tensor, head: usize, positions: &[usize]| {
        select(&select(&select(tensor, 0, &[batch]), 1, &[head]), 2, positions)
    };
    let lse = cotangents.lse.as_ref().expect("an LSE gradient");
    // Key head 0 serves query heads 0, 1 and 2.
    GradientCase {
        problem: Problem {
            batch: 1,
            query_heads: 1,
            key_heads: 1,
            query_len: 1,
            key_len: visible.len(),
            mask: Mask::full(),
            ..problem.clone()
        },
        inputs: Inputs {
            query: cut(&inputs.query, head, &[query]),
            key: cut(&inputs.key, head / 3, visible),
            value: cut(&inputs.value, head / 3, visible),
            bias: None,
            sink: None,
            descale: None,
        },
        cotangents: Cotangents {
            output: cut(&cotangents.output, head, &[query]),
            lse: Some(cut(lse, head, &[query])),
        },
        lse_format: case.lse_format,
    }
}

#[test]
fn keys_collect_what_rows_on_their_own_give_them() {
    println!("ChaCha8 seed {SEED}");
    for case in grouped_cases() {
        let problem = &case.problem;
        let backward = case.backward();
        let columns = problem.head_dim + problem.value_dim;
        let mut expected = std::collections::HashMap::new();
        for index in all_keys(problem) {
            expected.insert(index, vec![Enclosure::point(number(0.0)); columns]);
        }
        for row in all_rows(problem) {
            let visible: Vec<usize> = (0..7).filter(|&key| sees(&case, row, key)).collect();
            let whole = backward.query_gradient_row(row).unwrap();
            if visible.is_empty() {
                assert!(whole.query.iter().all(|entry| entry.magnitude_hi() == 0.0));
                continue;
            }
            let alone = cut_out(&case, row, &visible);
            let single = alone.backward();
            let part = single.query_gradient_row(ONLY_ROW).unwrap();
            assert_eq!((&whole.query, &whole.mean_key_hi), (&part.query, &part.mean_key_hi));
            for (at, &key) in visible.iter().enumerate() {
                let index = KeyIndex { batch: 0, key_head: 0, key: at };
                let part = key_gradient(&single, index, &alone.problem);
                let index = KeyIndex { batch: row.batch, key_head: row.head / 3, key };
                let sums = expected.get_mut(&index).expect("a key of the problem");
                for (sum, part) in sums.iter_mut().zip(part) {
                    *sum = sum.add(&part, PRECISION);
                }
            }
        }
        for (index, expected) in expected {
            let whole = key_gradient(&backward, index, problem);
            assert_eq!(whole.len(), expected.len());
            for (whole, expected) in whole.iter().zip(&expected) {
                assert!(whole.intersects(expected), "{index:?}: {whole:?} misses {expected:?}");
            }
            let rows = all_rows(problem).into_iter().filter(|&row| {
                (row.batch, row.head / 3) == (index.batch, index.key_head)
                    && sees(&case, row, index.key)
            });
            let contributors = backward.key_gradient_row(index).unwrap().contributors;
            assert_eq!(contributors, rows.collect::<Vec<_>>());
        }
    }
}

#[test]
fn grouped_heads_add_up_the_gradients_of_heads_on_their_own() {
    println!("ChaCha8 seed {SEED}");
    let [case, _] = grouped_cases();
    let repeated = |tensor: &Tensor| select(tensor, 1, &[0, 0, 0, 1, 1, 1]);
    let mut separate = case.clone();
    separate.problem.key_heads = 6;
    separate.inputs.key = repeated(&case.inputs.key);
    separate.inputs.value = repeated(&case.inputs.value);
    let (backward, single) = (case.backward(), separate.backward());
    for index in all_keys(&case.problem) {
        let heads = 3 * index.key_head..3 * (index.key_head + 1);
        let parts: Vec<Vec<Enclosure>> = heads
            .map(|key_head| {
                key_gradient(&single, KeyIndex { key_head, ..index }, &separate.problem)
            })
            .collect();
        for (column, whole) in key_gradient(&backward, index, &case.problem).iter().enumerate() {
            let total = sum(parts.iter().map(|part| part[column].clone()));
            assert!(whole.intersects(&total), "{index:?}: {whole:?} misses {total:?}");
        }
    }
    for index in all_rows(&case.problem) {
        assert_eq!(backward.query_gradient_row(index), single.query_gradient_row(index));
    }
}

/// Enclosures in these tests are narrow enough for what they are compared with to mean something.
#[test]
fn enclosures_are_narrow() {
    let [case, _] = grouped_cases();
    let backward = case.backward();
    for index in all_keys(&case.problem) {
        for entry in key_gradient(&backward, index, &case.problem) {
            let width = Rational::try_from(&Float::with_val(64, entry.hi() - entry.lo())).unwrap();
            assert!(width <= Rational::from(1) >> (PRECISION / 2), "{entry:?}");
        }
    }
}
