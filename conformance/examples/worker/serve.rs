//! One answer to each request, around a kernel.

use std::collections::BTreeMap;
use std::error::Error;
use std::io::{BufRead, Write};

use flashproof_conformance::adapter::exec::protocol::{
    Answer, Files, Hello, Operation, Outcome, PROTOCOL, Request,
};
use flashproof_conformance::adapter::{Choices, Guarantees};
use flashproof_conformance::io::safetensors::{Archive, SparseTensor, write_sparse};
use flashproof_kernels::{Kernel, Unsupported};
use flashproof_spec::format::Format;
use serde_json::{json, to_value};

use super::tensors;

/// Answers requests until they end.
pub fn serve(
    kernel: &dyn Kernel,
    requests: impl BufRead,
    mut answers: impl Write,
) -> Result<(), Box<dyn Error>> {
    for line in requests.lines() {
        let answer = match serde_json::from_str(&line?)? {
            Request::Hello { .. } => to_value(hello(kernel)?)?,
            Request::Forward(case) => to_value(answer(kernel, Operation::Forward, &case))?,
            Request::Backward(case) => to_value(answer(kernel, Operation::Backward, &case))?,
            Request::Merge(case) => to_value(answer(kernel, Operation::Merge, &case))?,
        };
        writeln!(answers, "{answer}")?;
        answers.flush()?;
    }
    Ok(())
}

/// The formats that the kernel takes, each with the profile that it declares for it.
pub fn hello(kernel: &dyn Kernel) -> Result<Hello, Box<dyn Error>> {
    let mut profiles = BTreeMap::new();
    for format in Format::ALL.into_iter().filter(|&format| kernel.takes(format)) {
        // Written out in full, a profile replaces every field of its base.
        let mut profile = to_value(kernel.profile(format))?;
        profile["base"] = json!("standard");
        profiles.insert(format.to_string(), profile);
    }
    let name = kernel.summary().to_owned();
    let operations = vec![Operation::Forward, Operation::Backward, Operation::Merge];
    let (choices, guarantees) = (Choices::default(), Guarantees::default());
    Ok(Hello { protocol: PROTOCOL, name, profiles, operations, choices, guarantees })
}

/// What became of a case.
pub fn answer(kernel: &dyn Kernel, operation: Operation, case: &Files) -> Answer {
    let outcome =
        run(kernel, operation, case).unwrap_or_else(|error| Outcome::Failed(error.to_string()));
    Answer { id: case.id, outcome }
}

/// Reads the inputs, computes, and puts a new file in the place of the outputs file.
fn run(kernel: &dyn Kernel, operation: Operation, case: &Files) -> Result<Outcome, Box<dyn Error>> {
    case.problem.validate()?;
    let written = match operation {
        Operation::Forward => pass(kernel, case, false),
        Operation::Backward => pass(kernel, case, true),
        Operation::Merge => merge(kernel, case),
    }?;
    match written {
        Ok(written) => {
            write_sparse(&case.outputs, &written)?;
            Ok(Outcome::Done)
        }
        Err(unsupported) => Ok(Outcome::Unsupported(unsupported.to_string())),
    }
}

/// What a kernel gives, by names in the outputs file, or what it lacks.
type Written = Result<Vec<SparseTensor>, Unsupported>;

fn pass(kernel: &dyn Kernel, case: &Files, backward: bool) -> Result<Written, Box<dyn Error>> {
    let problem = &case.problem;
    let mut archive = Archive::open(&case.inputs)?;
    let inputs = tensors::inputs(problem, &mut archive)?;
    let lse_format = kernel.profile(problem.format).lse_format;
    let cotangents =
        backward.then(|| tensors::cotangents(problem, lse_format, &mut archive)).transpose()?;
    let computed = kernel.forward_stored(problem, &inputs).and_then(|outputs| {
        let mut written = tensors::outputs(problem, &outputs);
        if let Some(cotangents) = &cotangents {
            let gradients = kernel.backward_stored(problem, &inputs, &outputs, cotangents)?;
            written.extend(tensors::gradients(problem, &gradients));
        }
        Ok(written)
    });
    Ok(computed)
}

fn merge(kernel: &dyn Kernel, case: &Files) -> Result<Written, Box<dyn Error>> {
    let partials = tensors::partials(&mut Archive::open(&case.inputs)?)?;
    let lse_format = kernel.profile(case.problem.format).lse_format;
    partials.iter().try_for_each(|partial| partial.check(&case.problem, lse_format))?;
    let merged = kernel.merge(&case.problem, &partials);
    Ok(merged.map(|merged| {
        let lse = merged.lse.as_ref().map(|lse| SparseTensor::whole("lse", lse));
        [SparseTensor::whole("output", &merged.output)].into_iter().chain(lse).collect()
    }))
}
