//! A manifest that was understood: every name in it is known, every expression can be computed.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use flashproof_spec::format::Format;
use flashproof_spec::problem::Problem;
use serde::de::DeserializeOwned;

use super::emulator::{Numerics, USUAL_POLICIES};
use super::expression::{Expression, Expressions, Names, Value};
use super::padded::Padding;
use super::text::{
    ArgumentText, IncludedText, Initial, LaunchText, ManifestText, Number, ScratchText, StructText,
    SupportsText,
};
use super::variables::{Circumstances, LAYOUTS, Masked, PLACED, RULES, names_of};
use crate::adapter::exec::protocol::Operation;
use crate::adapter::exec::{Declaration, HelloError};
use crate::io::safetensors::dtype_of;

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

/// What changes scores, weights or the loss, and has numbers or pointers for it.
const MODIFIERS: [&str; 2] = ["softcap", "lse-gradient"];

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
        let declared = text.formats.into_iter().map(|(name, format)| (name, format.profile));
        let declaration = Declaration::of(
            &text.name,
            &declared.collect(),
            text.operations,
            text.choices,
            text.guarantees,
        )?;
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

    /// Whether the LSE, and the gradient of it, is row-major in its own shape.
    pub(super) fn has_contiguous_lse(&self) -> bool {
        self.tensors.get("lse").is_some_and(|stored| stored.is_contiguous)
    }

    /// The launches of both passes.
    pub(super) fn launches(&self) -> impl Iterator<Item = &Launch> {
        self.forward.iter().chain(&self.backward)
    }
}

