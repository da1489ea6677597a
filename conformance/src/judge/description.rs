//! The problem behind tensors: extents from their shapes, the rest from flags and metadata.
//!
//! A file's metadata may hold `problem`, the JSON of a problem or of some of its fields, and
//! `scale`, a text such as `1/sqrt(32)`. Flags override both. Extents given in `problem` must be
//! those of the tensors.

use flashproof_spec::format::Format;
use flashproof_spec::mask::{Mask, Rule};
use flashproof_spec::problem::{Problem, Scale};
use flashproof_spec::tensor::Inputs;
use serde::Deserialize;

use super::source::{Source, extents, format};
use super::{Described, JudgeError, scale};

/// The metadata entry that holds a problem, and the one that holds a scale alone.
const PROBLEM: &str = "problem";
const SCALE: &str = "scale";

/// Any fields of a problem.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Fields {
    batch: Option<usize>,
    query_heads: Option<usize>,
    key_heads: Option<usize>,
    query_len: Option<usize>,
    key_len: Option<usize>,
    head_dim: Option<usize>,
    value_dim: Option<usize>,
    format: Option<Format>,
    scale: Option<Scale>,
    mask: Option<Mask>,
}

pub(super) fn problem(
    source: &mut Source,
    inputs: &Inputs,
    described: &Described,
) -> Result<Problem, JudgeError> {
    let [batch, query_heads, query_len, head_dim] = extents(&inputs.query);
    let [_, key_heads, key_len, _] = extents(&inputs.key);
    let [.., value_dim] = extents(&inputs.value);
    let fields = metadata_fields(source)?;
    let mask = mask(source, &fields, described)?;
    let problem = Problem {
        batch,
        query_heads,
        key_heads,
        query_len,
        key_len,
        head_dim,
        value_dim,
        format: format(inputs),
        scale: scale_of(source, &fields, described, head_dim)?,
        mask,
    };
    fields.agree_with(&problem)?;
    Ok(problem)
}

fn metadata_fields(source: &mut Source) -> Result<Fields, JudgeError> {
    let file = source.file().to_owned();
    source.archive().metadata().get(PROBLEM).map_or_else(
        || Ok(Fields::default()),
        |text| {
            serde_json::from_str(text)
                .map_err(|error| JudgeError::Description { file, reason: error.to_string() })
        },
    )
}

fn scale_of(
    source: &mut Source,
    fields: &Fields,
    described: &Described,
    head_dim: usize,
) -> Result<Scale, JudgeError> {
    let from = |origin: String, text: &str| {
        scale::parse(text, head_dim).map_err(|source| JudgeError::Scale { origin, source })
    };
    if let Some(text) = &described.scale {
        return from("--scale".to_owned(), text);
    }
    if let Some(scale) = fields.scale {
        return Ok(scale);
    }
    let origin = format!("'{}', metadata entry '{SCALE}'", source.file());
    source.archive().metadata().get(SCALE).map_or(Ok(Scale::default()), |text| from(origin, text))
}

/// The metadata's mask, with each kind of rule replaced that a flag gives.
fn mask(source: &mut Source, fields: &Fields, described: &Described) -> Result<Mask, JudgeError> {
    let mut rules = fields.mask.clone().unwrap_or_default().rules;
    let is_lengths = |rule: &Rule| matches!(rule, Rule::KeyLengths(_));
    if let Some(causal) = &described.causal {
        rules.retain(is_lengths);
        rules.push(causal.clone());
    }
    if let Some(text) = &described.lengths {
        rules.retain(|rule| !is_lengths(rule));
        rules.push(Rule::KeyLengths(lengths(source, text)?));
    }
    Ok(Mask { rules })
}

/// Key lengths from a list or from a tensor.
fn lengths(source: &mut Source, text: &str) -> Result<Vec<usize>, JudgeError> {
    if source.archive().contains(text) {
        return lengths_from_tensor(source, text);
    }
    text.split(',').map(|word| word.trim().parse()).collect::<Result<_, _>>().map_err(|_| {
        JudgeError::Lengths {
            text: text.to_owned(),
            file: source.file().to_owned(),
            present: source.present(),
        }
    })
}

fn lengths_from_tensor(source: &mut Source, tensor: &str) -> Result<Vec<usize>, JudgeError> {
    let length = |&found: &i64| {
        usize::try_from(found)
            .map_err(|_| JudgeError::NegativeLength { tensor: tensor.to_owned(), found })
    };
    source.archive().integers(tensor, 1)?.iter().map(length).collect()
}

impl Fields {
    fn agree_with(&self, problem: &Problem) -> Result<(), JudgeError> {
        let extents = [
            ("batch", problem.batch, self.batch),
            ("query_heads", problem.query_heads, self.query_heads),
            ("key_heads", problem.key_heads, self.key_heads),
            ("query_len", problem.query_len, self.query_len),
            ("key_len", problem.key_len, self.key_len),
            ("head_dim", problem.head_dim, self.head_dim),
            ("value_dim", problem.value_dim, self.value_dim),
        ];
        let text = |(part, found, told): (&'static str, usize, Option<usize>)| {
            (part, found.to_string(), told.map(|told| told.to_string()))
        };
        let format = ("format", problem.format.to_string(), self.format.map(|it| it.to_string()));
        let contradiction =
            extents.into_iter().map(text).chain([format]).find_map(|(part, found, told)| {
                told.filter(|it| *it != found).map(|it| (part, found, it))
            });
        contradiction.map_or(Ok(()), |(problem_part, tensors, described)| {
            Err(JudgeError::Contradiction { problem_part, tensors, described })
        })
    }
}
