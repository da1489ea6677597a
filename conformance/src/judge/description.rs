//! The problem behind tensors: extents from their shapes, the rest from flags and metadata.
//!
//! A file's metadata may hold `problem`, the JSON of a problem or of some of its fields, and
//! `scale`, a text such as `1/sqrt(32)`. Flags override both. Extents and formats given in `problem`
//! must be those of the tensors. A bias and logits of sinks are part of the problem where there are
//! such tensors, and a boolean mask in a tensor is one more rule.

use flashproof_spec::format::Format;
use flashproof_spec::layout::Layout;
use flashproof_spec::mask::{Mask, Rule};
use flashproof_spec::pattern::Pattern;
use flashproof_spec::problem::{Problem, Scale};
use flashproof_spec::score::{Alibi, Bias, Dropout, Sink, Softcap};
use flashproof_spec::tensor::{Inputs, Tensor};
use ndarray::ArrayD;
use serde::{Deserialize, Serialize};

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
    softcap: Option<Softcap>,
    bias: Option<Bias>,
    alibi: Option<Alibi>,
    sink: Option<Sink>,
    dropout: Option<Dropout>,
    layout: Option<Layout>,
}

/// The problem of these inputs; `seen` is the mask that a tensor holds.
pub(super) fn problem(
    source: &mut Source,
    inputs: &Inputs,
    seen: Option<&ArrayD<bool>>,
    described: &Described,
) -> Result<Problem, JudgeError> {
    let [batch, query_heads, query_len, head_dim] = extents(&inputs.query);
    let [_, key_heads, key_len, _] = extents(&inputs.key);
    let [.., value_dim] = extents(&inputs.value);
    let fields = fields(source, described)?;
    let mut mask = mask(source, &fields, described)?;
    mask.rules.extend(seen.map(pattern).transpose()?.map(Rule::Boolean));
    let problem = Problem {
        batch,
        key_heads,
        query_len,
        value_dim,
        scale: scale_of(source, &fields, described, head_dim)?,
        mask,
        softcap: fields.softcap,
        bias: inputs.bias.as_ref().map(bias_of).or(fields.bias),
        alibi: fields.alibi.clone(),
        sink: inputs.sink.as_ref().map(|sink| Sink::Logits(sink.format())).or(fields.sink),
        dropout: fields.dropout.clone(),
        layout: fields.layout.clone().unwrap_or_default(),
        ..Problem::new(format(inputs), query_heads, key_len, head_dim)
    };
    fields.agree_with(&problem)?;
    Ok(problem)
}

/// What is said of the problem, on the command line or else in the file's metadata.
fn fields(source: &mut Source, described: &Described) -> Result<Fields, JudgeError> {
    let file = source.file().to_owned();
    let (origin, text) = if described.problem.is_some() {
        ("--problem".to_owned(), described.problem.as_ref())
    } else {
        let origin = format!("'{file}', metadata entry '{PROBLEM}'");
        (origin, source.archive().metadata().get(PROBLEM))
    };
    text.map_or_else(
        || Ok(Fields::default()),
        |text| {
            serde_json::from_str(text)
                .map_err(|error| JudgeError::Description { origin, reason: error.to_string() })
        },
    )
}

fn bias_of(tensor: &Tensor) -> Bias {
    Bias { shape: extents(tensor), format: tensor.format() }
}

fn pattern(seen: &ArrayD<bool>) -> Result<Pattern, JudgeError> {
    let shape = std::array::from_fn(|axis| seen.shape()[axis]);
    Ok(Pattern::new(shape, seen.iter().copied().collect())?)
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

/// The mask of `--mask` or else of the metadata, with each kind of rule replaced that a flag gives.
fn mask(source: &mut Source, fields: &Fields, described: &Described) -> Result<Mask, JudgeError> {
    let given = match &described.mask {
        None => fields.mask.clone().unwrap_or_default(),
        Some(text) => serde_json::from_str(text)
            .map_err(|error| JudgeError::Mask { text: text.clone(), reason: error.to_string() })?,
    };
    let mut rules = given.rules;
    if let Some(causal) = &described.causal {
        rules.retain(|rule| !matches!(rule, Rule::CausalTopLeft | Rule::CausalBottomRight));
        rules.push(causal.clone());
    }
    if let Some(text) = &described.lengths {
        rules.retain(|rule| !matches!(rule, Rule::KeyLengths(_)));
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
        let bias = ("bias", in_words(&problem.bias), self.bias.map(|it| in_words(&Some(it))));
        let sink = ("sink", in_words(&problem.sink), self.sink.map(|it| in_words(&Some(it))));
        let contradiction = extents.into_iter().map(text).chain([format, bias, sink]).find_map(
            |(part, found, told)| told.filter(|it| *it != found).map(|it| (part, found, it)),
        );
        contradiction.map_or(Ok(()), |(problem_part, tensors, described)| {
            Err(JudgeError::Contradiction { problem_part, tensors, described })
        })
    }
}

/// A part of a problem as its description would have it.
fn in_words(part: &impl Serialize) -> String {
    serde_json::to_string(part).unwrap_or_default()
}
