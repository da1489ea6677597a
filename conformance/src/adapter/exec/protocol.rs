//! The messages of the worker protocol (`PROTOCOL.md`): one JSON object a line.

use std::collections::BTreeMap;
use std::path::PathBuf;

use flashproof_spec::problem::Problem;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::adapter::{Choices, Guarantees};

/// The version of the protocol that this program speaks.
pub const PROTOCOL: u64 = 1;

/// What the program asks of a worker.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "op", rename_all = "kebab-case")]
pub enum Request {
    /// The first request: who are you? Answered by a [`Hello`].
    Hello {
        /// [`PROTOCOL`].
        protocol: u64,
    },
    /// Compute attention. Answered by an [`Answer`].
    Forward(Files),
    /// Compute attention, and from its output and LSE the gradients. Answered by an [`Answer`].
    Backward(Files),
    /// Merge finished partial results. Answered by an [`Answer`].
    Merge(Files),
}

/// What a worker can be asked to compute.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Operation {
    /// [`Request::Forward`].
    Forward,
    /// [`Request::Backward`].
    Backward,
    /// [`Request::Merge`].
    Merge,
}

/// One case, and the files that it lies in.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Files {
    /// To be repeated in the answer.
    pub id: u64,
    /// What to compute, and where its tensors stand in their buffers.
    pub problem: Problem,
    /// The softmax scale as the nearest `f64`.
    pub scale: f64,
    /// Safetensors file of `query`, `key` and `value`, of `bias` and `sink` where the problem has them,
    /// and for the backward pass of `output_gradient` and, where the loss depends on the LSE,
    /// `lse_gradient`; for a merge of `outputs` and `lses`. Not to be written to.
    pub inputs: PathBuf,
    /// Safetensors file of `output` and `lse`, and for the backward pass of `query_gradient`,
    /// `key_gradient` and `value_gradient`, and of `bias_gradient` and `sink_gradient` where the
    /// problem has those tensors; all NaN, to be filled in or replaced.
    pub outputs: PathBuf,
}

/// How a worker introduces itself.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Hello {
    /// The version of the protocol that the worker speaks.
    pub protocol: u64,
    /// What the kernel is, for people: a name, a version, a device.
    pub name: String,
    /// The number formats that the kernel takes, each with the profile it declares for it: the name
    /// of a profile, or an object of `base` and the fields that differ from that one.
    pub profiles: BTreeMap<String, Value>,
    /// What it can be asked to compute.
    #[serde(default = "forward_alone")]
    pub operations: Vec<Operation>,
    /// The options that it declares where the specification leaves a choice.
    #[serde(default)]
    pub choices: Choices,
    /// What it promises of its answers beyond their bounds.
    #[serde(default)]
    pub guarantees: Guarantees,
}

fn forward_alone() -> Vec<Operation> {
    vec![Operation::Forward]
}

impl Request {
    /// The request for that operation.
    #[must_use]
    pub fn new(operation: Operation, files: Files) -> Self {
        match operation {
            Operation::Forward => Self::Forward(files),
            Operation::Backward => Self::Backward(files),
            Operation::Merge => Self::Merge(files),
        }
    }
}

impl Operation {
    /// The name by which it is asked for.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Forward => "forward",
            Self::Backward => "backward",
            Self::Merge => "merge",
        }
    }
}

/// A worker's answer to a case.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "Fields", try_from = "Fields")]
pub struct Answer {
    /// The request's.
    pub id: u64,
    /// What became of it.
    pub outcome: Outcome,
}

/// What became of a case.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The outputs file holds the outputs.
    Done,
    /// The kernel does not offer what the case asks for, and why.
    Unsupported(String),
    /// The kernel failed, and why.
    Failed(String),
}

/// An answer as it is written: an id and one of three fields.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Fields {
    id: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    ok: Option<bool>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    unsupported: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    error: Option<String>,
}

impl From<Answer> for Fields {
    fn from(answer: Answer) -> Self {
        let fields = Self { id: answer.id, ..Self::default() };
        match answer.outcome {
            Outcome::Done => Self { ok: Some(true), ..fields },
            Outcome::Unsupported(why) => Self { unsupported: Some(why), ..fields },
            Outcome::Failed(why) => Self { error: Some(why), ..fields },
        }
    }
}

impl TryFrom<Fields> for Answer {
    type Error = &'static str;

    fn try_from(fields: Fields) -> Result<Self, &'static str> {
        let outcome = match (fields.ok, fields.unsupported, fields.error) {
            (Some(true), None, None) => Outcome::Done,
            (None, Some(why), None) => Outcome::Unsupported(why),
            (None, None, Some(why)) => Outcome::Failed(why),
            _ => {
                return Err(
                    "expected \"id\" and one of \"ok\": true, \"unsupported\": WHY, \"error\": WHY",
                );
            }
        };
        Ok(Self { id: fields.id, outcome })
    }
}
