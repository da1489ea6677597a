//! `exec:COMMAND`: a persistent worker process in any language (`PROTOCOL.md`).

mod declaration;
mod exchange;
mod image;
mod process;
pub mod protocol;
mod text;

use std::path::Path;

use flashproof_spec::format::Format;
use flashproof_spec::layout::Layout;
use flashproof_spec::problem::Problem;
use flashproof_spec::profile::Profile;
use flashproof_spec::tensor::{Cotangents, Inputs, Outputs};
use serde_json::Value;
use tempfile::TempDir;

pub use declaration::{Declaration, HelloError};

use super::{
    AnswerError, Backward, Choices, Failure, Guarantees, Options, Subject, check_case,
    check_cotangents, check_partials,
};
use exchange::{Exchange, Task};
use process::{MAX_LINE_BYTES, Process, Silence};
use protocol::{Answer, Files, Outcome, PROTOCOL, Request};
use text::{explain, quote};

/// A worker process behind the adapter interface.
///
/// The process lives from case to case. One that crashes, hangs or loses the thread of the protocol
/// is killed, costs the case that it was at, and is started anew for the next.
pub struct Exec {
    name: String,
    launch: Launch,
    declaration: Declaration,
    process: Option<Process>,
    directory: TempDir,
    options: Options,
    last_id: u64,
}

/// A command and its words.
struct Launch {
    command: String,
    words: Vec<String>,
}

/// The command does not start a worker.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error(
    "'{command}' is no flashproof worker: {fault} (expected the first line of its standard output \
     to be such as {HELLO_EXAMPLE}; see PROTOCOL.md)"
)]
pub struct StartError {
    /// The command, as it was given.
    pub command: String,
    /// What it did.
    pub fault: StartFault,
}

/// What a command did instead of starting a worker.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[allow(missing_docs)] // each variant's message is its documentation
pub enum StartFault {
    #[error("it has an unclosed quotation mark, or ends in a backslash")]
    Words,
    #[error("there is no program to start")]
    Empty,
    #[error("it can not be started: {0}")]
    Spawn(String),
    #[error("it ended before it answered: {0}")]
    Ended(String),
    #[error("it did not answer within {seconds} s")]
    TimedOut { seconds: f64 },
    #[error("it writes a line of more than {MAX_LINE_BYTES} bytes")]
    TooLong,
    #[error(transparent)]
    Hello(#[from] HelloError),
    #[error("it declares otherwise than when it was first started")]
    Redeclared,
    #[error("there is no directory to exchange tensors in: {0}")]
    Directory(String),
}

const HELLO_EXAMPLE: &str =
    r#"{"protocol": 1, "name": "my kernel", "profiles": {"f32": "standard"}}"#;

impl Exec {
    /// Starts the worker and lets it introduce itself. The command is split into words as a shell
    /// would, quotation marks and backslashes included; nothing else of a shell is there.
    ///
    /// # Errors
    /// [`StartError`] names the command, what it did and what was expected.
    pub fn start(command: &str, options: &Options) -> Result<Self, StartError> {
        let launch = Launch::parse(command)?;
        let (process, declaration) = launch.start(options)?;
        let directory = tempfile::Builder::new()
            .prefix("flashproof-")
            .tempdir()
            .map_err(|error| launch.error(StartFault::Directory(error.to_string())))?;
        Ok(Self {
            name: format!("exec:{command}"),
            launch,
            declaration,
            process: Some(process),
            directory,
            options: *options,
            last_id: 0,
        })
    }

    /// What the worker declares of its kernel.
    #[must_use]
    pub const fn declaration(&self) -> &Declaration {
        &self.declaration
    }

    /// The directory that holds the files of a case while it runs.
    #[must_use]
    pub fn directory(&self) -> &Path {
        self.directory.path()
    }

    /// The process, started anew where the last one had to be given up.
    fn running(&mut self) -> Result<&mut Process, Failure> {
        let process = match self.process.take() {
            Some(process) => process,
            None => self.restart().map_err(|error| {
                Failure::Crashed(format!("could not be started again: {error}"))
            })?,
        };
        Ok(self.process.insert(process))
    }

    fn restart(&self) -> Result<Process, StartError> {
        let (process, declaration) = self.launch.start(&self.options)?;
        if declaration == self.declaration {
            Ok(process)
        } else {
            Err(self.launch.error(StartFault::Redeclared))
        }
    }

