//! The answer to judge, and the contract that it was given under.

use flashproof_spec::format::Format;
use flashproof_spec::problem::Problem;
use flashproof_spec::profile::Profile;
use flashproof_spec::tensor::{Inputs, Outputs};
use serde_json::{Value, json};

use super::source::{LSE, OUTPUT, Source};
use super::{JudgeError, Names, Origin, Request};
use crate::adapter::exec::Declaration;
use crate::adapter::exec::protocol::PROTOCOL;
use crate::adapter::{self, Choices, Failure};

/// An answer, or why there is none.
pub(super) struct Answered {
    pub(super) name: String,
    pub(super) description: String,
    pub(super) choices: Choices,
    pub(super) profile: Profile,
    pub(super) outputs: Result<Outputs, Failure>,
}

impl Answered {
    /// Reads the answer from its file, or runs the kernel.
    pub(super) fn obtain(
        request: &Request,
        inputs_file: &mut Source,
        problem: &Problem,
        inputs: &Inputs,
    ) -> Result<Self, JudgeError> {
        let profile =
            request.profile.as_deref().map(|it| profile(it, problem.format)).transpose()?;
        match &request.from {
            Origin::Kernel { kernel, options } => {
                Self::run(kernel, options, profile, problem, inputs)
            }
            Origin::File { outputs, choices } => {
                let profile = profile.unwrap_or_else(|| Profile::standard(problem.format));
                let outputs = match outputs {
                    None => read(inputs_file, &request.names)?,
                    Some(path) => read(&mut Source::open(path)?, &request.names)?,
                };
                outputs.check(problem, profile.lse_format)?;
                let name = match &request.from {
                    Origin::File { outputs: Some(path), .. } => path,
                    _ => &request.inputs,
                };
                Ok(Self {
                    name: name.display().to_string(),
                    description: "outputs from a file".to_owned(),
                    choices: *choices,
                    profile,
                    outputs: Ok(outputs),
                })
            }
        }
    }

    fn run(
        kernel: &str,
        options: &adapter::Options,
        profile: Option<Profile>,
        problem: &Problem,
        inputs: &Inputs,
    ) -> Result<Self, JudgeError> {
        let mut subject = adapter::open(kernel, options)?;
        let name = subject.name().to_owned();
        let profile =
            match profile {
                Some(profile) => profile,
                None => subject.profile(problem.format).map_err(|failure| {
                    JudgeError::NoProfile { subject: name.clone(), format: problem.format, failure }
                })?,
            };
        Ok(Self {
            description: subject.description().to_owned(),
            choices: subject.choices(),
            outputs: subject.forward(problem, inputs),
            name,
            profile,
        })
    }
}

fn read(source: &mut Source, names: &Names) -> Result<Outputs, JudgeError> {
    let output = source.optional(names.output.as_deref(), OUTPUT, 4)?;
    let Some(output) = output else {
        let (file, tried) = (source.file().to_owned(), OUTPUT.join(" or "));
        return Err(JudgeError::NothingToJudge { file, tried });
    };
    Ok(Outputs { output, lse: source.optional(names.lse.as_deref(), LSE, 3)? })
}

/// A profile by name, or from a JSON file, in the forms that a worker declares one.
fn profile(text: &str, format: Format) -> Result<Profile, JudgeError> {
    let failed = |reason: String| JudgeError::Profile { text: text.to_owned(), reason };
    let declared = match text {
        "standard" | "dense" => Value::String(text.to_owned()),
        path => {
            let json = std::fs::read_to_string(path).map_err(|error| failed(error.to_string()))?;
            serde_json::from_str(&json).map_err(|error| failed(error.to_string()))?
        }
    };
    let hello =
        json!({ "protocol": PROTOCOL, "name": text, "profiles": { format.name(): declared } });
    let mut declaration =
        Declaration::parse(&hello.to_string()).map_err(|error| failed(error.to_string()))?;
    declaration.profiles.remove(&format).ok_or_else(|| failed(format!("it has none for {format}")))
}
