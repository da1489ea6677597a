//! `builtin:` on tensors that stand anywhere: what is read, what is written, and what is not.

#[path = "adapter_support/mod.rs"]
mod adapter_support;

use adapter_support::COMPLETE;
use adapter_support::conduct::Pass;
use adapter_support::{placed, pointed, scored};
use flashproof_conformance::adapter::builtin::Builtin;
use flashproof_conformance::adapter::{Backward, Failure, OwnershipError, Subject};
use flashproof_kernels::{Kernel, Unsupported};
use flashproof_spec::format::Format;
use flashproof_spec::layout::{
    Buffer, Layout, StoredCotangents, StoredGradients, StoredInputs, StoredOutputs, Strided,
};
use flashproof_spec::problem::Problem;
use flashproof_spec::profile::Profile;
use flashproof_spec::tensor::{Cotangents, Gradients, Inputs, Outputs};

#[test]
fn every_kernel_is_exact_in_every_layout() {
    for kernel in COMPLETE {
        let mut subject = Builtin::open(kernel).expect("a kernel");
        for format in [Format::F64, Format::Bf16] {
            for (layout, problem) in placed::problems(format) {
                for pass in Pass::ALL {
                    let found = pass.run(&mut subject, &problem).expect("an answer");
                    let exact = placed::exact(pass, &problem);
                    let same = placed::same(&found, &exact);
                    assert!(same, "{kernel} {layout} {pass:?}: {found:?}");
                }
            }
        }
    }
}

#[test]
fn every_kernel_takes_bias_sinks_and_dropout() {
    for kernel in COMPLETE {
        let mut subject = Builtin::open(kernel).expect("a kernel");
        let problem = scored::problem(Format::F32);
        let cotangents = scored::cotangents(&problem);
        let answer = subject.backward(&problem, &scored::inputs(&problem), &cotangents);
        let gradients = scored::gradients(&problem, &cotangents);
        let expected = Backward { outputs: scored::outputs(&problem), gradients };
        assert_eq!(answer, Ok(expected), "{kernel}");
    }
}

#[test]
fn partial_results_merge_into_one() {
    for kernel in COMPLETE {
        let mut subject = Builtin::open(kernel).expect("a kernel");
        let problem = pointed::problem(Format::Bf16);
        let (whole, parts) = pointed::partials(&problem);
        assert_eq!(subject.merge(&problem, &parts), Ok(whole), "{kernel}");
    }
}

#[test]
fn what_can_not_be_merged_is_not_asked() {
    let mut subject = Builtin::open("naive").expect("a kernel");
    let problem = pointed::problem(Format::Bf16);
    let refused = |partials: &[Outputs], expected: &str, subject: &mut Builtin| {
        let expected = Failure::Environment(expected.to_owned());
        assert_eq!(subject.merge(&problem, partials), Err(expected));
    };
    refused(&[], "there are no partial results to merge", &mut subject);
    let whole = pointed::outputs(&problem);
    let blind = Outputs { lse: None, ..whole.clone() };
    refused(&[whole.clone(), blind], "partial result 1 has no LSE", &mut subject);
    let other = pointed::outputs(&Problem { query_len: 4, ..problem.clone() });
    let expected = "partial result 0: output has shape [2, 4, 4, 3]: expected [2, 4, 5, 3]";
    refused(&[other], expected, &mut subject);
}

/// Where elements differ that the layout shares, no kernel can be asked.
#[test]
fn a_tensor_that_its_layout_can_not_hold_is_not_sent() {
    let (_, problem) = placed::problems(Format::F32).swap_remove(3);
    let Layout::Strided(strided) = &problem.layout else { panic!("a strided layout") };
    let value = strided.value.spread(problem.value_shape(), 1, 0);
    let layout = Layout::Strided(Strided { value, ..strided.clone() });
    let problem = Problem { layout, ..problem };
    let mut subject = Builtin::open("naive").expect("a kernel");
    for pass in Pass::ALL {
        let Err(Failure::Environment(why)) = pass.run(&mut subject, &problem) else {
            panic!("values that differ were stored in one place");
        };
        assert!(why.starts_with("value has 1 and 97 for the element at offset 0"), "{why}");
    }
}

/// What a careless kernel does to a buffer that was written as it should be.
type Change = fn(&mut Buffer);

