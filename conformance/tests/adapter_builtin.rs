//! `builtin:` and kernels in this process.

#[path = "adapter_support/mod.rs"]
mod adapter_support;

use adapter_support::{COMPLETE, paired, pointed};
use flashproof_conformance::adapter::builtin::Builtin;
use flashproof_conformance::adapter::{
    AnswerError, Backward, Failure, OpenError, Options, Subject, open,
};
use flashproof_kernels::{Kernel, Unsupported, builtins};
use flashproof_spec::format::Format;
use flashproof_spec::problem::Problem;
use flashproof_spec::profile::Profile;
use flashproof_spec::tensor::{Cotangents, Gradients, Inputs, Outputs, Tensor};

type Forward = fn(&Problem) -> Result<Outputs, Unsupported>;
type Gradient = fn(&Problem, &Outputs, &Cotangents) -> Result<Gradients, Unsupported>;

/// A kernel that does as it is told.
struct Told(Forward, Gradient);

impl Kernel for Told {
    fn name(&self) -> &'static str {
        "told"
    }

    fn summary(&self) -> &'static str {
        "does as it is told"
    }

    fn profile(&self, format: Format) -> Profile {
        Profile::standard(format)
    }

    fn forward(&self, problem: &Problem, _: &Inputs) -> Result<Outputs, Unsupported> {
        (self.0)(problem)
    }

    fn backward(
        &self,
        problem: &Problem,
        _: &Inputs,
        outputs: &Outputs,
        cotangents: &Cotangents,
    ) -> Result<Gradients, Unsupported> {
        (self.1)(problem, outputs, cotangents)
    }
}

fn run(forward: Forward) -> Result<Outputs, Failure> {
    let problem = pointed::problem(Format::F16);
    let told = Told(forward, |_, _, _| panic!("was asked"));
    Builtin::new(Box::new(told)).forward(&problem, &pointed::inputs(&problem))
}

fn run_both(forward: Forward, backward: Gradient) -> Result<Backward, Failure> {
    let problem = pointed::problem(Format::F16);
    let mut subject = Builtin::new(Box::new(Told(forward, backward)));
    subject.backward(&problem, &pointed::inputs(&problem), &pointed::cotangents(&problem))
}

const RIGHT: Forward = |problem| Ok(pointed::outputs(problem));

fn unsupported<T>(feature: &str) -> Result<T, Unsupported> {
    Err(Unsupported { kernel: "told".to_owned(), feature: feature.to_owned() })
}

#[test]
fn every_kernel_opens_by_its_name_and_answers() {
    let problem = pointed::problem(Format::Bf16);
    for kernel in builtins() {
        let spec = format!("builtin:{}", kernel.name());
        let mut subject = open(&spec, &Options::default()).expect("a kernel");
        assert_eq!(subject.name(), spec);
        assert_eq!(subject.description(), kernel.summary());
        if !kernel.takes(Format::Bf16) {
            assert!(
                matches!(subject.profile(Format::Bf16), Err(Failure::Unsupported(_))),
                "{spec}"
            );
            continue;
        }
        assert_eq!(subject.profile(Format::Bf16), Ok(kernel.profile(Format::Bf16)));
        let answer = subject.forward(&problem, &pointed::inputs(&problem));
        assert_eq!(answer, Ok(pointed::outputs(&problem)), "{spec}");
    }
}

#[test]
fn every_kernel_gives_gradients() {
    for kernel in COMPLETE {
        let spec = format!("builtin:{kernel}");
        let mut subject = open(&spec, &Options::default()).expect("a kernel");
        for format in [Format::F64, Format::F32, Format::F16, Format::Bf16] {
            let problem = pointed::problem(format);
            let both = pointed::cotangents(&problem);
            for cotangents in [Cotangents { lse: None, ..both.clone() }, both] {
                let answer = subject.backward(&problem, &pointed::inputs(&problem), &cotangents);
                let gradients = pointed::gradients(&problem, &cotangents);
                let expected = Backward { outputs: pointed::outputs(&problem), gradients };
                assert_eq!(answer, Ok(expected), "{spec} in {format}");
            }
        }
    }
}

