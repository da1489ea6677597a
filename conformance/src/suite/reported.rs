//! Cases that reproduce faults reported in public, from `cases/reported.toml`.

use flashproof_spec::format::Format;
use flashproof_spec::mask::Mask;
use flashproof_spec::problem::{Problem, Scale};
use serde::Deserialize;

use crate::case::Case;
use crate::inputs::poison::Poison;
use crate::inputs::{Family, Upstream};

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
    family: Family,
    poison: Option<Poison>,
    upstream: Option<Upstream>,
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
            family: self.family,
            poison: self.poison,
            upstream: self.upstream,
            seed,
            problem: Problem {
                batch: self.batch,
                query_heads: self.query_heads,
                key_heads: self.key_heads.unwrap_or(self.query_heads),
                query_len: self.query_len,
                key_len: self.key_len,
                head_dim: self.head_dim,
                value_dim: self.value_dim.unwrap_or(self.head_dim),
                format: Format::F32,
                scale: self.scale,
                mask: self.mask,
            },
            why: self.why,
            source: self.source,
            bug: Some(self.bug),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_reported_case_is_well_formed() {
        for case in cases(1) {
            assert_eq!(case.problem.validate(), Ok(()), "{}", case.name);
            assert_eq!(case.family.fits(&case.problem), Ok(()), "{}", case.name);
            assert!(!case.source.is_empty(), "{} cites no report", case.name);
            if let Some(poison) = case.poison {
                assert_ne!(poison.keys(&case.problem), [], "{} poisons nothing", case.name);
            }
        }
    }
}
