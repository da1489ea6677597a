//! The theorems behind clauses: which there are, what they state and what they rest on.
//!
//! They are proved in Coq, in the folder `proofs` of this crate. A theorem is about the definitions
//! in `proofs/Defs.v`, over the real numbers; golden vectors that Coq computes in the exact model, and
//! properties, tie the functions of this crate to those definitions. `proofs/README.md` tells what is
//! proved, what is not, and how to check it.

use std::collections::BTreeMap;
use std::sync::LazyLock;

/// Which theorem stands for which clause: `proofs/claims.tsv`.
const CLAIMS: &str = include_str!("../proofs/claims.tsv");
/// Which axioms each set in that table allows: `proofs/axioms.tsv`.
const AXIOMS: &str = include_str!("../proofs/axioms.tsv");
/// What theorems and definitions state, as Coq prints them: `proofs/statements.pinned`.
const STATEMENTS: &str = include_str!("../proofs/statements.pinned");

/// A theorem that a clause rests on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Claim {
    /// The clause's id.
    pub clause: &'static str,
    /// `Module.theorem`; the module is a file in `proofs`.
    pub theorem: &'static str,
    /// The set of axioms that it may rest on.
    pub axioms: &'static str,
}

impl Claim {
    /// What the theorem states, as Coq prints it; empty where it is not pinned, which a test forbids.
    #[must_use]
    pub fn statement(&self) -> &'static str {
        statements().get(self.theorem).copied().unwrap_or_default()
    }

    /// The axioms that it may rest on; one that ends in `*` stands for all that begin like it.
    #[must_use]
    pub fn allowed_axioms(&self) -> Vec<&'static str> {
        rows::<2>(AXIOMS).filter(|row| row[0] == self.axioms).map(|row| row[1]).collect()
    }
}

/// Every claim, in the order of the table.
#[must_use]
pub fn claims() -> &'static [Claim] {
    static ALL: LazyLock<Vec<Claim>> = LazyLock::new(|| {
        rows::<3>(CLAIMS)
            .map(|[clause, theorem, axioms]| Claim { clause, theorem, axioms })
            .collect()
    });
    &ALL
}

/// The theorems that stand for the clause of that id.
pub fn of_clause(id: &str) -> impl Iterator<Item = &'static Claim> + '_ {
    claims().iter().filter(move |claim| claim.clause == id)
}

/// What each theorem and definition states, by its name: the pinned text in pieces.
#[must_use]
pub fn statements() -> &'static BTreeMap<&'static str, &'static str> {
    static ALL: LazyLock<BTreeMap<&'static str, &'static str>> =
        LazyLock::new(|| parse_statements(STATEMENTS));
    &ALL
}

/// `@@ NAME` begins the piece of that name.
fn parse_statements(text: &str) -> BTreeMap<&str, &str> {
    let pieces = text.split("@@ ").skip(1);
    pieces.filter_map(|piece| piece.split_once('\n')).map(|(name, it)| (name, it.trim())).collect()
}

/// The rows of a table after its heading, those of another number of fields left out.
fn rows<const N: usize>(table: &str) -> impl Iterator<Item = [&str; N]> {
    table.lines().skip(1).filter_map(|line| {
        let fields: Vec<_> = line.split('\t').collect();
        fields.try_into().ok()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_row_is_left_out() {
        assert_eq!(claims().len(), CLAIMS.lines().count() - 1);
        assert_eq!(rows::<2>(AXIOMS).count(), AXIOMS.lines().count() - 1);
    }

    #[test]
    fn a_set_of_axioms_that_a_claim_names_exists() {
        for claim in claims() {
            assert!(!claim.allowed_axioms().is_empty(), "{}: {}", claim.theorem, claim.axioms);
        }
    }
}
