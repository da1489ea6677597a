//! Expressions, names and references of a manifest, each read as far as the names before it go.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use flashproof_spec::format::Format;
use flashproof_spec::problem::Problem;

use super::expression::{Expression, Expressions, Names, Value};
use super::manifest::{
    ARRAYS, Argument, Launch, ManifestFault, NumberType, Piece, Scratch, Supports, Template, parsed,
};
use super::text::{
    ArgumentText, IncludedText, LaunchText, Number, ScratchText, StructText, SupportsText,
};
use super::variables::{Circumstances, LAYOUTS, Masked, PLACED, RULES, names_of};
use crate::io::safetensors::dtype_of;

/// What changes scores, weights or the loss, and has numbers or pointers for it.
const MODIFIERS: [&str; 2] = ["softcap", "lse-gradient"];

/// Reads expressions and references, knowing the names so far.
pub(super) struct Reader {
    pub(super) expressions: Expressions,
    names: Names,
    buffers: BTreeSet<String>,
    pub(super) structs: BTreeMap<String, StructText>,
}

impl Reader {
    pub(super) fn new() -> Self {
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

    pub(super) fn include(&mut self, file: &Path) -> Result<(), ManifestFault> {
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

    pub(super) fn lets(
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

    pub(super) fn supports(&self, text: SupportsText) -> Result<Supports, ManifestFault> {
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

    pub(super) fn scratch(
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

    pub(super) fn name_buffer(&mut self, key: &str, name: &str) -> Result<(), ManifestFault> {
        if is_name(name) && self.buffers.insert(name.to_owned()) {
            return Ok(());
        }
        let expected = "a name of letters, digits and _ that no other buffer has".to_owned();
        Err(ManifestFault::Value { key: key.to_owned(), found: name.to_owned(), expected })
    }

    pub(super) fn launches(
        &self,
        pass: &str,
        texts: Vec<LaunchText>,
    ) -> Result<Vec<Launch>, ManifestFault> {
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

fn is_name(name: &str) -> bool {
    name.starts_with(|c: char| c.is_ascii_alphabetic())
        && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}

pub(super) fn format_of(key: &str, name: &str) -> Result<Format, ManifestFault> {
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

pub(super) fn known<'a, W: AsRef<str> + 'a>(
    key: &str,
    word: &str,
    expected: impl IntoIterator<Item = &'a W> + Clone,
) -> Result<(), ManifestFault> {
    if expected.clone().into_iter().any(|it| it.as_ref() == word) {
        return Ok(());
    }
    Err(value(key, word, &expected.into_iter().collect::<Vec<_>>()))
}

pub(super) fn value(key: &str, found: &str, expected: &[impl AsRef<str>]) -> ManifestFault {
    let words: Vec<_> = expected.iter().map(AsRef::as_ref).collect();
    ManifestFault::Value {
        key: key.to_owned(),
        found: found.to_owned(),
        expected: format!("one of {}", words.join(", ")),
    }
}
