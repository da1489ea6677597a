//! A logit in the normalizer that has no key and no value.

use flashproof_kernels::{Kernel, builtin};
use flashproof_spec::format::Format;
use flashproof_spec::mask::{Mask, Rule};
use flashproof_spec::problem::Problem;
use flashproof_spec::score::{Bias, Sink};
use proptest::prelude::*;

use crate::support::problems::modified_problems;
use crate::support::{
    FORMATS, bits, inputs, kernels, kernels_and_splits, ln, lse, output, products, run, uniform,
    with_bias, with_sink,
};

const INF: f64 = f64::INFINITY;

/// A difference of scores at which the lower one weighs nothing.
const APART: f64 = 1024.0;

fn in_every_format(test: impl Fn(&dyn Kernel, Format)) {
    for format in FORMATS {
        for kernel in kernels_and_splits() {
            test(kernel.as_ref(), format);
        }
    }
}

/// The off-by-one softmax of three scores of 0: each weighs a quarter. One term for the sink,
/// however many parts the keys are in; the splits here are those that finish each key by itself.
#[test]
fn a_sink_of_zero_is_one_more_score_of_zero() {
    let splits = ["split:3", "split:5"].map(|name| builtin(name).expect("a kernel"));
    let exact = kernels().into_iter().filter(|kernel| kernel.name() != "split:1").chain(splits);
    for kernel in exact {
        for format in FORMATS {
            let problem = Problem { sink: Some(Sink::Zero), ..products(format, 1, 3, 1) };
            let inputs = inputs(&problem, &[0.0], &[1.0, 2.0, 3.0], &[4.0, 8.0, 16.0]);
            let outputs = run(kernel.as_ref(), &problem, &inputs);
            let case = format!("{} {format}", kernel.name());
            assert_eq!(output(&outputs), [7.0], "{case}");
            assert_eq!(lse(&outputs), [ln(kernel.as_ref(), format, 4.0)], "{case}");
        }
    }
}

#[test]
fn each_query_head_has_its_own_sink() {
    in_every_format(|kernel, format| {
        let problem = Problem {
            batch: 2,
            query_heads: 4,
            key_heads: 2,
            sink: Some(Sink::Logits(Format::F32)),
            ..products(format, 1, 2, 1)
        };
        let inputs = inputs(&problem, &[0.0; 8], &[0.0; 8], &[1.0, 3.0, 5.0, 7.0].repeat(2));
        let inputs = with_sink(&problem, inputs, &[-APART, APART, -INF, 2.0 * APART]);
        let outputs = run(kernel, &problem, &inputs);
        let case = format!("{} {format}", kernel.name());
        assert_eq!(output(&outputs), [2.0, 0.0, 6.0, 0.0].repeat(2), "{case}");
        let two = ln(kernel, format, 2.0);
        assert_eq!(lse(&outputs), [two, APART, two, 2.0 * APART].repeat(2), "{case}");
    });
}

/// The sink is all there is: no output, and its own logit.
#[test]
fn a_row_without_keys_has_the_sink_as_lse() {
    in_every_format(|kernel, format| {
        let case = format!("{} {format}", kernel.name());
        let sink = Some(Sink::Logits(Format::Bf16));
        let hidden = Bias { shape: [1; 4], format: Format::F32 };
        let plain = Problem { sink, ..products(format, 1, 3, 2) };
        let problems = [
            Problem { key_len: 0, ..plain.clone() },
            Problem { mask: Mask::only(Rule::KeyLengths(vec![0])), ..plain.clone() },
            Problem { mask: Mask::only(Rule::QueryLengths(vec![0])), ..plain.clone() },
            Problem { bias: Some(hidden), ..plain },
        ];
        for problem in problems {
            let nan = vec![f64::NAN; problem.key_len];
            let inputs = inputs(&problem, &[f64::NAN], &nan, &nan.repeat(2));
            let inputs = match problem.bias {
                None => inputs,
                Some(_) => with_bias(&problem, inputs, &[-INF]),
            };
            for logit in [-3.5, 0.0, 20.0, -INF] {
                let outputs = run(kernel, &problem, &with_sink(&problem, inputs.clone(), &[logit]));
                assert_eq!(output(&outputs), [0.0; 2], "{case} {logit}");
                assert_eq!(lse(&outputs), [logit], "{case} {logit}");
            }
        }
    });
}

#[test]
fn a_nan_sink_poisons_its_head() {
    in_every_format(|kernel, format| {
        let problem = Problem {
            query_heads: 2,
            sink: Some(Sink::Logits(Format::F16)),
            ..products(format, 1, 2, 1)
        };
        let inputs = inputs(&problem, &[0.0; 2], &[0.0; 2], &[1.0, 3.0]);
        let outputs = run(kernel, &problem, &with_sink(&problem, inputs, &[f64::NAN, -APART]));
        let case = format!("{} {format}", kernel.name());
        let [first, second] = [0, 1].map(|head| (output(&outputs)[head], lse(&outputs)[head]));
        assert!(first.0.is_nan() && first.1.is_nan(), "{case}: {first:?}");
        assert_eq!(second, (2.0, ln(kernel, format, 2.0)), "{case}");
    });
}

proptest! {
    /// A logit of minus infinity is no sink, to the last bit.
    #[test]
    fn a_sink_of_minus_infinity_is_none(problem in modified_problems(), seed: u64) {
        let without = Problem { sink: None, ..problem.clone() };
        let with = Problem { sink: Some(Sink::Logits(Format::F32)), ..problem };
        let inputs = uniform(&without, seed);
        let sunk = with_sink(&with, inputs.clone(), &vec![-INF; with.query_heads]);
        for kernel in kernels() {
            prop_assert_eq!(
                bits(&run(kernel.as_ref(), &without, &inputs)),
                bits(&run(kernel.as_ref(), &with, &sunk)),
                "{}", kernel.name()
            );
        }
    }
}
