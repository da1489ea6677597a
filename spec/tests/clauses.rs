//! The registry: ids are unique and well formed, and every normative clause is checked by a test
//! that exists.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use flashproof_spec::clause::{
    Clause, SPEC_VERSION, Status, cite_bibtex, cite_text, clauses, find,
};

fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// Where the source defines a function of that name.
fn definition(source: &str, function: &str) -> Option<usize> {
    source
        .match_indices(&format!("fn {function}"))
        .find(|(start, found)| source[start + found.len()..].starts_with(['(', '<']))
        .map(|(start, _)| start)
}

/// Whether the source defines a test of that name: a function with `#[test]` among its attributes.
fn defines_test(source: &str, function: &str) -> bool {
    definition(source, function).is_some_and(|start| {
        let above = source[..start].trim_end().lines().rev().map(str::trim);
        above.take_while(|line| line.starts_with("#[")).any(|line| line == "#[test]")
    })
}

#[test]
fn ids_are_unique_sorted_and_found() {
    let ids: Vec<_> = clauses().iter().map(|clause| clause.id).collect();
    assert!(ids.is_sorted_by(|a, b| a < b), "{ids:#?}");
    for clause in clauses() {
        assert_eq!(find(clause.id).map(|found| found.title), Some(clause.title));
    }
    for unknown in ["", "FAS:", "FAS:none.such.clause", "fwd.online.merge", "FAS:fwd.online.merge "]
    {
        assert!(find(unknown).is_none(), "{unknown}");
    }
}

#[test]
fn ids_are_well_formed() {
    for clause in clauses() {
        let path = clause.id.strip_prefix("FAS:").expect(clause.id);
        let parts: Vec<_> = path.split('.').collect();
        assert!(matches!(parts.len(), 2 | 3), "{}", clause.id);
        let letters = |part: &&str| {
            part.starts_with(|c: char| c.is_ascii_lowercase())
                && part.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-')
        };
        assert!(parts.iter().all(letters), "{}", clause.id);
    }
}

#[test]
fn clauses_say_what_they_require_and_why() {
    for Clause { id, status, title, statement, rationale, .. } in clauses() {
        assert!(!title.is_empty() && !title.ends_with('.'), "{id}: title");
        assert!(statement.ends_with('.') && rationale.ends_with('.'), "{id}: whole sentences");
        for text in [title, statement, rationale] {
            assert!(!text.contains("  ") && !text.contains('\n'), "{id}: stray white space");
        }
        match status {
            Status::Normative => {}
            Status::Choice { options } => assert!(options.len() >= 2, "{id}: options"),
            Status::Withdrawn { superseded_by } => assert!(find(superseded_by).is_some(), "{id}"),
        }
    }
}

/// The ids that were ever given, with what became of them: `in force`, or `withdrawn`.
const IDS: &str = include_str!("../ids.tsv");

/// What speaks against a list of ids given, when these clauses are in force or withdrawn.
fn against(ids: &str, clauses: &[(&str, bool)]) -> Vec<String> {
    let mut listed = BTreeMap::new();
    let mut found = Vec::new();
    for line in ids.lines().filter(|line| !line.starts_with('#')) {
        match line.split_once('\t') {
            Some((id, state @ ("in force" | "withdrawn"))) => {
                if listed.insert(id, state == "in force").is_some() {
                    found.push(format!("{id} is listed twice"));
                }
            }
            _ => found.push(format!("'{line}' is no id, tab, `in force` or `withdrawn`")),
        }
    }
    for (id, in_force) in clauses {
        match (listed.get(id), in_force) {
            (None, _) => found.push(format!("{id} is new: list it as in force")),
            (Some(false), true) => {
                found
                    .push(format!("{id} was withdrawn, and an id is not used again: take another"));
            }
            (Some(true), false) => found.push(format!("{id} is withdrawn now: list it so")),
            (Some(true), true) | (Some(false), false) => {}
        }
    }
    for id in listed.keys().filter(|id| !clauses.iter().any(|(clause, _)| clause == *id)) {
        found.push(format!("{id} was given and is gone: withdraw it instead of removing it"));
    }
    found
}

#[test]
fn ids_are_never_reused_or_dropped() {
    let clauses: Vec<_> = clauses()
        .iter()
        .map(|clause| (clause.id, !matches!(clause.status, Status::Withdrawn { .. })))
        .collect();
    let found = against(IDS, &clauses);
    assert!(found.is_empty(), "spec/ids.tsv and the clauses: {found:#?}");
}