/// A right kernel whose outputs or gradients of the key are changed before they are returned.
struct Careless {
    kernel: Box<dyn Kernel>,
    output: Change,
    key_gradient: Change,
}

impl Kernel for Careless {
    fn name(&self) -> &'static str {
        "careless"
    }

    fn summary(&self) -> &'static str {
        "writes where it should not"
    }

    fn profile(&self, format: Format) -> Profile {
        self.kernel.profile(format)
    }

    fn forward(&self, problem: &Problem, inputs: &Inputs) -> Result<Outputs, Unsupported> {
        self.kernel.forward(problem, inputs)
    }

    fn backward(
        &self,
        problem: &Problem,
        inputs: &Inputs,
        outputs: &Outputs,
        cotangents: &Cotangents,
    ) -> Result<Gradients, Unsupported> {
        self.kernel.backward(problem, inputs, outputs, cotangents)
    }

    fn forward_stored(
        &self,
        problem: &Problem,
        inputs: &StoredInputs,
    ) -> Result<StoredOutputs, Unsupported> {
        let mut outputs = self.kernel.forward_stored(problem, inputs)?;
        (self.output)(&mut outputs.output);
        Ok(outputs)
    }

    fn backward_stored(
        &self,
        problem: &Problem,
        inputs: &StoredInputs,
        outputs: &StoredOutputs,
        cotangents: &StoredCotangents,
    ) -> Result<StoredGradients, Unsupported> {
        let mut gradients = self.kernel.backward_stored(problem, inputs, outputs, cotangents)?;
        (self.key_gradient)(&mut gradients.key);
        Ok(gradients)
    }
}

/// What becomes of a case that has guards of five elements.
fn caught(output: Change, key_gradient: Change, pass: Pass) -> Option<OwnershipError> {
    let kernel = flashproof_kernels::builtin("tiled").expect("a kernel");
    let mut subject = Builtin::new(Box::new(Careless { kernel, output, key_gradient }));
    let (_, guarded) = placed::problems(Format::F32).swap_remove(2);
    match pass.run(&mut subject, &guarded) {
        Ok(_) => None,
        Err(Failure::Ownership(error)) => Some(error),
        Err(other) => panic!("an error of ownership was expected, not {other:?}"),
    }
}

const NOTHING: Change = |_| {};

#[test]
fn what_is_written_beside_the_elements_is_caught() {
    let beside: Change = |buffer| buffer.write(3, 0.0);
    let error = OwnershipError::Beside { tensor: "output", offset: 3 };
    assert_eq!(caught(beside, NOTHING, Pass::Forward), Some(error.clone()));
    assert_eq!(caught(beside, NOTHING, Pass::Backward), Some(error));
    let after: Change = |buffer| buffer.write(buffer.len() - 1, f64::NAN);
    let offset = 2 * 2 * 20 * 20 + 2 * 5 - 1;
    let error = OwnershipError::Beside { tensor: "key_gradient", offset };
    assert_eq!(caught(NOTHING, after, Pass::Backward), Some(error));
    assert_eq!(caught(NOTHING, NOTHING, Pass::Backward), None);
}

#[test]
fn what_is_left_unwritten_is_caught() {
    let hole: Change = |buffer| {
        let written: Vec<_> = buffer.written().collect();
        *buffer = Buffer::poisoned(buffer.format(), buffer.len());
        for (offset, value) in written.into_iter().filter(|(offset, _)| *offset != 6) {
            buffer.write(offset, value);
        }
    };
    let error = OwnershipError::Unwritten { tensor: "output", place: [0, 0, 0, 1], offset: 6 };
    assert_eq!(caught(hole, NOTHING, Pass::Forward), Some(error.clone()));
    let words = "it did not write element [0, 0, 0, 1] of 'output', at offset 6";
    assert_eq!(Failure::from(error).to_string(), words);
    let error =
        OwnershipError::Unwritten { tensor: "key_gradient", place: [0, 0, 0, 1], offset: 6 };
    assert_eq!(caught(NOTHING, hole, Pass::Backward), Some(error));
}

#[test]
fn a_buffer_of_another_length_is_caught() {
    let short: Change = |buffer| *buffer = Buffer::poisoned(buffer.format(), 7);
    let expected = 2 * 4 * 5 * 3 + 2 * 5;
    let error = OwnershipError::Length { tensor: "output", found: 7, expected };
    assert_eq!(caught(short, NOTHING, Pass::Forward), Some(error));
}
