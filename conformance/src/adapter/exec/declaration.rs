//! What a worker declares of its kernel, resolved from its first answer.

use std::collections::{BTreeMap, BTreeSet};

use flashproof_spec::format::Format;
use flashproof_spec::profile::{Accumulation, CarriedGradients, MaxPolicy, Profile, Schedule};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::protocol::{Hello, Operation, PROTOCOL};
use super::text::quote;
use crate::adapter::{Choices, Failure, Guarantees};
use crate::io::safetensors::dtype_of;

/// What a worker declares of its kernel.
#[derive(Clone, Debug, PartialEq)]
pub struct Declaration {
    /// What the kernel is, for people.
    pub name: String,
    /// The number formats that it takes, each with its precision contract.
    pub profiles: BTreeMap<Format, Profile>,
    /// What it can be asked to compute.
    pub operations: BTreeSet<Operation>,
    /// The options that it takes where the specification leaves a choice.
    pub choices: Choices,
    /// What it promises beyond the bounds.
    pub guarantees: Guarantees,
}

/// A first answer that declares nothing that could be tested.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[allow(missing_docs)] // each variant's message is its documentation
pub enum HelloError {
    #[error("it answers {found}, which is not JSON")]
    NotJson { found: String },
    #[error("it answers {found}: {reason}")]
    NotAHello { found: String, reason: String },
    #[error("it speaks protocol {found}: expected {PROTOCOL}")]
    Protocol { found: String },
    #[error(
        "it declares no number format: expected at least one, as in \
         \"profiles\": {{\"f32\": \"standard\"}}"
    )]
    NoFormats,
    #[error("it declares no operation: expected \"forward\", \"backward\" or \"merge\"")]
    NoOperations,
    #[error("it declares a profile for '{found}': expected one of f64, f32, f16, bf16, e4m3, e5m2")]
    Format { found: String },
    #[error("its profile for {format} is {found}: expected {PROFILE_FORMS}")]
    Profile { format: Format, found: String },
    #[error(
        "its profile for {format} has an unknown field '{field}': expected one of {}",
        expected.join(", ")
    )]
    UnknownField { format: Format, field: String, expected: Vec<String> },
    #[error("in its profile for {format}, {field} is {found}: {reason}")]
    FieldValue { format: Format, field: String, found: String, reason: String },
}

const PROFILE_FORMS: &str =
    "\"standard\", \"dense\", or {\"base\": one of these, and the fields that differ}";

impl Declaration {
    /// Resolves a worker's first answer.
    ///
    /// # Errors
    /// [`HelloError`] names the field at fault, what it holds and what was expected.
    pub fn parse(line: &str) -> Result<Self, HelloError> {
        let value: Value =
            serde_json::from_str(line).map_err(|_| HelloError::NotJson { found: quote(line) })?;
        // First of all, since another protocol's fields may be others.
        match value.get("protocol") {
            Some(protocol) if *protocol == PROTOCOL => {}
            Some(protocol) => {
                return Err(HelloError::Protocol { found: quote(&protocol.to_string()) });
            }
            None => {
                let reason = "there is no field \"protocol\"".to_owned();
                return Err(HelloError::NotAHello { found: quote(line), reason });
            }
        }
        let hello = Hello::deserialize(value).map_err(|error| HelloError::NotAHello {
            found: quote(line),
            reason: error.to_string(),
        })?;
        let Hello { protocol: _, name, profiles, operations, choices, guarantees } = hello;
        Self::of(&name, &profiles, operations, choices, guarantees)
    }

    /// What is declared of a format.
    ///
    /// # Errors
    /// [`Failure::Unsupported`] names the formats that are declared.
    pub(in crate::adapter) fn profile(&self, format: Format) -> Result<Profile, Failure> {
        self.profiles.get(&format).cloned().ok_or_else(|| {
            let taken: Vec<_> = self.profiles.keys().map(|format| format.name()).collect();
            Failure::Unsupported(format!("{format} is not among its formats, {}", taken.join(", ")))
        })
    }

    /// Resolves what is declared, of profiles their names or the fields that differ.
    pub(in crate::adapter) fn of(
        name: &str,
        profiles: &BTreeMap<String, Value>,
        operations: Vec<Operation>,
        choices: Choices,
        guarantees: Guarantees,
    ) -> Result<Self, HelloError> {
        if profiles.is_empty() {
            return Err(HelloError::NoFormats);
        }
        if operations.is_empty() {
            return Err(HelloError::NoOperations);
        }
        let profiles = profiles
            .iter()
            .map(|(name, declared)| {
                let format =
                    storable(name).ok_or_else(|| HelloError::Format { found: quote(name) })?;
                Ok((format, resolve(format, declared)?))
            })
            .collect::<Result<_, HelloError>>()?;
        let operations = operations.into_iter().collect();
        Ok(Self { name: quote(name), profiles, operations, choices, guarantees })
    }
}

