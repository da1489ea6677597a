//! One answer to each request, around a kernel.

use std::collections::BTreeMap;
use std::error::Error;
use std::fs::File;
use std::io::{BufRead, Write};

use flashproof_conformance::adapter::Choices;
use flashproof_conformance::adapter::exec::protocol::{
    Answer, Files, Hello, Operation, Outcome, PROTOCOL, Request,
};
use flashproof_conformance::io::safetensors::{Archive, write};
use flashproof_kernels::{Kernel, Unsupported};
use flashproof_spec::format::Format;
use flashproof_spec::tensor::{Cotangents, Gradients, Inputs, Outputs, Tensor};
use serde_json::{json, to_value};

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
        };
        writeln!(answers, "{answer}")?;
        answers.flush()?;
    }
    Ok(())
}

/// The formats that the kernel takes, each with the profile that it declares for it.
pub fn hello(kernel: &dyn Kernel) -> Result<Hello, Box<dyn Error>> {
    let mut profiles = BTreeMap::new();
    for format in [Format::F64, Format::F32, Format::F16, Format::Bf16] {
        // Written out in full, a profile replaces every field of its base.
        let mut profile = to_value(kernel.profile(format))?;
        profile["base"] = json!("standard");
        profiles.insert(format.to_string(), profile);
    }
    let name = kernel.summary().to_owned();
    let operations = vec![Operation::Forward, Operation::Backward];
    Ok(Hello { protocol: PROTOCOL, name, profiles, operations, choices: Choices::default() })
}

/// What became of a case.
pub fn answer(kernel: &dyn Kernel, operation: Operation, case: &Files) -> Answer {
    let outcome =
        run(kernel, operation, case).unwrap_or_else(|error| Outcome::Failed(error.to_string()));
    Answer { id: case.id, outcome }
}

/// Reads the inputs, computes, and puts a new file in the place of the outputs file.
fn run(kernel: &dyn Kernel, operation: Operation, case: &Files) -> Result<Outcome, Box<dyn Error>> {
    let mut archive = Archive::open(&case.inputs)?;
    let inputs = Inputs {
        query: archive.tensor("query")?,
        key: archive.tensor("key")?,
        value: archive.tensor("value")?,
    };
    inputs.check(&case.problem)?;
    let cotangents = match operation {
        Operation::Forward => None,
        Operation::Backward => Some(cotangents(kernel, case, &mut archive)?),
    };
    match compute(kernel, case, &inputs, cotangents.as_ref()) {
        Ok((outputs, gradients)) => {
            write(&case.outputs, &named(&outputs, gradients.as_ref()), &BTreeMap::new())?;
            Ok(Outcome::Done)
        }
        Err(unsupported) => Ok(Outcome::Unsupported(unsupported.to_string())),
    }
}

fn cotangents(
    kernel: &dyn Kernel,
    case: &Files,
    archive: &mut Archive<File>,
) -> Result<Cotangents, Box<dyn Error>> {
    let lse = archive.contains("lse_gradient").then(|| archive.tensor("lse_gradient"));
    let cotangents =
        Cotangents { output: archive.tensor("output_gradient")?, lse: lse.transpose()? };
    cotangents.check(&case.problem, kernel.profile(case.problem.format).lse_format)?;
    Ok(cotangents)
}

fn compute(
    kernel: &dyn Kernel,
    case: &Files,
    inputs: &Inputs,
    cotangents: Option<&Cotangents>,
) -> Result<(Outputs, Option<Gradients>), Unsupported> {
    let outputs = kernel.forward(&case.problem, inputs)?;
    let gradients = cotangents
        .map(|cotangents| kernel.backward(&case.problem, inputs, &outputs, cotangents))
        .transpose()?;
    Ok((outputs, gradients))
}

fn named<'a>(
    outputs: &'a Outputs,
    gradients: Option<&'a Gradients>,
) -> Vec<(&'static str, &'a Tensor)> {
    let mut tensors = vec![("output", &outputs.output)];
    tensors.extend(outputs.lse.as_ref().map(|lse| ("lse", lse)));
    if let Some(Gradients { query, key, value }) = gradients {
        tensors.extend([
            ("query_gradient", query),
            ("key_gradient", key),
            ("value_gradient", value),
        ]);
    }
    tensors
}
