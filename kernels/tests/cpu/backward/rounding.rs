//! Where the backward passes round, one number at a time. Each test takes values at which another
//! rounding would show, and says so.

use flashproof_kernels::{Kernel, builtin};
use flashproof_spec::format::Format;
use flashproof_spec::problem::{Problem, Scale};
use flashproof_spec::score::{Softcap, SoftcapOrder};
use flashproof_spec::tensor::Gradients;

use crate::support::{
    FORMATS, arithmetic, cotangents, differentiate, exp, inputs, kernels, outputs, products, tanh,
    values,
};

const NARROW: [Format; 2] = [Format::F16, Format::Bf16];

fn kernel(name: &str) -> Box<dyn Kernel> {
    builtin(name).expect("a kernel of this crate")
}

/// Queries -1 and 0 see one key of score -1 and 0, with an LSE of zero; the output's gradient is 1
/// and -3/8. So `dV` is `p - 3/8`, near -0.007.
fn value_gradient(name: &str, format: Format) -> f64 {
    let problem = products(format, 2, 1, 1);
    let gradients = differentiate(
        kernel(name).as_ref(),
        &problem,
        &inputs(&problem, &[-1.0, 0.0], &[1.0], &[0.0]),
        &outputs(&problem, &[0.0; 2], &[0.0; 2]),
        &cotangents(&problem, &[1.0, -0.375], None),
    );
    values(&gradients.value)[0]
}

#[test]
fn only_the_tiled_kernel_rounds_weights_before_they_meet_the_output_gradient() {
    for format in FORMATS {
        let p = exp(format, -1.0);
        let naive = format.round(p - 0.375);
        let tiled = format.round(format.round(p) - 0.375);
        assert_eq!(naive != tiled, NARROW.contains(&format), "{format} tells them apart");
        assert_eq!(value_gradient("naive", format), naive, "{format}");
        assert_eq!(value_gradient("tiled", format), tiled, "{format}");
    }
}

/// `dS` of 7p and -3: of two keys for one query, and of two queries for one key. The second entry
/// of queries and keys makes no score and collects the sum.
fn sum_of_score_gradients(name: &str, format: Format) -> [f64; 2] {
    let scale = Scale::Value(1.0);
    let one_query = Problem { query_len: 1, value_dim: 1, scale, ..Problem::new(format, 1, 2, 2) };
    let over_keys = differentiate(
        kernel(name).as_ref(),
        &one_query,
        &inputs(&one_query, &[1.0, 0.0], &[-1.0, 1.0, 0.0, 1.0], &[7.0, -3.0]),
        &outputs(&one_query, &[0.0], &[0.0]),
        &cotangents(&one_query, &[1.0], None),
    );
    let one_key = Problem { key_len: 1, value_dim: 1, scale, ..Problem::new(format, 1, 2, 2) };
    let over_queries = differentiate(
        kernel(name).as_ref(),
        &one_key,
        &inputs(&one_key, &[-1.0, 1.0, 0.0, 1.0], &[1.0, 0.0], &[1.0]),
        &outputs(&one_key, &[0.0; 2], &[0.0; 2]),
        &cotangents(&one_key, &[7.0, -3.0], None),
    );
    [values(&over_keys.query)[1], values(&over_queries.key)[1]]
}

#[test]
fn only_the_tiled_kernel_rounds_score_gradients_and_never_the_weights_in_them() {
    for format in FORMATS {
        let arithmetic = arithmetic(format);
        let p = exp(format, -1.0);
        let ds = arithmetic.round(7.0 * p);
        let naive = format.round(arithmetic.round(ds - 3.0));
        let tiled = format.round(format.round(ds) - 3.0);
        let of_a_rounded_weight = format.round(format.round(7.0 * format.round(p)) - 3.0);
        if NARROW.contains(&format) {
            assert_ne!(naive, tiled, "{format} tells them apart");
            assert_ne!(of_a_rounded_weight, tiled, "{format} tells them apart");
        }
        assert_eq!(sum_of_score_gradients("naive", format), [naive; 2], "{format}");
        assert_eq!(sum_of_score_gradients("tiled", format), [tiled; 2], "{format}");
    }
}

/// Three terms `dS` or `p dO`, and their sums: over keys for `dQ`, over queries and over query heads
/// for `dK` and `dV`.
struct Sums {
    /// `dQ` over keys, `dK` over queries and over heads.
    scaled: [f64; 3],
    /// `dV` over queries and over heads.
    unscaled: [f64; 2],
}