fn parsed<T: DeserializeOwned>(text: &str) -> Result<T, ManifestFault> {
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

/// Reads expressions and references, knowing the names so far.
struct Reader {
    expressions: Expressions,
    names: Names,
    buffers: BTreeSet<String>,
    structs: BTreeMap<String, StructText>,
}

impl Reader {
    fn new() -> Self {
        let any = Problem::new(Format::F32, 1, 1, 1);
        let about = Circumstances { has_lse_gradient: false, aligned: false };
        let buffers = PLACED.iter().map(|(name, _)| *name).chain(ARRAYS).chain(["null"]);
        Self {
            expressions: Expressions::new(),
            names: names_of(&any, &any, &Masked::default(), about),
            buffers: buffers.map(str::to_owned).collect(),
            structs: BTreeMap::new(),
        }
    }

    fn include(&mut self, file: &Path) -> Result<(), ManifestFault> {
        let text = std::fs::read_to_string(file)
            .map_err(|fault| ManifestFault::Unreadable(fault.to_string()))?;
        for (name, included) in parsed::<IncludedText>(&text)?.structs {
            if self.structs.contains_key(&name) {
                let expected = "a name that the manifest has not".to_owned();
                return Err(ManifestFault::Value {
                    key: "structs".to_owned(),
                    found: name,
                    expected,
                });
            }
            self.structs.insert(name, included);
        }
        Ok(())
    }

    fn expression(&self, key: &str, number: &Number) -> Result<Expression, ManifestFault> {
        let found = number.text();
        self.expressions.read(&found, &self.names).map_err(|reason| ManifestFault::Expression {
            key: key.to_owned(),
            found,
            reason,
        })
    }

    fn lets(
        &mut self,
        lets: Vec<(String, Number)>,
    ) -> Result<Vec<(String, Expression)>, ManifestFault> {
        let mut read = Vec::with_capacity(lets.len());
        for (name, number) in lets {
            let key = format!("let.{name}");
            if !is_name(&name) || self.names.has(&name) {
                let expected = "a name of letters, digits and _ that nothing else has".to_owned();
                return Err(ManifestFault::Value { key, found: name, expected });
            }
            let expression = self.expression(&key, &number)?;
            self.names.set(&name, Value::Integer(0));
            read.push((name, expression));
        }
        Ok(read)
    }

    fn supports(&self, text: SupportsText) -> Result<Supports, ManifestFault> {
        let all = |key: &str, found: Vec<String>, expected: &[&str]| {
            found.iter().try_for_each(|word| known(key, word, expected))?;
            Ok::<BTreeSet<_>, ManifestFault>(found.into_iter().collect())
        };
        let layouts = text.layouts.unwrap_or_else(|| vec!["contiguous".to_owned()]);
        let conditions = text.conditions.into_iter().enumerate().map(|(index, condition)| {
            let key = format!("supports.where[{index}].that");
            let that = self.expression(&key, &condition.that)?;
            Ok((key, that, condition.otherwise))
        });
        Ok(Supports {
            rules: all("supports.rules", text.rules, &RULES)?,
            modifiers: all("supports.modifiers", text.modifiers, &MODIFIERS)?,
            layouts: all("supports.layouts", layouts, &LAYOUTS)?,
            conditions: conditions.collect::<Result<_, ManifestFault>>()?,
        })
    }

    fn scratch(
        &mut self,
        scratch: Vec<(String, ScratchText)>,
    ) -> Result<Vec<(String, Scratch)>, ManifestFault> {
        let mut read = Vec::with_capacity(scratch.len());
        for (name, text) in scratch {
            let key = format!("scratch.{name}");
            self.name_buffer(&key, &name)?;
            let of = |field: &str| format!("{key}.{field}");
            let when = text.when.map(|when| self.expression(&of("when"), &when)).transpose()?;
            read.push((
                name,
                Scratch {
                    element_bytes: element_bytes(&of("format"), &text.format)?,
                    elements: self.expression(&of("elements"), &text.elements)?,
                    initial: text.initial,
                    when,
                },
            ));
        }
        Ok(read)
    }

    fn name_buffer(&mut self, key: &str, name: &str) -> Result<(), ManifestFault> {
        if is_name(name) && self.buffers.insert(name.to_owned()) {
            return Ok(());
        }
        let expected = "a name of letters, digits and _ that no other buffer has".to_owned();
        Err(ManifestFault::Value { key: key.to_owned(), found: name.to_owned(), expected })
    }

    fn launches(&self, pass: &str, texts: Vec<LaunchText>) -> Result<Vec<Launch>, ManifestFault> {
        let launch = |(index, text): (usize, LaunchText)| {
            let key = format!("{pass}[{index}]");
            let of = |field: &str| format!("{key}.{field}");
            let extents = |field: &str, texts: &[Number]| {
                if !(1..=3).contains(&texts.len()) {
                    let found = format!("{} extents", texts.len());
                    let expected = "1 to 3: along x, y and z".to_owned();
                    return Err(ManifestFault::Value { key: of(field), found, expected });
                }
                let read = |(axis, text)| self.expression(&format!("{key}.{field}[{axis}]"), text);
                texts.iter().enumerate().map(read).collect()
            };
            let when = text.when.map(|when| self.expression(&of("when"), &when)).transpose()?;
            let shared = text.shared.unwrap_or(Number::Integer(0));
            Ok(Launch {
                when,
                ptx: self.template(&of("ptx"), &text.ptx)?,
                entry: self.template(&of("entry"), &text.entry)?,
                grid: extents("grid", &text.grid)?,
                block: extents("block", &text.block)?,
                shared: self.expression(&of("shared"), &shared)?,
                arguments: self.arguments(&of("arguments"), &text.arguments, false)?,
                key,
            })
        };
        texts.into_iter().enumerate().map(launch).collect()
    }

    fn arguments(
        &self,
        key: &str,
        texts: &[ArgumentText],
        in_struct: bool,
    ) -> Result<Vec<Argument>, ManifestFault> {
        let read = |(index, text): (usize, &ArgumentText)| {
            self.argument(&format!("{key}[{index}]"), text, in_struct)
        };
        texts.iter().enumerate().map(read).collect()
    }

    fn argument(
        &self,
        key: &str,
        text: &ArgumentText,
        in_struct: bool,
    ) -> Result<Argument, ManifestFault> {
        let (kind, number) = match text {
            ArgumentText::Pointer(name) => {
                known(&format!("{key}.pointer"), name, &self.buffers)?;
                return Ok(Argument::Pointer(name.clone()));
            }
            ArgumentText::Struct(name) => {
                let Some(found) = self.structs.get(name) else {
                    let names: Vec<_> = self.structs.keys().collect();
                    return Err(value(&format!("{key}.struct"), name, &names));
                };
                if in_struct || found.members.is_empty() {
                    let expected = "a struct of at least one member and without structs".to_owned();
                    let key = format!("{key}.struct");
                    return Err(ManifestFault::Value { key, found: name.clone(), expected });
                }
                let key = format!("structs.{name}.members");
                return Ok(Argument::Struct(self.arguments(&key, &found.members, true)?));
            }
            ArgumentText::I32(number) => (NumberType::I32, number),
            ArgumentText::U32(number) => (NumberType::U32, number),
            ArgumentText::I64(number) => (NumberType::I64, number),
            ArgumentText::U64(number) => (NumberType::U64, number),
            ArgumentText::F32(number) => (NumberType::F32, number),
            ArgumentText::F64(number) => (NumberType::F64, number),
        };
        Ok(Argument::Number(kind, self.expression(&format!("{key}.{}", kind.name()), number)?))
    }

    fn template(&self, key: &str, text: &str) -> Result<Template, ManifestFault> {
        let mut pieces = Vec::new();
        let mut rest = text;
        while let Some((before, after)) = rest.split_once('{') {
            let Some((inside, after)) = after.split_once('}') else {
                let expected = "a } for every {".to_owned();
                let (key, found) = (key.to_owned(), text.to_owned());
                return Err(ManifestFault::Value { key, found, expected });
            };
            pieces.push(Piece::Text(before.to_owned()));
            let number = Number::Expression(inside.to_owned());
            pieces.push(Piece::Expression(self.expression(key, &number)?));
            rest = after;
        }
        pieces.push(Piece::Text(rest.to_owned()));
        Ok(Template(pieces))
    }
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

fn is_name(name: &str) -> bool {
    name.starts_with(|c: char| c.is_ascii_alphabetic())
        && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}

fn format_of(key: &str, name: &str) -> Result<Format, ManifestFault> {
    let storable = || Format::ALL.into_iter().filter(|&format| dtype_of(format).is_some());
    let names: Vec<_> = storable().map(Format::name).collect();
    storable().find(|format| format.name() == name).ok_or_else(|| value(key, name, &names))
}

/// Bytes of an element of scratch memory: of a number format, or of an integer.
fn element_bytes(key: &str, name: &str) -> Result<usize, ManifestFault> {
    match name {
        "i32" => Ok(4),
        "i64" => Ok(8),
        _ => format_of(key, name).map(Format::bytes),
    }
}

fn known<'a, W: AsRef<str> + 'a>(
    key: &str,
    word: &str,
    expected: impl IntoIterator<Item = &'a W> + Clone,
) -> Result<(), ManifestFault> {
    if expected.clone().into_iter().any(|it| it.as_ref() == word) {
        return Ok(());
    }
    Err(value(key, word, &expected.into_iter().collect::<Vec<_>>()))
}

fn value(key: &str, found: &str, expected: &[impl AsRef<str>]) -> ManifestFault {
    let words: Vec<_> = expected.iter().map(AsRef::as_ref).collect();
    ManifestFault::Value {
        key: key.to_owned(),
        found: found.to_owned(),
        expected: format!("one of {}", words.join(", ")),
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