#[test]
fn gradients_of_shared_weights_are_exact_in_short_formats() {
    for kernel in COMPLETE {
        let mut subject = Builtin::open(kernel).expect("a kernel");
        for format in [Format::F16, Format::Bf16] {
            let problem = paired::problem(format);
            let both = paired::cotangents(&problem);
            for cotangents in [Cotangents { lse: None, ..both.clone() }, both] {
                let answer = subject.backward(&problem, &paired::inputs(&problem), &cotangents);
                let gradients = answer.map(|answer| answer.gradients);
                let expected = paired::gradients(&problem, &cotangents);
                assert_eq!(gradients, Ok(expected), "{kernel} in {format}");
            }
        }
    }
}

#[test]
fn the_backward_pass_starts_from_what_the_forward_pass_gave() {
    let backward: Gradient = |problem, outputs, cotangents| {
        assert_eq!(*outputs, pointed::outputs(problem));
        assert_eq!(*cotangents, pointed::cotangents(problem));
        Ok(pointed::gradients(problem, cotangents))
    };
    let problem = pointed::problem(Format::F16);
    let gradients = pointed::gradients(&problem, &pointed::cotangents(&problem));
    let expected = Backward { outputs: pointed::outputs(&problem), gradients };
    assert_eq!(run_both(RIGHT, backward), Ok(expected));
}

#[test]
fn an_unknown_kernel_is_refused_by_name() {
    let error = open("builtin:nobody", &Options::default()).map(|_| ()).expect_err("no kernel");
    assert!(matches!(&error, OpenError::UnknownKernel(_)), "{error:?}");
    assert!(error.to_string().contains("'nobody'"), "{error}");
}

#[test]
fn a_panic_costs_one_case() {
    let result = run(|problem| panic!("no {} today", problem.format));
    assert_eq!(result, Err(Failure::Crashed("panicked: no f16 today".to_owned())));
    let result = run(|_| panic!("no luck"));
    assert_eq!(result, Err(Failure::Crashed("panicked: no luck".to_owned())));
    let result = run_both(RIGHT, |problem, _, _| panic!("no gradients in {}", problem.format));
    assert_eq!(result, Err(Failure::Crashed("panicked: no gradients in f16".to_owned())));
    let result = run_both(|_| panic!("no luck"), |_, _, _| unsupported("anything"));
    assert_eq!(result, Err(Failure::Crashed("panicked: no luck".to_owned())));
}

#[test]
fn what_a_kernel_lacks_is_unsupported() {
    let expected = |feature: &str| Failure::Unsupported(format!("told does not support {feature}"));
    assert_eq!(run(|_| unsupported("anything")), Err(expected("anything")));
    let result = run_both(|_| unsupported("anything"), |_, _, _| unsupported("gradients"));
    assert_eq!(result, Err(expected("anything")));
    let result = run_both(RIGHT, |_, _, _| unsupported("gradients"));
    assert_eq!(result, Err(expected("gradients")));
}

#[test]
fn a_kernel_without_a_gradient_of_the_lse_says_so() {
    let kernel = Told(RIGHT, |problem, _, cotangents| match cotangents.lse {
        Some(_) => unsupported("a gradient of the LSE"),
        None => Ok(pointed::gradients(problem, cotangents)),
    });
    let problem = pointed::problem(Format::F16);
    let (inputs, both) = (pointed::inputs(&problem), pointed::cotangents(&problem));
    let mut subject = Builtin::new(Box::new(kernel));
    let expected = "told does not support a gradient of the LSE".to_owned();
    assert_eq!(subject.backward(&problem, &inputs, &both), Err(Failure::Unsupported(expected)));
    let without = Cotangents { lse: None, ..both };
    assert!(subject.backward(&problem, &inputs, &without).is_ok());
}

