//! What happens to a score between the product and the softmax.
//!
//! A score is the LSE of a key that is alone, or alone has weight.

use flashproof_kernels::Kernel;
use flashproof_spec::format::Format;
use flashproof_spec::mask::{Alignment, Mask, Rule, Site};
use flashproof_spec::pattern::Pattern;
use flashproof_spec::problem::{Problem, Scale};
use flashproof_spec::score::{Alibi, Bias, Slopes, Softcap, SoftcapOrder};
use proptest::prelude::*;

use crate::support::problems::broadcast;
use crate::support::sight::{ahead, shared};
use crate::support::{
    FORMATS, arithmetic, inputs, kernels, kernels_and_splits, ln, lse, output, products, run, tanh,
    with_bias,
};

const INF: f64 = f64::INFINITY;

/// A difference of scores at which the lower one weighs nothing.
const APART: f64 = 1024.0;

const ORDERS: [SoftcapOrder; 2] = [SoftcapOrder::BeforeBias, SoftcapOrder::AfterBias];

fn in_every_format(test: impl Fn(&dyn Kernel, Format)) {
    for format in FORMATS {
        for kernel in kernels() {
            test(kernel.as_ref(), format);
        }
    }
}

fn softcap(cap: f64, order: SoftcapOrder) -> Softcap {
    Softcap { cap, order }
}

/// A bias that is one number.
fn single(format: Format) -> Bias {
    Bias { shape: [1; 4], format }
}

/// Linear biases of these slopes.
fn alibi(slopes: &[f64], alignment: Alignment) -> Alibi {
    Alibi { slopes: Slopes::Given(slopes.to_vec()), alignment }
}

#[test]
fn a_negative_scale_turns_the_order_of_scores() {
    in_every_format(|kernel, format| {
        let problem = Problem { scale: Scale::Value(-2.0), ..products(format, 1, 3, 1) };
        let inputs = inputs(&problem, &[APART], &[1.0, -3.0, 2.0], &[1.0, 2.0, 4.0]);
        let outputs = run(kernel, &problem, &inputs);
        assert_eq!(output(&outputs), [2.0], "{} {format}", kernel.name());
        assert_eq!(lse(&outputs), [6.0 * APART], "{} {format}", kernel.name());
    });
}

/// One key, whose product with the query is `x`.
fn score_of(kernel: &dyn Kernel, problem: &Problem, x: f64, bias: Option<f64>) -> f64 {
    let inputs = inputs(problem, &[x], &[1.0], &[1.0]);
    let inputs = match bias {
        None => inputs,
        Some(bias) => with_bias(problem, inputs, &[bias]),
    };
    lse(&run(kernel, problem, &inputs))[0]
}

#[test]
fn a_softcap_bounds_scores() {
    in_every_format(|kernel, format| {
        for order in ORDERS {
            let problem =
                Problem { softcap: Some(softcap(32.0, order)), ..products(format, 1, 1, 1) };
            let case = format!("{} {format} {order:?}", kernel.name());
            for x in [0.0, 4.0, -24.0] {
                let expected = 32.0 * tanh(format, x / 32.0);
                assert_eq!(score_of(kernel, &problem, x, None), expected, "{case} {x}");
            }
            for x in [2048.0, INF] {
                assert_eq!(score_of(kernel, &problem, x, None), 32.0, "{case} {x}");
                assert_eq!(score_of(kernel, &problem, -x, None), -32.0, "{case} {x}");
            }
        }
    });
}

#[test]
fn bias_and_distance_are_added_after_a_softcap_or_bounded_by_it() {
    in_every_format(|kernel, format| {
        // The third query stands two positions past the only key.
        let problem = Problem {
            alibi: Some(alibi(&[2.0], Alignment::TopLeft)),
            bias: Some(single(format)),
            ..products(format, 3, 1, 1)
        };
        let inputs = inputs(&problem, &[0.0, 0.0, 64.0], &[1.0], &[1.0]);
        let score = |order, bias| {
            let problem = Problem { softcap: Some(softcap(1.0, order)), ..problem.clone() };
            lse(&run(kernel, &problem, &with_bias(&problem, inputs.clone(), &[bias])))[2]
        };
        let case = format!("{} {format}", kernel.name());
        assert_eq!(score(SoftcapOrder::BeforeBias, 7.0), 1.0 + 7.0 - 4.0, "{case}");
        assert_eq!(score(SoftcapOrder::AfterBias, 7.0), 1.0, "{case}");
        assert_eq!(score(SoftcapOrder::AfterBias, -100.0), -1.0, "{case}");
    });
}

