//! What becomes of cases whose tensors stand in buffers, and of those with further tensors.

use flashproof_conformance::adapter::builtin::Builtin;
use flashproof_conformance::adapter::{Backward, Failure, OwnershipError, Subject};
use flashproof_conformance::case::QUANTIZED_FORMATS;
use flashproof_conformance::suite::{DEFAULT_SEED, Suite, cases};
use flashproof_spec::format::Format;
use flashproof_spec::problem::Problem;
use libtest_mimic::Trial;

use crate::adapter_support::conduct::Pass;
use crate::adapter_support::{placed, pointed, scored};
use crate::cases::{LONG, start, trial};

pub fn trials() -> Vec<Trial> {
    vec![
        trial("layouts::change_no_answer", change_no_answer),
        trial("layouts::replaced_outputs_are_read", replaced_outputs_are_read),
        trial("layouts::a_write_beside_an_element_is_caught", a_write_beside_is_caught),
        trial("layouts::a_changed_input_buffer_is_caught", a_changed_input_buffer_is_caught),
        trial("layouts::may_be_unsupported", may_be_unsupported),
        trial("scores::come_with_tensors_of_their_own", come_with_tensors_of_their_own),
        trial("descales::come_with_tensors_of_their_own", descales_come_with_tensors),
        trial("merge::joins_partial_results", joins_partial_results),
        trial("merge::not_declared_is_never_asked_for", not_declared_is_never_asked_for),
    ]
}

/// The case of that layout.
fn case(layout: &str) -> Problem {
    let mut cases = placed::problems(Format::F32).into_iter();
    cases.find(|(name, _)| *name == layout).expect("a layout of that name").1
}

fn change_no_answer() {
    let mut subject = start("none", "", LONG);
    for format in [Format::F64, Format::F32, Format::F16, Format::Bf16] {
        for (layout, problem) in placed::problems(format) {
            for pass in Pass::ALL {
                let found = pass.run(&mut subject, &problem).expect("an answer");
                let exact = placed::exact(pass, &problem);
                assert!(placed::same(&found, &exact), "{format} {layout} {pass:?}: {found:?}");
            }
        }
    }
}

/// A buffer that is longer by one element than it should be, in a file of its own.
fn replaced_outputs_are_read() {
    let mut subject = start("long-buffer", "", LONG);
    let failure = Pass::Forward.run(&mut subject, &case("guarded")).expect_err("a wrong shape");
    let expected = "'output' has shape [131]: expected [130]";
    assert!(failure.to_string().contains(expected), "{failure}");
}

fn a_write_beside_is_caught() {
    for layout in ["guarded", "giant", "ragged"] {
        let mut subject = start("writes-beside", "", LONG);
        let problem = case(layout);
        // the first place that no element has: of the guard, between two rows, before the first row
        let offset = if layout == "giant" { 3 } else { 0 };
        let error = OwnershipError::Beside { tensor: "output", offset };
        for pass in Pass::ALL {
            let outcome = pass.run(&mut subject, &problem);
            assert_eq!(outcome, Err(Failure::Ownership(error.clone())), "{layout}");
        }
    }
}

fn a_changed_input_buffer_is_caught() {
    for layout in ["guarded", "giant"] {
        let mut subject = start("writes-an-input-buffer", "", LONG);
        let outcome = Pass::Forward.run(&mut subject, &case(layout));
        assert_eq!(outcome, Err(Failure::InputChanged("key".to_owned())), "{layout}");
    }
}

fn may_be_unsupported() {
    let outcome = Pass::Forward.run(&mut start("says-unsupported", "", LONG), &case("paged"));
    assert_eq!(outcome, Err(Failure::Unsupported("masks".to_owned())));
}

fn come_with_tensors_of_their_own() {
    let mut subject = start("none", "", LONG);
    let problem = scored::problem(Format::F32);
    let inputs = scored::inputs(&problem);
    assert_eq!(subject.forward(&problem, &inputs), Ok(scored::outputs(&problem)));
    let cotangents = scored::cotangents(&problem);
    let gradients = scored::gradients(&problem, &cotangents);
    let expected = Backward { outputs: scored::outputs(&problem), gradients };
    assert_eq!(subject.backward(&problem, &inputs, &cotangents), Ok(expected));
    let mut subject = start("no-bias-gradient", "", LONG);
    let failure = subject.backward(&problem, &inputs, &cotangents).expect_err("no gradient");
    assert!(failure.to_string().contains("no tensor 'bias_gradient'"), "{failure}");
}

fn joins_partial_results() {
    let mut subject = start("none", "", LONG);
    for format in [Format::F64, Format::F16] {
        let problem = pointed::problem(format);
        let (whole, parts) = pointed::partials(&problem);
        assert_eq!(subject.merge(&problem, &parts), Ok(whole), "{format}");
        let why = "there are no partial results to merge".to_owned();
        assert_eq!(subject.merge(&problem, &[]), Err(Failure::Environment(why)));
    }
}

/// What crosses the pipe and the files is what a kernel in this process is given.
fn descales_come_with_tensors() {
    let mut remote = start("quantized", "", LONG);
    let mut here = Builtin::open("quantized").expect("a kernel");
    for format in QUANTIZED_FORMATS {
        assert_eq!(remote.profile(format), here.profile(format));
        let cases = cases(Suite::Quick, &[format], DEFAULT_SEED);
        for case in cases.iter().filter(|case| case.poison.is_none()).step_by(4) {
            let inputs = case.inputs().expect("inputs");
            let expected = here.forward(&case.problem, &inputs);
            assert!(expected.is_ok(), "{}", case.name);
            assert_eq!(remote.forward(&case.problem, &inputs), expected, "{}", case.name);
        }
    }
}

/// The worker of this test crashes where it is asked.
fn not_declared_is_never_asked_for() {
    let problem = pointed::problem(Format::F32);
    let (_, parts) = pointed::partials(&problem);
    let mut subject = start("has-no-backward", "", LONG);
    let why = "merge is not among its operations".to_owned();
    assert_eq!(subject.merge(&problem, &parts), Err(Failure::Unsupported(why)));
}