    /// Puts a case to the worker, and gives the files that it says it has dealt with.
    fn pass<'a>(&mut self, problem: &'a Problem, task: Task<'_>) -> Result<Exchange<'a>, Failure> {
        if let Task::Forward(inputs) | Task::Backward(inputs, _) = task {
            check_case(problem, inputs)?;
        }
        let operation = task.operation();
        if !self.declaration.operations.contains(&operation) {
            let name = operation.name();
            return Err(Failure::Unsupported(format!("{name} is not among its operations")));
        }
        let lse_format = self.profile(problem.format)?.lse_format;
        match task {
            Task::Forward(_) => {}
            Task::Backward(_, cotangents) => check_cotangents(problem, cotangents, lse_format)?,
            Task::Merge(partials) => check_partials(problem, partials, lse_format)?,
        }
        self.last_id += 1;
        let (id, directory) = (self.last_id, self.directory.path());
        let exchange = Exchange::prepare(directory, id, problem, task, lse_format)?;
        let files = Files {
            id,
            problem: problem.clone(),
            scale: problem.scale_f64(),
            inputs: exchange.inputs_path.clone(),
            outputs: exchange.outputs_path.clone(),
        };
        match self.ask(&Request::new(operation, files), id) {
            Ok(Outcome::Done) => Ok(exchange),
            Ok(Outcome::Unsupported(why)) => Err(Failure::Unsupported(explain(&why))),
            Ok(Outcome::Failed(why)) => Err(Failure::Reported(explain(&why))),
            Err(failure) => {
                // Whatever it says next would be to a question that nobody asked any more.
                if let Some(process) = self.process.take() {
                    process.kill();
                }
                Err(failure)
            }
        }
    }

    fn ask(&mut self, request: &Request, id: u64) -> Result<Outcome, Failure> {
        let line = serde_json::to_string(request)
            .map_err(|error| Failure::Environment(error.to_string()))?;
        let limit = self.options.case_limit;
        match self.running()?.ask(line, limit) {
            Ok(line) => Ok(parse_answer(&line, id)?),
            Err(Silence::Ended(how)) => Err(Failure::Crashed(how)),
            Err(Silence::TimedOut) => Err(Failure::TimedOut { seconds: limit.as_secs_f64() }),
            Err(Silence::TooLong) => {
                Err(Failure::Malformed(AnswerError::TooLong { limit: MAX_LINE_BYTES }))
            }
        }
    }
}

impl Subject for Exec {
    fn name(&self) -> &str {
        &self.name
    }

    fn description(&self) -> &str {
        &self.declaration.name
    }

    fn profile(&mut self, format: Format) -> Result<Profile, Failure> {
        self.declaration.profile(format)
    }

    fn choices(&self) -> Choices {
        self.declaration.choices
    }

    fn guarantees(&self) -> Guarantees {
        self.declaration.guarantees
    }

    fn forward(&mut self, problem: &Problem, inputs: &Inputs) -> Result<Outputs, Failure> {
        self.pass(problem, Task::Forward(inputs))?.outputs()
    }

    fn backward(
        &mut self,
        problem: &Problem,
        inputs: &Inputs,
        cotangents: &Cotangents,
    ) -> Result<Backward, Failure> {
        self.pass(problem, Task::Backward(inputs, cotangents))?.backward()
    }

    fn merge(&mut self, problem: &Problem, partials: &[Outputs]) -> Result<Outputs, Failure> {
        let dense = Problem { layout: Layout::Contiguous, ..problem.clone() };
        self.pass(&dense, Task::Merge(partials))?.outputs()
    }
}

impl Launch {
    fn parse(command: &str) -> Result<Self, StartError> {
        let split = shlex::split(command).ok_or(StartFault::Words);
        let words = split.and_then(|words| match words.first() {
            Some(program) if !program.is_empty() => Ok(words),
            _ => Err(StartFault::Empty),
        });
        match words {
            Ok(words) => Ok(Self { command: command.to_owned(), words }),
            Err(fault) => Err(StartError { command: command.to_owned(), fault }),
        }
    }

    fn start(&self, options: &Options) -> Result<(Process, Declaration), StartError> {
        let limit = options.start_limit;
        let mut process = Process::start(&self.words)
            .map_err(|error| self.error(StartFault::Spawn(error.to_string())))?;
        let hello = serde_json::json!(Request::Hello { protocol: PROTOCOL }).to_string();
        let declared = match process.ask(hello, limit) {
            Ok(line) => Declaration::parse(&line).map_err(StartFault::from),
            Err(Silence::Ended(how)) => Err(StartFault::Ended(how)),
            Err(Silence::TimedOut) => Err(StartFault::TimedOut { seconds: limit.as_secs_f64() }),
            Err(Silence::TooLong) => Err(StartFault::TooLong),
        };
        match declared {
            Ok(declaration) => Ok((process, declaration)),
            Err(fault) => {
                process.kill();
                Err(self.error(fault))
            }
        }
    }

    fn error(&self, fault: StartFault) -> StartError {
        StartError { command: self.command.clone(), fault }
    }
}

/// Reads an answer to request `id`.
///
/// # Errors
/// [`AnswerError`] says what the line is instead.
pub fn parse_answer(line: &str, id: u64) -> Result<Outcome, AnswerError> {
    let value: Value =
        serde_json::from_str(line).map_err(|_| AnswerError::NotJson { found: quote(line) })?;
    let answer: Answer = serde_json::from_value(value).map_err(|error| {
        AnswerError::NotAnAnswer { found: quote(line), reason: error.to_string() }
    })?;
    if answer.id != id {
        return Err(AnswerError::WrongId { found: answer.id, expected: id });
    }
    Ok(answer.outcome)
}
