//! Findings on simulated answers.

use flashproof_conformance::diagnosis::{Evidence, Finding, diagnose};
use flashproof_oracle::row::RowIndex;
use flashproof_spec::format::Format;
use flashproof_spec::problem::Problem;
use flashproof_spec::profile::{Profile, Schedule};
use flashproof_spec::tensor::{Inputs, Outputs};

use super::simulated::{Committed, NONE, differs, every_row, inputs};

/// Printed by a failing assertion through the problem; change it to see other draws.
const SEED: u64 = 20_261_129;

/// The formats in which faults are committed.
const FORMATS: [Format; 3] = [Format::F32, Format::F16, Format::Bf16];

/// The findings on the rows on which the faulty outputs differ from the right ones.
pub fn findings(problem: &Problem, fault: Committed) -> Vec<Finding> {
    findings_on(problem, &inputs(problem, SEED), fault)
}

fn findings_on(problem: &Problem, inputs: &Inputs, fault: Committed) -> Vec<Finding> {
    let outputs = fault.forward(problem, inputs);
    let clean = NONE.forward(problem, inputs);
    let failing: Vec<RowIndex> =
        every_row(problem).into_iter().filter(|&row| differs(&outputs, &clean, row)).collect();
    assert!(!failing.is_empty(), "the fault changes nothing: {problem:?}");
    diagnosed(problem, inputs, &outputs, &failing)
}

fn diagnosed(
    problem: &Problem,
    inputs: &Inputs,
    outputs: &Outputs,
    failing: &[RowIndex],
) -> Vec<Finding> {
    let profile = Profile { schedule: Schedule::Blocks(16), ..Profile::standard(problem.format) };
    diagnose(&Evidence { problem, profile: &profile, inputs, outputs, failing })
}

/// The fault found first has this name and clause, in every format, and is not found in a right
/// answer.
pub fn assert_found(shape: impl Fn(Format) -> Problem, fault: Committed, name: &str, clause: &str) {
    assert_found_with(shape, |inputs| inputs, fault, name, clause);
}

/// The same on inputs that are changed.
pub fn assert_found_with(
    shape: impl Fn(Format) -> Problem,
    change: impl Fn(Inputs) -> Inputs,
    fault: Committed,
    name: &str,
    clause: &str,
) {
    for format in FORMATS {
        let problem = shape(format);
        problem.validate().expect("a problem");
        let inputs = change(inputs(&problem, SEED));
        inputs.check(&problem).expect("its inputs");
        let found = findings_on(&problem, &inputs, fault);
        let first = found.first().map(|finding| (finding.fault, finding.clause));
        assert_eq!(first, Some((name, clause)), "{problem:?}: {found:?}");
        let right = NONE.forward(&problem, &inputs);
        let found = diagnosed(&problem, &inputs, &right, &every_row(&problem));
        let named = found.iter().any(|finding| finding.fault == name);
        assert!(!named, "found in a right answer: {problem:?}: {found:?}");
    }
}
