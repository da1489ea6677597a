//! An explanation as JSON.

use std::io::{self, Write};

use flashproof_spec::problem::Problem;
use serde::Serialize;
use serde_json::Value;

use super::alike::Alike;
use super::shrink::{Part, Stopped};
use super::{Explanation, Target, Trace};
use crate::diagnosis::Finding;
use crate::report::{CaseReport, number};
use crate::verdict::Violation;

/// Version of the form. It moves when a field is removed or changes its meaning.
const SCHEMA_VERSION: u32 = 1;

#[derive(Serialize)]
struct Form<'e> {
    schema_version: u32,
    kernel: &'e str,
    /// The case as `check` reports it.
    case: &'e CaseReport,
    remarks: &'e [String],
    reproduce: &'e str,
    #[serde(skip_serializing_if = "Option::is_none")]
    example: Option<FormOfExample<'e>>,
}

#[derive(Serialize)]
struct FormOfExample<'e> {
    /// The failure that was kept.
    target: &'e Target,
    from: &'e Problem,
    problem: &'e Problem,
    /// The tensors, row-major.
    inputs: Value,
    questions: usize,
    kept: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    stopped: Option<Stopped>,
    violations: &'e [Violation],
    diagnosis: &'e [Finding],
    #[serde(skip_serializing_if = "Option::is_none")]
    trace: Option<&'e Trace>,
    /// Mutants that answer as the kernel does, those that come nearest first.
    mutants: &'e [Alike],
}

/// Writes the explanation as one indented JSON object.
///
/// # Errors
/// Those of the sink.
pub fn write(explanation: &Explanation, sink: &mut impl Write) -> io::Result<()> {
    let example = explanation.example.as_ref().map(|example| {
        let shrunk = &example.shrunk;
        let tensors = Part::ALL.into_iter().filter_map(|part| {
            let tensor = part.of(&shrunk.instance)?;
            let values: Vec<Value> = tensor.values().iter().map(|&x| number::json(x)).collect();
            Some((part.name().to_owned(), Value::Array(values)))
        });
        FormOfExample {
            target: &example.target,
            from: &example.from,
            problem: &shrunk.instance.problem,
            inputs: tensors.collect(),
            questions: shrunk.questions,
            kept: shrunk.kept,
            stopped: shrunk.stopped,
            violations: &shrunk.examined.judged.tally.violations,
            diagnosis: &shrunk.examined.judged.findings,
            trace: example.trace.as_ref(),
            mutants: &example.alike,
        }
    });
    let form = Form {
        schema_version: SCHEMA_VERSION,
        kernel: &explanation.kernel,
        case: &explanation.report,
        remarks: &explanation.remarks,
        reproduce: &explanation.reproduce,
        example,
    };
    serde_json::to_writer_pretty(&mut *sink, &form)?;
    writeln!(sink)
}