/// llama.cpp PR#29034: a softcap of minus infinity is a finite number.
#[test]
fn a_softcap_shows_no_hidden_key() {
    for format in FORMATS {
        for kernel in kernels_and_splits() {
            for order in ORDERS {
                let case = format!("{} {format} {order:?}", kernel.name());
                let problem =
                    Problem { softcap: Some(softcap(1.0, order)), ..products(format, 1, 3, 1) };
                let inputs = inputs(&problem, &[0.0], &[2.0; 3], &[4.0, f64::NAN, f64::NAN]);
                let masked = Problem { mask: Mask::only(Rule::CausalTopLeft), ..problem.clone() };
                let outputs = run(kernel.as_ref(), &masked, &inputs);
                assert_eq!((output(&outputs), lse(&outputs)), (vec![4.0], vec![0.0]), "{case}");
                let bias = Some(Bias { shape: [1, 1, 1, 3], format: Format::F16 });
                let biased = Problem { bias, ..problem };
                let inputs = with_bias(&biased, inputs, &[0.0, -INF, -INF]);
                let outputs = run(kernel.as_ref(), &biased, &inputs);
                assert_eq!((output(&outputs), lse(&outputs)), (vec![4.0], vec![0.0]), "{case}");
            }
        }
    }
}

#[test]
fn a_softcap_out_of_the_accumulators_range_is_refused_by_name() {
    for cap in [1e-60, 1e-39, 1e39] {
        for kernel in kernels() {
            let problem = |format| Problem {
                softcap: Some(softcap(cap, SoftcapOrder::BeforeBias)),
                ..products(format, 1, 1, 1)
            };
            let narrow = problem(Format::F16);
            let refusal = kernel
                .forward(&narrow, &inputs(&narrow, &[1.0], &[1.0], &[1.0]))
                .expect_err("a refusal");
            assert_eq!(refusal.feature, format!("a softcap of {cap:e} in f32 arithmetic"));
            assert!(score_of(kernel.as_ref(), &problem(Format::F64), 1.0, None) > 0.0);
        }
    }
}

proptest! {
    /// Entries far apart, in any axes: the largest that a row sees takes all, and is its LSE.
    #[test]
    fn biases_are_shared_along_axes_of_extent_one(
        shape in broadcast([2, 4, 3, 5]),
        entries in Just((-60..60).map(f64::from).collect::<Vec<_>>()).prop_shuffle(),
        format in proptest::sample::select(&FORMATS[..]),
    ) {
        let problem = Problem {
            batch: 2,
            query_heads: 4,
            key_heads: 2,
            bias: Some(Bias { shape, format: Format::F32 }),
            ..products(format, 3, 5, 1)
        };
        let entries: Vec<f64> =
            entries[..shape.iter().product()].iter().map(|entry| APART * entry).collect();
        let value: Vec<f64> = (0..20).map(f64::from).collect();
        let inputs = inputs(&problem, &[0.0; 24], &[0.0; 20], &value);
        let inputs = with_bias(&problem, inputs, &entries);
        let mut expected = Vec::new();
        for row in 0..24 {
            let (batch, head, query) = (row / 12, row / 3 % 4, row % 3);
            let bias = |key: usize| entries[shared(shape, [batch, head, query, key])];
            let most = (0..5).map(bias).fold(-INF, f64::max);
            let winners: Vec<usize> = (0..5).filter(|&key| bias(key) == most).collect();
            let first = value[(batch * 2 + head / 2) * 5];
            let mean = winners.iter().sum::<usize>() as f64 / winners.len() as f64;
            expected.push((first + mean, most, winners.len()));
        }
        for kernel in kernels_and_splits() {
            let outputs = run(kernel.as_ref(), &problem, &inputs);
            for (row, &(value, most, winners)) in expected.iter().enumerate() {
                // Five shares are no dyadic fractions; their LSE says enough.
                if winners == 1 {
                    prop_assert_eq!(output(&outputs)[row], value, "{} {}", kernel.name(), row);
                }
                let sum = most + ln(kernel.as_ref(), format, winners as f32);
                let expected = arithmetic(format).round(sum);
                if winners == 1 || kernels().iter().any(|other| other.name() == kernel.name()) {
                    prop_assert_eq!(lse(&outputs)[row], expected, "{} {}", kernel.name(), row);
                }
            }
        }
    }
}