#[test]
fn gradients_need_the_lse_where_the_kernel_says_so() {
    let forward: Forward = |problem| Ok(Outputs { lse: None, ..pointed::outputs(problem) });
    let backward: Gradient = |problem, outputs, cotangents| match outputs.lse {
        None => unsupported("a backward pass without an LSE"),
        Some(_) => Ok(pointed::gradients(problem, cotangents)),
    };
    let expected = "told does not support a backward pass without an LSE".to_owned();
    assert_eq!(run_both(forward, backward), Err(Failure::Unsupported(expected)));
}

#[test]
fn outputs_of_another_shape_or_format_are_malformed() {
    let result = run(|problem| {
        let other = Problem { query_len: 4, ..problem.clone() };
        Ok(pointed::outputs(&other))
    });
    let shapes = (vec![2, 4, 4, 3], vec![2, 4, 5, 3]);
    let error = AnswerError::WrongShape {
        tensor: "output".to_owned(),
        found: shapes.0,
        expected: shapes.1,
    };
    assert_eq!(result, Err(Failure::Malformed(error)));

    let result = run(|problem| {
        let outputs = pointed::outputs(problem);
        let lse = outputs.lse.map(|lse| Tensor::rounded(Format::F64, lse.values()));
        Ok(Outputs { lse, ..outputs })
    });
    let error = AnswerError::WrongFormat {
        tensor: "lse".to_owned(),
        found: "f64".to_owned(),
        expected: "f32".to_owned(),
    };
    assert_eq!(result, Err(Failure::Malformed(error)));
}

#[test]
fn gradients_of_another_shape_or_format_are_malformed() {
    let result = run_both(RIGHT, |problem, _, cotangents| {
        let gradients = pointed::gradients(problem, cotangents);
        Ok(Gradients { key: gradients.query.clone(), ..gradients })
    });
    let (found, expected) = (vec![2, 4, 5, 20], vec![2, 2, 20, 20]);
    let error = AnswerError::WrongShape { tensor: "key_gradient".to_owned(), found, expected };
    assert_eq!(result, Err(Failure::Malformed(error)));

    let result = run_both(RIGHT, |problem, _, cotangents| {
        let gradients = pointed::gradients(problem, cotangents);
        let value = Tensor::rounded(Format::F32, gradients.value.values());
        Ok(Gradients { value, ..gradients })
    });
    let error = AnswerError::WrongFormat {
        tensor: "value_gradient".to_owned(),
        found: "f32".to_owned(),
        expected: "f16".to_owned(),
    };
    assert_eq!(result, Err(Failure::Malformed(error)));
}

/// The backward pass may take shapes for granted, and would panic.
#[test]
fn malformed_outputs_reach_no_backward_pass() {
    let result = run_both(
        |problem| Ok(pointed::outputs(&Problem { query_len: 4, ..problem.clone() })),
        |_, _, _| panic!("was asked"),
    );
    assert!(
        matches!(&result, Err(Failure::Malformed(AnswerError::WrongShape { tensor, .. }))
            if tensor == "output"),
        "{result:?}"
    );
}

#[test]
fn a_case_that_can_not_be_posed_reaches_no_kernel() {
    let problem = pointed::problem(Format::F32);
    let inputs = pointed::inputs(&problem);
    let wrong = Problem { head_dim: 0, ..problem.clone() };
    let told = Told(|_| panic!("was asked"), |_, _, _| panic!("was asked"));
    let mut subject = Builtin::new(Box::new(told));
    let expected = Failure::Environment("head_dim is 0: expected at least 1".to_owned());
    assert_eq!(subject.forward(&wrong, &inputs), Err(expected.clone()));
    let cotangents = pointed::cotangents(&problem);
    assert_eq!(subject.backward(&wrong, &inputs, &cotangents), Err(expected));
    let lse = cotangents.lse.map(|lse| Tensor::rounded(Format::F16, lse.values()));
    let cotangents = Cotangents { lse, ..cotangents };
    let expected = Failure::Environment("lse_gradient has format f16: expected f32".to_owned());
    assert_eq!(subject.backward(&problem, &inputs, &cotangents), Err(expected));
}
