//! Why a command could not be carried out.

use std::collections::BTreeMap;

use flashproof_conformance::adapter::OpenError;
use flashproof_conformance::drift::DriftError;
use flashproof_conformance::explain::WriteExampleError;
use flashproof_conformance::judge::JudgeError;
use flashproof_conformance::run::RunError;
use flashproof_conformance::traffic::TrafficError;
use flashproof_spec::format::Format;

/// Why a command could not be carried out.
#[derive(Debug, thiserror::Error)]
pub enum CliError {
    #[error(transparent)]
    Open(#[from] OpenError),
    #[error(transparent)]
    Run(#[from] RunError),
    #[error(transparent)]
    Judge(#[from] JudgeError),
    #[error(transparent)]
    Drift(#[from] DriftError),
    #[error(transparent)]
    Traffic(#[from] TrafficError),
    #[error("{option} is for a kernel to ask now: expected one of {schemes} in place of a file")]
    NotAKernel { option: &'static str, schemes: &'static str },
    #[error(transparent)]
    Example(#[from] WriteExampleError),
    #[error("no case of suite {suite} matches '{pattern}'{}", suggest(near))]
    NoCase { suite: String, pattern: String, near: Vec<String> },
    #[error("no reported fault is '{query}': expected a number or a report such as {example}")]
    NoFault { query: String, example: String },
    #[error("no fault or control is called '{name}'{}", suggest(near))]
    NoMutant { name: String, near: Vec<String> },
    #[error("there is no clause '{id}'{}", suggest(near))]
    NoClause { id: String, near: Vec<String> },
    #[error("{subject} takes none of the formats: {}", list(refused))]
    NoFormat { subject: String, refused: BTreeMap<Format, String> },
    #[error("cannot write '{path}': {source}")]
    Write { path: String, source: std::io::Error },
    #[error("cannot write to standard output: {0}")]
    Stdout(std::io::Error),
}

fn suggest(near: &[String]) -> String {
    if near.is_empty() { String::new() } else { format!("; did you mean {}?", near.join(" or ")) }
}

/// Each format and why; a reason that all share, once.
fn list(refused: &BTreeMap<Format, String>) -> String {
    let mut reasons = refused.values();
    match reasons.next() {
        Some(first) if reasons.all(|reason| reason == first) => first.clone(),
        _ => {
            let each = refused.iter().map(|(format, reason)| format!("{format} ({reason})"));
            each.collect::<Vec<_>>().join(", ")
        }
    }
}

/// At most this many names are suggested.
const SUGGESTED: usize = 3;
/// Names less similar than this, on a scale of 0 to 1, are not suggested.
const SIMILAR: f64 = 0.75;

/// The names most like `word`, the likest first.
pub fn near<'n>(word: &str, names: impl Iterator<Item = &'n str>) -> Vec<String> {
    let mut scored: Vec<_> = names
        .map(|name| (strsim::jaro_winkler(word, name), name))
        .filter(|(score, _)| *score >= SIMILAR)
        .collect();
    scored.sort_by(|a, b| b.0.total_cmp(&a.0));
    scored.dedup();
    scored.into_iter().take(SUGGESTED).map(|(_, name)| name.to_owned()).collect()
}
