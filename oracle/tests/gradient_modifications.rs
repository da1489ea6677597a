//! Identities between gradients of problems that say the same in different words: a sink and a key
//! without a value, a broadcast bias and a full one, ALiBi or a mask and a bias, dropout and scaled values.

#[path = "support/gradient.rs"]
mod gradient;
#[path = "support/gradient_definition.rs"]
mod gradient_definition;
mod support;

use flashproof_oracle::backward::{Backward, BiasRowIndex, ExpectedGradient, KeyIndex};
use flashproof_oracle::enclosure::Enclosure;
use flashproof_oracle::row::RowIndex;
use flashproof_spec::format::Format;
use flashproof_spec::mask::{Mask, Rule, Site};
use flashproof_spec::pattern::{Pattern, broadcast_place};
use flashproof_spec::problem::Problem;
use flashproof_spec::score::{Addends, Bias, Dropout, Sink, Softcap, SoftcapOrder};
use flashproof_spec::tensor::{Inputs, Tensor};
use gradient::{GradientCase, all_bias_rows, all_keys, all_sinks, modified_case, tensor};
use gradient_definition::{lse_gradient, number};
use ndarray::{ArrayD, Axis, concatenate};
use proptest::prelude::*;
use support::definition::certain;
use support::inputs::all_rows;
use support::settings;

/// Working precision of the enclosures, and of their sums.
const PRECISION: u32 = 400;

fn sum<'e>(terms: impl Iterator<Item = &'e Enclosure>) -> Enclosure {
    terms.fold(Enclosure::point(number(0.0)), |sum, term| sum.add(term, PRECISION))
}

/// The gradient of the bias, enclosed, row after row of its own shape.
fn bias_gradient(backward: &Backward<'_>, problem: &Problem) -> Vec<Enclosure> {
    let row = |index| backward.enclose_bias_gradient(index, PRECISION).expect("a row of the bias");
    all_bias_rows(problem).into_iter().flat_map(|index| row(index).expect("numbers")).collect()
}

fn sink_gradient(backward: &Backward<'_>, head: usize) -> Enclosure {
    backward.enclose_sink_gradient(head, PRECISION).expect("a head").expect("a number")
}

/// Places of a tensor of this shape, row-major.
fn places(shape: [usize; 4]) -> Vec<[usize; 4]> {
    ndarray::indices(shape).into_iter().map(|(b, h, q, k)| [b, h, q, k]).collect()
}

/// The case with a bias of these entries, in `f64`, of the full shape.
fn with_full_bias(case: &GradientCase, entry: impl Fn(Site) -> f64) -> GradientCase {
    let shape = case.problem.score_shape();
    let site = |[batch, head, query, key]: [usize; 4]| Site { batch, head, query, key };
    let values = places(shape).into_iter().map(|place| entry(site(place))).collect();
    let bias = Some(Bias { shape, format: Format::F64 });
    GradientCase {
        problem: Problem { bias, ..case.problem.clone() },
        inputs: Inputs { bias: Some(tensor(Format::F64, &shape, values)), ..case.inputs.clone() },
        ..case.clone()
    }
}

/// The same case with its bias of the full shape.
fn expanded(case: &GradientCase) -> GradientCase {
    with_full_bias(case, |site| case.inputs.bias_at(&case.problem, site))
}

/// Whether two answers are the same number: enclosures of it that meet, and one rounded value.
fn agree(x: &[ExpectedGradient], y: &[ExpectedGradient]) -> bool {
    x.len() == y.len()
        && x.iter().zip(y).all(|(x, y)| {
            let (x, y) = (x.exact().expect("a number"), y.exact().expect("a number"));
            x.enclosure.intersects(&y.enclosure)
                && (x.rounded == y.rounded
                    || x.rounded.is_some_and(f64::is_nan) && y.rounded.is_some_and(f64::is_nan)
                    // Where one of them knows more: a sum of other terms.
                    || x.rounded.is_none()
                    || y.rounded.is_none())
        })
}

