//! A manifest that was understood: every name in it is known, every expression can be computed.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use flashproof_spec::format::Format;
use flashproof_spec::profile::Profile;
use serde::de::DeserializeOwned;

use super::emulator::{Numerics, USUAL_POLICIES};
use super::expression::{Expression, Expressions};
use super::padded::Padding;
use super::reader::{Reader, format_of, known, value};
use super::text::{FormatText, Initial, ManifestText};
use crate::adapter::Failure;
use crate::adapter::exec::protocol::Operation;
use crate::adapter::exec::{Declaration, HelloError};

/// A manifest that tells of no kernel that could be launched.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("manifest '{file}': {fault}")]
pub struct ManifestError {
    /// The file.
    pub file: String,
    /// What is wrong with it.
    pub fault: ManifestFault,
}

/// What is wrong with a manifest.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[allow(missing_docs)] // each variant's message is its documentation
pub enum ManifestFault {
    #[error("cannot be read: {0}")]
    Unreadable(String),
    #[error("{0}")]
    Toml(String),
    #[error(transparent)]
    Declaration(#[from] HelloError),
    #[error("{key} is '{found}': expected {expected}")]
    Value { key: String, found: String, expected: String },
    #[error("{key} is '{found}', which comes to nothing: {reason}")]
    Expression { key: String, found: String, reason: String },
    #[error("the file '{name}' that it includes: {fault}")]
    Included { name: String, fault: Box<ManifestFault> },
    #[error("{key}: {reason}")]
    Module { key: String, reason: String },
}

pub(super) struct Manifest {
    /// The directory that paths in it start from.
    pub(super) directory: PathBuf,
    pub(super) declaration: Declaration,
    /// Profiles under one policy, where they are declared apart.
    under: BTreeMap<String, BTreeMap<Format, Profile>>,
    pub(super) policies: Vec<(String, Numerics)>,
    pub(super) supports: Supports,
    pub(super) padding: Option<Padding>,
    pub(super) lets: Vec<(String, Expression)>,
    /// How tensors are stored that are not as the problem has them.
    pub(super) tensors: BTreeMap<String, Stored>,
    pub(super) scratch: Vec<(String, Scratch)>,
    pub(super) forward: Vec<Launch>,
    pub(super) backward: Vec<Launch>,
    pub(super) expressions: Expressions,
}

/// What a problem may have.
pub(super) struct Supports {
    pub(super) rules: BTreeSet<String>,
    pub(super) modifiers: BTreeSet<String>,
    pub(super) layouts: BTreeSet<String>,
    /// What must hold of its numbers, and what it is called where it does not.
    pub(super) conditions: Vec<(String, Expression, String)>,
}

/// How a tensor is stored.
#[derive(Clone, Copy, Default)]
pub(super) struct Stored {
    /// `None`: as the problem has it.
    pub(super) format: Option<Format>,
    /// Whether it is row-major in its own shape, whatever the problem's layout.
    pub(super) is_contiguous: bool,
    pub(super) initial: Initial,
}

pub(super) struct Scratch {
    pub(super) element_bytes: usize,
    pub(super) elements: Expression,
    pub(super) initial: Initial,
    pub(super) when: Option<Expression>,
}

pub(super) struct Launch {
    /// Where in the manifest it stands.
    pub(super) key: String,
    pub(super) when: Option<Expression>,
    pub(super) ptx: Template,
    pub(super) entry: Template,
    pub(super) grid: Vec<Expression>,
    pub(super) block: Vec<Expression>,
    pub(super) shared: Expression,
    pub(super) arguments: Vec<Argument>,
}

pub(super) enum Argument {
    /// The name of a buffer, or `null`.
    Pointer(String),
    Number(NumberType, Expression),
    Struct(Vec<Argument>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NumberType {
    I32,
    U32,
    I64,
    U64,
    F32,
    F64,
}

/// A text with expressions in braces.
pub(super) struct Template(pub(super) Vec<Piece>);

pub(super) enum Piece {
    Text(String),
    Expression(Expression),
}

impl Template {
    /// The text, where it holds no expression.
    pub(super) fn constant(&self) -> Option<String> {
        let text = |piece: &Piece| match piece {
            Piece::Text(text) => Some(text.clone()),
            Piece::Expression(_) => None,
        };
        self.0.iter().map(text).collect()
    }
}

/// Arrays of one `int` a batch member.
pub(super) const ARRAYS: [&str; 5] =
    ["query_lengths", "key_lengths", "key_starts", "query_offsets", "key_offsets"];

/// The tensors that a kernel writes.
const WRITTEN: [&str; 5] = ["output", "lse", "query_gradient", "key_gradient", "value_gradient"];

impl Manifest {
    /// Reads a manifest.
    pub(super) fn read(file: &Path) -> Result<Self, ManifestError> {
        let name = file.display().to_string();
        let error = |fault| ManifestError { file: name.clone(), fault };
        let text = std::fs::read_to_string(file)
            .map_err(|fault| error(ManifestFault::Unreadable(fault.to_string())))?;
        let directory = file.parent().map_or_else(PathBuf::new, Path::to_owned);
        Self::parse(&text, directory).map_err(error)
    }

    /// Understands the text of a manifest.
    pub(super) fn parse(text: &str, directory: PathBuf) -> Result<Self, ManifestFault> {
        let text: ManifestText = parsed(text)?;
        let formats = text.formats;
        let declared = |policy: Option<&str>| {
            let profile = |format: &FormatText| {
                let apart = policy.and_then(|policy| format.policies.get(policy));
                apart.unwrap_or(&format.profile).clone()
            };
            let profiles = formats.iter().map(|(name, format)| (name.clone(), profile(format)));
            let (operations, choices) = (text.operations.clone(), text.choices);
            let profiles = profiles.collect();
            Declaration::of(&text.name, &profiles, operations, choices, text.guarantees)
        };
        let declaration = declared(None)?;
        let mut under = BTreeMap::new();
        for (format, FormatText { policies, .. }) in &formats {
            for policy in policies.keys() {
                known(&format!("formats.{format}.policies"), policy, &Numerics::names())?;
                under.insert(policy.clone(), declared(Some(policy))?.profiles);
            }
        }
        if declaration.operations.contains(&Operation::Merge) {
            return Err(value("operations", "merge", &["forward", "backward"]));
        }
        let mut reader = Reader::new();
        let lets = reader.lets(text.lets.0)?;
        let supports = reader.supports(text.supports)?;
        let tensors = text
            .tensors
            .into_iter()
            .map(|(name, stored)| {
                known(&format!("tensors.{name}"), &name, &WRITTEN)?;
                let key = format!("tensors.{name}.format");
                let format = stored.format.map(|format| format_of(&key, &format)).transpose()?;
                let layout = ("lse", "contiguous");
                if let Some(found) = &stored.layout
                    && (name.as_str(), found.as_str()) != layout
                {
                    let (key, found) = (format!("tensors.{name}.layout"), found.clone());
                    let expected = "contiguous, and of the LSE alone".to_owned();
                    return Err(ManifestFault::Value { key, found, expected });
                }
                let is_contiguous = stored.layout.is_some();
                Ok((name, Stored { format, is_contiguous, initial: stored.initial }))
            })
            .collect::<Result<_, ManifestFault>>()?;
        let scratch = reader.scratch(text.scratch.0)?;
        for (index, name) in text.absent.into_iter().enumerate() {
            reader.name_buffer(&format!("absent[{index}]"), &name)?;
        }
        reader.structs = text.structs;
        if let Some(name) = text.include {
            reader
                .include(&directory.join(&name))
                .map_err(|fault| ManifestFault::Included { name, fault: Box::new(fault) })?;
        }
        let forward = reader.launches("forward", text.forward)?;
        let backward = reader.launches("backward", text.backward)?;
        for (operation, launches) in
            [(Operation::Forward, &forward), (Operation::Backward, &backward)]
        {
            let (name, declared) = (operation.name(), declaration.operations.contains(&operation));
            // A backward pass starts from what a forward pass has stored.
            let needed = declared || (operation == Operation::Forward);
            if launches.is_empty() == needed {
                let (found, expected) = if needed {
                    ("without launches", "at least one")
                } else {
                    ("launched", "it among the operations")
                };
                let (key, found) = (name.to_owned(), found.to_owned());
                let expected = expected.to_owned();
                return Err(ManifestFault::Value { key, found, expected });
            }
        }
        let policies = policies(text.policies)?;
        if text.pad.is_some() && supports.layouts.iter().any(|layout| layout != "contiguous") {
            return Err(ManifestFault::Value {
                key: "supports.layouts".to_owned(),
                found: supports.layouts.iter().cloned().collect::<Vec<_>>().join(", "),
                expected: "contiguous alone, since heads are padded".to_owned(),
            });
        }
        let expressions = reader.expressions;
        Ok(Self {
            directory,
            declaration,
            under,
            policies,
            supports,
            padding: text.pad,
            lets,
            tensors,
            scratch,
            forward,
            backward,
            expressions,
        })
    }

    /// What is declared of a format, under a policy where there are some.
    pub(super) fn profile(&self, format: Format, policy: Option<&str>) -> Result<Profile, Failure> {
        let under = policy.and_then(|policy| self.under.get(policy)?.get(&format));
        under.map_or_else(|| self.declaration.profile(format), |profile| Ok(profile.clone()))
    }

    /// Whether the LSE, and the gradient of it, is row-major in its own shape.
    pub(super) fn has_contiguous_lse(&self) -> bool {
        self.tensors.get("lse").is_some_and(|stored| stored.is_contiguous)
    }

    /// The launches of both passes.
    pub(super) fn launches(&self) -> impl Iterator<Item = &Launch> {
        self.forward.iter().chain(&self.backward)
    }
}

pub(super) fn parsed<T: DeserializeOwned>(text: &str) -> Result<T, ManifestFault> {
    toml::from_str(text)
        .map_err(|error| ManifestFault::Toml(error.to_string().trim_end().to_owned()))
}

fn policies(named: Option<Vec<String>>) -> Result<Vec<(String, Numerics)>, ManifestFault> {
    let named = named.unwrap_or_else(|| USUAL_POLICIES.map(str::to_owned).to_vec());
    if named.is_empty() {
        return Err(value("policies", "[]", &Numerics::names()));
    }
    let find = |(index, name): (usize, String)| match Numerics::find(&name) {
        Some(numerics) => Ok((name, numerics)),
        None => Err(value(&format!("policies[{index}]"), &name, &Numerics::names())),
    };
    named.into_iter().enumerate().map(find).collect()
}

impl NumberType {
    /// Its name in manifests.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::I32 => "i32",
            Self::U32 => "u32",
            Self::I64 => "i64",
            Self::U64 => "u64",
            Self::F32 => "f32",
            Self::F64 => "f64",
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const MANIFEST: &str = include_str!("../../../manifests/triton_sm80.toml");

    fn parsed(text: &str) -> Result<Manifest, ManifestFault> {
        Manifest::parse(text, PathBuf::new())
    }

    /// Lines, words and characters that a manifest is made of, and others.
    fn parts() -> impl Strategy<Value = String> {
        let words: Vec<String> = MANIFEST.split_whitespace().map(str::to_owned).collect();
        let lines: Vec<String> = MANIFEST.lines().map(|line| format!("\n{line}\n")).collect();
        prop_oneof![
            prop::sample::select(words),
            prop::sample::select(lines),
            "\\PC{0,4}",
            Just("[let]\nscale = 1".to_owned()),
            Just("{ struct = \"p\" }\n[structs.p]\nmembers = []".to_owned()),
            Just("\"{{query_len\"".to_owned()),
            Just("9223372036854775808".to_owned()),
        ]
    }

    proptest! {
        /// A manifest with parts in place of others is read or refused.
        #[test]
        fn no_manifest_makes_it_panic(
            changes in prop::collection::vec((any::<prop::sample::Index>(), 0..40_usize, parts()), 1..6)
        ) {
            let mut text: Vec<char> = MANIFEST.chars().collect();
            for (at, length, part) in changes {
                let at = at.index(text.len() + 1);
                let past = (at + length).min(text.len());
                text.splice(at..past, part.chars());
            }
            let text: String = text.into_iter().collect();
            if let Err(fault) = parsed(&text) {
                prop_assert!(!fault.to_string().is_empty());
            }
        }
    }

    #[test]
    fn the_manifest_that_is_changed_is_read() {
        assert_eq!(parsed(MANIFEST).err(), None);
    }
}