fn storable(name: &str) -> Option<Format> {
    name.parse().ok().filter(|&format| dtype_of(format).is_some())
}

fn resolve(format: Format, declared: &Value) -> Result<Profile, HelloError> {
    let unknown = || HelloError::Profile { format, found: quote(&declared.to_string()) };
    let profile = match declared {
        Value::String(name) => named(name, format).ok_or_else(unknown)?,
        Value::Object(fields) => {
            let base = fields.get("base").and_then(Value::as_str).ok_or_else(unknown)?;
            overlay(format, &named(base, format).ok_or_else(unknown)?, fields)?
        }
        _ => return Err(unknown()),
    };
    check_ranges(format, &profile)?;
    Ok(profile)
}

fn named(name: &str, format: Format) -> Option<Profile> {
    match name {
        "standard" => Some(Profile::standard(format)),
        "dense" => Some(Profile::dense(format)),
        _ => None,
    }
}

/// Replaces fields of `base`, each as a whole, one after another so that an error is one field's.
fn overlay(
    format: Format,
    base: &Profile,
    fields: &Map<String, Value>,
) -> Result<Profile, HelloError> {
    let mut profile = base.clone();
    for (field, value) in fields.iter().filter(|(field, _)| *field != "base") {
        let mut all = as_object(&profile);
        if !all.contains_key(field) {
            let expected = all.keys().cloned().collect();
            return Err(HelloError::UnknownField { format, field: quote(field), expected });
        }
        all.insert(field.clone(), value.clone());
        profile = Profile::deserialize(Value::Object(all)).map_err(|error| {
            let (field, found) = (field.clone(), quote(&value.to_string()));
            HelloError::FieldValue { format, field, found, reason: error.to_string() }
        })?;
    }
    Ok(profile)
}

fn as_object(profile: &Profile) -> Map<String, Value> {
    match profile.serialize(serde_json::value::Serializer) {
        Ok(Value::Object(fields)) => fields,
        // a struct of numbers and names serializes as nothing else
        _ => Map::new(),
    }
}

/// Refuses numbers that describe no kernel, such as a negative error.
fn check_ranges(format: Format, profile: &Profile) -> Result<(), HelloError> {
    let refuse = |field: &str, found: String, reason: &str| {
        let (field, reason) = (field.to_owned(), reason.to_owned());
        Err(HelloError::FieldValue { format, field, found, reason })
    };
    for (field, error) in [
        ("exp_ulp", profile.exp_ulp),
        ("tanh_ulp", profile.tanh_ulp),
        ("division_ulp", profile.division_ulp),
        ("log.absolute", profile.log.absolute),
        ("log.ulp", profile.log.ulp),
    ] {
        if !(error.is_finite() && error >= 0.0) {
            return refuse(field, error.to_string(), "expected a finite number, 0 or more");
        }
    }
    let scale = profile.weight_scale;
    if !(scale.is_finite() && scale > 0.0) {
        return refuse("weight_scale", scale.to_string(), "expected a positive, finite number");
    }
    for (field, accumulation) in [
        ("score_accumulation", profile.score_accumulation),
        ("value_accumulation", profile.value_accumulation),
    ] {
        if let Accumulation::TensorCore { chunk: 0, .. } = accumulation {
            return refuse(field, "a chunk of 0".to_owned(), "expected at least 1 product a step");
        }
    }
    if profile.schedule == Schedule::Blocks(0) {
        return refuse("schedule", "blocks of 0".to_owned(), "expected at least 1 key a block");
    }
    let CarriedGradients { query, key, value } = profile.carried_gradients;
    if [query, key, value].into_iter().flatten().any(|carried| carried.block == 0) {
        return refuse(
            "carried_gradients",
            "blocks of 0".to_owned(),
            "expected at least 1 a block",
        );
    }
    if let Some(policy) = profile.max_policy
        && !policy.fits(profile.schedule)
    {
        let (found, expected) = match policy {
            MaxPolicy::Running => ("running", "expected a schedule of blocks with it"),
            MaxPolicy::Row => ("row", "expected a dense schedule with it"),
        };
        return refuse("max_policy", found.to_owned(), expected);
    }
    if dtype_of(profile.lse_format).is_none() {
        return refuse("lse_format", profile.lse_format.to_string(), "no file holds that format");
    }
    Ok(())
}