/// Asserts that queries, keys and values have the same gradients in both cases, and sinks too.
fn assert_same(one: &GradientCase, other: &GradientCase) -> Result<(), TestCaseError> {
    let (a, b) = (one.backward(), other.backward());
    for index in all_rows(&one.problem) {
        let (a, b) = (a.query_gradient_row(index).unwrap(), b.query_gradient_row(index).unwrap());
        prop_assert!(agree(&a.query, &b.query), "{a:?} and {b:?}");
    }
    for index in all_keys(&one.problem) {
        let (a, b) = (a.key_gradient_row(index).unwrap(), b.key_gradient_row(index).unwrap());
        prop_assert!(agree(&a.key, &b.key) && agree(&a.value, &b.value), "{a:?} and {b:?}");
        prop_assert_eq!(a.contributors, b.contributors);
    }
    for head in all_sinks(&one.problem) {
        let (a, b) = (a.sink_gradient(head).unwrap(), b.sink_gradient(head).unwrap());
        prop_assert!(agree(&[a.sink], &[b.sink]));
        prop_assert_eq!((a.contributors, a.without_keys), (b.contributors, b.without_keys));
    }
    Ok(())
}

/// Whether a row is none of padding, which brings nothing to the gradient of a sink.
fn is_in_use(problem: &Problem, row: &RowIndex) -> bool {
    row.query < problem.mask.used_queries(row.batch, problem.query_len)
}

/// The case without padding queries, which another way of hiding keys would not make padding.
fn without_padding_queries(mut case: GradientCase) -> GradientCase {
    case.problem.mask.rules.retain(|rule| !matches!(rule, Rule::QueryLengths(_)));
    case
}

/// A case whose softcap, if any, is taken of the product alone: the bias adds to scores.
fn additive(mut case: GradientCase) -> GradientCase {
    if let Some(softcap) = &mut case.problem.softcap {
        softcap.order = SoftcapOrder::BeforeBias;
    }
    case
}

/// Whether bias and ALiBi term of every site add up to a number of `f64`: then subtracting the larger one
/// leaves the other.
fn adds_exactly(GradientCase { problem, inputs, .. }: &GradientCase) -> bool {
    places(problem.score_shape()).into_iter().all(|[batch, head, query, key]| {
        let Addends { bias, alibi } = inputs.addends_at(problem, Site { batch, head, query, key });
        let sum = bias + alibi;
        bias.is_infinite() || (sum - bias == alibi && sum - alibi == bias)
    })
}

/// The tensor with another row at the end of an axis.
fn with_another(tensor: &Tensor, axis: usize, entry: f64) -> Tensor {
    let mut shape = tensor.values().shape().to_vec();
    shape[axis] = 1;
    let last = ArrayD::from_elem(shape, entry);
    let values = concatenate(Axis(axis), &[tensor.values().view(), last.view()])
        .expect("shapes that agree but along the axis");
    Tensor::exact(tensor.format(), values).expect("entries that the format has")
}

/// The case without masks and with another key in the place of the sink: its vector and value are zero,
/// its bias is the logit. What the mask hides the bias does.
fn with_key_for_sink(case: &GradientCase) -> GradientCase {
    let GradientCase { problem, inputs, .. } = case;
    let full = with_full_bias(case, |site| {
        let Addends { bias, alibi } = inputs.addends_at(problem, site);
        if problem.sees(site) { bias + alibi } else { f64::NEG_INFINITY }
    });
    let longer = Problem {
        key_len: problem.key_len + 1,
        mask: Mask::full(),
        alibi: None,
        sink: None,
        dropout: problem.dropout.as_ref().map(|dropout| with_another_key(dropout, problem)),
        ..problem.clone()
    };
    let mut bias = with_another(full.inputs.bias.as_ref().expect("a bias"), 3, 0.0);
    let mut values = bias.values().clone();
    for head in 0..problem.query_heads {
        let logit = inputs.sink_at(problem, head).expect("a sink");
        values.index_axis_mut(Axis(1), head).index_axis_mut(Axis(2), problem.key_len).fill(logit);
    }
    bias = Tensor::exact(Format::F64, values).expect("f64 numbers");
    let shape = longer.score_shape();
    GradientCase {
        problem: Problem { bias: Some(Bias { shape, format: Format::F64 }), ..longer },
        inputs: Inputs {
            query: inputs.query.clone(),
            key: with_another(&inputs.key, 2, 0.0),
            value: with_another(&inputs.value, 2, 0.0),
            bias: Some(bias),
            sink: None,
            descale: None,
        },
        ..case.clone()
    }
}

