//! A manifest as it is written.

use std::collections::BTreeMap;
use std::fmt;
use std::marker::PhantomData;

use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::Value;

use super::padded::Padding;
use crate::adapter::exec::protocol::Operation;
use crate::adapter::{Choices, Guarantees};

/// The whole file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ManifestText {
    pub(super) name: String,
    /// A file whose structs are this one's, too.
    pub(super) include: Option<String>,
    /// Names of buffers that structs point to and this kernel has not.
    #[serde(default)]
    pub(super) absent: Vec<String>,
    #[serde(default = "forward_alone")]
    pub(super) operations: Vec<Operation>,
    pub(super) formats: BTreeMap<String, FormatText>,
    #[serde(default)]
    pub(super) choices: Choices,
    #[serde(default)]
    pub(super) guarantees: Guarantees,
    pub(super) policies: Option<Vec<String>>,
    #[serde(default)]
    pub(super) supports: SupportsText,
    pub(super) pad: Option<Padding>,
    #[serde(default, rename = "let")]
    pub(super) lets: Ordered<Number>,
    #[serde(default)]
    pub(super) tensors: BTreeMap<String, TensorText>,
    #[serde(default)]
    pub(super) scratch: Ordered<ScratchText>,
    #[serde(default)]
    pub(super) structs: BTreeMap<String, StructText>,
    #[serde(default)]
    pub(super) forward: Vec<LaunchText>,
    #[serde(default)]
    pub(super) backward: Vec<LaunchText>,
}

/// A file that manifests include.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct IncludedText {
    pub(super) structs: BTreeMap<String, StructText>,
}

fn forward_alone() -> Vec<Operation> {
    vec![Operation::Forward]
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct FormatText {
    pub(super) profile: Value,
    /// Profiles that hold under one policy, in place of that of all.
    #[serde(default)]
    pub(super) policies: BTreeMap<String, Value>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct SupportsText {
    pub(super) rules: Vec<String>,
    pub(super) modifiers: Vec<String>,
    pub(super) layouts: Option<Vec<String>>,
    #[serde(rename = "where")]
    pub(super) conditions: Vec<ConditionText>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ConditionText {
    pub(super) that: Number,
    pub(super) otherwise: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct TensorText {
    pub(super) format: Option<String>,
    pub(super) layout: Option<String>,
    pub(super) initial: Initial,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ScratchText {
    pub(super) format: String,
    pub(super) elements: Number,
    #[serde(default)]
    pub(super) initial: Initial,
    pub(super) when: Option<Number>,
}

/// What a buffer holds before a kernel writes it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Initial {
    #[default]
    Unwritten,
    Zero,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct StructText {
    pub(super) members: Vec<ArgumentText>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct LaunchText {
    pub(super) when: Option<Number>,
    pub(super) ptx: String,
    pub(super) entry: String,
    pub(super) grid: Vec<Number>,
    pub(super) block: Vec<Number>,
    #[serde(default)]
    pub(super) shared: Option<Number>,
    pub(super) arguments: Vec<ArgumentText>,
}

/// An argument, or a member of a struct.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum ArgumentText {
    Pointer(String),
    Struct(String),
    I32(Number),
    U32(Number),
    I64(Number),
    U64(Number),
    F32(Number),
    F64(Number),
}

/// An expression, or a number or truth value for one.
#[derive(Clone, Debug, Deserialize)]
#[serde(untagged, expecting = "an expression in quotation marks, a number or a truth value")]
pub(super) enum Number {
    Expression(String),
    Integer(i64),
    Float(f64),
    Truth(bool),
}

impl Number {
    /// The expression.
    pub(super) fn text(&self) -> String {
        match self {
            Self::Expression(text) => text.clone(),
            Self::Integer(value) => value.to_string(),
            // With a point, as a number that is not whole has to be written.
            Self::Float(value) => format!("{value:?}"),
            Self::Truth(value) => value.to_string(),
        }
    }
}

/// A table in the order that it is written in.
#[derive(Debug)]
pub(super) struct Ordered<T>(pub(super) Vec<(String, T)>);

impl<T> Default for Ordered<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Ordered<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Table<T>(PhantomData<T>);

        impl<'de, T: Deserialize<'de>> Visitor<'de> for Table<T> {
            type Value = Ordered<T>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a table")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Ordered<T>, A::Error> {
                let mut entries = Vec::new();
                while let Some(entry) = map.next_entry()? {
                    entries.push(entry);
                }
                Ok(Ordered(entries))
            }
        }

        deserializer.deserialize_map(Table(PhantomData))
    }
}
