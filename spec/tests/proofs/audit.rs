//! Whether proofs are what the claims say: each theorem there, its statement and the definitions
//! under it as pinned, and nothing under it but allowed axioms.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;

use flashproof_spec::proof::{Claim, claims, statements};

use crate::coq::{Workshop, sources};

/// What an audit found.
pub struct Audit {
    /// What is wrong, a line each; empty where all is well.
    pub faults: Vec<String>,
    /// The text to pin, of every theorem and definition that was audited.
    pub pinned: String,
}

/// Audits the files of the given names, which must come in the order that they are compiled, in a
/// copy that `edit` may have changed.
pub fn audit(files: &[String], edit: impl Fn(&str, String) -> String) -> Audit {
    let workshop = Workshop::new(&edit);
    let mut faults = Vec::new();
    for file in files {
        let text = fs::read_to_string(sources().join(file)).expect("a readable source");
        for word in ["Admitted", "admit", "Axiom", "Parameter", "Conjecture"] {
            if has_word(&edit(file, text.clone()), word) {
                faults.push(format!("{file}: {word}"));
            }
        }
        if let Err(error) = workshop.compile(file) {
            faults.push(format!("{file} does not compile: {error}"));
            return Audit { faults, pinned: String::new() };
        }
    }
    let modules: Vec<_> = files.iter().map(|file| file.trim_end_matches(".v")).collect();
    let audited: BTreeMap<_, _> = claims()
        .iter()
        .filter(|claim| modules.contains(&module(claim.theorem)))
        .map(|claim| (claim.theorem, claim))
        .collect();
    let names = audited.keys().map(|&name| name.to_owned()).chain(definitions(&modules));
    let names: Vec<_> = names.collect();
    match workshop.compile_text("Audit.v", &inquiry(&modules, &names, &audited)) {
        Err(error) => {
            faults.push(format!("a theorem is missing: {error}"));
            Audit { faults, pinned: String::new() }
        }
        Ok(printed) => {
            let answers = Answers::parse(&printed);
            for (name, claim) in &audited {
                faults.extend(rogue_axioms(claim, answers.axioms.get(*name)));
            }
            faults.extend(changed(&answers.statements));
            let mut pinned = String::new();
            for (name, statement) in &answers.statements {
                let _ = writeln!(pinned, "@@ {name}\n{statement}\n");
            }
            Audit { faults, pinned }
        }
    }
}

fn module(name: &str) -> &str {
    name.split('.').next().unwrap_or_default()
}

fn has_word(text: &str, word: &str) -> bool {
    text.split(|c: char| !c.is_alphanumeric() && c != '_').any(|it| it == word)
}

/// Every definition in the files, as `Module.name`.
fn definitions(modules: &[&str]) -> Vec<String> {
    let kinds = ["Definition ", "Fixpoint ", "Inductive ", "Record "];
    let of_module = |module: &&str| {
        let text = fs::read_to_string(sources().join(format!("{module}.v"))).expect("a source");
        let name = |line: &str| {
            let rest = kinds.iter().find_map(|kind| line.trim_start().strip_prefix(kind))?;
            let end = rest.find(|c: char| !c.is_alphanumeric() && c != '_' && c != '\'')?;
            Some(format!("{module}.{}", &rest[..end]))
        };
        text.lines().filter_map(name).collect::<Vec<_>>()
    };
    modules.iter().flat_map(of_module).collect()
}

/// The questions to Coq: what each name stands for and, of theorems, what they rest on.
fn inquiry(modules: &[&str], names: &[String], theorems: &BTreeMap<&str, &Claim>) -> String {
    let mut text = String::from(
        "Require Import Reals List QArith Qcanon.\nOpen Scope R_scope.\nSet Printing Width 98.\n",
    );
    for module in modules {
        let _ = writeln!(text, "From Flashproof Require {module}.");
    }
    for name in names {
        let (question, assumptions) = if theorems.contains_key(name.as_str()) {
            ("Check", format!("Print Assumptions {name}."))
        } else {
            ("Print", String::new())
        };
        let _ = writeln!(
            text,
            "Goal True. idtac \"@@ {name}\". Abort.\n{question} {name}.\nGoal True. idtac \"@axioms\". Abort.\n{assumptions}"
        );
    }
    text
}

/// What Coq said of each name.
struct Answers {
    statements: BTreeMap<String, String>,
    axioms: BTreeMap<String, BTreeSet<String>>,
}

impl Answers {
    fn parse(printed: &str) -> Self {
        let mut answers = Self { statements: BTreeMap::new(), axioms: BTreeMap::new() };
        for piece in printed.split("@@ ").skip(1) {
            let (name, rest) = piece.split_once('\n').expect("a name on a line of its own");
            let (statement, rest) = rest.split_once("@axioms").expect("a mark after a statement");
            answers.statements.insert(name.to_owned(), statement.trim().to_owned());
            answers.axioms.insert(name.to_owned(), axiom_names(rest));
        }
        answers
    }
}

/// The names that begin lines in what `Print Assumptions` prints.
fn axiom_names(printed: &str) -> BTreeSet<String> {
    let name = |line: &str| {
        let word = line.split([' ', ':']).next().unwrap_or_default();
        let is_name = word.starts_with(char::is_alphabetic) && word.contains('.');
        is_name.then(|| word.to_owned())
    };
    printed.lines().filter(|line| !line.starts_with("Axioms:")).filter_map(name).collect()
}

fn rogue_axioms(claim: &Claim, found: Option<&BTreeSet<String>>) -> Vec<String> {
    let allowed = claim.allowed_axioms();
    let is_allowed = |axiom: &str| {
        allowed
            .iter()
            .any(|it| it.strip_suffix('*').map_or(*it == axiom, |area| axiom.starts_with(area)))
    };
    let found = found.into_iter().flatten();
    found
        .filter(|axiom| !is_allowed(axiom))
        .map(|axiom| {
            format!("{} rests on {axiom}, which '{}' does not allow", claim.theorem, claim.axioms)
        })
        .collect()
}

/// Names whose statement is another than pinned, or not pinned.
fn changed(found: &BTreeMap<String, String>) -> Vec<String> {
    let differs = |(name, statement): (&String, &String)| match statements().get(name.as_str()) {
        None => Some(format!("{name} is not in statements.pinned")),
        Some(pinned) if pinned != statement => {
            Some(format!("{name} states another thing than pinned:\n{statement}"))
        }
        Some(_) => None,
    };
    found.iter().filter_map(differs).collect()
}