/// A keep mask with another key, which is dropped.
fn with_another_key(dropout: &Dropout, problem: &Problem) -> Dropout {
    let [batch, heads, queries, keys] = problem.score_shape();
    let keep = Pattern::from_fn([batch, heads, queries, keys + 1], |place| {
        place[3] < keys && dropout.keep.at(place)
    });
    Dropout { keep, ..dropout.clone() }
}

proptest! {
    #![proptest_config(
        settings("gradient_modifications", "tests/proptest-regressions/gradient_modifications.txt")
    )]

    #[test]
    fn a_broadcast_bias_collects_what_a_full_one_gets(case in modified_case()) {
        let Some(Bias { shape, .. }) = case.problem.bias else { return Ok(()) };
        let full = expanded(&case);
        assert_same(&case, &full)?;
        let entries = bias_gradient(&full.backward(), &full.problem);
        let sites = places(full.problem.score_shape());
        let reduced = bias_gradient(&case.backward(), &case.problem);
        for (place, entry) in places(shape).into_iter().zip(&reduced) {
            let shares = |site: &[usize; 4]| broadcast_place(shape, *site) == place;
            let total = sum(sites.iter().zip(&entries).filter(|(site, _)| shares(site)).map(|(_, x)| x));
            prop_assert!(entry.intersects(&total), "{place:?}: {entry:?} misses {total:?}");
        }
    }

    /// `sum dS = g` over keys and sink of each row, so `sum dBias + dSink = sum g` over those of a head
    /// that have either.
    #[test]
    fn scores_and_sinks_share_the_gradient_of_the_lse(case in modified_case()) {
        let case = additive(expanded(&case));
        let problem = &case.problem;
        let backward = case.backward();
        let entries = bias_gradient(&backward, problem);
        for head in 0..problem.query_heads {
            let of_head = places(problem.score_shape()).into_iter().zip(&entries)
                .filter(|([_, h, ..], _)| *h == head)
                .map(|(_, entry)| entry);
            let mut total = sum(of_head);
            if matches!(problem.sink, Some(Sink::Zero)) {
                continue;
            }
            if problem.sink.is_some() {
                total = total.add(&sink_gradient(&backward, head), PRECISION);
            }
            let has_terms = |index: &&RowIndex| {
                let RowIndex { batch, head, query } = **index;
                let visible = case.inputs.visible_keys(problem, batch, head, query);
                problem.sink.is_some() || !visible.is_empty()
            };
            let rows: Vec<RowIndex> =
                all_rows(problem).into_iter().filter(|index| index.head == head).collect();
            let expected = rows.iter().filter(has_terms)
                .filter(|row| problem.sink.is_none() || is_in_use(problem, row))
                .map(|&index| lse_gradient(&case, index))
                .fold(number(0.0), |sum, g| sum + g);
            prop_assert!(total.intersects(&certain(&expected)), "{total:?} misses {expected}");
        }
    }

    #[test]
    fn a_sink_is_a_key_without_a_value(case in modified_case(), logits in prop::collection::vec(-3_i8..4, 2)) {
        let mut case = without_padding_queries(additive(case));
        prop_assume!(adds_exactly(&case));
        if case.problem.sink.is_none() {
            let heads = case.problem.query_heads;
            let logits = logits.into_iter().take(heads).map(f64::from).collect();
            case.inputs.sink = Some(tensor(Format::F32, &[heads], logits));
            case.problem.sink = Some(Sink::Logits(Format::F32));
        }
        let other = with_key_for_sink(&case);
        let (a, b) = (case.backward(), other.backward());
        for index in all_rows(&case.problem) {
            let row = a.query_gradient_row(index).unwrap();
            let other = b.query_gradient_row(index).unwrap();
            prop_assert!(agree(&row.query, &other.query), "{row:?} and {other:?}");
        }
        for index in all_keys(&case.problem) {
            let row = a.key_gradient_row(index).unwrap();
            let other = b.key_gradient_row(index).unwrap();
            prop_assert!(agree(&row.key, &other.key) && agree(&row.value, &other.value));
        }
        let columns = bias_gradient(&b, &other.problem);
        for head in all_sinks(&case.problem) {
            let of_key = places(other.problem.score_shape()).into_iter().zip(&columns)
                .filter(|([_, h, _, key], _)| *h == head && *key == case.problem.key_len)
                .map(|(_, entry)| entry);
            let (sink, of_key) = (sink_gradient(&a, head), sum(of_key));
            prop_assert!(sink.intersects(&of_key), "{sink:?} misses {of_key:?}");
        }
    }

    #[test]
    fn alibi_and_masks_are_biases(case in modified_case()) {
        let case = without_padding_queries(case);
        let GradientCase { problem, inputs, .. } = &case;
        let mut other = with_full_bias(&case, |site| {
            let Addends { bias, alibi } = inputs.addends_at(problem, site);
            if problem.sees(site) { bias + alibi } else { f64::NEG_INFINITY }
        });
        prop_assume!(adds_exactly(&case));
        other.problem.mask = Mask::full();
        other.problem.alibi = None;
        assert_same(&case, &other)?;
    }

    #[test]
    fn dropout_that_treats_all_alike_scales_values(case in modified_case()) {
        let keep = |kept| Pattern::new([1, 1, 1, 1], vec![kept]).expect("one truth value");
        let with = |dropout, factor: f64| {
            let mut case = case.clone();
            case.problem.dropout = dropout;
            let values = case.inputs.value.values().mapv(|x| x * factor);
            case.inputs.value = Tensor::exact(Format::F64, values).expect("f64 numbers");
            case
        };
        // Room for the doubled values: every tensor in f64.
        let wide = |mut case: GradientCase| {
            let to_f64 = |tensor: &Tensor| {
                Tensor::exact(Format::F64, tensor.values().clone()).expect("f64 numbers")
            };
            case.problem.format = Format::F64;
            case.inputs.query = to_f64(&case.inputs.query);
            case.inputs.key = to_f64(&case.inputs.key);
            case.cotangents.output = to_f64(&case.cotangents.output);
            case
        };
        prop_assume!(case.inputs.value.values().iter().all(|x| x.abs() <= f64::MAX / 2.0));
        for (kept, scale) in [(true, 2.0), (false, 2.0), (true, 1.0)] {
            let factor = if kept { scale } else { 0.0 };
            let dropped = wide(with(Some(Dropout { scale, keep: keep(kept) }), 1.0));
            let scaled = wide(with(None, factor));
            let (a, b) = (dropped.backward(), scaled.backward());
            for index in all_rows(&case.problem) {
                let row = a.query_gradient_row(index).unwrap();
                prop_assert!(agree(&row.query, &b.query_gradient_row(index).unwrap().query));
            }
            for index in all_keys(&case.problem) {
                let row = a.key_gradient_row(index).unwrap();
                prop_assert!(agree(&row.key, &b.key_gradient_row(index).unwrap().key));
                let Some(enclosed) = a.enclose_key_gradient(index, PRECISION).unwrap() else { continue };
                let other = b.enclose_key_gradient(index, PRECISION).unwrap().expect("the same rows");
                for (x, y) in enclosed.value.iter().zip(&other.value) {
                    prop_assert!(x.intersects(&y.mul(&Enclosure::point(number(factor)), PRECISION)));
                }
            }
            for head in all_sinks(&case.problem) {
                prop_assert!(sink_gradient(&a, head).intersects(&sink_gradient(&b, head)));
            }
        }
    }

    #[test]
    fn the_order_of_a_softcap_does_not_matter_without_addends(case in modified_case(), cap in 0.5..4.0_f64) {
        let mut case = case;
        (case.problem.bias, case.problem.alibi, case.inputs.bias) = (None, None, None);
        let with = |order| GradientCase {
            problem: Problem { softcap: Some(Softcap { cap, order }), ..case.problem.clone() },
            ..case.clone()
        };
        assert_same(&with(SoftcapOrder::BeforeBias), &with(SoftcapOrder::AfterBias))?;
    }

    #[test]
    fn the_rows_behind_a_gradient_are_named(case in modified_case()) {
        let GradientCase { problem, inputs, .. } = &case;
        let sees = |index: RowIndex, key: usize| {
            inputs.visible_keys(problem, index.batch, index.head, index.query).contains(&key)
        };
        let sees_any = |index: RowIndex| (0..problem.key_len).any(|key| sees(index, key));
        let rows = all_rows(problem);
        let backward = case.backward();
        for index @ KeyIndex { batch, key_head, key } in all_keys(problem) {
            let expected: Vec<RowIndex> = rows.iter().copied()
                .filter(|row| (row.batch, problem.key_head_of(row.head)) == (batch, key_head))
                .filter(|&row| sees(row, key))
                .collect();
            prop_assert_eq!(backward.key_gradient_row(index).unwrap().contributors, expected);
        }
        for index in all_bias_rows(problem) {
            let BiasRowIndex { batch, head, query } = index;
            let shape = problem.bias.expect("a bias").shape;
            let is_added = |row: &RowIndex| {
                let place = broadcast_place(shape, [row.batch, row.head, row.query, 0]);
                place[..3] == [batch, head, query]
            };
            let expected: Vec<RowIndex> =
                rows.iter().copied().filter(is_added).filter(|&row| sees_any(row)).collect();
            prop_assert_eq!(backward.bias_gradient_row(index).unwrap().contributors, expected);
        }
        for head in all_sinks(problem) {
            let (with, without): (Vec<RowIndex>, Vec<RowIndex>) =
                rows.iter().filter(|row| row.head == head && is_in_use(problem, row))
                .partition(|row| sees_any(**row));
            let sink = backward.sink_gradient(head).unwrap();
            prop_assert_eq!((sink.contributors, sink.without_keys), (with, without));
        }
    }
}

