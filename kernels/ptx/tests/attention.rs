//! Compiled attention kernels give attention, within bounds that follow from their roundings, whatever
//! the policy.

mod support;

use flashproof_ptx::{Approximation, Module, Options, Policy, TensorCore};
use support::reference::{self, assert_within};
use support::{BACKWARD, FORWARD, Format, Inputs, backward, forward, module, text};

const SEED: u64 = 0x5eed_0006;

/// A length that fills tiles, one that leaves a rest, and less than a tile.
const ROWS: [usize; 3] = [128, 100, 17];

fn policies() -> Vec<Policy> {
    let policy = |approximation, tensor_core| Policy { approximation, tensor_core };
    vec![
        policy(Approximation::Accurate, TensorCore::Rounded),
        policy(Approximation::Highest, TensorCore::HOPPER),
        policy(Approximation::Lowest, TensorCore::AMPERE),
    ]
}

#[test]
fn forward_kernels_give_attention() {
    for kernel in FORWARD {
        let module = module(kernel.file);
        for rows in ROWS {
            let inputs = Inputs::new(rows, kernel.format, SEED);
            for policy in policies() {
                let expected = reference::forward(&inputs, policy.tensor_core);
                let options = Options { policy, ..Options::default() };
                let outputs = forward(&module, kernel, &inputs, &options)
                    .unwrap_or_else(|error| panic!("{kernel:?}, {rows} rows: {error}"));
                let what = format!("{}, {rows} rows, {policy:?}", kernel.file);
                assert_within(&what, &outputs.output, &expected.output);
                assert_within(&what, &outputs.lse, &expected.lse);
            }
        }
    }
}

#[test]
fn backward_kernels_give_gradients() {
    for file in BACKWARD {
        let module = module(file);
        for rows in ROWS {
            let inputs = Inputs::new(rows, Format::Bf16, SEED);
            let (lse, delta) = reference::saved(&inputs);
            for policy in policies() {
                let expected = reference::backward(&inputs, policy.tensor_core);
                let options = Options { policy, ..Options::default() };
                let gradients = backward(&module, &inputs, (&lse, &delta), &options)
                    .unwrap_or_else(|error| panic!("{file}, {rows} rows: {error}"));
                let what = format!("{file}, {rows} rows, {policy:?}");
                assert_within(&format!("{what}, dQ"), &gradients.query, &expected.query);
                assert_within(&format!("{what}, dK"), &gradients.key, &expected.key);
                assert_within(&format!("{what}, dV"), &gradients.value, &expected.value);
            }
        }
    }
}

#[test]
fn kernels_that_compute_something_else_lie_outside() {
    let kernel = FORWARD[0];
    let inputs = Inputs::new(128, kernel.format, SEED);
    let expected = reference::forward(&inputs, TensorCore::Rounded);
    for (what, from, to) in [
        ("log2 e off by 2^-12", "0f3FB8AA3B", "0f3FB8B5C6"),
        ("ln 2 off by 2^-12", "0f3F317218", "0f3F317D2F"),
        ("a mask without its diagonal", "setp.le.s32", "setp.lt.s32"),
    ] {
        let changed = text(kernel.file).replace(from, to);
        assert_ne!(changed, text(kernel.file), "{what}: not in the text");
        let module = Module::parse(&changed).unwrap_or_else(|error| panic!("{what}: {error}"));
        let outputs = forward(&module, kernel, &inputs, &Options::default())
            .unwrap_or_else(|error| panic!("{what}: {error}"));
        let outside = reference::outside(&outputs.output, &expected.output)
            + reference::outside(&outputs.lse, &expected.lse);
        assert!(outside > 0, "{what}");
    }
}
