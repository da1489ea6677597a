//! Citations of a clause.

use std::fmt::Write as _;

use super::Clause;

/// One line to cite a clause by, in running text or in a comment of a port.
///
/// ```
/// use flashproof_spec::clause::{cite_text, find};
/// let clause = find("FAS:fwd.online.rescale").unwrap();
/// assert!(cite_text(clause, "0.1.0").starts_with("FAS:fwd.online.rescale, "));
/// ```
#[must_use]
pub fn cite_text(clause: &Clause, version: &str) -> String {
    let Clause { id, title, .. } = clause;
    format!("{id}, \"{title}\", flashproof specification, version {version}")
}

/// A line of Rust documentation to stand above the function that carries a clause out.
///
/// ```
/// use flashproof_spec::clause::{cite_rustdoc, find};
/// let clause = find("FAS:fwd.online.rescale").unwrap();
/// assert!(cite_rustdoc(clause, "0.1.0").starts_with("/// Clause: `FAS:fwd.online.rescale`"));
/// ```
#[must_use]
pub fn cite_rustdoc(clause: &Clause, version: &str) -> String {
    let Clause { id, title, .. } = clause;
    format!("/// Clause: `{id}` ({title}; flashproof specification {version}).")
}

/// A `BibTeX` entry for a clause; its key is the id with `:` and `.` made `-`, and the version.
#[must_use]
pub fn cite_bibtex(clause: &Clause, version: &str) -> String {
    let key = format!("{}-{version}", clause.id).replace([':', '.'], "-");
    let fields = [
        ("author", "{The flashproof developers}".to_owned()),
        ("title", format!("{{{}}}: {}", escape(clause.id), escape(clause.title))),
        ("howpublished", format!("flashproof specification, version {}", escape(version))),
        ("note", escape(clause.statement)),
    ];
    let mut entry = format!("@misc{{{key},\n");
    for (name, value) in fields {
        // Writing to a string does not fail.
        let _ = writeln!(entry, "  {name} = {{{value}}},");
    }
    entry + "}\n"
}

/// Text with the characters that TeX gives a meaning to made literal.
fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '#' | '$' | '%' | '&' | '_' | '{' | '}' => escaped.extend(['\\', character]),
            '\\' => escaped.push_str("\\textbackslash{}"),
            '^' => escaped.push_str("\\textasciicircum{}"),
            '~' => escaped.push_str("\\textasciitilde{}"),
            '<' => escaped.push_str("\\textless{}"),
            '>' => escaped.push_str("\\textgreater{}"),
            '|' => escaped.push_str("\\textbar{}"),
            _ => escaped.push(character),
        }
    }
    escaped
}