/// A mask of its own for each head: each key has other contributors in every head.
#[test]
fn heads_can_have_masks_of_their_own() {
    let rows = ["110", "011", "101", "000"];
    let bits = rows.iter().flat_map(|row| row.chars().map(|digit| digit == '1')).collect();
    let pattern = Pattern::new([1, 4, 1, 3], bits).expect("twelve truth values");
    let problem = Problem {
        key_heads: 2,
        query_len: 2,
        mask: Mask::only(Rule::Boolean(pattern)),
        ..Problem::new(Format::F32, 4, 3, 2)
    };
    let case = GradientCase {
        inputs: support::inputs::normal_inputs(&problem, 26),
        cotangents: gradient::normal_cotangents(&problem, Format::F32, 26),
        lse_format: Format::F32,
        problem,
    };
    let backward = case.backward();
    let heads = |key_head, key| {
        let index = KeyIndex { batch: 0, key_head, key };
        let rows = backward.key_gradient_row(index).unwrap().contributors;
        rows.iter().map(|row| (row.head, row.query)).collect::<Vec<_>>()
    };
    assert_eq!(heads(0, 0), [(0, 0), (0, 1)]);
    assert_eq!(heads(0, 1), [(0, 0), (0, 1), (1, 0), (1, 1)]);
    assert_eq!(heads(0, 2), [(1, 0), (1, 1)]);
    assert_eq!(heads(1, 0), [(2, 0), (2, 1)]);
    assert_eq!(heads(1, 1), []);
    assert_eq!(heads(1, 2), [(2, 0), (2, 1)]);
}
