//! Every change can be seen: on at least one small problem the mutant's answer is not the correct
//! kernel's.

use std::collections::BTreeSet;

use flashproof_kernels::mutant::{Kind, Mutant, Pass, mutants};
use flashproof_kernels::{Kernel, builtin};
use flashproof_spec::format::Format;
use flashproof_spec::layout::{StoredCotangents, StoredInputs};
use flashproof_spec::mask::{Mask, Rule};
use flashproof_spec::problem::Problem;
use flashproof_spec::quantization::{Descale, Descales, Quantization};
use flashproof_spec::tensor::{Outputs, Tensor};
use ndarray::{ArrayD, IxDyn};

use super::is_split;
use super::shown::{Shown, shown};
use crate::support::{bits, gradient_bits, uniform, uniform_cotangents};

/// Controls that must be the correct kernel in every bit.
const SAME: [&str; 1] = ["unchanged"];

#[test]
fn every_mutant_differs_from_the_correct_kernel_somewhere() {
    let problems = shown();
    for problem in &problems {
        assert_eq!(problem.problem.validate(), Ok(()), "{}", problem.name);
    }
    let mut unseen = BTreeSet::new();
    for mutant in wide() {
        let seen: Vec<_> = problems
            .iter()
            .filter(|shown| differs(mutant, shown))
            .map(|shown| shown.name.as_str())
            .collect();
        println!("{}: {}", mutant.name, seen.join("; "));
        if seen.is_empty() {
            unseen.insert(mutant.name);
        }
    }
    assert_eq!(unseen, BTreeSet::from(SAME));
}

/// Mutants of the kernel for inputs of 8 bits take nothing else.
#[test]
fn every_mutant_on_8_bits_differs_from_the_correct_kernel() {
    let by_block = Descale::Block(2);
    let quantization =
        Quantization { query: by_block, key: by_block, value: by_block, output: Format::F32 };
    let problem =
        Problem { quantization: Some(quantization), ..Problem::new(Format::E4m3, 2, 5, 8) };
    let mut inputs = uniform(&problem, 1);
    let [query, key, value] = problem.descale_shapes().expect("descales").map(|shape| {
        let half = ArrayD::from_elem(IxDyn(&shape), 0.5);
        Tensor::rounded(Format::F32, &half)
    });
    inputs.descale = Some(Descales { query, key, value });
    let correct = builtin("quantized").expect("a kernel").forward(&problem, &inputs);
    let of_8_bits = mutants().iter().filter(|mutant| !mutant.kernel().takes(Format::F32));
    let mut tried = 0;
    for mutant in of_8_bits {
        assert_ne!(mutant.kernel().forward(&problem, &inputs), correct, "{}", mutant.name);
        tried += 1;
    }
    assert!(tried > 0);
}

/// Those that take the formats of the tiled kernel.
fn wide() -> impl Iterator<Item = &'static Mutant> {
    mutants().iter().filter(|mutant| mutant.kernel().takes(Format::F32))
}

/// A fault of one pass leaves the other as it is.
#[test]
fn the_other_pass_is_the_correct_kernels() {
    for mutant in wide().filter(|mutant| mutant.kind == Kind::Fault) {
        let other = match mutant.pass {
            Pass::Forward => Pass::Backward,
            Pass::Backward => Pass::Forward,
        };
        let changed = mutant.kernel();
        let correct = correct(mutant);
        for shown in shown().iter().take(6) {
            let kernels = [changed.as_ref(), correct.as_ref()];
            assert!(!answers_differ(kernels, other, shown), "{} in {other:?}", mutant.name);
        }
    }
}

/// The kernel that was changed, in the tiles of a fault.
fn correct(mutant: &Mutant) -> Box<dyn Kernel> {
    let [queries, keys] = mutant.tiles();
    match mutant.kind {
        Kind::Fault if is_split(mutant) => builtin("split"),
        Kind::Fault => builtin(&format!("tiled:{queries}x{keys}")),
        Kind::Control => builtin("tiled"),
    }
    .expect("a kernel")
}

fn differs(mutant: &'static Mutant, shown: &Shown) -> bool {
    let (changed, correct) = (mutant.kernel(), correct(mutant));
    let kernels = [changed.as_ref(), correct.as_ref()];
    if !shown.problem.layout.is_contiguous() {
        return stored_differ(kernels, mutant.pass, shown);
    }
    answers_differ(kernels, mutant.pass, shown)
        || mutant.pass == Pass::Backward && varies(changed.as_ref(), shown)
        || merges_differ(kernels, shown)
}

/// Whether two calls give the same gradients.
fn varies(kernel: &dyn Kernel, shown: &Shown) -> bool {
    let [first, second] = [(); 2].map(|()| gradients_of(kernel, shown));
    first != second
}

fn answers_differ([changed, correct]: [&dyn Kernel; 2], pass: Pass, shown: &Shown) -> bool {
    match pass {
        Pass::Forward => bits(&outputs_of(changed, shown)) != bits(&outputs_of(correct, shown)),
        Pass::Backward => gradients_of(changed, shown) != gradients_of(correct, shown),
    }
}

fn outputs_of(kernel: &dyn Kernel, Shown { problem, inputs, .. }: &Shown) -> Outputs {
    kernel.forward(problem, inputs).expect("a supported problem")
}

/// The gradients from the correct kernel's outputs.
fn gradients_of(kernel: &dyn Kernel, shown: &Shown) -> Vec<u64> {
    let Shown { problem, inputs, .. } = shown;
    let outputs = outputs_of(builtin("tiled").expect("a kernel").as_ref(), shown);
    let cotangents = uniform_cotangents(problem, 7);
    let gradients = kernel.backward(problem, inputs, &outputs, &cotangents);
    gradient_bits(&gradients.expect("a supported problem"))
}

/// Of the rows over all keys, and those over none.
fn merges_differ(kernels: [&dyn Kernel; 2], shown: &Shown) -> bool {
    let Shown { problem, inputs, .. } = shown;
    let none = Mask::only(Rule::KeyLengths(vec![0; problem.batch]));
    let none = Problem { mask: none, ..problem.clone() };
    let part = |problem| kernels[1].forward(problem, inputs).expect("a supported problem");
    let parts = [part(&none), part(problem), part(&none)];
    let [changed, correct] =
        kernels.map(|kernel| bits(&kernel.merge(problem, &parts).expect("a merge")));
    changed != correct
}

fn stored_differ([changed, correct]: [&dyn Kernel; 2], pass: Pass, shown: &Shown) -> bool {
    let Shown { problem, inputs, .. } = shown;
    let inputs = StoredInputs::store(problem, inputs).expect("inputs that can be stored");
    let outputs =
        |kernel: &dyn Kernel| kernel.forward_stored(problem, &inputs).expect("a supported problem");
    let right = outputs(correct);
    if pass == Pass::Forward {
        let left = outputs(changed);
        // NaN differs from itself, and is written as it is.
        return format!("{left:?}") != format!("{right:?}");
    }
    let cotangents = StoredCotangents::store(problem, &uniform_cotangents(problem, 7));
    let cotangents = cotangents.expect("cotangents that can be stored");
    let gradients = |kernel: &dyn Kernel| {
        let gradients = kernel.backward_stored(problem, &inputs, &right, &cotangents);
        format!("{:?}", gradients.expect("a supported problem"))
    };
    gradients(changed) != gradients(correct)
}