/// A bias is added in the accumulator, whatever its own format.
#[test]
fn a_bias_is_read_in_its_own_format() {
    in_every_format(|kernel, format| {
        let case = format!("{} {format}", kernel.name());
        for bias in Format::ALL {
            let problem = Problem { bias: Some(single(bias)), ..products(format, 1, 1, 1) };
            // The first number past 1.
            let entry = 1.0 + 2.0 * bias.unit_roundoff();
            let expected = arithmetic(format).round(arithmetic(format).round(entry) + 2.0);
            assert_eq!(score_of(kernel, &problem, 2.0, Some(entry)), expected, "{case} {bias}");
        }
    });
}

#[test]
fn a_bias_of_minus_infinity_hides_its_key() {
    for format in FORMATS {
        for kernel in kernels_and_splits() {
            let bias = Some(Bias { shape: [1, 1, 2, 4], format: Format::Bf16 });
            let problem = Problem { bias, ..products(format, 2, 4, 1) };
            let key = [f64::NAN, 3.0, INF, f64::NAN];
            let value = [f64::NAN, 5.0, f64::NAN, INF];
            let inputs = inputs(&problem, &[1.0, f64::NAN], &key, &value);
            let inputs =
                with_bias(&problem, inputs, &[-INF, 4.0, -INF, -INF, -INF, -INF, -INF, -INF]);
            let outputs = run(kernel.as_ref(), &problem, &inputs);
            let case = format!("{} {format}", kernel.name());
            assert_eq!(output(&outputs), [5.0, 0.0], "{case}");
            assert_eq!(lse(&outputs), [7.0, -INF], "{case}");
        }
    }
}

/// pytorch#110213: a row whose every bias is the lowest number has weights, and no NaN. The
/// products are lost beside it, so that the weights are equal.
#[test]
fn a_row_of_the_lowest_bias_has_equal_weights() {
    for format in FORMATS {
        for kernel in kernels_and_splits() {
            for bias in [Format::F64, Format::F32, Format::Bf16] {
                let lost = bias == Format::F64 || format != Format::F64;
                let problem = Problem { bias: Some(single(bias)), ..products(format, 1, 4, 1) };
                let inputs =
                    inputs(&problem, &[1.0], &[-8.0, 4.0, 0.0, 2.0], &[1.0, 2.0, 3.0, 6.0]);
                let inputs = with_bias(&problem, inputs, &[-bias.max_finite()]);
                let outputs = run(kernel.as_ref(), &problem, &inputs);
                let case = format!("{} {format} {bias}", kernel.name());
                if lost {
                    let lowest = -bias.max_finite().min(arithmetic(format).max_finite());
                    assert_eq!(output(&outputs), [3.0], "{case}");
                    assert_eq!(lse(&outputs), [lowest], "{case}");
                }
                assert!(output(&outputs)[0].is_finite(), "{case}");
            }
        }
    }
}

/// And beside another key it has none.
#[test]
fn the_lowest_bias_beside_another_has_no_weight() {
    for format in FORMATS {
        for kernel in kernels_and_splits() {
            for low in [Format::F64, Format::F32, Format::F16, Format::Bf16] {
                let bias = Some(Bias { shape: [1, 1, 1, 4], format: low });
                let problem = Problem { bias, ..products(format, 1, 4, 1) };
                let inputs =
                    inputs(&problem, &[1.0], &[1.0, 2.0, 3.0, 4.0], &[50.0, 50.0, 7.0, 50.0]);
                let lowest = -low.max_finite();
                let inputs = with_bias(&problem, inputs, &[lowest, lowest, 2.0, lowest]);
                let outputs = run(kernel.as_ref(), &problem, &inputs);
                let case = format!("{} {format} {low}", kernel.name());
                assert_eq!((output(&outputs), lse(&outputs)), (vec![7.0], vec![5.0]), "{case}");
            }
        }
    }
}