/// Queries of (1, 0) and keys of (0, 1), so that scores are zero as the LSE is, weights are 1, and
/// the entry that makes no score collects the sum. Outputs are zero, so that `dS` is `dO v`.
fn sums(kernel: &dyn Kernel, format: Format, scale: f64, terms: [f64; 3]) -> Sums {
    let run = |[query_heads, query_len, key_len]: [usize; 3], value: &[f64], d_o: &[f64]| {
        let problem = Problem {
            query_heads,
            query_len,
            key_len,
            value_dim: 1,
            scale: Scale::Value(scale),
            ..Problem::new(format, 1, 1, 2)
        };
        let query = [1.0, 0.0].repeat(d_o.len());
        let key = [0.0, 1.0].repeat(value.len());
        let zero = vec![0.0; d_o.len()];
        let Gradients { query, key, value, .. } = differentiate(
            kernel,
            &problem,
            &inputs(&problem, &query, &key, value),
            &outputs(&problem, &zero, &zero),
            &cotangents(&problem, d_o, None),
        );
        [values(&query)[1], values(&key)[0], values(&value)[0]]
    };
    let over_keys = run([1, 1, 3], &terms, &[1.0]);
    let over_queries = run([1, 3, 1], &[1.0], &terms);
    let over_heads = run([3, 1, 1], &[1.0], &terms);
    Sums {
        scaled: [over_keys[0], over_queries[1], over_heads[1]],
        unscaled: [over_queries[2], over_heads[2]],
    }
}

/// A first term so large that the format could add the others to it only together.
#[test]
fn sums_over_keys_queries_and_heads_are_kept_in_the_accumulator() {
    for format in NARROW {
        let large = f64::from(1 << format.precision());
        assert_eq!(format.round(large + 1.0), large, "{format} loses the small terms");
        for kernel in kernels() {
            let Sums { scaled, unscaled } = sums(kernel.as_ref(), format, 1.0, [large, 1.0, 1.0]);
            assert_eq!(scaled, [large + 2.0; 3], "{} {format}", kernel.name());
            assert_eq!(unscaled, [large + 2.0; 2], "{} {format}", kernel.name());
        }
    }
}

/// Under a scale of 1/10 the scaled sum differs from the sum of scaled terms.
#[test]
fn the_scale_is_applied_once_to_the_finished_sum() {
    const TERMS: [f64; 3] = [5.0, 1.0, 1.0];
    for (format, scale) in [(Format::F64, 0.1), (Format::F32, f64::from(0.1_f32))] {
        let total: f64 = TERMS.iter().sum();
        let scaled = format.round(scale * total);
        let of_scaled_terms =
            TERMS.iter().fold(0.0, |sum, term| format.round(sum + format.round(scale * term)));
        assert_ne!(scaled, of_scaled_terms, "{format} tells them apart");
        for kernel in kernels() {
            let sums = sums(kernel.as_ref(), format, scale, TERMS);
            assert_eq!(sums.scaled, [scaled; 3], "{} {format}", kernel.name());
            assert_eq!(sums.unscaled, [total; 2], "{} {format}", kernel.name());
        }
    }
}

/// One key of score `cap tanh(x / cap)`, with an LSE equal to it and `g = 1`, so that `dS` is 1 and
/// `dQ` the slope.
#[test]
fn the_slope_of_a_softcap_is_one_less_the_square_of_its_tanh() {
    const CAP: f64 = 2.0;
    for format in FORMATS {
        for kernel in kernels() {
            for order in [SoftcapOrder::BeforeBias, SoftcapOrder::AfterBias] {
                let softcap = Some(Softcap { cap: CAP, order });
                let problem = Problem { softcap, ..products(format, 1, 1, 1) };
                for x in [0.0, 1.5, -3.0, 64.0] {
                    let tanh = tanh(format, x / CAP);
                    let found = differentiate(
                        kernel.as_ref(),
                        &problem,
                        &inputs(&problem, &[x], &[1.0], &[1.0]),
                        &outputs(&problem, &[1.0], &[CAP * tanh]),
                        &cotangents(&problem, &[0.0], Some(&[1.0])),
                    );
                    let arithmetic = arithmetic(format);
                    let slope = arithmetic.round(1.0 - arithmetic.round(tanh * tanh));
                    let case = format!("{} {format} {x}", kernel.name());
                    assert_eq!(values(&found.query), [format.round(slope)], "{case}");
                }
            }
        }
    }
}
