//! Gradients against differences of the kernel's own forward pass, in `f64`, with every modification
//! of scores and weights.
//!
//! The loss is `sum dO o + sum g L`. Its central difference over a step `h` errs by a multiple of
//! `h^2`, to leading order, so that half the step leaves a quarter of the error: the two differ by
//! three times what the second one errs by. Rounding of the loss adds at most its own error over
//! the step.

use flashproof_kernels::Kernel;
use flashproof_kernels::cpu::{Naive, Tiled};
use flashproof_spec::format::Format;
use flashproof_spec::problem::Problem;
use flashproof_spec::score::{Bias, Sink};
use flashproof_spec::tensor::{Cotangents, Inputs, Tensor};
use ndarray::{ArrayD, IxDyn};
use proptest::prelude::*;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

use crate::support::problems::modified_problems;
use crate::support::sight::is_padding;
use crate::support::{differentiate, run, uniform, uniform_cotangents, values};

/// `h`. Rounding and truncation are about as large at it.
const STEP: f64 = 1.0 / 16384.0;

/// More roundings than are on any way from an input to the loss here, relative to the sum of the
/// magnitudes of its terms: some tens in a score and the numerator, each at most a few times over
/// by a score of magnitude 8 and a slope of 1.
const ROUNDINGS: f64 = 512.0;

/// The comparison must show an error of this size in gradients of order one.
const RESOLUTION: f64 = 1.0 / 4096.0;

/// Entries of each tensor that are moved.
const ENTRIES: usize = 2;

struct Case<'a> {
    kernel: &'a dyn Kernel,
    problem: &'a Problem,
    inputs: &'a Inputs,
    cotangents: &'a Cotangents,
}

/// An input by the place it has among them.
type Access = fn(&mut Inputs) -> Option<&mut Tensor>;

impl Case<'_> {
    /// The terms of the loss: none of the LSE of padding, nor of a row without keys and sinks, whose LSE
    /// is no number.
    fn terms(&self, inputs: &Inputs) -> Vec<f64> {
        let outputs = run(self.kernel, self.problem, inputs);
        let products = |a: &Tensor, b: &Tensor| -> Vec<f64> {
            a.values().iter().zip(b.values()).map(|(a, b)| a * b).collect()
        };
        let mut terms = products(&self.cotangents.output, &outputs.output);
        let lse = outputs.lse.as_ref().expect("an LSE").view3();
        let gradient = self.cotangents.lse.as_ref().expect("its gradient").view3();
        let in_use = |(batch, _, query)| !is_padding(self.problem, batch, query);
        let places = lse.indexed_iter().filter(|&(place, _)| in_use(place));
        let of_lse = places.map(|(place, lse)| gradient[place] * lse);
        terms.extend(of_lse.filter(|term| term.is_finite()));
        terms
    }

    /// The difference quotient over `2h` in one entry, and how much rounding can have moved it.
    fn quotient(&self, access: Access, at: usize, h: f64) -> (f64, f64) {
        let moved = |by: f64| {
            let mut inputs = self.inputs.clone();
            let tensor = access(&mut inputs).expect("a tensor of the problem");
            let mut entries = values(tensor);
            entries[at] += by;
            let entry = entries[at];
            let shape = IxDyn(tensor.shape());
            let entries = ArrayD::from_shape_vec(shape, entries).expect("the same shape");
            *tensor = Tensor::exact(Format::F64, entries).expect("f64 numbers");
            (entry, self.terms(&inputs))
        };
        let ((low, before), (high, after)) = (moved(-h), moved(h));
        let rise: f64 = after.iter().zip(&before).map(|(after, before)| after - before).sum();
        let mass: f64 = after.iter().chain(&before).map(|term| term.abs().max(1.0)).sum();
        let rounding = ROUNDINGS * Format::F64.unit_roundoff() * mass;
        (rise / (high - low), rounding / (high - low))
    }

    fn check(&self, access: Access, at: usize, gradient: f64) -> Result<(), TestCaseError> {
        let (coarse, _) = self.quotient(access, at, STEP);
        let (fine, rounding) = self.quotient(access, at, STEP / 2.0);
        let allowed = (coarse - fine).abs() + 3.0 * rounding;
        prop_assert!(
            (fine - gradient).abs() <= allowed,
            "{}: gradient {gradient}, difference {fine} within {allowed:e}",
            self.kernel.name()
        );
        prop_assert!(
            allowed < RESOLUTION * gradient.abs().max(1.0),
            "{allowed:e} shows too little"
        );
        Ok(())
    }
}

/// In `f64` throughout, so that every entry can be moved a little.
fn wide(problem: Problem) -> Problem {
    let format = Format::F64;
    let bias = problem.bias.map(|bias| Bias { format, ..bias });
    let sink = problem.sink.map(|sink| match sink {
        Sink::Zero => Sink::Zero,
        Sink::Logits(_) => Sink::Logits(format),
    });
    Problem { format, bias, sink, ..problem }
}

proptest! {
    #[test]
    fn gradients_are_derivatives_of_the_forward_pass(
        problem in modified_problems().prop_map(wide),
        seed: u64,
    ) {
        const INPUTS: [Access; 5] = [
            |inputs| Some(&mut inputs.query),
            |inputs| Some(&mut inputs.key),
            |inputs| Some(&mut inputs.value),
            |inputs| inputs.bias.as_mut(),
            |inputs| inputs.sink.as_mut(),
        ];
        let inputs = uniform(&problem, seed);
        let cotangents = uniform_cotangents(&problem, seed.wrapping_add(1));
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let three = const { std::num::NonZeroUsize::new(3).unwrap() };
        for kernel in [&Naive as &dyn Kernel, &Tiled::new(three, three)] {
            let outputs = run(kernel, &problem, &inputs);
            let gradients = differentiate(kernel, &problem, &inputs, &outputs, &cotangents);
            let case = Case { kernel, problem: &problem, inputs: &inputs, cotangents: &cotangents };
            let gradients = [
                Some(&gradients.query),
                Some(&gradients.key),
                Some(&gradients.value),
                gradients.bias.as_ref(),
                gradients.sink.as_ref(),
            ];
            for (access, gradient) in INPUTS.into_iter().zip(gradients) {
                let gradient = gradient.map(values).unwrap_or_default();
                let mut unmoved = inputs.clone();
                for _ in 0..ENTRIES.min(gradient.len()) {
                    let at = rng.random_range(0..gradient.len());
                    let entry = values(access(&mut unmoved).expect("a tensor of the problem"))[at];
                    if entry.is_finite() {
                        case.check(access, at, gradient[at])?;
                    } else {
                        prop_assert_eq!(gradient[at], 0.0, "{}: a hidden key", kernel.name());
                    }
                }
            }
        }
    }
}
