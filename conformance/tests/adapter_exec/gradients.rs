//! What becomes of cases that ask for gradients.

use flashproof_conformance::adapter::{Backward, Failure, Subject};
use flashproof_spec::format::Format;
use flashproof_spec::mask::Rule;
use flashproof_spec::problem::Problem;
use flashproof_spec::tensor::{Cotangents, Tensor};
use libtest_mimic::Trial;

use crate::adapter_support::{paired, pointed};
use crate::cases::{LONG, masked, run, start, trial, unmasked};

pub fn trials() -> Vec<Trial> {
    vec![
        trial("gradients::are_the_kernels_own", are_the_kernels_own),
        trial("gradients::of_extents_of_zero_are_cases_too", extents_of_zero_are_cases_too),
        trial("gradients::may_come_without_an_lse", may_come_without_an_lse),
        trial("gradients::not_declared_are_never_asked_for", not_declared_are_never_asked_for),
        trial("gradients::of_the_lse_may_be_unsupported", of_the_lse_may_be_unsupported),
        trial("gradients::that_do_not_fit_are_not_sent", that_do_not_fit_are_not_sent),
    ]
}

fn backward(subject: &mut dyn Subject, problem: &Problem) -> Result<Backward, Failure> {
    subject.backward(problem, &pointed::inputs(problem), &pointed::cotangents(problem))
}

/// The exact answer to [`backward`].
fn exact(problem: &Problem) -> Backward {
    let gradients = pointed::gradients(problem, &pointed::cotangents(problem));
    Backward { outputs: pointed::outputs(problem), gradients }
}

fn are_the_kernels_own() {
    let mut subject = start("none", "", LONG);
    for format in [Format::F64, Format::F32, Format::F16, Format::Bf16] {
        for rules in [
            vec![],
            vec![Rule::CausalTopLeft],
            vec![Rule::CausalBottomRight],
            vec![Rule::KeyLengths(vec![0, 3]), Rule::CausalBottomRight],
        ] {
            let problem = pointed::problem_with(format, rules);
            assert_eq!(backward(&mut subject, &problem), Ok(exact(&problem)), "{problem:?}");
        }
    }
    for format in [Format::F16, Format::Bf16] {
        let problem = paired::problem(format);
        let both = paired::cotangents(&problem);
        for cotangents in [Cotangents { lse: None, ..both.clone() }, both] {
            let answer = subject.backward(&problem, &paired::inputs(&problem), &cotangents);
            let gradients = answer.map(|answer| answer.gradients);
            assert_eq!(gradients, Ok(paired::gradients(&problem, &cotangents)), "{format}");
        }
    }
}

fn extents_of_zero_are_cases_too() {
    let mut subject = start("none", "", LONG);
    for (query_len, key_len) in [(0, 20), (5, 0), (0, 0)] {
        let problem = Problem { query_len, key_len, ..unmasked() };
        assert_eq!(backward(&mut subject, &problem), Ok(exact(&problem)), "{problem:?}");
    }
}

fn may_come_without_an_lse() {
    let problem = masked();
    let mut expected = exact(&problem);
    expected.outputs.lse = None;
    assert_eq!(backward(&mut start("no-lse", "", LONG), &problem), Ok(expected));
}

/// The workers of this test crash where they are asked.
fn not_declared_are_never_asked_for() {
    let problem = masked();
    let unsupported =
        |operation: &str| Failure::Unsupported(format!("{operation} is not among its operations"));
    let mut subject = start("has-no-backward", "", LONG);
    assert_eq!(backward(&mut subject, &problem), Err(unsupported("backward")));
    assert_eq!(run(&mut subject, &unmasked()), Ok(pointed::outputs(&unmasked())));
    let mut subject = start("has-no-forward", "", LONG);
    assert_eq!(run(&mut subject, &problem), Err(unsupported("forward")));
    assert_eq!(backward(&mut subject, &unmasked()), Ok(exact(&unmasked())));
}

fn of_the_lse_may_be_unsupported() {
    let problem = masked();
    let mut subject = start("has-no-lse-gradient", "", LONG);
    let expected = Failure::Unsupported("a gradient of the LSE".to_owned());
    assert_eq!(backward(&mut subject, &problem), Err(expected));
    let cotangents = Cotangents { lse: None, ..pointed::cotangents(&problem) };
    let answer = subject.backward(&problem, &pointed::inputs(&problem), &cotangents);
    let gradients = pointed::gradients(&problem, &cotangents);
    assert_eq!(answer, Ok(Backward { gradients, ..exact(&problem) }));
}

/// The worker of this test crashes where it is asked.
fn that_do_not_fit_are_not_sent() {
    let problem = masked();
    let inputs = pointed::inputs(&problem);
    let cotangents = pointed::cotangents(&problem);
    let mut subject = start("crash", "", LONG);
    let mut refused = |cotangents: &Cotangents, expected: &str| {
        let answer = subject.backward(&problem, &inputs, cotangents);
        assert_eq!(answer, Err(Failure::Environment(expected.to_owned())));
    };
    let output = pointed::cotangents(&Problem { value_dim: 4, ..problem.clone() }).output;
    refused(
        &Cotangents { output, ..cotangents.clone() },
        "output_gradient has shape [2, 4, 5, 4]: expected [2, 4, 5, 3]",
    );
    let lse = cotangents.lse.map(|lse| Tensor::rounded(Format::F64, lse.values()));
    refused(&Cotangents { lse, ..cotangents }, "lse_gradient has format f64: expected f32");
}
