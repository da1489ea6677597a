//! The kill matrix: every fault is killed by a clause that describes it, no control is flagged, and the
//! committed table is what the run finds.

use std::fs;
use std::path::Path;
use std::sync::LazyLock;

use flashproof_conformance::mutants::matrix::Matrix;
use flashproof_conformance::mutants::plan::Plan;
use flashproof_conformance::mutants::specimen::specimens;
use flashproof_conformance::mutants::{html, markdown, run, text};
use flashproof_conformance::report::Outcome;

/// The sample that `flashproof mutants` runs.
static MATRIX: LazyLock<Matrix> =
    LazyLock::new(|| run(&specimens(), &Plan::default(), &|_| ()).expect("a run"));

#[test]
fn every_fault_is_killed_by_a_clause_that_describes_it() {
    let undescribed: Vec<_> = MATRIX
        .faults()
        .filter(|row| row.described_by().is_empty())
        .map(|row| (&row.name, &row.clauses, &row.kills))
        .collect();
    assert!(undescribed.is_empty(), "{undescribed:#?}");
}

#[test]
fn no_control_is_flagged() {
    let flagged: Vec<_> = MATRIX.controls().filter(|row| row.is_killed()).collect();
    assert!(flagged.is_empty(), "{flagged:#?}");
    // Controls are judged: some bits of most differ.
    let judged = MATRIX.controls().filter(|row| row.kills.values().any(|kill| kill.judged > 0));
    assert!(2 * judged.count() > MATRIX.controls().count());
    assert_eq!(MATRIX.outcome(), Outcome::Passed);
}

/// How far past its bound an element is depends on the last bits of the platform's exponential, so
/// powers of ten are not compared.
fn without_ratios(markdown: &str) -> String {
    let is_ratio = |cell: &str| cell.trim().starts_with("10^");
    let line = |line: &str| {
        let cells = line.split('|').map(|it| if is_ratio(it) { " 10^n " } else { it });
        cells.collect::<Vec<_>>().join("|")
    };
    markdown.lines().map(line).collect::<Vec<_>>().join("\n")
}

#[test]
fn the_committed_table_is_what_is_found() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("MUTANTS.md");
    let mut found = Vec::new();
    markdown::write(&MATRIX, &mut found).unwrap();
    let found = String::from_utf8(found).unwrap();
    let committed = fs::read_to_string(&path).unwrap();
    assert!(
        without_ratios(&found) == without_ratios(&committed),
        "MUTANTS.md is not what is found; to see the difference: \
         flashproof mutants --markdown conformance/MUTANTS.md"
    );
}

#[test]
fn the_page_needs_nothing_else() {
    let page = html::render(&MATRIX).unwrap();
    for outside in ["http:", "https:", "src=", "<script", "@import", "url(http"] {
        assert!(!page.contains(outside), "{outside}");
    }
    for row in &MATRIX.rows {
        assert!(page.contains(&format!("<code>{}</code>", row.name)), "{}", row.name);
    }
    for tag in ["table", "tr", "td", "th", "div", "svg", "span"] {
        let (opened, closed) = (format!("<{tag}"), format!("</{tag}>"));
        let is_opened = |rest: &&str| rest.starts_with([' ', '>']);
        let count = page.split(&opened).skip(1).filter(is_opened).count();
        assert_eq!(count, page.matches(&closed).count(), "{tag}");
    }
}

#[test]
fn text_names_every_specimen_and_rule() {
    let mut found = Vec::new();
    text::write(&MATRIX, &mut found).unwrap();
    let found = String::from_utf8(found).unwrap();
    for name in MATRIX.rows.iter().map(|row| row.name.as_str()) {
        assert!(found.contains(name), "{name}");
    }
    for rule in &MATRIX.rules {
        assert!(found.contains(rule.name), "{}", rule.name);
    }
}