#[test]
fn a_bias_that_is_no_number_poisons_the_rows_that_see_it() {
    for format in FORMATS {
        for kernel in kernels_and_splits() {
            for poison in [f64::NAN, INF] {
                let bias = Some(Bias { shape: [1, 1, 2, 3], format: Format::F32 });
                let problem = Problem { bias, ..products(format, 2, 3, 1) };
                let inputs = inputs(&problem, &[0.0; 2], &[1.0; 3], &[4.0; 3]);
                let entries = [0.0, poison, 0.0, 0.0, 0.0, -INF];
                let outputs =
                    run(kernel.as_ref(), &problem, &with_bias(&problem, inputs, &entries));
                let case = format!("{} {format} {poison}", kernel.name());
                assert!(output(&outputs)[0].is_nan() && !lse(&outputs)[0].is_finite(), "{case}");
                assert_eq!(output(&outputs)[1], 4.0, "{case}");
            }
        }
    }
}

/// The linear bias of one site, by way of a mask that shows no other.
fn alibi_at(kernel: &dyn Kernel, problem: &Problem, site: Site) -> f64 {
    let shape = problem.score_shape();
    let shown = Pattern::from_fn(shape, |place| place == site.place());
    let mut mask = problem.mask.clone();
    mask.rules.push(Rule::Boolean(shown));
    let problem = Problem { mask, ..problem.clone() };
    let zeros = |shape: [usize; 4]| vec![0.0; shape.iter().product()];
    let [query, key, value] =
        [problem.query_shape(), problem.key_shape(), problem.value_shape()].map(zeros);
    let sums = lse(&run(kernel, &problem, &inputs(&problem, &query, &key, &value)));
    sums[(site.batch * problem.query_heads + site.head) * problem.query_len + site.query]
}

#[test]
fn linear_biases_fall_with_the_distance_from_the_own_position() {
    let lengths = || vec![Rule::KeyLengths(vec![4, 5]), Rule::QueryLengths(vec![2, 3])];
    for alignment in [Alignment::TopLeft, Alignment::BottomRight] {
        for format in FORMATS {
            let problem = Problem {
                batch: 2,
                query_heads: 2,
                mask: Mask { rules: lengths() },
                alibi: Some(alibi(&[0.75, -2.0], alignment)),
                ..products(format, 3, 5, 1)
            };
            for kernel in kernels() {
                for (batch, head, query, key) in
                    [(0, 0, 0, 3), (0, 1, 1, 0), (0, 0, 1, 3), (1, 0, 2, 4), (1, 1, 0, 4)]
                {
                    let site = Site { batch, head, query, key };
                    let distance = ahead(&problem, alignment, site).abs() as f64;
                    let expected = [-0.75, 2.0][head] * distance;
                    let case = format!("{} {format} {site:?}", kernel.name());
                    assert_eq!(alibi_at(kernel.as_ref(), &problem, site), expected, "{case}");
                }
            }
        }
    }
}

/// llama.cpp PR#20031 and others: any number of heads. The paper's slopes for a power of two `n`
/// are `2^(-8 i / n)`; others take every other one of those for the next power of two.
fn papers_slopes(heads: usize) -> Vec<f64> {
    let of_power = |n: usize| (1..=n).map(move |i| (-8.0 * i as f64 / n as f64).exp2());
    if heads.is_power_of_two() {
        return of_power(heads).collect();
    }
    let below = heads.next_power_of_two() / 2;
    of_power(below).chain(of_power(2 * below).step_by(2)).take(heads).collect()
}

#[test]
fn standard_slopes_are_the_papers_to_an_ulp_of_f32() {
    for heads in (1..=70).chain([96, 112, 127, 128, 129, 255]) {
        let problem = Problem {
            query_heads: heads,
            alibi: Some(Alibi { slopes: Slopes::Standard, alignment: Alignment::TopLeft }),
            mask: Mask::only(Rule::KeyStarts(vec![1])),
            ..products(Format::F64, 1, 2, 1)
        };
        let inputs = inputs(&problem, &vec![0.0; heads], &[0.0; 2], &[0.0; 2]);
        for kernel in [&kernels()[0], &kernels_and_splits()[7]] {
            let found = lse(&run(kernel.as_ref(), &problem, &inputs));
            for (head, (found, exact)) in found.iter().zip(papers_slopes(heads)).enumerate() {
                let nearest = exact as f32;
                let slope = -found as f32;
                assert_eq!(f64::from(slope), -found, "an f32 number");
                assert!(
                    [nearest.next_down(), nearest, nearest.next_up()].contains(&slope),
                    "{}: head {head} of {heads}: {slope:e}, not {nearest:e}",
                    kernel.name()
                );
            }
        }
    }
}
