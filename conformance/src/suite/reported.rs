//! Cases that reproduce faults reported in public, from `cases/reported.toml`.

use flashproof_spec::clause;
use flashproof_spec::format::Format;
use flashproof_spec::mask::Mask;
use flashproof_spec::problem::{Problem, Scale};
use flashproof_spec::score::{Alibi, Bias, Dropout, Sink, Softcap};
use serde::Deserialize;

use super::masks::shape;
use crate::case::{Case, Check};
use crate::inputs::poison::Poison;
use crate::inputs::{BiasValues, Family, LayoutKind, Modifiers, SinkValues, Upstream, pattern};

const REPORTED: &str = include_str!("../../cases/reported.toml");

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Reported {
    case: Vec<Entry>,
}

/// One `[[case]]` of the file. Extents that are not given are 1; `value_dim` is `head_dim`, and
/// `key_heads` is `query_heads`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    bug: u32,
    name: String,
    why: String,
    source: Vec<String>,
    clause: String,
    family: Family,
    poison: Option<Poison>,
    upstream: Option<Upstream>,
    check: Option<Check>,
    #[serde(default = "one")]
    batch: usize,
    #[serde(default = "one")]
    query_heads: usize,
    key_heads: Option<usize>,
    query_len: usize,
    key_len: usize,
    head_dim: usize,
    value_dim: Option<usize>,
    #[serde(default)]
    scale: Scale,
    #[serde(default)]
    mask: Mask,
    softcap: Option<Softcap>,
    alibi: Option<Alibi>,
    bias: Option<BiasEntry>,
    sink: Option<SinkEntry>,
    dropout: Option<DropoutEntry>,
    layout: Option<LayoutKind>,
}

#[derive(Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields)]
struct BiasEntry {
    values: BiasValues,
    axes: Axes,
    #[serde(default)]
    wide: bool,
}

#[derive(Clone, Copy, Deserialize)]
#[serde(untagged)]
enum SinkEntry {
    Zero(Zero),
    Logits(SinkValues),
}

#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Zero {
    Zero,
}

#[derive(Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields)]
struct DropoutEntry {
    keep: f64,
    axes: Axes,
}

/// The axes along which something is not broadcast: letters of `bhqk`, in that order.
#[derive(Clone, Copy, Deserialize)]
#[serde(try_from = "String")]
struct Axes([bool; 4]);

impl TryFrom<String> for Axes {
    type Error = String;

    fn try_from(letters: String) -> Result<Self, String> {
        let axes = ['b', 'h', 'q', 'k'].map(|axis| letters.contains(axis));
        let written: String =
            "bhqk".chars().zip(axes).filter(|&(_, kept)| kept).map(|(letter, _)| letter).collect();
        if written == letters {
            Ok(Self(axes))
        } else {
            Err(format!("axes '{letters}': expected letters of 'bhqk', in that order"))
        }
    }
}

const fn one() -> usize {
    1
}

/// The file's cases, in `f32`.
///
/// # Panics
/// When the file that was compiled in is not well formed, which the tests rule out.
pub(super) fn cases(seed: u64) -> Vec<Case> {
    let reported: Reported =
        toml::from_str(REPORTED).unwrap_or_else(|error| panic!("cases/reported.toml: {error}"));
    reported.case.into_iter().map(|entry| entry.case(seed)).collect()
}

impl Entry {
    fn case(self, seed: u64) -> Case {
        Case {
            name: format!("{}/reported/{}-{}", Format::F32, self.bug, self.name),
            problem: self.problem(),
            family: self.family,
            modifiers: self.modifiers(),
            poison: self.poison,
            upstream: self.upstream,
            check: self.check,
            seed,
            clause: clause::find(&self.clause).map(|clause| clause.id),
            why: self.why,
            source: self.source,
            bug: Some(self.bug),
        }
    }

    fn problem(&self) -> Problem {
        let format = Format::F32;
        let mut problem = Problem {
            batch: self.batch,
            key_heads: self.key_heads.unwrap_or(self.query_heads),
            query_len: self.query_len,
            value_dim: self.value_dim.unwrap_or(self.head_dim),
            scale: self.scale,
            mask: self.mask.clone(),
            softcap: self.softcap,
            alibi: self.alibi.clone(),
            sink: self.sink.map(|sink| match sink {
                SinkEntry::Zero(Zero::Zero) => Sink::Zero,
                SinkEntry::Logits(_) => Sink::Logits(format),
            }),
            ..Problem::new(format, self.query_heads, self.key_len, self.head_dim)
        };
        problem.bias = self.bias.map(|bias| Bias { shape: shape(&problem, bias.axes.0), format });
        problem.dropout = self.dropout.map(|DropoutEntry { keep, axes }| Dropout {
            scale: format.round(1.0 / keep),
            keep: pattern::balanced("keep", shape(&problem, axes.0), keep),
        });
        problem.layout = self.layout.and_then(|kind| kind.of(&problem)).unwrap_or_default();
        problem
    }

    fn modifiers(&self) -> Modifiers {
        Modifiers {
            bias: self.bias.map(|bias| bias.values).unwrap_or_default(),
            sink: match self.sink {
                Some(SinkEntry::Logits(values)) => values,
                Some(SinkEntry::Zero(_)) | None => SinkValues::default(),
            },
            wide: self.bias.is_some_and(|bias| bias.wide),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// Faults in the sections A to G of the collection that the numbers are from.
    const FAULTS: u32 = 51;

    #[test]
    fn every_reported_case_is_well_formed() {
        for case in cases(1) {
            assert_eq!(case.problem.validate(), Ok(()), "{}", case.name);
            assert_eq!(case.family.fits(&case.problem), Ok(()), "{}", case.name);
            assert!(!case.source.is_empty(), "{} cites no report", case.name);
            assert!(case.clause.is_some(), "{} cites no clause that exists", case.name);
            assert_eq!(case.poisons_something(), case.poison.is_some(), "{}", case.name);
        }
    }

    #[test]
    fn every_fault_has_a_case() {
        let found: BTreeSet<_> = cases(1).into_iter().filter_map(|case| case.bug).collect();
        assert_eq!(found, (1..=FAULTS).collect());
    }

    #[test]
    fn a_layout_that_is_asked_for_is_given() {
        let reported: Reported = toml::from_str(REPORTED).unwrap();
        for entry in reported.case {
            let given = entry.problem().layout;
            assert_eq!(given.is_contiguous(), entry.layout.is_none(), "{}", entry.name);
        }
    }

    #[test]
    fn axes_are_letters_in_order() {
        let axes = |letters: &str| Axes::try_from(letters.to_owned()).map(|axes| axes.0);
        assert_eq!(axes("hqk"), Ok([false, true, true, true]));
        assert_eq!(axes(""), Ok([false; 4]));
        for wrong in ["kq", "bb", "x", "b h"] {
            assert!(axes(wrong).unwrap_err().contains(wrong));
        }
    }
}
