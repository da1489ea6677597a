//! The answer to judge, and the contract that it was given under.

use flashproof_spec::format::Format;
use flashproof_spec::problem::Problem;
use flashproof_spec::profile::Profile;
use flashproof_spec::tensor::{Cotangents, Gradients, Inputs, Outputs};
use serde_json::{Value, json};

use super::source::{LSE, OUTPUT, Source};
use super::{JudgeError, Names, Origin, Request, gradient};
use crate::adapter::exec::Declaration;
use crate::adapter::exec::protocol::PROTOCOL;
use crate::adapter::{self, Backward, Choices, Failure, Subject};

/// An answer, or why there is none.
pub(super) struct Answered {
    pub(super) name: String,
    pub(super) description: String,
    pub(super) choices: Choices,
    pub(super) profile: Profile,
    pub(super) passes: Result<Passes, Failure>,
}

/// What a kernel's passes gave.
pub(super) struct Passes {
    pub(super) outputs: Outputs,
    /// Upstream gradients and gradients, where there was a backward pass.
    pub(super) backward: Option<(Cotangents, Gradients)>,
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
                let mut subject = adapter::open(kernel, options)?;
                let profile = match profile {
                    Some(profile) => profile,
                    None => profile_of(subject.as_mut(), problem.format)?,
                };
                let names = &request.names;
                let cotangents =
                    gradient::cotangents(&mut [inputs_file], names, problem, &profile)?;
                Ok(Self::run(subject.as_mut(), profile, problem, inputs, cotangents))
            }
            Origin::File { outputs, choices } => {
                let mut outputs_file =
                    outputs.as_deref().map(|path| Source::open(path, request.order)).transpose()?;
                let names = &request.names;
                let source = outputs_file.as_mut().unwrap_or(inputs_file);
                let profile = match profile {
                    Some(profile) => profile,
                    None => profile_in(source, problem.format)?,
                };
                let outputs = read(source, names)?;
                outputs.check(problem, profile.lse_format)?;
                let mut files: Vec<_> =
                    [inputs_file].into_iter().chain(&mut outputs_file).collect();
                let backward = gradient::backward(&mut files, names, problem, &profile)?;
                let name = match &request.from {
                    Origin::File { outputs: Some(path), .. } => path,
                    _ => &request.inputs,
                };
                Ok(Self {
                    name: name.display().to_string(),
                    description: "outputs from a file".to_owned(),
                    choices: *choices,
                    profile,
                    passes: Ok(Passes { outputs, backward }),
                })
            }
        }
    }

    fn run(
        subject: &mut dyn Subject,
        profile: Profile,
        problem: &Problem,
        inputs: &Inputs,
        cotangents: Option<Cotangents>,
    ) -> Self {
        let passes = match cotangents {
            None => {
                subject.forward(problem, inputs).map(|outputs| Passes { outputs, backward: None })
            }
            Some(cotangents) => subject.backward(problem, inputs, &cotangents).map(
                |Backward { outputs, gradients }| Passes {
                    outputs,
                    backward: Some((cotangents, gradients)),
                },
            ),
        };
        Self {
            name: subject.name().to_owned(),
            description: subject.description().to_owned(),
            choices: subject.choices(),
            profile,
            passes,
        }
    }
}

fn profile_of(subject: &mut dyn Subject, format: Format) -> Result<Profile, JudgeError> {
    subject.profile(format).map_err(|failure| JudgeError::NoProfile {
        subject: subject.name().to_owned(),
        format,
        failure,
    })
}

/// The metadata entry that holds the profile of the kernel whose answer a file holds.
const PROFILE: &str = "profile";

/// The profile in a file's metadata, in the forms that a worker declares one; else `standard`.
fn profile_in(source: &mut Source, format: Format) -> Result<Profile, JudgeError> {
    let origin = format!("'{}', metadata entry '{PROFILE}'", source.file());
    source.archive().metadata().get(PROFILE).map_or_else(
        || Ok(Profile::standard(format)),
        |text| {
            declared(&origin, serde_json::from_str(text).map_err(|error| error.to_string()), format)
        },
    )
}

fn read(source: &mut Source, names: &Names) -> Result<Outputs, JudgeError> {
    let output = source.activations(names.output.as_deref(), OUTPUT)?;
    let Some(output) = output else {
        let (file, tried) = (source.file().to_owned(), OUTPUT.join(" or "));
        return Err(JudgeError::NothingToJudge { file, tried });
    };
    Ok(Outputs { output, lse: source.optional(names.lse.as_deref(), LSE, 3)? })
}

/// A profile by name, or from a JSON file, in the forms that a worker declares one.
fn profile(text: &str, format: Format) -> Result<Profile, JudgeError> {
    let json = match text {
        "standard" | "dense" => Ok(Value::String(text.to_owned())),
        path => std::fs::read_to_string(path)
            .map_err(|error| error.to_string())
            .and_then(|json| serde_json::from_str(&json).map_err(|error| error.to_string())),
    };
    declared(text, json, format)
}

/// A profile as a worker declares one; `origin` is where it comes from.
fn declared(
    origin: &str,
    json: Result<Value, String>,
    format: Format,
) -> Result<Profile, JudgeError> {
    let failed = |reason: String| JudgeError::Profile { text: origin.to_owned(), reason };
    let profiles = json!({ format.name(): json.map_err(failed)? });
    let hello = json!({ "protocol": PROTOCOL, "name": origin, "profiles": profiles });
    let mut declaration =
        Declaration::parse(&hello.to_string()).map_err(|error| failed(error.to_string()))?;
    declaration.profiles.remove(&format).ok_or_else(|| failed(format!("it has none for {format}")))
}
