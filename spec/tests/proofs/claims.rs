//! Claims and clauses agree.

use flashproof_spec::clause::{clauses, find};
use flashproof_spec::proof::{claims, of_clause, statements};

#[test]
fn a_clause_is_marked_proved_exactly_where_a_theorem_is_claimed_for_it() {
    for clause in clauses() {
        let theorems: Vec<_> = of_clause(clause.id).map(|claim| claim.theorem).collect();
        match clause.proof {
            Some(theorem) => assert!(theorems.contains(&theorem), "{}: {theorem}", clause.id),
            None => assert!(theorems.is_empty(), "{} is not marked: {theorems:?}", clause.id),
        }
    }
}

#[test]
fn claims_name_clauses_and_pinned_theorems() {
    for claim in claims() {
        assert!(find(claim.clause).is_some(), "{}", claim.clause);
        assert!(!claim.statement().is_empty(), "{} is not pinned", claim.theorem);
    }
    let definitions = statements().keys().filter(|name| name.starts_with("Defs.")).count();
    assert!(definitions > 0, "the definitions are pinned too");
}