#[test]
fn an_id_that_is_used_again_is_found() {
    let ids = "# a remark\nFAS:none.a\tin force\nFAS:none.b\twithdrawn\n";
    assert_eq!(against(ids, &[("FAS:none.a", true), ("FAS:none.b", false)]), [""; 0]);
    for (clauses, what) in [
        (&[("FAS:none.a", true), ("FAS:none.b", true)][..], "FAS:none.b was withdrawn"),
        (&[("FAS:none.a", false), ("FAS:none.b", false)], "FAS:none.a is withdrawn now"),
        (&[("FAS:none.a", true)], "FAS:none.b was given and is gone"),
        (&[("FAS:none.a", true), ("FAS:none.b", false), ("FAS:none.c", true)], "FAS:none.c is new"),
    ] {
        let found = against(ids, clauses);
        assert!(found.len() == 1 && found[0].starts_with(what), "{found:?}, expected {what}");
    }
    let twice = format!("{ids}FAS:none.a\twithdrawn\nFAS:none.d\tforgotten\n");
    let found = against(&twice, &[("FAS:none.a", false), ("FAS:none.b", false)]);
    assert_eq!(found.len(), 2, "{found:?}");
}

#[test]
fn every_clause_in_force_is_checked() {
    let unchecked: Vec<_> = clauses()
        .iter()
        .filter(|clause| !matches!(clause.status, Status::Withdrawn { .. }))
        .filter(|clause| clause.checked_by.is_empty())
        .map(|clause| clause.id)
        .collect();
    assert!(unchecked.is_empty(), "clauses without a test: {unchecked:#?}");
}

#[test]
fn tests_that_clauses_name_exist() {
    let mut missing = Vec::new();
    for clause in clauses() {
        for test in clause.checked_by {
            let exists = test.split_once("::").is_some_and(|(file, function)| {
                let source = fs::read_to_string(workspace().join(file)).unwrap_or_default();
                defines_test(&source, function)
            });
            if !exists {
                missing.push(format!("{}: {test}", clause.id));
            }
        }
    }
    assert!(missing.is_empty(), "tests that do not exist: {missing:#?}");
}

#[test]
fn functions_that_clauses_name_exist() {
    for clause in clauses().iter().filter(|clause| !clause.executable.is_empty()) {
        let (path, function) = clause.executable.rsplit_once("::").expect(clause.id);
        let modules = path.split("::").filter(|part| part.starts_with(char::is_lowercase));
        let file = modules.fold(PathBuf::from("src"), |path, module| path.join(module));
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join(file).with_extension("rs");
        let source = fs::read_to_string(&file)
            .unwrap_or_else(|error| panic!("{}: {}: {error}", clause.id, file.display()));
        assert!(definition(&source, function).is_some(), "{}: {}", clause.id, clause.executable);
    }
}

#[test]
fn citations_name_clause_and_version() {
    for clause in clauses() {
        let text = cite_text(clause, SPEC_VERSION);
        for part in [clause.id, clause.title, SPEC_VERSION] {
            assert!(text.contains(part), "{text}");
        }
        assert_eq!(text.lines().count(), 1);
    }
}

#[test]
fn bibtex_entries_are_balanced_and_escaped() {
    for clause in clauses() {
        let entry = cite_bibtex(clause, SPEC_VERSION);
        assert!(entry.starts_with("@misc{FAS-") && entry.ends_with("}\n"), "{entry}");
        let body = entry.lines().skip(1).collect::<String>();
        let mut depth = 1;
        let mut previous = ' ';
        for character in body.chars() {
            let escaped = previous == '\\';
            match character {
                '{' if !escaped => depth += 1,
                '}' if !escaped => depth -= 1,
                '#' | '$' | '%' | '&' | '_' => assert!(escaped, "{entry}"),
                '^' | '~' | '<' | '>' | '|' => panic!("unescaped {character}: {entry}"),
                _ => {}
            }
            assert!(depth >= 0, "{entry}");
            previous = character;
        }
        assert_eq!(depth, 0, "{entry}");
    }
}

#[test]
fn a_citation_reads_as_it_should() {
    let clause = find("FAS:fwd.online.rescale").expect("a clause");
    assert_eq!(
        cite_text(clause, "0.1.0"),
        "FAS:fwd.online.rescale, \"Normalizer and numerator are rescaled together\", flashproof \
         specification, version 0.1.0"
    );
    let entry = cite_bibtex(clause, "0.1.0");
    assert!(entry.starts_with("@misc{FAS-fwd-online-rescale-0-1-0,\n"), "{entry}");
    assert!(entry.contains("multiplied by e\\textasciicircum{}(m - m')"), "{entry}");
}

#[test]
fn only_tests_count_as_tests() {
    let source = "
        fn helper() {}
        #[test]
        #[ignore]
        fn tested(x in y) {}

        #[inline]
        fn other() {}";
    assert!(defines_test(source, "tested"));
    for no_test in ["helper", "other", "test", "missing"] {
        assert!(!defines_test(source, no_test), "{no_test}");
    }
}
