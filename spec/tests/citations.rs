//! Every clause that a file of the workspace cites exists.

use std::fs;
use std::path::{Path, PathBuf};

use flashproof_spec::clause::{clauses, find};

/// Extensions of the files that cite clauses.
const CITING: [&str; 11] =
    ["rs", "py", "md", "json", "toml", "tsv", "v", "cu", "cuh", "html", "snap"];

/// Area that never has a clause: tests of the "no such clause" error cite from it.
const NO_AREA: &str = "FAS:none.";

fn visit(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).expect("a readable folder") {
        let path = entry.expect("a readable entry").path();
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        if path.is_dir() {
            if name != "target" && name != "node_modules" && !name.starts_with('.') {
                visit(&path, found);
            }
        } else if path.extension().is_some_and(|extension| CITING.iter().any(|c| extension == *c)) {
            found.push(path);
        }
    }
}

/// The ids cited in a text, `*` at the end where a whole area is.
fn citations(text: &str) -> Vec<String> {
    text.match_indices("FAS:")
        .map(|(start, prefix)| {
            let rest = &text[start + prefix.len()..];
            let id = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '.' || c == '-';
            let end = rest.find(|c| !id(c)).unwrap_or(rest.len());
            let star = if rest[end..].starts_with('*') { "*" } else { "" };
            let cited = rest[..end].trim_end_matches(['-']);
            let cited = if star.is_empty() { cited.trim_end_matches('.') } else { cited };
            format!("{prefix}{cited}{star}")
        })
        .filter(|citation| citation != "FAS:")
        .collect()
}

fn exists(citation: &str) -> bool {
    citation.strip_suffix('*').map_or_else(
        || find(citation).is_some() || citation.starts_with(NO_AREA),
        |area| clauses().iter().any(|clause| clause.id.starts_with(area)),
    )
}

#[test]
fn clauses_that_files_cite_exist() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut files = Vec::new();
    visit(&root, &mut files);
    let mut cited = 0;
    let mut unknown = Vec::new();
    // This file's own examples are no citations.
    for file in files.iter().filter(|file| !file.ends_with("spec/tests/citations.rs")) {
        let Ok(text) = fs::read_to_string(file) else { continue };
        for citation in citations(&text) {
            cited += 1;
            if !exists(&citation) {
                unknown.push(format!("{}: {citation}", file.display()));
            }
        }
    }
    assert!(cited > clauses().len(), "the registry alone cites that many");
    assert!(unknown.is_empty(), "unknown clauses cited: {unknown:#?}");
}

#[test]
fn citations_are_read_out_of_running_text() {
    let text =
        "see FAS:fwd.online.merge. `FAS:mask.full`, FAS:choice.* (FAS:<area>.<topic>) FAS:...";
    assert_eq!(citations(text), ["FAS:fwd.online.merge", "FAS:mask.full", "FAS:choice.*"]);
    assert!(exists("FAS:mask.full") && exists("FAS:mask.*") && exists("FAS:none.such.clause"));
    assert!(!exists("FAS:mask.fuller") && !exists("FAS:mask") && !exists("FAS:masks.*"));
}

#[test]
fn no_clause_lives_where_tests_cite_none() {
    assert!(clauses().iter().all(|clause| !clause.id.starts_with(NO_AREA)));
}
